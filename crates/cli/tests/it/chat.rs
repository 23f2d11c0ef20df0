//! `tenure chat` at a real terminal and behind a pipe.

use std::{
    io::Write as _,
    process::{Child, Stdio},
};

use serde_json::{Value, json};

use crate::{
    rig::{Daemon, Folder, Ran, Watcher, wait_for_end},
    screen::Screen,
};

const PROMPT: &str = "> ";

fn text(text: &str) -> Value {
    json!({"do": [{"text": text}]})
}

fn chat(folder: &Folder, arguments: &[&str]) -> (Screen, Child) {
    let mut command = folder.command(&[&["chat"], arguments].concat());
    let screen = Screen::of(&mut command);
    let child = command.spawn().unwrap();
    (screen, child)
}

#[tokio::test]
async fn a_conversation_streams_asks_in_place_and_is_taken_up_again() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let patch = "--- a/new.txt\n+++ b/new.txt\n@@ -1 +1,2 @@\n one\n+two\n";
    std::fs::write(folder.workspace().join("new.txt"), "one\n").unwrap();
    let calls = json!({"do": [
        {"call": {"name": "shell", "input": {"command": "touch ran"}}},
        {"call": {"name": "apply_patch", "input": {"patch": patch}}},
    ]});
    let steps = json!([text("Hello there."), calls, text("All done."), text("Back again.")]);
    let model = folder.script(&json!({"name": "talk", "steps": steps}));
    let policy = json!({"approval": {"require_for_kinds": ["write", "exec", "network"]}});
    let session = daemon.session_with(&folder.workspace(), &model, serde_json::from_value(policy).unwrap()).await;
    let (mut screen, mut child) = chat(&folder, &["--session", &session, "hi"]);
    screen.until("Hello there.");
    screen.until(PROMPT);
    screen.types("go\r");
    screen.until("Allow shell?\r\n  touch ran\r\n[y] yes");
    screen.types("/nope\n");
    screen.until("There is no /nope; /help lists what there is.");
    screen.until("[y] yes");
    screen.types("/deny\n");
    screen.until(
        "Allow apply_patch?\r\n  --- a/new.txt\r\n  +++ b/new.txt\r\n  @@ -1 +1,2 @@\r\n   one\r\n  +two\r\n[y] yes",
    );
    screen.types("y\n");
    screen.until("All done.");
    screen.until(PROMPT);
    screen.types("/title Two words\r");
    screen.until(PROMPT);
    screen.types("/tilte x\r");
    screen.until("There is no /tilte; /help lists what there is.");
    screen.until(PROMPT);
    screen.types("\u{4}");
    screen.until(&format!("The session stays: tenure chat --session {session}"));
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
    assert!(!folder.workspace().join("ran").exists());
    assert_eq!(std::fs::read_to_string(folder.workspace().join("new.txt")).unwrap(), "one\ntwo\n");
    assert_eq!(daemon.client().session(&session).await.unwrap().title.as_deref(), Some("Two words"));

    let (mut screen, mut child) = chat(&folder, &["--continue"]);
    screen.until("All done.");
    screen.until(&session);
    screen.until(PROMPT);
    // The history of the first chat is there: its last message, two lines up from the end.
    screen.types("\u{1b}[A\u{1b}[A");
    screen.until("/title Two words");
    screen.types("\u{15}more\r");
    screen.until("Back again.");
    screen.until(PROMPT);
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
}

#[tokio::test]
async fn ctrl_c_cancels_the_turn_and_a_second_one_leaves() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let stalls = json!({"do": [{"text": "Thinking"}, {"stall": true}]});
    let model = folder.script(&json!({"name": "s", "steps": [stalls]}));
    let session = daemon.session(&folder.workspace(), &model).await;
    let watcher = Watcher::start(&daemon, &session);
    let (mut screen, mut child) = chat(&folder, &["--session", &session, "go"]);
    screen.until("Thinking");
    // What is typed meanwhile goes to the agent at work.
    screen.types("rather this\n");
    screen.until("passed on");
    screen.types("/show\n");
    screen.until("That can be done when the turn is over");
    let steered = watcher.wait_for_nth("second message", 2, |event| event.wire_type == "message_added").await;
    assert_eq!(steered.data["parts"][0]["text"], "rather this");
    assert_eq!(watcher.types().iter().filter(|kind| *kind == "message_added").count(), 2, "a command is no message");
    crate::rig::signal(child.id(), rustix::process::Signal::INT);
    screen.until("Canceling; Ctrl-C again leaves at once.");
    watcher.wait_for_type("turn_canceled").await;
    screen.until(PROMPT);
    screen.types("\u{3}");
    screen.until("Ctrl-D or /exit leaves.");
    screen.until(PROMPT);
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));

    // A turn that cannot be canceled, because the daemon is gone, is left.
    let mut daemon = daemon;
    let (mut screen, mut child) = chat(&folder, &["--session", &session, "go"]);
    screen.until("Thinking");
    daemon.kill9();
    crate::rig::signal(child.id(), rustix::process::Signal::INT);
    screen.until("Canceling; Ctrl-C again leaves at once.");
    crate::rig::signal(child.id(), rustix::process::Signal::INT);
    screen.until("Left; the turn goes its way.");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(130));
}

#[tokio::test]
async fn what_others_do_is_shown_above_the_prompt() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let model = folder.script(&json!({"name": "s", "steps": [text("First."), text("To somebody else.")]}));
    let session = daemon.session(&folder.workspace(), &model).await;
    let (mut screen, mut child) = chat(&folder, &["--session", &session, "hi"]);
    screen.until("First.");
    screen.until(PROMPT);
    screen.types("half a li");
    daemon.send(&session, "from elsewhere").await;
    screen.until("http: from elsewhere");
    screen.until("To somebody else.");
    screen.until("half a li");
    screen.types("\u{15}/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
}

#[test]
fn behind_a_pipe_each_line_is_a_message() {
    let folder = Folder::new();
    let fails = json!({"do": [{"error": {"kind": "auth", "message": "no key"}}]});
    let model = folder.script(&json!({"name": "s", "steps": [text("One."), text("Two."), fails]}));
    let piped = |arguments: &[&str], lines: &str| {
        let mut command = folder.command(&[&["chat", "--model", &model], arguments].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    };
    assert_eq!(piped(&[], "a\n\nb\n").exits(0).stdout, "One.\nTwo.\n");
    assert_eq!(piped(&["a"], "/show\n/exit\nb\n").exits(0).stdout, "One.\n");
    piped(&[], "a\nb\nc\n").exits(1);
    let lines = piped(&["--json"], "a\nb\n").exits(0).json_lines();
    let results: Vec<&Value> = lines.iter().filter(|line| line["type"] == "result").collect();
    assert_eq!((results.len(), &results[1]["text"]), (2, &json!("Two.")));
    assert_eq!(results[0]["session_id"], results[1]["session_id"]);
}

//! `tenure chat` at a real terminal and behind a pipe.

use std::{
    io::Write as _,
    process::{Child, Stdio},
};

use serde_json::{Value, json};
use tenure_client::Client;
use tenure_wire::{Approve, Cancel, Role, Verdict};

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
    screen.types("?\n");
    screen.until("the same tool with the same subject for the rest of this");
    screen.until("[y] yes");
    screen.types("/deny not that way\n");
    screen.until(
        "Allow apply_patch?\r\n  --- a/new.txt\r\n  +++ b/new.txt\r\n  @@ -1 +1,2 @@\r\n   one\r\n  +two\r\n[y] yes",
    );
    screen.types("y\n");
    screen.until("shell: denied: not that way");
    screen.until("✓ apply_patch");
    screen.until("+1 -0");
    screen.until("All done.");
    screen.until(PROMPT);
    screen.types("/title Two words\r");
    screen.until(PROMPT);
    screen.types("/tilte x\r");
    screen.until("There is no /tilte; /help lists what there is.");
    screen.until(PROMPT);
    assert_eq!(
        screen.shown.matches("[y] yes").count(),
        4,
        "a question is put once, and again after a wrong command and help"
    );
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
    screen.until(&format!("session     {session}"));
    screen.types("/title Another\n/sessions\n");
    screen.until("Another");
    screen.until("Another");
    screen.types("/model other\n");
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
    screen.until("Left; `tenure session show sess_");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(130));
}

/// The texts of all messages of a role, in the order they were taken.
async fn said(client: &Client, session: &str, role: Role) -> Vec<String> {
    let (mut texts, mut cursor) = (vec![], None::<String>);
    loop {
        let page = client.messages(session, cursor.as_deref()).await.unwrap();
        let of_role = page.messages.iter().filter(|message| message.role == role);
        texts.extend(of_role.map(|message| serde_json::to_value(&message.parts[0]).unwrap()["text"].to_string()));
        cursor = page.next;
        if cursor.is_none() {
            return texts.iter().map(|text| text.trim_matches('"').to_owned()).collect();
        }
    }
}

#[tokio::test]
async fn lines_that_come_at_once_all_become_messages_in_order() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    // More than the editor reads at a time.
    let lines: Vec<String> = (0..30).map(|number| format!("line {number} {}", "x".repeat(60))).collect();
    let steps: Vec<Value> = (0..=lines.len()).map(|number| text(&format!("Answer {number}."))).collect();
    let model = folder.script(&json!({"name": "s", "steps": steps}));
    let session = daemon.session(&folder.workspace(), &model).await;
    let (mut screen, mut child) = chat(&folder, &["--session", &session, "hi"]);
    screen.until("Answer 0.");
    screen.until(PROMPT);
    screen.types(&format!("{}\r", lines.join("\r")));
    screen.until(&format!("Answer {}.", lines.len()));
    screen.until(PROMPT);
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
    assert_eq!(said(&daemon.client(), &session, Role::User).await[1..], lines);
}

#[tokio::test]
async fn lines_typed_while_a_turn_runs_are_messages_and_answer_no_later_question() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let gate = folder.path().join("gate");
    let call = json!({"call": {"name": "shell", "input": {"command": "touch ran"}}});
    let begins = json!({"do": [{"text": "Thinking"}, {"wait_for": gate}, call]});
    let model = folder.script(&json!({"name": "s", "steps": [begins, text("All done.")]}));
    let session = daemon.session(&folder.workspace(), &model).await;
    let (mut screen, mut child) = chat(&folder, &["--session", &session, "go"]);
    screen.until("Thinking");
    screen.types("one\ny\nhalf a li");
    screen.until("passed on");
    screen.until("passed on");
    std::fs::write(gate, "").unwrap();
    screen.until("Left out, for it was typed before the question: half a li\r\nAllow shell?");
    screen.until("[y] yes");
    assert_eq!(said(&daemon.client(), &session, Role::User).await, ["go", "one", "y"]);
    screen.types("n\n");
    screen.until("All done.");
    screen.until(PROMPT);
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
    assert!(!folder.workspace().join("ran").exists());
}

#[tokio::test]
async fn a_line_typed_while_the_turn_is_canceled_is_the_next_message() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let stalls = json!({"do": [{"text": "Thinking"}, {"stall": true}]});
    let model = folder.script(&json!({"name": "s", "steps": [stalls]}));
    let session = daemon.session(&folder.workspace(), &model).await;
    let (mut screen, mut child) = chat(&folder, &["--session", &session, "go"]);
    screen.until("Thinking");
    // The cancel is on its way for as long as the daemon does not answer.
    crate::rig::signal(daemon.pid(), rustix::process::Signal::STOP);
    crate::rig::signal(child.id(), rustix::process::Signal::INT);
    screen.until("Canceling; Ctrl-C again leaves at once.");
    screen.types("later\n");
    crate::rig::signal(daemon.pid(), rustix::process::Signal::CONT);
    // The model had not finished its step, so it begins with it again.
    screen.until("Thinking");
    screen.types("/exit\n");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
    assert_eq!(said(&daemon.client(), &session, Role::User).await, ["go", "later"]);
}

#[tokio::test]
async fn a_question_that_is_answered_elsewhere_ends_on_its_own_line_and_takes_no_late_answer() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let call = |name: &str| json!({"call": {"name": "shell", "input": {"command": format!("touch {name}")}}});
    let steps = json!([{"do": [call("first")]}, {"do": [call("second")]}, text("Back again.")]);
    let model = folder.script(&json!({"name": "s", "steps": steps}));
    let session = daemon.session(&folder.workspace(), &model).await;
    let watcher = Watcher::start(&daemon, &session);
    let (mut screen, mut child) = chat(&folder, &["--session", &session, "go"]);
    screen.until("touch first\r\n[y] yes  [n] no  [s] yes, for this session  [?] help > ");
    screen.types("y");
    screen.until("y");
    let asked = watcher.wait_for_type("approval_requested").await;
    let tool_call_id = asked.data["tool_call_id"].as_str().unwrap().to_owned();
    let deny = Approve { tool_call_id, action: Verdict::Deny, ..Approve::default() };
    daemon.client().approve(&session, &deny).await.unwrap();
    screen.until("\r\nIt was denied elsewhere, by owner.\r\nLeft out, for it was typed for that question: y\r\n");
    screen.until("touch second\r\n[y] yes  [n] no  [s] yes, for this session  [?] help > ");
    daemon.client().cancel(&session, &Cancel::default()).await.unwrap();
    screen.until("\r\nThe turn is canceled elsewhere, by owner.\r\n");
    screen.until("canceled: ");
    screen.until(PROMPT);
    screen.types("y\r");
    screen.until("Not sent: 'y', for the question is gone. Type it again to send it.");
    screen.until(PROMPT);
    screen.types("y\r");
    screen.until("Back again.");
    screen.until(PROMPT);
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
    assert_eq!(said(&daemon.client(), &session, Role::User).await, ["go", "y"]);
}

#[tokio::test]
async fn a_file_that_is_written_whole_is_shown_against_the_one_on_disk() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    std::fs::write(folder.workspace().join("old.txt"), "one\ntwo\n").unwrap();
    let write = |path: &str| json!({"call": {"name": "write_file", "input": {"path": path, "content": "one\n2\n"}}});
    let steps = json!([{"do": [write("old.txt"), write("new.txt")]}, text("Done."), {"do": [write("old.txt")]}]);
    let model = folder.script(&json!({"name": "s", "steps": steps}));
    let policy = json!({"approval": {"require_for_kinds": ["write"]}});
    let session = daemon.session_with(&folder.workspace(), &model, serde_json::from_value(policy).unwrap()).await;
    let (mut screen, mut child) = chat(&folder, &["--session", &session, "go"]);
    screen.until("Allow write_file?\r\n  old.txt (changes)\r\n  @@ -1,2 +1,2 @@\r\n   one\r\n  -two\r\n  +2\r\n[y]");
    screen.types("n\n");
    screen.until("Allow write_file?\r\n  new.txt (new file)\r\n  +one\r\n  +2\r\n[y]");
    screen.types("n\n");
    screen.until("Done.");
    screen.until(PROMPT);
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
    // A daemon that was named may have other files than there are here.
    let (target, token) = (daemon.client().target(), folder.data().join("token"));
    let named = ["--url", target.base_url(), "--token-file", token.to_str().unwrap()];
    let (mut screen, mut child) = chat(&folder, &[&["--session", &session, "go"], named.as_slice()].concat());
    screen.until("Allow write_file?\r\n  old.txt (replaces the file if there is one)\r\n  +one\r\n  +2\r\n[y]");
    screen.types("/exit\n");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
}

#[tokio::test]
async fn a_model_that_cannot_be_is_refused_before_there_is_a_session() {
    let folder = Folder::new();
    let (mut screen, mut child) = chat(&folder, &[]);
    screen.until(PROMPT);
    screen.types("/model nobody/nothing\r");
    screen.until("unknown_model");
    screen.until(PROMPT);
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
}

#[tokio::test]
async fn a_daemon_that_is_gone_is_started_again_and_the_conversation_goes_on() {
    let folder = Folder::new();
    let call = json!({"call": {"name": "shell", "input": {"command": "touch ran"}}});
    let steps = json!([text("One."), {"do": [call]}, text("Two."), text("Three.")]);
    let model = folder.script(&json!({"name": "s", "steps": steps}));
    let (mut screen, mut child) = chat(&folder, &["--model", &model, "a"]);
    let kill = || crate::rig::signal(folder.daemon_pid().expect("it runs"), rustix::process::Signal::KILL);
    screen.until("One.");
    screen.until(PROMPT);
    // While nothing is open: a command, then a message.
    kill();
    screen.types("/show\r");
    screen.until("The daemon is gone; started another one: process ");
    screen.until(PROMPT);
    kill();
    screen.types("b\r");
    screen.until("The daemon is gone; started another one: process ");
    screen.until("[y] yes");
    // While a question waits.
    kill();
    screen.until("\r\nThe daemon is gone; started another one: process ");
    screen.until("Allow shell?");
    screen.until("[y] yes");
    screen.types("y\n");
    screen.until("Two.");
    screen.until(PROMPT);
    screen.types("c\r");
    screen.until("Three.");
    screen.until(PROMPT);
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
    assert!(folder.workspace().join("ran").exists());
    let client = tenure_client::discover::find(&folder.data()).await.unwrap().0;
    let session = &folder.tenure(&["sessions", "--json"]).exits(0).json()["sessions"];
    assert_eq!(session.as_array().unwrap().len(), 1);
    assert_eq!(said(&client, session[0]["id"].as_str().unwrap(), Role::User).await, ["a", "b", "c"]);
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
    screen.until("owner, elsewhere: from elsewhere");
    screen.until("To somebody else.");
    screen.until("half a li");
    screen.types("\u{15}/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
}

#[tokio::test]
async fn somebody_elses_turn_is_followed_answered_and_steered_from_the_prompt() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let gate = folder.path().join("gate");
    let call = |name: &str| json!({"call": {"name": "shell", "input": {"command": format!("touch {name}")}}});
    let gated = json!({"do": [{"text": "Working."}, {"wait_for": gate}]});
    let steps = json!([{"do": [call("one"), call("two")]}, text("All done."), gated, text("Really done.")]);
    let model = folder.script(&json!({"name": "s", "steps": steps}));
    let session = daemon.session(&folder.workspace(), &model).await;
    let (mut first, mut idle) = chat(&folder, &["--session", &session]);
    first.until(PROMPT);
    let (mut second, mut busy) = chat(&folder, &["--session", &session, "go"]);
    second.until("[?] help > ");
    first.until("owner, elsewhere: go");
    first.until("Allow shell?");
    first.until("touch one");
    first.until("[y] yes");
    first.types("y\r");
    second.until("It was approved elsewhere, by owner.");
    first.until("touch two\r\n[y] yes");
    first.types("n\n");
    for screen in [&mut first, &mut second] {
        screen.until("All done.");
        screen.until(PROMPT);
    }
    assert!(folder.workspace().join("one").exists() && !folder.workspace().join("two").exists());

    second.types("more\r");
    second.until("Working.");
    first.until("owner, elsewhere: more");
    first.types("a hint\r");
    first.until("passed on: it is read before the next step");
    second.until("owner, elsewhere: a hint");
    std::fs::write(gate, "").unwrap();
    for (screen, child) in [(&mut first, &mut idle), (&mut second, &mut busy)] {
        screen.until("Really done.");
        screen.until(PROMPT);
        screen.types("/exit\r");
        assert_eq!(wait_for_end(child).await.code(), Some(0));
    }
    assert_eq!(said(&daemon.client(), &session, Role::User).await, ["go", "more", "a hint"]);
}

#[tokio::test]
async fn ctrl_d_leaves_a_turn_and_typing_does_not_tear_its_text() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let gate = folder.path().join("gate");
    let call = json!({"call": {"name": "write_file", "input": {"path": "new.txt", "content": "one\n"}}});
    let speaks = json!({"do": [{"text": "Thinking"}, {"wait_for": gate}, call]});
    let model = folder.script(&json!({"name": "s", "steps": [speaks]}));
    let (mut screen, mut child) = chat(&folder, &["--model", &model, "--approve", "ask", "go"]);
    screen.until("Thinking");
    assert!(!screen.echoes());
    screen.types("rat\u{c}her this\n");
    screen.until("\r\n> rather this\r\n");
    screen.until("passed on");
    assert!(!screen.shown.contains("^L"), "{}", screen.shown);
    screen.types("\u{4}");
    screen.until("Left; the turn goes its way.\r\n");
    screen.until("The session stays: tenure chat --session ");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
    assert!(screen.echoes());

    let (mut screen, mut child) = chat(&folder, &["--continue"]);
    screen.until("; /help for help");
    std::fs::write(gate, "").unwrap();
    screen.until("[?] help > ");
    screen.types("\u{4}");
    screen.until("\r\nLeft; the turn waits for an answer: `tenure approve sess_");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));

    let sessions = daemon.client().list(2, None, &Default::default()).await.unwrap().sessions;
    assert_eq!((sessions.len(), sessions[0].status.as_str()), (1, "waiting_approval"));
}

#[tokio::test]
async fn a_terminal_is_given_back_when_the_chat_is_ended() {
    let folder = Folder::new();
    let stalls = json!({"do": [{"text": "Thinking"}, {"stall": true}]});
    let model = folder.script(&json!({"name": "s", "steps": [stalls]}));
    let (mut screen, mut child) = chat(&folder, &["--model", &model, "go"]);
    screen.until("Thinking");
    assert!(!screen.echoes());
    crate::rig::signal(child.id(), rustix::process::Signal::TERM);
    screen.until("Left; the turn goes on. `tenure cancel sess_");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(128 + 15));
    assert!(screen.echoes());
}

#[tokio::test]
async fn a_daemon_that_was_stopped_is_not_started_again() {
    let folder = Folder::new();
    let stalls = json!({"do": [{"text": "Thinking"}, {"stall": true}]});
    let model = folder.script(&json!({"name": "s", "steps": [stalls]}));
    let (mut screen, mut child) = chat(&folder, &["--model", &model, "go"]);
    screen.until("Thinking");
    folder.tenure(&["stop"]).exits(0);
    screen.until("The daemon was stopped; the session stays");
    screen.until("The session stays: tenure chat --session ");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(3));
    assert_eq!(folder.daemon_pid(), None);
}

#[tokio::test]
async fn a_daemon_that_does_not_start_is_tried_again() {
    let folder = Folder::new();
    let model = folder.script(&json!({"name": "s", "steps": [text("One."), text("Two.")]}));
    let (mut screen, mut child) = chat(&folder, &["--model", &model, "a"]);
    screen.until("One.");
    screen.until(PROMPT);
    folder.config("nonsense = [");
    crate::rig::signal(folder.daemon_pid().expect("it runs"), rustix::process::Signal::KILL);
    screen.types("b\r");
    screen.until("The daemon is gone, and no daemon could be started");
    folder.config("");
    screen.until("Started a daemon in the background: process ");
    screen.until("Two.");
    screen.until(PROMPT);
    screen.types("/exit\r");
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

#[tokio::test]
async fn a_turn_at_its_budget_gives_the_prompt_back_and_goes_on_when_it_is_raised() {
    let folder = Folder::new();
    let call = json!({"call": {"name": "read_file", "input": {"path": "x"}}});
    let model = folder.script(&json!({"name": "s", "steps": [{"do": [call]}, text("Done.")]}));
    let (mut screen, mut child) = chat(&folder, &["--model", &model, "--max-steps", "1", "go"]);
    screen.until("A budget is used up: 1 of 1 steps.");
    screen.until("The turn waits at its budget: 1 of 1 steps.");
    screen.until(PROMPT);
    let session = folder.tenure(&["sessions", "--json"]).exits(0).json()["sessions"][0]["id"].clone();
    folder.tenure(&["session", "change", session.as_str().unwrap(), "--max-steps", "none"]).exits(0);
    screen.until("The budget was raised.");
    screen.until("Done.");
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
}

#[tokio::test]
async fn a_message_behind_a_turn_at_its_budget_lets_that_be_followed_answered_and_given_up() {
    let folder = Folder::new();
    let read = json!({"call": {"name": "read_file", "input": {"path": "x"}}});
    let shell = json!({"call": {"name": "shell", "input": {"command": "touch ran"}}});
    let steps = json!([{"do": [read]}, {"do": [shell]}, text("First done."), text("Second done."), {"do": [read]}]);
    let model = folder.script(&json!({"name": "s", "steps": steps}));
    let (mut screen, mut child) = chat(&folder, &["--model", &model, "--max-steps", "1", "go"]);
    screen.until("The turn waits at its budget: 1 of 1 steps.");
    screen.until(PROMPT);
    screen.types("please continue\r");
    screen.until("Queued behind the open turn, which waits at its budget: 1 of 1 steps.");
    let session = folder.tenure(&["sessions", "--json"]).exits(0).json()["sessions"][0]["id"].clone();
    let session = session.as_str().unwrap();
    folder.tenure(&["session", "change", session, "--max-steps", "3"]).exits(0);
    screen.until("The budget was raised.");
    screen.until("Allow shell?");
    screen.until("[?] help > ");
    screen.types("y\n");
    screen.until("First done.");
    screen.until("completed: ");
    screen.until("Second done.");
    screen.until("completed: ");
    screen.until(PROMPT);
    assert!(folder.workspace().join("ran").exists());
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
}

#[tokio::test]
async fn the_turn_that_a_message_waits_for_can_be_given_up() {
    let folder = Folder::new();
    let read = json!({"call": {"name": "read_file", "input": {"path": "x"}}});
    let model = folder.script(&json!({"name": "s", "steps": [{"do": [read]}, text("Instead.")]}));
    let (mut screen, mut child) = chat(&folder, &["--model", &model, "--max-steps", "1"]);
    screen.until(&format!("A new session with {model} begins with your first message"));
    screen.until(PROMPT);
    screen.types("/model\r");
    screen.until(&format!("The next session has the model {model}."));
    screen.until(PROMPT);
    screen.types("go\r");
    screen.until("The turn waits at its budget: 1 of 1 steps.");
    screen.until(PROMPT);
    screen.types("rather this\r");
    screen.until("Queued behind the open turn");
    screen.types("/cancel\n");
    screen.until("canceled: ");
    screen.until("Instead.");
    screen.until("completed: ");
    screen.until(PROMPT);
    screen.types("/exit\r");
    assert_eq!(wait_for_end(&mut child).await.code(), Some(0));
}

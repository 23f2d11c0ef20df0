//! SIGKILL in the middle of everything: a model's stream, each kind of tool, a pending approval, a cancel. Each promise is checked against what a plain reader was shown.

use std::{
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tenure_wire::{Approve, Cancel, Policy, SendMessage, Verdict};

use crate::{
    reader::Reader,
    rig::{Daemon, Folder, PATIENCE},
};

fn text(text: &str) -> Value {
    json!({ "do": [{ "text": text }] })
}

fn call(name: &str, input: Value) -> Value {
    json!({ "do": [{ "call": { "name": name, "input": input } }] })
}

fn script(steps: Value) -> Value {
    json!({ "steps": steps, "after": "stop" })
}

/// Commands and all else run unasked.
fn unasked() -> Policy {
    serde_json::from_value(json!({ "approval": { "require_for_kinds": [] }, "verify": { "auto_verify": false } }))
        .unwrap()
}

/// The daemon, a session with this script, and a reader on it.
async fn begin(folder: &Folder, steps: Value, policy: Policy) -> (Daemon, String, Reader) {
    let model = folder.script(&script(steps));
    let daemon = Daemon::start(folder.data()).await;
    let session = daemon.session_with(&folder.workspace(), &model, policy).await;
    let reader = Reader::start(&daemon, &session);
    (daemon, session, reader)
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "it never came to this: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

/// Living processes whose command line holds this.
fn alive(mark: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let lines = entries.flatten().filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains(mark).then_some(line)
    });
    lines.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_model_stream() {
    let folder = Folder::new();
    let long: String = (0..400).map(|n| format!("word{n} ü ")).collect();
    let steps = json!([{ "do": [{ "text": long, "chunk": 5, "pause_ms": 3 }] }]);
    let (mut daemon, session, reader) = begin(&folder, steps, Policy::default()).await;
    let turn = daemon.send(&session, "tell me").await;
    reader.wait("a stream under way", |seen| seen.kind == "model_output_delta" && seen.place().1 > 2000).await;
    daemon.restart().await;
    reader.wait_kind("turn_completed").await;
    reader.assert_whole(&daemon, &session).await;
    let failed = &reader.of_kind("model_attempt_failed")[0];
    assert_eq!((failed.data("attempt"), failed.data("reason")["kind"].as_str()), (&json!(1), Some("interrupted")));
    assert!(failed.data("text").as_str().unwrap().starts_with("word0 ü "));
    let completed = &reader.of_kind("model_output_completed")[0];
    assert_eq!((completed.data("attempt"), completed.data("text")), (&json!(2), &json!(long)));
    let expected = [
        "session_created",
        "message_added",
        "turn_started",
        "model_attempt_failed",
        "turn_interrupted",
        "turn_resumed",
        "model_output_completed",
        "turn_completed",
    ];
    assert_eq!(reader.numbered(), expected);
    let record = daemon.client().turn(&session, &turn, PATIENCE).await.unwrap();
    assert_eq!(record.status, "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_read_tool() {
    let folder = Folder::new();
    fs::write(folder.workspace().join("a.txt"), "what it says\n").unwrap();
    let steps = json!([call("read_file", json!({ "path": "a.txt" })), text("read")]);
    let (mut daemon, session, reader) = begin(&folder, steps, Policy::default()).await;
    let Some(slow) = Slow::attach(&daemon, "openat2", "delay_enter=1000000") else { return };
    daemon.send(&session, "read it").await;
    reader.wait_kind("tool_call_started").await;
    daemon.kill9();
    slow.end();
    daemon.restart().await;
    reader.wait_kind("turn_completed").await;
    reader.assert_whole(&daemon, &session).await;
    // It was cut, and since reading twice does no harm it ran again by itself.
    let cut = &reader.of_kind("turn_interrupted")[0];
    assert_eq!(cut.data("calls")[0]["class"], "unknown");
    let runs: Vec<Value> = reader.of_kind("tool_call_started").iter().map(|seen| seen.data("run").clone()).collect();
    assert_eq!(runs, [json!(1), json!(2)]);
    let done = reader.of_kind("tool_call_completed");
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].data("parts")[0]["text"], "what it says\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_exec_tool() {
    let folder = Folder::new();
    // A number no other process is likely to sleep for.
    let mark = format!("sleep 98{:06}", std::process::id() % 1_000_000);
    let command = format!(
        "echo ran >> effects; setsid {mark} & (setsid sh -c '{mark}' &) ; nohup {mark} >/dev/null 2>&1 & echo up; {mark}"
    );
    let steps = json!([call("shell", json!({ "command": command })), text("looked, did not repeat")]);
    let (mut daemon, session, reader) = begin(&folder, steps, Policy::default()).await;
    let turn = daemon.send(&session, "go").await;
    approve(&daemon, &session, &reader).await;
    reader.wait("the command's output", |seen| seen.kind == "tool_output_delta").await;
    until("all its processes run", || alive(&mark).len() >= 4).await;
    daemon.restart().await;
    assert_eq!(alive(&mark), Vec::<String>::new(), "none is alive when the daemon is back");
    reader.wait_kind("turn_interrupted").await;
    let view = daemon.client().session(&session).await.unwrap();
    assert_eq!(view.turn.unwrap().status, "interrupted", "an unknown call waits for a person");
    assert_eq!(reader.of_kind("turn_interrupted")[0].data("calls")[0]["class"], "unknown");
    daemon.client().resume(&session, &turn).await.unwrap();
    reader.wait_kind("turn_completed").await;
    reader.assert_whole(&daemon, &session).await;
    let done = reader.of_kind("tool_call_completed");
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].data("outcome"), "unknown");
    assert_eq!(reader.of_kind("tool_call_started").len(), 1, "it was not run again");
    assert_eq!(lines(&folder.workspace().join("effects")), 1);
}

const PATCH: &str =
    "--- a/one\n+++ b/one\n@@ -1 +1 @@\n-old one\n+new one\n--- a/two\n+++ b/two\n@@ -1 +1 @@\n-old two\n+new two\n";

/// Kills the daemon in the middle of a patch over two files, when both say what is given.
async fn in_a_write_tool(first: &str, second: &str, class: &str, runs: usize) {
    let folder = Folder::new();
    let [one, two] = ["one", "two"].map(|name| folder.workspace().join(name));
    fs::write(&one, "old one\n").unwrap();
    fs::write(&two, "old two\n").unwrap();
    let steps = json!([call("apply_patch", json!({ "patch": PATCH })), text("patched")]);
    let (mut daemon, session, reader) = begin(&folder, steps, unasked()).await;
    let Some(slow) = Slow::attach(&daemon, "rename,renameat,renameat2", "delay_exit=1500000") else { return };
    daemon.send(&session, "patch it").await;
    reader.wait_kind("tool_call_started").await;
    until("the files are as wanted", || {
        fs::read_to_string(&one).unwrap() == first && fs::read_to_string(&two).unwrap() == second
    })
    .await;
    assert!(reader.of_kind("tool_call_completed").is_empty());
    daemon.kill9();
    slow.end();
    daemon.restart().await;
    reader.wait_kind("turn_completed").await;
    reader.assert_whole(&daemon, &session).await;
    assert_eq!(reader.of_kind("turn_interrupted")[0].data("calls")[0]["class"], class);
    assert_eq!(reader.of_kind("tool_call_started").len(), runs);
    let done = reader.of_kind("tool_call_completed");
    assert_eq!((done.len(), done[0].data("ok"), done[0].data("outcome")), (1, &json!(true), &json!("finished")));
    assert_eq!(fs::read_to_string(&one).unwrap(), "new one\n");
    assert_eq!(fs::read_to_string(&two).unwrap(), "new two\n");
    let names = fs::read_dir(folder.workspace()).unwrap().count();
    assert_eq!(names, 2, "nothing of ours is left in the workspace");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_write_tool_that_changed_nothing_yet() {
    in_a_write_tool("old one\n", "old two\n", "not_started", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_write_tool_half_way() {
    in_a_write_tool("new one\n", "old two\n", "not_started", 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_write_tool_that_changed_all() {
    in_a_write_tool("new one\n", "new two\n", "finished", 1).await;
}

async fn approve(daemon: &Daemon, session: &str, reader: &Reader) -> Approve {
    let request = reader.wait_kind("approval_requested").await;
    let answer = Approve {
        tool_call_id: request.data("tool_call_id").as_str().unwrap().to_owned(),
        turn_id: None,
        action: Verdict::Approve,
        reason: None,
        scope: None,
        idempotency_key: None,
    };
    daemon.client().approve(session, &answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_pending_approval() {
    let folder = Folder::new();
    let steps = json!([call("shell", json!({ "command": "echo ran >> effects" })), text("over")]);
    let (mut daemon, session, reader) = begin(&folder, steps, Policy::default()).await;
    daemon.send(&session, "go").await;
    let request = reader.wait_kind("approval_requested").await;
    daemon.restart().await;
    let view = daemon.client().session(&session).await.unwrap();
    assert_eq!((view.status.as_str(), view.approvals.len()), ("waiting_approval", 1));
    assert_eq!(json!(view.approvals[0].tool_call_id), *request.data("tool_call_id"));
    // Two people answer in the same instant, one yes and one no: one of them is told who was first.
    let answer = |action| Approve {
        tool_call_id: view.approvals[0].tool_call_id.clone(),
        turn_id: None,
        action,
        reason: None,
        scope: None,
        idempotency_key: None,
    };
    let (yes, no) = (answer(Verdict::Approve), answer(Verdict::Deny));
    let (one, other) = (daemon.client(), daemon.client());
    let (first, second) = tokio::join!(one.approve(&session, &yes), other.approve(&session, &no));
    let granted = first.is_ok();
    assert!(granted != second.is_ok(), "exactly one is taken");
    let loser = if granted { second.unwrap_err() } else { first.unwrap_err() };
    let tenure_client::Error::Refused(problem) = loser else { panic!("{loser:?}") };
    assert_eq!((problem.status, problem.code.as_str()), (409, "already_answered"));
    reader.wait_kind("turn_completed").await;
    reader.assert_whole(&daemon, &session).await;
    let answers = reader.of_kind("approval_granted").len() + reader.of_kind("approval_denied").len();
    assert_eq!(answers, 1);
    assert!(reader.of_kind("turn_interrupted").is_empty(), "a turn that only waits stays as it is");
    assert_eq!(lines(&folder.workspace().join("effects")), usize::from(granted));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_before_after_and_at_once() {
    let folder = Folder::new();
    let (mut daemon, session, reader) = begin(&folder, json!([text("one"), text("two")]), Policy::default()).await;
    let message = SendMessage { parts: vec![tenure_wire::Part::text("once")], ..SendMessage::default() };
    let keyed = || daemon.client().with_key("k1");
    let (a, b) = (keyed(), keyed());
    let (first, second) = tokio::join!(a.send(&session, &message), b.send(&session, &message));
    let first = first.unwrap();
    assert_eq!(second.unwrap(), first);
    reader.wait_kind("turn_completed").await;
    daemon.restart().await;
    assert_eq!(daemon.client().with_key("k1").send(&session, &message).await.unwrap(), first);
    let other = SendMessage { parts: vec![tenure_wire::Part::text("another")], ..SendMessage::default() };
    let refused = daemon.client().with_key("k1").send(&session, &other).await.unwrap_err();
    let tenure_client::Error::Refused(problem) = refused else { panic!("{refused:?}") };
    assert_eq!((problem.status, problem.code.as_str()), (409, "key_reused"));
    assert_eq!((reader.of_kind("message_added").len(), reader.of_kind("turn_started").len()), (1, 1));
    reader.assert_whole(&daemon, &session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_turn_leaves_no_process() {
    let folder = Folder::new();
    let mark = format!("sleep 97{:06}", std::process::id() % 1_000_000);
    let command = format!("trap '' TERM; setsid sh -c \"trap '' TERM; {mark}\" & (setsid {mark} &); echo up; {mark}");
    let steps = json!([call("shell", json!({ "command": command })), text("never")]);
    let (daemon, session, reader) = begin(&folder, steps, unasked()).await;
    daemon.send(&session, "go").await;
    reader.wait("the command's output", |seen| seen.kind == "tool_output_delta").await;
    until("its processes run", || alive(&mark).len() >= 3).await;
    daemon.client().cancel(&session, &Cancel::default()).await.unwrap();
    let canceled = reader.wait_kind("turn_canceled").await;
    assert_eq!(alive(&mark), Vec::<String>::new());
    assert_eq!(canceled.data("left"), &json!([]));
    assert_eq!(reader.of_kind("tool_call_completed")[0].data("outcome"), "canceled");
    reader.assert_whole(&daemon, &session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_turn_is_being_canceled() {
    let folder = Folder::new();
    let steps = json!([call("shell", json!({ "command": "trap '' TERM; echo up; sleep 60" })), text("never")]);
    let (mut daemon, session, reader) = begin(&folder, steps, unasked()).await;
    daemon.send(&session, "go").await;
    reader.wait("the command's output", |seen| seen.kind == "tool_output_delta").await;
    daemon.client().cancel(&session, &Cancel::default()).await.unwrap();
    reader.wait_kind("cancel_requested").await;
    daemon.restart().await;
    // What was acknowledged holds: the cancel goes on where it was.
    reader.wait_kind("turn_canceled").await;
    assert!(reader.of_kind("turn_interrupted").is_empty());
    reader.assert_whole(&daemon, &session).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torn_tail_is_cut_kept_aside_and_told() {
    let folder = Folder::new();
    let (mut daemon, session, reader) = begin(&folder, json!([text("one"), text("two")]), Policy::default()).await;
    let sound = daemon.session(&folder.workspace(), "scripted").await;
    daemon.send(&session, "first").await;
    reader.wait_kind("turn_completed").await;
    daemon.kill9();
    let log = folder.data().join("sessions").join(&session).join("events.ndjson");
    let before = fs::read(&log).unwrap();
    let torn = [&before[..], b"{\"seq\":6,\"ts\":\"2026"].concat();
    fs::write(&log, &torn).unwrap();
    daemon.restart().await;
    daemon.send(&session, "second").await;
    reader.wait("the second turn's end", |seen| seen.kind == "turn_completed" && seen.place().0 > 6).await;
    reader.assert_whole(&daemon, &session).await;
    assert!(fs::read(&log).unwrap().starts_with(&before), "no whole line was touched");
    let kept = fs::read_dir(log.parent().unwrap())
        .unwrap()
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("cut-"));
    assert_eq!(fs::read(kept.expect("the bytes cut are kept aside").path()).unwrap(), b"{\"seq\":6,\"ts\":\"2026");
    let notices = daemon.client().ready().await.unwrap().notices;
    assert!(notices.iter().any(|notice| notice.contains(&session)), "{notices:?}");
    assert_eq!(daemon.client().session(&sound).await.unwrap().status, "active");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_broken_session_never_stops_the_daemon() {
    let folder = Folder::new();
    let (mut daemon, session, reader) = begin(&folder, json!([text("one"), text("two")]), Policy::default()).await;
    daemon.send(&session, "first").await;
    reader.wait_kind("turn_completed").await;
    daemon.kill9();
    let log = folder.data().join("sessions").join(&session).join("events.ndjson");
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).unwrap();
    daemon.restart().await;
    let message = SendMessage { parts: vec![tenure_wire::Part::text("more")], ..SendMessage::default() };
    let refused = daemon.client().send(&session, &message).await.unwrap_err();
    let tenure_client::Error::Refused(problem) = refused else { panic!("{refused:?}") };
    assert_eq!((problem.status, problem.code.as_str()), (409, "session_damaged"));
    assert_eq!(daemon.client().session(&session).await.unwrap().status, "failed");
    // Who follows it gets what can be read, and then a word instead of silence.
    let mut stream = daemon.client().events(&session, tenure_client::Until::Forever);
    let last = loop {
        match tokio::time::timeout(PATIENCE, stream.next()).await.expect("no silence") {
            Some(Ok(_)) => {}
            last => break last,
        }
    };
    let Some(Err(tenure_client::Error::Refused(problem))) = last else { panic!("{last:?}") };
    assert_eq!(problem.code, "session_damaged");
    let other = daemon.session(&folder.workspace(), "scripted").await;
    daemon.send(&other, "hello").await;
    Reader::start(&daemon, &other).wait_kind("turn_completed").await;
}

/// Slows down one kind of system call of a running daemon, so that a kill can come in the middle of it.
struct Slow(Child);

impl Slow {
    /// `None`, with a word to whoever reads the output, where processes may not be traced.
    fn attach(daemon: &Daemon, calls: &str, how: &str) -> Option<Slow> {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={calls}")]);
        strace.args(["-e", &format!("inject={calls}:{how}"), "-p", &daemon.pid().to_string()]);
        let mut child = strace.stdin(Stdio::null()).stderr(Stdio::null()).spawn().expect("strace is installed");
        for _ in 0..500 {
            let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap_or_default();
            let traced = status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"));
            if traced {
                // Its other threads are attached in the same go.
                std::thread::sleep(Duration::from_millis(100));
                return Some(Slow(child));
            }
            if let Ok(Some(_)) = child.try_wait() {
                eprintln!("skipped: strace may not trace processes here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        panic!("strace did not attach");
    }

    fn end(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

//! Whatever a command does to hide its processes, they end: when the call is stopped, when the daemon dies, and when
//! the supervisor itself is killed. And nothing starts before it is recorded.

use std::{
    io::Read as _,
    process::{Child, Command, Stdio},
    time::Instant,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tenure_tools::{Invoked, STOP_GRACE, sweep_leftovers};

use crate::rig::{CALL, PATIENCE, Rig, alive, is_zombie, unique, until};

/// Children in every disguise, each with the token as an argument: double-forked, in a session of its own, deaf to
/// SIGHUP, deaf to SIGTERM.
fn disguised(token: &str) -> String {
    format!(
        "(setsid nohup sleep {token} >/dev/null 2>&1 &); (sleep {token} &); nohup sleep {token} >/dev/null 2>&1 & \
         setsid sleep {token} & (trap '' TERM; sleep {token} &) ; \
         setsid sh -c '(trap \"\" TERM HUP; setsid sleep {token} &)' & echo ready; sleep {token}"
    )
}
const DISGUISED: usize = 7;

fn rig(namespaces: bool) -> Rig {
    Rig::with(|config| config.namespaces = namespaces)
}

async fn run(rig: &Rig, command: &str) -> Invoked {
    rig.invoke("shell", &json!({"command": command}), &Default::default()).await
}

fn recorded_pid(ledger: &std::path::Path) -> Option<i32> {
    let file: Value = serde_json::from_slice(&std::fs::read(ledger.join(CALL)).ok()?).ok()?;
    Some(file["pid"].as_i64()? as i32)
}

async fn a_stop_ends_them_all(namespaces: bool) {
    let (rig, token) = (rig(namespaces), unique().to_string());
    let (command, stop, found) = (disguised(&token), rig.context.cancel.clone(), token.clone());
    let stopper = tokio::task::spawn_blocking(move || {
        until("all children", || alive(&found).len() >= DISGUISED);
        stop.cancel();
    });
    let invoked = run(&rig, &command).await;
    assert_eq!(alive(&token), Vec::<i32>::new(), "gone when the call returns, not some time after");
    assert_eq!(invoked.result.error.as_deref(), Some("stopped"), "{invoked:?}");
    assert_eq!((invoked.left, rig.ledger_files()), (vec![], vec![]));
    stopper.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_them_all_in_a_namespace() {
    a_stop_ends_them_all(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_them_all_without_one() {
    a_stop_ends_them_all(false).await;
}

/// A supervisor that does not act is helped out when the limit is near.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_them_all_even_if_the_supervisor_is_stuck() {
    tokio::join!(a_stop_with_a_stuck_supervisor(true), a_stop_with_a_stuck_supervisor(false));
}

async fn a_stop_with_a_stuck_supervisor(namespaces: bool) {
    let (rig, token) = (rig(namespaces), unique().to_string());
    let (stop, found, ledger) = (rig.context.cancel.clone(), token.clone(), rig.ledger.clone());
    let stopper = tokio::task::spawn_blocking(move || {
        until("all children", || alive(&found).len() >= DISGUISED);
        kill(Pid::from_raw(recorded_pid(&ledger).unwrap()), Signal::SIGSTOP).unwrap();
        stop.cancel();
    });
    let invoked = run(&rig, &disguised(&token)).await;
    stopper.await.unwrap();
    assert_eq!((alive(&token), &invoked.left), (vec![], &vec![]), "{invoked:?}");
    assert_eq!(invoked.result.error.as_deref(), Some("stopped"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_may_clean_up_when_it_is_stopped() {
    for namespaces in [true, false] {
        let rig = rig(namespaces);
        let (stop, watcher) = (rig.context.cancel.clone(), rig.watcher.clone());
        let stopper = tokio::task::spawn_blocking(move || {
            until("readiness", || watcher.0.lock().unwrap().contains("ready"));
            stop.cancel();
        });
        let invoked =
            run(&rig, "trap 'echo clean > cleaned; exit 0' TERM; echo ready; while :; do sleep 0.01; done").await;
        stopper.await.unwrap();
        assert_eq!(invoked.result.error.as_deref(), Some("stopped"));
        assert_eq!(rig.get("cleaned").as_deref(), Some("clean\n"));
    }
}

#[tokio::test]
async fn a_call_stopped_before_it_began_starts_nothing() {
    let rig = Rig::new();
    rig.context.cancel.cancel();
    assert_eq!(run(&rig, "touch started").await.result.error.as_deref(), Some("stopped"));
    assert_eq!(rig.get("started"), None);
}

#[tokio::test]
async fn the_supervisor_is_recorded_before_the_command_starts() {
    for namespaces in [true, false] {
        let rig = rig(namespaces);
        let file = rig.ledger.join(CALL);
        let invoked = run(&rig, &format!("cat {}", file.display())).await;
        let text = tenure_core::message::joined_text(&invoked.result.parts);
        let recorded: Value = serde_json::from_str(&text).unwrap();
        assert!(recorded["pid"].is_i64() && recorded["start_time"].is_u64(), "{text}");
        assert!(!file.exists());
    }
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_started() {
    let rig = Rig::with(|config| config.ledger = "/dev/null/processes".into());
    let invoked = run(&rig, "touch started").await;
    assert!(invoked.result.error.unwrap().contains("could not be recorded, so the command was not run"));
    assert_eq!(rig.get("started"), None);
}

fn bare_supervisor(rig: &Rig) -> Child {
    Command::new(env!("CARGO_BIN_EXE_tenure-supervise"))
        .current_dir(&rig.workspace)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_supervisor_without_an_order_starts_nothing_and_goes_with_its_daemon() {
    let mut supervisor = bare_supervisor(&Rig::new());
    drop(supervisor.stdin.take());
    assert!(supervisor.wait().unwrap().success());
    let mut said = String::new();
    supervisor.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
}

/// The command may have begun in it, so it must not begin again outside.
#[test]
fn a_namespace_that_is_killed_with_the_order_in_its_hands_is_not_made_up_for() {
    use std::io::Write as _;
    let rig = Rig::new();
    let mut supervisor = bare_supervisor(&rig);
    let pid = supervisor.id();
    let init = || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        children.split_whitespace().next().and_then(|child| child.parse::<i32>().ok())
    };
    // The system call that it waits in and the file that it waits for.
    let waits_for = || {
        let call = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        let words: Vec<String> = call.split_whitespace().take(2).map(str::to_owned).collect();
        (words.first().map(String::as_str) == Some("0")).then_some(words)
    };
    until("the namespace", || init().is_some() && waits_for().is_some());
    let before = waits_for();
    let init = init();
    let init = rustix::process::Pid::from_raw(init.unwrap()).unwrap();
    rustix::process::kill_process(init, rustix::process::Signal::STOP).unwrap();
    let marker = rig.workspace.join("marker");
    let order = json!({
        "command": ["touch", marker], "folder": "/", "call_id": "call_1", "timeout_ms": 600_000, "namespaces": true,
    });
    let mut control = supervisor.stdin.take().unwrap();
    writeln!(control, "{order}").unwrap();
    until("the order is handed on", || waits_for().is_some_and(|now| Some(&now) != before.as_ref()));
    rustix::process::kill_process(init, rustix::process::Signal::KILL).unwrap();
    assert!(supervisor.wait().unwrap().success());
    let mut said = String::new();
    supervisor.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("not known"), "{said}");
    assert!(!marker.exists());
}

#[test]
fn a_supervisor_whose_control_pipe_closes_ends_everything() {
    use std::io::Write as _;
    for namespaces in [true, false] {
        let (rig, token) = (Rig::new(), unique().to_string());
        let mut supervisor = bare_supervisor(&rig);
        let command = ["sh", "-c", &disguised(&token)];
        let order = json!({
            "command": command, "folder": "/", "call_id": "call_1", "timeout_ms": 600_000, "namespaces": namespaces,
        });
        let mut control = supervisor.stdin.take().unwrap();
        writeln!(control, "{order}").unwrap();
        until("all children", || alive(&token).len() >= DISGUISED);
        drop(control);
        assert!(supervisor.wait().unwrap().success());
        assert_eq!(alive(&token), Vec::<i32>::new());
        let mut said = String::new();
        supervisor.stderr.unwrap().read_to_string(&mut said).unwrap();
        let report: Value = serde_json::from_str(&said).unwrap();
        let in_namespace = report["namespaced"].as_bool().unwrap();
        assert_eq!(report, json!({"exit": "stopped", "left": [], "namespaced": in_namespace}));
        assert!(namespaces || !in_namespace);
        assert_eq!(
            in_namespace, namespaces,
            "this machine does not allow pid namespaces; the fallback was tested twice"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_supervisor_that_is_killed_takes_its_children_along() {
    for namespaces in [true, false] {
        let (rig, token) = (rig(namespaces), unique().to_string());
        let (ledger, found) = (rig.ledger.clone(), token.clone());
        let killer = tokio::task::spawn_blocking(move || {
            until("all children", || alive(&found).len() >= DISGUISED);
            kill(Pid::from_raw(recorded_pid(&ledger).unwrap()), Signal::SIGKILL).unwrap();
        });
        let invoked = run(&rig, &disguised(&token)).await;
        killer.await.unwrap();
        assert_eq!((alive(&token), &invoked.left), (vec![], &vec![]));
        assert!(invoked.result.error.unwrap().contains("supervisor was killed"));
    }
}

/// Not a test by itself: the daemon of the tests below, run in a process of its own to be killed.
#[tokio::test]
async fn daemon_to_be_killed() {
    let Ok(settings) = std::env::var("TENURE_TEST_DAEMON") else { return };
    let settings: Value = serde_json::from_str(&settings).unwrap();
    let text = |name: &str| settings[name].as_str().unwrap().to_owned();
    let rig = Rig::with(|config| {
        config.namespaces = settings["namespaces"].as_bool().unwrap();
        config.ledger = text("ledger").into();
        config.mark = text("mark");
    });
    run(&rig, &text("command")).await;
}

fn start_daemon(namespaces: bool, ledger: &std::path::Path, mark: &str, command: &str) -> Child {
    let settings = json!({"namespaces": namespaces, "ledger": ledger, "mark": mark, "command": command});
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::daemon_to_be_killed", "--nocapture"])
        .env("TENURE_TEST_DAEMON", settings.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn when_the_daemon_is_killed_everything_it_started_goes() {
    for namespaces in [true, false] {
        let (folder, token) = (tempfile::tempdir().unwrap(), unique().to_string());
        let mut daemon = start_daemon(namespaces, folder.path(), "m", &disguised(&token));
        until("all children", || alive(&token).len() >= DISGUISED);
        let supervisor = recorded_pid(folder.path()).unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        until("the end of all children", || alive(&token).is_empty());
        until("the end of the supervisor", || is_zombie(supervisor));
    }
}

/// The worst case: daemon and supervisor are killed together and there is no namespace.
#[test]
fn what_survives_even_the_supervisor_is_swept_at_the_next_start() {
    let (folder, token, mark) = (tempfile::tempdir().unwrap(), unique().to_string(), unique().to_string());
    let mut daemon = start_daemon(false, folder.path(), &mark, &disguised(&token));
    until("all children", || alive(&token).len() >= DISGUISED);
    let supervisor = Pid::from_raw(recorded_pid(folder.path()).unwrap());
    kill(supervisor, Signal::SIGSTOP).unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    kill(supervisor, Signal::SIGKILL).unwrap();
    until("the end of the supervisor", || is_zombie(supervisor.as_raw()));
    assert!(!alive(&token).is_empty());
    let lines = sweep_leftovers(folder.path(), &mark);
    assert_eq!(alive(&token), Vec::<i32>::new());
    assert!(lines.iter().all(|line| line.starts_with("ended a leftover process: ")), "{lines:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Swept while the supervisor, whose daemon is gone, cannot act itself.
#[test]
fn a_recorded_supervisor_is_swept_with_its_children() {
    for namespaces in [true, false] {
        let (folder, token) = (tempfile::tempdir().unwrap(), unique().to_string());
        let mut daemon = start_daemon(namespaces, folder.path(), "not the mark swept for", &disguised(&token));
        until("all children", || alive(&token).len() >= DISGUISED);
        let supervisor = Pid::from_raw(recorded_pid(folder.path()).unwrap());
        kill(supervisor, Signal::SIGSTOP).unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
        sweep_leftovers(folder.path(), "another mark");
        assert_eq!(alive(&token), Vec::<i32>::new());
        assert!(is_zombie(supervisor.as_raw()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_call_is_a_stopped_call() {
    let (rig, token) = (Rig::new(), unique().to_string());
    let command = format!("sleep {token}");
    let started = async {
        let deadline = Instant::now() + PATIENCE;
        while alive(&token).is_empty() && Instant::now() < deadline {
            tokio::time::sleep(STOP_GRACE / 50).await;
        }
    };
    tokio::select! {
        _ = run(&rig, &command) => panic!("it was to be dropped"),
        () = started => {}
    }
    until("the end of the command", || alive(&token).is_empty());
}

// Those that have reported are collected beside what comes next, so there must be somebody to do it while this waits.
#[tokio::test(flavor = "multi_thread")]
async fn no_zombie_is_left() {
    for namespaces in [true, false] {
        run(&rig(namespaces), "(sleep 0 &); sleep 0 & true").await;
    }
    let own = std::process::id().to_string();
    until("the end of every supervisor", || {
        std::fs::read_dir("/proc").unwrap().flatten().all(|entry| {
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // Named after the program, cut to fifteen bytes.
            !(stat.contains("(tenure-supervis) Z") && stat.contains(&format!(") Z {own} ")))
        })
    });
}

#[tokio::test]
async fn a_supervisor_that_cannot_be_started_is_a_result() {
    let rig = Rig::with(|config| config.supervisor = "/no/such/program".into());
    assert!(run(&rig, "true").await.result.error.unwrap().contains("cannot be started"));
    let rig = Rig::with(|config| {
        config.supervisor = "/bin/sh".into();
        config.supervisor_args = vec!["-c".into(), "echo broken >&2; exit 1".into()];
    });
    assert_eq!(run(&rig, "true").await.result.error.as_deref(), Some("the supervisor failed: broken"));
}

#[tokio::test]
async fn a_namespace_hides_other_processes_and_has_its_own_proc() {
    let allowed = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        return;
    }
    let rig = Rig::new();
    let own = std::fs::read_link("/proc/self/ns/pid").unwrap();
    let text = rig.text("shell", json!({"command": "readlink /proc/self/ns/pid; ls -d /proc/[0-9]* | wc -l"})).await;
    let (namespace, count) = text.trim().split_once('\n').unwrap();
    assert_ne!(namespace, own.to_str().unwrap());
    assert!(count.trim().parse::<u32>().unwrap() < 8, "{text}");
}

//! Daemons that commands start by themselves.

use std::{fs, process::Stdio};

use serde_json::json;

use crate::rig::{Folder, Ran, wait_for_end};

#[test]
fn a_command_starts_a_daemon_and_the_next_one_finds_it() {
    let folder = Folder::new();
    let ran = folder.tenure(&["sessions", "--json"]).exits(0);
    assert_eq!(ran.json(), json!({"sessions": [], "more": false}));
    assert!(ran.stderr.contains("Started a daemon in the background"), "{ran:?}");
    let pid = folder.daemon_pid().expect("it stays");
    let ran = folder.tenure(&["sessions"]).exits(0);
    assert!(ran.stdout.contains("There are no sessions yet"), "{ran:?}");
    assert_eq!((ran.stderr.as_str(), folder.daemon_pid()), ("", Some(pid)), "nothing was started");
}

#[test]
fn two_commands_at_once_share_one_daemon() {
    let folder = Folder::new();
    let spawn = |text| {
        let mut command = folder.command(&["ask", "--json", text]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children = ["a", "b", "c"].map(spawn);
    for child in children {
        Ran::of(child.wait_with_output().unwrap()).exits(0);
    }
    let rows = folder.tenure(&["sessions", "--json"]).exits(0).json();
    assert_eq!(rows["sessions"].as_array().unwrap().len(), 3);
}

#[test]
fn a_daemon_that_was_killed_is_replaced() {
    let folder = Folder::new();
    folder.tenure(&["ask", "hello"]).exits(0);
    let first = folder.daemon_pid().unwrap();
    crate::rig::signal(first, rustix::process::Signal::KILL);
    while folder.daemon_pid().is_some() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let rows = folder.tenure(&["sessions", "--json"]).exits(0).json();
    assert_eq!(rows["sessions"].as_array().unwrap().len(), 1, "what was there is still there");
    assert_ne!(folder.daemon_pid(), Some(first));
}

#[test]
fn a_folder_that_cannot_be_used_is_told() {
    let folder = Folder::new();
    fs::write(folder.data(), "a file").unwrap();
    for arguments in [&["sessions"][..], &["serve"], &["stop"], &["store", "check"], &["config", "show"]] {
        let ran = folder.tenure(&[arguments, &["--json"]].concat()).exits(2);
        assert!(ran.error()["message"].as_str().unwrap().ends_with("data is a file"), "{arguments:?}: {ran:?}");
        assert!(ran.error()["hint"].as_str().unwrap().contains("--data"), "{arguments:?}: {ran:?}");
    }
    assert_eq!(folder.tenure(&["doctor", "--json"]).exits(1).json()["checks"][1]["state"], "wrong");
}

#[tokio::test]
async fn a_daemon_that_nobody_needs_ends_by_itself() {
    let folder = Folder::new();
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--end-when-idle-ms", "300"];
    let mut child = folder.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(wait_for_end(&mut child).await.success());
    assert!(!folder.data().join("daemon.json").exists());
}

//! What `tenure sessions` lists, and what is said of each session there.

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use tenure_wire::Policy;

use crate::rig::{Daemon, Folder, Ran, Watcher};

fn ids(listed: &Ran) -> Vec<String> {
    let rows = listed.json();
    rows["sessions"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

fn shell(command: &str) -> Value {
    json!({ "steps": [{ "do": [{ "call": { "name": "shell", "input": { "command": command } } }] }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_session_is_told_with_what_it_does() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(folder.data()).await;
    let idle = daemon.session(&folder.workspace(), "scripted").await;
    let waits = daemon.session(&folder.workspace(), &folder.script(&shell("true"))).await;
    let unasked: Policy = serde_json::from_value(json!({ "approval": { "require_for_kinds": [] } })).unwrap();
    let works = daemon.session_with(&folder.workspace(), &folder.script(&shell("sleep 600")), unasked).await;
    let (waiting, working) = (Watcher::start(&daemon, &waits), Watcher::start(&daemon, &works));
    daemon.send(&waits, "go").await;
    daemon.send(&works, "go").await;
    waiting.wait_for_type("approval_requested").await;
    let call = working.wait_for_type("tool_call_started").await.data["tool_call_id"].clone();
    let with = |status: &str| ids(&folder.tenure(&["sessions", "--json", "--status", status]).exits(0));
    for (status, session) in [("idle", &idle), ("running", &works), ("waiting_approval", &waits)] {
        assert_eq!(with(status), std::slice::from_ref(session), "{status}");
    }
    assert_eq!(with("active"), [works.clone(), idle.clone()]);
    daemon.restart().await;
    working.wait_for_type("turn_interrupted").await;
    assert_eq!(with("interrupted"), std::slice::from_ref(&works));
    assert_eq!(with("running"), Vec::<String>::new());
    let table = folder.tenure(&["sessions"]).exits(0).stdout;
    for (session, word) in [(&idle, "idle"), (&waits, "waiting_approval"), (&works, "interrupted")] {
        assert!(table.contains(&format!("{session}  {word}  ")), "{table}");
    }
    let shown = folder.tenure(&["session", "show", &works]).exits(0).stdout;
    let unknown = format!("unknown     {}  shell: sleep 600\n", call.as_str().unwrap());
    assert!(shown.contains(&unknown) && shown.contains("status      interrupted\n"), "{shown}");
    assert!(shown.contains(&format!("tenure session resume {works}\n")), "{shown}");
}

#[test]
fn a_list_that_is_cut_says_so() {
    let folder = Folder::new();
    for text in ["one", "two", "three"] {
        folder.tenure(&["ask", text]).exits(0);
    }
    let cut = folder.tenure(&["sessions", "--limit", "2"]).exits(0);
    assert!(cut.stderr.contains("--all") && cut.stdout.lines().count() == 3, "{cut:?}");
    assert_eq!(folder.tenure(&["sessions", "--limit", "2", "--json"]).exits(0).json()["more"], true);
    let whole = folder.tenure(&["sessions", "--limit", "3"]).exits(0);
    assert_eq!((whole.stderr.as_str(), whole.stdout.lines().count()), ("", 4));
}

#[test]
fn sessions_of_a_folder_that_is_gone_are_found() {
    let folder = Folder::new();
    let gone = folder.workspace().join("gone");
    fs::create_dir(&gone).unwrap();
    folder.tenure(&["ask", "here"]).exits(0);
    folder.tenure(&["ask", "there", "--workspace", gone.to_str().unwrap()]).exits(0);
    fs::remove_dir(&gone).unwrap();
    let found = folder.tenure(&["sessions", "--json", "--workspace", "gone"]).exits(0);
    assert_eq!(found.json()["sessions"][0]["title"], "there", "{found:?}");
    assert_eq!(ids(&found).len(), 1);
}

#[test]
fn a_chat_goes_on_with_the_session_that_was_used_last() {
    let folder = Folder::new();
    for text in ["older", "newer"] {
        folder.tenure(&["ask", text]).exits(0);
    }
    let [newer, older] = &ids(&folder.tenure(&["sessions", "--json"]))[..] else { panic!("two") };
    assert!(newer > older);
    folder.tenure(&["ask", "--session", older, "again"]).exits(0);
    let mut command = folder.command(&["chat", "--continue", "--json", "and on"]);
    let ran = Ran::of(command.stdin(Stdio::null()).output().unwrap()).exits(0);
    assert!(ran.json_lines().iter().all(|event| event["session_id"] == **older), "{ran:?}");
}

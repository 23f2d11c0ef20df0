//! `tenure session fork | export | import | change`: a session in other places.

use std::{io::Write as _, process::Stdio};

use serde_json::{Value, json};

use crate::rig::{Folder, Ran};

/// A folder with a session that has said and written something; its id.
fn with_session(folder: &Folder) -> String {
    let write = json!({"call": {"name": "write_file", "input": {"path": "a.txt", "content": "x"}}});
    let steps = json!([{"do": [write]}, {"do": [{"text": "Written."}]}, {"do": [{"text": "More."}]}]);
    let model = folder.script(&json!({"name": "s", "steps": steps}));
    let result = folder.tenure(&["ask", "--model", &model, "--json", "write it"]).exits(0).json_lines().pop().unwrap();
    result["session_id"].as_str().unwrap().to_owned()
}

fn events(folder: &Folder, session: &str) -> Vec<Value> {
    let all = folder.tenure(&["session", "events", session, "--json"]).exits(0).json_lines();
    all.into_iter().filter(|event| event.get("pos").is_none()).collect()
}

#[test]
fn a_session_travels_in_one_file_and_goes_on_there() {
    let (here, there) = (Folder::new(), Folder::new());
    let session = with_session(&here);
    let ran = here.tenure(&["session", "export", &session]).exits(0);
    let file = here.workspace().join(format!("{session}.tar.gz"));
    assert!(ran.stdout.contains(&format!("{session}.tar.gz")) && file.exists(), "{ran:?}");
    let ran = here.tenure(&["session", "export", &session]).exits(2);
    assert!(ran.stderr.contains("--force"), "it is not written over: {ran:?}");
    here.tenure(&["session", "export", &session, "--force"]).exits(0);
    let file = file.to_str().unwrap();

    let ran = there.tenure(&["session", "import", file, "--json"]).exits(0);
    assert_eq!(ran.json()["session_id"], json!(session));
    assert_eq!(events(&there, &session), events(&here, &session));
    let ran = there.tenure(&["session", "import", file, "--json"]).exits(4);
    assert_eq!(ran.error()["code"], "session_exists");
    there.tenure(&["session", "change", &session, "--workspace", ".", "--label", "moved"]).exits(0);
    let ran = there.tenure(&["ask", "--session", "moved", "go on"]).exits(0);
    assert_eq!(ran.stdout, "More.\n");

    let new = there.tenure(&["session", "import", file, "--as-new", "--json"]).exits(0).json();
    assert_ne!(new["session_id"], json!(session));
    assert_eq!(new["forked_from"]["session_id"], json!(session));

    let ran = there.tenure(&["session", "import", "/no/such/file"]).exits(2);
    assert!(ran.stderr.contains("/no/such/file"), "{ran:?}");
    std::fs::write(there.workspace().join("x.tar.gz"), "no archive").unwrap();
    let ran = there.tenure(&["session", "import", "x.tar.gz", "--json"]).exits(4);
    assert_eq!(ran.error()["code"], "bad_archive");
}

#[test]
fn an_archive_goes_through_pipes() {
    let (here, there) = (Folder::new(), Folder::new());
    let session = with_session(&here);
    let out = here.command(&["session", "export", &session, "--output", "-"]).output().unwrap();
    assert!(out.status.success());
    let mut command = there.command(&["session", "import", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&out.stdout).unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap()).exits(0);
    assert!(ran.stdout.contains(&session), "{ran:?}");
    assert_eq!(events(&there, &session), events(&here, &session));
}

#[test]
fn a_fork_begins_where_the_session_stood() {
    let folder = Folder::new();
    let session = with_session(&folder);
    let fork = folder.tenure(&["session", "fork", &session, "--at", "3", "--title", "Other", "--json"]).exits(0).json();
    assert_eq!(fork["forked_from"], json!({"session_id": session, "seq": 3}));
    let shown = folder.tenure(&["session", "show", fork["session_id"].as_str().unwrap()]).exits(0).stdout;
    assert!(shown.contains(&format!("from {session} at event 3")) && shown.contains("Other"), "{shown}");
    let ran = folder.tenure(&["session", "fork", &session, "--at", "999", "--json"]).exits(4);
    assert_eq!(ran.error()["code"], "unknown_seq");
    folder.tenure(&["session", "fork", &session, "--at", "x"]).exits(2);
}

#[test]
fn a_session_is_deleted_for_good_only_when_that_is_meant() {
    let folder = Folder::new();
    let session = with_session(&folder);
    let ran = folder.tenure(&["session", "purge", &session]).exits(2);
    assert!(ran.stderr.contains("--yes"), "nobody can be asked here: {ran:?}");
    folder.tenure(&["session", "purge", &session, "--yes"]).exits(0);
    let ran = folder.tenure(&["session", "show", &session, "--json"]).exits(4);
    assert_eq!(ran.error()["code"], "session_purged");
}

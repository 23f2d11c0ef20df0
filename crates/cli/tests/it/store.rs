//! `tenure store`: a real session's folder is checked, damaged, repaired and cleaned, and the daemon goes on with it.

use std::{
    fs::{self, File},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};

use crate::rig::{Folder, Ran};

/// A session with a file written, an old one kept, a long output and a snapshot; the daemon runs on.
fn rich(folder: &Folder) -> String {
    let call = |name: &str, input: Value| json!({ "do": [{ "call": { "name": name, "input": input } }] });
    let model = folder.script(&json!({ "steps": [
        call("write_file", json!({ "path": "note", "content": "new text\n" })),
        call("shell", json!({ "command": "seq 1 20000" })),
        { "do": [{ "text": "Counted, and wrote it down.", "chunk": 4 }] },
    ] }));
    fs::write(folder.workspace().join("note"), "old text\n").unwrap();
    let lines =
        folder.tenure(&["ask", "Count.", "--model", &model, "--approve", "all", "--json"]).exits(0).json_lines();
    lines.iter().find_map(|line| line["session_id"].as_str()).expect("a session is named").to_owned()
}

fn path(folder: &Folder, session: &str, name: &str) -> PathBuf {
    folder.data().join("sessions").join(session).join(name)
}

fn check(folder: &Folder) -> Ran {
    folder.tenure(&["store", "check", "--json"])
}

fn events(folder: &Folder, session: &str) -> Vec<Value> {
    numbered(folder.tenure(&["session", "events", session, "--json"]).exits(0))
}

fn numbered(ran: Ran) -> Vec<Value> {
    ran.json_lines().into_iter().filter(|event| event.get("pos").is_none()).collect()
}

/// All files below a session's folder.
fn files(folder: &Folder, session: &str) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (vec![], vec![path(folder, session, "")]);
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            let list = if entry.path().is_dir() { &mut waiting } else { &mut found };
            list.push(entry.path());
        }
    }
    found.sort();
    found
}

#[test]
fn a_folder_in_use_can_be_checked_and_not_changed() {
    let folder = Folder::new();
    assert!(folder.tenure(&["store", "check"]).exits(2).stderr.contains("there is no data folder"));
    let session = rich(&folder);
    assert!(folder.daemon_pid().is_some());
    let found = check(&folder).exits(0).json();
    assert_eq!(
        (&found["clean"], &found["sessions"], &found["findings"]),
        (&json!(true), &json!(1), &json!([])),
        "{found}"
    );
    assert!(found["events"].as_u64().unwrap() > 8 && found["files"].as_u64().unwrap() >= 6, "{found}");
    let text = folder.tenure(&["store", "check", &session[..12]]).exits(0);
    assert!(text.stdout.starts_with("1 session, ") && text.stdout.ends_with(": nothing is damaged.\n"), "{text:?}");
    assert_eq!(text.stderr, "", "progress is for terminals");
    for command in ["repair", "gc"] {
        let refused = folder.tenure(&["store", command, "--json"]).exits(1).error();
        assert_eq!(refused["code"], "locked");
        assert!(refused["hint"].as_str().unwrap().contains("tenure stop"));
        folder.tenure(&["store", command, "--dry-run"]).exits(0);
    }
    folder.tenure(&["store", "check", "sess_nothing"]).exits(4);
    folder.tenure(&["store", "gc", "--older-than", "soon"]).exits(2);
}

#[test]
fn a_changed_bit_in_any_file_is_found_and_put_right() {
    let folder = Folder::new();
    let session = rich(&folder);
    folder.tenure(&["stop"]).exits(0);
    let before = events_in_log(&folder, &session);
    let mut files = files(&folder, &session);
    assert!(files.iter().any(|file| file.extension().is_some_and(|end| end == "log")), "{files:?}");
    assert!(files.iter().any(|file| file.ends_with("session.json")), "{files:?}");
    assert!(files.iter().filter(|file| file.components().any(|part| part.as_os_str() == "artifacts")).count() == 2);
    files.extend(
        ["keys.ndjson", "index.ndjson"].map(|name| folder.data().join(name)).into_iter().filter(|p| p.exists()),
    );
    let whole: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for (n, file) in files.iter().enumerate() {
        let mut bytes = whole[n].clone();
        let at = bytes.len() * (n + 3) / 17 % bytes.len();
        bytes[at] ^= 1 << (n % 8);
        fs::write(file, &bytes).unwrap();
        let found = check(&folder).exits(5).json();
        let named = folder.data().join(found["findings"][0]["path"].as_str().unwrap());
        assert_eq!((named, &found["clean"]), (file.clone(), &json!(false)), "{found}");
        let planned = folder.tenure(&["store", "repair", "--dry-run", "--json"]).exits(5).json();
        assert!(fs::read(file).unwrap() == bytes, "a plan changes nothing");
        let done = folder.tenure(&["store", "repair", "--json"]).exits(0).json();
        assert_eq!((&done["actions"], &done["left"]), (&planned["actions"], &json!([])), "{file:?}");
        check(&folder).exits(0);
        assert_eq!(events_in_log(&folder, &session), before, "{file:?}");
        // Caches are removed, and made again when they are needed.
        files.iter().zip(&whole).for_each(|(file, bytes)| fs::write(file, bytes).unwrap());
    }
    // And the daemon goes on with it.
    let told: Vec<Value> = events(&folder, &session);
    assert_eq!(told.len(), before.len());
    folder.tenure(&["ask", "And now?", "--session", &session, "--json"]).exits(0);
}

fn events_in_log(folder: &Folder, session: &str) -> Vec<Value> {
    let log = fs::read_to_string(path(folder, session, "events.ndjson")).unwrap();
    log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["data"].clone()).collect()
}

#[test]
fn what_cannot_be_put_right_is_told_and_the_rest_is_kept() {
    let folder = Folder::new();
    let session = rich(&folder);
    let before = events(&folder, &session);
    folder.tenure(&["stop"]).exits(0);
    let log = path(&folder, &session, "events.ndjson");
    let damaged = fs::read_to_string(&log).unwrap().replacen("new text", "other garbage", 1);
    fs::write(&log, &damaged).unwrap();
    let text = folder.tenure(&["store", "check"]).exits(5).stdout;
    assert!(text.contains("damage  sessions/") && text.contains("(repair)"), "{text}");
    let text = folder.tenure(&["store", "repair"]).exits(0).stdout;
    assert!(text.contains("1 event lost, each with event_lost in its place"), "{text}");
    check(&folder).exits(0);
    assert_eq!(fs::read_to_string(path(&folder, &session, "damaged-1.ndjson")).unwrap(), damaged);
    // The daemon shows all that is left, and that the session has come to its end.
    let told = folder.tenure(&["session", "events", &session, "--json"]).exits(5);
    assert_eq!(told.error()["code"], "session_damaged");
    let after = numbered(told);
    let lost: Vec<&Value> = after.iter().filter(|event| event["type"] == "event_lost").collect();
    assert_eq!(lost.len(), 1);
    for (before, after) in before.iter().zip(&after).filter(|(_, after)| after["type"] != "event_lost") {
        assert_eq!(before, after);
    }
    assert_eq!(after.last().unwrap()["data"]["code"], "log_damaged");
    let listed = folder.tenure(&["sessions", "--json"]).exits(0).json();
    assert_eq!(listed["sessions"][0]["status"], "failed");
    let refused = folder.tenure(&["ask", "more", "--session", &session]).exits(4);
    assert!(refused.stderr.contains("tenure session fork"), "{refused:?}");
    let seq = lost[0]["seq"].as_u64().unwrap();
    let shown = folder.tenure(&["session", "show", &session]).exits(0).stdout;
    assert!(shown.contains(&format!("damage      event {seq} is lost: ")), "{shown}");
    let said = folder.tenure(&["session", "messages", &session]).exits(5);
    assert!(said.stdout.contains("Count.") && said.stderr.contains(&format!("event {seq} is lost")), "{said:?}");
    let text = folder.tenure(&["session", "events", &session]).exits(5);
    assert!(text.stdout.contains("event_lost  This event was lost to damage: "), "{text:?}");
    // What is asked for behind the gap is whole.
    folder.tenure(&["session", "events", &session, "--after", &seq.to_string()]).exits(0);
    // A fork of it goes on.
    let fork = folder.tenure(&["session", "fork", &session, "--json"]).exits(0).json();
    folder.tenure(&["ask", "more", "--session", fork["session_id"].as_str().unwrap()]).exits(0);
}

#[test]
fn a_damaged_session_is_not_taken_for_whole() {
    let folder = Folder::new();
    let session = rich(&folder);
    let before = events(&folder, &session);
    folder.tenure(&["stop"]).exits(0);
    let log = path(&folder, &session, "events.ndjson");
    let bad = fs::read_to_string(&log).unwrap().replacen("Counted, and", "Counted, or", 1);
    fs::write(&log, bad).unwrap();
    let lost = before.iter().find(|event| event["type"] == "model_output_completed" && event["data"]["text"] != "");
    let from = lost.unwrap()["seq"].as_u64().unwrap();
    // What there is comes first, then a word on stderr, and an exit code that scripts see.
    let says = format!("from event {from} on it cannot be read: ");
    for follow in [&["--json"][..], &["--json", "--follow"]] {
        let told = folder.tenure(&[&["session", "events", &session], follow].concat()).exits(5);
        let error = told.error();
        assert!(error["message"].as_str().unwrap().contains(&says), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("tenure session fork"), "{error}");
        let shown = numbered(told);
        let (last, good) = shown.split_last().unwrap();
        assert_eq!((&last["type"], good), (&json!("log_damaged"), &before[..good.len()]));
        assert_eq!(good.len() as u64, from - 1);
    }
    let text = folder.tenure(&["session", "events", &session]).exits(5);
    assert!(text.stdout.contains("The log is damaged; ") && text.stderr.contains(&says), "{text:?}");
    let said = folder.tenure(&["session", "messages", &session]).exits(5);
    assert!(said.stdout.contains("Count.") && said.stderr.contains(&says), "{said:?}");
    let said = folder.tenure(&["session", "messages", &session, "--json"]).exits(5).json();
    assert_eq!(said["damage"][0]["from_seq"], from);
    let shown = folder.tenure(&["session", "show", &session]).exits(0).stdout;
    assert!(shown.contains(&says) && shown.contains("tenure store repair"), "{shown}");
    let refused = folder.tenure(&["ask", "more", "--session", &session]).exits(4);
    assert!(refused.stderr.contains("tenure session fork"), "{refused:?}");
    // As it says.
    let fork = folder.tenure(&["session", "fork", &session, "--json"]).exits(0).json();
    assert_eq!(fork["forked_from"]["seq"], from - 1);
}

#[test]
fn what_nobody_needs_is_removed() {
    let folder = Folder::new();
    let (kept, ended) = (rich(&folder), rich(&folder));
    folder.tenure(&["session", "end", &ended]).exits(0);
    folder.tenure(&["stop"]).exits(0);
    let unnamed = path(&folder, &kept, "attachments/unnamed.png");
    fs::create_dir_all(unnamed.parent().unwrap()).unwrap();
    fs::write(&unnamed, [7; 1000]).unwrap();
    let young = folder.tenure(&["store", "gc", "--json"]).exits(0).json();
    assert_eq!((&young["removed"], &young["bytes"]), (&json!([]), &json!(0)));
    assert!(check(&folder).exits(0).json()["findings"][0]["what"] == "no event names it");
    File::open(&unnamed).unwrap().set_modified(SystemTime::now() - Duration::from_secs(40 * 86_400)).unwrap();
    let planned = folder.tenure(&["store", "gc", "--dry-run", "--json"]).exits(0).json();
    assert_eq!((&planned["bytes"], unnamed.exists()), (&json!(1000), true));
    let done = folder.tenure(&["store", "gc", "--json"]).exits(0).json();
    assert_eq!((&done["removed"], unnamed.exists()), (&planned["removed"], false));
    // Whole sessions only where that is asked for, and only those that ended.
    let text = folder.tenure(&["store", "gc", "--older-than", "30d", "--sessions-ended-before", "0s"]).exits(0).stdout;
    assert!(text.contains(&format!("sessions/{ended} (")) && text.contains("1 thing was removed: "), "{text}");
    assert!(!path(&folder, &ended, "").exists() && path(&folder, &kept, "events.ndjson").exists());
    check(&folder).exits(0);
    let listed = folder.tenure(&["sessions", "--json"]).exits(0).json();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
}

/// Even without its first event a session can be looked at, and deleted by age.
#[test]
fn a_session_that_lost_its_beginning_can_still_be_read() {
    let folder = Folder::new();
    let session = rich(&folder);
    let before = events(&folder, &session);
    folder.tenure(&["stop"]).exits(0);
    let log = path(&folder, &session, "events.ndjson");
    let whole = fs::read_to_string(&log).unwrap();
    let (_, rest) = whole.split_once('\n').unwrap();
    fs::write(&log, rest).unwrap();
    check(&folder).exits(5);
    let done = folder.tenure(&["store", "repair", "--json"]).exits(0).json();
    assert!(done["actions"][0]["what"].as_str().unwrap().contains("1 event kept whose sum cannot be proven"), "{done}");
    check(&folder).exits(0);
    let after = numbered(folder.tenure(&["session", "events", &session, "--json"]).exits(5));
    assert_eq!(after[0]["type"], "event_lost");
    assert_eq!(after[1..before.len()], before[1..]);
    let shown = folder.tenure(&["session", "show", &session, "--json"]).exits(0).json();
    assert_eq!(shown["status"], "failed");
    folder.tenure(&["session", "messages", &session]).exits(5);
    folder.tenure(&["stop"]).exits(0);
    folder.tenure(&["store", "gc", "--sessions-ended-before", "0s"]).exits(0);
    assert!(!path(&folder, &session, "").exists());
}

/// A folder that is removed under a daemon takes the session with it: nothing is answered that would be lost.
#[test]
fn a_session_whose_folder_is_removed_is_told_as_lost() {
    let folder = Folder::new();
    let (gone, kept) = (rich(&folder), rich(&folder));
    fs::remove_dir_all(path(&folder, &gone, "")).unwrap();
    let refused = folder.tenure(&["ask", "more", "--session", &gone, "--json"]).exits(4).error();
    assert_eq!(refused["code"], "unknown_session", "{refused}");
    let told = folder.tenure(&["doctor"]).stdout;
    assert!(told.contains(&format!("the log of {gone} was removed or moved while it was in use")), "{told}");
    folder.tenure(&["ask", "more", "--session", &kept]).exits(0);
    for arguments in [&["store", "check", "--json"][..], &["store", "check", &gone, "--json"]] {
        let found = folder.tenure(arguments).exits(5).json();
        let finding =
            found["findings"].as_array().unwrap().iter().find(|finding| finding["level"] == "damage").unwrap();
        assert_eq!((&finding["session_id"], &finding["remedy"]), (&json!(gone), &json!("repair")), "{found}");
        assert!(finding["what"].as_str().unwrap().starts_with("the whole session is gone"), "{found}");
    }
    folder.tenure(&["stop"]).exits(0);
    let done = folder.tenure(&["store", "repair", "--json"]).exits(0).json();
    assert_eq!(done["actions"][0]["what"], "the whole session is gone: taken out of the listing", "{done}");
    check(&folder).exits(0);
    folder.tenure(&["store", "check", &gone]).exits(4);
    let listed = folder.tenure(&["sessions", "--json"]).exits(0).json();
    assert_eq!(listed["sessions"].as_array().unwrap().len(), 1);
}

/// Whoever keeps a session in a file is told what is not in it.
#[test]
fn an_export_says_what_it_lacks() {
    let folder = Folder::new();
    let session = rich(&folder);
    let export = |to: &str, more: &[&str]| {
        folder.tenure(&[&["session", "export", &session, "--force", "--output", to], more].concat()).exits(0)
    };
    assert_eq!(export("whole.tar.gz", &[]).stderr, "");
    assert_eq!(export("whole.tar.gz", &["--json"]).json().get("missing"), None);
    let lost =
        files(&folder, &session).into_iter().find(|file| file.to_string_lossy().contains("/artifacts/")).unwrap();
    fs::remove_file(&lost).unwrap();
    let name = lost.strip_prefix(path(&folder, &session, "")).unwrap().display().to_string();
    let says = format!("{name} was lost or changed on the disk, and is not in it.\n");
    assert_eq!(export("part.tar.gz", &[]).stderr, says);
    let told = export("part.tar.gz", &["--json"]);
    assert_eq!(told.stderr, says);
    assert_eq!(told.json()["missing"], json!({ "count": 1, "names": [name] }));
}

/// A folder of somebody else's is not one that is missing.
#[test]
fn a_folder_that_may_not_be_read_or_changed_is_told_as_such() {
    use std::os::unix::{fs::PermissionsExt as _, process::CommandExt as _};
    /// Nobody in particular: root may read and write everything.
    const NOBODY: u32 = 65_534;
    let folder = Folder::new();
    folder.tenure(&["ask", "hi"]).exits(0);
    folder.tenure(&["stop"]).exits(0);
    let run = |arguments: &[&str], mode: u32| {
        fs::set_permissions(folder.data(), fs::Permissions::from_mode(mode)).unwrap();
        let mut command = folder.command(&[arguments, &["--json"]].concat());
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output();
        fs::set_permissions(folder.data(), fs::Permissions::from_mode(0o700)).unwrap();
        // Where nobody may run the program there is nothing to see.
        output.ok().map(Ran::of)
    };
    for (arguments, mode, words) in [
        (&["store", "check"][..], 0o000, "cannot be read"),
        (&["store", "repair"], 0o555, "cannot be changed"),
        (&["store", "gc"], 0o555, "cannot be changed"),
    ] {
        let Some(ran) = run(arguments, mode) else { return };
        let error = ran.exits(1).error();
        assert_eq!(error["code"], "no_permission", "{arguments:?}: {error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
        assert!(error["hint"].as_str().unwrap().contains("permissions"), "{error}");
    }
}

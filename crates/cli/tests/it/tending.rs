//! Looking after what is there: finding sessions, reading and renaming them, the doctor, stopping, completions.

use std::{fs, os::unix::fs::PermissionsExt as _};

use serde_json::{Value, json};

use crate::rig::{Folder, Ran, tenure};

fn ids(ran: &Ran) -> Vec<String> {
    let sessions = ran.json()["sessions"].as_array().unwrap().clone();
    sessions.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
}

fn ask(folder: &Folder, text: &str) -> String {
    let lines = folder.tenure(&["ask", text, "--json"]).exits(0).json_lines();
    lines.iter().find_map(|line| line["session_id"].as_str()).expect("a session is named").to_owned()
}

#[test]
fn sessions_are_found_by_filter_and_word() {
    let folder = Folder::new();
    let (first, second) = (ask(&folder, "Where is my zeppelin?"), ask(&folder, "hello"));
    let find = |arguments: &[&str]| ids(&folder.tenure(&[&["sessions", "--json"], arguments].concat()).exits(0));
    assert_eq!(find(&[]), [second.clone(), first.clone()]);
    assert_eq!(find(&["--limit", "1"]), [second.as_str()]);
    assert_eq!(find(&["--text", "ZEPPELIN"]), [first.as_str()]);
    assert_eq!(find(&["--here"]), [second.clone(), first.clone()]);
    assert_eq!(find(&["--workspace", "/"]), Vec::<String>::new());
    assert_eq!(find(&["--label", "none"]), Vec::<String>::new());
    folder.tenure(&["session", "end", &first]).exits(0);
    assert_eq!(find(&["--status", "completed"]), [first]);
    assert_eq!(find(&["--status", "active", "--all"]), [second]);
    let none = folder.tenure(&["sessions", "--role", "nobody"]).exits(0);
    assert_eq!(none.stdout, "There are no such sessions.\n");
    assert!(folder.tenure(&["sessions", "--status", "odd"]).exits(2).stderr.contains("waiting_approval"));
    assert_eq!(find(&["--workspace", "nowhere"]), Vec::<String>::new());
}

#[test]
fn a_conversation_is_read_and_a_session_renamed() {
    let folder = Folder::new();
    let script = json!({ "name": "t", "steps": [
        { "do": [{ "call": { "name": "shell", "input": { "command": "seq 1 30" } } }] },
        { "do": [{ "text": "Thirty \u{1b}[31mlines." }] },
    ]});
    let model = folder.script(&script);
    let lines =
        folder.tenure(&["ask", "Count.", "--model", &model, "--approve", "all", "--json"]).exits(0).json_lines();
    let session = lines.iter().find_map(|line| line["session_id"].as_str()).unwrap().to_owned();
    let shown = folder.tenure(&["session", "messages", &session]).exits(0).stdout;
    for line in ["  Count.", "  → shell: seq 1 30", "  1", "  5", "  … 25 more lines"] {
        assert!(shown.lines().any(|found| found == line), "{line:?} is not in {shown}");
    }
    let failed = json!({ "name": "t", "steps": [
        { "do": [{ "call": { "name": "read_file", "input": { "path": "nowhere" } } }] }, { "do": [{ "text": "Gone." }] },
    ]});
    let lines = folder.tenure(&["ask", "Read.", "--model", &folder.script(&failed), "--json"]).exits(0).json_lines();
    let other = lines.iter().find_map(|line| line["session_id"].as_str()).unwrap();
    assert!(folder.tenure(&["session", "messages", other]).exits(0).stdout.contains("\nread_file failed  "));
    assert!(shown.contains("Thirty") && !shown.contains('\u{1b}'), "{shown:?}");
    let messages = folder.tenure(&["session", "messages", &session, "--json"]).exits(0).json();
    let roles: Vec<&Value> = messages["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    let typed = r#"Say "hi" to Zoë \o/"#;
    let renamed = folder.tenure(&["session", "rename", &session, typed]).exits(0);
    assert_eq!(renamed.stdout, format!("{session} is now called: {typed}\n"));
    folder.tenure(&["session", "rename", &session, "Counting"]).exits(0);
    assert_eq!(folder.tenure(&["session", "show", &session, "--json"]).exits(0).json()["title"], "Counting");
    assert_eq!(folder.tenure(&["session", "rename", &session, " ", "--json"]).exits(4).error()["code"], "bad_request");
}

fn state<'a>(doctor: &'a Value, name: &str) -> &'a Value {
    let checks = doctor["checks"].as_array().unwrap();
    &checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {doctor}"))["state"]
}

#[test]
fn the_doctor_says_how_things_are_and_starts_nothing() {
    let folder = Folder::new();
    let new = folder.tenure(&["doctor", "--json"]).exits(0).json();
    assert_eq!((&new["ok"], state(&new, "data folder")), (&json!(true), &json!("ok")));
    assert_eq!(folder.daemon_pid(), None);
    assert!(!folder.data().exists());
    ask(&folder, "hello");
    let well = folder.tenure(&["doctor", "--json"]).exits(0).json();
    for name in ["disk", "sync", "token", "config", "daemon", "durability", "ready", "open files"] {
        assert_eq!(state(&well, name), "ok", "{name}");
    }
    let told = folder.tenure(&["doctor"]).exits(0).stdout;
    assert!(told.contains(&format!("process {}", folder.daemon_pid().unwrap())), "{told}");
    // What is wrong is named, with what to do.
    let token = folder.data().join("token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644)).unwrap();
    folder.config("durability = \"disk\"\n");
    let bad = folder.tenure(&["doctor"]).exits(1);
    assert!(bad.stdout.contains("others can read it") && bad.stdout.contains("config.toml:1: "), "{bad:?}");
    assert!(bad.stdout.lines().filter(|line| line.trim_start().starts_with('→')).count() >= 2, "{bad:?}");
}

#[test]
fn a_daemon_is_stopped_and_the_next_goes_on() {
    let folder = Folder::new();
    assert_eq!(folder.tenure(&["stop", "--json"]).exits(0).json(), json!({ "stopped": null }));
    let session = ask(&folder, "hello");
    let pid = folder.daemon_pid().unwrap();
    assert_eq!(folder.tenure(&["stop", "--json"]).exits(0).json(), json!({ "stopped": pid }));
    assert_eq!(folder.daemon_pid(), None);
    assert_eq!(folder.tenure(&["stop"]).exits(0).stdout, "No daemon runs on this data folder.\n");
    assert_eq!(ids(&folder.tenure(&["sessions", "--json"]).exits(0)), [session]);
    assert_ne!(folder.daemon_pid(), Some(pid));
}

#[test]
fn completions_are_scripts_that_their_shell_takes() {
    for (shell, holds) in [("bash", "complete -F _tenure"), ("zsh", "#compdef tenure"), ("fish", "complete -c tenure")]
    {
        let ran = Ran::of(tenure().args(["completions", shell]).output().unwrap()).exits(0);
        assert!(ran.stdout.contains(holds) && ran.stdout.contains("sessions"), "{shell}");
        if shell == "bash" {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), &ran.stdout).unwrap();
            assert!(std::process::Command::new("bash").arg("-n").arg(file.path()).status().unwrap().success());
        }
    }
}

#[test]
fn settings_are_shown_with_their_origins_and_secrets_are_not() {
    let folder = Folder::new();
    let setting = |ran: &Ran, name: &str| {
        let settings = ran.json()["settings"].as_array().unwrap().clone();
        let found = settings.into_iter().find(|setting| setting["name"] == name).unwrap();
        (found["value"].clone(), found["origin"].clone())
    };
    let none = folder.tenure(&["config", "show", "--json"]).exits(0);
    assert_eq!(setting(&none, "listen"), (json!("127.0.0.1:8787"), json!("default")));
    assert!(folder.tenure(&["config", "check"]).exits(0).stdout.contains("all defaults"));
    folder.config("listen = \"127.0.0.1:9\"\ndurability = \"process\"\n[limits]\nmailbox_max = 7\n[secrets]\nDOOR = \"very secret\"\n");
    let mut command = folder.command(&["config", "show", "--json"]);
    let said = Ran::of(command.env("TENURE_DURABILITY", "power").output().unwrap()).exits(0);
    assert_eq!(setting(&said, "listen"), (json!("127.0.0.1:9"), json!("file")));
    assert_eq!(setting(&said, "durability"), (json!("power"), json!("TENURE_DURABILITY")));
    assert_eq!(setting(&said, "limits.mailbox_max"), (json!(7), json!("file")));
    assert_eq!(setting(&said, "limits.body_bytes_max").1, "default");
    assert_eq!(setting(&said, "secrets"), (json!(["DOOR"]), json!("file")));
    let text = folder.tenure(&["config", "show"]).exits(0).stdout;
    assert!(text.contains("mailbox_max") && !text.contains("very secret") && !said.stdout.contains("very secret"));
    assert!(folder.tenure(&["config", "check"]).exits(0).stdout.contains("is fine"));
    // Every key that the help of `serve` lists is shown, but those of what users name.
    let help = folder.tenure(&["serve", "--help"]).exits(0).stdout;
    let keys = help.lines().filter_map(|line| line.trim().split_once(" = ")).map(|(key, _)| key);
    let of_users = ["NAME", "base_url", "key_variable", "window", "tool_mode", "small", "command", "args", "env"];
    for key in keys.map(|key| key.trim_start_matches('#')).filter(|key| !key.contains(' ') && !of_users.contains(key)) {
        assert!(
            text.lines().any(|line| line.split_whitespace().next().is_some_and(|name| name.ends_with(key))),
            "{key}"
        );
    }
    folder.config("durability = \"disk\"\n");
    let ran = folder.tenure(&["config", "check"]).exits(2);
    assert!(ran.stderr.contains("config.toml:1: "), "{ran:?}");
    let mut command = folder.command(&["config", "show"]);
    folder.config("");
    let ran = Ran::of(command.env("TENURE_LISTEN", "here").output().unwrap()).exits(2);
    assert!(ran.stderr.contains("here"), "{ran:?}");
}

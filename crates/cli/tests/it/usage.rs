//! The command line itself: help, mistakes, exit codes.

use crate::rig::{Folder, Ran, tenure};

fn run(arguments: &[&str]) -> Ran {
    Ran::of(tenure().args(arguments).output().unwrap())
}

#[test]
fn the_usage_names_nothing_that_the_environment_gives() {
    let ran = Ran::of(tenure().args(["session", "show"]).env("TENURE_DATA", "/nowhere").output().unwrap()).exits(2);
    assert!(ran.stderr.contains("Usage: tenure session show [OPTIONS] <SESSION>\n"), "{}", ran.stderr);
}

#[test]
fn help_names_every_command_with_examples_and_exit_codes() {
    let help = run(&["--help"]).exits(0).stdout;
    for word in [
        "serve",
        "demo",
        "ask",
        "approve",
        "deny",
        "cancel",
        "sessions",
        "session",
        "token",
        "open",
        "stop",
        "doctor",
        "completions",
        "Examples:",
        "Exit codes:",
        "130",
    ] {
        assert!(help.contains(word), "{word} is missing in {help}");
    }
    assert!(!help.contains("__supervise"), "{help}");
    assert!(!run(&["serve", "--help"]).exits(0).stdout.contains("end-when-idle"));
    for command in [
        &["ask"][..],
        &["approve"],
        &["cancel"],
        &["sessions"],
        &["serve"],
        &["session", "events"],
        &["token"],
        &["open"],
        &["stop"],
        &["doctor"],
        &["completions"],
    ] {
        let help = run(&[command, &["--help"]].concat()).exits(0).stdout;
        assert!(help.contains("Example"), "{command:?}: {help}");
    }
}

#[test]
fn the_version_is_told() {
    assert_eq!(run(&["--version"]).exits(0).stdout, format!("tenure {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn mistakes_exit_with_2_and_start_nothing() {
    let folder = Folder::new();
    for arguments in [
        &[][..],
        &["frobnicate"],
        &["ask"],
        &["ask", "  "],
        &["ask", "--approve", "maybe", "x"],
        &["ask", "--timeout", "0", "x"],
        &["ask", "--session", "sess_x", "--model", "m", "x"],
        &["sessions", "--limit", "0"],
        &["sessions", "--limit", "5", "--all"],
        &["session", "events", "sess_x", "--after", "4.x"],
        &["approve"],
        &["approve", "sess_x", "--scope", "forever"],
        &["serve", "--listen", "here"],
        &["serve", "--listen", "0.0.0.0:0"],
    ] {
        let ran = folder.tenure(arguments).exits(2);
        assert!(!ran.stderr.is_empty() && ran.stdout.is_empty(), "{arguments:?}: {ran:?}");
        assert_eq!(folder.daemon_pid(), None, "{arguments:?}");
    }
}

#[test]
fn mistakes_are_told_with_what_was_meant() {
    let told = run(&["aks", "hi"]).exits(2).stderr;
    assert!(told.contains("a similar subcommand exists: 'ask'"), "{told}");
    let told = run(&["ask", "--max-cost", "-1", "hi"]).exits(2).stderr;
    assert!(told.contains("'-1' is no price") && !told.contains("'-- -1'"), "{told}");
    let folder = Folder::new();
    let error = folder.tenure(&["models", "openaii", "--json"]).exits(4).error();
    assert_eq!(error["code"], "unknown_provider");
    assert!(error["hint"].as_str().unwrap().contains("openai, "), "{error}");
}

#[test]
fn errors_are_json_where_json_was_asked_for() {
    let folder = Folder::new();
    let ran = folder.tenure(&["--json", "serve", "--listen", "0.0.0.0:0"]).exits(2);
    let error = ran.error();
    assert!(error["message"].as_str().unwrap().contains("not a loopback address"), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("--allow-remote"), "{error}");
    let ran = folder.tenure(&["sessions", "--json", "--all"]).exits(0);
    assert_eq!(ran.json(), serde_json::json!({"sessions": [], "more": false}));
    let unknown = "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let ran = folder.tenure(&["session", "show", unknown, "--json"]).exits(4);
    assert_eq!(ran.error()["code"], "unknown_session");
}

#[test]
fn a_beginning_of_an_id_must_be_long_enough_and_fit_one() {
    let folder = Folder::new();
    let ran = folder.tenure(&["session", "show", "sess_1"]).exits(2);
    assert!(ran.stderr.contains("at least 8 characters"), "{ran:?}");
    let ran = folder.tenure(&["session", "show", "sess_01XX"]).exits(4);
    assert!(ran.stderr.contains("no session begins with 'sess_01XX'"), "{ran:?}");
    for text in ["one", "two"] {
        folder.tenure(&["ask", text]).exits(0);
    }
    let rows = folder.tenure(&["sessions", "--json"]).exits(0).json();
    let ids: Vec<&str> = rows["sessions"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    let [newest, oldest] = ids[..] else { panic!("{ids:?}") };
    assert!(newest > oldest, "newest first");
    let ran = folder.tenure(&["session", "show", &newest[..8]]).exits(2);
    assert!(ran.stderr.contains("fits 2 sessions"), "{ran:?}");
    let ran = folder.tenure(&["session", "show", &newest[..newest.len() - 1], "--json"]).exits(0);
    assert_eq!(ran.json()["id"], *newest);
}

#[test]
fn programs_are_told_of_a_wrong_command_line_as_json() {
    let folder = Folder::new();
    for arguments in [&["--json", "bogus"][..], &["ask", "--json"], &["sessions", "--json", "--limit", "x"]] {
        let error = folder.tenure(arguments).exits(2).error();
        assert_eq!(error["code"], "usage", "{arguments:?}");
        assert!(!error["message"].as_str().unwrap().is_empty(), "{arguments:?}");
    }
    let missing = folder.tenure(&["ask", "--json"]).exits(2).error();
    assert!(missing["message"].as_str().unwrap().ends_with("not provided: <TEXT>"), "{missing}");
    let misspelt = folder.tenure(&["ask", "--modle", "x", "hi", "--json"]).exits(2).error();
    assert!(misspelt["hint"].as_str().unwrap().contains("--model"), "{misspelt}");
    let ran = folder.tenure(&["--url", "http://127.0.0.1:1", "stop", "--json"]).exits(2);
    assert!(ran.error()["message"].as_str().unwrap().contains("this machine"), "{ran:?}");
    folder.tenure(&["session", "show", "", "--json"]).exits(2);
}

/// What `--help` says of exit codes holds for every command.
#[test]
fn exit_codes_are_as_the_table_says() {
    let folder = Folder::new();
    let asked = folder.tenure(&["ask", "hi", "--json"]).exits(0).json_lines();
    let session = asked.iter().find_map(|line| line["session_id"].as_str()).unwrap().to_owned();
    folder.tenure(&["session", "export", &session, "-o", "it.tar.gz"]).exits(0);
    let forked = folder.tenure(&["session", "fork", &session, "--json"]).exits(0).json();
    let ended = forked["session_id"].as_str().unwrap().to_owned();
    folder.tenure(&["session", "end", &ended]).exits(0);
    const WHOLE: &str = "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV";
    let nothing = [WHOLE, "sess_01ARZ", "no-such-label"];
    // The daemon does not have it, however it is named, and whatever is to be done with it.
    for named in nothing {
        for arguments in [
            &["ask", "hi", "--session", named][..],
            &["chat", "hi", "--session", named],
            &["approve", named],
            &["deny", named],
            &["cancel", named],
            &["session", "show", named],
            &["session", "events", named],
            &["session", "messages", named],
            &["session", "rename", named, "x"],
            &["session", "change", named, "--label", "x"],
            &["session", "resume", named],
            &["session", "fork", named],
            &["session", "export", named],
            &["session", "purge", named, "--yes"],
            &["session", "end", named],
        ] {
            let ran = folder.tenure(&[arguments, &["--json"]].concat()).exits(4);
            assert_eq!(ran.error()["code"], "unknown_session", "{arguments:?}");
            assert!(ran.error()["hint"].as_str().unwrap().contains("`tenure sessions"), "{arguments:?}: {ran:?}");
        }
    }
    for (arguments, exit, code) in [
        // It is not so that this could be done.
        (&["approve", &session][..], 4, "not_waiting"),
        (&["approve", &session, "call_none"], 4, "unknown_call"),
        (&["cancel", &session], 4, "no_open_turn"),
        (&["session", "resume", &session], 4, "no_open_turn"),
        (&["session", "resume", &ended], 4, "session_ended"),
        (&["session", "change", &session, "--model", "no-such-model"], 4, "unknown_model"),
        (&["session", "rename", &session, " "], 4, "bad_request"),
        (&["session", "fork", &session, "--at", "9999"], 4, "unknown_seq"),
        (&["session", "import", "it.tar.gz"], 4, "session_exists"),
        (&["token", "revoke", "nobody"], 4, "unknown_token"),
        (&["token", "add", "NOT OK"], 4, "bad_token_name"),
        (&["store", "check", WHOLE], 4, "unknown_session"),
        (&["store", "check", "sess_nope"], 4, "unknown_session"),
        // The command line is wrong.
        (&["session", "show", "sess_1"], 2, "usage"),
        (&["session", "show", &session[..8]], 2, "usage"),
        (&["session", "change", &session], 2, "usage"),
        (&["session", "change", &session, "--workspace", "nowhere"], 2, "usage"),
        (&["session", "import", "nowhere.tar.gz"], 2, "usage"),
        (&["session", "export", &session, "-o", "it.tar.gz"], 2, "usage"),
        (&["session", "export", &session, "-o", "nowhere/it.tar.gz"], 2, "usage"),
        (&["session", "import", "."], 2, "usage"),
        (&["session", "fork", &session, "--at", "0"], 2, "usage"),
        (&["stop", "--wait", "x"], 2, "usage"),
        (&["session", "purge", &session], 2, "usage"),
        (&["session", "export", &session, "-o", ".", "--force"], 2, "usage"),
        (&["store", "gc", "--older-than", "soon"], 2, "usage"),
        (&["serve", "--listen", "box.example:1"], 2, "usage"),
        (&["serve", "--log-file", "nowhere/log"], 2, "usage"),
        (&["man", "--output", "it.tar.gz"], 2, "usage"),
        (&["stop", "--url", "http://127.0.0.1:1"], 2, "usage"),
        (&["config", "show", "--url", "http://127.0.0.1:1"], 2, "usage"),
        (&["serve", "--url", "http://127.0.0.1:1"], 2, "usage"),
        (&["demo"], 2, "usage"),
        (&["sessions", "--url", "http://127.0.0.1:1"], 2, "usage"),
        // What was to be done failed here.
        (&["serve"], 1, "locked"),
        (&["store", "repair"], 1, "locked"),
        (&["store", "gc"], 1, "locked"),
    ] {
        let ran = folder.tenure(&[arguments, &["--json"]].concat()).exits(exit);
        assert_eq!(ran.error()["code"], code, "{arguments:?}: {ran:?}");
        assert_ne!(ran.error()["hint"], "", "{arguments:?}: {ran:?}");
    }
}

#[test]
fn localhost_is_an_address_and_what_is_none_is_told_with_an_example() {
    let folder = Folder::new();
    let said = folder.tenure(&["serve", "--listen", "here"]).exits(2).stderr;
    assert!(said.contains("such as 127.0.0.1:8787"), "{said}");
    // Somebody else listens there: the address was understood.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ran = folder.tenure(&["serve", "--json", "--listen", &format!("localhost:{port}")]).exits(1);
    assert_eq!(ran.error()["code"], "address_in_use");
    // An address for documents, which no machine has.
    let ran = folder.tenure(&["serve", "--json", "--listen", "192.0.2.1:1", "--allow-remote", "--tls"]).exits(1);
    assert!(ran.error()["hint"].as_str().unwrap().contains("127.0.0.1:8787"), "{ran:?}");
}

//! Tokens, links and daemons for other machines, through the real binary.

use std::{fs, os::unix::fs::PermissionsExt as _, process::Stdio};

use rustix::process::Signal;
use serde_json::Value;
use tenure_client::{Client, Target, discover};

use crate::rig::{Daemon, Folder, PATIENCE, Ran, signal, wait_for_end};

/// A command that is told where its daemon is.
fn elsewhere(folder: &Folder, url: &str, token: &str, arguments: &[&str]) -> Ran {
    let mut command = folder.command(arguments);
    command.env("TENURE_URL", url).env("TENURE_TOKEN", token).env("TENURE_DATA", "/nowhere");
    Ran::of(command.output().unwrap())
}

#[tokio::test]
async fn tokens_are_made_used_rotated_and_revoked() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(folder.data()).await;
    let url = daemon.client().target().base_url().to_owned();
    let made = folder.tenure(&["token", "add", "ci", "--expires", "2h"]).exits(0);
    let secret = made.stdout.trim().to_owned();
    assert!(secret.starts_with("tenure_") && !made.stderr.contains(&secret), "{made:?}");
    assert!(made.stderr.contains("until 20"), "{made:?}");
    let listed = folder.tenure(&["token", "list", "--json"]).exits(0).json();
    assert_eq!(listed["tokens"][0]["name"], "ci");
    assert_eq!(listed["tokens"][0]["last4"], secret[secret.len() - 4..]);
    let file = folder.data().join("tokens.json");
    let kept = fs::read_to_string(&file).unwrap();
    assert!(!kept.contains(&secret[7..]), "{kept}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    elsewhere(&folder, &url, &secret, &["sessions"]).exits(0);
    let refused = elsewhere(&folder, &url, &secret, &["token", "list", "--json"]).exits(4);
    assert_eq!(refused.error()["code"], "not_allowed");
    assert_eq!(folder.tenure(&["token", "add", "ci", "--json"]).exits(4).error()["code"], "token_exists");
    folder.tenure(&["token", "add", "x", "--expires", "soon"]).exits(2);

    // It holds after a crash.
    daemon.kill9();
    daemon.restart().await;
    let url = daemon.client().target().base_url().to_owned();
    elsewhere(&folder, &url, &secret, &["sessions"]).exits(0);
    let rotated = folder.tenure(&["token", "rotate", "ci", "--json"]).exits(0).json();
    let second = rotated["token"].as_str().unwrap();
    assert_eq!(elsewhere(&folder, &url, &secret, &["sessions", "--json"]).exits(4).error()["code"], "unauthorized");
    elsewhere(&folder, &url, second, &["sessions"]).exits(0);
    folder.tenure(&["token", "revoke", "ci"]).exits(0);
    assert_eq!(elsewhere(&folder, &url, second, &["sessions", "--json"]).exits(4).error()["code"], "unauthorized");
    daemon.kill9();
    daemon.restart().await;
    let url = daemon.client().target().base_url().to_owned();
    elsewhere(&folder, &url, second, &["sessions"]).exits(4);
    for secret in [&secret, second] {
        assert!(!daemon.log().contains(secret), "a secret is in the log");
    }
}

#[test]
fn an_expired_token_is_told_and_not_rotated() {
    let folder = Folder::new();
    folder.tenure(&["token", "add", "guest", "--expires", "1s"]).exits(0);
    folder.tenure(&["token", "add", "ci", "--expires", "2w"]).exits(0);
    let deadline = std::time::Instant::now() + crate::rig::PATIENCE;
    let list = loop {
        let list = folder.tenure(&["token", "list"]).exits(0).stdout;
        if list.contains("EXPIRED") || std::time::Instant::now() > deadline {
            break list;
        }
    };
    let line = |name: &str| list.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("guest").contains("  EXPIRED ") && line("ci").contains("  until "), "{list}");
    let refused = folder.tenure(&["token", "rotate", "guest", "--json"]).exits(4).error();
    assert_eq!(refused["code"], "token_expired");
    assert!(refused["hint"].as_str().unwrap().contains("`tenure token revoke guest`"), "{refused}");
    folder.tenure(&["token", "rotate", "ci"]).exits(0);
}

#[test]
fn a_fingerprint_for_a_daemon_without_a_certificate_is_refused() {
    let folder = Folder::new();
    let ran = elsewhere(&folder, "http://127.0.0.1:1", "secret", &["sessions", "--fingerprint", "ab"]).exits(2);
    assert!(ran.stderr.contains("--fingerprint is about a certificate"), "{ran:?}");
}

#[tokio::test]
async fn the_daemons_own_token_is_rotated_while_it_runs() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(folder.data()).await;
    let before = daemon.client().target();
    let said = folder.tenure(&["token", "rotate"]).exits(0);
    let path = folder.data().join("token");
    let token = fs::read_to_string(&path).unwrap().trim().to_owned();
    assert_ne!(token, before.token());
    assert!(!said.stdout.contains(&token), "{said:?}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let old = Client::new(before);
    assert_eq!(old.tokens().await.unwrap_err().code(), Some("unauthorized"));
    folder.tenure(&["sessions"]).exits(0);
    // What reads the file is not told either.
    let script = serde_json::json!({ "name": "spy", "steps": [
        { "do": [{ "call": { "name": "shell", "input": { "command": format!("cat {}", path.display()) } } }] },
    ] });
    let asked = folder.tenure(&["ask", "--approve", "all", "--model", &folder.script(&script), "go", "--json"]);
    assert!(!asked.stdout.contains(&token) && asked.stdout.contains("${secret:TENURE_TOKEN_"), "{asked:?}");
    daemon.kill9();
    daemon.restart().await;
    assert_eq!(daemon.client().target().token(), token);
    assert!(!daemon.log().contains(&token));
}

#[tokio::test]
async fn refusals_are_in_the_log_now_and_then_and_nothing_that_was_sent() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let url = daemon.client().target().base_url().to_owned();
    let wrong = "a-wrong-token-that-somebody-sent";
    let stranger = Client::new(Target::new(url, wrong));
    for _ in 0..5 {
        assert_eq!(stranger.tokens().await.unwrap_err().code(), Some("unauthorized"));
    }
    let log = daemon.log();
    assert_eq!(log.matches("refused a request from 127.0.0.1: unauthorized").count(), 1, "{log}");
    assert!(!log.contains(wrong), "{log}");
}

#[tokio::test]
async fn open_prints_a_link_that_works_once() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let link = folder.tenure(&["open", "--print"]).exits(0).stdout.trim().to_owned();
    assert!(link.starts_with(&format!("{}/login?code=", daemon.client().target().base_url())), "{link}");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let none = reqwest::redirect::Policy::none();
    let http = reqwest::Client::builder().no_proxy().redirect(none).build().unwrap();
    let first = http.get(&link).send().await.unwrap();
    assert_eq!(first.status(), 303);
    assert!(first.headers()["set-cookie"].to_str().unwrap().contains("HttpOnly"));
    assert_eq!(http.get(&link).send().await.unwrap().status(), 403);
    assert!(folder.tenure(&["open", "--json"]).exits(0).json()["url"].is_string());
    let code = link.split("code=").nth(1).unwrap();
    assert!(!daemon.log().contains(code), "the log holds the code");
}

#[test]
fn other_addresses_are_refused_unless_it_is_done_right() {
    let folder = Folder::new();
    for arguments in [
        &["--listen", "0.0.0.0:0"][..],
        &["--listen", "0.0.0.0:0", "--tls"],
        &["--listen", "0.0.0.0:0", "--allow-remote"],
        &["--listen", "[::]:0", "--allow-remote", "--name", "box.example"],
        &["--listen", "127.0.0.1:0", "--tls-cert", "/nowhere/cert.pem"],
        &["--listen", "127.0.0.1:0", "--behind-proxy", "https://box.example"],
        &["--listen", "127.0.0.1:0", "--tls-cert", "/nowhere/cert.pem", "--tls-key", "/nowhere/key.pem"],
    ] {
        let ran = folder.tenure(&[&["serve", "--json"], arguments].concat()).exits(2);
        assert_ne!(ran.error()["message"], "", "{ran:?}");
        assert_eq!(ran.stdout, "", "{ran:?}");
    }
    let hint = folder.tenure(&["serve", "--listen", "0.0.0.0:0", "--allow-remote"]).exits(2).stderr;
    assert!(hint.contains("--tls") && hint.contains("--behind-proxy"), "{hint}");
}

#[tokio::test]
async fn a_daemon_with_tls_is_known_by_its_fingerprint_or_its_certificate() {
    let folder = Folder::new();
    let mut daemon = Daemon::start_with(folder.data(), &["--tls", "--name", "box.example"]).await;
    let url = daemon.client().target().base_url().to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    // Whoever has the data folder finds it as always.
    folder.tenure(&["sessions"]).exits(0);
    let note = discover::read(&folder.data()).unwrap().note;
    let fingerprint = note.fingerprint.unwrap();
    assert!(daemon.log().contains(&format!("Certificate: SHA-256 {fingerprint}")), "{}", daemon.log());
    let token = folder.tenure(&["token", "add", "laptop", "--json"]).exits(0).json()["token"].clone();
    let token = token.as_str().unwrap();
    elsewhere(&folder, &url, token, &["sessions", "--fingerprint", &fingerprint]).exits(0);
    let wrong = fingerprint.replace(&fingerprint[..2], if fingerprint.starts_with("00") { "11" } else { "00" });
    elsewhere(&folder, &url, token, &["sessions", "--fingerprint", &wrong]).exits(3);
    elsewhere(&folder, &url, token, &["sessions", "--fingerprint", "ab"]).exits(2);
    let certificate = folder.data().join("tls-cert.pem");
    elsewhere(&folder, &url, token, &["sessions", "--ca", certificate.to_str().unwrap()]).exits(0);
    // Nobody of whom the system has heard signed it.
    elsewhere(&folder, &url, token, &["sessions"])
        .exits(if std::path::Path::new("/etc/ssl/certs/ca-certificates.crt").exists() { 3 } else { 2 });
    assert_eq!(fs::metadata(folder.data().join("tls-key.pem")).unwrap().permissions().mode() & 0o777, 0o600);
    daemon.kill9();
    daemon.restart().await;
    assert_eq!(discover::read(&folder.data()).unwrap().note.fingerprint.as_deref(), Some(&*fingerprint));
    // A stream goes through it too.
    let asked =
        elsewhere(&folder, daemon.client().target().base_url(), token, &["ask", "hi", "--fingerprint", &fingerprint]);
    assert!(asked.exits(0).stdout.contains("hi"));
}

/// What is missing or wrong between a command and a daemon elsewhere is told by name, with what to do about it there.
#[tokio::test]
async fn what_is_wrong_with_a_daemon_elsewhere_is_told() {
    let (folder, plain) = (Folder::new(), Folder::new());
    let daemon = Daemon::start_with(folder.data(), &["--tls"]).await;
    let bare = Daemon::start(plain.data()).await;
    let url = daemon.client().target().base_url().to_owned();
    let bare_url = bare.client().target().base_url().to_owned();
    let certificate = folder.data().join("tls-cert.pem");
    let (trusting, ca) = (["--ca", certificate.to_str().unwrap()], certificate.to_str().unwrap());
    let other = "00".repeat(32);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let said = |url: &str, token: &str, more: &[&str], command: &[&str]| {
        let ran = elsewhere(&folder, url, token, &[command, more, &["--json"]].concat());
        (ran.code.unwrap(), ran.error())
    };
    for (url, more, code, words) in [
        (url.clone(), &["--fingerprint", &other][..], "bad_certificate", ["--fingerprint", "`tenure doctor`"]),
        (url.replace("https", "http"), &[], "no_http", ["https://", "--url"]),
        (bare_url.replace("http", "https"), &trusting, "no_tls", ["`tenure serve --tls`", "http://"]),
        (url.replace("127.0.0.1", "127.0.0.2"), &trusting, "unreachable", ["--url", "`tenure doctor`"]),
        (format!("https://{free}"), &trusting, "unreachable", ["--url", "`tenure doctor`"]),
        (format!("http://{free}"), &[], "unreachable", ["--url", "`tenure doctor`"]),
        ("https://nowhere.invalid:1".into(), &trusting, "unreachable", ["--url", "`tenure doctor`"]),
    ] {
        // Each begins with another request, and none waits for a daemon that was never there.
        let session = "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV";
        for command in [&["sessions"][..], &["ask", "hi"], &["session", "events", session], &["token", "list"]] {
            let (exit, error) = said(&url, "some-token", more, command);
            assert_eq!((exit, &error["code"]), (3, &code.into()), "{url} {command:?}: {error}");
            let hint = error["hint"].as_str().unwrap();
            assert!(words.iter().all(|word| hint.contains(word)), "{url} {command:?}: {hint}");
        }
    }
    // A certificate of somebody else's.
    let stranger = Folder::new();
    let unknown = Daemon::start_with(stranger.data(), &["--tls"]).await;
    let (exit, error) = said(unknown.client().target().base_url(), "some-token", &["--ca", ca], &["sessions"]);
    assert_eq!((exit, &error["code"]), (3, &"bad_certificate".into()), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("--fingerprint HEX"), "{error}");
    // And it is the doctor who shows the right one.
    let checks = folder.tenure(&["doctor", "--json"]).json()["checks"].clone();
    let shown =
        checks.as_array().unwrap().iter().find(|check| check["name"] == "certificate").unwrap()["found"].clone();
    let fingerprint = discover::read(&folder.data()).unwrap().note.fingerprint.unwrap();
    assert_eq!(shown, format!("SHA-256 {fingerprint}"));
    let (exit, error) = said(&url, "wrong-token", &trusting, &["sessions"]);
    assert_eq!((exit, &error["code"]), (4, &"unauthorized".into()), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("--token-file"), "{error}");
    for (more, word) in [
        (["--token-file", "/nowhere/token"], "`tenure token add NAME`"),
        (["--ca", "/nowhere/ca.pem"], "--ca FILE"),
        (["--fingerprint", "ab"], "`tenure doctor`"),
    ] {
        let (exit, error) = said(&url, "some-token", &more, &["sessions"]);
        assert_eq!(exit, 2, "{error}");
        assert!(error["hint"].as_str().unwrap().contains(word), "{error}");
    }
}

/// Nobody is asked how they are before they are asked for something.
#[test]
fn a_command_for_a_daemon_elsewhere_is_one_request() {
    use std::io::{Read as _, Write as _};
    let folder = Folder::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut head = vec![];
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            peer.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let body = r#"{"sessions":[],"next":null}"#;
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        peer.write_all(answer.as_bytes()).unwrap();
        String::from_utf8(head).unwrap()
    });
    elsewhere(&folder, &url, "some-token", &["sessions"]).exits(0);
    let head = peer.join().unwrap();
    assert!(head.starts_with("GET /v1/sessions?"), "{head}");
}

#[tokio::test]
async fn a_daemon_on_every_address_is_found_on_loopback() {
    let folder = Folder::new();
    let arguments = ["serve", "--json", "--listen", "0.0.0.0:0", "--allow-remote", "--tls"];
    let mut child = folder.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = std::time::Instant::now();
    let client = loop {
        match discover::find(&folder.data()).await {
            Ok((client, _)) => break client,
            Err(absent) => assert!(began.elapsed() < PATIENCE, "{absent}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert!(client.target().base_url().starts_with("https://127.0.0.1:"), "{:?}", client.target());
    assert!(client.tokens().await.is_ok());
    signal(child.id(), Signal::TERM);
    assert!(wait_for_end(&mut child).await.success());
}

#[tokio::test]
async fn a_token_does_not_travel_plainly() {
    let folder = Folder::new();
    let ran = elsewhere(&folder, "http://box.example:8787", "secret-token", &["sessions"]).exits(2);
    assert!(ran.stderr.contains("https://") && !ran.stderr.contains("secret-token"), "{ran:?}");
    elsewhere(&folder, "box.example", "secret-token", &["sessions"]).exits(2);
    let mut command = folder.command(&["sessions"]);
    command.env("TENURE_URL", "https://box.example");
    assert!(Ran::of(command.output().unwrap()).exits(2).stderr.contains("--token-file"));
    // A token in a file, for a daemon on loopback.
    let daemon = Daemon::start(folder.data()).await;
    let target = daemon.client().target();
    let mut command = folder.command(&["sessions", "--url", target.base_url(), "--token-file"]);
    command.arg(folder.data().join("token")).env("TENURE_DATA", "/nowhere");
    Ran::of(command.output().unwrap()).exits(0);
    let stranger = Client::new(Target::new(target.base_url().replace("http", "https"), target.token()));
    assert!(stranger.health().await.is_err(), "no TLS is spoken there");
}

#[tokio::test]
async fn limits_of_the_file_hold_and_are_shown() {
    let folder = Folder::new();
    folder.config("[limits]\nbody_bytes_max = 300\ntokens_max = 1\nidle_ms = 1234\n");
    let daemon = Daemon::start(folder.data()).await;
    folder.tenure(&["token", "add", "one"]).exits(0);
    assert_eq!(folder.tenure(&["token", "add", "two", "--json"]).exits(4).error()["code"], "too_many_tokens");
    let asked = folder.tenure(&["ask", &"x".repeat(400), "--json"]).exits(4);
    assert_eq!(asked.error()["code"], "body_too_large");
    let shown = folder.tenure(&["config", "show", "--json"]).exits(0).json();
    let settings = shown["settings"].as_array().unwrap();
    let of = |name: &str| settings.iter().find(|setting| setting["name"] == name).unwrap_or(&Value::Null).clone();
    assert_eq!((&of("limits.idle_ms")["value"], &of("limits.idle_ms")["origin"]), (&1234.into(), &"file".into()));
    assert_eq!(of("limits.import_bytes_max")["value"], 1 << 30);
    assert_eq!(of("remote.allow")["value"], false);
    drop(daemon);
}

/// Nobody waits for a pipe: the daemon does not start, and says which file it is and what to do.
#[test]
fn a_pipe_in_place_of_a_file_is_refused_and_not_waited_for() {
    for name in ["token", "tokens.json", "always.json", "config.toml"] {
        let folder = Folder::new();
        fs::create_dir_all(folder.data().join("sessions")).unwrap();
        let path = folder.data().join(name);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let refused = folder.tenure(&["serve", "--listen", "127.0.0.1:0", "--json"]).exits(2).error();
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(name) && message.contains("it is not a plain file"), "{refused}");
        assert!(refused["hint"].as_str().unwrap().contains("remove it"), "{refused}");
        let told = folder.tenure(&["doctor"]).exits(1).stdout;
        assert!(told.contains("it is not a plain file"), "{told}");
    }
}

#[tokio::test]
async fn tokens_that_the_disk_changed_are_found_and_leftovers_swept() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(folder.data()).await;
    folder.tenure(&["token", "add", "ci"]).exits(0);
    daemon.kill9();
    folder.tenure(&["store", "check"]).exits(0);
    let told = folder.tenure(&["doctor"]).stdout;
    assert!(told.contains("1 by name"), "{told}");
    let path = folder.data().join("tokens.json");
    let good = fs::read_to_string(&path).unwrap();
    fs::write(&path, good.replacen("\"ci\"", "\"di\"", 1)).unwrap();
    let found = folder.tenure(&["store", "check", "--json"]).exits(5).json();
    assert_eq!((&found["clean"], &found["findings"][0]["path"]), (&false.into(), &"tokens.json".into()), "{found}");
    assert!(found["findings"][0]["what"].as_str().unwrap().contains("its sum does not fit"), "{found}");
    let told = folder.tenure(&["doctor"]).exits(1).stdout;
    assert!(told.contains("tokens.json: its sum does not fit"), "{told}");
    folder.tenure(&["serve", "--listen", "127.0.0.1:0"]).exits(2);
    folder.tenure(&["store", "repair"]).exits(5);
    // One bit is put right.
    fs::write(&path, good.replacen("\"ci\"", "\"bi\"", 1)).unwrap();
    let refused = folder.tenure(&["serve", "--listen", "127.0.0.1:0", "--json"]).exits(2).error();
    assert!(refused["hint"].as_str().unwrap().contains("tenure store repair"), "{refused}");
    let planned = folder.tenure(&["store", "repair", "--dry-run", "--json"]).exits(5).json();
    assert_eq!((&planned["actions"][0]["path"], &planned["left"]), (&"tokens.json".into(), &serde_json::json!([])));
    assert_ne!(fs::read_to_string(&path).unwrap(), good, "a plan changes nothing");
    folder.tenure(&["store", "repair"]).exits(0);
    assert_eq!(fs::read_to_string(&path).unwrap(), good);
    let left = folder.data().join("token.new-4711");
    fs::write(&left, "half a tok").unwrap();
    daemon.restart().await;
    assert!(!left.exists(), "what a killed daemon was writing is swept");
    folder.tenure(&["sessions"]).exits(0);
}

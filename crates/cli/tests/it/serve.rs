//! `tenure serve`: how it greets, whom it lets in, when it refuses to start, how it stops.

use std::{fs, net::TcpListener, os::unix::fs::PermissionsExt as _, process::Stdio, time::Duration};

use rustix::process::Signal;
use tenure_client::{Client, Target, discover};

use crate::rig::{Daemon, Folder, signal, wait_for_end};

#[tokio::test]
async fn it_says_how_to_reach_it_serves_and_stops_cleanly() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(folder.data()).await;
    let client = daemon.client();
    let address = client.target().base_url().to_owned();
    assert_eq!(client.health().await.unwrap().status, "ok");
    let greeting = daemon.log();
    let token_file = folder.data().join("token");
    for part in [&*address, &*token_file.to_string_lossy(), "curl -H", &*daemon.pid().to_string()] {
        assert!(greeting.contains(part), "{part} is missing in {greeting}");
    }
    assert_eq!(fs::metadata(&token_file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(folder.data().join("daemon.json")).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(daemon.stop().await.success());
    assert!(!folder.data().join("daemon.json").exists());
    assert!(client.health().await.is_err());
    let token = fs::read_to_string(&token_file).unwrap();
    assert!(!daemon.log().contains(token.trim()), "the token is never printed");
}

#[tokio::test]
async fn the_token_stays_the_same_and_no_other_opens_the_door() {
    let folder = Folder::new();
    let mut daemon = Daemon::start(folder.data()).await;
    let first = daemon.client().target();
    daemon.kill9();
    daemon.restart().await;
    assert_eq!(daemon.client().target().token(), first.token());
    let stranger = Client::new(Target::new(daemon.client().target().base_url(), "0".repeat(64)));
    assert!(stranger.health().await.is_ok(), "health needs no token");
    let refused = stranger.list(1, None, &Default::default()).await.unwrap_err();
    assert_eq!(refused.code(), Some("unauthorized"));
    fs::write(folder.data().join("token"), "0".repeat(64)).unwrap();
    let ran = folder.tenure(&["sessions", "--json"]).exits(4);
    assert_eq!(ran.error()["code"], "unauthorized");
    assert_ne!(ran.error()["hint"], "");
}

#[tokio::test]
async fn a_second_daemon_on_the_same_folder_is_refused_by_name() {
    let folder = Folder::new();
    let daemon = Daemon::start(folder.data()).await;
    let ran = folder.tenure(&["serve", "--listen", "127.0.0.1:0"]).exits(1);
    assert!(ran.stderr.contains(&format!("pid {}", daemon.pid())), "{ran:?}");
    assert!(ran.stderr.contains("hint:"), "{ran:?}");
    let found = discover::read(&folder.data()).unwrap();
    assert_eq!(found.note.pid, daemon.pid(), "the first one's note still stands");
    assert!(daemon.client().health().await.is_ok());
}

#[test]
fn an_address_in_use_is_named_with_a_way_out() {
    let folder = Folder::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let ran = folder.tenure(&["serve", "--listen", &address, "--json"]).exits(1);
    let error = ran.error();
    assert_eq!(error["code"], "address_in_use");
    assert!(error["message"].as_str().unwrap().contains(&address), "{error}");
    assert!(error["hint"].as_str().unwrap().contains("--listen"), "{error}");
}

#[test]
fn a_mistake_in_the_configuration_is_named_with_file_and_line() {
    let folder = Folder::new();
    folder.config("default_model = \"scripted\"\n[limits]\nbody_bytes_max = \"much\"\n");
    let ran = folder.tenure(&["serve", "--listen", "127.0.0.1:0"]).exits(2);
    assert!(ran.stderr.contains("config.toml:3: "), "{ran:?}");
    // A daemon that cannot start in the background says why.
    let ran = folder.tenure(&["sessions"]).exits(3);
    assert!(ran.stderr.contains("config.toml:3: "), "{ran:?}");
}

#[tokio::test]
async fn signals_that_the_parent_blocked_end_it_all_the_same() {
    use std::os::unix::process::CommandExt as _;
    let folder = Folder::new();
    let data = folder.data();
    let mut command = folder.command(&["serve", "--json", "--listen", "127.0.0.1:0"]);
    // SAFETY: one plain system call, which a child may make between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::signal::SigSet::all().thread_set_mask()?));
    }
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while discover::find(&data).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    signal(child.id(), Signal::TERM);
    assert!(wait_for_end(&mut child).await.success());
}

#[tokio::test]
async fn flags_win_over_the_environment_and_that_over_the_file() {
    let folder = Folder::new();
    folder.config("default_model = \"openai/file\"\nlisten = \"127.0.0.1:1\"\ndurability = \"process\"\n");
    let data = folder.data();
    let mut command = folder.command(&["serve", "--json", "--listen", "127.0.0.1:0"]);
    command.env("TENURE_DEFAULT_MODEL", "openai/environment").env("TENURE_LISTEN", "127.0.0.1:2");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let client = loop {
        match discover::find(&data).await {
            Ok((client, _)) => break client,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    };
    assert_eq!(client.ready().await.unwrap().durability, "process");
    let create = tenure_wire::CreateSession {
        workspace_path: folder.workspace().to_str().unwrap().into(),
        ..Default::default()
    };
    let session = client.create(&create).await.unwrap().session_id;
    assert_eq!(client.session(&session).await.unwrap().model, "openai/environment");
    signal(child.id(), Signal::TERM);
    assert!(wait_for_end(&mut child).await.success());
}

//! The daemon as a service: what systemd and it tell each other, its log, and a new one that takes the place of an old one.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixDatagram,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::Signal;
use serde_json::json;
use tenure_client::discover;

use crate::rig::{Daemon, Folder, PATIENCE, Ran, Watcher, signal, tenure, wait_for_end};

fn there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|ran| ran.status.success())
}

/// The unit files that would be installed, in a folder of their own.
fn printed(folder: &Folder) -> [String; 2] {
    let printed = folder.tenure(&["service", "install", "--print"]).exits(0).stdout;
    let (socket, service) = printed.split_once("tenure.service\n").unwrap();
    let socket = socket.split_once('\n').unwrap().1.rsplit_once("# ").unwrap().0;
    [socket.to_owned(), service.to_owned()]
}

#[test]
fn systemd_has_nothing_to_say_against_the_unit_files() {
    let folder = Folder::new();
    let [socket, service] = printed(&folder);
    assert!(service.contains("Type=notify\n") && socket.contains("ListenStream=127.0.0.1:8787\n"), "{service}{socket}");
    if !there("systemd-analyze") {
        eprintln!("systemd-analyze is not there: the unit files were not checked");
        return;
    }
    fs::write(folder.path().join("tenure.socket"), socket).unwrap();
    fs::write(folder.path().join("tenure.service"), service).unwrap();
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "./tenure.service", "./tenure.socket"]).current_dir(folder.path());
    let ran = Ran::of(command.output().unwrap()).exits(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
}

/// A home of its own, and no way to the systemd of whoever runs the tests.
fn homeless<'c>(command: &'c mut Command, folder: &Folder) -> &'c mut Command {
    let home = folder.path().join("home");
    command.env("HOME", home).env("XDG_RUNTIME_DIR", folder.path());
    command.env_remove("XDG_CONFIG_HOME").env_remove("DBUS_SESSION_BUS_ADDRESS")
}

#[test]
fn without_systemd_nothing_is_installed_and_the_way_out_is_told() {
    let folder = Folder::new();
    let mut command = folder.command(&["service", "install", "--json"]);
    let ran = Ran::of(homeless(&mut command, &folder).output().unwrap()).exits(1);
    assert_eq!(ran.error()["code"], "no_systemd");
    assert!(ran.error()["hint"].as_str().unwrap().contains("--print"), "{ran:?}");
    let mut command = folder.command(&["service", "status", "--json"]);
    let ran = Ran::of(homeless(&mut command, &folder).output().unwrap()).exits(0);
    assert_eq!(ran.json()["installed"], false);
    let mut command = folder.command(&["service", "install", "--print", "--json", "--listen", "localhost:1234"]);
    let units = Ran::of(homeless(&mut command, &folder).output().unwrap()).exits(0).json()["units"].clone();
    assert!(units[0]["file"].as_str().unwrap().ends_with("systemd/user/tenure.socket"), "{units}");
    assert!(units[0]["text"].as_str().unwrap().contains("ListenStream=127.0.0.1:1234\n"), "{units}");
    let mut command = folder.command(&["service", "install", "--listen", "0.0.0.0:1"]);
    Ran::of(homeless(&mut command, &folder).output().unwrap()).exits(2);
}

/// Stands in for systemctl, which needs a systemd that runs: records what it is told.
fn recorder(folder: &Folder) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let bin = folder.path().join("bin");
    fs::create_dir(&bin).unwrap();
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> {}\ncase \"$2\" in is-active) echo active;; is-enabled) echo enabled;; esac\n",
        folder.path().join("told").display()
    );
    fs::write(bin.join("systemctl"), script).unwrap();
    fs::set_permissions(bin.join("systemctl"), fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

#[test]
fn a_service_is_installed_told_of_and_removed() {
    let folder = Folder::new();
    let path = recorder(&folder);
    let run = |arguments: &[&str]| {
        let mut command = folder.command(arguments);
        Ran::of(homeless(&mut command, &folder).env("PATH", &path).output().unwrap())
    };
    // One that a command started makes room for the service.
    run(&["sessions"]).exits(0);
    assert!(folder.daemon_pid().is_some());
    run(&["service", "install", "--listen", "127.0.0.1:8899"]).exits(0);
    assert_eq!(folder.daemon_pid(), None);
    let units = folder.path().join("home/.config/systemd/user");
    assert!(fs::read_to_string(units.join("tenure.socket")).unwrap().contains("ListenStream=127.0.0.1:8899\n"));
    let status = run(&["service", "status", "--json"]).exits(0).json();
    assert_eq!((&status["installed"], &status["active"]), (&json!(true), &json!("active")));
    run(&["service", "uninstall"]).exits(0);
    assert!(fs::read_dir(&units).unwrap().next().is_none());
    assert!(run(&["service", "uninstall"]).exits(0).stdout.contains("There is no service"));
    let told = fs::read_to_string(folder.path().join("told")).unwrap();
    let expected = [
        "--user daemon-reload",
        "--user enable tenure.socket tenure.service",
        "--user restart tenure.socket tenure.service",
        "--user is-enabled tenure.service",
        "--user is-active tenure.service",
        "--user disable --now tenure.service tenure.socket",
        "--user daemon-reload",
    ];
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
}

/// Waits until the folder's note names a daemon that answers.
async fn answering(data: &Path) -> tenure_client::Client {
    let found = async {
        loop {
            match discover::find(data).await {
                Ok((client, _)) => return client,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("a daemon answers")
}

#[tokio::test]
async fn systemd_is_told_when_it_is_ready_lives_and_stops() {
    let folder = Folder::new();
    let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = folder.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", folder.path().join("notify")).env("WATCHDOG_USEC", "200000");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let told = || {
        let mut bytes = [0; 1024];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let first = told();
    assert!(first.starts_with("READY=1\nSTATUS=listens on 127.0.0.1:"), "{first}");
    answering(&folder.data()).await.health().await.unwrap();
    assert_eq!(told().trim(), "WATCHDOG=1");
    assert_eq!(told().trim(), "WATCHDOG=1", "and again");
    signal(child.id(), Signal::TERM);
    while told().trim() != "STOPPING=1" {}
    assert!(wait_for_end(&mut child).await.success());
}

#[tokio::test]
async fn a_socket_of_systemd_is_served() {
    if !there("systemd-socket-activate") {
        eprintln!("systemd-socket-activate is not there: sockets of systemd were not tried");
        return;
    }
    let folder = Folder::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let serve = |address: &str| {
        let mut command = Command::new("systemd-socket-activate");
        command.arg("--listen").arg(address).arg(env!("CARGO_BIN_EXE_tenure"));
        command.args(["serve", "--data"]).arg(folder.data());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let address = format!("127.0.0.1:{port}");
    let mut child = serve(&address);
    // The first connection starts it, and waits until it answers.
    let ask = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(&address)?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let deadline = std::time::Instant::now() + PATIENCE;
    let answer = loop {
        match ask() {
            Ok(answer) => break answer,
            Err(error) => assert!(std::time::Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(discover::read(&folder.data()).unwrap().note.address, address);
    signal(child.id(), Signal::TERM);
    wait_for_end(&mut child).await;

    let socket = folder.path().join("socket");
    let mut child = serve(socket.to_str().unwrap());
    let connect = async {
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, connect).await.unwrap();
    assert_eq!(wait_for_end(&mut child).await.code(), Some(2));
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert!(ran.stderr.contains("no TCP socket") && ran.stderr.contains("127.0.0.1:8787"), "{ran:?}");
}

#[tokio::test]
async fn a_log_begins_anew_while_the_daemon_runs_and_when_it_is_told() {
    let folder = Folder::new();
    folder.config("[log]\nbytes_max = 700\nkeep = 2\n");
    let run = |arguments: &[&str]| Ran::of(folder.command(arguments).env("TENURE_LOG", "trace").output().unwrap());
    let log = |name: &str| fs::read_to_string(folder.data().join(name));
    let aside = async {
        while log("daemon.log.2").is_err() {
            run(&["ask", "hello"]).exits(0);
        }
    };
    tokio::time::timeout(PATIENCE, aside).await.unwrap();
    for name in ["daemon.log", "daemon.log.1", "daemon.log.2"] {
        // In the instant in which it is put aside there is none.
        let text = loop {
            match log(name) {
                Ok(text) => break text,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        assert!(text.len() <= 700, "{name}");
    }
    assert!(log("daemon.log.3").is_err(), "only two are kept");
    while fs::rename(folder.data().join("daemon.log"), folder.data().join("mine")).is_err() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    signal(folder.daemon_pid().unwrap(), Signal::HUP);
    let told = async {
        // It may be put aside again before anybody looks.
        let all = ["daemon.log", "daemon.log.1", "daemon.log.2"];
        while !all.iter().any(|name| log(name).is_ok_and(|text| text.contains("the log was opened again"))) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, told).await.unwrap();
}

/// A daemon from a copy of the program.
fn serve(program: &Path, data: &Path, arguments: &[&str]) -> Child {
    let mut command = Command::new(program);
    for (name, _) in tenure().get_envs() {
        command.env_remove(name);
    }
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn a_new_program_takes_over_in_the_middle_of_a_turn() {
    let folder = Folder::new();
    let program = folder.path().join("tenure");
    fs::copy(env!("CARGO_BIN_EXE_tenure"), &program).unwrap();
    let gate = folder.path().join("gate");
    let model = folder.script(&json!({"name": "gated", "steps": [
        {"do": [{"call": {"name": "shell", "input": {"command": "echo ran >> ran.txt"}}}]},
        {"do": [{"text": "First half, "}, {"wait_for": gate}, {"text": "second half."}]},
        {"do": [{"call": {"name": "shell", "input": {"command": "echo ran >> ran.txt"}}}]},
        {"do": [{"text": "End."}]},
    ]}));
    let mut old = serve(&program, &folder.data(), &[]);
    let client = answering(&folder.data()).await;
    // What a rig does for its own daemons, for this one.
    let daemon = Daemon::adopt(folder.data(), client.clone());
    let policy = json!({"approval": {"require_for_kinds": []}});
    let session = daemon.session_with(&folder.workspace(), &model, serde_json::from_value(policy).unwrap()).await;
    let watcher = Watcher::start(&daemon, &session);
    // The program is replaced under the daemon that runs: its tools still start.
    fs::remove_file(&program).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_tenure"), &program).unwrap();
    let turn = daemon.send(&session, "go").await;
    watcher.wait_for_type("model_output_delta").await;
    let mut new = serve(&program, &folder.data(), &["--take-over"]);
    assert!(wait_for_end(&mut old).await.success(), "the old one ends in good order");
    fs::write(&gate, "").unwrap();
    watcher.wait_for_type("turn_completed").await;
    client.retarget(answering(&folder.data()).await.target());
    let view = client.turn(&session, &turn, Duration::ZERO).await.unwrap();
    assert_eq!(view.response.unwrap().text, "First half, second half.");
    watcher.assert_whole();
    assert_eq!(fs::read_to_string(folder.workspace().join("ran.txt")).unwrap(), "ran\n", "no call ran twice");

    // Without being told to, another one does not push in.
    let mut third = serve(&program, &folder.data(), &[]);
    assert_eq!(wait_for_end(&mut third).await.code(), Some(1));
    signal(new.id(), Signal::TERM);
    assert!(wait_for_end(&mut new).await.success());
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let folder = Folder::new();
    let ran = folder.tenure(&["man"]).exits(0);
    assert!(ran.stdout.contains(".TH tenure 1") && ran.stdout.contains("tenure\\-chat(1)"), "{ran:?}");
    let pages = folder.path().join("man1");
    folder.tenure(&["man", "--output", pages.to_str().unwrap()]).exits(0);
    for page in ["tenure.1", "tenure-chat.1", "tenure-session-export.1", "tenure-service-install.1"] {
        assert!(fs::read_to_string(pages.join(page)).is_ok_and(|text| text.contains(".SH SYNOPSIS")), "{page}");
    }
    assert!(!pages.join("tenure-help.1").exists());
    fs::write(folder.path().join("file"), "").unwrap();
    folder.tenure(&["man", "--output", folder.path().join("file").to_str().unwrap()]).exits(2);
}

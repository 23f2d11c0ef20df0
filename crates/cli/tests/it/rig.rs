//! What the tests stand on: folders, daemons that can be killed and started again, and watchers that record everything a stream gives. It checks nothing by itself but that a stream is whole.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tenure_client::{Client, Find, Item, Until, discover, stream::place};
use tenure_wire::{CreateSession, Event, Part, Policy, SendMessage};
use tokio::{sync::watch, task::JoinHandle};

/// How long anything may take before a test gives up.
pub const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);

/// A temporary folder with a data folder and a workspace in it. Should a background daemon run on it, it is ended with the folder.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        fs::create_dir(folder.workspace()).unwrap();
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub fn workspace(&self) -> PathBuf {
        self.path().join("workspace")
    }

    /// Writes a script and gives the name of the model that plays it.
    pub fn script(&self, script: &Value) -> String {
        let path = self.path().join(format!("script-{}.json", fs::read_dir(self.path()).unwrap().count()));
        fs::write(&path, script.to_string()).unwrap();
        format!("scripted:{}", path.display())
    }

    /// Writes the configuration.
    pub fn config(&self, text: &str) {
        fs::create_dir_all(self.data()).unwrap();
        fs::write(self.data().join("config.toml"), text).unwrap();
    }

    /// Files of the data folder that hold a secret; the configuration, which names it, does not count.
    pub fn holders_of(&self, secret: &str) -> Vec<String> {
        let (mut found, mut folders) = (vec![], vec![self.data()]);
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
                if path.is_dir() {
                    folders.push(path);
                } else if path.file_name().unwrap() != "config.toml"
                    && String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(secret)
                {
                    found.push(path.display().to_string());
                }
            }
        }
        found
    }

    /// The process that the data folder's note names, if it lives.
    pub fn daemon_pid(&self) -> Option<u32> {
        discover::read(&self.data()).ok().map(|running| running.note.pid)
    }

    /// Runs a command on this data folder to its end.
    pub fn tenure(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    /// The command, not yet started.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tenure();
        command.arg("--data").arg(self.data()).args(arguments).current_dir(self.workspace()).stdin(Stdio::null());
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The lock of the folder makes sure that this is a daemon which a test of this folder has started.
        if let Some(pid) = self.daemon_pid() {
            signal(pid, Signal::KILL);
        }
    }
}

/// The binary, free of what this shell is set to.
pub fn tenure() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    let of_ours = |name: &std::ffi::OsStr| {
        let name = name.to_string_lossy();
        name.starts_with("TENURE_")
            || name.ends_with("_API_KEY")
            || name.ends_with("_BASE_URL")
            || name == "OLLAMA_HOST"
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| of_ours(name) || name == "RUST_LOG") {
        command.env_remove(name);
    }
    command
}

pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // A process that is gone already is as good.
    let _ = kill_process(pid, signal);
}

/// What a command left.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Stdout as one JSON value.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }

    /// Stdout as JSON lines.
    #[track_caller]
    pub fn json_lines(&self) -> Vec<Value> {
        let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"));
        self.stdout.lines().map(parse).collect()
    }

    /// The error that `--json` tells on the last line of stderr.
    #[track_caller]
    pub fn error(&self) -> Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"))["error"].clone()
    }
}

/// A daemon of a test: `tenure serve` on a free port.
pub struct Daemon {
    data: PathBuf,
    arguments: Vec<String>,
    child: Option<Child>,
    client: Option<Client>,
}

impl Daemon {
    /// Starts one and waits until it answers.
    pub async fn start(data: impl Into<PathBuf>) -> Daemon {
        Self::start_with(data, &[]).await
    }

    /// The same with further arguments of `serve`.
    pub async fn start_with(data: impl Into<PathBuf>, arguments: &[&str]) -> Daemon {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut daemon = Daemon { data: data.into(), arguments, child: None, client: None };
        daemon.restart().await;
        daemon
    }

    /// Speaks to one that the test has started itself.
    pub fn adopt(data: impl Into<PathBuf>, client: Client) -> Daemon {
        Daemon { data: data.into(), arguments: vec![], child: None, client: Some(client) }
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill9(&mut self) {
        let mut child = self.child.take().expect("the daemon runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// SIGTERM; returns how it ended.
    pub async fn stop(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the daemon runs");
        signal(child.id(), Signal::TERM);
        wait_for_end(&mut child).await
    }

    /// Starts it again on the same folder; one that still runs is killed first. Clients and watchers made before follow it.
    pub async fn restart(&mut self) {
        if self.child.is_some() {
            self.kill9();
        }
        fs::create_dir_all(&self.data).unwrap();
        let log = fs::OpenOptions::new().append(true).create(true).open(self.log_path()).unwrap();
        let mut command = tenure();
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&self.data).args(&self.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = self.child.insert(command.spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok((client, note)) = discover::find(&self.data).await
                && note.pid == child.id()
            {
                match &self.client {
                    Some(known) => known.retarget(client.target()),
                    None => self.client = Some(client),
                }
                return;
            }
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && Instant::now() < deadline, "no daemon ({ended:?}): {}", self.log());
            tokio::time::sleep(POLL).await;
        }
    }

    /// A client that follows this daemon through restarts made by this rig.
    pub fn client(&self) -> Client {
        self.client.clone().expect("the daemon was started")
    }

    pub fn find(&self) -> Find {
        let data = self.data.clone();
        Arc::new(move || discover::read(&data).ok().map(|running| running.target))
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the daemon runs").id()
    }

    fn log_path(&self) -> PathBuf {
        self.data.join("daemon.log")
    }

    /// All it has printed in all its lives.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// A session with this model and otherwise the defaults.
    pub async fn session(&self, workspace: &Path, model: &str) -> String {
        self.session_with(workspace, model, Policy::default()).await
    }

    pub async fn session_with(&self, workspace: &Path, model: &str, policy: Policy) -> String {
        let create = CreateSession {
            workspace_path: workspace.to_str().unwrap().to_owned(),
            model: Some(model.to_owned()),
            policy: Some(policy),
            ..CreateSession::default()
        };
        self.client().create(&create).await.unwrap().session_id
    }

    /// Sends a text and gives the turn's id.
    pub async fn send(&self, session: &str, text: &str) -> String {
        let message = SendMessage { parts: vec![Part::text(text)], ..SendMessage::default() };
        self.client().send(session, &message).await.unwrap().turn_id.unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill9();
        }
    }
}

/// Waits for a child's end, not for ever.
pub async fn wait_for_end(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("process {} did not end", child.id());
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Records every item of a session's stream, from the beginning and across restarts, in a task of its own.
pub struct Watcher {
    items: Arc<Mutex<Vec<Item>>>,
    grown: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Watcher {
    pub fn start(daemon: &Daemon, session: &str) -> Watcher {
        let mut stream = daemon.client().events(session, Until::Forever).finding(daemon.find()).patience(PATIENCE);
        let items = Arc::new(Mutex::new(vec![]));
        let (grow, grown) = watch::channel(0);
        let kept = Arc::clone(&items);
        let task = tokio::spawn(async move {
            while let Some(item) = stream.next().await {
                let count = {
                    let mut items = kept.lock().unwrap();
                    items.push(item.expect("the stream goes on"));
                    items.len()
                };
                let _ = grow.send(count);
            }
        });
        Watcher { items, grown, task }
    }

    pub fn items(&self) -> Vec<Item> {
        self.items.lock().unwrap().clone()
    }

    pub fn events(&self) -> Vec<Event> {
        self.items().iter().map(|item| serde_json::from_str(&item.json).unwrap()).collect()
    }

    /// The first event, past ones included, that fits.
    pub async fn wait_for(&self, what: &str, fits: impl Fn(&Event) -> bool) -> Event {
        self.wait_for_nth(what, 1, fits).await
    }

    pub async fn wait_for_type(&self, wire_type: &str) -> Event {
        self.wait_for(wire_type, |event| event.wire_type == wire_type).await
    }

    /// The n-th event that fits.
    pub async fn wait_for_nth(&self, what: &str, nth: usize, fits: impl Fn(&Event) -> bool) -> Event {
        let mut grown = self.grown.clone();
        let found = async {
            loop {
                if let Some(event) = self.events().into_iter().filter(&fits).nth(nth - 1) {
                    return event;
                }
                grown.changed().await.expect("the watcher lives");
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(event) => event,
            Err(_) => panic!("no {what} came; there are: {:#?}", self.types()),
        }
    }

    /// All types in the order they came.
    pub fn types(&self) -> Vec<String> {
        self.items().into_iter().map(|item| item.kind).collect()
    }

    /// The joined text of the deltas of one attempt at one step.
    pub fn streamed(&self, step: u64, attempt: u64) -> String {
        let of_attempt = |event: &&Event| {
            event.wire_type == "model_output_delta" && event.data["step"] == step && event.data["attempt"] == attempt
        };
        let events = self.events();
        events.iter().filter(of_attempt).map(|event| event.data["text"].as_str().unwrap()).collect()
    }

    /// Every number once, without a gap; every cursor after the one before; every recorded text as it was streamed.
    #[track_caller]
    pub fn assert_whole(&self) {
        let (items, events) = (self.items(), self.events());
        let places: Vec<(u64, u64)> = items.iter().map(|item| place(&item.cursor).unwrap()).collect();
        assert!(places.is_sorted_by(|a, b| a < b), "cursors go on: {places:?}");
        let numbers: Vec<u64> = events.iter().filter(|event| event.pos.is_none()).map(|event| event.seq).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        for event in &events {
            if matches!(event.wire_type.as_str(), "model_output_completed" | "model_attempt_failed") {
                let (step, attempt) = (&event.data["step"], &event.data["attempt"]);
                let streamed = self.streamed(step.as_u64().unwrap(), attempt.as_u64().unwrap());
                assert_eq!(event.data["text"], streamed, "step {step}, attempt {attempt}");
            }
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

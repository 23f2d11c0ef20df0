//! Where everything is measured: a folder on the disk, the binaries, scripts for the model, and clients. It judges no number.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    daemon::{Daemon, Setup},
    http::{Connection, Follow, Target},
};

pub struct Stand {
    folder: TempDir,
    /// A short name: models are named by the path of their script, and names are part of what is recorded.
    scripts: TempDir,
    pub tenure: PathBuf,
    /// The store alone, without a daemon around it.
    pub appends: PathBuf,
    pub quick: bool,
}

/// What an acknowledged event survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Power,
    Process,
}

impl Durability {
    pub fn name(self) -> &'static str {
        match self {
            Durability::Power => "power",
            Durability::Process => "process",
        }
    }
}

impl Stand {
    /// `binaries` is the folder of release builds. The stand lies there too: it is on a disk, and a temporary folder may not be.
    pub fn new(binaries: &Path, quick: bool) -> Result<Stand> {
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(binaries)?;
        fs::create_dir(folder.path().join("workspace"))?;
        let scripts = tempfile::Builder::new().prefix("b").rand_bytes(4).tempdir()?;
        let appends = binaries.join("examples").join("appends");
        Ok(Stand { folder, scripts, tenure: binaries.join("tenure"), appends, quick })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The first in a whole run, the second in a quick one.
    pub fn rounds(&self, whole: usize, quick: usize) -> usize {
        if self.quick { quick } else { whole }
    }

    pub fn setup(&self, name: &str, durability: Durability) -> Setup {
        let mut setup = Setup::new(&self.tenure, &self.path(name));
        setup.arguments = vec!["--durability".into(), durability.name().into()];
        setup
    }

    pub fn start(&self, name: &str, durability: Durability) -> Result<Served> {
        Served::start(self.setup(name, durability))
    }

    /// Writes a script and gives the name of the model that plays it.
    pub fn model(&self, name: &str, steps: &Value) -> Result<String> {
        let path = self.scripts.path().join(format!("{name}.json"));
        let script = json!({ "name": name, "steps": steps, "after": "repeat" });
        fs::write(&path, script.to_string())?;
        Ok(format!("scripted:{}", path.display()))
    }

    /// A model whose every reply is this one text, in pieces of that many characters.
    pub fn speaker(&self, name: &str, text: &str, chunk: usize, pause_ms: u64) -> Result<String> {
        self.model(name, &json!([{ "do": [{ "text": text, "chunk": chunk, "pause_ms": pause_ms }] }]))
    }

    /// A session whose tools are never asked about.
    pub fn session_body(&self, model: &str) -> Value {
        let policy = json!({ "approval": { "require_for_kinds": [] } });
        json!({ "workspace_path": self.path("workspace"), "model": model, "policy": policy })
    }
}

/// A daemon that runs, and how to reach it.
pub struct Served {
    pub setup: Setup,
    pub daemon: Daemon,
    pub target: Target,
}

impl Served {
    pub fn start(setup: Setup) -> Result<Served> {
        let daemon = setup.start()?;
        let (target, _) = setup.target().context("the daemon is gone")?;
        Ok(Served { setup, daemon, target })
    }

    pub fn stop(self) -> Result<()> {
        self.daemon.stop()
    }

    pub fn client(&self) -> Result<Client> {
        Client::open(&self.target)
    }
}

/// One connection for commands.
pub struct Client {
    target: Target,
    pub connection: Connection,
}

impl Client {
    pub fn open(target: &Target) -> Result<Client> {
        Ok(Client { target: target.clone(), connection: Connection::open(target)? })
    }

    pub fn ask(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let answer = self.connection.ask(method, path, None, body)?;
        ensure!(answer.is_success(), "{method} {path}: {answer}");
        answer.json()
    }

    /// Makes a session and gives its id.
    pub fn create(&mut self, body: &Value) -> Result<String> {
        let made = self.ask("POST", "/v1/sessions", Some(body))?;
        Ok(made["session_id"].as_str().with_context(|| format!("no id in {made}"))?.to_owned())
    }

    /// A stream of what comes from now on.
    pub fn follow(&mut self, session: &str) -> Result<Follow> {
        let seq = self.seq(session)?;
        let path = format!("/v1/sessions/{session}/events?after={seq}");
        Ok(Connection::open(&self.target)?.follow(&path, None)?)
    }

    /// The number of a session's last event.
    pub fn seq(&mut self, session: &str) -> Result<u64> {
        let shown = self.ask("GET", &format!("/v1/sessions/{session}"), None)?;
        shown["seq"].as_u64().with_context(|| format!("no seq in {shown}"))
    }

    /// Adds a message that starts no turn.
    pub fn add(&mut self, session: &str, text: &str) -> Result<()> {
        let body = json!({ "parts": [{ "type": "text", "text": text }], "auto_run": false });
        self.ask("POST", &format!("/v1/sessions/{session}/messages"), Some(&body)).map(drop)
    }

    /// Sends a message and watches its turn to the end.
    pub fn turn(&mut self, follow: &mut Follow, session: &str, text: &str) -> Result<TurnTimes> {
        let body = json!({ "parts": [{ "type": "text", "text": text }] }).to_string();
        let path = format!("/v1/sessions/{session}/messages");
        let start = Instant::now();
        self.connection.begin("POST", &path, &body)?;
        let (mut first_delta, mut last_delta, mut deltas) = (None, start.elapsed(), 0);
        let done = loop {
            let item = follow.next()?.context("the stream ended before the turn")?;
            let now = start.elapsed();
            match &*item.kind {
                "model_output_delta" => {
                    first_delta.get_or_insert(now);
                    (last_delta, deltas) = (now, deltas + 1);
                }
                "turn_completed" => break now,
                kind if kind.starts_with("turn_") && kind != "turn_started" => {
                    anyhow::bail!("the turn came to another end: {}", item.json)
                }
                _ => {}
            }
        };
        let answer = self.connection.answer()?;
        ensure!(answer.is_success(), "the message was refused: {answer}");
        Ok(TurnTimes { began: start, first_delta: first_delta.unwrap_or(done), last_delta, done, deltas })
    }
}

/// When a client was told of what, since it began to send its message.
#[derive(Debug, Clone, Copy)]
pub struct TurnTimes {
    pub began: Instant,
    pub first_delta: Duration,
    pub last_delta: Duration,
    pub done: Duration,
    /// How many pieces the client got.
    pub deltas: usize,
}

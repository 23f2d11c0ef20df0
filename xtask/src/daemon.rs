//! A real daemon on a data folder of its own: built, started, found, killed and started again. It knows nothing of what is tried on it.

use std::{
    fs::{self, OpenOptions},
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    http::{Answer, Connection, Target},
    test::cargo,
};

/// How long anything may take before it counts as hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(2);

/// How the binary under trial is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Build {
    /// As the tests have built it already, with all their targets: another set of targets is another set of features.
    AsTested,
    Release,
}

/// The repository's root: the manifest lies in `xtask/`, one below.
pub fn root() -> Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask has no folder above it")
}

/// Builds packages and gives the folder that holds their binaries.
pub fn built(build: Build, packages: &[&str]) -> Result<PathBuf> {
    let mut command = Command::new(cargo());
    command.args(["build", "--quiet", "--message-format=json-render-diagnostics"]).current_dir(root()?);
    match build {
        Build::AsTested => command.args(["--workspace", "--all-targets"]),
        Build::Release => command.arg("--release").args(packages.iter().flat_map(|package| ["--package", package])),
    };
    let output = command.stderr(Stdio::inherit()).output().context("could not start cargo")?;
    if !output.status.success() {
        bail!("the build failed ({})", output.status);
    }
    // Cargo names each artifact; a test's executable lies elsewhere.
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().rev().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_binary = message["target"]["kind"][0] == "bin" && message["profile"]["test"] == false;
        message["executable"].as_str().filter(|_| is_binary).map(PathBuf::from)
    });
    let folder = executable.and_then(|path| path.parent().map(Path::to_path_buf));
    folder.context("cargo named no binary")
}

/// Builds the `tenure` binary and gives its path.
pub fn tenure(build: Build) -> Result<PathBuf> {
    Ok(built(build, &["tenure-cli"])?.join("tenure"))
}

/// What `tenure serve` is started with.
#[derive(Debug, Clone)]
pub struct Setup {
    pub binary: PathBuf,
    pub data: PathBuf,
    pub arguments: Vec<String>,
    /// Environment variables.
    pub variables: Vec<(&'static str, String)>,
}

/// Beginnings of the names of variables that a daemon heeds.
const HEEDED: [&str; 8] =
    ["TENURE", "ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "OPENROUTER_", "OLLAMA_", "RUST_LOG"];

impl Setup {
    pub fn new(binary: &Path, data: &Path) -> Setup {
        Setup { binary: binary.to_owned(), data: data.to_owned(), arguments: Vec::new(), variables: Vec::new() }
    }

    /// The command, free of what this shell is set to. All it prints goes to `daemon.out` beside the data folder.
    pub fn command(&self) -> Result<Command> {
        fs::create_dir_all(&self.data)?;
        let log = OpenOptions::new().append(true).create(true).open(self.log_path())?;
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars_os() {
            if HEEDED.iter().any(|heeded| name.to_string_lossy().starts_with(heeded)) {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(&self.data).args(&self.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(command)
    }

    fn log_path(&self) -> PathBuf {
        self.data.with_extension("out")
    }

    /// All that its daemons have printed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    /// The last lines of that.
    pub fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// The daemon that the folder's note names, if that process lives.
    pub fn target(&self) -> Option<(Target, i32)> {
        let note: Value = serde_json::from_slice(&fs::read(self.data.join("daemon.json")).ok()?).ok()?;
        let pid = i32::try_from(note["pid"].as_i64()?).ok()?;
        if !is_alive(pid) {
            return None;
        }
        let address: SocketAddr = note["address"].as_str()?.parse().ok()?;
        let token = fs::read_to_string(self.data.join("token")).ok()?.trim().to_owned();
        Some((Target { address, token }, pid))
    }

    /// One request to whichever daemon is there now; an error if none answers.
    pub fn ask(&self, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> io::Result<Answer> {
        let (target, _) = self.target().ok_or(io::ErrorKind::NotFound)?;
        Connection::open(&target)?.ask(method, path, key, body)
    }

    /// Starts it and waits for nothing.
    pub fn spawn(&self) -> Result<Daemon> {
        let child = self.command()?.spawn().with_context(|| format!("could not start {}", self.binary.display()))?;
        Ok(Daemon { child })
    }

    /// Starts it and waits until it answers.
    pub fn start(&self) -> Result<Daemon> {
        let mut daemon = self.spawn()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some((target, pid)) = self.target()
                && pid == daemon.pid()
                && Connection::open(&target).is_ok_and(|mut to| to.ask("GET", "/healthz", None, None).is_ok())
            {
                return Ok(daemon);
            }
            if let Some(status) = daemon.child.try_wait()? {
                bail!("the daemon ended at its start ({status}); it printed:\n{}", self.log_end());
            }
            if Instant::now() > deadline {
                bail!("the daemon does not answer; it printed:\n{}", self.log_end());
            }
            thread::sleep(POLL);
        }
    }
}

/// A process that runs and has not ended; a dead one that nobody has waited for is not alive.
pub fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// A running daemon; it is killed when this is dropped.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
}

impl Daemon {
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// SIGKILL; returns when the process is gone.
    pub fn kill9(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM; returns when the process is gone, and complains if it ends with an error.
    pub fn stop(mut self) -> Result<()> {
        kill(Pid::from_raw(self.pid()), Signal::SIGTERM)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("the daemon stopped with {status}"),
                None if Instant::now() > deadline => bail!("the daemon does not stop"),
                None => thread::sleep(POLL),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

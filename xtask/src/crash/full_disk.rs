//! A file system that is really full: the data folder lies on a small one of its own, which is filled up at a chosen instant and freed again.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    process::Command,
};

use anyhow::{Context, bail};
use serde_json::{Value, json};

use super::{
    promises::PROMISES,
    trial::{Moment, Stage},
};

/// What the lives on a full disk showed.
#[derive(Debug, Default)]
pub struct Result {
    /// The instant, and for each promise what broke it.
    pub rows: Vec<(String, [Option<String>; PROMISES.len()])>,
    pub skipped: Option<String>,
}

impl Result {
    pub fn failed(&self) -> usize {
        self.rows.iter().flat_map(|(_, verdicts)| verdicts).flatten().count()
    }
}

/// The word with which this program starts itself inside a mount namespace of its own.
pub const INNER: &str = "full-disk-inner";
/// The bystander, one life of the clients and not much more.
const DISK: &str = "size=6m";

/// Fills the disk when this is first seen in the stream.
const MOMENTS: [Moment; 8] = [
    Moment { kind: "session_created", nth: 1 },
    Moment { kind: "turn_started", nth: 1 },
    Moment { kind: "model_output_delta", nth: 3 },
    Moment { kind: "tool_call_started", nth: 1 },
    Moment { kind: "approval_requested", nth: 1 },
    Moment { kind: "tool_output_delta", nth: 1 },
    Moment { kind: "turn_completed", nth: 1 },
    Moment { kind: "cancel_requested", nth: 1 },
];

/// The mount must not outlive this chore nor be seen by anybody else, so it is made in a namespace of its own.
pub fn run(binary: &Path) -> anyhow::Result<Result> {
    let mut command = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    // Not by its path: a build may have put another file there since this one was started.
    let this = format!("/proc/{}/exe", std::process::id());
    command.args(["--mount", "--propagation", "private"]).arg(this);
    command.arg(INNER).arg(binary);
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) if output.status.code() == Some(2) => {
            let why = "a small file system could not be mounted here".to_owned();
            return Ok(Result { rows: Vec::new(), skipped: Some(why) });
        }
        Ok(output) => bail!("the trial on a full disk ended with {}", output.status),
        Err(error) => return Ok(Result { rows: Vec::new(), skipped: Some(format!("unshare: {error}")) }),
    };
    let mut result = Result::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let row: Value = serde_json::from_str(line).with_context(|| format!("not a row: {line}"))?;
        let verdicts = std::array::from_fn(|at| row["verdicts"][at].as_str().map(str::to_owned));
        let at = row["at"].as_str().unwrap_or_default().to_owned();
        for verdict in verdicts.iter().flatten() {
            println!("crash: FAILED: disk full at {at}: {verdict}");
        }
        result.rows.push((at, verdicts));
    }
    Ok(result)
}

/// Inside the namespace: one row of JSON for each life, on stdout. Exit code 2: nothing could be mounted.
pub fn inner(words: &[&str]) -> anyhow::Result<u8> {
    let [binary] = *words else { bail!("this word is for the program itself") };
    let folder = tempfile::TempDir::with_prefix("tenure-full-")?;
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", DISK, "tenure"]).arg(folder.path()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return Ok(2);
    }
    let stage = Stage::set(Path::new(binary))?;
    for moment in &MOMENTS {
        let disk = Disk { root: folder.path() };
        let outcome = stage.live_on(&disk, moment)?;
        println!("{}", json!({ "at": format!("{} {}", moment.kind, moment.nth), "verdicts": outcome.verdicts }));
        disk.clear()?;
    }
    Ok(0)
}

/// A small file system of its own.
pub struct Disk<'a> {
    root: &'a Path,
}

impl Disk<'_> {
    pub fn data(&self) -> std::path::PathBuf {
        self.root.join("data")
    }

    /// Not one more byte fits.
    pub fn fill(&self) -> anyhow::Result<()> {
        let mut filler = OpenOptions::new().create(true).append(true).open(self.root.join("filler"))?;
        for size in [64 * 1024, 4096, 1] {
            let bytes = vec![b'x'; size];
            while filler.write(&bytes).is_ok_and(|written| written > 0) {}
        }
        Ok(())
    }

    pub fn free(&self) -> anyhow::Result<()> {
        Ok(fs::remove_file(self.root.join("filler"))?)
    }

    fn clear(&self) -> anyhow::Result<()> {
        Ok(fs::remove_dir_all(self.data())?)
    }
}

//! The bytes that a plain turn writes below the data folder, counted call by call by `strace` on a run of its own.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    report::{Bound, Report, Row},
    stand::{Durability, Stand},
    times::shown,
};
use crate::{daemon::PATIENCE, install};

/// The number to reach, in kilobytes.
const TURN_KB: f64 = 4.0;
const DELTAS: usize = 20;
/// As vendors pace their words; without it waiting ones would be joined and fewer records written.
const PAUSE_MS: u64 = 4;
const CALLS: &str = "trace=write,writev,pwrite64,pwritev,pwritev2,copy_file_range,sendfile";

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    install::all_that_is_missing()?;
    // Enough turns for a few snapshots to be among them.
    let turns = stand.rounds(120, 40);
    let model = stand.speaker("written-model", &"word ".repeat(DELTAS), 5, PAUSE_MS)?;
    let served = stand.start("written", Durability::Power)?;
    let mut client = served.client()?;
    let session = client.create(&stand.session_body(&model))?;
    let mut follow = client.follow(&session)?;
    // The first turn makes folders and looks around; the snapshot's size has settled after a while.
    for _ in 0..stand.rounds(70, 10) {
        client.turn(&mut follow, &session, "Go on.")?;
    }
    let output = stand.path("written.strace");
    let tracer = Tracer::attach(served.daemon.pid(), &output)?;
    let mut deltas = 0;
    for _ in 0..turns {
        deltas += client.turn(&mut follow, &session, "Go on.")?.deltas;
    }
    tracer.detach()?;
    let written = sums(&fs::read_to_string(&output)?, &served.setup.data)?;
    let total: u64 = written.values().sum();
    let each = |bytes: u64| bytes as f64 / turns as f64 / 1000.0;
    let parts: Vec<String> = written.iter().map(|(what, bytes)| format!("{what} {}", shown(each(*bytes)))).collect();
    report.add(Row {
        key: "written_kb",
        what: format!("bytes written per plain turn of {DELTAS} deltas"),
        value: each(total),
        unit: "KB",
        bound: Some(Bound::below(TURN_KB)),
        beside: format!(
            "{}; mean of {turns} turns, snapshots included; {} records a turn",
            parts.join(", "),
            shown(deltas as f64 / turns as f64)
        ),
    });
    served.stop()
}

struct Tracer(Child);

impl Tracer {
    fn attach(pid: i32, output: &Path) -> Result<Tracer> {
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-y", "-s", "0", "-e", CALLS, "-p", &pid.to_string(), "-o"]).arg(output);
        let child =
            command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().context("strace could not be started")?;
        let deadline = Instant::now() + PATIENCE;
        while !is_traced(pid)? {
            ensure!(Instant::now() < deadline, "strace does not attach; is tracing allowed here?");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Tracer(child))
    }

    fn detach(mut self) -> Result<()> {
        kill(Pid::from_raw(self.0.id().cast_signed()), Signal::SIGINT)?;
        self.0.wait()?;
        Ok(())
    }
}

/// Whether every thread is watched by now.
fn is_traced(pid: i32) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has ended in between needs no watching.
        let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        if status.lines().any(|line| line == "TracerPid:\t0") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bytes written below `data`, by what the file is for.
fn sums(trace: &str, data: &Path) -> Result<BTreeMap<&'static str, u64>> {
    let mut sums = BTreeMap::new();
    let mut unfinished: BTreeMap<&str, &str> = BTreeMap::new();
    for line in trace.lines() {
        let (thread, rest) = line.split_once(' ').context("a line of strace without a thread")?;
        let rest = rest.trim_start();
        let path = match rest.split_once('<').and_then(|(_, after)| after.split_once('>')) {
            Some((path, _)) if path.starts_with('/') => path,
            // The other half of a call that was interrupted in the output stands here.
            _ => unfinished.remove(thread).unwrap_or_default(),
        };
        if rest.ends_with("<unfinished ...>") {
            unfinished.insert(thread, path);
            continue;
        }
        let written = rest.rsplit_once(" = ").and_then(|(_, result)| result.split(' ').next()?.parse::<u64>().ok());
        if let (Ok(inside), Some(bytes)) = (Path::new(path).strip_prefix(data), written) {
            *sums.entry(kind(inside)).or_default() += bytes;
        }
    }
    Ok(sums)
}

fn kind(inside: &Path) -> &'static str {
    let text = inside.to_string_lossy();
    let holds = |part: &str| text.contains(part);
    match () {
        () if holds("events.ndjson") => "log",
        () if holds("/logs/") => "spool",
        () if holds("/turns/") => "turn record",
        () if holds("index") => "listing",
        // What is put in place by a rename has another name while it is written.
        () if text.starts_with("sessions/") => "snapshot",
        () => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_the_folder_count_and_halves_are_joined() {
        let trace = "\
7  pwrite64(11</d/sessions/s/events.ndjson>, \"\"..., 700, 12) = 700
7  writev(9<TCP:[1]>, [{iov_base=\"\"..., iov_len=5}], 1) = 5
8  pwrite64(12</d/sessions/s/logs/t.log>, \"\"..., 80, 0 <unfinished ...>
7  pwrite64(13</d/sessions/s/turns/.tmp-3>, \"\"..., 300, 0) = 300
8  <... pwrite64 resumed>)            = 80
7  write(2</d.out>, \"\"..., 50) = 50
7  pwrite64(14</d/sessions/s/.tmp-4>, \"\"..., 40, 0) = -1 ENOSPC (No space left on device)
7  pwrite64(14</d/index.ndjson>, \"\"..., 60, 0) = 60
";
        let expected = BTreeMap::from([("listing", 60), ("log", 700), ("spool", 80), ("turn record", 300)]);
        assert_eq!(sums(trace, Path::new("/d")).unwrap(), expected);
    }
}

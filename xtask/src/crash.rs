//! The chore `crash`: a real daemon is harmed at every named instant of a reference turn, and each promise is checked.

mod client;
mod full_disk;
mod matrix;
mod name;
mod promises;
mod report;
mod story;
mod tracer;
mod trial;

use std::{fs, path::PathBuf, process::ExitCode, time::Instant};

use anyhow::{Context, Result, bail};
pub use full_disk::INNER;
use matrix::{Kind, Runner};
use name::Name;
use trial::Stage;

use crate::daemon::{Build, tenure};

pub const HELP: &str = "\
Harms a real daemon at every named instant of a reference turn and checks every promise.

Usage: cargo xtask crash [options]

  (no option)      everything, with the release build; writes docs/crash-matrix.md
  --short          a sample of it with the debug build, as the test command runs it
  --only TEXT      only at names that hold this text, such as 'fdatasync · log'
  --harm NAME      only this: kill, tear, enospc, eio, short, stays-enospc, stays-eio, full-disk
  --times N        so many lives for each (default 1); with --only or --harm
  --binary PATH    a `tenure` that is built already
  --jobs N         lives at a time (default 3)

The kill is made on entry of a system call that changes a file or sends on a socket, in any
thread. A name is the call, the class of file, the phase and the last number in the log.
";

/// What was asked for on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    short: bool,
    only: Option<String>,
    harm: Option<String>,
    times: u32,
    jobs: usize,
    binary: Option<PathBuf>,
}

impl Request {
    const ALL: Request = Request { short: false, only: None, harm: None, times: 1, jobs: 3, binary: None };
    /// What the test command runs.
    pub const SHORT: Request = Request { short: true, ..Request::ALL };

    pub fn parse(words: &[&str]) -> Result<Request> {
        let mut request = Request::ALL;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match *word {
                "--short" => request.short = true,
                "--only" => request.only = Some(value()?.to_string()),
                "--harm" => request.harm = Some(value()?.to_string()),
                "--times" => request.times = value()?.parse().context("--times takes a number")?,
                "--jobs" => request.jobs = value()?.parse::<usize>().context("--jobs takes a number")?.max(1),
                "--binary" => request.binary = Some(fs::canonicalize(value()?).context("--binary")?),
                other => bail!("crash does not know `{other}`; see cargo xtask crash --help"),
            }
        }
        Ok(request)
    }

    fn kinds(&self) -> Result<Vec<Kind>> {
        let Some(word) = &self.harm else { return Ok(Kind::ALL.to_vec()) };
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word);
        Ok(vec![kind.with_context(|| format!("no harm is called `{word}`"))?])
    }
}

/// In the short form one name of so many is tried; kills are tried more than the rest.
const SHORT_KILLS: usize = 4;
const SHORT_FAULTS: usize = 24;

pub fn run(request: &Request) -> Result<()> {
    let began = Instant::now();
    if !tracer::is_possible() {
        println!("crash: skipped: this machine is no x86-64 Linux, or forbids ptrace");
        return Ok(());
    }
    let binary = match (&request.binary, request.short) {
        (Some(binary), _) => binary.clone(),
        (None, true) => tenure(Build::AsTested)?,
        (None, false) => tenure(Build::Release)?,
    };
    let stage = Stage::set(&binary)?;
    let runner = Runner::new(&stage, request.jobs);
    if request.harm.as_deref() != Some("full-disk") {
        runner.explore()?;
        println!("crash: {} kill points in a first life", runner.names().len());
        match request {
            Request { short: true, .. } => short(&runner)?,
            Request { only: None, harm: None, .. } => full(&runner)?,
            _ => chosen(&runner, request)?,
        }
    }
    let matrix = runner.finish();
    let whole = request.only.is_none() && request.harm.is_none();
    let disk = match whole || request.harm.as_deref() == Some("full-disk") {
        true => full_disk::run(&binary)?,
        false => full_disk::Result::default(),
    };
    let summary = report::summary(&matrix, &disk);
    println!("{summary}\ncrash: took {} s", began.elapsed().as_secs());
    if whole && !request.short {
        report::write(&matrix, &disk)?;
    }
    match matrix.failed_cells() + disk.failed() {
        0 => Ok(()),
        failed => bail!("{failed} cells failed"),
    }
}

fn full(runner: &Runner<'_>) -> Result<()> {
    runner.kill_everywhere()?;
    let names = runner.names();
    Kind::ALL.into_iter().filter(|kind| *kind != Kind::Kill).try_for_each(|kind| runner.harm(kind, &names))
}

/// A sample that moves through all names from day to day would not repeat; this one is always the same.
fn short(runner: &Runner<'_>) -> Result<()> {
    let names = runner.names();
    for (at, kind) in Kind::ALL.into_iter().enumerate() {
        let every = if kind == Kind::Kill { SHORT_KILLS } else { SHORT_FAULTS };
        let fitting: Vec<Name> = names.iter().filter(|name| kind.fits(name)).cloned().collect();
        let sample: Vec<Name> = fitting.into_iter().skip(at).step_by(every).collect();
        runner.harm(kind, &sample)?;
    }
    Ok(())
}

fn chosen(runner: &Runner<'_>, request: &Request) -> Result<()> {
    let only = request.only.as_deref().unwrap_or_default();
    let names: Vec<Name> = runner.names().into_iter().filter(|name| name.to_string().contains(only)).collect();
    if names.is_empty() {
        bail!("no name holds `{only}`");
    }
    for kind in request.kinds()? {
        for _ in 0..request.times {
            runner.harm(kind, &names)?;
        }
    }
    Ok(())
}

/// The part that runs in a mount namespace of its own.
pub fn inner(words: &[&str]) -> ExitCode {
    match full_disk::inner(words) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let request = Request::parse(&["--only", "log", "--harm", "eio", "--times", "3", "--jobs", "2"]).unwrap();
        let expected = Request {
            short: false,
            only: Some("log".into()),
            harm: Some("eio".into()),
            times: 3,
            jobs: 2,
            binary: None,
        };
        assert_eq!(request, expected);
        assert_eq!(request.kinds().unwrap(), [Kind::Broken]);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(Request::parse(&["--shrot"]).is_err());
        assert!(Request::parse(&["--times", "many"]).is_err());
        assert!(Request::parse(&["--only"]).is_err());
        assert!(Request::parse(&["--harm", "flood"]).unwrap().kinds().is_err());
    }
}

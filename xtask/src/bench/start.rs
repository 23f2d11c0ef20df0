//! From launch to the first answer: what a person waits for who starts a daemon by asking it something.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use super::{
    raw,
    report::{Bound, Report, Row},
    stand::{Durability, Stand},
    times::{Times, shown},
};
use crate::{
    daemon::Setup,
    http::{Connection, Target},
};

/// The number to reach, in milliseconds.
pub const LAUNCH_MS: f64 = 15.0;

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let setup = stand.setup("start", Durability::Power);
    // The first life makes the token; it is not what is measured.
    launch(&setup)?;
    let (mut launches, mut bare) = (Times::default(), Times::default());
    for _ in 0..stand.rounds(25, 8) {
        launches.add(launch(&setup)?.first_answer);
        bare.add(raw::spawn(&stand.tenure, &["--version"])?);
    }
    report.add(Row {
        key: "launch",
        what: "launch to first answer".into(),
        value: launches.median(),
        unit: "ms",
        bound: Some(Bound::below(LAUNCH_MS)),
        beside: format!("{}; raw: `tenure --version` {} ms", launches.spread(), shown(bare.median())),
    });
    Ok(())
}

/// How long a daemon took, from its launch.
pub struct Launch {
    pub first_answer: Duration,
    /// The newest sessions, which is the first request that reads the listing.
    pub first_list: Duration,
}

/// Starts a daemon, asks it twice and ends it.
pub fn launch(setup: &Setup) -> Result<Launch> {
    let mut command = setup.command()?;
    // Its greeting says where it listens, the moment it does.
    command.arg("--json").stdout(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn()?;
    let asked = ask(setup, &mut child, start);
    end(child)?;
    asked
}

fn ask(setup: &Setup, child: &mut Child, start: Instant) -> Result<Launch> {
    let mut greeting = String::new();
    BufReader::new(child.stdout.take().context("no stdout")?).read_line(&mut greeting)?;
    let greeting: Value = serde_json::from_str(&greeting).with_context(|| setup.log_end())?;
    let address = greeting["address"].as_str().context("no address")?.parse()?;
    let token = std::fs::read_to_string(setup.data.join("token"))?.trim().to_owned();
    let mut connection = Connection::open(&Target { address, token })?;
    ensure!(connection.ask("GET", "/healthz", None, None)?.is_success(), "it is not well");
    let first_answer = start.elapsed();
    ensure!(connection.ask("GET", "/v1/sessions?limit=20", None, None)?.is_success(), "no listing");
    Ok(Launch { first_answer, first_list: start.elapsed() })
}

fn end(mut child: Child) -> Result<()> {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
    ensure!(child.wait()?.success(), "the daemon did not end well");
    Ok(())
}

//! `tenure stop`: ends the folder's daemon. Nothing is lost by it: the next one goes on where this one was.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tenure_client::discover::{self, Absent};

use super::Context;
use crate::{
    count::within,
    exit::{Exit, Problem},
    hint, terminal,
};

/// End the daemon of the data folder; the next one goes on where it was
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n    tenure stop\n    tenure stop --data ./data --wait 60")]
pub struct Arguments {
    /// How many seconds it may take: requests and tools under way are ended first
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = within(0..=3600))]
    wait: u64,
}

const LOOK_EVERY: Duration = Duration::from_millis(20);

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let ended = end(&context.data, Duration::from_secs(arguments.wait)).await?;
    match (context.output, ended) {
        (terminal::Output::Json, ended) => terminal::print_json(&json!({ "stopped": ended }))?,
        (terminal::Output::Text, None) => terminal::print_line("No daemon runs on this data folder.")?,
        (terminal::Output::Text, Some(pid)) => {
            terminal::print_line(&format!("The daemon (process {pid}) has ended."))?;
        }
    }
    Ok(Exit::Ok)
}

/// Ends the folder's daemon and waits until it is gone; gives the process it was.
pub async fn end(data: &Path, at_most: Duration) -> anyhow::Result<Option<u32>> {
    let note = match discover::note(data) {
        Ok(note) => note,
        Err(Absent::NoNote { .. } | Absent::Gone { .. }) => return Ok(None),
        Err(other) => return Err(Problem::no_daemon(other.to_string(), hint::of_absence(&other)).into()),
    };
    let pid = i32::try_from(note.pid).ok().and_then(Pid::from_raw);
    let told = pid.map(|pid| kill_process(pid, Signal::TERM));
    if let Some(Err(error)) = told
        && error != rustix::io::Errno::SRCH
    {
        let message = format!("process {} could not be told to stop: {error}", note.pid);
        return Err(Problem::failed("not_stopped", message, "stop it as the user who started it").into());
    }
    let deadline = Instant::now() + at_most;
    while discover::is_current(&note) {
        if Instant::now() > deadline {
            let message = format!("process {} has not ended within {} s", note.pid, at_most.as_secs());
            return Err(
                Problem::failed("not_stopped", message, "wait longer with --wait SECONDS, or look at its log").into()
            );
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(Some(note.pid))
}

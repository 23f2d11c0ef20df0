//! `tenure demo`: an agent at work, a daemon killed in the middle of it, and the same turn going on. It is a client like any other: same binary, real processes, real HTTP.

mod child;
mod repo;
mod report;
mod story;

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::Context;
use crate::{
    exit::{Exit, Problem},
    terminal::{self, Output},
};
use child::Daemon;
use report::Report;
use story::Story;

/// Everything should be over by then, on a slow machine too.
const DEMO_MAX: Duration = Duration::from_secs(60);

const ABOUT: &str = "\
It makes a small git repository and a data folder in a temporary folder,
starts a daemon on it, and asks a scripted agent for a release and a change.
While the release runs it kills the daemon with SIGKILL, starts it again and
lets the turn go on. At the end it checks that no event was lost or repeated
and that the release ran once. No key and no network are needed.";

/// See it work: an agent, a crash, and nothing lost
#[derive(Debug, Args)]
#[command(after_help = ABOUT)]
pub struct Arguments {
    /// Remove the temporary folder at the end; otherwise it stays for you to look at
    #[arg(long)]
    remove: bool,
}

/// Where the demo plays.
pub struct Stage {
    pub folder: PathBuf,
    pub data: PathBuf,
    pub repo: PathBuf,
}

/// The folder of all other commands, if this one was given it by hand.
fn is_data_said() -> bool {
    std::env::args_os().any(|argument| argument == "--data" || argument.as_encoded_bytes().starts_with(b"--data="))
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    if is_data_said() {
        let message = "the demo kills a daemon, so it plays in a data folder of its own";
        return Err(Problem::usage(message, "leave out --data; at the end it says where its folder is").into());
    }
    let folder = tempfile::Builder::new().prefix("tenure-demo-").tempdir().context("cannot make a temporary folder")?;
    let stage =
        Stage { folder: folder.path().to_owned(), data: folder.path().join("data"), repo: folder.path().join("greet") };
    let (mut interrupts, mut terminations) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Whatever ends the play early also ends its daemon, and with it every process that works for it.
    let played = tokio::select! {
        played = tokio::time::timeout(DEMO_MAX, play(&stage, context.output)) => played,
        _ = interrupts.recv() => return Ok(Exit::Interrupted),
        _ = terminations.recv() => return Ok(Exit::Interrupted),
    };
    let too_long = || Problem::failed("too_slow", format!("the demo took longer than {DEMO_MAX:?}"), "try again");
    let report = match played.map_err(|_| too_long().into()).flatten() {
        Ok(report) => report,
        Err(error) => {
            return Err(error.context(format!("the demo broke off; its folder is {}", folder.keep().display())));
        }
    };
    // What went wrong should be looked at.
    let stays = !arguments.remove || !report.is_good();
    if stays {
        let _ = folder.keep();
    }
    match context.output {
        Output::Json => terminal::print_json(&report.to_json())?,
        Output::Text => terminal::print_line(&report.to_text(terminal::stdout_look(), stays))?,
    }
    Ok(if report.is_good() { Exit::Ok } else { Exit::Failed })
}

async fn play(stage: &Stage, output: Output) -> anyhow::Result<Report> {
    repo::make(&stage.repo)?;
    let mut daemon = Daemon::new(&stage.data);
    let mut story = Story::begin(stage, output, &mut daemon).await?;
    story.until_the_release_runs().await?;
    story.crash(&mut daemon).await?;
    story.until_the_end().await?;
    let report = story.checked().await?;
    daemon.stop().await?;
    Ok(report)
}

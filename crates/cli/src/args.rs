//! The command line as a whole; each command's own arguments stand with the command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{
    commands::{approve, ask, cancel, completions, config, demo, doctor, serve, session, sessions, stop, store},
    exit,
    terminal::Output,
};

const EXAMPLES: &str = "\
Examples:
    tenure demo                              see it work: no key, no network
    tenure serve                             run the daemon on 127.0.0.1:8787
    tenure ask \"what does this project do?\"  ask in the present folder
    tenure sessions                          what there is
    tenure session events SESSION --follow   watch one
    tenure approve SESSION                   say yes to what waits there
    tenure doctor                            is everything as it should be

Commands find the daemon of the data folder, or start one in the background,
which ends 10 minutes after its last client and turn.";

/// Runs AI agents as sessions that last.
#[derive(Debug, Parser)]
#[command(name = "tenure", version, about, after_help = help_end())]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, Args)]
pub struct Global {
    /// The data folder [default: the user's data folder/tenure]
    #[arg(long, global = true, env = "TENURE_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,
    /// Print JSON for programs: one object, or one a line for streams
    #[arg(long, global = true)]
    json: bool,
}

impl Global {
    pub fn output(&self) -> Output {
        if self.json { Output::Json } else { Output::Text }
    }
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Serve(serve::Arguments),
    Demo(demo::Arguments),
    Ask(ask::Arguments),
    /// Say yes to a tool call that waits
    Approve(approve::Arguments),
    /// Say no to a tool call that waits
    Deny(approve::Arguments),
    Cancel(cancel::Arguments),
    Sessions(sessions::Arguments),
    Session(session::Arguments),
    Stop(stop::Arguments),
    Doctor(doctor::Arguments),
    Store(store::Arguments),
    Config(config::Arguments),
    Completions(completions::Arguments),
}

fn help_end() -> String {
    format!("{EXAMPLES}\n\n{}", exit::CODES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_holds_together() {
        Cli::command().debug_assert();
    }
}

//! The `tenure` command. It reads flags, environment and configuration and puts the other crates together; it holds no rules of its own.

mod address;
mod args;
mod attach;
mod before;
mod commands;
mod config;
mod count;
mod daemon;
mod data;
mod exit;
mod follow;
mod foreign;
mod hint;
mod limits;
mod log;
mod lookup;
mod memory;
mod models;
mod permit;
mod piped;
mod question;
mod remote;
mod slash;
mod span;
mod standby;
mod standing;
mod systemd;
mod talk;
mod terminal;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // The supervisor must run before any thread is started, so before the runtime.
    if std::env::args_os().nth(1).is_some_and(|first| first == tenure_tools::SUPERVISE_ARG) {
        return tenure_tools::supervise();
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == tenure_tools::DRAW_ARG) {
        return tenure_tools::draw();
    }
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::misused(error),
    };
    let output = cli.global.output();
    let exit = match commands::run(cli) {
        Ok(exit) => exit,
        Err(error) => exit::report(&error, output),
    };
    exit.into()
}

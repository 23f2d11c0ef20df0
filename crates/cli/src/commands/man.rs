//! `tenure man`: the manual, made from the command line itself.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _};
use serde_json::json;

use super::Context;
use crate::{
    args::Cli,
    exit::{Exit, Problem},
    terminal,
};

/// Print the manual page, or write those of all commands
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n    tenure man | man -l -\n    tenure man --output ~/.local/share/man/man1")]
pub struct Arguments {
    /// Write one page for each command into this folder
    #[arg(long, short, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Pages of `help` would say what the others say.
fn without_help(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut command = without_help(Cli::command());
    command.build();
    let Some(folder) = &arguments.output else {
        let mut page = vec![];
        clap_mangen::Man::new(command).render(&mut page)?;
        terminal::print_line(String::from_utf8_lossy(&page).trim_end())?;
        return Ok(Exit::Ok);
    };
    let failed = |error: std::io::Error| {
        Problem::usage(format!("{}: {error}", folder.display()), "name a folder that can be written")
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    let pages = std::fs::read_dir(folder).map_err(failed)?.flatten().count();
    match context.output {
        terminal::Output::Json => terminal::print_json(&json!({ "folder": folder, "pages": pages }))?,
        terminal::Output::Text => terminal::print_line(&format!("{pages} pages are in {}.", folder.display()))?,
    }
    Ok(Exit::Ok)
}

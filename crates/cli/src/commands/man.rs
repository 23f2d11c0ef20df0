//! `tenure man`: the manual, made from the command line itself.

use std::{
    io,
    path::{Path, PathBuf},
};

use clap::{Args, CommandFactory as _};
use serde_json::json;

use super::Context;
use crate::{
    args::Cli,
    count::counted,
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
        terminal::print_line(page(command)?.1.trim_end())?;
        return Ok(Exit::Ok);
    };
    let failed = |error: std::io::Error| {
        Problem::usage(format!("{}: {error}", folder.display()), "name a folder that can be written")
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let pages = write_all(command, folder).map_err(failed)?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&json!({ "folder": folder, "pages": pages }))?,
        terminal::Output::Text => {
            terminal::print_line(&format!("{} written to {}.", counted(pages, "page"), folder.display()))?;
        }
    }
    Ok(Exit::Ok)
}

/// The name of a command's page and its text.
fn page(command: clap::Command) -> io::Result<(String, String)> {
    let man = clap_mangen::Man::new(command);
    let mut text = vec![];
    man.render(&mut text)?;
    Ok((man.get_filename(), as_typed(&String::from_utf8_lossy(&text))))
}

/// Examples and samples keep their lines; a page would fill and justify them.
fn as_typed(page: &str) -> String {
    let Some((before, rest)) = page.split_once("\n.SH EXTRA\n") else { return page.to_owned() };
    let (typed, after) = rest.split_at(rest.find("\n.SH ").map_or(rest.len(), |at| at + 1));
    format!("{before}\n.SH NOTES\n.in 1\n.nf\n{}\n.fi\n{after}", typed.trim_end())
}

fn write_all(command: clap::Command, folder: &Path) -> io::Result<u64> {
    let mut pages = 1;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        pages += write_all(below.clone(), folder)?;
    }
    let (name, text) = page(command)?;
    std::fs::write(folder.join(name), text)?;
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_keep_their_lines() {
        let mut command = without_help(Cli::command());
        command.build();
        let serve = command.find_subcommand("serve").unwrap().clone();
        let (name, text) = page(serve).unwrap();
        assert_eq!(name, "tenure-serve.1");
        let (_, notes) = text.split_once(".SH NOTES\n.in 1\n.nf\n").unwrap();
        let (typed, _) = notes.split_once("\n.fi\n").unwrap();
        assert!(typed.lines().any(|line| line.trim_start().starts_with("listen = ")), "{typed}");
        assert!(typed.contains("stop_grace_ms"), "{typed}");
    }
}

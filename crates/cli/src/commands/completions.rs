//! `tenure completions`: what a shell needs to complete our commands.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::{args::Cli, exit::Exit, terminal};

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n    \
    tenure completions bash > ~/.local/share/bash-completion/completions/tenure\n    \
    tenure completions zsh > \"${fpath[1]}/_tenure\"\n    \
    tenure completions fish > ~/.config/fish/completions/tenure.fish")]
pub struct Arguments {
    /// Which shell
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "tenure", &mut script);
    terminal::print_line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Exit::Ok)
}

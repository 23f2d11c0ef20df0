//! The command line as a whole; each command's own arguments stand with the command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::{
    commands::{
        approve, ask, cancel, chat, completions, config, demo, doctor, man, models, open, serve, service, session,
        sessions, stop, store, token, tools,
    },
    config::Hidden,
    exit,
    terminal::Output,
};

const EXAMPLES: &str = "\
Examples:
    tenure demo                              see it work: no key, no network
    tenure serve                             run the daemon on 127.0.0.1:8787
    tenure chat                              talk with an agent in this folder
    tenure ask \"what does this project do?\"  one question, one answer
    tenure sessions                          what there is
    tenure session events SESSION --follow   watch one
    tenure approve SESSION                   say yes to what waits there
    tenure models                            which models there are
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
    /// The data folder [default: tenure in $XDG_DATA_HOME or ~/.local/share]
    #[arg(long, global = true, env = "TENURE_DATA", value_name = "DIR", hide_env_values = true)]
    pub data: Option<PathBuf>,
    /// A daemon on another machine, such as `https://box.example:8787` [default: the one of the data folder]
    #[arg(long, global = true, env = "TENURE_URL", value_name = "URL", hide_env_values = true, help_heading = REMOTE)]
    pub url: Option<String>,
    /// The file that holds the token for it
    #[arg(long, global = true, env = "TENURE_TOKEN_FILE", value_name = "FILE", hide_env_values = true, help_heading = REMOTE)]
    pub token_file: Option<PathBuf>,
    /// The token itself; for the environment alone, since command lines can be seen by others
    #[arg(long, global = true, env = "TENURE_TOKEN", hide = true, hide_env_values = true, value_parser = hidden)]
    pub token: Option<Hidden>,
    /// Believe what these certificates have signed [default: as the system does]
    #[arg(long, global = true, env = "TENURE_CA", value_name = "FILE", hide_env_values = true, help_heading = REMOTE)]
    pub ca: Option<PathBuf>,
    /// Believe one certificate, by its SHA-256 in hex, as `tenure serve` prints it and `tenure doctor` shows it there
    #[arg(long, global = true, env = "TENURE_FINGERPRINT", value_name = "HEX", hide_env_values = true, help_heading = REMOTE)]
    pub fingerprint: Option<String>,
    /// Print JSON for programs: one object, or one a line for streams
    #[arg(long, global = true)]
    json: bool,
}

const REMOTE: &str = "Daemons on other machines";

fn hidden(token: &str) -> Result<Hidden, std::convert::Infallible> {
    Ok(Hidden(token.to_owned()))
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
    Chat(chat::Arguments),
    Ask(ask::Arguments),
    /// Say yes to a tool call that waits
    Approve(approve::Arguments),
    /// Say no to a tool call that waits
    Deny(approve::Arguments),
    Cancel(cancel::Arguments),
    Sessions(sessions::Arguments),
    Session(session::Arguments),
    Models(models::Arguments),
    Tools(tools::Arguments),
    Token(token::Arguments),
    Open(open::Arguments),
    Stop(stop::Arguments),
    Doctor(doctor::Arguments),
    Store(store::Arguments),
    Config(config::Arguments),
    Service(service::Arguments),
    Completions(completions::Arguments),
    Man(man::Arguments),
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

    /// What 80 columns leave beside the manual's margin.
    const TYPED_COLUMNS_MAX: usize = 79;

    fn walk(command: &clap::Command, path: &str, wrong: &mut Vec<String>) {
        let path = format!("{path} {}", command.get_name());
        let is_said = |text: Option<&clap::builder::StyledStr>| text.is_some_and(|text| !text.to_string().is_empty());
        if !is_said(command.get_about()) {
            wrong.push(format!("{path}: nothing is said of it"));
        }
        for argument in command.get_arguments().filter(|argument| !is_said(argument.get_help())) {
            wrong.push(format!("{path}: nothing is said of {}", argument.get_id()));
        }
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        for line in after.lines().filter(|line| line.chars().count() > TYPED_COLUMNS_MAX) {
            wrong.push(format!("{path}: too wide: {line}"));
        }
        command.get_subcommands().for_each(|below| walk(below, &path, wrong));
    }

    #[test]
    fn something_is_said_of_everything_and_fits() {
        let (mut command, mut wrong) = (Cli::command(), vec![]);
        command.build();
        walk(&command, "", &mut wrong);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

//! `tenure config`: what the daemon's settings come to, and where each of them is from.

use clap::{Args, Parser as _, Subcommand};
use serde::Serialize;
use serde_json::{Value, json};
use tenure_client::print::Tone;

use super::{Context, serve};
use crate::{
    args::{self, Cli},
    config,
    exit::{Exit, Problem},
    models, terminal,
};

/// Show the daemon's settings with their origins, or check the file
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n    tenure config show\n    tenure config check --data ./data\n    \
                        tenure config show --json | jq '.settings[] | select(.origin==\"file\")'")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every setting, its value and where it is from: default, file or environment
    Show,
    /// Whether the file can be read; mistakes are named with their line
    Check,
}

/// Settings that the environment can say too.
const VARIABLES: [(&str, &str); 3] =
    [("listen", "TENURE_LISTEN"), ("default_model", "TENURE_DEFAULT_MODEL"), ("durability", "TENURE_DURABILITY")];

#[derive(Debug, Serialize)]
struct Setting {
    name: &'static str,
    value: Value,
    /// `default`, `file`, or the name of a variable.
    origin: &'static str,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let path = context.data.join(config::FILE);
    let read = config::read(&context.data)?;
    let settings = settings(context, read)?;
    match (&arguments.command, context.output) {
        (Command::Check, terminal::Output::Json) => {
            terminal::print_json(&json!({ "ok": true, "file": path, "exists": path.exists() }))?;
        }
        (Command::Check, terminal::Output::Text) => {
            let said = if path.exists() { "is fine" } else { "is not there: all defaults" };
            terminal::print_line(&format!("{} {said}.", path.display()))?;
        }
        (Command::Show, terminal::Output::Json) => {
            terminal::print_json(&json!({ "file": path, "settings": settings }))?;
        }
        (Command::Show, terminal::Output::Text) => {
            let look = terminal::stdout_look();
            for Setting { name, value, origin } in &settings {
                let origin = look.paint(Tone::Faint, origin);
                terminal::print_line(&format!("{name:<34}  {:<28}  {origin}", value.to_string()))?;
            }
            let there = if path.exists() { "" } else { "  (not there)" };
            terminal::print_line("")?;
            terminal::print_line(&look.paint(Tone::Faint, &format!("file: {}{there}", path.display())))?;
        }
    }
    Ok(Exit::Ok)
}

fn settings(context: &Context, read: config::Config) -> anyhow::Result<Vec<Setting>> {
    // A command line without flags takes what the environment says, as that of the daemon does.
    let bare = Cli::try_parse_from(["tenure", "serve"]).map_err(|error| {
        let first = error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        Problem::usage(first, "mend or unset that variable")
    })?;
    let args::Command::Serve(serving) = bare.command else {
        return Err(Problem::failed("failed", "the command line is not what it was", "").into());
    };
    let text = std::fs::read_to_string(context.data.join(config::FILE)).unwrap_or_default();
    let file: toml::Table = text.parse().unwrap_or_default();
    let in_file = |name: &str| match name.split_once('.') {
        Some((table, key)) => file.get(table).and_then(|table| table.get(key)).is_some(),
        None => file.contains_key(name),
    };
    let origin = |name: &str| {
        let variable = VARIABLES.into_iter().find(|(setting, variable)| {
            *setting == name && std::env::var_os(variable).is_some_and(|value| !value.is_empty())
        });
        match variable {
            Some((_, variable)) => variable,
            None if in_file(name) => "file",
            None => "default",
        }
    };
    let shown = serve::shown(&serving, read, &models::environment)?;
    Ok(shown.into_iter().map(|(name, value)| Setting { name, value, origin: origin(name) }).collect())
}

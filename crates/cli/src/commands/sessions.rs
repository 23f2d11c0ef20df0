//! `tenure sessions`: what there is, newest first.

mod table;

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use serde_json::json;
use tenure_client::print::{Look, span};
use tenure_core::time::Timestamp;
use tenure_wire::{SessionFilter, SessionRow};

use super::Context;
use crate::{
    daemon,
    exit::{Exit, Problem},
    lookup, terminal,
};

/// List sessions, newest first
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n    tenure sessions\n    tenure sessions --status waiting_approval\n    \
                        tenure sessions --here --text \"flaky test\"\n    \
                        tenure sessions --all --json | jq -r '.sessions[].id'")]
pub struct Arguments {
    /// How many at most
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    limit: u16,
    /// Every one
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Only those that are so
    #[arg(long, value_parser = ["active", "waiting_approval", "completed", "failed", "canceled", "expired"])]
    status: Option<String>,
    /// Only those with this label
    #[arg(long)]
    label: Option<String>,
    /// Only those of this role
    #[arg(long)]
    role: Option<String>,
    /// Only those whose title or conversation holds this text, whatever its case
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Only those that work in this folder
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Only those that work in the present folder
    #[arg(long, conflicts_with = "workspace")]
    here: bool,
}

impl Arguments {
    fn wanted(&self) -> anyhow::Result<SessionFilter> {
        let folder = if self.here { Some(PathBuf::from(".")) } else { self.workspace.clone() };
        let absolute = |folder: PathBuf| {
            let found = folder.canonicalize();
            found.map_err(|error| {
                let message = format!("{} is no folder: {error}", folder.display());
                Problem::usage(message, "name one that is there")
            })
        };
        let workspace_path = folder.map(absolute).transpose()?.map(|folder| folder.display().to_string());
        let Self { status, label, role, text, .. } = self;
        Ok(SessionFilter {
            status: status.clone(),
            label: label.clone(),
            role: role.clone(),
            text: text.clone(),
            workspace_path,
        })
    }
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let wanted = arguments.wanted()?;
    let client = daemon::connect(context).await?;
    let most = if arguments.all { usize::MAX } else { usize::from(arguments.limit) };
    let rows = lookup::sessions(&client, most, &wanted).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&json!({"sessions": rows}))?,
        terminal::Output::Text if rows.is_empty() && wanted != SessionFilter::default() => {
            terminal::print_line("There are no such sessions.")?;
        }
        terminal::Output::Text if rows.is_empty() => {
            terminal::print_line("There are no sessions yet. Make one: tenure ask \"hello\"")?;
        }
        terminal::Output::Text => {
            for line in listed(&rows, terminal::stdout_look()) {
                terminal::print_line(&line)?;
            }
        }
    }
    Ok(Exit::Ok)
}

/// The rows as lines, for now.
pub(super) fn listed(rows: &[SessionRow], look: Look) -> Vec<String> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis() as u64);
    let home = std::env::home_dir().map(|home| home.display().to_string());
    table::lines(rows, now_ms, home.as_deref(), look)
}

/// How long ago; `?` where the daemon's time cannot be read.
pub fn age(created_at: &str, now_ms: u64) -> String {
    match serde_json::from_value::<Timestamp>(created_at.into()) {
        Ok(created) => span(now_ms.saturating_sub(created.ms()) / 1000 * 1000),
        Err(_) => "?".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_cannot_be_read_is_told() {
        assert_eq!(age("nonsense", 0), "?");
    }
}

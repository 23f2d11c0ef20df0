//! `tenure sessions`: what there is, newest first.

mod table;

use std::{
    path::{Path, PathBuf},
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
#[command(after_help = "Examples:\n    tenure sessions\n    tenure sessions --status interrupted\n    \
                        tenure sessions --here --text \"flaky test\"\n    \
                        tenure sessions --all --json | jq -r '.sessions[].id'")]
pub struct Arguments {
    /// How many at most
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    limit: u16,
    /// Every one
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Only those that stand so; active ones are idle, running, waiting for more budget or interrupted
    #[arg(long, value_parser = STATUSES)]
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
    /// Only those that work in this folder, or did while it was there
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Only those that work in the present folder
    #[arg(long, conflicts_with = "workspace")]
    here: bool,
}

/// How a session can stand.
const STATUSES: [&str; 10] = [
    "idle",
    "running",
    "waiting_approval",
    "waiting_budget",
    "interrupted",
    ACTIVE,
    "completed",
    "failed",
    "canceled",
    "expired",
];
/// The daemon's word for all that are open and wait for no approval.
const ACTIVE: &str = "active";

/// How a session stands, in a word that `--status` takes.
pub fn stands<'a>(status: &'a str, turn_status: Option<&'a str>) -> &'a str {
    match (status, turn_status) {
        (ACTIVE, None) => "idle",
        (ACTIVE, Some(turn)) => turn,
        _ => status,
    }
}

/// A path as sessions name it: what is there of it is looked up, what is gone stays as it was said.
fn resolved(path: &Path) -> std::io::Result<PathBuf> {
    let whole: PathBuf = std::path::absolute(path)?.components().collect();
    for above in whole.ancestors() {
        if let (Ok(found), Ok(rest)) = (above.canonicalize(), whole.strip_prefix(above)) {
            return Ok(if rest.as_os_str().is_empty() { found } else { found.join(rest) });
        }
    }
    Ok(whole)
}

impl Arguments {
    fn wanted(&self) -> anyhow::Result<SessionFilter> {
        let folder = if self.here { Some(Path::new(".")) } else { self.workspace.as_deref() };
        let named = |folder: &Path| {
            let hint = "name a folder, such as --workspace ../project";
            let fault = |error| Problem::usage(format!("{} is no folder: {error}", folder.display()), hint);
            resolved(folder).map(|path| path.display().to_string()).map_err(fault)
        };
        let workspace_path = folder.map(named).transpose()?;
        let Self { label, role, text, .. } = self;
        let status = self.status.as_deref().map(|status| match status {
            "idle" | "running" | "waiting_budget" | "interrupted" => ACTIVE.to_owned(),
            known => known.to_owned(),
        });
        Ok(SessionFilter { status, label: label.clone(), role: role.clone(), text: text.clone(), workspace_path })
    }
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let wanted = arguments.wanted()?;
    let client = daemon::connect(context).await?;
    let most = if arguments.all { usize::MAX } else { usize::from(arguments.limit) };
    let fits = |row: &SessionRow| match arguments.status.as_deref() {
        None | Some(ACTIVE) => true,
        Some(status) => stands(&row.status, row.turn_status.as_deref()) == status,
    };
    // One more than is shown tells whether there are more.
    let mut rows = lookup::sessions_that(&client, most.saturating_add(1), &wanted, fits).await?;
    let more = rows.len() > most;
    rows.truncate(most);
    match context.output {
        terminal::Output::Json => terminal::print_json(&json!({ "sessions": rows, "more": more }))?,
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
            if more {
                terminal::tell(&format!("These are the newest {most}; there are more: --all lists every one."));
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
        Ok(created) => match now_ms.saturating_sub(created.ms()) {
            ms @ 0..60_000 => format!("{} s", ms / 1000),
            ms => span(ms),
        },
        Err(_) => "?".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_gone_is_still_named() {
        let there = tempfile::tempdir().unwrap();
        let real = there.path().canonicalize().unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        assert_eq!(resolved(&real.join("link/gone/for good/")).unwrap(), real.join("gone/for good"));
        assert_eq!(resolved(Path::new(".")).unwrap(), Path::new(".").canonicalize().unwrap());
    }

    #[test]
    fn a_time_that_cannot_be_read_is_told() {
        assert_eq!(age("nonsense", 0), "?");
        assert_eq!([1_000, 61_000].map(|now_ms| age("1970-01-01T00:00:00Z", now_ms)), ["1 s", "1 min"]);
    }
}

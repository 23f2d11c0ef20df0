//! `tenure sessions`: what there is, newest first.

use std::{
    collections::HashSet,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::Args;
use serde_json::json;
use tenure_client::print::{Look, Tone, columns, cut, cut_front, span, tamed};
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
    /// Only those whose title or conversation holds these words
    #[arg(long, value_name = "WORDS")]
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
    table(rows, now_ms, home.as_deref(), look)
}

/// Every column, in what room there is: titles and folders give way, then ids.
fn table(rows: &[SessionRow], now_ms: u64, home: Option<&str>, look: Look) -> Vec<String> {
    let titles = rows.iter().map(|row| flat(row.title.as_deref().unwrap_or("-")));
    // A program that reads it wants the path as it is.
    let home = home.filter(|_| look.width != Look::PLAIN.width);
    let folders = rows.iter().map(|row| shortened(&flat(&row.workspace_path), home));
    let mut ids: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
    let statuses = rows.iter().map(|row| row.status.clone());
    let ages = rows.iter().map(|row| age(&row.created_at, now_ms));
    let [statuses, ages, titles, folders] = [
        ("STATUS", statuses.collect()),
        ("AGE", ages.collect()),
        ("TITLE", titles.collect()),
        ("WORKSPACE", folders.collect()),
    ]
    .map(|(name, cells): (&str, Vec<String>)| Column::new(name, cells));
    let gaps = GAP.len() * 4;
    let (title, folder) = (titles.widest.min(TITLE_MAX), folders.widest.min(FOLDER_MIN));
    if widest(&ids) + statuses.widest + ages.widest + title + folder + gaps > look.width {
        ids = beginnings(&ids);
    }
    let ids = Column::new("ID", ids);
    let room = look.width.saturating_sub(ids.widest + statuses.widest + ages.widest + gaps);
    // A long folder takes what a title leaves, but half of the room at least.
    let title = title.min(room.saturating_sub(folders.widest).max(room / 2));
    let line = |at: usize| {
        let cells = [
            ids.left(at, ids.widest),
            statuses.left(at, statuses.widest),
            ages.right(at),
            titles.left(at, title),
            cut_front(&folders.cells[at], room.saturating_sub(title)),
        ];
        look.line(&cells.join(GAP), 0)
    };
    let head = look.paint(Tone::Faint, &line(0));
    std::iter::once(head).chain((1..=rows.len()).map(line)).collect()
}

const GAP: &str = "  ";
/// Longer titles are cut.
const TITLE_MAX: usize = 24;
/// Where a folder would get less than this, ids are shortened.
const FOLDER_MIN: usize = 16;
/// As much of an id as no other session of any day has: its time, and some of what is random in it.
const ID_BEGINNING: usize = 19;

/// The name of a column, and what stands below it.
struct Column {
    cells: Vec<String>,
    widest: usize,
}

impl Column {
    fn new(name: &str, below: Vec<String>) -> Self {
        let cells: Vec<String> = std::iter::once(name.to_owned()).chain(below).collect();
        Self { widest: widest(&cells), cells }
    }

    fn left(&self, at: usize, width: usize) -> String {
        let cell = cut(&self.cells[at], width);
        format!("{cell}{}", " ".repeat(width.saturating_sub(columns(&cell))))
    }

    fn right(&self, at: usize) -> String {
        let cell = &self.cells[at];
        format!("{}{cell}", " ".repeat(self.widest - columns(cell)))
    }
}

fn widest(cells: &[String]) -> usize {
    cells.iter().map(|cell| columns(cell)).max().unwrap_or(0)
}

fn flat(text: &str) -> String {
    tamed(&text.replace('\n', "⏎").replace('\t', " "))
}

/// Beginnings of ids, which are taken for them everywhere; long enough to tell these apart.
fn beginnings(ids: &[String]) -> Vec<String> {
    let longest = ids.iter().map(|id| id.len()).max().unwrap_or(0);
    let cut_at = |length: usize| ids.iter().map(move |id| id.get(..length).unwrap_or(id));
    let tells_apart = |length: &usize| cut_at(*length).collect::<HashSet<_>>().len() == ids.len();
    let length = (ID_BEGINNING..longest).find(tells_apart).unwrap_or(longest);
    cut_at(length).map(str::to_owned).collect()
}

/// A folder as people write it.
fn shortened(path: &str, home: Option<&str>) -> String {
    let below = home.filter(|home| home.len() > 1).and_then(|home| path.strip_prefix(home));
    match below {
        Some(below) if below.is_empty() || below.starts_with('/') => format!("~{below}"),
        _ => path.to_owned(),
    }
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

    fn row(id: &str, status: &str, title: &str, workspace: &str) -> SessionRow {
        SessionRow {
            id: id.into(),
            created_at: "2026-01-01T00:00:00.000Z".into(),
            updated_at: "2026-01-01T00:00:00.000Z".into(),
            status: status.into(),
            workspace_path: workspace.into(),
            title: Some(title.into()),
            last_turn_id: None,
            role: None,
            labels: vec![],
        }
    }

    fn shown(width: usize) -> Vec<String> {
        let rows = [
            row("sess_01K9ZZZZZZZZZZZZZZZZZZZZZZ", "active", "Mend\nthe door", "/data/me/projects/a-project-of-mine"),
            row("sess_01K9YYYYYYYYYYYYYYYYYYYYYY", "waiting_approval", "日本語のとても長い題名です", "/data/me"),
        ];
        let now_ms = serde_json::from_value::<Timestamp>("2026-01-01T02:00:00Z".into()).unwrap().ms();
        table(&rows, now_ms, Some("/data/me"), Look { width, ..Look::PLAIN })
    }

    #[test]
    fn a_table_fits_its_terminal_with_every_column() {
        assert_eq!(
            shown(80),
            [
                "ID                   STATUS            AGE  TITLE              WORKSPACE",
                "sess_01K9ZZZZZZZZZZ  active            2 h  Mend⏎the door      …-project-of-mine",
                "sess_01K9YYYYYYYYYY  waiting_approval  2 h  日本語のとても長…  ~",
            ]
        );
        for width in [40, 60, 80, 100, 120] {
            let lines = shown(width);
            assert!(lines.iter().all(|line| columns(line) <= width), "{lines:#?}");
        }
        assert!(shown(120)[1].starts_with("sess_01K9ZZZZZZZZZZZZZZZZZZZZZZ  active"), "{:#?}", shown(120));
        assert!(shown(120)[1].ends_with("  ~/projects/a-project-of-mine"), "{:#?}", shown(120));
        assert!(shown(Look::PLAIN.width)[1].ends_with("  /data/me/projects/a-project-of-mine"));
    }

    #[test]
    fn short_ids_still_tell_sessions_apart() {
        let ids = ["sess_01K9AAAAAAAAAAAAAAAAAAAAA1", "sess_01K9AAAAAAAAAAAAAAAAAAAAA2"].map(str::to_owned);
        assert_eq!(beginnings(&ids), ids);
        assert_eq!(beginnings(&ids[..1]), ["sess_01K9AAAAAAAAAA"]);
        assert_eq!(shortened("/data/me2", Some("/data/me")), "/data/me2");
    }

    #[test]
    fn a_time_that_cannot_be_read_is_told() {
        assert_eq!(age("nonsense", 0), "?");
    }
}

//! Sessions as a table that fits its terminal, with every column. It asks nobody for anything.

use std::collections::HashSet;

use tenure_client::print::{Look, Tone, columns, cut, cut_front, tamed};
use tenure_wire::SessionRow;

const GAP: &str = "  ";
/// Where a title or a folder would get less than this, ids are shortened.
const TITLE_MIN: usize = 24;
const FOLDER_MIN: usize = 16;
/// As much of an id as no other session has: its time, and some of what is random in it.
const ID_BEGINNING: usize = 19;

/// A head and a line for each row. In what room there is, titles and folders give way, then ids; nothing does where no
/// terminal shows it.
pub fn lines(rows: &[SessionRow], now_ms: u64, home: Option<&str>, look: Look) -> Vec<String> {
    let is_shown = look.width != Look::PLAIN.width;
    let look = if is_shown { look } else { Look { width: usize::MAX, ..look } };
    // A program that reads it wants the path as it is.
    let home = home.filter(|_| is_shown);
    let table = Table {
        ids: Column::of("ID", rows, |row| row.id.clone()),
        statuses: Column::of("STATUS", rows, |row| super::stands(&row.status, row.turn_status.as_deref()).to_owned()),
        ages: Column::of("AGE", rows, |row| super::age(&row.created_at, now_ms)),
        titles: Column::of("TITLE", rows, |row| flat(row.title.as_deref().unwrap_or("-"))),
        folders: Column::of("WORKSPACE", rows, |row| shortened(&flat(&row.workspace_path), home)),
    };
    let mut lines = table.fitted(look.width).into_iter().map(|line| look.line(&line, 0));
    let head = lines.next().map(|head| look.paint(Tone::Faint, &head));
    head.into_iter().chain(lines).collect()
}

struct Table {
    ids: Column,
    statuses: Column,
    ages: Column,
    titles: Column,
    folders: Column,
}

impl Table {
    fn fitted(mut self, width: usize) -> Vec<String> {
        let least = self.titles.widest.min(TITLE_MIN) + self.folders.widest.min(FOLDER_MIN);
        if self.fixed() + least > width {
            self.ids = Column::new(beginnings(&self.ids.cells));
        }
        let room = width.saturating_sub(self.fixed());
        // A long title takes what the folder leaves, but half of the room at least.
        let title = self.titles.widest.min(room.saturating_sub(self.folders.widest).max(room / 2));
        (0..self.ids.cells.len()).map(|at| self.line(at, title, room.saturating_sub(title))).collect()
    }

    /// How much is taken by what is never cut.
    fn fixed(&self) -> usize {
        self.ids.widest + self.statuses.widest + self.ages.widest + GAP.len() * 4
    }

    fn line(&self, at: usize, title: usize, folder: usize) -> String {
        let cells = [
            self.ids.left(at, self.ids.widest),
            self.statuses.left(at, self.statuses.widest),
            self.ages.right(at),
            self.titles.left(at, title),
            cut_front(&self.folders.cells[at], folder),
        ];
        cells.join(GAP)
    }
}

/// The name of a column and what stands below it.
struct Column {
    cells: Vec<String>,
    widest: usize,
}

impl Column {
    fn of(name: &str, rows: &[SessionRow], cell: impl Fn(&SessionRow) -> String) -> Self {
        Self::new(std::iter::once(name.to_owned()).chain(rows.iter().map(cell)).collect())
    }

    fn new(cells: Vec<String>) -> Self {
        Self { widest: cells.iter().map(|cell| columns(cell)).max().unwrap_or(0), cells }
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

#[cfg(test)]
mod tests {
    use tenure_core::time::Timestamp;

    use super::*;

    fn row(id: &str, status: &str, turn: Option<&str>, title: &str, workspace: &str) -> SessionRow {
        SessionRow {
            id: id.into(),
            created_at: "2026-01-01T00:00:00.000Z".into(),
            updated_at: "2026-01-01T00:00:00.000Z".into(),
            status: status.into(),
            turn_status: turn.map(Into::into),
            workspace_path: workspace.into(),
            title: Some(title.into()),
            last_turn_id: None,
            role: None,
            labels: vec![],
        }
    }

    const WAITS: &str = "waiting_approval";

    fn shown(width: usize) -> Vec<String> {
        let rows = [
            row(
                "sess_01K9ZZZZZZZZZZZZZZZZZZZZZZ",
                "active",
                None,
                "Mend\nthe door",
                "/data/me/projects/a-project-of-mine",
            ),
            row("sess_01K9YYYYYYYYYYYYYYYYYYYYYY", WAITS, Some(WAITS), "日本語のとても長い題名です", "/data/me"),
        ];
        let now_ms = serde_json::from_value::<Timestamp>("2026-01-01T02:00:00Z".into()).unwrap().ms();
        lines(&rows, now_ms, Some("/data/me"), Look { width, ..Look::PLAIN })
    }

    #[test]
    fn a_table_fits_its_terminal_with_every_column() {
        assert_eq!(
            shown(80),
            [
                "ID                   STATUS            AGE  TITLE              WORKSPACE",
                "sess_01K9ZZZZZZZZZZ  idle              2 h  Mend⏎the door      …-project-of-mine",
                "sess_01K9YYYYYYYYYY  waiting_approval  2 h  日本語のとても長…  ~",
            ]
        );
        for width in [40, 60, 80, 100, 120] {
            let lines = shown(width);
            assert!(lines.iter().all(|line| columns(line) <= width), "{lines:#?}");
        }
        assert!(shown(120)[1].starts_with("sess_01K9ZZZZZZZZZZZZZZZZZZZZZZ  idle"), "{:#?}", shown(120));
        assert!(shown(120)[1].ends_with("  ~/projects/a-project-of-mine"), "{:#?}", shown(120));
        assert!(shown(Look::PLAIN.width)[1].ends_with("  /data/me/projects/a-project-of-mine"));
    }

    #[test]
    fn only_terminals_have_no_room() {
        let (title, folder) = ("t".repeat(300), format!("/{}", "f".repeat(5000)));
        let rows = [row("sess_01K9ZZZZZZZZZZZZZZZZZZZZZZ", "active", Some("interrupted"), &title, &folder)];
        let line = &lines(&rows, 0, None, Look::PLAIN)[1];
        assert!(line.contains("  interrupted  ") && line.contains(&title) && line.ends_with(&folder), "{line}");
    }

    #[test]
    fn short_ids_still_tell_sessions_apart() {
        let ids = ["sess_01K9AAAAAAAAAAAAAAAAAAAAA1", "sess_01K9AAAAAAAAAAAAAAAAAAAAA2"].map(str::to_owned);
        assert_eq!(beginnings(&ids), ids);
        assert_eq!(beginnings(&ids[..1]), ["sess_01K9AAAAAAAAAA"]);
        assert_eq!(shortened("/data/me2", Some("/data/me")), "/data/me2");
    }
}

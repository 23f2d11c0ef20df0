//! The listing: one row per session in memory, and `index.ndjson` as its cache on disk, which may be deleted at any time.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    sync::Arc,
};

use tenure_core::{
    budget::Spent,
    ids::{SessionId, TurnId},
    time::Timestamp,
};

use super::{
    blocking,
    folder::{Folder, Keep, is_missing},
    lines::{Lines, Next, whole_len},
};
use crate::{
    Error, Result, Row,
    disk::{DiskFile, Open},
};

mod rebuild;
mod row_line;

pub(crate) use row_line::{Said, read as read_line};

use row_line::line_of;

const ROW_LINE_BYTES_MAX: usize = 64 << 10;
/// The file is written anew when it has this many lines more than twice the rows.
const STALE_LINES_MAX: usize = 1000;

pub(crate) struct Listing {
    folder: Arc<Folder>,
    /// `None` until the listing is first used: start-up reads nothing of it.
    loaded: Arc<tokio::sync::Mutex<Option<Loaded>>>,
}

struct Loaded {
    file: Box<dyn DiskFile>,
    len: u64,
    lines: usize,
    rows: Rows,
    /// The last lines of sessions that are gone though nobody deleted them: the last trace of each.
    lost: BTreeMap<SessionId, Box<[u8]>>,
}

/// Tells a listing that nobody has open that a session is no more.
pub(crate) fn forget(folder: &Folder, session: SessionId) -> Result<()> {
    let append = || {
        let Some(file) = folder.open_if_there(&folder.layout.index(), Open::Existing)? else { return Ok(()) };
        // A torn line at its end is written over.
        let end = whole_len(&*file)?;
        file.set_len(end)?;
        file.write_all_at(&row_line::purged(session)?, end)?;
        make_safe(folder, &*file)
    };
    append().map_err(failed)
}

/// Makes what was said of a deletion survive a power cut: of a row whose session is gone without such a word it is said that
/// the session was lost.
fn make_safe(folder: &Folder, file: &dyn DiskFile) -> io::Result<()> {
    file.sync()?;
    folder.disk.sync_dir(folder.layout.root())
}

/// All rows, oldest first. New sessions have the highest id, so they are put at the end.
#[derive(Default)]
struct Rows {
    entries: Vec<Entry>,
    /// Texts that many rows share.
    texts: HashSet<Arc<str>>,
}

/// A row, packed.
struct Entry {
    id: SessionId,
    created_at: Timestamp,
    updated_at: Timestamp,
    status: Arc<str>,
    workspace_path: Arc<str>,
    title: Option<Box<str>>,
    last_turn_id: Option<TurnId>,
    role: Option<Arc<str>>,
    labels: Box<[Arc<str>]>,
    spent: Spent,
    /// The file does not have it yet: the end of the turn that has begun brings the next row.
    waits: bool,
}

impl Listing {
    pub fn new(folder: Arc<Folder>) -> Self {
        Self { folder, loaded: Arc::default() }
    }

    pub async fn put(&self, row: Row) -> Result<()> {
        self.with(move |folder, listing| {
            let row = row.trimmed();
            let line = line_of(&row).map_err(failed)?;
            let waits = listing.rows.find(row.id).is_some_and(|known| known.only_begins(&row));
            listing.lost.remove(&row.id);
            listing.rows.put(row, waits);
            if waits {
                return Ok(());
            }
            listing.append(&line).map_err(failed)?;
            if listing.is_mostly_stale() {
                listing.compact(folder).map_err(failed)?;
            }
            Ok(())
        })
        .await
    }

    /// Writes a row that still waits, of a session that nobody will put another one of soon.
    pub async fn settle(&self, session: SessionId) -> Result<()> {
        self.with(move |_, listing| {
            let Some(row) = listing.rows.find(session).filter(|entry| entry.waits).map(Entry::to_row) else {
                return Ok(());
            };
            let line = line_of(&row).map_err(failed)?;
            listing.append(&line).map_err(failed)?;
            listing.rows.put(row, false);
            Ok(())
        })
        .await
    }

    /// The session is no more. A line says so, for good: should one come back under the same id, its old rows are not taken
    /// for it.
    pub async fn purge(&self, session: SessionId) -> Result<()> {
        self.with(move |folder, listing| {
            listing.rows.remove(session);
            listing.lost.remove(&session);
            let line = row_line::purged(session).map_err(failed)?;
            listing.append(&line).map_err(failed)?;
            make_safe(folder, &*listing.file).map_err(failed)
        })
        .await
    }

    /// The session seems to be gone from the disk, and nobody deleted it: it is listed no more, and not forgotten.
    pub async fn lose(&self, session: SessionId) -> Result<()> {
        if self.loaded.lock().await.is_none() {
            // Whoever loads it sees what is there.
            return Ok(());
        }
        self.with(move |folder, listing| {
            let Some(row) = listing.rows.find(session).map(Entry::to_row) else { return Ok(()) };
            // One that was made since it was missed has its log by now.
            if folder.disk.look(&folder.layout.log(session)).is_err_and(|error| is_missing(&error)) {
                let line = line_of(&row).map_err(failed)?;
                listing.lost.insert(session, line.into());
                listing.rows.remove(session);
            }
            Ok(())
        })
        .await
    }

    /// Whether there is a row of it, or the last trace of one.
    pub async fn has(&self, session: SessionId) -> Result<bool> {
        self.with(move |_, listing| Ok(listing.rows.find(session).is_some() || listing.lost.contains_key(&session)))
            .await
    }

    pub async fn list(&self, before: Option<SessionId>, limit: usize) -> Result<Vec<Row>> {
        self.with(move |_, listing| Ok(listing.rows.page(before, limit))).await
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder, &mut Loaded) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let folder = self.folder.clone();
        let mut guard = self.loaded.clone().lock_owned().await;
        blocking(move || match &mut *guard {
            Some(listing) => work(&folder, listing),
            empty => work(&folder, empty.insert(Loaded::load(&folder).map_err(failed)?)),
        })
        .await
    }
}

/// Says of sessions whose deletion a crash cut short that they are no more, as the deletion would have. At a start, before
/// anybody reads the listing.
pub(crate) fn note_purged(folder: &Folder, sessions: &[SessionId]) -> io::Result<()> {
    if sessions.is_empty() {
        return Ok(());
    }
    let file = folder.disk.open(&folder.layout.index(), Open::Create)?;
    let len = file.len()?;
    let mut lines = Vec::new();
    let mut last = [b'\n'];
    if len > 0 {
        file.read_full_at(&mut last, len - 1)?;
    }
    if last != [b'\n'] {
        // A torn line stays one of its own.
        lines.push(b'\n');
    }
    for session in sessions {
        lines.extend_from_slice(&row_line::purged(*session)?);
    }
    file.write_all_at(&lines, len)?;
    make_safe(folder, &*file)
}

impl Loaded {
    fn load(folder: &Folder) -> io::Result<Loaded> {
        let file = folder.disk.open(&folder.layout.index(), Open::Create)?;
        let names = folder.disk.list(&folder.layout.sessions())?;
        let sessions: HashSet<SessionId> = names.iter().filter_map(|name| name.parse().ok()).collect();
        let mut listing = Loaded { file, len: 0, lines: 0, rows: Rows::default(), lost: BTreeMap::new() };
        listing.read(&sessions)?;
        listing.rebuild_missing(folder, sessions)?;
        listing.rows.entries.shrink_to_fit();
        if listing.is_mostly_stale() {
            listing.compact(folder)?;
        }
        Ok(listing)
    }

    fn is_mostly_stale(&self) -> bool {
        self.lines > 2 * (self.rows.entries.len() + self.lost.len()) + STALE_LINES_MAX
    }

    /// Takes in what the file says of sessions; lines that are no rows are passed over.
    fn read(&mut self, sessions: &HashSet<SessionId>) -> io::Result<()> {
        let mut rows = std::mem::take(&mut self.rows);
        let mut lines = Lines::new(&*self.file, 0, self.file.len()?, ROW_LINE_BYTES_MAX);
        self.len = loop {
            match lines.next()? {
                Next::End => break lines.offset(),
                Next::Torn { offset } => break offset,
                Next::TooLong { .. } => {}
                Next::Line { bytes, .. } => match row_line::read(bytes) {
                    Some(Said::Row(row)) if sessions.contains(&row.id) => rows.put(row.trimmed(), false),
                    Some(Said::Purged(id)) => {
                        rows.remove(id);
                        self.lost.remove(&id);
                    }
                    Some(Said::Row(row)) => {
                        self.lost.insert(row.id, [bytes, b"\n"].concat().into());
                    }
                    None => {}
                },
            }
            self.lines += 1;
        };
        self.rows = rows;
        Ok(())
    }

    fn rebuild_missing(&mut self, folder: &Folder, mut sessions: HashSet<SessionId>) -> io::Result<()> {
        for entry in &self.rows.entries {
            sessions.remove(&entry.id);
        }
        let mut lines = Vec::new();
        for session in sessions {
            // A session that cannot be read has no row; it never keeps the others from theirs.
            if let Some(row) = rebuild::row(folder, session) {
                let row = row.trimmed();
                if rebuild::make_safe(folder, session).is_ok() {
                    lines.extend_from_slice(&line_of(&row)?);
                    self.lines += 1;
                }
                self.rows.put(row, false);
            }
        }
        self.append_bytes(&lines)
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        self.append_bytes(line)?;
        self.lines += 1;
        Ok(())
    }

    /// A failed write leaves at most a torn line, which the next one writes over.
    fn append_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(error) = self.file.write_all_at(bytes, self.len) {
            // Best effort: what stays is no row, or one that is true.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn compact(&mut self, folder: &Folder) -> io::Result<()> {
        self.rows.texts.retain(|text| Arc::strong_count(text) > 1);
        let mut content = Vec::new();
        for entry in &self.rows.entries {
            content.extend_from_slice(&line_of(&entry.to_row())?);
        }
        self.lost.values().for_each(|line| content.extend_from_slice(line));
        folder.replace(&folder.layout.index(), &[&content], Keep::Unsynced)?;
        self.file = folder.disk.open(&folder.layout.index(), Open::Existing)?;
        self.len = content.len() as u64;
        self.lines = self.rows.entries.len() + self.lost.len();
        Ok(())
    }
}

impl Rows {
    fn find(&self, id: SessionId) -> Option<&Entry> {
        let at = self.entries.binary_search_by_key(&id, |known| known.id).ok()?;
        self.entries.get(at)
    }

    fn put(&mut self, row: Row, waits: bool) {
        let mut entry = Entry {
            id: row.id,
            created_at: row.created_at,
            updated_at: row.updated_at,
            status: self.shared(row.status),
            workspace_path: self.shared(row.workspace_path),
            title: row.title,
            last_turn_id: row.last_turn_id,
            role: row.role.map(|role| self.shared(role)),
            labels: row.labels.into_iter().map(|label| self.shared(label)).collect(),
            spent: row.spent,
            waits,
        };
        match self.entries.binary_search_by_key(&entry.id, |known| known.id) {
            Ok(at) => {
                entry.keep_place_of(&mut self.entries[at]);
                self.entries[at] = entry;
            }
            Err(at) => self.entries.insert(at, entry),
        }
    }

    fn remove(&mut self, id: SessionId) {
        if let Ok(at) = self.entries.binary_search_by_key(&id, |known| known.id) {
            self.entries.remove(at);
        }
    }

    fn shared(&mut self, text: Arc<str>) -> Arc<str> {
        if let Some(known) = self.texts.get(&text) {
            return known.clone();
        }
        self.texts.insert(text.clone());
        text
    }

    fn page(&self, before: Option<SessionId>, limit: usize) -> Vec<Row> {
        let end = before.map_or(self.entries.len(), |id| self.entries.partition_point(|entry| entry.id < id));
        self.entries[..end].iter().rev().take(limit).map(Entry::to_row).collect()
    }
}

impl Entry {
    /// Texts that did not change stay where they are: small pieces that live long, put somewhere new with each turn, would
    /// keep page after page from being given back.
    fn keep_place_of(&mut self, before: &mut Entry) {
        if self.title == before.title {
            self.title = before.title.take();
        }
        if self.labels == before.labels {
            self.labels = std::mem::take(&mut before.labels);
        }
    }

    /// Whether nothing has changed but that another turn has begun.
    fn only_begins(&self, row: &Row) -> bool {
        let same =
            (&*self.status, &*self.workspace_path, &self.title) == (&*row.status, &*row.workspace_path, &row.title);
        same && self.labels == row.labels && self.last_turn_id != row.last_turn_id
    }

    fn to_row(&self) -> Row {
        Row {
            id: self.id,
            created_at: self.created_at,
            updated_at: self.updated_at,
            status: self.status.clone(),
            workspace_path: self.workspace_path.clone(),
            title: self.title.clone(),
            last_turn_id: self.last_turn_id,
            role: self.role.clone(),
            labels: self.labels.clone(),
            spent: self.spent,
        }
    }
}

fn failed(error: io::Error) -> Error {
    Error::disk("the listing", &error)
}

#[cfg(test)]
mod tests;

//! Removes what nobody needs: old spools, what crashes left, files that no event names, and sessions that ended long ago
//! where that is asked for. It never touches what is open, pinned, damaged, or younger than its limit.

use std::{io, path::PathBuf, time::Duration};

use serde::Serialize;
use tenure_core::{
    ids::SessionId,
    session::{Life, Session},
    time::Timestamp,
};

use super::{
    Progress,
    examine::{self, Examined, File, Kind},
    logs::Told,
    rows::Rows,
};
use crate::{
    Error, Result,
    disk::Look,
    file::{
        folder::{Folder, is_missing},
        keys, listing, trash,
    },
    name::TEMPORARY,
};

const LEFTOVER: &str = "of a write that did not come to its end";
/// A session with this label is left alone.
const PINNED: &str = "pinned";

#[derive(Debug, Clone, Copy)]
pub struct GcOptions {
    pub now: Timestamp,
    /// Files younger than this stay.
    pub older_than: Duration,
    /// Whole sessions that ended longer ago than this go; none, if it is not given.
    pub sessions_ended_before: Option<Duration>,
}

/// Something that was removed, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// In the data folder.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub what: &'static str,
    pub bytes: u64,
    #[serde(skip)]
    way: Way,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A file, or a folder with all that is in it.
    Delete,
    /// A whole session.
    Purge(SessionId),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Gc {
    pub removed: Vec<Removed>,
    pub bytes: u64,
    /// What could not be looked at or removed.
    pub problems: Vec<String>,
}

pub(super) fn plan(folder: &Folder, options: &GcOptions, progress: Progress<'_>) -> Result<Gc> {
    let failed = |error: io::Error| Error::unread("the data folder", &error);
    let mut planner = Planner { folder, options, rows: Rows::read(folder).map_err(failed)?, gc: Gc::default() };
    planner.shared().map_err(failed)?;
    let sessions = examine::sessions(folder).map_err(failed)?;
    for (done, session) in sessions.iter().enumerate() {
        progress(done as u64, sessions.len() as u64);
        // One that cannot be read never keeps the others from it.
        if let Err(error) = planner.session(*session) {
            planner.gc.problems.push(format!("{session} cannot be read: {error}"));
        }
    }
    progress(sessions.len() as u64, sessions.len() as u64);
    let mut gc = planner.gc;
    gc.bytes = gc.removed.iter().map(|removed| removed.bytes).sum();
    Ok(gc)
}

/// Does what was planned; tells what was really done.
pub(super) fn carry_out(folder: &Folder, plan: Gc, now: Timestamp) -> Gc {
    let mut done = Gc { problems: plan.problems, ..Gc::default() };
    // Before the first of them goes: the keys that made them must not make them again.
    let purged = plan.removed.iter().filter_map(|removed| match removed.way {
        Way::Purge(session) => Some(session),
        Way::Delete => None,
    });
    if let Err(error) = keys::note_purged(folder, &purged.collect::<Vec<_>>(), now) {
        done.problems.push(error.to_string());
        return done;
    }
    for removed in plan.removed {
        let path = folder.layout.root().join(&removed.path);
        let carried = match removed.way {
            Way::Delete => trash::remove(folder, &path).map_err(|error| error.to_string()),
            Way::Purge(session) => purge(folder, session).map_err(|error| error.to_string()),
        };
        match carried {
            Ok(()) => {
                done.bytes += removed.bytes;
                done.removed.push(removed);
            }
            Err(error) => done.problems.push(format!("{}: {error}", removed.path)),
        }
    }
    done
}

fn purge(folder: &Folder, session: SessionId) -> Result<()> {
    trash::put(folder, session)?;
    // A mark that stays does no harm: it is passed over.
    let _ = folder.disk.remove(&folder.layout.open_mark(session));
    listing::forget(folder, session)?;
    trash::delete(folder, session);
    Ok(())
}

struct Planner<'a> {
    folder: &'a Folder,
    options: &'a GcOptions,
    rows: Rows,
    gc: Gc,
}

impl Planner<'_> {
    fn remove(&mut self, path: PathBuf, session_id: Option<SessionId>, what: &'static str, bytes: u64, way: Way) {
        let path = path.strip_prefix(self.folder.layout.root()).unwrap_or(&path).display().to_string();
        self.gc.removed.push(Removed { path, session_id, what, bytes, way });
    }

    fn is_old(&self, modified_ms: u64) -> bool {
        let limit = self.options.now.ms().saturating_sub(ms(self.options.older_than));
        modified_ms < limit
    }

    fn shared(&mut self) -> io::Result<()> {
        let layout = &self.folder.layout;
        for name in names_in(self.folder, layout.root().to_owned())? {
            let path = layout.root().join(&name);
            if let (true, Ok(Look::File(stat))) = (name.starts_with(TEMPORARY), self.folder.disk.look(&path))
                && self.is_old(stat.modified_ms)
            {
                self.remove(path, None, LEFTOVER, stat.bytes, Way::Delete);
            }
        }
        let trash = trash::names(self.folder).unwrap_or_else(|error| {
            self.gc.problems.push(format!("trash: {error}"));
            vec![]
        });
        for name in trash {
            let path = layout.trash().join(name);
            let bytes = bytes_below(self.folder, &path)?;
            self.remove(path, None, "what is left of a session that was deleted", bytes, Way::Delete);
        }
        for name in names_in(self.folder, layout.open())? {
            let Ok(session) = name.parse::<SessionId>() else { continue };
            let path = layout.open_mark(session);
            let is_gone = self.folder.disk.look(&layout.log(session)).is_err_and(|error| is_missing(&error));
            if is_gone && self.is_old(self.folder.disk.stat(&path)?.modified_ms) {
                self.remove(path, Some(session), "the mark of a session that is not there", 0, Way::Delete);
            }
        }
        Ok(())
    }

    fn session(&mut self, id: SessionId) -> io::Result<()> {
        let Some(examined) = examine::session(self.folder, id, &self.rows, Duration::ZERO)? else { return Ok(()) };
        match &examined.told {
            // Nobody knows what belongs to a log that is damaged or of another version.
            Some(told) if told.trouble.is_some() => {
                self.gc.problems.push(format!("{id} is left alone: its log cannot be read; see `tenure store check`"));
            }
            Some(Told { state: Some(state), .. }) if is_open(state) || is_pinned(state) => {}
            Some(told @ Told { state: Some(state), .. }) => {
                let bytes = examined.files.iter().map(|file| file.stat.bytes).sum();
                match self.options.sessions_ended_before {
                    Some(before) if state.life != Life::Open && self.ended_before(state.updated_at, before) => {
                        let path = self.folder.layout.session(id);
                        self.remove(path, Some(id), "a session that ended", bytes, Way::Purge(id));
                    }
                    _ => self.files(&examined, told),
                }
            }
            // What is left of a session whose log was lost is for people.
            _ if examined.lost_its_log() => {}
            Some(_) | None => self.never_born(&examined),
        }
        Ok(())
    }

    fn ended_before(&self, at: Timestamp, before: Duration) -> bool {
        at.ms() < self.options.now.ms().saturating_sub(ms(before))
    }

    fn files(&mut self, examined: &Examined, told: &Told) {
        for file in &examined.files {
            if !self.is_old(file.stat.modified_ms) {
                continue;
            }
            let what = match &file.kind {
                Kind::Spool(turn) if told.settled.contains(turn) => "deltas of a settled turn",
                Kind::Leftover => LEFTOVER,
                Kind::Blob if !told.blobs.contains_key(&file.name) => "no event names it",
                _ => continue,
            };
            let path = self.folder.layout.session(examined.id).join(&file.name);
            self.remove(path, Some(examined.id), what, file.stat.bytes, Way::Delete);
        }
    }

    /// A folder without a log is no session. What was kept aside in it is for people.
    fn never_born(&mut self, examined: &Examined) {
        let is_left = |file: &File| file.kind != Kind::Aside && self.is_old(file.stat.modified_ms);
        let path = self.folder.layout.session(examined.id);
        let folder_is_old =
            matches!(self.folder.disk.look(&path), Ok(Look::Folder(stat)) if self.is_old(stat.modified_ms));
        if folder_is_old && examined.files.iter().all(is_left) {
            let bytes = examined.files.iter().map(|file| file.stat.bytes).sum();
            self.remove(path, Some(examined.id), "a session that never came to be", bytes, Way::Delete);
        }
    }
}

/// Whether anything in it is to go on. The log tells; a mark in `open/` may be there for a while after the last turn.
fn is_open(state: &Session) -> bool {
    state.life == Life::Open && (state.turn.is_some() || !state.queue.is_empty())
}

fn is_pinned(state: &Session) -> bool {
    state.settings.labels.iter().any(|label| label == PINNED)
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn names_in(folder: &Folder, path: PathBuf) -> io::Result<Vec<String>> {
    match folder.disk.list(&path) {
        Err(error) if is_missing(&error) => Ok(vec![]),
        names => names,
    }
}

fn bytes_below(folder: &Folder, path: &std::path::Path) -> io::Result<u64> {
    match folder.disk.look(path)? {
        Look::File(stat) => Ok(stat.bytes),
        Look::Other => Ok(0),
        Look::Folder(_) => {
            let mut files = Vec::new();
            examine::walk(folder, path, &mut PathBuf::new(), &mut files)?;
            Ok(files.iter().map(|file| file.stat.bytes).sum())
        }
    }
}

//! Mends a data folder. What was damaged is kept aside first; every file is put in its place as a whole, so that a crash
//! leaves the old one or the new one. No valid event is ever lost.

use std::{io, path::Path, time::Duration};

use serde::Serialize;
use tenure_core::{ids::SessionId, time::Timestamp};

use super::{
    CheckOptions, Finding, Level, Progress, Remedy, blobs, check,
    examine::{self, Examined, Kind},
    line_files,
    logs::Told,
    rewrite::rewrite,
    rows::{self, Rows},
    salvage::{Salvaged, salvage},
    spools,
};
use crate::{
    Error, Result, SpoolSum,
    disk::Look,
    file::{
        folder::{Folder, Keep, is_missing},
        keys, listing, lock,
    },
};

const MENDED: &str = "mended: one bit had changed";

/// Something that was done, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Action {
    /// In the data folder.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub what: String,
}

/// What a repair did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Repair {
    pub actions: Vec<Action>,
    /// Damage that is still there, since nothing can be done about it here.
    pub left: Vec<Finding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Mend,
    /// Only tells.
    Plan,
}

pub(super) fn repair(folder: &Folder, mode: Mode, now: Timestamp, progress: Progress<'_>) -> Result<Repair> {
    let failed = |error: io::Error| Error::disk("to repair the data folder", &error);
    let mut mender = Mender { folder, mode, now, rows: Rows::default(), logs_changed: false, done: Repair::default() };
    let sessions = examine::sessions(folder).map_err(failed)?;
    mender.rows = Rows::read(folder).map_err(failed)?;
    for (done, session) in sessions.iter().enumerate() {
        progress(done as u64, sessions.len() as u64);
        // What cannot be read or written is found again by the check, and named; the others are mended all the same.
        match mender.session(*session) {
            Err(error) if is_full(&error) => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    mender.shared().map_err(failed)?;
    let mut done = mender.done;
    let options = CheckOptions { sessions: vec![], patience: Duration::ZERO };
    done.left = check::check(folder, &options, progress)?.findings;
    // A plan leaves what it would mend, which is told already.
    done.left
        .retain(|finding| finding.level == Level::Damage && (mode == Mode::Mend || finding.remedy == Remedy::None));
    Ok(done)
}

/// Nothing more can be mended where nothing can be written.
fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
    )
}

struct Mender<'a> {
    folder: &'a Folder,
    mode: Mode,
    now: Timestamp,
    rows: Rows,
    /// Rows may tell of what is no more.
    logs_changed: bool,
    done: Repair,
}

impl Mender<'_> {
    /// Notes what is done and does it, unless this is only a plan.
    fn act(
        &mut self,
        path: &Path,
        session_id: Option<SessionId>,
        what: String,
        work: impl FnOnce(&Folder) -> io::Result<()>,
    ) -> io::Result<()> {
        let path = path.strip_prefix(self.folder.layout.root()).unwrap_or(path).display().to_string();
        self.done.actions.push(Action { path, session_id, what });
        match self.mode {
            Mode::Mend => work(self.folder),
            Mode::Plan => Ok(()),
        }
    }

    fn shared(&mut self) -> io::Result<()> {
        let layout = &self.folder.layout;
        for (path, name) in [(layout.keys(), "keys.ndjson"), (layout.index(), "index.ndjson")] {
            if examine::is_odd(self.folder, &path)? {
                self.odd(&path, name)?;
                // A plan leaves it there, and it cannot be looked into.
                if self.mode == Mode::Plan {
                    return Ok(());
                }
            }
        }
        self.keys()?;
        for session in rows::lost(self.folder)? {
            let what = "the whole session is gone: taken out of the listing".to_owned();
            let now = self.now;
            self.act(&layout.session(session), Some(session), what, |folder| let_go(folder, session, now))?;
        }
        let rows = line_files::look(self.folder, &layout.index(), &line_files::is_row, Duration::ZERO)?;
        if rows.is_some_and(|rows| self.logs_changed || rows.bad.is_some() || rows.torn > 0) {
            let path = layout.index();
            self.act(&path, None, "removed; it is made again from the sessions".into(), |folder| {
                remove(folder, &path)?;
                folder.disk.sync_dir(folder.layout.root())
            })?;
        }
        if self.mode == Mode::Plan && lock::is_damaged(self.folder)? {
            self.act(&layout.lock(), None, "written anew".into(), |_| Ok(()))?;
        }
        Ok(())
    }

    /// Puts aside what is no file; the daemon makes a new one.
    fn odd(&mut self, path: &Path, name: &str) -> io::Result<()> {
        self.act(path, None, format!("put aside: {}", examine::ODD), |folder| {
            let aside = folder.free_name(|n| folder.layout.damaged(name, n))?;
            folder.disk.rename(path, &aside)?;
            folder.disk.sync_dir(folder.layout.root())
        })
    }

    fn keys(&mut self) -> io::Result<()> {
        let path = self.folder.layout.keys();
        let Some(content) = self.folder.read_if_there(&path, u64::MAX)? else { return Ok(()) };
        let (new, mended, lost) = line_files::mend_keys(&content);
        if new == content {
            return Ok(());
        }
        let what =
            format!("{mended} keys were mended and {lost} damaged lines removed; the old file is kept beside it");
        self.act(&path, None, what, |folder| {
            let aside = folder.free_name(|n| folder.layout.damaged("keys.ndjson", n))?;
            folder.replace(&aside, &[&content], Keep::Synced)?;
            folder.replace(&path, &[&new], Keep::Synced)
        })
    }

    fn session(&mut self, id: SessionId) -> io::Result<()> {
        let look = |rows: &Rows| examine::session(self.folder, id, rows, Duration::ZERO);
        let Some(mut examined) = look(&self.rows)? else { return Ok(()) };
        if examined.lost_its_log() {
            return Ok(());
        }
        let Some(told) = &examined.told else { return Ok(()) };
        // Before the log: where that is written anew, the records go that speak of the spools.
        self.spools(&examined)?;
        if told.is_damaged() {
            self.log(&examined)?;
            if self.mode == Mode::Mend {
                let Some(mended) = look(&Rows::default())? else { return Ok(()) };
                examined = mended;
            }
        }
        let Some(told) = &examined.told else { return Ok(()) };
        if let Some(why) = examine::snapshot_fault(self.folder, &examined, told)? {
            let path = self.folder.layout.snapshot(id);
            self.act(&path, Some(id), format!("removed: {why}; it is made again from the log"), |folder| {
                remove(folder, &path)
            })?;
        }
        self.files(&examined, told)?;
        self.missing(id, told)
    }

    /// Writes the log anew. What could be taken from the old one goes first: snapshot and records may tell too much.
    fn log(&mut self, examined: &Examined) -> io::Result<()> {
        let id = examined.id;
        let path = self.folder.layout.log(id);
        let Some(content) = self.folder.read_if_there(&path, u64::MAX)? else { return Ok(()) };
        let salvaged = salvage(&content, id, examined.expected_seq);
        let new = rewrite(&salvaged, id, self.now)?;
        let records = examined.files.iter().filter(|file| matches!(file.kind, Kind::TurnRecord | Kind::Snapshot));
        let caches: Vec<_> = records.map(|file| self.folder.layout.session(id).join(&file.name)).collect();
        self.logs_changed = true;
        self.act(&path, Some(id), told_of(&salvaged), |folder| {
            let aside = folder.free_name(|n| folder.layout.damaged_log(id, n))?;
            folder.replace(&aside, &[&content], Keep::Synced)?;
            for cache in &caches {
                remove(folder, cache)?;
            }
            folder.replace(&path, &[&new], Keep::Synced)
        })
    }

    fn files(&mut self, examined: &Examined, told: &Told) -> io::Result<()> {
        let id = examined.id;
        for file in &examined.files {
            let path = self.folder.layout.session(id).join(&file.name);
            match file.kind {
                Kind::TurnRecord => {
                    let record = self.folder.read_if_there(&path, u64::MAX)?;
                    if record.is_some_and(|record| !line_files::is_record(&record)) {
                        let what = "removed; it is made again from the log".to_owned();
                        self.act(&path, Some(id), what, |folder| remove(folder, &path))?;
                    }
                }
                Kind::Blob => {
                    if let Some(expected) = told.blobs.get(&file.name)
                        && let blobs::State::Damaged(why) = blobs::look(self.folder, &path, expected)?
                    {
                        self.blob(id, &file.name, expected, &why)?;
                    }
                }
                Kind::Log | Kind::Snapshot | Kind::Spool(_) | Kind::Aside | Kind::Leftover | Kind::Strange => {}
            }
        }
        Ok(())
    }

    /// The log has the whole text: what cannot be mended goes, and whoever reads it is sent to the log. Where no record
    /// speaks of a spool it is kept up to the damage.
    fn spools(&mut self, examined: &Examined) -> io::Result<()> {
        let id = examined.id;
        for file in &examined.files {
            let Kind::Spool(turn) = file.kind else { continue };
            let path = self.folder.layout.session(id).join(&file.name);
            let sum = examined.spools.get(&turn);
            match (spools::look(self.folder, &path, turn, sum)?, sum) {
                (spools::State::Changed(why), Some(sum)) => self.changed_spool(id, &path, sum, &why)?,
                (spools::State::BadFrom(offset), _) => self.cut_spool(id, &path, offset)?,
                (spools::State::Good | spools::State::Changed(_), _) => {}
            }
        }
        Ok(())
    }

    fn changed_spool(&mut self, id: SessionId, path: &Path, sum: &SpoolSum, why: &str) -> io::Result<()> {
        match spools::mended(self.folder, path, sum)? {
            Some(mended) => {
                self.act(path, Some(id), MENDED.into(), |folder| folder.replace(path, &[&mended], Keep::Synced))
            }
            None => self.act(path, Some(id), format!("removed: {why}"), |folder| remove(folder, path)),
        }
    }

    fn cut_spool(&mut self, id: SessionId, path: &Path, offset: u64) -> io::Result<()> {
        self.act(path, Some(id), format!("cut at byte {offset}, where it is damaged"), |folder| {
            let mut content = folder.read_if_there(path, u64::MAX)?.unwrap_or_default();
            content.truncate(usize::try_from(offset).unwrap_or(usize::MAX));
            folder.replace(path, &[&content], Keep::Synced)
        })
    }

    fn blob(&mut self, id: SessionId, name: &str, expected: &super::logs::Expected, why: &str) -> io::Result<()> {
        let path = self.folder.layout.session(id).join(name);
        if let Some(mended) = blobs::mended(self.folder, &path, expected)? {
            return self.act(&path, Some(id), MENDED.into(), |folder| folder.replace(&path, &[&mended], Keep::Synced));
        }
        self.put_aside(id, name, why)
    }

    fn put_aside(&mut self, id: SessionId, name: &str, why: &str) -> io::Result<()> {
        let path = self.folder.layout.session(id).join(name);
        let aside = self.folder.layout.damaged_blob(id, name);
        self.act(&path, Some(id), format!("put aside in damaged/{name}: {why}"), |folder| {
            make_parents(folder, id, &aside)?;
            folder.disk.rename(&path, &aside)?;
            for changed in [aside.parent(), path.parent()].into_iter().flatten() {
                folder.disk.sync_dir(changed)?;
            }
            Ok(())
        })
    }

    /// Nothing is left of these; an empty file says that this is known. What is no file in the place of one is put aside.
    fn missing(&mut self, id: SessionId, told: &Told) -> io::Result<()> {
        for name in told.blobs.keys() {
            let aside = self.folder.layout.damaged_blob(id, name);
            if !self.folder.disk.look(&aside).is_err_and(|error| is_missing(&error)) {
                continue;
            }
            let path = self.folder.layout.session(id).join(name);
            match self.folder.disk.look(&path) {
                Ok(Look::Folder(_) | Look::Other) => self.put_aside(id, name, examine::ODD)?,
                Err(error) if is_missing(&error) => self.note_missing(id, &path, &aside)?,
                Ok(Look::File(_)) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn note_missing(&mut self, id: SessionId, path: &Path, aside: &Path) -> io::Result<()> {
        let what = "it is gone, and cannot be brought back; noted in damaged/".to_owned();
        self.act(path, Some(id), what, |folder| {
            make_parents(folder, id, aside)?;
            folder.replace(aside, &[], Keep::Synced)
        })
    }
}

fn told_of(salvaged: &Salvaged) -> String {
    let Salvaged { slots, mended, lost, unproven, cut_bytes } = salvaged;
    let counted = |count: u64, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    let mut what = format!("written anew with {}", counted(slots.len() as u64 - lost, "event"));
    for (count, one, of) in [
        (*mended, "line", "mended by one bit"),
        (*lost, "event", "lost, each with event_lost in its place"),
        (*unproven, "event", "kept whose sum cannot be proven"),
        (*cut_bytes, "byte", "cut from its end"),
    ] {
        if count > 0 {
            what.push_str(&format!(", {} {of}", counted(count, one)));
        }
    }
    what.push_str("; the old one is kept beside it");
    what
}

/// Lets go of a session that is gone as a whole, as if it had been deleted.
fn let_go(folder: &Folder, session: SessionId, now: Timestamp) -> io::Result<()> {
    keys::note_purged(folder, &[session], now).map_err(io::Error::other)?;
    remove(folder, &folder.layout.open_mark(session))?;
    listing::forget(folder, session).map_err(io::Error::other)
}

fn remove(folder: &Folder, path: &Path) -> io::Result<()> {
    match folder.disk.remove(path) {
        Err(error) if !is_missing(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Makes the folders that a path below a session's folder lies in, and syncs those that hold them.
fn make_parents(folder: &Folder, id: SessionId, path: &Path) -> io::Result<()> {
    let base = folder.layout.session(id);
    let above: Vec<&Path> = path.ancestors().skip(1).take_while(|above| *above != base).collect();
    for above in above.into_iter().rev() {
        folder.disk.make_dir(above)?;
        if let Some(holder) = above.parent() {
            folder.disk.sync_dir(holder)?;
        }
    }
    Ok(())
}

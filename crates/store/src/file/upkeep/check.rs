//! Reads everything in a data folder and tells what is not as it should be. It changes nothing and takes no lock.

use std::{io, path::Path};

use tenure_core::ids::SessionId;

use super::{
    Check, CheckOptions, Finding, Level, Progress, Remedy, blobs,
    examine::{self, Examined, File, Kind},
    line_files,
    logs::{Told, Trouble},
    rows::{self, Rows},
    spools,
};
use crate::{
    Error, Result,
    disk::Look,
    file::{
        folder::{Folder, is_missing},
        lock, trash,
    },
    name::TEMPORARY,
};

const LOST: &str =
    "the whole session is gone, and nobody deleted it: restore it from a backup, or let go of it with repair";
const LEFTOVER: &str = "it is of a write that did not come to its end";

pub(super) fn check(folder: &Folder, options: &CheckOptions, progress: Progress<'_>) -> Result<Check> {
    let failed = |error: io::Error| Error::unread("the data folder", &error);
    let mut checker = Checker { folder, options, rows: Rows::default(), check: Check::default() };
    let all = examine::sessions(folder).map_err(failed)?;
    if options.sessions.is_empty() {
        checker.shared().map_err(failed)?;
    }
    checker.rows = Rows::read(folder).map_err(failed)?;
    let wanted = if options.sessions.is_empty() { &all } else { &options.sessions };
    for (done, session) in wanted.iter().enumerate() {
        progress(done as u64, wanted.len() as u64);
        if !all.contains(session) {
            if !rows::lost(folder).map_err(failed)?.contains(session) {
                return Err(Error::NoSession(*session));
            }
            checker.lost(*session);
            continue;
        }
        // One that cannot be read never keeps the others from it; one that was deleted meanwhile is none.
        if let Err(error) = checker.session(*session)
            && folder.disk.look(&folder.layout.session(*session)).is_ok()
        {
            checker.find(&folder.layout.session(*session), Some(*session), Level::Damage, Remedy::None, || {
                format!("it cannot be read: {error}")
            });
        }
    }
    progress(wanted.len() as u64, wanted.len() as u64);
    Ok(checker.check)
}

struct Checker<'a> {
    folder: &'a Folder,
    options: &'a CheckOptions,
    /// Read before the logs: what it speaks of is in them by then.
    rows: Rows,
    check: Check,
}

impl Checker<'_> {
    fn find(
        &mut self,
        path: &Path,
        session_id: Option<SessionId>,
        level: Level,
        remedy: Remedy,
        what: impl FnOnce() -> String,
    ) {
        let path = path.strip_prefix(self.folder.layout.root()).unwrap_or(path).display().to_string();
        self.check.findings.push(Finding { path, session_id, level, what: what(), remedy });
    }

    /// What all sessions share.
    fn shared(&mut self) -> io::Result<()> {
        let layout = &self.folder.layout;
        self.lines(&layout.keys(), None, &line_files::is_key)?;
        self.lines(&layout.index(), None, &line_files::is_row)?;
        for session in rows::lost(self.folder)? {
            self.lost(session);
        }
        if lock::is_damaged(self.folder)? {
            self.find(&layout.lock(), None, Level::Damage, Remedy::Repair, || "it does not tell who has it".into());
        }
        for name in self.names_in(layout.root())?.into_iter().filter(|name| name.starts_with(TEMPORARY)) {
            self.find(&layout.root().join(name), None, Level::Note, Remedy::Gc, || LEFTOVER.into());
        }
        match trash::names(self.folder) {
            Err(error) => {
                let what = || format!("nothing can be deleted: {error}; remove it");
                self.find(&layout.trash(), None, Level::Note, Remedy::None, what);
            }
            Ok(mut names) => {
                names.sort_unstable();
                for name in names {
                    let what = || "what is left of a session that was deleted".to_owned();
                    self.find(&layout.trash().join(name), None, Level::Note, Remedy::Gc, what);
                }
            }
        }
        for name in self.names_in(&layout.open())? {
            let session: Option<SessionId> = name.parse().ok();
            if session.is_none_or(|id| self.folder.disk.look(&layout.log(id)).is_err()) {
                let what = || "it marks a session that is not there".to_owned();
                self.find(&layout.open().join(name), session, Level::Note, Remedy::Gc, what);
            }
        }
        for name in self.names_in(&layout.sessions())? {
            if name.parse::<SessionId>().is_err() {
                let what = || "it is no session".to_owned();
                self.find(&layout.sessions().join(name), None, Level::Note, Remedy::None, what);
            }
        }
        Ok(())
    }

    fn lost(&mut self, id: SessionId) {
        self.find(&self.folder.layout.session(id), Some(id), Level::Damage, Remedy::Repair, || LOST.into());
    }

    fn names_in(&self, path: &Path) -> io::Result<Vec<String>> {
        match self.folder.disk.list(path) {
            Err(error) if is_missing(&error) => Ok(vec![]),
            names => names.map(|mut names| {
                names.sort_unstable();
                names
            }),
        }
    }

    /// A file of lines that stand alone.
    fn lines(&mut self, path: &Path, id: Option<SessionId>, is_good: &dyn Fn(&[u8]) -> bool) -> io::Result<()> {
        if examine::is_odd(self.folder, path)? {
            self.find(path, id, Level::Damage, Remedy::Repair, || examine::ODD.into());
            return Ok(());
        }
        let Some(lines) = line_files::look(self.folder, path, is_good, self.options.patience)? else { return Ok(()) };
        self.check.files += 1;
        self.check.bytes += lines.bytes;
        if let Some((offset, count)) = lines.bad {
            self.find(path, id, Level::Damage, Remedy::Repair, || {
                format!("{count} of its lines are damaged, the first at byte {offset}")
            });
        }
        if lines.torn > 0 {
            self.find(path, id, Level::Damage, Remedy::Repair, || {
                format!("it ends with {} bytes that are no whole line", lines.torn)
            });
        }
        Ok(())
    }

    fn session(&mut self, id: SessionId) -> io::Result<()> {
        let Some(examined) = examine::session(self.folder, id, &self.rows, self.options.patience)? else {
            return Ok(());
        };
        let base = self.folder.layout.session(id);
        if examined.lost_its_log() {
            self.find(&base, Some(id), Level::Damage, Remedy::None, || {
                "its log is lost: restore it from a backup; what is left stays as it is".into()
            });
            return Ok(());
        }
        let Some(told) = examined.told.as_ref().filter(|told| told.events > 0 || told.is_damaged()) else {
            self.find(&base, Some(id), Level::Note, Remedy::Gc, || {
                "it has no log: a session that never came to be".into()
            });
            return Ok(());
        };
        self.check.sessions += 1;
        self.check.events += told.events;
        self.log(id, told);
        self.snapshot(&examined, told)?;
        for file in &examined.files {
            self.check.files += 1;
            self.check.bytes += file.stat.bytes;
            self.file(&examined, told, file)?;
        }
        self.missing(id, told)
    }

    fn log(&mut self, id: SessionId, told: &Told) {
        let path = self.folder.layout.log(id);
        let (remedy, what) = match &told.trouble {
            None => return,
            Some(Trouble::Torn { after }) => {
                (Remedy::Repair, format!("it ends with what is no whole decision, after event {after}"))
            }
            Some(Trouble::Bad { after, why }) => {
                (Remedy::Repair, format!("from event {} on it cannot be read: {why}", after + 1))
            }
            Some(Trouble::Lost { after, last }) => {
                (Remedy::Repair, format!("its end is lost: it held event {last}, and ends after event {after}"))
            }
            Some(Trouble::Foreign { seq, why }) => (Remedy::None, format!("event {seq} cannot be understood: {why}")),
        };
        self.find(&path, Some(id), Level::Damage, remedy, || what);
    }

    fn snapshot(&mut self, examined: &Examined, told: &Told) -> io::Result<()> {
        if let Some(why) = examine::snapshot_fault(self.folder, examined, told)? {
            let path = self.folder.layout.snapshot(examined.id);
            self.find(&path, Some(examined.id), Level::Damage, Remedy::Repair, || why.into());
        }
        Ok(())
    }

    fn file(&mut self, examined: &Examined, told: &Told, file: &File) -> io::Result<()> {
        let id = examined.id;
        let path = self.folder.layout.session(id).join(&file.name);
        match file.kind {
            Kind::Log | Kind::Snapshot | Kind::Aside => {}
            Kind::TurnRecord => {
                let record = self.folder.read_if_there(&path, u64::MAX)?;
                if record.is_some_and(|record| !line_files::is_record(&record)) {
                    self.find(&path, Some(id), Level::Damage, Remedy::Repair, || "it is damaged".into());
                }
            }
            Kind::Spool(turn) => {
                let what = match spools::look(self.folder, &path, turn, examined.spools.get(&turn))? {
                    spools::State::Good => return Ok(()),
                    spools::State::Changed(why) => why,
                    spools::State::BadFrom(offset) => format!("it is damaged from byte {offset} on"),
                };
                self.find(&path, Some(id), Level::Damage, Remedy::Repair, || what);
            }
            Kind::Leftover => {
                self.find(&path, Some(id), Level::Note, Remedy::Gc, || LEFTOVER.into());
            }
            // One that an event names is told of below.
            Kind::Strange if told.blobs.contains_key(&file.name) => {}
            Kind::Strange => {
                self.find(&path, Some(id), Level::Note, Remedy::None, || examine::ODD.into());
            }
            Kind::Blob => match told.blobs.get(&file.name) {
                Some(expected) => {
                    if let blobs::State::Damaged(why) = blobs::look(self.folder, &path, expected)? {
                        self.find(&path, Some(id), Level::Damage, Remedy::Repair, || why);
                    }
                }
                // Where the log cannot be read to its end, nobody knows what it names.
                None if told.trouble.is_some() => {}
                None => self.find(&path, Some(id), Level::Note, Remedy::Gc, || "no event names it".into()),
            },
        }
        Ok(())
    }

    fn missing(&mut self, id: SessionId, told: &Told) -> io::Result<()> {
        for name in told.blobs.keys() {
            let path = self.folder.layout.session(id).join(name);
            let what = match self.folder.disk.look(&path) {
                Ok(Look::File(_)) => continue,
                Ok(Look::Folder(_) | Look::Other) => examine::ODD,
                Err(error) if !is_missing(&error) => return Err(error),
                Err(_) => "an event names it and it is not there",
            };
            match self.folder.disk.look(&self.folder.layout.damaged_blob(id, name)) {
                Ok(_) => self.find(&path, Some(id), Level::Note, Remedy::None, || {
                    "it is lost; what was left of it lies in damaged/".into()
                }),
                Err(_) => self.find(&path, Some(id), Level::Damage, Remedy::Repair, || what.into()),
            }
        }
        Ok(())
    }
}

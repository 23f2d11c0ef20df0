//! The logs that are open by now: a bounded number of file handles, one `Log` per session and never two.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use tenure_core::ids::SessionId;

use super::{Durability, blocking, folder::Folder, log::Log, log::ends_at, snapshot};
use crate::{
    Error, Result,
    disk::{DiskFile, Open},
    line::Place,
};

/// Logs kept open at a time; more only while more are in use at the same instant.
const LOGS_OPEN_MAX: usize = 256;

pub(crate) struct Logs {
    folder: Arc<Folder>,
    slots: Mutex<Slots>,
    /// Sessions that an earlier life left open: it may have written to their logs without syncing.
    unsynced: Mutex<HashSet<SessionId>>,
    durability: Durability,
}

#[derive(Default)]
struct Slots {
    by_session: HashMap<SessionId, Slot>,
    tick: u64,
}

/// The lock of a cell is held while its log is being opened, so that nobody opens it twice.
type Cell = Arc<tokio::sync::Mutex<Option<Arc<Log>>>>;

struct Slot {
    cell: Cell,
    used: u64,
}

/// What to do when there is no log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Refuse,
    Make,
}

impl Logs {
    pub fn new(folder: Arc<Folder>, left_open: Vec<SessionId>, durability: Durability) -> Self {
        let unsynced = Mutex::new(left_open.into_iter().collect());
        Self { folder, slots: Mutex::default(), unsynced, durability }
    }

    /// The log of a session that exists.
    pub async fn get(self: &Arc<Self>, session: SessionId) -> Result<Arc<Log>> {
        let log = self.open(session, Missing::Refuse).await?;
        if log.exists() { Ok(log) } else { Err(self.absent(session)) }
    }

    /// Why there is no log: there is no session, or its log was lost.
    fn absent(&self, session: SessionId) -> Error {
        match self.is_lost(session) {
            true => Error::Damaged { session, seq: 0, why: "its log is lost".into() },
            false => Error::NoSession(session),
        }
    }

    /// Whether it has what only a session that had events has.
    fn is_lost(&self, session: SessionId) -> bool {
        let layout = &self.folder.layout;
        let lived = |path: &Path| self.folder.disk.list(path).is_ok_and(|names| !names.is_empty());
        self.folder.disk.stat(&layout.snapshot(session)).is_ok()
            || lived(&layout.turns(session))
            || lived(&layout.spools(session))
    }

    /// The log of a session that exists or is about to: its first decision may still have to come.
    pub async fn get_or_make(self: &Arc<Self>, session: SessionId) -> Result<Arc<Log>> {
        self.open(session, Missing::Make).await
    }

    /// The log if it is open, for those who need nothing from a closed one.
    pub async fn get_if_open(&self, session: SessionId) -> Option<Arc<Log>> {
        let cell = self.slots().by_session.get(&session)?.cell.clone();
        cell.lock().await.clone()
    }

    /// Puts a log in place where there is none; nobody can open it meanwhile.
    pub async fn put(
        self: &Arc<Self>,
        session: SessionId,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let mut guard = self.cell(session).lock_owned().await;
        let logs = self.clone();
        blocking(move || {
            let there = match &*guard {
                Some(log) => log.exists(),
                None => match logs.open_file(session, Missing::Refuse) {
                    Ok(log) => log.exists(),
                    Err(Error::NoSession(_)) => false,
                    Err(error) => return Err(error),
                },
            };
            if there {
                return Err(Error::Exists(session));
            }
            // What is open under this name is another file.
            *guard = None;
            work()
        })
        .await
    }

    /// Takes a session's log out of its place; nobody can open or append to it meanwhile, and whoever still holds it finds
    /// no session afterwards.
    pub async fn take_out(
        self: &Arc<Self>,
        session: SessionId,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let mut guard = self.cell(session).lock_owned().await;
        let writer = match &*guard {
            Some(log) => Some(log.writer().lock_owned().await),
            None => None,
        };
        let logs = self.clone();
        let taken = blocking(move || {
            let there = match &*guard {
                Some(log) => log.exists(),
                None => match logs.open_file(session, Missing::Refuse) {
                    Ok(log) => log.exists(),
                    Err(Error::NoSession(_) | Error::Damaged { .. }) => false,
                    Err(error) => return Err(error),
                },
            };
            // What is left of a session whose log is lost can go as well.
            if !there && !logs.is_lost(session) {
                return Err(Error::NoSession(session));
            }
            work()?;
            if let Some(log) = guard.take() {
                log.leave();
            }
            logs.unsynced.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
            drop(writer);
            Ok(())
        })
        .await;
        self.forget_empty(session);
        taken
    }

    /// Whether an earlier life may have left unsynced bytes in this log.
    pub fn is_unsynced(&self, session: SessionId) -> bool {
        self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).contains(&session)
    }

    async fn open(self: &Arc<Self>, session: SessionId, missing: Missing) -> Result<Arc<Log>> {
        let cell = self.cell(session);
        let mut guard = cell.lock_owned().await;
        if let Some(log) = guard.as_ref().filter(|log| !log.is_gone()) {
            return Ok(log.clone());
        }
        let logs = self.clone();
        // The guard goes with the work: if the asker gives up, the next one still waits for it.
        let opened = blocking(move || {
            let log = Arc::new(logs.open_file(session, missing)?);
            *guard = Some(log.clone());
            Ok(log)
        })
        .await;
        if opened.is_err() {
            self.forget_empty(session);
        }
        opened
    }

    fn cell(&self, session: SessionId) -> Cell {
        let mut slots = self.slots();
        slots.tick += 1;
        let used = slots.tick;
        if let Some(slot) = slots.by_session.get_mut(&session) {
            slot.used = used;
            return slot.cell.clone();
        }
        slots.make_room();
        let cell = Cell::default();
        slots.by_session.insert(session, Slot { cell: cell.clone(), used });
        cell
    }

    /// A session that is not there leaves nothing behind, however often it is asked for.
    fn forget_empty(&self, session: SessionId) {
        let mut slots = self.slots();
        if slots.by_session.get(&session).is_some_and(Slot::is_unused) {
            slots.by_session.remove(&session);
        }
    }

    fn open_file(&self, session: SessionId, missing: Missing) -> Result<Log> {
        let failed = |error: io::Error| Error::disk(format_args!("the log of {session}"), &error);
        let unread = |error: io::Error| Error::unread(format_args!("the log of {session}"), &error);
        let path = self.folder.layout.log(session);
        let file = match self.folder.open_if_there(&path, Open::Existing).map_err(unread)? {
            Some(file) => file,
            None if missing == Missing::Refuse => return Err(self.absent(session)),
            None => {
                self.folder.disk.make_dir(&self.folder.layout.session(session)).map_err(failed)?;
                self.folder.disk.open(&path, Open::Create).map_err(failed)?
            }
        };
        let (from, told_seq) = self.known_place(session, &*file);
        if self.is_unsynced(session) {
            // What a killed daemon wrote may only be in the page cache, and so may the file's name; it is neither shown
            // nor built on before it is safe. What a snapshot speaks of was synced before.
            file.sync_again(from.offset).map_err(failed)?;
            self.folder.disk.sync_dir(&self.folder.layout.session(session)).map_err(failed)?;
            self.folder.disk.sync_dir(&self.folder.layout.sessions()).map_err(failed)?;
            self.unsynced.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        }
        // A snapshot is only taken of what the log holds for good.
        let expected_seq = if self.durability == Durability::Power { told_seq } else { 0 };
        Log::open(self.folder.clone(), session, file, from, expected_seq)
    }

    /// A place up to which the log was good when its snapshot was taken; the start if there is none that fits. And the
    /// last event that the snapshot knows of.
    fn known_place(&self, session: SessionId, file: &dyn DiskFile) -> (Place, u64) {
        let Some(place) = snapshot::read(&self.folder, session).map(|snapshot| snapshot.place) else {
            return (Place::START, 0);
        };
        let told_seq = place.seq;
        (Some(place).filter(|place| ends_at(file, place).unwrap_or(false)).unwrap_or(Place::START), told_seq)
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    /// Closes the log that was not used for longest, if one is not in use.
    fn make_room(&mut self) {
        if self.by_session.len() < LOGS_OPEN_MAX {
            return;
        }
        let oldest = self.by_session.iter().filter(|(_, slot)| slot.is_unused()).min_by_key(|(_, slot)| slot.used);
        if let Some(session) = oldest.map(|(session, _)| *session) {
            self.by_session.remove(&session);
        }
    }
}

impl Slot {
    /// New holders only come through the slots, which are locked: what is unused now stays so.
    fn is_unused(&self) -> bool {
        if Arc::strong_count(&self.cell) > 1 {
            return false;
        }
        match self.cell.try_lock() {
            Ok(log) => log.as_ref().is_none_or(|log| Arc::strong_count(log) == 1 && !log.is_overlong()),
            Err(_) => false,
        }
    }
}

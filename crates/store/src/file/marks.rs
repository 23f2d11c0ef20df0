//! The marks in `open/`: which sessions a start-up must look at. A mark is durable before its session's first append of
//! this life; a session that was only made has nothing that a start-up would have to look at.

use std::{
    collections::HashSet,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use tenure_core::ids::SessionId;

use super::{
    folder::{Folder, is_missing},
    lock::Lock,
};
use crate::{Error, Result, disk::Open};

pub(crate) struct Marks {
    folder: Arc<Folder>,
    lock: Lock,
    /// Sessions whose mark is known to be there and synced.
    marked: Mutex<HashSet<SessionId>>,
    /// Whether this life's first syncs are done: epoch, folders, and marks that an earlier life may not have synced.
    founded: Mutex<bool>,
}

impl Marks {
    pub fn new(folder: Arc<Folder>, lock: Lock) -> Self {
        Self { folder, lock, marked: Mutex::default(), founded: Mutex::default() }
    }

    pub fn epoch(&self) -> crate::Epoch {
        self.lock.epoch
    }

    /// Sessions marked by now; names that are no ids are passed over.
    pub fn list(&self) -> Result<Vec<SessionId>> {
        let names = self
            .folder
            .disk
            .list(&self.folder.layout.open())
            .map_err(|e| Error::unread("the list of open sessions", &e))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Makes sure that a start-up will find this session. Called before every append; costs nothing but once.
    pub fn put(&self, session: SessionId) -> Result<()> {
        self.found()?;
        if self.marked.lock().unwrap_or_else(PoisonError::into_inner).contains(&session) {
            return Ok(());
        }
        self.make(session)?;
        let failed = |error: io::Error| Error::disk(format_args!("to mark {session} as open"), &error);
        self.folder.disk.sync_dir(&self.folder.layout.open()).map_err(failed)?;
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).insert(session);
        Ok(())
    }

    /// Marks a session that is being made: its first append makes sure that the mark is durable.
    pub fn put_new(&self, session: SessionId) -> Result<()> {
        self.found()?;
        self.make(session)
    }

    fn make(&self, session: SessionId) -> Result<()> {
        let failed = |error: io::Error| Error::disk(format_args!("to mark {session} as open"), &error);
        self.folder.disk.open(&self.folder.layout.open_mark(session), Open::Create).map_err(failed)?;
        Ok(())
    }

    /// Takes the mark away; not synced, a mark too many does no harm.
    pub fn remove(&self, session: SessionId) -> Result<()> {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).remove(&session);
        match self.folder.disk.remove(&self.folder.layout.open_mark(session)) {
            Err(error) if !is_missing(&error) => Err(Error::disk(format_args!("to mark {session} as settled"), &error)),
            _ => Ok(()),
        }
    }

    /// Does this life's first syncs, once, before anything is acknowledged.
    pub fn found(&self) -> Result<()> {
        self.sync_folders().map_err(|error| Error::disk("to sync the data folder", &error))
    }

    fn sync_folders(&self) -> io::Result<()> {
        let mut founded = self.founded.lock().unwrap_or_else(PoisonError::into_inner);
        if *founded {
            return Ok(());
        }
        let (disk, layout) = (&self.folder.disk, &self.folder.layout);
        self.lock.sync()?;
        disk.sync_dir(&layout.open())?;
        disk.sync_dir(&layout.sessions())?;
        disk.sync_dir(layout.root())?;
        // A life that was killed before this point may have made the data folder, and those that it lies in.
        for above in layout.root().ancestors().skip(1) {
            match disk.sync_dir(above) {
                Err(error) if !is_not_ours(&error) => return Err(error),
                _ => {}
            }
        }
        *founded = true;
        Ok(())
    }
}

/// Whether a folder above the data folder cannot be synced by us at all: then we cannot have made anything in it.
fn is_not_ours(error: &io::Error) -> bool {
    use io::ErrorKind::*;
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | InvalidInput | Unsupported)
}

//! The data folder: a disk, the names in it, and what people should be told of it. Shared by all parts of the file store.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::layout::Layout;
use crate::{
    disk::{Disk, DiskFile, Open},
    name::TEMPORARY,
    notices::Notices,
};

/// Files kept aside under one name; more than this are not accidents any more.
const ASIDE_MAX: u32 = 10_000;

pub(crate) struct Folder {
    pub disk: Arc<dyn Disk>,
    pub layout: Layout,
    pub notices: Notices,
    /// Numbers for files under way. It starts at 0 in every life, so that what a crash left is written over.
    temporary: AtomicU64,
}

/// Whether a file must survive a power cut before its writer goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    Synced,
    /// It is a cache, and checked when it is read.
    Unsynced,
}

impl Folder {
    pub fn new(disk: Arc<dyn Disk>, layout: Layout) -> Self {
        Self { disk, layout, notices: Notices::default(), temporary: AtomicU64::new(0) }
    }

    /// Puts a whole file in place at once: readers see the old one or the new one. Its folder must be there.
    pub fn replace(&self, path: &Path, pieces: &[&[u8]], keep: Keep) -> io::Result<()> {
        let folder = path.parent().ok_or_else(|| io::Error::other("a file needs a folder"))?;
        let number = self.temporary.fetch_add(1, Ordering::Relaxed);
        let temporary = folder.join(format!("{TEMPORARY}{number}"));
        let written = self.write_new(&temporary, pieces, keep).and_then(|()| self.disk.rename(&temporary, path));
        if let Err(error) = written {
            // Best effort: a leftover is written over in the next life.
            let _ = self.disk.remove(&temporary);
            return Err(error);
        }
        if keep == Keep::Synced { self.disk.sync_dir(folder) } else { Ok(()) }
    }

    fn write_new(&self, path: &Path, pieces: &[&[u8]], keep: Keep) -> io::Result<()> {
        let file = self.disk.open(path, Open::Empty)?;
        let mut offset = 0;
        for piece in pieces {
            file.write_all_at(piece, offset)?;
            offset += piece.len() as u64;
        }
        if keep == Keep::Synced { file.sync() } else { Ok(()) }
    }

    /// The first name that nothing has yet.
    pub fn free_name(&self, name: impl Fn(u32) -> PathBuf) -> io::Result<PathBuf> {
        let is_free = |path: &PathBuf| self.disk.look(path).is_err_and(|error| is_missing(&error));
        (1..ASIDE_MAX).map(name).find(is_free).ok_or_else(|| io::Error::other("too many files were kept aside"))
    }

    /// Opens a file; `None` if there is none.
    pub fn open_if_there(&self, path: &Path, how: Open) -> io::Result<Option<Box<dyn DiskFile>>> {
        match self.disk.open(path, how) {
            Ok(file) => Ok(Some(file)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The whole content of a file; `None` if there is none.
    pub fn read_if_there(&self, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
        match self.open_if_there(path, Open::Read)? {
            Some(file) => file.read_whole(bytes_max).map(Some),
            None => Ok(None),
        }
    }
}

pub(crate) fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

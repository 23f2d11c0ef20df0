//! An open file of the faulty disk, where planned faults strike. It never holds content of its own.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Harm, Point,
    content::Change,
    disk::{Entry, State, lock},
};
use crate::disk::DiskFile;

pub(super) struct Handle {
    disk: Arc<Mutex<State>>,
    file: usize,
    kind: Kind,
    /// Whether this handle holds the file's lock.
    locked: Mutex<bool>,
}

impl Handle {
    pub fn new(disk: Arc<Mutex<State>>, file: usize, path: &Path) -> Handle {
        Handle { disk, file, kind: Kind::of(path), locked: Mutex::new(false) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.disk)
    }
}

impl DiskFile for Handle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state();
        let live = &state.files[self.file].live;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(live.len());
        // Short reads are allowed, so they happen.
        let read = buffer.len().min(live.len() - from).min(4099);
        buffer[..read].copy_from_slice(&live[from..from + read]);
        Ok(read)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let due = state.due(self.kind.writing());
        let done = match due {
            None | Some((Harm::All, _)) => bytes.len(),
            Some((Harm::Half, _)) => bytes.len() / 2,
            Some((Harm::Nothing, _)) => 0,
        };
        let offset = usize::try_from(offset).map_err(io::Error::other)?;
        state.files[self.file].change(Change::Write { offset, bytes: bytes[..done].to_vec() });
        due.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let due = state.due(self.kind.cutting());
        if due.as_ref().is_none_or(|(harm, _)| *harm == Harm::All) {
            let len = usize::try_from(bytes).map_err(io::Error::other)?;
            state.files[self.file].change(Change::SetLen(len));
        }
        due.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state().files[self.file].live.len() as u64)
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        Ok(self.state().names.get(path) == Some(&Entry::File(self.file)))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let due = state.due(self.kind.syncing());
        let file = &mut state.files[self.file];
        match due {
            None | Some((Harm::All, _)) => file.sync(),
            Some((Harm::Half, _)) => file.sync_half(),
            Some((Harm::Nothing, _)) => file.drop_unsynced(),
        }
        due.map_or(Ok(()), |(_, error)| Err(error))
    }

    fn try_lock(&self) -> io::Result<bool> {
        let mut state = self.state();
        let taken = std::mem::replace(&mut state.files[self.file].locked, true);
        if !taken {
            *self.locked.lock().unwrap_or_else(PoisonError::into_inner) = true;
        }
        Ok(!taken)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if *self.locked.lock().unwrap_or_else(PoisonError::into_inner) {
            self.state().files[self.file].locked = false;
        }
    }
}

/// What a file is for, as faults tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Log,
    Spool,
    Other,
}

impl Kind {
    fn of(path: &Path) -> Kind {
        match path.file_name().and_then(|name| name.to_str()) {
            Some("events.ndjson") => Kind::Log,
            Some(name) if name.ends_with(".log") => Kind::Spool,
            _ => Kind::Other,
        }
    }

    fn writing(self) -> Point {
        match self {
            Kind::Log => Point::LogWrite,
            Kind::Spool => Point::SpoolWrite,
            Kind::Other => Point::Other,
        }
    }

    fn cutting(self) -> Point {
        match self {
            Kind::Log => Point::LogCut,
            Kind::Spool => Point::SpoolCut,
            Kind::Other => Point::Other,
        }
    }

    fn syncing(self) -> Point {
        match self {
            Kind::Log => Point::LogSync,
            Kind::Spool | Kind::Other => Point::Other,
        }
    }
}

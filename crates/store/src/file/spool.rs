//! The spools: one file of deltas per turn, handed to the operating system record by record. Nothing here is synced.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tenure_core::{
    delta::Delta,
    ids::{SessionId, TurnId},
};

use super::{
    folder::{Folder, is_missing},
    lines::{Lines, Next, whole_len},
};
use crate::{
    Error, Result, SpoolPage, SpoolRecord, SpoolSum, delta_line,
    disk::{DiskFile, Open},
    line::LINE_BYTES_MAX,
};

/// Spools kept open for writing; more only while more are written at the same instant.
const SPOOLS_OPEN_MAX: usize = 256;
/// Closed turns that are remembered, so that their spools can be swept while their session is still warm.
const CLOSED_MAX: usize = 4096;

type Key = (SessionId, TurnId);

pub(crate) struct Spools {
    folder: Arc<Folder>,
    open: Mutex<Handles>,
    closed: Mutex<Closed>,
}

#[derive(Default)]
struct Handles {
    by_turn: HashMap<Key, Handle>,
    tick: u64,
}

struct Handle {
    spool: Arc<Mutex<Spool>>,
    used: u64,
}

/// A spool that is open for writing.
struct Spool {
    file: Box<dyn DiskFile>,
    /// The end of the last whole record. Readers see nothing behind it.
    len: u64,
    /// A write failed and what it left could not be cut yet.
    overlong: bool,
    /// Of all that was written. `None` where it was not written in one go: who needs it then reads the file, once.
    hasher: Option<blake3::Hasher>,
}

/// What is known of a spool that was closed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Summed {
    Known(Option<SpoolSum>),
    /// Its file tells.
    Unknown,
}

#[derive(Default)]
struct Closed {
    turns: HashSet<Key>,
    order: VecDeque<Key>,
}

impl Spools {
    pub fn new(folder: Arc<Folder>) -> Self {
        Self { folder, open: Mutex::default(), closed: Mutex::default() }
    }

    /// Appends all deltas with one write; gives the end of each.
    pub fn append(&self, session: SessionId, turn: TurnId, deltas: &[Delta]) -> Result<Vec<u64>> {
        let spool = self.handle(session, turn)?;
        let mut spool = lock(&spool);
        let failed = |error: io::Error| Error::disk(format_args!("deltas of {turn}"), &error);
        spool.mend().map_err(failed)?;
        let (bytes, ends) = encode(deltas, turn, spool.len)?;
        if let Err(error) = spool.file.write_all_at(&bytes, spool.len) {
            spool.overlong = true;
            // If this fails too, the next append tries again first.
            let _ = spool.mend();
            return Err(failed(error));
        }
        spool.len += bytes.len() as u64;
        if let Some(hasher) = &mut spool.hasher {
            hasher.update(&bytes);
        }
        Ok(ends)
    }

    /// Whole records after `pos`. A spool that never was cannot be told from one that was swept: from the start both
    /// are empty, since the numbered events carry the whole text; from further on both are gone.
    pub fn read(&self, session: SessionId, turn: TurnId, pos: u64, bytes: usize) -> Result<SpoolPage> {
        let written = self.written_len(session, turn);
        let failed = |error: io::Error| Error::unread(format_args!("deltas of {turn}"), &error);
        let path = self.folder.layout.spool(session, turn);
        let Some(file) = self.folder.open_if_there(&path, Open::Read).map_err(failed)? else {
            return Ok(if pos == 0 { SpoolPage::Records(vec![]) } else { SpoolPage::Gone });
        };
        let end = match written {
            Some(len) => len,
            None => file.len().map_err(failed)?,
        };
        read_page(&*file, turn, pos, end, bytes).map_err(failed)
    }

    pub fn close(&self, session: SessionId, turn: TurnId) -> Summed {
        let handle = lock(&self.open).by_turn.remove(&(session, turn));
        lock(&self.closed).add((session, turn));
        handle.map_or(Summed::Unknown, |handle| lock(&handle.spool).summed())
    }

    /// The sum of a spool as it lies there.
    pub fn sum(&self, session: SessionId, turn: TurnId) -> Result<Option<SpoolSum>> {
        let failed = |error: io::Error| Error::unread(format_args!("deltas of {turn}"), &error);
        let path = self.folder.layout.spool(session, turn);
        let Some(file) = self.folder.open_if_there(&path, Open::Read).map_err(failed)? else { return Ok(None) };
        let (bytes, hash) = file.hash_whole().map_err(failed)?;
        Ok((bytes > 0).then(|| SpoolSum::new(bytes, &hash)))
    }

    /// The session is gone, and so are its spools.
    pub fn forget(&self, session: SessionId) {
        lock(&self.open).by_turn.retain(|(of, _), _| *of != session);
    }

    pub fn is_open(&self, session: SessionId, turn: TurnId) -> bool {
        lock(&self.open).by_turn.contains_key(&(session, turn))
    }

    /// Whether the turn was closed in this life, as far as is remembered.
    pub fn is_closed(&self, session: SessionId, turn: TurnId) -> bool {
        lock(&self.closed).turns.contains(&(session, turn))
    }

    fn written_len(&self, session: SessionId, turn: TurnId) -> Option<u64> {
        let spool = lock(&self.open).by_turn.get(&(session, turn))?.spool.clone();
        let spool = lock(&spool);
        Some(spool.len)
    }

    fn handle(&self, session: SessionId, turn: TurnId) -> Result<Arc<Mutex<Spool>>> {
        let mut handles = lock(&self.open);
        handles.tick += 1;
        let used = handles.tick;
        if let Some(handle) = handles.by_turn.get_mut(&(session, turn)) {
            handle.used = used;
            return Ok(handle.spool.clone());
        }
        // Opened under the lock: two writers of one spool would write over each other.
        let spool = Arc::new(Mutex::new(self.open_file(session, turn)?));
        handles.make_room();
        handles.by_turn.insert((session, turn), Handle { spool: spool.clone(), used });
        Ok(spool)
    }

    fn open_file(&self, session: SessionId, turn: TurnId) -> Result<Spool> {
        let failed = |error: io::Error| match is_missing(&error) {
            true => Error::NoSession(session),
            false => Error::disk(format_args!("to open the spool of {turn}"), &error),
        };
        let path = self.folder.layout.spool(session, turn);
        let file = match self.folder.open_if_there(&path, Open::Existing).map_err(failed)? {
            Some(file) => file,
            None => {
                self.folder.disk.make_dir(&self.folder.layout.spools(session)).map_err(failed)?;
                self.folder.disk.open(&path, Open::Create).map_err(failed)?
            }
        };
        let len = whole_len(&*file).map_err(failed)?;
        let hasher = (len == 0).then(blake3::Hasher::new);
        let mut spool = Spool { overlong: file.len().map_err(failed)? > len, file, len, hasher };
        spool.mend().map_err(failed)?;
        Ok(spool)
    }
}

impl Spool {
    /// Cuts off what is not a whole record.
    fn mend(&mut self) -> io::Result<()> {
        if self.overlong {
            self.file.set_len(self.len)?;
            self.overlong = false;
        }
        Ok(())
    }

    fn summed(&mut self) -> Summed {
        // What could not be cut stays in the file, and in its sum.
        let is_whole = self.mend().is_ok();
        match &self.hasher {
            Some(hasher) if is_whole => {
                Summed::Known((self.len > 0).then(|| SpoolSum::new(self.len, &hasher.finalize())))
            }
            _ => Summed::Unknown,
        }
    }
}

impl Handles {
    fn make_room(&mut self) {
        if self.by_turn.len() < SPOOLS_OPEN_MAX {
            return;
        }
        // Who holds a spool got it under the lock that is held here; an overlong one must be remembered.
        let unused = |handle: &Handle| Arc::strong_count(&handle.spool) == 1 && !lock(&handle.spool).overlong;
        let oldest = self.by_turn.iter().filter(|(_, handle)| unused(handle)).min_by_key(|(_, handle)| handle.used);
        if let Some(key) = oldest.map(|(key, _)| *key) {
            self.by_turn.remove(&key);
        }
    }
}

impl Closed {
    fn add(&mut self, key: Key) {
        if !self.turns.insert(key) {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > CLOSED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.turns.remove(&oldest);
        }
    }
}

fn encode(deltas: &[Delta], turn: TurnId, from: u64) -> Result<(Vec<u8>, Vec<u64>)> {
    let mut bytes = Vec::new();
    let mut ends = Vec::with_capacity(deltas.len());
    for delta in deltas {
        bytes.extend(delta_line::encode(delta, turn)?);
        ends.push(from + bytes.len() as u64);
    }
    Ok((bytes, ends))
}

fn read_page(file: &dyn DiskFile, turn: TurnId, pos: u64, end: u64, bytes: usize) -> io::Result<SpoolPage> {
    if !is_record_end(file, pos, end)? {
        return Ok(SpoolPage::Gone);
    }
    let mut lines = Lines::new(file, pos, end, LINE_BYTES_MAX);
    let mut records = Vec::new();
    let page_end = pos.saturating_add(bytes as u64);
    while records.is_empty() || lines.offset() < page_end {
        let delta = match lines.next()? {
            Next::Line { bytes, .. } => delta_line::decode(bytes, turn),
            Next::TooLong { .. } => None,
            Next::Torn { .. } | Next::End => break,
        };
        match delta {
            Some(delta) => records.push(SpoolRecord { pos: lines.offset(), delta }),
            // Damage: what comes before it is shown, and from there on the spool is as good as gone.
            None if records.is_empty() => return Ok(SpoolPage::Gone),
            None => break,
        }
    }
    Ok(SpoolPage::Records(records))
}

fn is_record_end(file: &dyn DiskFile, pos: u64, end: u64) -> io::Result<bool> {
    if pos == 0 || pos > end {
        return Ok(pos == 0);
    }
    let mut before = [0];
    Ok(file.read_full_at(&mut before, pos - 1)? == 1 && before == *b"\n")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

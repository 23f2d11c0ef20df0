//! A faulty disk without a store on it: what a new process finds before it opens anything. For tests.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    Fault, FaultyStore, ROOT,
    content::Content,
    disk::{Entry, FaultyDisk},
};
use crate::{
    FileStore, Options, Result,
    file::{Folder, Layout},
    upkeep::{self, Check, Repair},
};
use tenure_core::time::Timestamp;

/// A disk as it is found after a crash. The power can fail again while a store is opened on it.
pub struct Remains(pub(super) Arc<FaultyDisk>);

impl Remains {
    /// The store that a new process opens here.
    pub fn open(&self) -> Result<Arc<FaultyStore>> {
        let disk = self.0.clone();
        let inner = FileStore::open_on(disk.clone(), PathBuf::from(ROOT), &Options::default())?;
        Ok(Arc::new(FaultyStore { inner, disk }))
    }

    /// What `kill -9` leaves: all that was handed to the operating system.
    pub fn after_kill(&self) -> Remains {
        Remains(Arc::new(self.0.after_kill()))
    }

    /// The same with all of it synced: long after whoever wrote it.
    pub fn settled(&self) -> Remains {
        let disk = self.0.after_kill();
        {
            let mut state = disk.state();
            state.durable_names = state.names.clone();
            state.unsynced_names.clear();
            state.files.iter_mut().for_each(Content::sync);
        }
        Remains(Arc::new(disk))
    }

    /// What a power cut leaves: what was synced, and of the rest what the seed chooses.
    pub fn after_power_cut(&self, seed: u64) -> Remains {
        Remains(Arc::new(self.0.after_power_cut(seed)))
    }

    /// What is wrong in the data folder here.
    pub fn check(&self) -> Result<Check> {
        upkeep::on::check(&self.folder())
    }

    /// Mends it.
    pub fn repair(&self) -> Result<Repair> {
        upkeep::on::repair(&self.folder(), Timestamp::from_ms(1))
    }

    fn folder(&self) -> Folder {
        Folder::new(self.0.clone(), Layout::new(PathBuf::from(ROOT)))
    }

    /// After so many more changes every call fails, as if the power or the process were gone.
    pub fn stop_after(&self, changes: u64) {
        self.0.stop_after(changes);
    }

    pub fn plan(&self, fault: Fault) {
        self.0.plan(fault);
    }

    /// Changes made so far.
    pub fn changes(&self) -> u64 {
        self.0.changes()
    }

    /// Whether the instant that `stop_after` named has come.
    pub fn is_stopped(&self) -> bool {
        let state = self.0.state();
        state.stop_at == Some(state.changes)
    }

    /// The bytes of a file of the data folder, by its relative name.
    pub fn file(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.0.state();
        match state.names.get(&Path::new(ROOT).join(name)) {
            Some(Entry::File(file)) => Some(state.files[*file].live.clone()),
            _ => None,
        }
    }

    /// Puts other bytes in a file, as if they had always been there: a disk that rots.
    pub fn rot(&self, name: &str, bytes: Vec<u8>) {
        let mut state = self.0.state();
        if let Some(Entry::File(file)) = state.names.get(&Path::new(ROOT).join(name)).copied() {
            state.files[file] = Content { live: bytes.clone(), durable: bytes, ..Content::default() };
        }
    }

    /// The relative names of all files of the data folder.
    pub fn files(&self) -> Vec<String> {
        let state = self.0.state();
        let files = state.names.iter().filter(|(_, entry)| matches!(entry, Entry::File(_)));
        files.filter_map(|(path, _)| Some(path.strip_prefix(ROOT).ok()?.to_str()?.to_owned())).collect()
    }
}

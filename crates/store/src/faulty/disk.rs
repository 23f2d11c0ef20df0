//! A disk in memory that knows what was synced, and fails by plan. It never touches a real file.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    Fault, Harm, Point, Reason,
    content::{Change, Content},
    handle::Handle,
};
use crate::disk::{Disk, DiskFile, Look, Made, Open, Stat};

#[derive(Default)]
pub(super) struct FaultyDisk(pub(super) Arc<Mutex<State>>);

#[derive(Clone, Default)]
pub(super) struct State {
    pub files: Vec<Content>,
    pub names: BTreeMap<PathBuf, Entry>,
    pub durable_names: BTreeMap<PathBuf, Entry>,
    pub unsynced_names: Vec<NameChange>,
    pub faults: Vec<Fault>,
    pub changes: u64,
    pub stop_at: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Folder,
    File(usize),
}

/// A change in a folder that is not synced yet. Each may reach the disk without those before it, so a rename says
/// itself what gets the new name. Both names of a rename change at once; what lies in a folder goes with it.
#[derive(Debug, Clone)]
pub(super) enum NameChange {
    Put(PathBuf, Entry),
    Remove(PathBuf),
    Rename { from: PathBuf, to: PathBuf, entry: Entry },
}

impl NameChange {
    /// Whether a sync of this folder makes it safe.
    pub fn lies_in(&self, folder: &Path) -> bool {
        match self {
            NameChange::Put(path, _) | NameChange::Remove(path) => path.parent() == Some(folder),
            NameChange::Rename { from, to, .. } => [from, to].iter().any(|path| path.parent() == Some(folder)),
        }
    }

    pub fn apply(&self, names: &mut BTreeMap<PathBuf, Entry>) {
        match self {
            NameChange::Put(path, entry) => {
                names.insert(path.clone(), *entry);
            }
            NameChange::Remove(path) => {
                names.remove(path);
            }
            NameChange::Rename { from, to, entry } => {
                // If the old name leads elsewhere by now, another change has it.
                if names.get(from) == Some(entry) {
                    names.remove(from);
                }
                if *entry == Entry::Folder {
                    move_below(names, from, to);
                }
                names.insert(to.clone(), *entry);
            }
        }
    }
}

fn move_below(names: &mut BTreeMap<PathBuf, Entry>, from: &Path, to: &Path) {
    let below: Vec<PathBuf> = names.keys().filter(|path| path.starts_with(from)).cloned().collect();
    for path in below {
        if let (Ok(rest), Some(entry)) = (path.strip_prefix(from), names.remove(&path)) {
            names.insert(to.join(rest), entry);
        }
    }
}

impl FaultyDisk {
    pub fn plan(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    pub fn changes(&self) -> u64 {
        self.state().changes
    }

    pub fn stop_after(&self, changes: u64) {
        let mut state = self.state();
        state.stop_at = Some(state.changes + changes);
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

pub(super) fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Counts one change. Fails once the power is gone.
    pub fn step(&mut self) -> io::Result<()> {
        if self.stop_at == Some(self.changes) {
            return Err(io::Error::other("the power is gone"));
        }
        self.changes += 1;
        Ok(())
    }

    /// The fault that is due at this point, if one is planned.
    pub fn due(&mut self, point: Point) -> Option<(Harm, io::Error)> {
        let fault = self.faults.iter_mut().find(|fault| fault.point == point && fault.times > 0)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times -= 1;
        let code = match fault.reason {
            Reason::NoSpace => 28,
            Reason::Io => 5,
        };
        Some((fault.harm, io::Error::from_raw_os_error(code)))
    }

    /// Fails if a fault is due at this point; names are changed as a whole or not at all.
    fn refuse(&mut self, point: Point) -> io::Result<()> {
        self.due(point).map_or(Ok(()), |(_, error)| Err(error))
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.unsynced_names.push(change);
    }

    fn need_folder(&self, path: &Path) -> io::Result<()> {
        match path.parent() {
            Some(folder) if folder.parent().is_none() || self.names.get(folder) == Some(&Entry::Folder) => Ok(()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn make_file(&mut self, path: &Path) -> io::Result<usize> {
        self.need_folder(path)?;
        self.step()?;
        self.refuse(Point::Make)?;
        let file = self.files.len();
        self.files.push(Content::default());
        self.change_name(NameChange::Put(path.to_owned(), Entry::File(file)));
        Ok(file)
    }
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        let file = match (state.names.get(path).copied(), how) {
            (Some(Entry::Folder), _) => return Err(io::ErrorKind::IsADirectory.into()),
            (Some(Entry::File(_)), Open::New) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(Entry::File(file)), Open::Empty) => {
                state.step()?;
                state.files[file].change(Change::SetLen(0));
                file
            }
            (Some(Entry::File(file)), _) => file,
            (None, Open::Read | Open::Existing) => return Err(io::ErrorKind::NotFound.into()),
            (None, _) => state.make_file(path)?,
        };
        Ok(Box::new(Handle::new(self.0.clone(), file, path)))
    }

    fn make_dir(&self, path: &Path) -> io::Result<Made> {
        let mut state = self.state();
        match state.names.get(path) {
            Some(Entry::Folder) => return Ok(Made::Before),
            Some(Entry::File(_)) => return Err(io::ErrorKind::AlreadyExists.into()),
            None => state.need_folder(path)?,
        }
        state.step()?;
        state.refuse(Point::Make)?;
        state.change_name(NameChange::Put(path.to_owned(), Entry::Folder));
        Ok(Made::Now)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let state = self.state();
        if state.names.get(path) != Some(&Entry::Folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let below = state.names.keys().filter(|name| name.parent() == Some(path));
        Ok(below.filter_map(|name| Some(name.file_name()?.to_str()?.to_owned())).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let entry = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        state.step()?;
        state.refuse(Point::Rename)?;
        state.change_name(NameChange::Rename { from: from.to_owned(), to: to.to_owned(), entry });
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !matches!(state.names.get(path), Some(Entry::File(_))) {
            return Err(io::ErrorKind::NotFound.into());
        }
        state.step()?;
        state.refuse(Point::Remove)?;
        state.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if state.names.get(path) != Some(&Entry::Folder) {
            return Err(io::ErrorKind::NotFound.into());
        }
        if state.names.keys().any(|name| name.parent() == Some(path)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.step()?;
        state.refuse(Point::Remove)?;
        state.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        let state = self.state();
        let bytes = match state.names.get(path) {
            None if path.parent().is_none() => 0,
            None => return Err(io::ErrorKind::NotFound.into()),
            Some(Entry::Folder) => 0,
            Some(Entry::File(file)) => state.files[*file].live.len() as u64,
        };
        // This disk has no clock: everything is a little younger than 1970.
        Ok(Stat { bytes, modified_ms: 1 })
    }

    fn look(&self, path: &Path) -> io::Result<Look> {
        let stat = self.stat(path)?;
        Ok(match self.state().names.get(path) {
            Some(Entry::File(_)) => Look::File(stat),
            _ => Look::Folder(stat),
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        state.step()?;
        let due = state.due(Point::FolderSync);
        if due.as_ref().is_none_or(|(harm, _)| *harm == Harm::All) {
            let (synced, left): (Vec<_>, Vec<_>) =
                std::mem::take(&mut state.unsynced_names).into_iter().partition(|change| change.lies_in(path));
            state.unsynced_names = left;
            synced.iter().for_each(|change| change.apply(&mut state.durable_names));
        }
        due.map_or(Ok(()), |(_, error)| Err(error))
    }
}

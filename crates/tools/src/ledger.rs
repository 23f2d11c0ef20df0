//! Which supervisors are running: one small file each, written before the supervisor is given its order and removed when
//! it has reported. What is found at the daemon's start was left by a crash. It never decides what to kill.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use crate::process::Process;
use serde::{Deserialize, Serialize};

/// A supervisor as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) pid: i32,
    pub(crate) start_time: u64,
    /// Start times count from the system's start, so they mean nothing after another.
    pub(crate) boot_id: String,
}

impl Recorded {
    pub(crate) fn of(process: &Process) -> Self {
        Self { pid: process.pid, start_time: process.start_time, boot_id: boot_id() }
    }

    /// The process itself, if it is still the same one.
    pub(crate) fn find(&self) -> Option<Process> {
        let process = Process::read(self.pid)?;
        (process.start_time == self.start_time && boot_id() == self.boot_id).then_some(process)
    }
}

/// It does not change while anything runs, so it is read once.
fn boot_id() -> String {
    static BOOT_ID: LazyLock<String> =
        LazyLock::new(|| fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned());
    BOOT_ID.clone()
}

/// The entry of one running supervisor.
pub(crate) struct Entry(PathBuf);

impl Entry {
    /// The file appears whole or not at all. It need not survive a power cut: no process does.
    pub(crate) fn write(ledger: &Path, name: &str, recorded: &Recorded) -> io::Result<Self> {
        fs::create_dir_all(ledger)?;
        let path = ledger.join(name);
        let beside = path.with_extension("new");
        fs::write(&beside, serde_json::to_vec(recorded)?)?;
        fs::rename(&beside, &path)?;
        Ok(Self(path))
    }

    pub(crate) fn remove(self) {
        // A file that stays is harmless: its process is gone, and the next start clears it.
        let _ = fs::remove_file(self.0);
    }
}

/// All entries; files that cannot be read as one are passed over.
pub(crate) fn read(ledger: &Path) -> Vec<Recorded> {
    let Ok(files) = fs::read_dir(ledger) else { return vec![] };
    files.flatten().filter_map(|file| serde_json::from_slice(&fs::read(file.path()).ok()?).ok()).collect()
}

/// Removes all entries.
pub(crate) fn clear(ledger: &Path) {
    for file in fs::read_dir(ledger).into_iter().flatten().flatten() {
        let _ = fs::remove_file(file.path());
    }
}

//! The lock of the data folder: one daemon at a time, each with a higher epoch. A lock whose holder died never blocks.

use std::{io, thread, time::Duration};

use serde::{Deserialize, Serialize};

use super::folder::Folder;
use crate::{
    Epoch, Error, Result,
    disk::{DiskFile, Open},
};

/// How often, and how long apart, a lock is tried again whose holder is dead: a child that the holder was starting has
/// a copy of it until it becomes another program.
const DEAD_TRIES_MAX: u32 = 200;
const DEAD_TRY_PAUSE: Duration = Duration::from_millis(20);
/// How often, and how long apart, a second daemon looks for the first one's pid, which is written just after locking.
const PID_READS_MAX: u32 = 20;
const PID_READ_PAUSE: Duration = Duration::from_millis(10);
const LOCK_BYTES_MAX: usize = 4096;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Holder {
    pid: u32,
    epoch: u64,
}

/// Held for as long as the store lives; the operating system lets go of it when the process ends.
pub(crate) struct Lock {
    file: Box<dyn DiskFile>,
    pub epoch: Epoch,
}

/// The file has always the same length: one that came to the disk without its content, or the other way round, would
/// take the epoch with it.
const TEXT_BYTES: usize = 64;

impl Lock {
    /// Takes the folder and counts the epoch up. Nothing is synced here: that is done with the first append.
    pub fn take(folder: &Folder) -> Result<Lock> {
        let failed = |error: io::Error| Error::disk("to lock the data folder", &error);
        let file = folder.disk.open(&folder.layout.lock(), Open::Create).map_err(failed)?;
        let mut tries = 0;
        while !file.try_lock().map_err(failed)? {
            let pid = holder_pid(&*file);
            if is_alive(pid) || tries == DEAD_TRIES_MAX {
                return Err(Error::Locked { pid });
            }
            tries += 1;
            thread::sleep(DEAD_TRY_PAUSE);
        }
        let before = read_holder(&*file).map_or(0, |holder| holder.epoch);
        // The last number of all is no epoch that anybody came to.
        let holder = Holder { pid: std::process::id(), epoch: before.checked_add(1).unwrap_or(1) };
        let text = serde_json::to_string(&holder).map_err(|error| failed(error.into()))?;
        let text = format!("{text:<width$}\n", width = TEXT_BYTES - 1);
        file.write_all_at(text.as_bytes(), 0).map_err(failed)?;
        file.set_len(text.len() as u64).map_err(failed)?;
        Ok(Lock { file, epoch: Epoch(holder.epoch) })
    }

    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_again(0)
    }
}

/// Whether a lock is there that does not tell who had it.
pub(crate) fn is_damaged(folder: &Folder) -> io::Result<bool> {
    let file = folder.open_if_there(&folder.layout.lock(), Open::Read)?;
    Ok(file.is_some_and(|file| file.len().is_ok_and(|bytes| bytes > 0) && read_holder(&*file).is_none()))
}

/// Reads the first JSON value and passes over the rest, which a crash may have left from a longer one.
fn read_holder(file: &dyn DiskFile) -> Option<Holder> {
    let mut text = [0; LOCK_BYTES_MAX];
    let read = file.read_full_at(&mut text, 0).ok()?;
    serde_json::Deserializer::from_slice(&text[..read]).into_iter().next()?.ok()
}

/// Whether a process of this number runs; where that cannot be told, it is taken to run.
fn is_alive(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The state stands after the name, which may hold anything: a zombie has ended.
        Ok(stat) => !stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X'])),
        Err(_) => !std::path::Path::new("/proc/self").exists(),
    }
}

fn holder_pid(file: &dyn DiskFile) -> u32 {
    for _ in 0..PID_READS_MAX {
        if let Some(holder) = read_holder(file) {
            return holder.pid;
        }
        thread::sleep(PID_READ_PAUSE);
    }
    0
}

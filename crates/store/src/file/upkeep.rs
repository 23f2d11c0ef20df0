//! Looks after a data folder as a whole: `check` tells what is wrong in it, `repair` mends what can be mended, `gc` removes
//! what nobody needs. Only `check` may run beside a daemon; the others take the folder for themselves.

use std::{path::Path, sync::Arc, time::Duration};

use serde::Serialize;
use tenure_core::{ids::SessionId, time::Timestamp};

use super::{folder::Folder, layout::Layout, lock::Lock};
use crate::{Error, Result, disk::OsDisk};

mod blobs;
mod check;
mod examine;
pub(super) mod flip;
mod gc;
pub(super) mod line_files;
mod logs;
mod repair;
mod rewrite;
mod rows;
mod salvage;
mod spools;

pub use gc::{Gc, GcOptions, Removed};
pub use repair::{Action, Repair};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Something that was kept is not there as it was.
    Damage,
    /// What a crash or an upload leaves; it harms nobody.
    Note,
}

/// What takes care of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    Repair,
    Gc,
    /// Nothing here can do anything about it.
    None,
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// In the data folder.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    pub level: Level,
    pub what: String,
    pub remedy: Remedy,
}

/// What a check saw.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Check {
    pub sessions: u64,
    pub events: u64,
    pub files: u64,
    pub bytes: u64,
    pub findings: Vec<Finding>,
}

impl Check {
    /// Whether nothing that was kept is damaged.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|finding| finding.level == Level::Note)
    }
}

/// What to look at, and how.
#[derive(Debug, Clone, Default)]
pub struct CheckOptions {
    /// All of them, and what they share, if there are none here.
    pub sessions: Vec<SessionId>,
    /// How long a file that seems to be written just now is given to come to its end.
    pub patience: Duration,
}

/// Told now and then: sessions done, and how many there are.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// The sessions that have a folder there, oldest first.
pub fn sessions(path: &Path) -> Result<Vec<SessionId>> {
    examine::sessions(&folder(path)?).map_err(|error| Error::unread("the list of the sessions", &error))
}

/// Reads everything and changes nothing; a daemon may run meanwhile.
pub fn check(path: &Path, options: &CheckOptions, progress: Progress<'_>) -> Result<Check> {
    check::check(&folder(path)?, options, progress)
}

/// Mends what can be mended. Refused with `Locked` while a daemon has the folder.
pub fn repair(path: &Path, now: Timestamp, progress: Progress<'_>) -> Result<Repair> {
    let folder = folder(path)?;
    let _lock = Lock::take(&folder)?;
    repair::repair(&folder, repair::Mode::Mend, now, progress)
}

/// What `repair` would do; changes nothing and takes no lock.
pub fn plan_repair(path: &Path, now: Timestamp, progress: Progress<'_>) -> Result<Repair> {
    repair::repair(&folder(path)?, repair::Mode::Plan, now, progress)
}

/// Removes what nobody needs. Refused with `Locked` while a daemon has the folder.
pub fn gc(path: &Path, options: &GcOptions, progress: Progress<'_>) -> Result<Gc> {
    let folder = folder(path)?;
    let _lock = Lock::take(&folder)?;
    let plan = gc::plan(&folder, options, progress)?;
    Ok(gc::carry_out(&folder, plan, options.now))
}

/// What `gc` would remove; changes nothing and takes no lock.
pub fn plan_gc(path: &Path, options: &GcOptions, progress: Progress<'_>) -> Result<Gc> {
    gc::plan(&folder(path)?, options, progress)
}

/// A folder that is there. Nothing is made: looking at the wrong place must not turn it into a data folder.
fn folder(path: &Path) -> Result<Folder> {
    let root = std::path::absolute(path).map_err(|error| Error::disk("the path of the data folder", &error))?;
    let layout = Layout::new(root);
    if !layout.sessions().is_dir() {
        return Err(Error::NoFolder(layout.root().display().to_string()));
    }
    Ok(Folder::new(Arc::new(OsDisk { syncs: true }), layout))
}

/// On another disk, for tests.
pub(crate) mod on {
    use super::*;

    pub(crate) fn check(folder: &Folder) -> Result<Check> {
        super::check::check(folder, &CheckOptions::default(), &mut |_, _| {})
    }

    pub(crate) fn repair(folder: &Folder, now: Timestamp) -> Result<Repair> {
        super::repair::repair(folder, super::repair::Mode::Mend, now, &mut |_, _| {})
    }
}

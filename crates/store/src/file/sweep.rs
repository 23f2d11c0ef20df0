//! Deletes old spools, a bounded number of sessions at a call. It never touches a log, nor a spool that may still grow.

use std::{
    collections::HashSet,
    io,
    sync::{Mutex, PoisonError},
};

use tenure_core::{ids::SessionId, time::Timestamp};

use super::{
    folder::{Folder, is_missing},
    layout::Layout,
    marks::Marks,
    spool::Spools,
};
use crate::{Error, Result, SweepReport};

/// Sessions looked at in one call; the next call goes on where this one ended.
const SESSIONS_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct Sweeper {
    /// The last session looked at; `None` at the start of a round.
    done_to: Mutex<Option<SessionId>>,
}

impl Sweeper {
    pub fn sweep(&self, folder: &Folder, marks: &Marks, spools: &Spools, before: Timestamp) -> Result<SweepReport> {
        let failed = |error: io::Error| Error::disk("to sweep old spools", &error);
        let marked: HashSet<SessionId> = marks.list()?.into_iter().collect();
        let names = folder.disk.list(&folder.layout.sessions()).map_err(failed)?;
        let mut sessions: Vec<SessionId> = names.iter().filter_map(|name| name.parse().ok()).collect();
        sessions.sort_unstable();
        let mut done_to = self.done_to.lock().unwrap_or_else(PoisonError::into_inner);
        let first = done_to.map_or(0, |last| sessions.partition_point(|id| *id <= last));
        let round = &sessions[first..];
        let mut report = SweepReport::default();
        for &session in round.iter().take(SESSIONS_MAX) {
            // One session that cannot be swept never keeps the others from it.
            match sweep_session(folder, spools, session, marked.contains(&session), before) {
                Ok(deleted) => report.spools_deleted += deleted,
                Err(error) => folder.notices.add(format!("old spools of {session} could not be swept: {error}")),
            }
        }
        *done_to = round.get(SESSIONS_MAX - 1).copied().filter(|_| round.len() > SESSIONS_MAX);
        Ok(report)
    }
}

fn sweep_session(
    folder: &Folder,
    spools: &Spools,
    session: SessionId,
    marked_open: bool,
    before: Timestamp,
) -> io::Result<u64> {
    let names = match folder.disk.list(&folder.layout.spools(session)) {
        Err(error) if is_missing(&error) => return Ok(0),
        names => names?,
    };
    let mut deleted = 0;
    for turn in names.iter().filter_map(|name| Layout::turn_of_spool(name)) {
        // In a session with anything pending only turns known to be closed are settled for certain.
        let settled = !spools.is_open(session, turn) && (!marked_open || spools.is_closed(session, turn));
        let path = folder.layout.spool(session, turn);
        // The last delta was written before the turn settled.
        if settled && folder.disk.stat(&path)?.modified_ms < before.ms() {
            folder.disk.remove(&path)?;
            deleted += 1;
        }
    }
    Ok(deleted)
}

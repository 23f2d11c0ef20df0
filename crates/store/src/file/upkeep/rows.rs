//! What the listing knows of sessions: of some it is the last trace, and of others it knows a later turn than their log.

use std::{collections::BTreeMap, io, path::PathBuf};

use tenure_core::ids::{SessionId, TurnId};

use super::examine;
use crate::{
    disk::Open,
    file::{
        folder::{Folder, is_missing},
        lines::{Lines, Next},
        listing::{self, Said},
    },
    line::LINE_BYTES_MAX,
};

/// The sessions of the listing that nobody deleted, each with its last turn. A listing with a damaged line tells nothing:
/// that line may have told of a deletion.
#[derive(Default)]
pub(super) struct Rows(BTreeMap<SessionId, Option<TurnId>>);

impl Rows {
    pub fn read(folder: &Folder) -> io::Result<Rows> {
        let path = folder.layout.index();
        if examine::is_odd(folder, &path)? {
            return Ok(Rows::default());
        }
        let Some(file) = folder.open_if_there(&path, Open::Read)? else { return Ok(Rows::default()) };
        let mut lines = Lines::new(&*file, 0, file.len()?, LINE_BYTES_MAX);
        let mut rows = BTreeMap::new();
        loop {
            let said = match lines.next()? {
                Next::Line { bytes, .. } => listing::read_line(bytes),
                Next::TooLong { .. } => None,
                Next::Torn { .. } | Next::End => return Ok(Rows(rows)),
            };
            match said {
                Some(Said::Row(row)) => rows.insert(row.id, row.last_turn_id),
                Some(Said::Purged(id)) => rows.remove(&id),
                None => return Ok(Rows::default()),
            };
        }
    }

    /// The last turn that the session is known to have had.
    pub fn last_turn(&self, session: SessionId) -> Option<TurnId> {
        self.0.get(&session).copied().flatten()
    }
}

/// Sessions whose folder is gone though nobody deleted them, oldest first.
pub(super) fn lost(folder: &Folder) -> io::Result<Vec<SessionId>> {
    let mut lost = without_folder(folder)?;
    if !lost.is_empty() {
        // A deletion that came to its end between two looks has told the listing by now.
        let still = without_folder(folder)?;
        lost.retain(|session| still.contains(session));
    }
    Ok(lost)
}

/// Sessions of the listing that are neither in their place nor on their way out.
fn without_folder(folder: &Folder) -> io::Result<Vec<SessionId>> {
    let is_gone = |path: PathBuf| folder.disk.look(&path).is_err_and(|error| is_missing(&error));
    let Rows(rows) = Rows::read(folder)?;
    let (layout, sessions) = (&folder.layout, rows.into_keys());
    Ok(sessions.filter(|id| is_gone(layout.session(*id)) && is_gone(layout.trash().join(id.to_string()))).collect())
}

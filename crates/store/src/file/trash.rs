//! Deletes whole sessions: one rename takes a session out of its place, and what is in the trash is deleted at leisure.
//! A crash leaves the whole session or none of it; what it leaves in the trash, the next start deletes.

use std::{io, path::Path};

use tenure_core::ids::SessionId;

use super::{
    folder::{Folder, is_missing},
    listing,
};
use crate::{Error, Result, disk::Look};

const NO_FOLDER: &str = "what stands there is no folder";

/// Takes a session out of its place, for good: a power cut does not bring it back.
pub(crate) fn put(folder: &Folder, session: SessionId) -> Result<()> {
    let failed = |error: io::Error| Error::disk(format_args!("to delete {session}"), &error);
    let (disk, layout) = (&folder.disk, &folder.layout);
    let trash = layout.trash();
    let (from, to) = (layout.session(session), trash.join(session.to_string()));
    disk.make_dir(&trash).map_err(failed)?;
    if !matches!(disk.look(&trash).map_err(failed)?, Look::Folder(_)) {
        return Err(failed(io::Error::other(NO_FOLDER)));
    }
    // Also where it was there before: whoever made it may have been stopped.
    disk.sync_dir(layout.root()).map_err(failed)?;
    remove(folder, &to).map_err(failed)?;
    disk.rename(&from, &to).map_err(failed)?;
    let synced = disk.sync_dir(&trash).and_then(|()| disk.sync_dir(&layout.sessions()));
    synced.map_err(|error| {
        // Nobody was told that it is gone, so it is put back.
        let _ = disk.rename(&to, &from);
        failed(error)
    })
}

/// Deletes what one session left in the trash.
pub(crate) fn delete(folder: &Folder, session: SessionId) {
    let path = folder.layout.trash().join(session.to_string());
    if let Err(error) = remove(folder, &path) {
        folder.notices.add(format!("what is left of {session} could not be deleted yet: {error}"));
    }
}

/// What is in the trash. A link in its place is not followed: what it leads to is nothing of ours.
pub(crate) fn names(folder: &Folder) -> io::Result<Vec<String>> {
    let path = folder.layout.trash();
    match folder.disk.look(&path) {
        Err(error) if is_missing(&error) => Ok(vec![]),
        Ok(Look::Folder(_)) => folder.disk.list(&path),
        looked => looked.and(Err(io::Error::other(NO_FOLDER))),
    }
}

/// Deletes all that is in the trash. Nothing depends on it, so a failure is only told.
pub(crate) fn empty(folder: &Folder) {
    let names = match names(folder) {
        Err(error) => return folder.notices.add(format!("the trash could not be emptied: {error}")),
        Ok(names) if names.is_empty() => return,
        Ok(names) => names,
    };
    // What a deletion says in the listing comes before the last trace of it goes.
    let sessions: Vec<SessionId> = names.iter().filter_map(|name| name.parse().ok()).collect();
    if let Err(error) = listing::note_purged(folder, &sessions) {
        return folder.notices.add(format!("the trash could not be emptied: {error}"));
    }
    for name in names {
        if let Err(error) = remove(folder, &folder.layout.trash().join(&name)) {
            folder.notices.add(format!("trash/{name} could not be deleted yet: {error}"));
        }
    }
}

/// Removes a file, or a folder with all that is in it. A link is removed, never followed. Fine if nothing is there.
pub(crate) fn remove(folder: &Folder, path: &Path) -> io::Result<()> {
    match folder.disk.remove(path) {
        Ok(()) => return Ok(()),
        Err(error) if is_missing(&error) && folder.disk.stat(path).is_err() => return Ok(()),
        // A folder cannot be removed as a file is; any other reason comes up again below.
        Err(_) => {}
    }
    for name in folder.disk.list(path)? {
        remove(folder, &path.join(name))?;
    }
    folder.disk.remove_dir(path)
}

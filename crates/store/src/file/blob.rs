//! Blobs: attachments and artifacts beside a log, synced before they are spoken of. Names are checked, never trusted.

use std::{
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use tenure_core::ids::SessionId;

use super::folder::{Folder, Keep, is_missing};
use crate::{
    Blob, Error, Result,
    disk::Look,
    name::{TEMPORARY, check_blob},
};

pub(crate) fn put(folder: &Folder, session: SessionId, name: &str, bytes: &[u8]) -> Result<()> {
    check_blob(name)?;
    let base = folder.layout.session(session);
    let path = base.join(name);
    let parents = make_parents(folder, &base, name).map_err(|error| match is_missing(&error) {
        true => Error::NoSession(session),
        false => failed(name, &error),
    })?;
    folder.replace(&path, &[bytes], Keep::Synced).map_err(|error| failed(name, &error))?;
    for parent in parents {
        folder.disk.sync_dir(&parent).map_err(|error| failed(name, &error))?;
    }
    Ok(())
}

pub(crate) fn get(folder: &Folder, session: SessionId, name: &str) -> Result<Option<Bytes>> {
    check_blob(name)?;
    let base = folder.layout.session(session);
    let content = match is_plain(folder, &base, name) {
        Ok(true) => folder.read_if_there(&base.join(name), u64::MAX),
        Ok(false) => Ok(None),
        Err(error) => Err(error),
    };
    Ok(content.map_err(|error| unread(name, &error))?.map(Bytes::from))
}

/// Whether it is a file of ours: no link on the way to it, and nothing that only looks like one.
fn is_plain(folder: &Folder, base: &Path, name: &str) -> io::Result<bool> {
    let mut at = base.to_owned();
    let mut found = None;
    for part in Path::new(name).components() {
        if !matches!(found, None | Some(Look::Folder(_))) {
            return Ok(false);
        }
        at.push(part);
        found = match folder.disk.look(&at) {
            Err(error) if is_missing(&error) => return Ok(false),
            look => Some(look?),
        };
    }
    Ok(matches!(found, Some(Look::File(_))))
}

/// The blobs below a folder, by name.
pub(crate) fn list(folder: &Folder, session: SessionId, below: &str) -> Result<Vec<Blob>> {
    check_blob(below)?;
    let base = folder.layout.session(session);
    folder.disk.stat(&base).map_err(|error| match is_missing(&error) {
        true => Error::NoSession(session),
        false => unread(below, &error),
    })?;
    let mut found = Vec::new();
    gather(folder, &base, below, &mut found).map_err(|error| unread(below, &error))?;
    found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

fn gather(folder: &Folder, base: &Path, below: &str, found: &mut Vec<Blob>) -> io::Result<()> {
    let names = match folder.disk.list(&base.join(below)) {
        Err(error) if is_missing(&error) => return Ok(()),
        names => names?,
    };
    for name in names.iter().filter(|name| !name.starts_with(TEMPORARY)) {
        let name = format!("{below}/{name}");
        match folder.disk.look(&base.join(&name)) {
            Ok(Look::File(stat)) => found.push(Blob { name, bytes: stat.bytes }),
            Ok(Look::Folder(_)) => gather(folder, base, &name, found)?,
            // A link, a pipe or the like was put there by somebody else.
            Ok(Look::Other) => {}
            // Deleted in this very instant.
            Err(error) if is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Makes the folders of a name below `base`, which must be there; gives those that hold one of them. All of them are to
/// be synced, also those that were there: whoever made one may have been stopped before it was safe.
fn make_parents(folder: &Folder, base: &Path, name: &str) -> io::Result<Vec<PathBuf>> {
    folder.disk.stat(base)?;
    let mut holders = Vec::new();
    let mut at = base.to_owned();
    let Some(parents) = Path::new(name).parent() else { return Ok(holders) };
    for part in parents.components() {
        let next = at.join(part);
        folder.disk.make_dir(&next)?;
        if !matches!(folder.disk.look(&next)?, Look::Folder(_)) {
            return Err(io::Error::other("a link stands where its folder should be"));
        }
        holders.push(at);
        at = next;
    }
    Ok(holders)
}

fn failed(name: &str, error: &io::Error) -> Error {
    Error::disk(format_args!("the blob {name}"), error)
}

fn unread(name: &str, error: &io::Error) -> Error {
    Error::unread(format_args!("the blob {name}"), error)
}

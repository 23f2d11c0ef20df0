//! Puts one file in place, or takes it away, in one step that a crash cannot cut in half. It never writes into a file that exists.

use std::{fs::File, io::Write as _, os::fd::AsFd, os::fd::OwnedFd};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, RenameFlags, Uid},
    io::Errno,
};

use crate::workspace::{Found, Inside, Place};

/// What a file shall look like.
pub(crate) struct Content<'b> {
    pub(crate) bytes: &'b [u8],
    pub(crate) like: Like<'b>,
}

/// Where the permissions of the new file come from.
pub(crate) enum Like<'b> {
    /// The file it takes the place of. Set-id bits go, as they do when the system writes a file.
    Replaced(&'b Found),
    /// What was recorded before, in full. Without an owner nothing is there that it could take the place of.
    Restored { mode: Option<u32>, owner: Option<(u32, u32)> },
    /// A new file.
    New { executable: bool },
}

/// BLAKE3 in hex.
pub(crate) fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

/// The name a file has while it is written: known from the intent alone, so that a crash's leftover can be found.
pub(crate) fn temporary_name(name: &str, digest: &str) -> String {
    let hash = blake3::hash(format!("{name}\0{digest}").as_bytes()).to_hex();
    format!(".tenure-{}.tmp", &hash[..24])
}

/// Writes the file beside its place, syncs it, and renames it over. Returns the folders it had to make.
pub(crate) fn put(place: &Place, path: &Inside, content: &Content<'_>) -> Result<Vec<MadeFolder>, String> {
    let mut made = vec![];
    let folder = make_folders(place, &mut made).map_err(std::io::Error::from);
    let written = folder.and_then(|folder| put_in(&folder, &place.name, content));
    match written {
        Ok(()) => Ok(made),
        Err(error) => {
            unmake(made);
            Err(format!("{path} cannot be written: {error}"))
        }
    }
}

/// Takes the file away; one that is not there is no error.
pub(crate) fn remove(place: &Place, path: &Inside) -> Result<(), String> {
    if !place.missing.is_empty() {
        return Ok(());
    }
    match rustix::fs::unlinkat(&place.folder, place.name.as_str(), AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(format!("{path} cannot be deleted: {error}")),
    }
    sync_folder(&place.folder).map_err(|error| format!("{path}: its folder cannot be synced: {error}"))
}

/// Takes away what a crash left of writing this file.
pub(crate) fn remove_temporary(place: &Place, digest: &str) {
    if place.missing.is_empty() {
        // Most often there is none; and what cannot be removed harms nobody.
        let _ = rustix::fs::unlinkat(&place.folder, temporary_name(&place.name, digest), AtFlags::empty());
    }
}

/// A folder that had to be made, by its parent and name.
pub(crate) struct MadeFolder {
    parent: OwnedFd,
    name: String,
}

/// Takes folders away again, the innermost first, where they are empty.
pub(crate) fn unmake(made: Vec<MadeFolder>) {
    for folder in made.into_iter().rev() {
        let _ = rustix::fs::unlinkat(&folder.parent, folder.name.as_str(), AtFlags::REMOVEDIR);
    }
}

fn make_folders(place: &Place, made: &mut Vec<MadeFolder>) -> Result<OwnedFd, Errno> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = rustix::io::fcntl_dupfd_cloexec(&place.folder, 0)?;
    for name in &place.missing {
        match rustix::fs::mkdirat(&folder, name.as_str(), Mode::from_raw_mode(0o777)) {
            Ok(()) => {
                sync_folder(&folder)?;
                made.push(MadeFolder { parent: rustix::io::fcntl_dupfd_cloexec(&folder, 0)?, name: name.clone() });
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        folder = rustix::fs::openat(&folder, name.as_str(), step, Mode::empty())?;
    }
    Ok(folder)
}

fn put_in(folder: &OwnedFd, name: &str, content: &Content<'_>) -> std::io::Result<()> {
    let temporary = temporary_name(name, &digest(content.bytes));
    let written = write_beside(folder, &temporary, content).and_then(|()| {
        rename(folder, &temporary, name, &content.like)?;
        Ok(sync_folder(folder)?)
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(folder, temporary.as_str(), AtFlags::empty());
    }
    written
}

fn write_beside(folder: &OwnedFd, temporary: &str, content: &Content<'_>) -> std::io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let create_mode = Mode::from_raw_mode(if content.is_executable() { 0o777 } else { 0o666 });
    let create = || rustix::fs::openat(folder, temporary, flags, create_mode);
    let fd = match create() {
        // Left by a crash: its content is not known to be whole.
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(folder, temporary, AtFlags::empty())?;
            create()?
        }
        created => created?,
    };
    let mut file = File::from(fd);
    file.write_all(content.bytes)?;
    // Afterwards: writing takes set-id bits away.
    content.set_permissions(&file)?;
    file.sync_all()
}

impl Content<'_> {
    fn is_executable(&self) -> bool {
        matches!(self.like, Like::New { executable: true })
    }

    fn set_permissions(&self, file: &File) -> Result<(), Errno> {
        let (mode, owner) = match self.like {
            Like::Replaced(found) => (Some(found.mode & 0o777), Some(found.owner)),
            Like::Restored { mode, owner } => (mode.map(|mode| mode & 0o7777), owner),
            Like::New { .. } => (None, None),
        };
        if let Some((user, group)) = owner {
            // Only root may give files away; for others the file stays theirs.
            let _ = rustix::fs::fchown(file, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)));
        }
        mode.map_or(Ok(()), |mode| rustix::fs::fchmod(file, Mode::from_raw_mode(mode)))
    }
}

/// A new file never takes the place of one that appeared meanwhile.
fn rename(folder: &OwnedFd, temporary: &str, name: &str, like: &Like<'_>) -> Result<(), Errno> {
    if let Like::New { .. } | Like::Restored { owner: None, .. } = like {
        match rustix::fs::renameat_with(folder, temporary, folder, name, RenameFlags::NOREPLACE) {
            // Some file systems do not know this kind of rename.
            Err(Errno::INVAL | Errno::NOSYS) => {}
            answer => return answer,
        }
    }
    rustix::fs::renameat(folder, temporary, folder, name)
}

fn sync_folder(folder: &OwnedFd) -> Result<(), Errno> {
    // A folder held only as a place cannot be synced; opening it again can.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::openat(folder.as_fd(), ".", flags, Mode::empty())?;
    match rustix::fs::fsync(&readable) {
        // Some file systems do not sync folders.
        Err(Errno::INVAL) => Ok(()),
        answer => answer,
    }
}

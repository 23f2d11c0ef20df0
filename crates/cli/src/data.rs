//! The data folder: where it is, its token, and what a daemon notes in it. Logs in it belong to the store alone.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tenure_client::discover::{NOTE_FILE, TOKEN_FILE};
use tenure_wire::DaemonInfo;

use crate::{exit::Problem, hint};

/// Shorter tokens are taken for broken files.
const TOKEN_BYTES_MIN: usize = 32;

/// The folder to use: as given, or `tenure` in the user's data folder.
pub fn folder(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => {
            let home = || Problem::usage("there is no home folder to keep data in", "say where with --data DIR");
            directories::BaseDirs::new().ok_or_else(home)?.data_dir().join("tenure")
        }
    };
    std::path::absolute(&path).with_context(|| format!("the data folder {} cannot be named", path.display()))
}

/// What stands in the way of a data folder there, if something does.
pub fn obstacle(data: &Path) -> Option<String> {
    let above = data.ancestors().find(|path| path.exists())?;
    (!above.is_dir()).then(|| format!("the data folder cannot be {}: {} is a file", data.display(), above.display()))
}

/// What to do when the disk does not take what is written into the folder.
pub const REFUSED: &str = "free some space or mend the folder's permissions (`tenure doctor` looks at both), \
                           or choose another folder with --data";

/// What somebody wants to do with the folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Read,
    Write,
}

/// Whether this user may; a folder that is not there is for others to tell of.
pub fn allowed(data: &Path, need: Need) -> Result<(), Problem> {
    let looked = fs::read_dir(data).map(drop);
    let tried = looked.and_then(|()| if need == Need::Write { tempfile::tempfile_in(data).map(drop) } else { Ok(()) });
    let Err(error) = tried else { return Ok(()) };
    if !matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) {
        return Ok(());
    }
    let verb = if need == Need::Write { "changed" } else { "read" };
    let (code, hint) = hint::of_system(error.kind());
    // The error of a file that was tried is told without its chance name.
    let why =
        error.raw_os_error().map_or(error.kind().to_string(), |code| io::Error::from_raw_os_error(code).to_string());
    Err(Problem::failed(code, format!("the data folder {} cannot be {verb}: {why}", data.display()), hint))
}

/// Makes the folder, for its owner alone, if it is not there.
pub fn make(data: &Path) -> anyhow::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(data).with_context(|| format!("cannot make the data folder {}", data.display()))
}

/// The token of the folder; a new one is made at the first start.
pub fn token(data: &Path) -> anyhow::Result<String> {
    let path = data.join(TOKEN_FILE);
    match fs::read_to_string(&path) {
        Ok(text) if text.trim().len() >= TOKEN_BYTES_MIN => {
            make_private(&path)?;
            return Ok(text.trim().to_owned());
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
    let token = random_hex()?;
    keep_token(data, &token).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(token)
}

pub fn keep_token(data: &Path, token: &str) -> io::Result<()> {
    replace_file(&data.join(TOKEN_FILE), format!("{token}\n").as_bytes(), Keep::Synced)
}

/// Bytes of chance, in hex: for tokens and for keys that nobody else will use.
pub fn random_hex() -> anyhow::Result<String> {
    tenure_server::random_hex().context("the system gave no random bytes")
}

pub fn make_private(path: &Path) -> anyhow::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        tracing::warn!("{} could be read by others (mode {mode:o}); it is private again", path.display());
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    }
    Ok(())
}

pub fn write_note(data: &Path, note: &DaemonInfo) -> anyhow::Result<()> {
    // Nobody needs it after a power cut, so a start does not wait for the disk.
    replace(&data.join(NOTE_FILE), serde_json::to_string(note)?.as_bytes(), Keep::Unsynced)
}

pub fn remove_note(data: &Path) {
    // A note that stays behind names a process that is gone, which every reader notices.
    let _ = fs::remove_file(data.join(NOTE_FILE));
}

/// Whether a file has to survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    Synced,
    Unsynced,
}

/// Puts a private file in its place in one step: a reader sees the old or the new one, never a half.
pub fn replace(path: &Path, bytes: &[u8], keep: Keep) -> anyhow::Result<()> {
    replace_file(path, bytes, keep).with_context(|| format!("cannot write {}", path.display()))
}

/// The same, and why not is told plainly.
pub fn replace_file(path: &Path, bytes: &[u8], keep: Keep) -> io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    if keep == Keep::Synced {
        file.sync_all()?;
    }
    fs::rename(&new, path)?;
    match path.parent() {
        Some(folder) if keep == Keep::Synced => fs::File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_made_once_private_and_random() {
        let data = tempfile::tempdir().unwrap();
        let first = token(data.path()).unwrap();
        assert_eq!(first.len(), 64);
        assert!(first.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(token(data.path()).unwrap(), first, "it is kept");
        let mode = fs::metadata(data.path().join(TOKEN_FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(random_hex().unwrap(), first);
    }

    #[test]
    fn a_file_is_no_data_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(obstacle(&file).unwrap().ends_with("file is a file"));
        assert!(obstacle(&file.join("x")).unwrap().ends_with("file is a file"));
        assert_eq!((obstacle(folder.path()), obstacle(&folder.path().join("a/b"))), (None, None));
    }

    #[test]
    fn a_token_that_others_could_read_is_made_private() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join(TOKEN_FILE);
        let first = token(data.path()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(token(data.path()).unwrap(), first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

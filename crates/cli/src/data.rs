//! The data folder: where it is, its token, and what a daemon notes in it. Logs in it belong to the store alone.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tenure_client::discover::{NOTE_FILE, TOKEN_FILE};
use tenure_wire::DaemonInfo;

use crate::{exit::Problem, hint};

/// Shorter tokens are taken for broken files.
const TOKEN_BYTES_MIN: usize = 32;
/// Longer ones would not fit into the head of a request.
const TOKEN_BYTES_MAX: u64 = 4096;
/// What stands in the name of a file that is being written, before the process that writes it.
const NEW: &str = "new-";

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
    let hint = "remove it; the next daemon makes a new one";
    let failed = |why: &dyn std::fmt::Display| Problem::usage(format!("cannot read {}: {why}", path.display()), hint);
    if let Some(bytes) = read_plain(&path, TOKEN_BYTES_MAX).map_err(|error| failed(&error))? {
        let text = String::from_utf8(bytes).map_err(|error| failed(&error))?;
        if text.trim().len() >= TOKEN_BYTES_MIN {
            make_private(&path)?;
            return Ok(text.trim().to_owned());
        }
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
    let new = path.with_extension(format!("{NEW}{}", std::process::id()));
    // Whatever an earlier process of this number left, or somebody put there.
    let _ = fs::remove_file(&new);
    let written = write_new(&new, bytes, keep).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written?;
    match path.parent() {
        Some(folder) if keep == Keep::Synced => fs::File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

fn write_new(path: &Path, bytes: &[u8], keep: Keep) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    if keep == Keep::Synced { file.sync_all() } else { Ok(()) }
}

/// Removes what daemons that were killed had begun to write. Only for whoever has the folder.
pub fn sweep(data: &Path) {
    let Ok(entries) = fs::read_dir(data) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let number = path.extension().and_then(|end| end.to_str()?.strip_prefix(NEW));
        let is_ours = number.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()));
        if is_ours && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            // One that stays does no harm.
            let _ = fs::remove_file(path);
        }
    }
}

/// The content of a small file; `None` if there is none. What is no plain file is refused: nobody waits for a pipe.
pub fn read_plain(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = match fs::OpenOptions::new().read(true).custom_flags(nonblocking).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    let mut content = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut content)?;
    if content.len() as u64 > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(Some(content))
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

    #[test]
    fn what_is_no_plain_file_is_refused_and_not_waited_for() {
        let data = tempfile::tempdir().unwrap();
        let path = data.path().join(TOKEN_FILE);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let error = token(data.path()).unwrap_err().to_string();
        assert!(error.contains("it is not a plain file"), "{error}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, "a".repeat(5000)).unwrap();
        let error = token(data.path()).unwrap_err().to_string();
        assert!(error.contains("more than 4096 bytes"), "{error}");
        fs::write(&path, [0xff; 40]).unwrap();
        assert!(token(data.path()).is_err());
    }

    #[test]
    fn what_was_being_written_is_swept() {
        let data = tempfile::tempdir().unwrap();
        let kept = ["token", "a.new-", "b.new-1x", "new-7", "c.news-1"];
        for name in ["token.new-123", "tokens.new-4", "daemon.new-99"].iter().chain(&kept) {
            fs::write(data.path().join(name), "x").unwrap();
        }
        sweep(data.path());
        let mut left: Vec<String> =
            fs::read_dir(data.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["a.new-", "b.new-1x", "c.news-1", "new-7", "token"]);
    }
}

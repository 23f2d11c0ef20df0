//! A private repository folder for one call: settings of our making, copies of the small files, and links to objects and
//! names. Git never sees the repository's own settings, hooks or attributes in its folder, so nothing there can name a
//! program, and what changes meanwhile changes nothing here.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use rustix::fs::{CWD, Mode, OFlags};
use tempfile::TempDir;

use super::repository::Repository;

/// An index of this size has some million files.
const COPY_BYTES_MAX: u64 = 1 << 30;
/// What stays of an index that was cut in two; old ones are removed by git in time.
const SHARED_MAX: usize = 16;

pub(super) struct Shadow {
    folder: TempDir,
    top: PathBuf,
    /// What stands before each of the workspace's paths.
    pub(super) prefix: String,
}

impl Shadow {
    pub(super) fn make(repository: &Repository, settings: &str) -> Result<Self, String> {
        let folder = tempfile::Builder::new().prefix("tenure-git-").tempdir();
        let folder = folder.map_err(|error| format!("no temporary folder can be made: {error}"))?;
        fill(folder.path(), repository, settings)
            .map_err(|error| format!("the repository {} cannot be read: {error}", repository.git.display()))?;
        let prefix = repository.prefix.to_string_lossy();
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Ok(Self { folder, top: repository.top.clone(), prefix })
    }

    /// What git is told by its environment. With a folder named it asks neither who owns it nor what else is around.
    pub(super) fn environment(&self) -> Vec<(OsString, OsString)> {
        let fixed = [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_ATTR_NOSYSTEM", "1"),
            ("GIT_OPTIONAL_LOCKS", "0"),
            ("GIT_LITERAL_PATHSPECS", "1"),
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            ("GIT_NO_LAZY_FETCH", "1"),
            ("GIT_ALLOW_PROTOCOL", "none"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_PAGER", "cat"),
        ];
        let own = [("GIT_DIR", self.folder.path()), ("GIT_WORK_TREE", &self.top)];
        let fixed = fixed.map(|(name, value)| (name.into(), value.into()));
        fixed.into_iter().chain(own.map(|(name, value)| (name.into(), value.into()))).collect()
    }
}

fn fill(folder: &Path, repository: &Repository, settings: &str) -> io::Result<()> {
    fs::write(folder.join("config"), settings)?;
    fs::create_dir(folder.join("info"))?;
    for name in ["HEAD", "index", "info/sparse-checkout"] {
        copy(&repository.git, folder, name)?;
    }
    for name in ["packed-refs", "shallow", "info/exclude"] {
        copy(&repository.common, folder, name)?;
    }
    let entries = fs::read_dir(&repository.git)?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    for name in entries.filter(|name| name.starts_with("sharedindex.")).take(SHARED_MAX) {
        copy(&repository.git, folder, &name)?;
    }
    for name in ["objects", "refs", "reftable"] {
        let real = repository.common.join(name);
        if real.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
            symlink(real, folder.join(name))?;
        }
    }
    Ok(())
}

/// A symlink is not followed: git would complain of what it leads to, and quote it.
fn copy(from: &Path, to: &Path, name: &str) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(CWD, from.join(name), flags, Mode::empty()) {
        Ok(fd) => File::from(fd),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => return Ok(()),
        Err(rustix::io::Errno::LOOP) => return Err(io::Error::other(format!("{name} is a symlink"))),
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > COPY_BYTES_MAX {
        return Err(io::Error::other(format!("{name} is not what git has written")));
    }
    let mut copy = File::create_new(to.join(name))?;
    io::copy(&mut file.take(COPY_BYTES_MAX), &mut copy)?;
    copy.flush()?;
    // A file that was changed in the second in which the index was written is compared by its content. Git knows that
    // by the index's time.
    copy.set_modified(metadata.modified()?)
}

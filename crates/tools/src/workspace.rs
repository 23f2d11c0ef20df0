//! The folder that tools act in, and the only way to a file below it. It never follows a path out, and never opens
//! anything but regular files and folders.

use std::{
    fs::File,
    io::Read,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
};

use crate::FILE_BYTES_MAX;

/// An open workspace. Its own path may lead through symlinks; nothing below it may lead out.
pub(crate) struct Workspace {
    folder: OwnedFd,
    /// The spellings under which an absolute path counts as inside.
    spellings: Vec<PathBuf>,
}

/// A path below the workspace, in its one spelling: no `.`, no `..`, no leading slash, not empty.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Inside(String);

impl Inside {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The parent's components, and the last one.
    pub(crate) fn split(&self) -> (Vec<&str>, &str) {
        let mut parts: Vec<&str> = self.0.split('/').collect();
        // A path inside has at least one component.
        let name = parts.pop().unwrap_or_default();
        (parts, name)
    }
}

impl std::fmt::Display for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Workspace {
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::openat(CWD, path, flags, Mode::empty())
            .map_err(|error| format!("the workspace {} cannot be opened: {error}", path.display()))?;
        let mut spellings = vec![path.to_owned()];
        spellings.extend(path.canonicalize().ok().filter(|real| real != path));
        Ok(Self { folder, spellings })
    }

    /// The one spelling of a path given by a model, or why it is not inside.
    pub(crate) fn inside(&self, text: &str) -> Result<Inside, String> {
        let given = Path::new(text);
        let below = match given.is_absolute() {
            true => {
                self.spellings.iter().find_map(|root| given.strip_prefix(root).ok()).ok_or_else(|| outside(text))?
            }
            false => given,
        };
        if text.contains('\0') {
            return Err("the path holds a NUL character".into());
        }
        let mut parts: Vec<&str> = vec![];
        for part in below.components() {
            match part {
                Component::Normal(name) => parts.push(name.to_str().unwrap_or_default()),
                Component::CurDir => {}
                Component::ParentDir => drop(parts.pop().ok_or_else(|| outside(text))?),
                Component::RootDir | Component::Prefix(_) => return Err(outside(text)),
            }
        }
        match parts.is_empty() {
            true => Err(format!("{text} is the workspace itself; name a file in it")),
            false => Ok(Inside(parts.join("/"))),
        }
    }

    /// A folder or a file to start from; no path, or one that names the workspace, is the workspace itself. It leads
    /// through no symlink: what is walked from here would otherwise have two spellings.
    pub(crate) fn spot(&self, text: Option<&str>) -> Result<Spot, String> {
        let spot = self.about(text)?;
        let Some(below) = &spot.below else { return Ok(spot) };
        let fd = self.without_links(below.as_str(), OFlags::PATH).map_err(|error| match error {
            Errno::NOENT | Errno::NOTDIR => format!("there is no file or folder {below}"),
            Errno::LOOP => format!("{below} leads through a symlink; name the file or folder itself"),
            error => cannot_open(below, error),
        })?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| cannot_open(below, error))?;
        match file_type(&stat) {
            FileType::Directory => Ok(spot),
            FileType::RegularFile => Ok(Spot { is_folder: false, ..spot }),
            FileType::Symlink => Err(format!("{below} is a symlink; name the file or folder itself")),
            _ => Err(not_regular(below)),
        }
    }

    /// A path that is asked about; whether there is such a file does not matter, since it may have been deleted.
    pub(crate) fn about(&self, text: Option<&str>) -> Result<Spot, String> {
        let text = text.unwrap_or(".");
        let is_root = self.spellings.iter().any(|root| Path::new(text) == root);
        let is_root = is_root || Path::new(text).components().all(|part| part == Component::CurDir);
        let below = if is_root { None } else { Some(self.inside(text)?) };
        // The last spelling is the real one.
        Ok(Spot { root: self.spellings.last().cloned().unwrap_or_default(), below, is_folder: true })
    }

    /// Opens a file that a walk has found. What is no regular file by now, or has become a symlink, is not opened.
    pub(crate) fn open_found(&self, below: &Path) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = self.without_links(below, flags).ok()?;
        let stat = rustix::fs::fstat(&fd).ok()?;
        (file_type(&stat) == FileType::RegularFile).then(|| File::from(fd))
    }

    fn without_links(&self, below: impl rustix::path::Arg + Copy, flags: OFlags) -> Result<OwnedFd, Errno> {
        let rules = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.folder, below, flags, Mode::empty(), rules) {
            Err(Errno::NOSYS | Errno::PERM) => {
                let below = below.to_string_lossy().into_owned();
                self.walk(&below, flags)
            }
            answer => answer,
        }
    }

    /// Opens a regular file for reading; symlinks that stay inside are followed. `None`: there is no such file.
    pub(crate) fn open_file(&self, path: &Inside) -> Result<Option<File>, String> {
        // Without waiting, so that a fifo without a writer cannot hold us.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match self.resolve(path.as_str(), flags) {
            Ok(fd) => regular(path, fd).map(Some),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(cannot_open(path, error)),
        }
    }

    /// The folder that holds a file which is about to be written, as far as it exists.
    pub(crate) fn place(&self, path: &Inside) -> Result<Place, String> {
        let (parents, name) = path.split();
        if parents.iter().chain([&name]).any(|part| part.eq_ignore_ascii_case(".git")) {
            // A hook or a setting there would run as a command that nobody approved.
            return Err(format!("{path} belongs to git itself; change it with git commands"));
        }
        let mut existing = parents.len();
        let folder = loop {
            let below = if existing == 0 { ".".to_owned() } else { parents[..existing].join("/") };
            match self.resolve(&below, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC) {
                Ok(folder) => break folder,
                Err(Errno::NOENT) if existing > 0 => existing -= 1,
                Err(Errno::NOTDIR) => return Err(format!("{below} is not a folder, so {path} cannot be in it")),
                Err(error) => return Err(cannot_open(path, error)),
            }
        };
        let missing = parents[existing..].iter().map(|part| (*part).to_owned()).collect();
        Ok(Place { folder, missing, name: name.to_owned() })
    }

    /// Where a file really is, relative to the workspace; `None` where that is its path.
    pub(crate) fn real(&self, place: &Place, path: &Inside) -> Option<String> {
        let of = |fd: &OwnedFd| std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok();
        let (root, folder) = (of(&self.folder)?, of(&place.folder)?);
        let mut real = folder.strip_prefix(&root).ok()?.to_owned();
        real.extend(place.missing.iter().chain([&place.name]));
        let real = real.to_str()?;
        (real != path.as_str()).then(|| real.to_owned())
    }

    /// Takes a folder away if it is there, is no symlink and is empty.
    pub(crate) fn remove_empty_folder(&self, path: &Inside) {
        if let Ok(place) = self.place(path)
            && place.missing.is_empty()
            && self.real(&place, path).is_none()
        {
            // One that holds something is somebody's.
            let _ = rustix::fs::unlinkat(&place.folder, place.name.as_str(), AtFlags::REMOVEDIR);
        }
    }

    /// The kernel keeps the path beneath the workspace while it walks it.
    fn resolve(&self, below: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let rules = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        for _ in 0..8 {
            match rustix::fs::openat2(&self.folder, below, flags, Mode::empty(), rules) {
                // A rename somewhere else got in the way of the check; asking again is the documented answer.
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS | Errno::PERM) => return self.walk(below, flags),
                answer => return answer,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Where the kernel lacks that: one component at a time, and no symlink at all.
    fn walk(&self, below: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (parents, name) = below.rsplit_once('/').unwrap_or(("", below));
        let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut folder = rustix::fs::openat(&self.folder, ".", step, Mode::empty())?;
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            folder = rustix::fs::openat(&folder, part, step, Mode::empty())?;
        }
        rustix::fs::openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty())
    }
}

/// Where a walk begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The workspace, in its real spelling.
    pub(crate) root: PathBuf,
    /// `None`: the workspace itself.
    pub(crate) below: Option<Inside>,
    pub(crate) is_folder: bool,
}

impl Spot {
    pub(crate) fn path(&self) -> PathBuf {
        self.below.as_ref().map_or_else(|| self.root.clone(), |below| self.root.join(below.as_str()))
    }

    /// How it is called to the model.
    pub(crate) fn name(&self) -> &str {
        self.below.as_ref().map_or(".", Inside::as_str)
    }
}

/// A file name in an open folder, with the folders between that do not exist yet.
pub(crate) struct Place {
    pub(crate) folder: OwnedFd,
    pub(crate) missing: Vec<String>,
    pub(crate) name: String,
}

/// A regular file as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) bytes: Vec<u8>,
    /// Permission bits, with set-id and sticky.
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
}

impl Place {
    /// The folders that would have to be made for it, relative to the workspace, the outer ones first.
    pub(crate) fn missing_folders<'p>(&self, path: &'p Inside) -> impl Iterator<Item = String> + use<'p> {
        let (parents, _) = path.split();
        let first = parents.len() + 1 - self.missing.len();
        (first..=parents.len()).map(move |depth| parents[..depth].join("/"))
    }

    /// What tells two places apart, whatever path led to them.
    pub(crate) fn identity(&self) -> Result<(u64, u64, String), String> {
        let stat = rustix::fs::fstat(&self.folder).map_err(|error| error.to_string())?;
        #[allow(clippy::unnecessary_cast)] // The types differ between architectures.
        let (device, inode) = (stat.st_dev as u64, stat.st_ino as u64);
        Ok((device, inode, self.missing.iter().chain([&self.name]).cloned().collect::<Vec<_>>().join("/")))
    }

    /// The file that is there now. A symlink is refused: a write replaces names, never what they point at.
    pub(crate) fn current(&self, path: &Inside) -> Result<Option<Found>, String> {
        if !self.missing.is_empty() {
            return Ok(None);
        }
        match rustix::fs::statat(&self.folder, self.name.as_str(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(cannot_open(path, error)),
            Ok(stat) if file_type(&stat) == FileType::Symlink => return Err(self.symlink_refused(path)),
            Ok(_) => {}
        }
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(&self.folder, self.name.as_str(), flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(cannot_open(path, error)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|error| cannot_open(path, error))?;
        let file = regular(path, fd)?;
        let bytes = read_bounded(path, file)?;
        Ok(Some(Found { bytes, mode: stat.st_mode & 0o7777, owner: (stat.st_uid, stat.st_gid) }))
    }

    fn symlink_refused(&self, path: &Inside) -> String {
        let target = rustix::fs::readlinkat(&self.folder, self.name.as_str(), Vec::new());
        let target = target.map(|target| target.to_string_lossy().into_owned()).unwrap_or_default();
        format!("{path} is a symlink to {target}; write to the file itself, if it is in the workspace")
    }
}

fn outside(text: &str) -> String {
    format!("{text} is outside the workspace; use a path relative to it")
}

fn cannot_open(path: &Inside, error: Errno) -> String {
    match error {
        Errno::XDEV | Errno::LOOP => format!("{path} leads out of the workspace through a symlink"),
        // What the kernel says of sockets and of devices that are not there.
        Errno::NXIO | Errno::NODEV => not_regular(path),
        Errno::NAMETOOLONG => format!("{path}: the name is too long"),
        error => format!("{path} cannot be opened: {error}"),
    }
}

fn not_regular(path: &Inside) -> String {
    format!("{path} is not a regular file (it is a pipe, a socket or a device)")
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn regular(path: &Inside, fd: OwnedFd) -> Result<File, String> {
    let stat = rustix::fs::fstat(fd.as_fd()).map_err(|error| cannot_open(path, error))?;
    match file_type(&stat) {
        FileType::RegularFile => Ok(File::from(fd)),
        FileType::Directory => Err(format!("{path} is a directory, not a file")),
        _ => Err(not_regular(path)),
    }
}

fn read_bounded(path: &Inside, file: File) -> Result<Vec<u8>, String> {
    let mut bytes = vec![];
    let limit = FILE_BYTES_MAX as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| format!("{path} cannot be read: {error}"))?;
    match bytes.len() > FILE_BYTES_MAX {
        true => Err(format!("{path} is larger than {} MiB, too large for this tool", FILE_BYTES_MAX >> 20)),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling_or_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        let absolute = folder.path().join("a/b").to_str().unwrap().to_owned();
        for (given, expected) in [
            ("a/b", Some("a/b")),
            ("./a//b/", Some("a/b")),
            ("a/../b", Some("b")),
            ("a/./b/..", Some("a")),
            (&absolute, Some("a/b")),
            ("..", None),
            ("../x", None),
            ("a/../../x", None),
            ("/etc/passwd", None),
            (".", None),
            ("", None),
            ("a\0b", None),
        ] {
            assert_eq!(workspace.inside(given).ok().as_ref().map(Inside::as_str), expected, "{given}");
        }
    }

    #[test]
    fn without_the_kernels_help_the_walk_refuses_every_symlink() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("d")).unwrap();
        std::fs::write(folder.path().join("d/f"), "x").unwrap();
        std::os::unix::fs::symlink("d", folder.path().join("l")).unwrap();
        let workspace = Workspace::open(folder.path()).unwrap();
        assert!(workspace.walk("d/f", OFlags::RDONLY).is_ok());
        assert!(workspace.walk("l/f", OFlags::RDONLY).is_err());
        assert!(workspace.walk(".", OFlags::PATH | OFlags::DIRECTORY).is_ok());
    }
}

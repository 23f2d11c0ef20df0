//! The few things the store asks of a file system, and the real one. A faulty one stands beside it for tests.
//! Nothing here knows what a file is for.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    time::UNIX_EPOCH,
};

use rustix::fs::OFlags;

/// How much is read at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// How a file is opened. Every way but `Read` allows writing too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Open {
    Read,
    /// It must be there.
    Existing,
    /// It is made if it is not there.
    Create,
    /// As `Create`, and emptied.
    Empty,
    /// It must not be there.
    New,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub bytes: u64,
    pub modified_ms: u64,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    File(Stat),
    Folder(Stat),
    /// A link, a socket or the like: nothing of ours.
    Other,
}

/// A file system. Implementers keep what POSIX promises: a rename is atomic; what was not synced may be lost with the power.
pub(crate) trait Disk: Send + Sync + 'static {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>>;
    /// Makes one folder; fine if it is there.
    fn make_dir(&self, path: &Path) -> io::Result<Made>;
    /// The names in a folder that are text; no name of ours is anything else.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file, never a folder.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty folder.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    fn stat(&self, path: &Path) -> io::Result<Stat>;
    /// What stands under a name, without following a link.
    fn look(&self, path: &Path) -> io::Result<Look>;
    /// Makes the names in a folder survive a power cut.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
}

/// Whether a folder is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Now,
    Before,
}

pub(crate) trait DiskFile: Send + Sync {
    /// Reads some bytes; 0 only at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all; after an error any part of it may be there.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    /// Whether it is what stands under this name: nobody finds what is written to a file that was removed or moved away.
    fn is_at(&self, path: &Path) -> io::Result<bool>;
    /// Makes the content survive a power cut.
    fn sync(&self) -> io::Result<()>;
    /// Takes the file for this process until it is closed; false if another has it.
    fn try_lock(&self) -> io::Result<bool>;
}

impl dyn DiskFile + '_ {
    /// Fills the buffer, or as much of it as the file has.
    pub fn read_full_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Hands all bytes from `from` on to the operating system once more, and syncs them. A sync that failed, in this life
    /// or the one before, leaves bytes that are shown, that are not on the disk, and that no later sync would write.
    pub fn sync_again(&self, from: u64) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(self.len()?).unwrap_or(CHUNK_BYTES))];
        let mut at = from;
        loop {
            let read = self.read_full_at(&mut chunk, at)?;
            if read == 0 {
                return self.sync();
            }
            self.write_all_at(&chunk[..read], at)?;
            at += read as u64;
        }
    }

    /// The length and the hash of the whole content, in bounded memory.
    pub fn hash_whole(&self) -> io::Result<(u64, blake3::Hash)> {
        let (mut hasher, mut chunk, mut at) = (blake3::Hasher::new(), vec![0; CHUNK_BYTES], 0);
        loop {
            let read = self.read_full_at(&mut chunk, at)?;
            if read == 0 {
                return Ok((at, hasher.finalize()));
            }
            hasher.update(&chunk[..read]);
            at += read as u64;
        }
    }

    /// The whole content; refused when it is larger than `bytes_max`.
    pub fn read_whole(&self, bytes_max: u64) -> io::Result<Vec<u8>> {
        let len = self.len()?;
        if len > bytes_max {
            return Err(io::Error::other(format!("it has {len} bytes, and {bytes_max} are the limit")));
        }
        let mut content = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        let read = self.read_full_at(&mut content, 0)?;
        content.truncate(read);
        Ok(content)
    }
}

/// The operating system's file system.
pub(crate) struct OsDisk {
    /// False with `durability = "process"`: nothing is synced then.
    pub syncs: bool,
}

struct OsFile {
    file: File,
    /// Device and number: what makes it this file, whatever its name.
    identity: (u64, u64),
    syncs: bool,
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, how: Open) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        // Conversations are nobody else's business.
        options.read(true).mode(0o600);
        // Whatever somebody put in the place of a file: a link is not followed, a pipe is not waited for.
        options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
        match how {
            Open::Read => &mut options,
            Open::Existing => options.write(true),
            Open::Create => options.write(true).create(true),
            Open::Empty => options.write(true).create(true).truncate(true),
            Open::New => options.write(true).create_new(true),
        };
        let file = options.open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("it is not a plain file"));
        }
        Ok(Box::new(OsFile { file, identity: (metadata.dev(), metadata.ino()), syncs: self.syncs }))
    }

    fn make_dir(&self, path: &Path) -> io::Result<Made> {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => Ok(Made::Now),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(Made::Before),
            Err(error) => Err(error),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_dir(path)
    }

    fn stat(&self, path: &Path) -> io::Result<Stat> {
        stat_of(&std::fs::metadata(path)?)
    }

    fn look(&self, path: &Path) -> io::Result<Look> {
        let metadata = std::fs::symlink_metadata(path)?;
        let stat = stat_of(&metadata)?;
        Ok(match metadata.file_type() {
            kind if kind.is_file() => Look::File(stat),
            kind if kind.is_dir() => Look::Folder(stat),
            _ => Look::Other,
        })
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.syncs { File::open(path)?.sync_all() } else { Ok(()) }
    }
}

fn stat_of(metadata: &std::fs::Metadata) -> io::Result<Stat> {
    let since_1970 = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let modified_ms = u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX);
    Ok(Stat { bytes: metadata.len(), modified_ms })
}

impl DiskFile for OsFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) => Ok((metadata.dev(), metadata.ino()) == self.identity),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn sync(&self) -> io::Result<()> {
        if self.syncs { self.file.sync_data() } else { Ok(()) }
    }

    fn try_lock(&self) -> io::Result<bool> {
        match self.file.try_lock() {
            Ok(()) => Ok(true),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

//! One session in one file: a gzipped tar of a manifest, the log as it stands, and the files beside it. What it says of
//! itself is checked when it is read; nothing here touches a store.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use serde::{Deserialize, Serialize};
use tenure_core::{ids::SessionId, time::Timestamp};

/// The format that this version writes, and the only one it reads.
const FORMAT: u32 = 1;
const MANIFEST_NAME: &str = "tenure-export.json";
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
pub(crate) const LOG_NAME: &str = "events.ndjson";
/// Files that an archive may hold.
const ENTRIES_MAX: usize = 100_000;
/// Tar writes in blocks.
const BLOCK_BYTES: u64 = 512;

/// What an archive says of itself, first of all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub tenure_export: u32,
    pub session_id: SessionId,
    /// The number of the last event.
    pub seq: u64,
    pub log_bytes: u64,
    /// The sum of the log's last line, which stands for all of them.
    pub log_sum: String,
    pub exported_at: Timestamp,
    pub blobs: Vec<BlobEntry>,
    /// Files that the log names and that were not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobEntry {
    pub name: String,
    pub bytes: u64,
    /// BLAKE3 in hex.
    pub digest: String,
}

impl Manifest {
    pub(crate) fn new(session_id: SessionId, exported_at: Timestamp) -> Self {
        let (log_sum, blobs, missing) = (String::new(), Vec::new(), Vec::new());
        Self { tenure_export: FORMAT, session_id, seq: 0, log_bytes: 0, log_sum, exported_at, blobs, missing }
    }
}

/// Writes an archive piece by piece; what is ready is taken out as it comes.
pub(crate) struct Writer {
    out: GzEncoder<Vec<u8>>,
    mtime: u64,
}

impl Writer {
    pub fn begin(manifest: &Manifest) -> io::Result<Self> {
        let mut writer =
            Self { out: GzEncoder::new(Vec::new(), Compression::fast()), mtime: manifest.exported_at.ms() / 1000 };
        let json = serde_json::to_vec_pretty(manifest)?;
        writer.open(MANIFEST_NAME, json.len() as u64)?;
        writer.write(&json)?;
        writer.close(json.len() as u64)?;
        Ok(writer)
    }

    /// Begins a file of exactly so many bytes.
    pub fn open(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_path(name)?;
        header.set_size(bytes);
        header.set_mode(0o600);
        header.set_mtime(self.mtime);
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Ends the file that was begun with so many bytes.
    pub fn close(&mut self, bytes: u64) -> io::Result<()> {
        let padding = bytes.next_multiple_of(BLOCK_BYTES) - bytes;
        self.out.write_all(&[0; BLOCK_BYTES as usize][..usize::try_from(padding).unwrap_or(0)])
    }

    /// What is ready by now.
    pub fn ready(&mut self) -> Bytes {
        std::mem::take(self.out.get_mut()).into()
    }

    pub fn end(mut self) -> io::Result<Bytes> {
        self.out.write_all(&[0; 2 * BLOCK_BYTES as usize])?;
        Ok(self.out.finish()?.into())
    }
}

/// An archive being read, within a bound on what it unpacks to.
pub(crate) struct Reader<R: Read> {
    archive: tar::Archive<Bounded<MultiGzDecoder<R>>>,
}

/// The files of an archive in their order, the manifest first.
pub(crate) struct Files<'a, R: Read> {
    entries: tar::Entries<'a, Bounded<MultiGzDecoder<R>>>,
    seen: usize,
}

impl<R: Read> Reader<R> {
    pub fn new(packed: R, bytes_max: u64) -> Self {
        let bounded = Bounded { inner: MultiGzDecoder::new(packed), left: bytes_max };
        Self { archive: tar::Archive::new(bounded) }
    }

    /// The manifest, and the files that follow it.
    pub fn open(&mut self) -> Result<(Manifest, Files<'_, R>), String> {
        // Raw: a name that is told in an entry of its own would be read into memory whole, however long it is.
        let mut files = Files { entries: self.archive.entries().map_err(unreadable)?.raw(true), seen: 0 };
        let Some(mut first) = files.next()?.filter(|file| file.name == MANIFEST_NAME) else {
            return Err(format!("{MANIFEST_NAME} is not its first file"));
        };
        if first.bytes > MANIFEST_BYTES_MAX {
            return Err(format!("its {MANIFEST_NAME} is too large"));
        }
        let json = first.whole()?;
        let known: Format = serde_json::from_slice(&json).map_err(|error| format!("{MANIFEST_NAME}: {error}"))?;
        if known.tenure_export != FORMAT {
            return Err(format!("it has format {}, and this version reads format {FORMAT}", known.tenure_export));
        }
        let manifest = serde_json::from_slice(&json).map_err(|error| format!("{MANIFEST_NAME}: {error}"))?;
        drop(first);
        Ok((manifest, files))
    }

    /// Nothing but empty blocks may follow the last file.
    pub fn end(self) -> Result<(), String> {
        let mut rest = self.archive.into_inner();
        let mut block = [0; BLOCK_BYTES as usize];
        loop {
            match rest.read(&mut block).map_err(unreadable)? {
                0 => return Ok(()),
                read if block[..read].iter().all(|byte| *byte == 0) => {}
                _ => return Err("something follows its end".into()),
            }
        }
    }
}

#[derive(Deserialize)]
struct Format {
    tenure_export: u32,
}

impl<'a, R: Read> Files<'a, R> {
    /// The next plain file; anything else in an archive is refused.
    pub fn next(&mut self) -> Result<Option<File<'a, R>>, String> {
        let Some(entry) = self.entries.next() else { return Ok(None) };
        let entry = entry.map_err(unreadable)?;
        self.seen += 1;
        if self.seen > ENTRIES_MAX {
            return Err(format!("it holds more than {ENTRIES_MAX} files"));
        }
        let name = entry.path_bytes();
        let name = std::str::from_utf8(&name).map_err(|_| "a file's name is not text".to_owned())?.to_owned();
        if entry.header().entry_type() != tar::EntryType::Regular {
            return Err(format!("'{}' is not a plain file", name.escape_debug()));
        }
        let bytes = entry.size();
        Ok(Some(File { name, bytes, entry }))
    }
}

/// One file of an archive.
pub(crate) struct File<'a, R: Read> {
    pub name: String,
    pub bytes: u64,
    entry: tar::Entry<'a, Bounded<MultiGzDecoder<R>>>,
}

impl<R: Read> File<'_, R> {
    /// All of it. Whoever asks has looked at `bytes` before.
    pub fn whole(&mut self) -> Result<Vec<u8>, String> {
        let mut content = Vec::new();
        self.entry.read_to_end(&mut content).map_err(unreadable)?;
        match content.len() as u64 == self.bytes {
            true => Ok(content),
            false => Err(format!("'{}' is cut short", self.name)),
        }
    }

    /// Some more of it; 0 at its end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize, String> {
        self.entry.read(buffer).map_err(unreadable)
    }
}

fn unreadable(error: io::Error) -> String {
    format!("it cannot be unpacked: {error}")
}

/// Reads no more than a bound: a small file can unpack to a huge one.
pub(crate) struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| io::Error::other(TOO_LARGE))?;
        Ok(read)
    }
}

/// How an archive that unpacks to more than its bound is called.
pub(crate) const TOO_LARGE: &str = "it unpacks to more than an import may hold";

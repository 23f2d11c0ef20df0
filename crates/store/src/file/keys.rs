//! `keys.ndjson`: the idempotency keys of creates. A key is synced before it counts; keys older than a day are forgotten.

use std::{collections::HashMap, io, sync::Arc};

use tenure_core::{session::KEY_KEPT_MS, time::Timestamp};

use super::{
    blocking,
    folder::{Folder, Keep},
    lines::{Lines, Next},
};
use crate::{
    CreateKey, Error, Result,
    disk::{DiskFile, Open},
    seal::{self, Sealed},
};

/// Keys of one day; beyond it no create with a key is taken.
const KEYS_MAX: usize = 200_000;
const KEY_LINE_BYTES_MAX: usize = 64 << 10;
/// The file is written anew when it has this many lines more than twice the keys that count.
const STALE_LINES_MAX: usize = 64;

pub(crate) struct Keys {
    folder: Arc<Folder>,
    /// `None` until a key is first asked for.
    loaded: Arc<tokio::sync::Mutex<Option<Loaded>>>,
}

struct Loaded {
    file: Box<dyn DiskFile>,
    /// Where the next line goes; what stands behind it is cut first.
    len: u64,
    lines: usize,
    by_name: HashMap<Name, Kept>,
    /// Writing the file anew failed, and nobody knows which of the two files has the name: it is read again.
    stale: bool,
}

/// Of an endpoint and a key on it: there is no second pair with the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Name([u8; 16]);

/// What is kept of a key in memory: where its line stands. Texts by the thousand, small and long-lived, would cost more
/// than themselves, since each keeps a page from being given back.
#[derive(Debug, Clone, Copy)]
struct Kept {
    at: Timestamp,
    offset: u64,
    bytes: u32,
}

impl Keys {
    pub fn new(folder: Arc<Folder>) -> Self {
        Self { folder, loaded: Arc::default() }
    }

    pub async fn get(&self, endpoint: &str, key: &str, now: Timestamp) -> Result<Option<CreateKey>> {
        let name = Name::of(endpoint, key);
        self.with(now, move |_, keys| keys.fresh(name, now).map_err(failed)).await
    }

    pub async fn put(&self, key: CreateKey) -> Result<CreateKey> {
        let now = key.at;
        self.with(now, move |folder, keys| {
            let name = Name::of(&key.endpoint, &key.key);
            if let Some(first) = keys.fresh(name, now).map_err(failed)? {
                return Ok(first);
            }
            keys.make_room(folder, now)?;
            let kept = keys.append(&key).map_err(failed)?;
            keys.by_name.insert(name, kept);
            Ok(key)
        })
        .await
    }

    async fn with<T: Send + 'static>(
        &self,
        now: Timestamp,
        work: impl FnOnce(&Folder, &mut Loaded) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let folder = self.folder.clone();
        let mut guard = self.loaded.clone().lock_owned().await;
        blocking(move || match &mut *guard {
            Some(keys) if !keys.stale => work(&folder, keys),
            empty => work(&folder, empty.insert(Loaded::load(&folder, now).map_err(failed)?)),
        })
        .await
    }
}

impl Loaded {
    fn load(folder: &Folder, now: Timestamp) -> io::Result<Loaded> {
        let file = folder.disk.open(&folder.layout.keys(), Open::Create)?;
        // A key that a killed daemon wrote may be in the page cache only; and the file's name may be new.
        file.sync_again(0)?;
        folder.disk.sync_dir(folder.layout.root())?;
        let mut by_name = HashMap::new();
        let (mut count, mut damaged) = (0, 0);
        let mut lines = Lines::new(&*file, 0, file.len()?, KEY_LINE_BYTES_MAX);
        let len = loop {
            match lines.next()? {
                Next::End => break lines.offset(),
                Next::Torn { offset } => break offset,
                Next::TooLong { .. } => {}
                Next::Line { offset, bytes } => match read_line(bytes) {
                    Some(key) if is_fresh(key.at, now) => {
                        let kept = Kept { at: key.at, offset, bytes: bytes.len() as u32 };
                        by_name.insert(Name::of(&key.endpoint, &key.key), kept);
                    }
                    Some(_) => {}
                    None => damaged += 1,
                },
            }
            count += 1;
        };
        if damaged > 0 {
            folder.notices.add(format!("{damaged} lines of keys.ndjson are damaged and were passed over"));
        }
        let mut keys = Loaded { file, len, lines: count, by_name, stale: false };
        if keys.is_mostly_stale() {
            keys.compact(folder)?;
        }
        Ok(keys)
    }

    fn fresh(&self, name: Name, now: Timestamp) -> io::Result<Option<CreateKey>> {
        let Some(kept) = self.by_name.get(&name).filter(|kept| is_fresh(kept.at, now)) else { return Ok(None) };
        let key = read_line(&self.line(kept)?).filter(|key| Name::of(&key.endpoint, &key.key) == name);
        key.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the line of this key has changed"))
    }

    /// A key's line without its end.
    fn line(&self, kept: &Kept) -> io::Result<Vec<u8>> {
        let mut line = vec![0; kept.bytes as usize];
        let read = self.file.read_full_at(&mut line, kept.offset)?;
        line.truncate(read);
        Ok(line)
    }

    fn is_mostly_stale(&self) -> bool {
        self.lines > 2 * self.by_name.len() + STALE_LINES_MAX
    }

    fn make_room(&mut self, folder: &Folder, now: Timestamp) -> Result<()> {
        if self.by_name.len() < KEYS_MAX {
            return Ok(());
        }
        self.by_name.retain(|_, kept| is_fresh(kept.at, now));
        if self.is_mostly_stale() {
            self.compact(folder).map_err(failed)?;
        }
        match self.by_name.len() < KEYS_MAX {
            true => Ok(()),
            false => Err(Error::KeysFull { limit: KEYS_MAX }),
        }
    }

    fn append(&mut self, key: &CreateKey) -> io::Result<Kept> {
        let line = line_of(key)?;
        if line.len() > KEY_LINE_BYTES_MAX + 1 {
            // It would be passed over by the next life.
            return Err(io::Error::other(format!(
                "it has {} bytes, and {KEY_LINE_BYTES_MAX} are the limit",
                line.len()
            )));
        }
        // Cuts what a torn write of this or an earlier life left behind the last whole line.
        self.file.set_len(self.len)?;
        let written = self.file.write_all_at(&line, self.len).and_then(|()| self.file.sync());
        if let Err(error) = written {
            // Best effort; the next append cuts again.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        let kept = Kept { at: key.at, offset: self.len, bytes: line.len() as u32 - 1 };
        self.len += line.len() as u64;
        self.lines += 1;
        Ok(kept)
    }

    fn compact(&mut self, folder: &Folder) -> io::Result<()> {
        let (mut content, mut by_name) = (Vec::new(), HashMap::with_capacity(self.by_name.len()));
        for (name, kept) in &self.by_name {
            by_name.insert(*name, Kept { offset: content.len() as u64, ..*kept });
            content.extend_from_slice(&self.line(kept)?);
            content.push(b'\n');
        }
        self.stale = true;
        folder.replace(&folder.layout.keys(), &[&content], Keep::Synced)?;
        self.file = folder.disk.open(&folder.layout.keys(), Open::Existing)?;
        self.stale = false;
        self.by_name = by_name;
        self.len = content.len() as u64;
        self.lines = self.by_name.len();
        Ok(())
    }
}

/// A key as a line of the file.
fn line_of(key: &CreateKey) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(key)?;
    seal::put(&mut line);
    line.push(b'\n');
    Ok(line)
}

/// `None`: the line is damaged. Lines of the time before there were sums are taken as they are.
pub(crate) fn read_line(line: &[u8]) -> Option<CreateKey> {
    match seal::check(line) {
        Sealed::Bad => None,
        Sealed::Good(_) | Sealed::Unsealed => serde_json::from_slice(line).ok(),
    }
}

impl Name {
    fn of(endpoint: &str, key: &str) -> Name {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(endpoint.len() as u64).to_le_bytes()).update(endpoint.as_bytes()).update(key.as_bytes());
        let mut name = [0; 16];
        hasher.finalize_xof().fill(&mut name);
        Name(name)
    }
}

fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    now.ms().saturating_sub(at.ms()) < KEY_KEPT_MS
}

fn failed(error: io::Error) -> Error {
    Error::disk("the idempotency keys", &error)
}

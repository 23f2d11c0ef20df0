//! `keys.ndjson`: the idempotency keys of creates. A key is synced before it counts; keys older than a day are forgotten.
//! A damaged line is mended where one bit does it, and else stays as it is until a repair: it is never cut.

use std::{collections::HashMap, io, sync::Arc};

use tenure_core::{ids::SessionId, session::KEY_KEPT_MS, time::Timestamp};

use super::{
    blocking,
    folder::{Folder, Keep},
    lines::{Lines, Next},
    upkeep::line_files::{self, Piece},
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
/// Where more than this is damaged, no bit is looked for: a start would wait for it. A repair does it all the same.
const MENDED_BYTES_MAX: u64 = 2 << 10;
/// A file of so many keys is smaller.
const BYTES_MAX: u64 = 1 << 30;

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
    /// Lines that nothing mends.
    damaged: Vec<Damaged>,
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

/// A damaged line with its end.
#[derive(Debug, Clone, Copy)]
struct Damaged {
    offset: u64,
    bytes: u64,
}

/// Notes of sessions that they are about to be deleted, in keys that nobody has open.
pub(crate) fn note_purged(folder: &Folder, sessions: &[SessionId], at: Timestamp) -> Result<()> {
    if sessions.is_empty() {
        return Ok(());
    }
    let mut keys = Loaded::load(folder, at).map_err(unread)?;
    let marks = sessions.iter().map(|session| line_of(&CreateKey::purged(*session, at)));
    let lines: Vec<Vec<u8>> = marks.collect::<io::Result<_>>().map_err(failed)?;
    keys.write(&lines.concat()).map_err(failed)
}

impl Keys {
    pub fn new(folder: Arc<Folder>) -> Self {
        Self { folder, loaded: Arc::default() }
    }

    pub async fn get(&self, endpoint: &str, key: &str, now: Timestamp) -> Result<Option<CreateKey>> {
        let name = Name::of(endpoint, key);
        self.with(now, move |_, keys| keys.fresh(name, now).map_err(unread)).await
    }

    pub async fn put(&self, key: CreateKey) -> Result<CreateKey> {
        let now = key.at;
        self.with(now, move |folder, keys| {
            let name = Name::of(&key.endpoint, &key.key);
            if let Some(first) = keys.fresh(name, now).map_err(unread)? {
                return Ok(first);
            }
            keys.put(folder, name, &key)?;
            Ok(key)
        })
        .await
    }

    pub async fn replace(&self, key: CreateKey) -> Result<()> {
        self.with(key.at, move |folder, keys| keys.put(folder, Name::of(&key.endpoint, &key.key), &key)).await
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
            empty => work(&folder, empty.insert(Loaded::load(&folder, now).map_err(unread)?)),
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
        let mut keys = Self::read(file, now)?;
        if keys.is_hurt()? && keys.mend(folder)? {
            keys = Self::read(folder.disk.open(&folder.layout.keys(), Open::Existing)?, now)?;
        }
        if !keys.damaged.is_empty() {
            let count = keys.damaged.len();
            folder.notices.add(format!("{count} lines of keys.ndjson are damaged and were passed over"));
        }
        if keys.is_mostly_stale() {
            keys.compact(folder)?;
        }
        Ok(keys)
    }

    /// Takes in every line up to the last line end.
    fn read(file: Box<dyn DiskFile>, now: Timestamp) -> io::Result<Loaded> {
        let (mut by_name, mut damaged, mut count) = (HashMap::new(), Vec::new(), 0);
        let mut lines = Lines::new(&*file, 0, file.len()?, KEY_LINE_BYTES_MAX);
        let len = loop {
            let (offset, key) = match lines.next()? {
                Next::End => break lines.offset(),
                Next::Torn { offset } => break offset,
                Next::TooLong { offset } => (offset, None),
                Next::Line { offset, bytes } => (offset, read_line(bytes).map(|key| (key, bytes.len() as u32))),
            };
            match key {
                Some((key, bytes)) if is_fresh(key.at, now) => {
                    by_name.insert(Name::of(&key.endpoint, &key.key), Kept { at: key.at, offset, bytes });
                }
                Some(_) => {}
                None => damaged.push(Damaged { offset, bytes: lines.offset() - offset }),
            }
            count += 1;
        };
        Ok(Loaded { file, len, lines: count, by_name, damaged, stale: false })
    }

    /// Whether anything in the file is no key.
    fn is_hurt(&self) -> io::Result<bool> {
        Ok(!self.damaged.is_empty() || self.file.len()? > self.len)
    }

    /// Mends the lines that one turned bit explains, and puts the rest of a torn line aside; whether it changed the file.
    fn mend(&self, folder: &Folder) -> io::Result<bool> {
        let content = self.file.read_whole(BYTES_MAX)?;
        let end = usize::try_from(self.len).map_err(io::Error::other)?.min(content.len());
        let hurt = self.damaged.iter().map(|line| line.bytes).sum::<u64>() + (content.len() - end) as u64;
        // Where it is too much, the lines stay as they are, and only what comes behind the last line end is taken away.
        let is_much = hurt > MENDED_BYTES_MAX;
        let (lines, rest) = content.split_at(if is_much { end } else { 0 });
        let (mut whole, mut mended, mut torn) = (lines.to_vec(), 0, None);
        let pieces = (!is_much).then(|| line_files::key_pieces(rest));
        let left = (is_much && !rest.is_empty()).then_some(Piece::Lost(rest));
        for piece in pieces.into_iter().flatten().chain(left) {
            match piece {
                Piece::Good(line) => whole.extend_from_slice(line),
                Piece::Mended(lines) => {
                    whole.extend_from_slice(&lines);
                    mended += 1;
                }
                Piece::Lost(line) if line.ends_with(b"\n") => whole.extend_from_slice(line),
                Piece::Lost(line) => torn = Some(line),
            }
        }
        if whole == content {
            return Ok(false);
        }
        if let Some(torn) = torn {
            let aside = folder.free_name(|n| folder.layout.damaged("keys.ndjson", n))?;
            folder.replace(&aside, &[torn], Keep::Synced)?;
            let bytes = torn.len();
            folder.notices.add(format!(
                "keys.ndjson ended with {bytes} bytes that are no whole line; they were cut and kept in {}",
                aside.display()
            ));
        }
        if mended > 0 {
            let notice = "damaged lines of keys.ndjson were mended: one bit of each had changed";
            folder.notices.add(format!("{mended} {notice}"));
        }
        folder.replace(&folder.layout.keys(), &[&whole], Keep::Synced)?;
        Ok(true)
    }

    fn fresh(&self, name: Name, now: Timestamp) -> io::Result<Option<CreateKey>> {
        let Some(kept) = self.by_name.get(&name).filter(|kept| is_fresh(kept.at, now)) else { return Ok(None) };
        let line = self.line(kept)?;
        // A bit that turned since it was read is mended on the disk by the next start.
        let key = read_line(&line).or_else(|| read_line(&line_files::mend_key_line(&line)?));
        let key = key.filter(|key| Name::of(&key.endpoint, &key.key) == name);
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
        self.lines > 2 * (self.by_name.len() + self.damaged.len()) + STALE_LINES_MAX
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

    /// Keeps a key in the place of any earlier one; it counts when it is in the file that the next life will find.
    fn put(&mut self, folder: &Folder, name: Name, key: &CreateKey) -> Result<()> {
        self.make_room(folder, key.at)?;
        let kept = self.append(key).map_err(failed)?;
        let before = self.by_name.insert(name, kept);
        // Where nobody can tell, the write that went well counts.
        if self.file.is_at(&folder.layout.keys()).unwrap_or(true) {
            return Ok(());
        }
        self.make_again(folder, key.at).map_err(|error| {
            match before {
                Some(before) => self.by_name.insert(name, before),
                None => self.by_name.remove(&name),
            };
            failed(error)
        })
    }

    /// Somebody removed the file or moved it away: all that is known goes into the one that stands there now, or a new one.
    fn make_again(&mut self, folder: &Folder, now: Timestamp) -> io::Result<()> {
        let mut there = Self::load(folder, now)?;
        let mut lines = Vec::new();
        for (name, kept) in self.by_name.iter().filter(|(_, kept)| is_fresh(kept.at, now)) {
            if there.by_name.get(name).is_none_or(|known| known.at < kept.at) {
                let offset = there.len + lines.len() as u64;
                lines.extend_from_slice(&self.line(kept)?);
                lines.push(b'\n');
                there.by_name.insert(*name, Kept { offset, ..*kept });
                there.lines += 1;
            }
        }
        there.write(&lines)?;
        *self = there;
        folder.notices.add("keys.ndjson was removed or moved while it was in use; it was made again".into());
        Ok(())
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
        let kept = Kept { at: key.at, offset: self.len, bytes: line.len() as u32 - 1 };
        self.write(&line)?;
        self.lines += 1;
        Ok(kept)
    }

    /// Writes whole lines behind those that are there.
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        // Cuts what a refused write of ours left behind the last whole line; what others left is none of it.
        self.file.set_len(self.len)?;
        let written = self.file.write_all_at(lines, self.len).and_then(|()| self.file.sync());
        if let Err(error) = written {
            // Best effort; the next append cuts again.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        self.len += lines.len() as u64;
        Ok(())
    }

    fn compact(&mut self, folder: &Folder) -> io::Result<()> {
        let (mut content, mut by_name) = (Vec::new(), HashMap::with_capacity(self.by_name.len()));
        for (name, kept) in &self.by_name {
            by_name.insert(*name, Kept { offset: content.len() as u64, ..*kept });
            content.extend_from_slice(&self.line(kept)?);
            content.push(b'\n');
        }
        let mut damaged = Vec::with_capacity(self.damaged.len());
        for line in &self.damaged {
            damaged.push(Damaged { offset: content.len() as u64, ..*line });
            let from = content.len();
            content.resize(from + usize::try_from(line.bytes).map_err(io::Error::other)?, 0);
            let read = self.file.read_full_at(&mut content[from..], line.offset)?;
            content.truncate(from + read);
        }
        self.stale = true;
        folder.replace(&folder.layout.keys(), &[&content], Keep::Synced)?;
        self.file = folder.disk.open(&folder.layout.keys(), Open::Existing)?;
        self.stale = false;
        self.lines = by_name.len() + damaged.len();
        (self.by_name, self.damaged) = (by_name, damaged);
        self.len = content.len() as u64;
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

fn unread(error: io::Error) -> Error {
    Error::unread("the idempotency keys", &error)
}

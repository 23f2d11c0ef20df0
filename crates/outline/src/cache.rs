//! What was parsed before, in one file for each repository. It is only a cache: what is damaged, of another version or
//! missing is made anew, nothing is synced, and old files give way to new ones.

mod bytes;

use std::{
    collections::HashMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use bytes::{Taker, put_number, put_text};

use crate::{
    language::Language,
    tags::{Definition, Shape, Tags},
    walk::{Candidate, Stamp},
};

/// Changes whenever the same bytes of a source would be read in another way, or the file is laid out in another way.
const VERSION: &[u8; 16] = b"tenure outline 1";
const SUM_BYTES: usize = 32;
/// One repository's file. Beyond that what was not seen for longest is left out.
const PACK_BYTES_MAX: usize = 48 << 20;
/// All of them together, and how many.
const FOLDER_BYTES_MAX: u64 = 256 << 20;
const PACKS_MAX: usize = 64;
/// Tags of bytes that no file has now are kept for so many changes more: branches come and go.
const UNSEEN_MAX: u64 = 16;
/// A file that was changed this shortly before it was read may change again without a trace in its stamp.
const SETTLED: Duration = Duration::from_secs(1);
const ENDING: &str = "outline";

/// The digest of a file's bytes, read as a language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Digest([u8; 32]);

impl Digest {
    pub(crate) fn of(language: Language, bytes: &[u8]) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&[language as u8]).update(bytes);
        Digest(*hasher.finalize().as_bytes())
    }
}

/// What is known of one repository.
#[derive(Debug, Default)]
pub(crate) struct Pack {
    paths: HashMap<String, (Stamp, Digest)>,
    tags: HashMap<Digest, Kept>,
    /// How often it was changed.
    changes: u64,
    dirty: bool,
}

#[derive(Debug)]
struct Kept {
    tags: Arc<Tags>,
    /// The change that last found it in use.
    seen: u64,
}

impl Pack {
    pub(crate) fn load(folder: &Path, root: &Path) -> Pack {
        let read = fs::read(file_of(folder, root)).ok();
        let mut pack = read.and_then(|bytes| Pack::decode(&bytes)).unwrap_or_default();
        pack.changes += 1;
        pack
    }

    /// What is known of a file that has not changed since.
    pub(crate) fn by_stamp(&self, path: &str, stamp: &Stamp) -> Option<(Arc<Tags>, Digest)> {
        let (known, digest) = self.paths.get(path)?;
        let kept = self.tags.get(digest).filter(|_| known == stamp)?;
        Some((kept.tags.clone(), *digest))
    }

    pub(crate) fn by_digest(&self, digest: &Digest) -> Option<Arc<Tags>> {
        self.tags.get(digest).map(|kept| kept.tags.clone())
    }

    pub(crate) fn keep(&mut self, candidate: &Candidate, digest: Digest, tags: &Arc<Tags>) {
        let known = self.paths.get(&candidate.path);
        if known != Some(&(candidate.stamp, digest)) && is_settled(&candidate.stamp) {
            self.paths.insert(candidate.path.clone(), (candidate.stamp, digest));
            self.dirty = true;
        }
        let seen = self.changes;
        let kept = self.tags.entry(digest).or_insert_with(|| {
            self.dirty = true;
            Kept { tags: tags.clone(), seen }
        });
        kept.seen = seen;
    }

    /// Forgets the paths below a folder that a whole walk did not find.
    pub(crate) fn forget_missing(&mut self, below: &str, found: &[Candidate]) {
        let is_below = |path: &str| {
            let rest = path.strip_prefix(below.trim_end_matches('/'));
            below.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let is_found = |path: &str| found.binary_search_by(|one| one.path.as_str().cmp(path)).is_ok();
        let before = self.paths.len();
        self.paths.retain(|path, _| !is_below(path) || is_found(path));
        self.dirty |= self.paths.len() != before;
    }

    /// Puts it down, if there is anything new. A failure only means that the next one is slower.
    pub(crate) fn save(mut self, folder: &Path, root: &Path) {
        if !self.dirty {
            return;
        }
        self.drop_unseen();
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
            file.write_all(&self.encode())?;
            file.persist(file_of(folder, root))?;
            Ok(())
        };
        if write().is_ok() {
            evict(folder);
        }
    }

    fn drop_unseen(&mut self) {
        let in_use: std::collections::HashSet<Digest> = self.paths.values().map(|(_, digest)| *digest).collect();
        let changes = self.changes;
        self.tags.retain(|digest, kept| in_use.contains(digest) || kept.seen + UNSEEN_MAX > changes);
    }

    fn encode(&self) -> Vec<u8> {
        let mut body = vec![];
        put_number(&mut body, self.changes);
        let mut tags: Vec<(&Digest, &Kept)> = self.tags.iter().collect();
        tags.sort_unstable_by_key(|(digest, kept)| (std::cmp::Reverse(kept.seen), **digest));
        let mut number: HashMap<Digest, u64> = HashMap::new();
        let mut entries = vec![];
        for (digest, kept) in tags {
            if entries.len() > PACK_BYTES_MAX {
                break;
            }
            number.insert(*digest, number.len() as u64);
            entries.extend_from_slice(&digest.0);
            put_number(&mut entries, kept.seen);
            put_tags(&mut entries, &kept.tags);
        }
        put_number(&mut body, number.len() as u64);
        body.extend_from_slice(&entries);
        let paths = self.paths.iter().filter_map(|(path, (stamp, digest))| Some((path, stamp, number.get(digest)?)));
        let mut paths: Vec<_> = paths.collect();
        paths.sort_unstable_by_key(|(path, ..)| *path);
        put_number(&mut body, paths.len() as u64);
        for (path, stamp, number) in paths {
            put_text(&mut body, path);
            put_number(&mut body, *number);
            put_stamp(&mut body, stamp);
        }
        let sum = blake3::hash(&body);
        [&VERSION[..], sum.as_bytes(), &body].concat()
    }

    /// `None`: it is damaged, or of another version.
    fn decode(bytes: &[u8]) -> Option<Pack> {
        let (version, rest) = bytes.split_at_checked(VERSION.len())?;
        let (sum, body) = rest.split_at_checked(SUM_BYTES)?;
        if version != VERSION || blake3::hash(body).as_bytes() != sum {
            return None;
        }
        let mut taker = Taker::new(body);
        let mut pack = Pack { changes: taker.number()?, ..Pack::default() };
        let mut digests = vec![];
        for _ in 0..taker.number()? {
            let digest = Digest(taker.bytes(32)?.try_into().ok()?);
            let kept = Kept { seen: taker.number()?, tags: Arc::new(take_tags(&mut taker)?) };
            pack.tags.insert(digest, kept);
            digests.push(digest);
        }
        for _ in 0..taker.number()? {
            let path = taker.text()?.to_owned();
            let digest = *digests.get(usize::try_from(taker.number()?).ok()?)?;
            pack.paths.insert(path, (take_stamp(&mut taker)?, digest));
        }
        Some(pack)
    }
}

fn put_tags(to: &mut Vec<u8>, tags: &Tags) {
    to.push(u8::from(tags.too_slow));
    put_number(to, tags.definitions.len() as u64);
    for definition in &tags.definitions {
        put_text(to, &definition.name);
        put_text(to, &definition.signature);
        put_number(to, u64::from(definition.first_line));
        put_number(to, u64::from(definition.last_line));
        put_number(to, definition.parent.map_or(0, |parent| u64::from(parent) + 1));
        to.push(definition.shape.code());
    }
    put_number(to, tags.references.len() as u64);
    for (name, count) in &tags.references {
        put_text(to, name);
        put_number(to, u64::from(*count));
    }
}

fn take_tags(from: &mut Taker) -> Option<Tags> {
    let mut tags = Tags { too_slow: from.bytes(1)?[0] != 0, ..Tags::default() };
    for at in 0..from.number()? {
        tags.definitions.push(Definition {
            name: from.text()?.into(),
            signature: from.text()?.into(),
            first_line: from.small()?,
            last_line: from.small()?,
            // A parent stands before what it holds; anything else would lead in circles.
            parent: from.small()?.checked_sub(1).filter(|parent| u64::from(*parent) < at),
            shape: Shape::of_code(from.bytes(1)?[0])?,
        });
    }
    for _ in 0..from.number()? {
        tags.references.push((from.text()?.into(), from.small()?));
    }
    Some(tags)
}

fn put_stamp(to: &mut Vec<u8>, stamp: &Stamp) {
    put_number(to, stamp.size);
    to.extend_from_slice(&stamp.modified_ns.to_le_bytes());
    to.extend_from_slice(&stamp.changed_ns.to_le_bytes());
    put_number(to, stamp.inode);
}

fn take_stamp(from: &mut Taker) -> Option<Stamp> {
    let size = from.number()?;
    let modified_ns = i64::from_le_bytes(from.bytes(8)?.try_into().ok()?);
    let changed_ns = i64::from_le_bytes(from.bytes(8)?.try_into().ok()?);
    Some(Stamp { size, modified_ns, changed_ns, inode: from.number()? })
}

fn is_settled(stamp: &Stamp) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let last = stamp.modified_ns.max(stamp.changed_ns);
    // A time to come says nothing of what will be.
    i128::from(last) + (SETTLED.as_nanos() as i128) < now.as_nanos() as i128
}

fn file_of(folder: &Path, root: &Path) -> PathBuf {
    let name = blake3::hash(root.as_os_str().as_encoded_bytes()).to_hex();
    folder.join(format!("{}.{ENDING}", &name[..32]))
}

/// The files that were written longest ago go, until the folder is within its bounds. What a killed process left half
/// written goes too.
fn evict(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut packs = vec![];
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        let is_pack = entry.path().extension().is_some_and(|ending| ending == ENDING);
        let is_left = entry.file_name().as_encoded_bytes().starts_with(b".new-");
        if is_pack {
            packs.push((modified, metadata.len(), entry.path()));
        } else if is_left && modified.elapsed().is_ok_and(|age| age > Duration::from_secs(3600)) {
            let _ = fs::remove_file(entry.path());
        }
    }
    packs.sort_unstable_by(|one, other| other.cmp(one));
    let mut bytes = 0;
    for (at, (_, size, path)) in packs.iter().enumerate() {
        bytes += size;
        // The newest stays, whatever its size.
        if at > 0 && (at >= PACKS_MAX || bytes > FOLDER_BYTES_MAX) {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests;

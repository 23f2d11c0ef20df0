//! Reads all sources of a repository: from the cache where it knows them, else by parsing them on a few threads. One
//! survey at a time in a process, so that many sessions that begin together parse a repository once.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, TryLockError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    FILE_BYTES_MAX, Stop, Stopped, THREADS_MAX,
    cache::{Digest, Pack},
    language::Family,
    parse::Reader,
    tags::Tags,
    walk::{Candidate, Stamp, candidates},
};

/// A zero byte this early marks a file that is no text.
const BINARY_PROBE_BYTES: usize = 8 * 1024;
/// How often one that waits for another's survey looks whether it may begin, or should give up.
const WAIT_STEP: Duration = Duration::from_millis(5);

/// Where to look, and how.
pub struct Repository<'a> {
    pub root: &'a Path,
    /// A folder or file below the root; empty for all of it.
    pub below: &'a str,
    /// Opens a file by its path below the root. It is the caller's to see that no path leads out.
    pub open: &'a (dyn Fn(&str) -> io::Result<File> + Sync),
    /// A folder for what was parsed. It may be deleted at any time.
    pub cache: Option<&'a Path>,
    /// What the parser may take for one file: [`PARSE_TIME_MAX`](crate::PARSE_TIME_MAX).
    pub parse_time: Duration,
}

/// What the sources of a repository define and name.
#[derive(Debug, Default)]
pub struct Survey {
    /// Sorted by path.
    pub files: Vec<SourceFile>,
    pub skipped: Skipped,
    /// Files that had to be parsed; the others were known.
    pub parsed: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    pub path: String,
    pub(crate) family: Family,
    pub tags: Arc<Tags>,
}

/// Sources that are not in a survey, by why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    pub large: usize,
    /// No text, or gone, or not to be opened.
    pub unreadable: usize,
    pub too_slow: usize,
    /// More files than a survey takes.
    pub beyond: usize,
    /// Looks as if it held secrets.
    pub secret: usize,
    /// There was more to walk over than is walked over.
    pub walk_cut: bool,
}

/// What became of one candidate.
enum Read {
    Known(Arc<Tags>, Digest),
    Parsed(Arc<Tags>, Digest),
    Unreadable,
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Reads the sources. What was parsed before it had to stop is kept in the cache.
pub fn survey(repository: &Repository, stop: &Stop) -> Result<Survey, Stopped> {
    let (found, skipped) = candidates(repository.root, repository.below, stop)?;
    if found.is_empty() {
        return Ok(Survey { skipped, ..Survey::default() });
    }
    let _turn = wait_for_turn(stop)?;
    let mut pack = repository.cache.map_or_else(Pack::default, |folder| Pack::load(folder, repository.root));
    let (read, stopped) = read_all(repository, &pack, &found, stop);
    let survey = take_in(&mut pack, repository.below, found, read, skipped, stopped.is_none());
    if let Some(folder) = repository.cache {
        pack.save(folder, repository.root);
    }
    stopped.map_or(Ok(survey), Err)
}

fn wait_for_turn(stop: &Stop) -> Result<MutexGuard<'static, ()>, Stopped> {
    loop {
        match ONE_AT_A_TIME.try_lock() {
            Ok(turn) => return Ok(turn),
            // Nothing is behind the lock that a panic could have left half done.
            Err(TryLockError::Poisoned(turn)) => return Ok(turn.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(WAIT_STEP),
        }
        stop.check()?;
    }
}

/// Goes over the candidates on a few threads, each with one file in memory at a time.
fn read_all(
    repository: &Repository,
    pack: &Pack,
    found: &[Candidate],
    stop: &Stop,
) -> (Vec<Option<Read>>, Option<Stopped>) {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut reader = Reader::default();
        let mut read = vec![];
        while stop.check().is_ok() {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(candidate) = found.get(at) else { break };
            read.push((at, read_one(repository, pack, candidate, &mut reader, stop)));
        }
        read
    };
    let mut all: Vec<Option<Read>> = Vec::new();
    all.resize_with(found.len(), || None);
    let pieces: Vec<Vec<(usize, Option<Read>)>> = thread::scope(|scope| {
        let threads: Vec<_> = (1..threads(found, pack)).map(|_| scope.spawn(work)).collect();
        let own = work();
        // A thread that panicked has read nothing; its files count as unreadable.
        threads.into_iter().filter_map(|thread| thread.join().ok()).chain([own]).collect()
    });
    for (at, read) in pieces.into_iter().flatten() {
        all[at] = read;
    }
    (all, stop.check().err())
}

/// Threads that are worth starting: none beside this one where everything is known.
fn threads(found: &[Candidate], pack: &Pack) -> usize {
    let unknown = found.iter().filter(|candidate| pack.by_stamp(&candidate.path, &candidate.stamp).is_none()).count();
    let able = thread::available_parallelism().map_or(1, usize::from);
    able.min(THREADS_MAX).min(unknown).max(1)
}

/// `None`: stopped.
fn read_one(
    repository: &Repository,
    pack: &Pack,
    candidate: &Candidate,
    reader: &mut Reader,
    stop: &Stop,
) -> Option<Read> {
    if let Some((tags, digest)) = pack.by_stamp(&candidate.path, &candidate.stamp) {
        return Some(Read::Known(tags, digest));
    }
    let Some(bytes) = bytes_of(repository, candidate) else { return Some(Read::Unreadable) };
    let digest = Digest::of(candidate.language, &bytes);
    if let Some(tags) = pack.by_digest(&digest) {
        return Some(Read::Known(tags, digest));
    }
    let tags = reader.read(candidate.language, &bytes, repository.parse_time, stop)?;
    Some(Read::Parsed(Arc::new(tags), digest))
}

fn bytes_of(repository: &Repository, candidate: &Candidate) -> Option<Vec<u8>> {
    let file = (repository.open)(&candidate.path).ok()?;
    // What was put in its place since is not what the stamp is of.
    if Stamp::of(&file.metadata().ok()?) != candidate.stamp {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(candidate.stamp.size).ok()?);
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    let is_text = !bytes[..bytes.len().min(BINARY_PROBE_BYTES)].contains(&0);
    (is_text && bytes.len() as u64 <= FILE_BYTES_MAX).then_some(bytes)
}

fn take_in(
    pack: &mut Pack,
    below: &str,
    found: Vec<Candidate>,
    read: Vec<Option<Read>>,
    mut skipped: Skipped,
    is_whole: bool,
) -> Survey {
    let mut survey = Survey::default();
    if is_whole {
        pack.forget_missing(below, &found);
    }
    for (candidate, read) in found.into_iter().zip(read) {
        let (tags, digest) = match read {
            Some(Read::Known(tags, digest)) => (tags, digest),
            Some(Read::Parsed(tags, digest)) => {
                survey.parsed += 1;
                (tags, digest)
            }
            Some(Read::Unreadable) | None => {
                skipped.unreadable += 1;
                continue;
            }
        };
        pack.keep(&candidate, digest, &tags);
        skipped.too_slow += usize::from(tags.too_slow);
        survey.files.push(SourceFile { path: candidate.path, family: candidate.language.family(), tags });
    }
    Survey { skipped, ..survey }
}

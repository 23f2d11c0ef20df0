//! A session that comes from elsewhere in one file. All of it is checked before any of it is a session here: sums,
//! numbers, names, digests, and that nothing in it would start by itself.

use std::io::Read;

use tenure_core::{
    command::{Refusal, digest_of},
    event::{Actor, SessionForked},
    ids::SessionId,
    session::{self, Session},
};
use tenure_store::{CreateKey, LogReader};
use tokio::runtime::Handle;

use crate::{
    Engine, Error,
    archive::{BlobEntry, File, LOG_NAME, Manifest, Reader, TOO_LARGE},
    copy::{Begun, Copy, no_copy},
};

/// How much of a log is taken in at a time; a longer line makes it more.
const CHUNK_BYTES: usize = 256 << 10;
/// The longest line of a log, and the largest file beside one.
const PIECE_BYTES_MAX: u64 = 64 << 20;

/// How an archive is to be taken in.
#[derive(Debug, Clone, Copy)]
pub struct NewImport {
    /// Under an id of its own, as a fork of what the archive holds.
    pub as_new: bool,
    /// What it may unpack to.
    pub bytes_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    pub session_id: SessionId,
    pub manifest: Manifest,
}

impl Engine {
    /// Takes in an archive. Call it on a thread that may wait: `packed` is read as it comes.
    pub fn import(
        &self,
        packed: impl Read,
        new: NewImport,
        key: Option<String>,
        actor: Actor,
        handle: &Handle,
    ) -> Result<Imported, Error> {
        let mut reader = Reader::new(packed, new.bytes_max);
        let (manifest, mut files) = reader.open().map_err(no_archive)?;
        let mut moment = self.0.parts.clock.moment();
        let mut id = if new.as_new { moment.session_id() } else { manifest.session_id };
        let mine = key.map(|key| {
            let (endpoint, digest) = ("import".into(), digest_of(&(&manifest, new.as_new)));
            CreateKey { endpoint, key, digest, session_id: id, at: moment.at }
        });
        let first = |mine: &Option<CreateKey>| match mine {
            Some(mine) => handle.block_on(self.first_of(mine)),
            None => Ok(None),
        };
        let known = first(&mine)?;
        id = known.unwrap_or(id);
        let mut copy = match handle.block_on(Copy::begin(&*self.0.parts.store, id))? {
            Begun::Now(copy) => copy,
            // This very key made it, maybe while it was waited for; another one's session is not what was asked for.
            Begun::Before if first(&mine)?.is_some() && handle.block_on(self.is_of(id, &manifest, new.as_new))? => {
                return Ok(Imported { session_id: id, manifest });
            }
            Begun::Before => return Err(exists(id)),
        };
        let log = files.next().map_err(no_archive)?.filter(|file| file.name == LOG_NAME);
        let log = log.ok_or_else(|| no_copy(format!("{LOG_NAME} is not its second file")))?;
        take_log(log, &manifest, new.as_new, &mut copy, handle)?;
        if !new.as_new {
            check_rest(copy.state()?)?;
        }
        check_blobs(&manifest, &copy)?;
        for blob in &manifest.blobs {
            let file = files.next().map_err(no_archive)?.filter(|file| file.name == blob.name);
            let mut file = file.ok_or_else(|| no_copy(format!("'{}' is not where it should be", blob.name)))?;
            if file.bytes != blob.bytes || file.bytes > PIECE_BYTES_MAX {
                return Err(no_copy(format!("'{}' has not the size that is told of it", blob.name)));
            }
            let content = file.whole().map_err(no_archive)?;
            if blake3::hash(&content).to_hex().as_str() != blob.digest {
                return Err(no_copy(format!("'{}' is not what it was when it was exported", blob.name)));
            }
            handle.block_on(copy.put_blob(&blob.name, content.into()))?;
        }
        if files.next().map_err(no_archive)?.is_some() {
            return Err(no_copy("it holds more files than it tells of".into()));
        }
        reader.end().map_err(no_archive)?;
        let mut told = Vec::new();
        if new.as_new {
            let forked = SessionForked {
                from: manifest.session_id,
                at_seq: manifest.seq,
                title: None,
                model: None,
                workspace_path: None,
                labels: Vec::new(),
            };
            let decision = session::fork(copy.state()?, forked, actor, &mut moment);
            told = decision.events.clone();
            handle.block_on(copy.append(decision))?;
        }
        // What is no session keeps no key. From here on the key makes this one, also where a crash comes between the two.
        if let Some(mine) = mine.filter(|_| known.is_none()) {
            let kept = handle.block_on(self.keep_key(mine))?;
            if kept != id {
                return handle.block_on(self.made_by_another(kept, manifest));
            }
        }
        match handle.block_on(copy.commit()) {
            Err(Error::Store(tenure_store::Error::Exists(_))) => return Err(exists(id)),
            committed => committed?,
        }
        told.iter().for_each(|event| self.0.happened(event));
        handle.block_on(self.welcome(id))?;
        Ok(Imported { session_id: id, manifest })
    }

    /// Another request with the same key was quicker: what it makes is waited for.
    async fn made_by_another(&self, session_id: SessionId, manifest: Manifest) -> Result<Imported, Error> {
        match Copy::begin(&*self.0.parts.store, session_id).await? {
            Begun::Before => Ok(Imported { session_id, manifest }),
            Begun::Now(_) => Err(Error::Overloaded),
        }
    }

    /// Whether this session came from such an archive.
    async fn is_of(&self, id: SessionId, manifest: &Manifest, as_new: bool) -> Result<bool, Error> {
        let state = self.session(id).await?;
        let origin = state.forked_from.map(|origin| (origin.session_id, origin.seq));
        Ok(match as_new {
            true => origin == Some((manifest.session_id, manifest.seq)),
            false => id == manifest.session_id && state.seq >= manifest.seq,
        })
    }
}

/// Nothing of it may start by itself: it would be done here and where it comes from.
fn check_rest(state: &Session) -> Result<(), Error> {
    // An approval that expires goes on by itself too.
    let (message, hint) = match (state.wanted().is_empty(), state.queue.is_empty()) {
        (true, true) => return Ok(()),
        (false, _) => (
            "a turn of this session goes on by itself",
            "import it as a new session: there the turn waits to be resumed",
        ),
        (true, false) => (
            "a turn waits in the queue of this session",
            "import it as a new session: there its message can be sent again",
        ),
    };
    Err(Refusal::new("turn_running", message, hint).into())
}

/// Takes in the log line by line, each checked against the one before it.
fn take_log(
    mut file: File<'_, impl Read>,
    manifest: &Manifest,
    as_new: bool,
    copy: &mut Copy,
    handle: &Handle,
) -> Result<(), Error> {
    if file.bytes != manifest.log_bytes {
        return Err(no_copy(format!("{LOG_NAME} has not the size that is told of it")));
    }
    let mut log = LogReader::new();
    let mut waiting: Vec<u8> = Vec::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let read = file.read(&mut chunk).map_err(no_archive)?;
        if read == 0 {
            break;
        }
        let before = waiting.len();
        waiting.extend_from_slice(&chunk[..read]);
        // Only in what is new: a line may come in many pieces.
        let Some(end) = chunk[..read].iter().rposition(|byte| *byte == b'\n').map(|at| before + at) else {
            if waiting.len() as u64 > PIECE_BYTES_MAX {
                return Err(no_copy("a line of its log is too long".into()));
            }
            continue;
        };
        let rest = waiting.split_off(end + 1);
        let lines = std::mem::replace(&mut waiting, rest);
        let events = log.take(&lines).map_err(no_copy)?;
        match as_new {
            true => handle.block_on(copy.take(&events, manifest.session_id, u64::MAX))?,
            false => handle.block_on(copy.take_lines(lines.into()))?,
        }
    }
    let whole = waiting.is_empty() && log.is_whole() && log.sum() == manifest.log_sum;
    if !whole || copy.state()?.seq != manifest.seq {
        return Err(no_copy("its log does not end where it should".into()));
    }
    Ok(())
}

/// Every file that comes is one that the log names, and every one that the log names comes or is told to be missing.
fn check_blobs(manifest: &Manifest, copy: &Copy) -> Result<(), Error> {
    let mut told: Vec<&str> = manifest.blobs.iter().map(|blob| blob.name.as_str()).collect();
    told.extend(manifest.missing.iter().map(String::as_str));
    told.sort_unstable();
    let is_beside = |name: &&str| name.starts_with("artifacts/") || name.starts_with("attachments/");
    if let Some(name) = told.iter().find(|name| !is_beside(name)) {
        return Err(no_copy(format!("'{}' is no name of a file of a session", name.escape_debug())));
    }
    if !told.iter().copied().eq(copy.blobs().keys().map(String::as_str)) {
        return Err(no_copy("its files are not those that its log names".into()));
    }
    let is_other = |blob: &&BlobEntry| {
        copy.blobs().get(&blob.name).is_some_and(|told| {
            told.digest.as_ref().is_some_and(|digest| *digest != blob.digest)
                || told.bytes.is_some_and(|bytes| bytes != blob.bytes)
        })
    };
    match manifest.blobs.iter().find(is_other) {
        Some(blob) => Err(no_copy(format!("'{}' is not the file that its log names", blob.name))),
        None => Ok(()),
    }
}

fn exists(id: SessionId) -> Error {
    let message = format!("the session {id} is here already");
    Refusal::new("session_exists", message, "import it as a new session, with an id of its own").into()
}

fn no_archive(why: String) -> Error {
    if why.contains(TOO_LARGE) {
        let hint = "raise limits.import_bytes_max in config.toml";
        return Refusal::new("archive_too_large", TOO_LARGE, hint).into();
    }
    no_copy(why)
}

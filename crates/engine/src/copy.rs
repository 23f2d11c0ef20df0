//! What forks and imports share: a log is copied event by event into a stage, folded on the way, and becomes a session
//! with its last write. Nothing here judges what was copied.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use tenure_core::{
    command::Refusal,
    event::{Body, Event, NamedBlob},
    ids::SessionId,
    session::{Decision, Session},
    time::Timestamp,
};
use tenure_store::{CreateKey, LogWriter, Stage, Store, StoredEvent};

use crate::{Engine, Error, warm::Warm};

/// How often somebody who repeats a request looks whether the first one is done.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A copy in the making.
pub(crate) struct Copy {
    id: SessionId,
    stage: Box<dyn Stage>,
    state: Option<Session>,
    /// The files that events name, with their size and digest where those are told.
    blobs: BTreeMap<String, Told>,
    lines: LogWriter,
}

/// What an event tells of a file.
pub(crate) struct Told {
    pub(crate) bytes: Option<u64>,
    pub(crate) digest: Option<String>,
}

/// Whether a copy still has to be made.
pub(crate) enum Begun {
    Now(Box<Copy>),
    /// An earlier request with the same key made it.
    Before,
}

impl Copy {
    /// Begins a copy under this id. If a request with the same key is at it, it is waited for.
    pub async fn begin(store: &dyn Store, id: SessionId) -> Result<Begun, Error> {
        loop {
            match store.stage(id).await {
                Ok(stage) => {
                    let (blobs, lines) = (BTreeMap::new(), LogWriter::new());
                    return Ok(Begun::Now(Box::new(Self { id, stage, state: None, blobs, lines })));
                }
                Err(tenure_store::Error::Exists(_)) => {}
                Err(error) => return Err(error.into()),
            }
            match store.head(id).await {
                Ok(_) => return Ok(Begun::Before),
                Err(tenure_store::Error::NoSession(_)) => tokio::time::sleep(LOOK_EVERY).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Adds events of another session's log as this one's own, up to its event `last`.
    pub async fn take(&mut self, events: &[StoredEvent], from: SessionId, last: u64) -> Result<(), Error> {
        let mut lines = Vec::new();
        for stored in events.iter().filter(|stored| stored.seq <= last) {
            let mut event = event_of(stored, from)?;
            event.session_id = self.id;
            let json = serde_json::to_vec(&event).map_err(|error| Error::Bug(error.to_string()))?;
            // What is cut inside a decision ends one here.
            let more = stored.more.min(last - stored.seq);
            self.lines.push(&StoredEvent { seq: stored.seq, json: json.into(), more }, &mut lines);
            self.fold(&event)?;
        }
        if !lines.is_empty() {
            self.stage.append_lines(lines.into()).await.map_err(bad_lines)?;
        }
        Ok(())
    }

    /// Adds lines of this very session's log, as they were written elsewhere.
    pub async fn take_lines(&mut self, lines: Bytes) -> Result<(), Error> {
        for stored in self.stage.append_lines(lines).await.map_err(bad_lines)? {
            self.fold(&event_of(&stored, self.id)?)?;
        }
        Ok(())
    }

    fn fold(&mut self, event: &Event) -> Result<(), Error> {
        check_names(&event.body)?;
        let told = |blob: &NamedBlob<'_>| Told { bytes: blob.bytes, digest: blob.digest.map(str::to_owned) };
        let named = event.body.blobs().map(|blob| (blob.name.to_owned(), told(&blob)));
        self.blobs.extend(named);
        match &mut self.state {
            Some(_) if matches!(event.body, Body::SessionCreated(_)) => {
                return Err(no_copy(format!("event {} creates it once more", event.seq)));
            }
            Some(state) => state.apply(event),
            None => {
                let born = Session::born(event);
                self.state = Some(born.ok_or_else(|| no_copy("it does not begin with session_created".into()))?);
            }
        }
        Ok(())
    }

    /// What was copied so far folds to this.
    pub fn state(&self) -> Result<&Session, Error> {
        self.state.as_ref().ok_or_else(|| no_copy("it holds no event".into()))
    }

    /// The blobs that the events speak of.
    pub fn blobs(&self) -> &BTreeMap<String, Told> {
        &self.blobs
    }

    pub async fn put_blob(&mut self, name: &str, bytes: Bytes) -> Result<(), Error> {
        self.stage.blob_put(name, bytes).await.map_err(|error| match error {
            // The name is not one that a file beside a log may have.
            tenure_store::Error::Other(why) => no_copy(why),
            other => other.into(),
        })
    }

    /// The last decision before it is a session of its own.
    pub async fn append(&mut self, decision: Decision) -> Result<(), Error> {
        self.stage.append(&decision.events).await?;
        self.state = Some(decision.state);
        Ok(())
    }

    pub async fn commit(self) -> Result<(), Error> {
        self.stage.commit().await.map(drop).map_err(bad_lines)
    }
}

impl Engine {
    /// Keeps a key that makes a session; gives the id that belongs to it.
    pub(crate) async fn keep_key(&self, mine: CreateKey) -> Result<SessionId, Error> {
        if let Some(first) = self.first_of(&mine).await? {
            return Ok(first);
        }
        let first = self.0.parts.store.key_put(mine.clone()).await?;
        // A new key is younger than any deletion, and has made nothing yet.
        match first == mine {
            true => Ok(mine.session_id),
            false => self.same_as(first, &mine).await,
        }
    }

    /// The id that an earlier request with this key was given, if there was one.
    pub(crate) async fn first_of(&self, mine: &CreateKey) -> Result<Option<SessionId>, Error> {
        match self.0.parts.store.key_get(&mine.endpoint, &mine.key, mine.at).await? {
            Some(first) => self.same_as(first, mine).await.map(Some),
            None => Ok(None),
        }
    }

    async fn same_as(&self, first: CreateKey, mine: &CreateKey) -> Result<SessionId, Error> {
        if first.digest != mine.digest {
            let message = "this idempotency key was used for another request";
            return Err(Refusal::new("key_reused", message, "use a new key for a new request").into());
        }
        self.check_not_gone(&first, mine.at).await?;
        Ok(first.session_id)
    }

    /// A key makes its session once. Where a crash came between the two, the session is made now; where it was made and is
    /// gone, an empty one would pass for it.
    async fn check_not_gone(&self, first: &CreateKey, now: Timestamp) -> Result<(), Error> {
        let (store, session) = (&self.0.parts.store, first.session_id);
        // Both before it is looked for: the listing knows of it after it was made, a mark before it is deleted.
        let is_known = store.has_row(session).await?;
        let mark = self.purge_mark(session, now).await?;
        let found = match store.check(session).await {
            Err(gone @ tenure_store::Error::NoSession(_)) => Err(gone),
            _ => store.head(session).await,
        };
        match found {
            Err(tenure_store::Error::NoSession(_)) if mark.is_some_and(|mark| mark.at >= first.at) => {
                Err(purged(session).into())
            }
            Err(tenure_store::Error::NoSession(_)) if is_known => Err(lost(session).into()),
            Ok(_) | Err(tenure_store::Error::NoSession(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that a session is about to be deleted: its maker's key must not make it anew.
    pub(crate) async fn keep_purged(&self, session: SessionId) -> Result<(), Error> {
        let mark = CreateKey::purged(session, self.0.parts.clock.now());
        match self.0.parts.store.key_replace(mark).await {
            // So many keys are no reason to keep a session.
            Ok(()) | Err(tenure_store::Error::KeysFull { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn purge_mark(&self, session: SessionId, now: Timestamp) -> Result<Option<CreateKey>, Error> {
        Ok(self.0.parts.store.key_get(CreateKey::PURGED, &session.to_string(), now).await?)
    }

    /// What to say of a session that is not there: while it is deleted and for a day after that, that it was deleted.
    pub async fn absent(&self, session: SessionId) -> Error {
        if self.is_purging(session) {
            return purged(session).into();
        }
        match self.purge_mark(session, self.0.parts.clock.now()).await {
            Ok(None) => Error::NoSession(session),
            // Where it is there all the same, it was not deleted in the end, or came back from an archive.
            Ok(Some(_)) => match self.0.parts.store.head(session).await {
                Err(tenure_store::Error::NoSession(_)) => purged(session).into(),
                _ => Error::NoSession(session),
            },
            Err(error) => error,
        }
    }

    /// A session that was put in place as a whole is loaded as after a restart, and in the listing before its maker is
    /// told of it.
    pub(crate) async fn welcome(&self, id: SessionId) -> Result<(), Error> {
        let mut warm = Warm::load(self.0.clone(), id).await?;
        warm.announce().await;
        self.insert(id, warm).await;
        Ok(())
    }
}

fn purged(session: SessionId) -> Refusal {
    let hint = "make another one; one that was made with a key needs another key";
    Refusal::new("session_purged", format!("the session {session} was deleted"), hint)
}

fn lost(session: SessionId) -> Refusal {
    let message =
        format!("the session {session} was made with this key; it is gone from the disk, and nobody deleted it");
    let hint = "put it back from a backup, or make another one with another key";
    Refusal::new("session_damaged", message, hint)
}

/// An event of the log of `session`.
fn event_of(stored: &StoredEvent, session: SessionId) -> Result<Event, Error> {
    let event = stored.parse().map_err(|error| no_copy(error.to_string()))?;
    match event.session_id == session {
        true => Ok(event),
        false => Err(no_copy(format!("event {} belongs to {}", event.seq, event.session_id))),
    }
}

/// What a log says of files is used for paths and headers, so it must be as our own uploads and tools would say it.
fn check_names(body: &Body) -> Result<(), Error> {
    // It must also fit into an archive, or the session could never leave again.
    let fits = |name: &str| tar::Header::new_ustar().set_path(name).is_ok();
    let is_odd = |c: char| c.is_control() || c == '"';
    let plain = |name: &str| tenure_store::is_blob_name(name) && fits(name) && !name.contains(is_odd);
    let bad = body.blobs().find(|blob| {
        let digest =
            blob.digest.is_none_or(|digest| digest.len() == 64 && digest.bytes().all(|b| b.is_ascii_hexdigit()));
        !plain(blob.name) || !digest
    });
    if let Some(blob) = bad {
        return Err(no_copy(format!("'{}' is no file of a session", blob.name.escape_debug())));
    }
    match body {
        Body::AttachmentAdded(added) if !added.attachment.mime_type.bytes().all(|b| (0x20..0x7f).contains(&b)) => {
            Err(no_copy("an attachment's type is none".into()))
        }
        _ => Ok(()),
    }
}

/// What was given is not what a session can be made of.
pub(crate) fn no_copy(why: String) -> Error {
    Refusal::new("bad_archive", format!("this is no session: {why}"), "export it again, and check the file").into()
}

fn bad_lines(error: tenure_store::Error) -> Error {
    match error {
        tenure_store::Error::NoLog(why) => no_copy(why),
        other => other.into(),
    }
}

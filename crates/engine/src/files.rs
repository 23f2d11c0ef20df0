//! Bytes beside a session's log, as tools see them and as people get them: whole and unchanged, or not at all.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::{command::Refusal, ids::SessionId, redact::Secrets, tool::Artifact};
use tenure_store::{Blob, Store};
use tenure_tools::Blobs;

use crate::{Engine, Error};

/// Where tools put files.
const ARTIFACTS: &str = "artifacts";

/// A file that was found to be what was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sound {
    pub bytes: Bytes,
    /// BLAKE3 in hex.
    pub digest: String,
}

pub(crate) struct SessionFiles {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) session: SessionId,
    pub(crate) secrets: Secrets,
}

#[async_trait]
impl Blobs for SessionFiles {
    async fn put(&self, name: &str, bytes: Bytes) -> Result<Artifact, String> {
        let bytes = self.redacted(name, bytes);
        let artifact = Artifact::of(name, &bytes);
        self.store.blob_put(self.session, name, bytes).await.map_err(|error| error.to_string())?;
        Ok(artifact)
    }

    async fn get(&self, name: &str) -> Result<Option<Bytes>, String> {
        self.store.blob_get(self.session, name).await.map_err(|error| error.to_string())
    }
}

impl SessionFiles {
    /// Output that people read is redacted; old bytes of a file are kept as they were, or they could not be put back.
    fn redacted(&self, name: &str, bytes: Bytes) -> Bytes {
        if !name.ends_with(".txt") {
            return bytes;
        }
        let text = String::from_utf8_lossy(&bytes);
        match self.secrets.redact(&text) {
            Cow::Borrowed(_) => bytes,
            Cow::Owned(redacted) => Bytes::from(redacted),
        }
    }
}

impl Engine {
    /// The files that tools left behind in a session.
    pub async fn artifacts(&self, session: SessionId) -> Result<Vec<Blob>, Error> {
        // Files of a copy that is still being made belong to no session yet.
        self.0.parts.store.head(session).await?;
        let mut blobs = self.0.parts.store.blob_list(session, ARTIFACTS).await?;
        blobs.retain(|blob| is_shown(&blob.name));
        Ok(blobs)
    }

    /// One of them, by its whole name.
    pub async fn artifact(&self, session: SessionId, name: &str) -> Result<Option<Sound>, Error> {
        let store = &*self.0.parts.store;
        store.head(session).await?;
        if !is_shown(name) {
            return Ok(None);
        }
        let told = self.0.named.ask(store, session, |files| files.get(name).cloned()).await?;
        match told {
            Some(digest) => self.sound(session, name, digest.as_deref()).await.map(Some),
            // A tool that still runs may be writing it: no event tells of it yet.
            None => match store.blob_get(session, name).await {
                // What cannot be a name is the name of nothing.
                Err(tenure_store::Error::Other(_)) => Ok(None),
                found => Ok(found?.map(Sound::of)),
            },
        }
    }

    /// A file that an event names, if its bytes are those that were kept.
    pub(crate) async fn sound(&self, session: SessionId, name: &str, kept: Option<&str>) -> Result<Sound, Error> {
        let found = self.0.parts.store.blob_get(session, name).await?.map(Sound::of);
        let is_kept = |sound: &Sound| kept.is_none_or(|kept| kept == sound.digest);
        let why = match found {
            Some(sound) if is_kept(&sound) => return Ok(sound),
            Some(_) => "was changed on the disk",
            None => "is not there any more",
        };
        self.0.notice_once(format!("{name} of {session} {why}"));
        let hint = "`tenure store check` tells what is damaged, and `tenure store repair` mends what can be mended; \
                    otherwise take it from a backup";
        Err(Refusal::new("file_damaged", format!("{name} {why}"), hint).into())
    }
}

impl Sound {
    fn of(bytes: Bytes) -> Self {
        let digest = blake3::hash(&bytes).to_hex().to_string();
        Self { bytes, digest }
    }
}

/// Bytes from before a write are kept to take the write back, secrets and all: they are not for showing.
fn is_shown(name: &str) -> bool {
    name.strip_prefix(ARTIFACTS).is_some_and(|rest| rest.starts_with('/')) && !name.ends_with(".old")
}

//! Bytes beside a session's log, as tools see them.

use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::{ids::SessionId, redact::Secrets, tool::Artifact};
use tenure_store::Store;
use tenure_tools::Blobs;

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

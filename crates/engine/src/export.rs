//! A session as one file, made while it is read: in bounded memory, and without stopping the session.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_core::{command::Refusal, ids::SessionId, session::TurnStatus};
use tenure_store::{Limit, LogWriter, Store};
use tokio::sync::mpsc;

use crate::{
    Engine, Error,
    archive::{BlobEntry, LOG_NAME, Manifest, Writer},
};

/// Pieces that may wait for whoever reads the archive.
const PIECES_MAX: usize = 4;
/// A piece is handed out when it has this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// An archive on its way out.
pub struct Export {
    pub manifest: Manifest,
    pieces: mpsc::Receiver<Result<Bytes, Error>>,
}

impl Export {
    /// The next piece; `None` at the end. After an error the archive is not whole.
    pub async fn next(&mut self) -> Option<Result<Bytes, Error>> {
        self.pieces.recv().await
    }
}

impl Engine {
    /// The whole session as it is now. Not while a turn runs: what it is about to do would be done twice.
    pub async fn export(&self, session: SessionId) -> Result<Export, Error> {
        let store = self.0.parts.store.clone();
        store.check(session).await?;
        let state = self.session(session).await?;
        if state.turn.as_ref().is_some_and(|turn| turn.status() == TurnStatus::Running) || !state.queue.is_empty() {
            let message = "a turn is running in this session";
            return Err(Refusal::new("turn_running", message, "wait for it or cancel it, then export").into());
        }
        let mut manifest = Manifest::new(session, self.0.parts.clock.now());
        manifest.seq = state.seq;
        describe(&*store, &mut manifest).await?;
        let (out, pieces) = mpsc::channel(PIECES_MAX);
        let told = manifest.clone();
        self.0.tasks.spawn(async move {
            let failed = out.clone();
            if let Err(error) = write(&*store, &told, out).await {
                // Whoever asked may be gone already.
                let _ = failed.send(Err(error)).await;
            }
        });
        Ok(Export { manifest, pieces })
    }
}

/// Goes through the log once, for what stands at the archive's beginning.
async fn describe(store: &dyn Store, manifest: &mut Manifest) -> Result<(), Error> {
    let mut log = LogWriter::new();
    let (mut lines, mut names, mut after) = (Vec::new(), BTreeMap::new(), 0);
    while after < manifest.seq {
        let page = store.read(manifest.session_id, after, Limit::default()).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for stored in page.iter().filter(|stored| stored.seq <= manifest.seq) {
            lines.clear();
            log.push(stored, &mut lines);
            let named = stored.parse()?.body;
            names.extend(named.blobs().map(|blob| (blob.name.to_owned(), blob.digest.map(str::to_owned))));
        }
    }
    (manifest.log_bytes, manifest.log_sum) = (log.bytes(), log.sum());
    for (name, kept) in names {
        let content = store.blob_get(manifest.session_id, &name).await?;
        let found = content.map(|content| (content.len() as u64, blake3::hash(&content).to_hex().to_string()));
        match found {
            Some((bytes, digest)) if kept.is_none_or(|kept| kept == digest) => {
                manifest.blobs.push(BlobEntry { name, bytes, digest });
            }
            // One that the disk has changed is as good as none: an archive that holds it could not be imported.
            Some(_) | None => manifest.missing.push(name),
        }
    }
    Ok(())
}

async fn write(store: &dyn Store, manifest: &Manifest, out: mpsc::Sender<Result<Bytes, Error>>) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Bug(format!("the archive cannot be written: {error}"));
    let mut writer = Writer::begin(manifest).map_err(failed)?;
    writer.open(LOG_NAME, manifest.log_bytes).map_err(failed)?;
    let mut log = LogWriter::new();
    let mut after = 0;
    while after < manifest.seq {
        let page = store.read(manifest.session_id, after, Limit::default()).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        let mut lines = Vec::new();
        for stored in page.iter().filter(|stored| stored.seq <= manifest.seq) {
            log.push(stored, &mut lines);
        }
        if !put(&mut writer, &lines, &out).await? {
            return Ok(());
        }
    }
    writer.close(manifest.log_bytes).map_err(failed)?;
    for blob in &manifest.blobs {
        let content = store.blob_get(manifest.session_id, &blob.name).await?.unwrap_or_default();
        if blake3::hash(&content).to_hex().as_str() != blob.digest {
            return Err(Error::Bug(format!("{} changed while it was exported", blob.name)));
        }
        writer.open(&blob.name, blob.bytes).map_err(failed)?;
        if !put(&mut writer, &content, &out).await? {
            return Ok(());
        }
        writer.close(blob.bytes).map_err(failed)?;
    }
    let last = writer.end().map_err(failed)?;
    let _ = out.send(Ok(last)).await;
    Ok(())
}

/// Adds bytes and hands out what is ready; false if nobody wants it any more.
async fn put(writer: &mut Writer, bytes: &[u8], out: &mpsc::Sender<Result<Bytes, Error>>) -> Result<bool, Error> {
    for piece in bytes.chunks(PIECE_BYTES) {
        writer.write(piece).map_err(|error| Error::Bug(error.to_string()))?;
        let ready = writer.ready();
        if !ready.is_empty() && out.send(Ok(ready)).await.is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}

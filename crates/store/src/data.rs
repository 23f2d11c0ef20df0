//! The plain values that go through the store's door. Nothing here reads or writes.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure_core::{
    budget::Spent,
    delta::Delta,
    event::Event,
    ids::{SessionId, TurnId},
    time::Timestamp,
};

use crate::{Error, Result};

/// The fencing token of one writer: an append with an older one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Epoch(pub u64);

/// One numbered event as the log holds it, ready to be passed on without reading it again.
#[derive(Debug, Clone)]
pub struct StoredEvent {
    pub seq: u64,
    /// The wire JSON of the event: one object, no line end, without `v`, `more` and `sum`.
    pub json: Bytes,
    /// Events of the same decision still to come.
    pub more: u64,
}

impl StoredEvent {
    pub fn parse(&self) -> Result<Event> {
        let text = std::str::from_utf8(&self.json).map_err(|error| Error::Other(error.to_string()))?;
        Event::from_json(text).map_err(|error| Error::Other(format!("event {}: {error}", self.seq)))
    }
}

/// A file beside a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub name: String,
    pub bytes: u64,
}

/// Where a log ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub seq: u64,
    /// Bytes of the log, as a measure for when to take a snapshot.
    pub bytes: u64,
}

/// How much one read may return. Reading ends at whichever is met first, but returns at least one event where there is one.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    pub events: usize,
    pub bytes: usize,
}

impl Default for Limit {
    fn default() -> Self {
        Self { events: 256, bytes: 1 << 20 }
    }
}

/// One record of a spool and where it ends: the `pos` of its cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpoolRecord {
    pub pos: u64,
    pub delta: Delta,
}

/// What a spool read found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpoolPage {
    /// The whole records after the position; empty at the end.
    Records(Vec<SpoolRecord>),
    /// The spool is gone, or shorter than the position, or the position is not the end of a record.
    Gone,
}

/// A snapshot: a cache of the fold, opaque to the store, may be deleted at any time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub seq: u64,
    /// JSON of the state.
    pub state: Bytes,
}

/// A row of the listing: what can be asked of many sessions at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub id: SessionId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub status: Arc<str>,
    pub workspace_path: Arc<str>,
    pub title: Option<Box<str>>,
    pub last_turn_id: Option<TurnId>,
    pub role: Option<Arc<str>>,
    pub labels: Box<[Arc<str>]>,
    /// What all its turns have used.
    pub spent: Spent,
}

/// Titles are cut to this length in the listing.
pub const ROW_TITLE_CHARS_MAX: usize = 80;
/// And to this many bytes, so that a row keeps its limit whatever the letters.
pub const ROW_TITLE_BYTES_MAX: usize = 256;

impl Row {
    /// The row as the listing keeps it.
    pub(crate) fn trimmed(mut self) -> Row {
        if let Some(title) = &self.title {
            let ends = title.char_indices().take(ROW_TITLE_CHARS_MAX).map(|(at, letter)| at + letter.len_utf8());
            let end = ends.take_while(|end| *end <= ROW_TITLE_BYTES_MAX).last().unwrap_or(0);
            if end < title.len() {
                self.title = Some(title[..end].into());
            }
        }
        self
    }
}

/// A create, fork or import that carried an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateKey {
    pub endpoint: String,
    pub key: String,
    pub digest: String,
    pub session_id: SessionId,
    pub at: Timestamp,
}

impl CreateKey {
    /// The endpoint of the marks that tell which sessions were deleted.
    pub const PURGED: &str = "purged";

    /// Notes that a session is about to be deleted: the key that made it must not make it again.
    pub fn purged(session_id: SessionId, at: Timestamp) -> Self {
        let (endpoint, key) = (Self::PURGED.into(), session_id.to_string());
        Self { endpoint, key, digest: String::new(), session_id, at }
    }
}

/// What a sweep did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweepReport {
    pub spools_deleted: u64,
}

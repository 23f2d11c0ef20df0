//! What a life was told to be done, and what may have been done without an answer. It never asks the store.

use std::collections::BTreeMap;

use bytes::Bytes;
use tenure_core::{
    event::Event,
    ids::{SessionId, TurnId},
};
use tenure_store::{CreateKey, Snapshot, SpoolRecord};

use crate::sample::{message, session};

#[derive(Default)]
pub struct Book {
    pub sessions: Vec<SessionPage>,
    pub keys: Vec<CreateKey>,
    /// Keys whose put was not answered.
    pub keys_maybe: Vec<CreateKey>,
    /// The highest epoch under which anything was acknowledged.
    pub epoch: u64,
    /// Everything that was acknowledged, for the tally.
    pub acknowledged: u64,
}

pub struct SessionPage {
    pub id: SessionId,
    /// Events that were acknowledged, or shown after a crash.
    pub events: Vec<Event>,
    /// Where decisions end, by number.
    pub decision_ends: Vec<u64>,
    /// Decisions without an answer, each of which may follow the events.
    pub maybe: Vec<Vec<Event>>,
    pub open: Open,
    pub spools: BTreeMap<TurnId, SpoolPageOf>,
    pub blobs: BTreeMap<String, Blob>,
}

/// Whether the session's mark must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    Yes,
    Maybe,
}

#[derive(Default)]
pub struct SpoolPageOf {
    pub records: Vec<SpoolRecord>,
    /// Batches without an answer, of one of which a part may follow.
    pub maybe: Vec<Vec<SpoolRecord>>,
    /// A batch was refused while the store lived on.
    pub refused: bool,
    /// It was deleted, or a power cut left a gap in it: what is written now cannot be reached from its start.
    pub broken: bool,
}

#[derive(Default)]
pub struct Blob {
    pub known: Option<Bytes>,
    pub maybe: Vec<Bytes>,
}

impl Book {
    /// A page for a session that is about to be made.
    pub fn new_session(&mut self) -> usize {
        let id = session(self.sessions.len() as u64 + 1);
        self.sessions.push(SessionPage {
            id,
            events: vec![],
            decision_ends: vec![],
            maybe: vec![],
            open: Open::Maybe,
            spools: BTreeMap::new(),
            blobs: BTreeMap::new(),
        });
        self.sessions.len() - 1
    }
}

impl SessionPage {
    pub fn seq(&self) -> u64 {
        self.events.len() as u64
    }

    /// A decision of `count` events, the texts of which `letter` makes different from any other try.
    pub fn decision(&self, count: u64, length: usize, letter: u64) -> Vec<Event> {
        let text = |seq: u64| format!("{letter}-{seq} ä\n{}", "x".repeat(length));
        (self.seq() + 1..=self.seq() + count).map(|seq| message(self.id, seq, &text(seq))).collect()
    }

    /// The decision was acknowledged, or shown after a crash.
    pub fn extend(&mut self, decision: Vec<Event>) {
        self.events.extend(decision);
        self.decision_ends.push(self.seq());
        self.maybe.clear();
    }

    /// The one snapshot that is true at a number.
    pub fn snapshot(&self, seq: u64) -> Snapshot {
        let events = serde_json::to_vec(&self.events[..seq as usize]).unwrap();
        let state = format!(r#"{{"seq":{seq},"bytes":{},"crc":{}}}"#, events.len(), crc(&events));
        Snapshot { seq, state: state.into() }
    }
}

/// Enough to tell two states apart.
fn crc(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

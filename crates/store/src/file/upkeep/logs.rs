//! Reads a whole log as the daemon would: every line checked, every whole decision folded. It changes nothing.

use std::{
    collections::{BTreeMap, HashSet},
    io, thread,
    time::Duration,
};

use tenure_core::{
    event::{Body, Event},
    ids::{SessionId, TurnId},
    session::Session,
};

use crate::{
    disk::DiskFile,
    file::{
        lines::{Lines, Next},
        scan::{Tail, scan},
    },
    line::{LINE_BYTES_MAX, Line, Place},
};

/// How often a tail that seems to be written just now is read again.
const READS_MAX: u32 = 10;

/// What a log tells.
#[derive(Default)]
pub(super) struct Told {
    pub state: Option<Session>,
    /// The fold at the number that was asked for.
    pub at_snapshot: Option<Session>,
    pub events: u64,
    /// The blobs that events name, as the last one of them does.
    pub blobs: BTreeMap<String, Expected>,
    /// All turns that events tell of, and those of them that are over.
    pub turns: HashSet<TurnId>,
    pub settled: HashSet<TurnId>,
    pub trouble: Option<Trouble>,
}

/// As much as is known of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    pub bytes: Option<u64>,
    pub digest: Option<String>,
}

/// Why a log cannot be taken as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Its end is no whole decision, and nothing valid comes after that.
    Torn { after: u64 },
    /// A bad line that no crash leaves.
    Bad { after: u64, why: String },
    /// It ends before an event that it is known to have held.
    Lost { after: u64, last: u64 },
    /// All lines are whole, but this version cannot tell what they mean.
    Foreign { seq: u64, why: String },
}

impl Told {
    /// Whether a line of it is damaged.
    pub fn is_damaged(&self) -> bool {
        matches!(self.trouble, Some(Trouble::Torn { .. } | Trouble::Bad { .. } | Trouble::Lost { .. }))
    }

    /// Whether a turn should be in it and is not. A log that was repaired says itself that something is lost.
    pub fn lacks(&self, turn: TurnId) -> bool {
        !self.turns.contains(&turn) && self.state.as_ref().is_some_and(|state| state.lost.is_none())
    }

    /// Holds it against the last event that something beside it tells of. Where nothing is left there is no end to lose.
    pub fn expect(&mut self, last: u64) {
        let after = self.events;
        if after > 0 && last > after && matches!(self.trouble, None | Some(Trouble::Torn { .. })) {
            self.trouble = Some(Trouble::Lost { after, last });
        }
    }
}

/// Reads a log that a daemon may be writing to: what is torn now may be whole in a moment.
pub(super) fn read_patiently(
    file: &dyn DiskFile,
    session: SessionId,
    snapshot_seq: Option<u64>,
    patience: Duration,
) -> io::Result<Told> {
    let mut told = read(file, session, snapshot_seq)?;
    for _ in 0..READS_MAX {
        if patience.is_zero() || !matches!(told.trouble, Some(Trouble::Torn { .. })) {
            break;
        }
        thread::sleep(patience / READS_MAX);
        told = read(file, session, snapshot_seq)?;
    }
    Ok(told)
}

pub(super) fn read(file: &dyn DiskFile, session: SessionId, snapshot_seq: Option<u64>) -> io::Result<Told> {
    let end = file.len()?;
    let mut lines = Lines::new(file, 0, end, LINE_BYTES_MAX);
    let mut told = Told::default();
    let (mut tip, mut place, mut left) = (Place::START, Place::START, 0);
    let mut decision: Vec<Vec<u8>> = Vec::new();
    loop {
        let followed = match lines.next()? {
            Next::End if left == 0 => return Ok(told),
            Next::Line { bytes, .. } => Line::parse(bytes).and_then(|line| {
                let next = line.follow(&place).ok()?;
                (left == 0 || line.more == left - 1).then(|| (line.json(), line.more, next))
            }),
            Next::End | Next::Torn { .. } | Next::TooLong { .. } => None,
        };
        let Some((json, more, next)) = followed else {
            told.trouble = Some(match scan(file, tip, end)?.tail {
                Tail::Bad { why } => Trouble::Bad { after: tip.seq, why },
                Tail::Clean | Tail::Torn => Trouble::Torn { after: tip.seq },
            });
            return Ok(told);
        };
        decision.push(json);
        (place, left) = (next, more);
        if left == 0 {
            tip = place;
            for (json, seq) in decision.drain(..).zip(told.events + 1..) {
                told.take(&json, session, seq, snapshot_seq);
            }
            told.events = tip.seq;
        }
    }
}

impl Told {
    fn take(&mut self, json: &[u8], session: SessionId, seq: u64, snapshot_seq: Option<u64>) {
        if self.trouble.is_some() {
            return;
        }
        if let Err(why) = self.fold(json, session) {
            self.trouble = Some(Trouble::Foreign { seq, why });
        }
        if snapshot_seq == Some(seq) {
            self.at_snapshot = self.state.clone();
        }
    }

    fn fold(&mut self, json: &[u8], session: SessionId) -> Result<(), String> {
        let event = event_of(json)?;
        if event.session_id != session {
            return Err(format!("it belongs to {}", event.session_id));
        }
        // A name that could lead out of the session's folder names no file of it.
        for blob in event.body.blobs().filter(|blob| crate::name::is_blob_name(blob.name)) {
            let expected = Expected { bytes: blob.bytes, digest: blob.digest.map(str::to_owned) };
            self.blobs.insert(blob.name.to_owned(), expected);
        }
        self.turns.extend(event.turn_id);
        if let (true, Some(turn)) = (settles(&event.body), event.turn_id) {
            self.settled.insert(turn);
        }
        match &mut self.state {
            Some(state) => state.apply(&event),
            None => self.state = Some(Session::born(&event).ok_or("it is not the beginning of a session")?),
        }
        Ok(())
    }
}

pub(super) fn event_of(json: &[u8]) -> Result<Event, String> {
    let text = std::str::from_utf8(json).map_err(|error| error.to_string())?;
    Event::from_json(text).map_err(|error| error.to_string())
}

fn settles(body: &Body) -> bool {
    matches!(body, Body::TurnCompleted(_) | Body::TurnFailed(_) | Body::TurnCanceled(_) | Body::TurnExpired(_))
}

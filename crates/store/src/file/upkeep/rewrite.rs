//! A log made anew from what was salvaged: the same events with the same bytes under the same numbers, `event_lost` where
//! one is gone, and the end of a session whose state nobody can tell any more. Pure.

use bytes::Bytes;
use tenure_core::{
    event::{Actor, Event, EventLost},
    ids::SessionId,
    session::{Session, fail_damaged},
    time::{Moment, Timestamp},
};

use super::{
    logs::event_of,
    salvage::{Salvaged, Slot},
};
use crate::{LogWriter, StoredEvent};

pub(super) fn rewrite(salvaged: &Salvaged, session: SessionId, now: Timestamp) -> Result<Vec<u8>, serde_json::Error> {
    let mut log = Log {
        session,
        lines: Vec::new(),
        writer: LogWriter::new(),
        state: Fold::Nothing,
        // The time at which the id was made, until an event tells a later one.
        ts: Timestamp::from_ms(session.ulid().timestamp_ms()),
    };
    for (slot, seq) in salvaged.slots.iter().zip(1..) {
        match slot {
            Slot::Kept { json, more } => log.keep(seq, json, *more),
            Slot::Lost { why, more } => log.lose(seq, why, *more)?,
        }
    }
    if salvaged.lost > 0
        && let Fold::State(state) = &log.state
    {
        let message = format!("{} events of the log were lost to damage", salvaged.lost);
        let ending = fail_damaged(state, &message, &mut Moment::new(now, 0)).events;
        let count = ending.len() as u64;
        for (event, at) in ending.iter().zip(1..) {
            log.write(event.seq, serde_json::to_vec(event)?.into(), count - at);
        }
    }
    Ok(log.lines)
}

/// What the events so far fold to.
enum Fold {
    Nothing,
    State(Box<Session>),
    /// An event of another version is among them.
    Unknown,
}

struct Log {
    session: SessionId,
    lines: Vec<u8>,
    writer: LogWriter,
    state: Fold,
    ts: Timestamp,
}

impl Log {
    fn keep(&mut self, seq: u64, json: &[u8], more: u64) {
        match event_of(json) {
            Ok(event) => self.fold(&event),
            Err(_) => self.state = Fold::Unknown,
        }
        self.write(seq, Bytes::copy_from_slice(json), more);
    }

    fn lose(&mut self, seq: u64, why: &str, more: u64) -> Result<(), serde_json::Error> {
        let (session_id, ts) = (self.session, self.ts);
        let body = EventLost { reason: why.into() }.into();
        let event = Event { seq, ts, session_id, turn_id: None, actor: Actor::SYSTEM, key: None, body };
        self.fold(&event);
        self.write(seq, serde_json::to_vec(&event)?.into(), more);
        Ok(())
    }

    fn fold(&mut self, event: &Event) {
        self.ts = self.ts.max(event.ts);
        match &mut self.state {
            Fold::State(state) => state.apply(event),
            Fold::Nothing => {
                self.state = Session::born(event).map_or(Fold::Unknown, |state| Fold::State(Box::new(state)));
            }
            Fold::Unknown => {}
        }
    }

    fn write(&mut self, seq: u64, json: Bytes, more: u64) {
        self.writer.push(&StoredEvent { seq, json, more }, &mut self.lines);
    }
}

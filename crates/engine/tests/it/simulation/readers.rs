//! Watchers of a session, each at its own pace, with its own reconnect. What they see is exactly what lasts, in order.

use futures::FutureExt;
use tenure_core::{cursor::Cursor, delta::WireDelta, ids::SessionId};
use tenure_engine::{Engine, StreamItem, Subscription};

use super::{
    faults::Faults,
    record::{Item, Record},
    world::{World, tell},
};

pub struct Reader {
    pub session: SessionId,
    /// How many of the session's items it has passed.
    at: usize,
    cursor: Cursor,
    stream: Option<Subscription>,
}

impl Reader {
    /// One that knows the first `at` items already.
    pub fn at(session: SessionId, at: usize, record: &Record) -> Reader {
        let cursor =
            at.checked_sub(1).and_then(|last| record.items.get(last)).map_or(Cursor::START, |item| item.cursor);
        Reader { session, at, cursor, stream: None }
    }

    /// It goes away, and comes back where it was.
    pub fn leave(&mut self) {
        self.stream = None;
    }

    /// Reads what is there, up to so many items.
    pub async fn read(&mut self, engine: &Engine, world: &World, how_many: usize) {
        for _ in 0..how_many {
            if self.stream.is_none() {
                match engine.events(self.session, self.cursor, true).await {
                    Ok(stream) => self.stream = Some(stream),
                    Err(error) => {
                        let what = || format!("{}: no stream after {}: {error}", self.session, self.cursor);
                        return world.known().faults.need(false, what);
                    }
                }
            }
            let Some(stream) = &mut self.stream else { return };
            // However much it reads in one go, the runtime has no say in it.
            match tokio::task::unconstrained(stream.next()).now_or_never() {
                Some(Some(Ok(item))) => self.take(&item, world),
                Some(Some(Err(error))) => {
                    let what = || format!("{}: the stream breaks after {}: {error}", self.session, self.cursor);
                    return world.known().faults.need(false, what);
                }
                Some(None) => return self.stream = None,
                None => return,
            }
        }
    }

    fn take(&mut self, item: &StreamItem, world: &World) {
        let known = &mut *world.known();
        let Some(record) = known.records.get(&self.session) else { return };
        tell(|| format!("-- {:p} at {} sees {} {}", &*self, self.at, item.cursor, item.wire_type));
        self.step(item, record, &mut known.faults);
        self.cursor = item.cursor;
    }

    fn step(&mut self, item: &StreamItem, record: &Record, faults: &mut Faults) {
        if item.wire_type == "stream_reset" {
            let what = || format!("{}: a reset after {} for nothing", self.session, self.cursor);
            faults.need(record.spools_lost, what);
            self.at = record.items.partition_point(|known| known.cursor <= item.cursor);
            return;
        }
        let gone = |known: &&Item| known.cursor != item.cursor && known.may_be_gone;
        while record.items.get(self.at).as_ref().is_some_and(gone) {
            self.at += 1;
        }
        let from_before_a_cut = item.cursor.pos > 0 && item.cursor.seq <= record.cut_at;
        match record.items.get(self.at) {
            Some(known) if known.cursor == item.cursor => {
                let same = from_before_a_cut || json(known, record).is_some_and(|json| json == item.json);
                faults.need(same, || format!("{}: {} is shown otherwise: {item:?}", self.session, item.cursor));
            }
            _ if from_before_a_cut => return,
            Some(known) => {
                let what = || format!("{}: {} is shown and {} is next", self.session, item.cursor, known.cursor);
                faults.need(false, what);
            }
            None => faults.need(false, || format!("{}: {} is shown before it lasts", self.session, item.cursor)),
        }
        self.at += 1;
    }

    /// Whether it has seen everything there is.
    pub fn is_done(&self, record: &Record) -> bool {
        record.items.iter().skip(self.at).all(|item| item.may_be_gone)
    }

    pub fn place(&self) -> (usize, Cursor) {
        (self.at, self.cursor)
    }
}

/// The item as it goes over the wire.
pub fn json(item: &Item, record: &Record) -> Option<Vec<u8>> {
    match &item.delta {
        None => serde_json::to_vec(record.events.get(item.cursor.seq as usize - 1)?).ok(),
        Some((turn, delta)) => {
            let wire = WireDelta { session_id: record.id, turn_id: *turn, pos: item.cursor.pos, delta };
            serde_json::to_vec(&wire).ok()
        }
    }
}

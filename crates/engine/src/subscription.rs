//! One watcher's view: history from log and spool, then live, in the one order there is, each thing once.

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use tenure_core::{
    cursor::Cursor,
    delta::WireDelta,
    ids::{SessionId, TurnId},
};
use tenure_store::{Limit, SpoolPage, SpoolRecord, Store, StoredEvent};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::{
    Error,
    hub::{Shown, StreamItem, Watch},
};

/// How much of a spool one look takes in.
const SPOOL_BYTES: usize = 256 * 1024;
/// How far one look back goes when the turn at a cursor is searched.
const LOOK_BACK: u64 = 128;

/// The envelope's head, enough to put events and deltas in order.
#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(rename = "type", borrow)]
    wire_type: Cow<'a, str>,
    #[serde(default)]
    turn_id: Option<TurnId>,
}

pub struct Subscription {
    store: Arc<dyn Store>,
    session: SessionId,
    cursor: Cursor,
    /// The turn whose spool comes between the numbered events, and up to where it was read.
    spool: Option<(TurnId, u64)>,
    ready: VecDeque<StreamItem>,
    mode: Mode,
    watch: Option<Watch>,
    stop: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Reading log and spool.
    CatchUp,
    /// Taking what is shown.
    Live,
    Ended,
}

impl Subscription {
    /// `watch` is there if the watcher wants to go on after the present.
    pub(crate) async fn open(
        store: Arc<dyn Store>,
        session: SessionId,
        after: Cursor,
        watch: Option<Watch>,
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let head = store.head(session).await?;
        let mut this = Self {
            store,
            session,
            cursor: after,
            spool: None,
            ready: VecDeque::new(),
            mode: Mode::CatchUp,
            watch,
            stop,
        };
        if after.seq > head.seq {
            // The cursor is ahead of the log, as after an import of an older state: begin anew.
            this.reset(Cursor::START);
        } else {
            this.find_place(after).await?;
        }
        Ok(this)
    }

    /// The next item; `None` when the present is reached and nobody wants more, or when the daemon stops.
    pub async fn next(&mut self) -> Option<Result<StreamItem, Error>> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                self.cursor = item.cursor;
                return Some(Ok(item));
            }
            let step = match self.mode {
                Mode::CatchUp => self.read_on().await,
                Mode::Live => self.take_live().await,
                Mode::Ended => return None,
            };
            if let Err(error) = step {
                self.mode = Mode::Ended;
                return Some(Err(error));
            }
        }
    }

    fn reset(&mut self, to: Cursor) {
        let data =
            json!({ "type": "stream_reset", "session_id": self.session, "seq": to.seq, "data": { "after": to.seq } });
        let json = Bytes::from(data.to_string());
        self.cursor = to;
        self.spool = None;
        self.ready.push_back(StreamItem { cursor: to, wire_type: "stream_reset".into(), json });
    }

    /// Finds the turn that was open at the cursor, and the place in its spool.
    async fn find_place(&mut self, after: Cursor) -> Result<(), Error> {
        let Some(turn) = self.turn_at(after.seq).await? else {
            if after.pos > 0 {
                self.reset(Cursor::at(after.seq));
            }
            return Ok(());
        };
        if after.pos == 0 {
            self.spool = Some((turn, 0));
            return Ok(());
        }
        match self.store.spool_read(self.session, turn, after.pos, 1).await? {
            SpoolPage::Records(_) => self.spool = Some((turn, after.pos)),
            SpoolPage::Gone => {
                self.reset(Cursor::at(after.seq));
                // Its deltas are not told again: the numbered events carry the whole text.
                self.spool = None;
            }
        }
        Ok(())
    }

    /// The turn open right after event `seq`: the last one started, unless it was settled since.
    async fn turn_at(&self, seq: u64) -> Result<Option<TurnId>, Error> {
        let mut settled = Vec::new();
        let mut upto = seq;
        while upto > 0 {
            let after = upto.saturating_sub(LOOK_BACK);
            let mut events = Vec::new();
            let mut at = after;
            while at < upto {
                let page = self.store.read(self.session, at, Limit::default()).await?;
                let Some(last) = page.last() else { break };
                at = last.seq;
                events.extend(page.into_iter().filter(|event| event.seq <= upto));
            }
            for event in events.iter().rev() {
                let peek = peek(event)?;
                match &*peek.wire_type {
                    "turn_started" => {
                        return Ok(peek.turn_id.filter(|turn| !settled.contains(turn)));
                    }
                    kind if is_settling(kind) => settled.extend(peek.turn_id),
                    _ => {}
                }
            }
            upto = after;
        }
        Ok(None)
    }

    /// Reads the log first and the spool after it: whatever comes before an event of this page is in the spool by then.
    async fn read_on(&mut self) -> Result<(), Error> {
        let page = self.store.read(self.session, self.cursor.seq, Limit::default()).await?;
        let mut seq = self.cursor.seq;
        for event in &page {
            self.read_spool(seq, event.seq).await?;
            let peek = peek(event)?;
            self.note(&peek.wire_type, peek.turn_id);
            seq = event.seq;
            let wire_type = Cow::Owned(peek.wire_type.into_owned());
            self.ready.push_back(StreamItem { cursor: Cursor::at(seq), wire_type, json: event.json.clone() });
            if self.ready.len() > 1024 {
                return Ok(());
            }
        }
        if page.is_empty() {
            self.read_spool(seq, u64::MAX).await?;
            if self.ready.is_empty() {
                self.mode = if self.watch.is_some() { Mode::Live } else { Mode::Ended };
            }
        }
        Ok(())
    }

    /// Takes in the deltas that come after event `seq` and before event `next`.
    async fn read_spool(&mut self, seq: u64, next: u64) -> Result<(), Error> {
        while let Some((turn, pos)) = self.spool {
            let records = match self.store.spool_read(self.session, turn, pos, SPOOL_BYTES).await? {
                SpoolPage::Records(records) => records,
                SpoolPage::Gone => {
                    self.spool = None;
                    return Ok(());
                }
            };
            if records.is_empty() {
                return Ok(());
            }
            for record in records {
                // One that follows a later event than the last one told: the log is read again first.
                if record.delta.seq >= next || record.delta.seq > seq {
                    return Ok(());
                }
                self.spool = Some((turn, record.pos));
                if record.delta.seq == seq {
                    let item = delta_item(self.session, turn, &record);
                    self.ready.push_back(item);
                }
            }
            // The rest is read when this has been taken, so that a huge spool is never held whole.
            if next == u64::MAX && !self.ready.is_empty() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Keeps track of which spool belongs between the events.
    fn note(&mut self, wire_type: &str, turn: Option<TurnId>) {
        match wire_type {
            "turn_started" => self.spool = turn.map(|turn| (turn, 0)),
            kind if is_settling(kind) && self.spool.map(|(open, _)| open) == turn => self.spool = None,
            _ => {}
        }
    }

    async fn take_live(&mut self) -> Result<(), Error> {
        let Some(watch) = &mut self.watch else {
            self.mode = Mode::Ended;
            return Ok(());
        };
        let shown = tokio::select! {
            shown = watch.receiver.recv() => shown,
            () = self.stop.cancelled() => {
                self.mode = Mode::Ended;
                return Ok(());
            }
        };
        match shown {
            Ok(Shown::Item(item)) => self.take_item(item),
            // Too slow, or too large to be held for us: back to reading.
            Ok(Shown::Look) | Err(RecvError::Lagged(_)) => self.mode = Mode::CatchUp,
            Err(RecvError::Closed) => self.mode = Mode::Ended,
        }
        Ok(())
    }

    fn take_item(&mut self, item: StreamItem) {
        if item.cursor <= self.cursor {
            return;
        }
        let follows = match item.cursor.pos {
            0 => item.cursor.seq == self.cursor.seq + 1,
            _ => item.cursor.seq == self.cursor.seq,
        };
        if !follows {
            self.mode = Mode::CatchUp;
            return;
        }
        match item.cursor.pos {
            0 => {
                let turn = serde_json::from_slice::<Peek<'_>>(&item.json).ok().and_then(|peek| peek.turn_id);
                self.note(&item.wire_type.clone(), turn);
            }
            pos => {
                if let Some((_, read)) = &mut self.spool {
                    *read = pos;
                }
            }
        }
        self.ready.push_back(item);
    }
}

fn peek(event: &StoredEvent) -> Result<Peek<'_>, Error> {
    serde_json::from_slice(&event.json).map_err(|error| Error::Bug(format!("event {}: {error}", event.seq)))
}

fn is_settling(wire_type: &str) -> bool {
    matches!(wire_type, "turn_completed" | "turn_failed" | "turn_canceled" | "turn_expired")
}

pub(crate) fn delta_item(session: SessionId, turn: TurnId, record: &SpoolRecord) -> StreamItem {
    let wire = WireDelta { session_id: session, turn_id: turn, pos: record.pos, delta: &record.delta };
    let json = serde_json::to_vec(&wire).unwrap_or_default();
    StreamItem {
        cursor: Cursor { seq: record.delta.seq, pos: record.pos },
        wire_type: record.delta.stream.wire_type().into(),
        json: json.into(),
    }
}

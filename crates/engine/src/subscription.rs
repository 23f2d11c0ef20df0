//! One watcher's view: history from log and spool, then live, in the one order there is, each thing once.

use std::{borrow::Cow, collections::VecDeque, sync::Arc};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tenure_core::{
    cursor::Cursor,
    delta::WireDelta,
    ids::{SessionId, TurnId},
};
use tenure_store::{Limit, SpoolPage, SpoolRecord, Store, StoredEvent};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

use crate::{
    Damage, Error,
    hub::{Hub, Shown, StreamItem, Watch},
};

/// How much of a spool one look takes in.
const SPOOL_BYTES: usize = 64 * 1024;
/// How much of the log one look takes in. A watcher that reads nothing holds no more than this, or one event that is larger.
const PAGE: Limit = Limit { events: 256, bytes: 128 * 1024 };
/// An event larger than this is let go while fragments come before it, and read again when its time has come.
const KEPT_BYTES_MAX: usize = 64 * 1024;
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
    /// The last thing that was told.
    cursor: Cursor,
    /// The turn whose spool comes between the numbered events, and up to where it was told.
    spool: Option<(TurnId, u64)>,
    /// Told before anything else.
    reset: Option<StreamItem>,
    /// Read from the log and not told yet.
    events: VecDeque<StoredEvent>,
    /// Read from the spool and not told yet.
    deltas: VecDeque<SpoolRecord>,
    /// All that the spool had when it was read after `events` is told.
    spool_told: bool,
    mode: Mode,
    hub: Arc<Hub>,
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
        (hub, watch): (Arc<Hub>, Option<Watch>),
        stop: CancellationToken,
    ) -> Result<Self, Error> {
        let mut this = Self {
            store,
            session,
            cursor: after,
            spool: None,
            reset: None,
            events: VecDeque::new(),
            deltas: VecDeque::new(),
            spool_told: false,
            mode: Mode::CatchUp,
            hub,
            watch,
            stop,
        };
        this.find_place(after).await?;
        Ok(this)
    }

    /// The next item; `None` when the present is reached and nobody wants more, or when the daemon stops.
    /// Giving up waiting for it loses nothing.
    pub async fn next(&mut self) -> Option<Result<StreamItem, Error>> {
        if let Some(reset) = self.reset.take() {
            return Some(Ok(reset));
        }
        loop {
            let found = match self.mode {
                Mode::CatchUp => self.read_on().await,
                Mode::Live => Ok(self.take_live().await),
                Mode::Ended => return None,
            };
            match found {
                Ok(Some(item)) => {
                    self.cursor = item.cursor;
                    return Some(Ok(item));
                }
                Ok(None) => {}
                Err(error) => {
                    self.mode = Mode::Ended;
                    return Some(Err(error));
                }
            }
        }
    }

    fn reset(&mut self, to: Cursor) {
        self.cursor = to;
        self.reset = Some(self.note_of("stream_reset", to, &json!({ "after": to.seq })));
    }

    /// Something about the stream itself, which has no number.
    fn note_of(&self, wire_type: &'static str, cursor: Cursor, data: &Value) -> StreamItem {
        let json = json!({ "type": wire_type, "session_id": self.session, "seq": cursor.seq, "data": data });
        StreamItem { cursor, wire_type: wire_type.into(), json: json.to_string().into() }
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
        self.spool = match self.store.spool_read(self.session, turn, after.pos, 1).await? {
            SpoolPage::Records(_) => Some((turn, after.pos)),
            SpoolPage::Gone => {
                self.reset(Cursor::at(after.seq));
                Some((turn, 0))
            }
        };
        Ok(())
    }

    /// The turn open right after event `seq`: the last one started, unless it was settled since.
    async fn turn_at(&self, seq: u64) -> Result<Option<TurnId>, Error> {
        let mut settled = Vec::new();
        let mut upto = seq;
        while upto > 0 {
            let after = upto.saturating_sub(LOOK_BACK);
            // Of each event only what is looked for is kept: a hundred of them may be a hundred megabytes.
            let (mut started, mut at) = (None, after);
            while at < upto {
                let page = self.store.read(self.session, at, PAGE).await?;
                let Some(last) = page.last() else { break };
                at = last.seq;
                for event in page.iter().filter(|event| event.seq <= upto) {
                    let peek = peek(event)?;
                    match &*peek.wire_type {
                        "turn_started" => started = Some(peek.turn_id),
                        kind if is_settling(kind) => settled.extend(peek.turn_id),
                        _ => {}
                    }
                }
            }
            if let Some(turn) = started {
                return Ok(turn.filter(|turn| !settled.contains(turn)));
            }
            upto = after;
        }
        Ok(None)
    }

    /// One item of the past, or `None` when there is more to look for or the present is reached.
    ///
    /// The log is read first and the spool after it: whatever comes before an event of this page is in the spool by then.
    async fn read_on(&mut self) -> Result<Option<StreamItem>, Error> {
        if self.events.is_empty() {
            self.events = self.read(self.cursor.seq, PAGE).await?;
            self.spool_told = false;
        }
        if self.deltas.is_empty() && !self.spool_told {
            self.read_spool().await?;
        }
        if let Some(delta) = self.next_delta() {
            self.let_go_of_large();
            return Ok(Some(delta));
        }
        if self.deltas.is_empty() && !self.spool_told {
            return Ok(None);
        }
        if let Some(StoredEvent { seq, .. }) = self.events.front().filter(|event| event.json.is_empty()) {
            // All that comes before it is told, so it is all there is to read. If it cannot be read now, the next look tells why.
            self.events = self.read(seq - 1, Limit { events: 1, ..PAGE }).await?;
        }
        match self.events.pop_front() {
            Some(event) => self.tell_event(&event).map(Some),
            None => self.reach_present().await,
        }
    }

    async fn read(&self, after: u64, limit: Limit) -> Result<VecDeque<StoredEvent>, Error> {
        Ok(self.hub.read(&*self.store, self.session, after, limit).await?.into())
    }

    /// A reply's text is told by its fragments first. Who takes those slowly must not hold the whole reply meanwhile: with
    /// many such watchers that would be most of the memory.
    fn let_go_of_large(&mut self) {
        if let Some(event) = self.events.front_mut().filter(|event| event.json.len() > KEPT_BYTES_MAX) {
            event.json = Bytes::new();
        }
    }

    /// All that was read is told: watch from now on, unless the log has grown in between or cannot be read further.
    async fn reach_present(&mut self) -> Result<Option<StreamItem>, Error> {
        if !self.deltas.is_empty() {
            // They follow an event that came after the log was read. Only a power cut can have taken that away.
            self.events = self.read(self.cursor.seq, PAGE).await?;
            self.spool_told = false;
            if !self.events.is_empty() {
                return Ok(None);
            }
            self.deltas.clear();
        }
        // Behind damage nothing will ever come: whoever reads is told so, not left to wait or to take this for all.
        if let Some(damage) = Damage::of_log(&*self.store, self.session).await? {
            self.mode = Mode::Ended;
            return Ok(Some(self.note_of("log_damaged", self.cursor, &damage.told())));
        }
        self.mode = if self.watch.is_some() { Mode::Live } else { Mode::Ended };
        Ok(None)
    }

    async fn read_spool(&mut self) -> Result<(), Error> {
        let page = match self.spool {
            Some((turn, pos)) => self.store.spool_read(self.session, turn, pos, SPOOL_BYTES).await?,
            None => SpoolPage::Gone,
        };
        match page {
            SpoolPage::Records(records) => self.deltas = records.into(),
            SpoolPage::Gone => self.spool = None,
        }
        self.spool_told = self.deltas.is_empty();
        Ok(())
    }

    /// The delta that comes before the next event, if there is one.
    fn next_delta(&mut self) -> Option<StreamItem> {
        while let Some(record) = self.deltas.front().filter(|record| record.delta.seq <= self.cursor.seq) {
            let (turn, _) = self.spool?;
            self.spool = Some((turn, record.pos));
            // Those before the cursor's event were told long ago.
            let told = record.delta.seq < self.cursor.seq;
            let item = delta_item(self.session, turn, record);
            self.deltas.pop_front();
            if !told {
                return Some(item);
            }
        }
        None
    }

    fn tell_event(&mut self, event: &StoredEvent) -> Result<StreamItem, Error> {
        let peek = peek(event)?;
        self.note(&peek.wire_type, peek.turn_id);
        let wire_type = Cow::Owned(peek.wire_type.into_owned());
        Ok(StreamItem { cursor: Cursor::at(event.seq), wire_type, json: event.json.clone() })
    }

    /// Keeps track of which spool belongs between the events.
    fn note(&mut self, wire_type: &str, turn: Option<TurnId>) {
        let spool = match wire_type {
            "turn_started" => turn.map(|turn| (turn, 0)),
            kind if is_settling(kind) && self.spool.map(|(open, _)| open) == turn => None,
            _ => return,
        };
        self.spool = spool;
        self.deltas.clear();
        self.spool_told = false;
    }

    async fn take_live(&mut self) -> Option<StreamItem> {
        let Some(watch) = &mut self.watch else {
            self.mode = Mode::Ended;
            return None;
        };
        let shown = tokio::select! {
            biased;
            shown = watch.receiver.recv() => shown,
            () = self.stop.cancelled() => {
                self.mode = Mode::Ended;
                return None;
            }
        };
        match shown {
            Ok(Shown::Item(item)) => return self.take_item(item),
            // Too slow, or too large to be held for us: back to reading.
            Ok(Shown::Look) | Err(RecvError::Lagged(_)) => self.mode = Mode::CatchUp,
            Err(RecvError::Closed) => self.mode = Mode::Ended,
        }
        None
    }

    fn take_item(&mut self, item: StreamItem) -> Option<StreamItem> {
        if item.cursor <= self.cursor {
            return None;
        }
        let follows = match item.cursor.pos {
            0 => item.cursor.seq == self.cursor.seq + 1,
            _ => item.cursor.seq == self.cursor.seq,
        };
        if !follows {
            self.mode = Mode::CatchUp;
            return None;
        }
        match item.cursor.pos {
            0 => {
                let turn = serde_json::from_slice::<Peek<'_>>(&item.json).ok().and_then(|peek| peek.turn_id);
                self.note(&item.wire_type, turn);
            }
            pos => {
                if let Some((_, told)) = &mut self.spool {
                    *told = pos;
                }
            }
        }
        Some(item)
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

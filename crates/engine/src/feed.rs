//! What happens in all sessions, at the level of their status, for those who watch over many of them. It keeps where the
//! last events stand, not the events: these are read from the logs, as for everybody else.

use std::{
    borrow::Cow,
    collections::VecDeque,
    fmt,
    str::FromStr,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use serde_json::json;
use tenure_core::{event::Event, ids::SessionId, time::Timestamp};
use tenure_store::Limit;
use tokio::sync::watch;

use crate::{Error, Shared, hub::lock};

/// Events that a watcher may be behind before it has to look at all sessions anew.
const KEPT_MAX: usize = 8192;

/// What tells of a message or of work inside a turn is left to the session's own stream.
pub fn is_of_status(wire_type: &str) -> bool {
    !matches!(
        wire_type,
        "message_added"
            | "message_delivered"
            | "attachment_added"
            | "context_seeded"
            | "tools_offered"
            | "model_output_completed"
            | "model_attempt_failed"
            | "tool_call_started"
            | "tool_call_completed"
    )
}

/// A place in the feed of one life of the daemon. Opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedCursor {
    life: u64,
    number: u64,
}

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.life, self.number)
    }
}

impl FromStr for FeedCursor {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (life, number) = text.split_once('-').ok_or(())?;
        let life = u64::from_str_radix(life, 16).map_err(drop)?;
        let cursor = Self { life, number: number.parse().map_err(drop)? };
        // One place has one spelling.
        if cursor.to_string() == text { Ok(cursor) } else { Err(()) }
    }
}

/// One event of any session.
#[derive(Debug, Clone)]
pub struct FeedItem {
    pub cursor: FeedCursor,
    pub wire_type: Cow<'static, str>,
    /// The whole envelope.
    pub json: Bytes,
}

pub(crate) struct Feed {
    life: u64,
    places: Mutex<Places>,
    /// The number of the last event.
    grown: watch::Sender<u64>,
}

#[derive(Default)]
struct Places {
    kept: VecDeque<Place>,
    /// How many there were before the first that is kept.
    dropped: u64,
}

#[derive(Clone, Copy)]
struct Place {
    session: SessionId,
    seq: u64,
    wire_type: &'static str,
}

impl Feed {
    /// No two lives of a daemon begin in the same instant.
    pub(crate) fn new(began: Timestamp) -> Self {
        Self { life: began.ms(), places: Mutex::default(), grown: watch::channel(0).0 }
    }

    pub(crate) fn watchers(&self) -> usize {
        self.grown.receiver_count()
    }

    pub(crate) fn note(&self, event: &Event) {
        let wire_type = event.body.wire_type();
        if !is_of_status(wire_type) {
            return;
        }
        let mut places = lock(&self.places);
        places.kept.push_back(Place { session: event.session_id, seq: event.seq, wire_type });
        if places.kept.len() > KEPT_MAX {
            places.kept.pop_front();
            places.dropped += 1;
        }
        let last = places.last();
        drop(places);
        self.grown.send_replace(last);
    }
}

impl Places {
    fn last(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }

    /// The one after this number; `Err`: it is not kept any more.
    fn after(&self, number: u64) -> Result<Option<Place>, ()> {
        let at = number.checked_sub(self.dropped).ok_or(())?;
        Ok(usize::try_from(at).ok().and_then(|at| self.kept.get(at)).copied())
    }
}

/// Follows the feed.
pub struct FeedSubscription {
    shared: Arc<Shared>,
    grown: watch::Receiver<u64>,
    number: u64,
    follow: bool,
    /// Something may be missing: the watcher is told to look at all sessions anew.
    reset: bool,
}

impl FeedSubscription {
    /// From a place on, or from now on.
    pub(crate) fn open(shared: Arc<Shared>, after: Option<FeedCursor>, follow: bool) -> Self {
        let feed = &shared.feed;
        let grown = feed.grown.subscribe();
        let places = lock(&feed.places);
        let last = places.last();
        let known = |cursor: &FeedCursor| cursor.life == feed.life && (places.dropped..=last).contains(&cursor.number);
        let (number, reset) = match after {
            None => (last, false),
            Some(cursor) if known(&cursor) => (cursor.number, false),
            Some(_) => (last, true),
        };
        drop(places);
        Self { shared, grown, number, follow, reset }
    }

    /// The next event; `None` at the present where it is not followed, and when the daemon stops.
    pub async fn next(&mut self) -> Option<Result<FeedItem, Error>> {
        loop {
            if std::mem::take(&mut self.reset) {
                let json = json!({ "ts": self.shared.parts.clock.now(), "type": "stream_reset", "data": {} });
                return Some(Ok(self.item("stream_reset".into(), json.to_string().into())));
            }
            let found = lock(&self.shared.feed.places).after(self.number);
            let place = match found {
                Ok(Some(place)) => place,
                Ok(None) if !self.follow => return None,
                Ok(None) => {
                    tokio::select! {
                        biased;
                        () = self.shared.stop.cancelled() => return None,
                        // The sender lives as long as the engine.
                        _ = self.grown.changed() => continue,
                    }
                }
                Err(()) => {
                    self.number = lock(&self.shared.feed.places).last();
                    self.reset = true;
                    continue;
                }
            };
            self.number += 1;
            let limit = Limit { events: 1, bytes: 1 };
            match self.shared.parts.store.read(place.session, place.seq - 1, limit).await {
                Ok(page) => {
                    // A session that was removed meanwhile has nothing to tell.
                    if let Some(event) = page.first().filter(|event| event.seq == place.seq) {
                        return Some(Ok(self.item(place.wire_type.into(), event.json.clone())));
                    }
                }
                Err(tenure_store::Error::NoSession(_)) => {}
                // One session that cannot be read must not keep those who watch all of them from the others.
                Err(error) => {
                    tracing::warn!("event {} of {} is not told to watchers: {error}", place.seq, place.session);
                    self.reset = true;
                }
            }
        }
    }

    fn item(&self, wire_type: Cow<'static, str>, json: Bytes) -> FeedItem {
        FeedItem { cursor: FeedCursor { life: self.shared.feed.life, number: self.number }, wire_type, json }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_spelling() {
        let cursor = FeedCursor { life: 0x1a2b, number: 7 };
        assert_eq!(cursor.to_string(), "1a2b-7");
        assert_eq!("1a2b-7".parse(), Ok(cursor));
        for bad in ["", "-", "1a2b", "1a2b-", "1A2B-7", "01a2b-7", "1a2b-07", "1a2b-+7", "1a2b-7 ", "x-1", "1-1-1"] {
            assert_eq!(bad.parse::<FeedCursor>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn what_was_dropped_is_known_to_be_missing() {
        let session = SessionId::new(ulid::Ulid::from_parts(1, 1));
        let place = |seq| Place { session, seq, wire_type: "turn_started" };
        let places = Places { kept: [place(4), place(5)].into(), dropped: 3 };
        assert_eq!(places.last(), 5);
        assert!(places.after(2).is_err());
        assert_eq!(places.after(3).unwrap().map(|place| place.seq), Some(4));
        assert_eq!(places.after(4).unwrap().map(|place| place.seq), Some(5));
        assert!(places.after(5).unwrap().is_none());
    }
}

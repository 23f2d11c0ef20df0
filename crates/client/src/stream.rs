//! A session's event stream that mends itself: it reconnects at its cursor, also while the daemon restarts. Every item is given out once, in order.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream::BoxStream};
use tenure_wire::{LOG_DAMAGED, STREAM_RESET};
use tokio::{sync::watch, time::Instant};

use crate::{Client, Error, Target};

/// The first wait before another try; it doubles up to `BACKOFF_MAX`.
pub const BACKOFF_MIN: Duration = Duration::from_millis(25);
pub const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How long a lost daemon is looked for before an error is given out.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// A daemon that is back sooner was not missed.
pub const MISSED_AFTER: Duration = Duration::from_secs(2);
/// The daemon sends a sign of life every 15 s; a connection that is silent for longer than this is given up.
pub const SILENCE_MAX: Duration = Duration::from_secs(45);

/// One event or delta.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Where it stands; what follows it is asked for with this.
    pub cursor: String,
    /// Its type, such as `turn_started`.
    pub kind: String,
    /// The whole envelope as it came.
    pub json: String,
}

/// Looks up where the daemon is now; `None` while it is not there. The token is never sent to an address that this did not name.
pub type Find = Arc<dyn Fn() -> Option<Target> + Send + Sync>;

/// Whether the stream goes on after the present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// Live events follow the history.
    Forever,
    /// It ends where the log ends now.
    Present,
}

pub struct EventStream {
    client: Client,
    session: String,
    until: Until,
    cursor: Option<String>,
    find: Option<Find>,
    patience: Duration,
    link: Option<Link>,
    connections: u32,
    tries: u32,
    lost_at: Option<Instant>,
    missed: watch::Sender<bool>,
}

struct Link {
    bytes: BoxStream<'static, reqwest::Result<Bytes>>,
    parser: tenure_sse::Parser,
}

/// What one look at the connection gave.
enum Read {
    Item(Item),
    /// Something to pass over.
    Nothing,
    /// The present is reached, and the stream should end there.
    Closed,
    /// It broke; why is only told if it cannot be mended in time.
    Lost(Error),
}

impl EventStream {
    pub(crate) fn new(client: Client, session: &str, until: Until) -> Self {
        Self {
            client,
            session: session.to_owned(),
            until,
            cursor: None,
            find: None,
            patience: PATIENCE,
            link: None,
            connections: 0,
            tries: 0,
            lost_at: None,
            missed: watch::Sender::new(false),
        }
    }

    /// Begins after this cursor instead of at the beginning.
    pub fn after(mut self, cursor: impl Into<String>) -> Self {
        self.cursor = Some(cursor.into());
        self
    }

    /// Asks this where the daemon is before each connection; the client it was made from follows.
    pub fn finding(mut self, find: Find) -> Self {
        self.find = Some(find);
        self
    }

    /// How long a lost daemon is looked for.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The cursor of the last item given out.
    pub fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// How many connections were made so far: more than one means that it was lost and found again.
    pub fn connections(&self) -> u32 {
        self.connections
    }

    /// Whether the daemon is being looked for, for longer than a restart takes. It changes while `next` waits.
    pub fn missed(&self) -> watch::Receiver<bool> {
        self.missed.subscribe()
    }

    /// The next item; `None` at the present where it should end there. May be dropped while it waits: nothing is lost. After an error it may be asked again and goes on trying.
    pub async fn next(&mut self) -> Option<Result<Item, Error>> {
        loop {
            if self.link.is_none()
                && let Err(error) = self.connect().await
            {
                return Some(Err(error));
            }
            match self.read().await {
                Read::Item(item) => return Some(Ok(item)),
                Read::Nothing => {}
                Read::Closed => return None,
                Read::Lost(error) => {
                    self.link = None;
                    if let Err(error) = self.pause(error).await {
                        return Some(Err(error));
                    }
                }
            }
        }
    }

    /// Tries until there is a connection, time is over or the daemon refuses. One that never answered is not waited for.
    async fn connect(&mut self) -> Result<(), Error> {
        loop {
            let error = match self.open().await {
                Ok(response) => {
                    self.link =
                        Some(Link { bytes: response.bytes_stream().boxed(), parser: tenure_sse::Parser::default() });
                    self.connections += 1;
                    self.missed.send_if_modified(|missed| std::mem::replace(missed, false));
                    return Ok(());
                }
                Err(error) if error.may_pass() && self.client.has_answered() => error,
                Err(error) => return Err(error),
            };
            self.pause(error).await?;
        }
    }

    async fn open(&mut self) -> Result<reqwest::Response, Error> {
        if let Some(find) = &self.find {
            let target = find().ok_or_else(|| Error::Unreachable {
                address: self.client.target().base_url().to_owned(),
                why: "the daemon is not running".into(),
            })?;
            self.client.retarget(target);
        }
        self.client.open_events(&self.session, self.cursor.as_deref(), self.until).await
    }

    /// Waits before the next try, unless patience is at its end.
    async fn pause(&mut self, error: Error) -> Result<(), Error> {
        let lost_at = *self.lost_at.get_or_insert_with(Instant::now);
        if lost_at.elapsed() >= self.patience {
            self.lost_at = None;
            self.tries = 0;
            return Err(error);
        }
        if lost_at.elapsed() >= MISSED_AFTER {
            self.missed.send_if_modified(|missed| !std::mem::replace(missed, true));
        }
        let wait = BACKOFF_MIN.saturating_mul(1 << self.tries.min(10)).min(BACKOFF_MAX);
        self.tries += 1;
        tokio::time::sleep(wait).await;
        Ok(())
    }

    async fn read(&mut self) -> Read {
        let Some(link) = &mut self.link else { return Read::Nothing };
        if let Some(frame) = link.parser.take() {
            return self.admit(frame);
        }
        let address = || self.client.target().base_url().to_owned();
        match tokio::time::timeout(SILENCE_MAX, link.bytes.next()).await {
            Err(_) => Read::Lost(Error::Unreachable { address: address(), why: "no sign of life".into() }),
            Ok(None) if self.until == Until::Present => Read::Closed,
            Ok(None) => Read::Lost(Error::Unreachable { address: address(), why: "it closed the stream".into() }),
            Ok(Some(Err(error))) => Read::Lost(Error::unreachable(address(), &error)),
            Ok(Some(Ok(bytes))) => {
                // Bytes are what tells a daemon that is back from one that only accepts connections.
                self.lost_at = None;
                match link.parser.push(&bytes) {
                    Ok(()) => Read::Nothing,
                    Err(error) => {
                        Read::Lost(Error::Strange { what: "the event stream".into(), why: error.to_string() })
                    }
                }
            }
        }
    }

    /// Lets an item through unless it stands at or before the cursor.
    fn admit(&mut self, frame: tenure_sse::Frame) -> Read {
        let here = self.cursor.clone().unwrap_or_else(|| "0".into());
        let cursor = frame.id.unwrap_or_else(|| here.clone());
        let known = match (place(&cursor), place(&here)) {
            (Some(new), Some(old)) => new <= old,
            _ => false,
        };
        // A note about the stream has no number of its own: a reset points back to the last whole event, which is where the
        // stream goes on, and damage to the last one that can be read.
        if known && ![STREAM_RESET, LOG_DAMAGED].contains(&frame.event.as_str()) {
            return Read::Nothing;
        }
        self.cursor = Some(cursor.clone());
        self.tries = 0;
        Read::Item(Item { cursor, kind: frame.event, json: frame.data })
    }
}

/// A cursor as numbers that can be compared: `seq`, then `pos`.
pub fn place(cursor: &str) -> Option<(u64, u64)> {
    match cursor.split_once('.') {
        None => Some((cursor.parse().ok()?, 0)),
        Some((seq, pos)) => Some((seq.parse().ok()?, pos.parse().ok()?)),
    }
}

#[cfg(test)]
mod tests;

//! Hands what a session shows to all who watch it, without a buffer of their own for any of them.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use tenure_core::{cursor::Cursor, ids::SessionId};
use tenure_store::{Limit, Store, StoredEvent};
use tokio::sync::broadcast;

/// Items that a live watcher may be behind before it is moved back to reading the log.
const BEHIND_MAX: usize = 256;
/// Larger items are not held for watchers: they read them from the log.
const HELD_BYTES_MAX: usize = 16 * 1024;

/// One event or delta as it goes over the wire.
#[derive(Debug, Clone)]
pub struct StreamItem {
    pub cursor: Cursor,
    pub wire_type: Cow<'static, str>,
    /// The whole envelope.
    pub json: Bytes,
}

/// What live watchers are handed.
#[derive(Debug, Clone)]
pub(crate) enum Shown {
    Item(StreamItem),
    /// Something too large to hold was written: look in the log.
    Look,
}

/// The watchers of one session. It costs nothing while nobody watches.
#[derive(Debug, Default)]
pub(crate) struct Hub {
    sender: Mutex<Option<broadcast::Sender<Shown>>>,
    watchers: AtomicUsize,
    /// Large events that clients are being told just now, by number: all of them hold the same bytes.
    large: Mutex<HashMap<u64, Weak<Bytes>>>,
    /// The newest large event that is known of.
    large_at: AtomicU64,
    /// Held while a part of the log is read in which there is a large event: the others find it held by the first one.
    reading: tokio::sync::Mutex<()>,
}

/// Bytes that several clients hold and the last one lets go.
struct SharedBytes(Arc<Bytes>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Hub {
    /// Begins to watch. Subscribe first, then read history: nothing falls between.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        self.watchers.fetch_add(1, Ordering::Relaxed);
        let mut sender = lock(&self.sender);
        let sender = sender.get_or_insert_with(|| broadcast::channel(BEHIND_MAX).0);
        Watch { receiver: sender.subscribe(), hub: self.clone() }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watchers.load(Ordering::Relaxed) > 0
    }

    /// Reads on in the log. What is large is read once for all who want it at the same time, and held once.
    pub(crate) async fn read(
        &self,
        store: &dyn Store,
        session: SessionId,
        after: u64,
        limit: Limit,
    ) -> tenure_store::Result<Vec<StoredEvent>> {
        let _alone = match self.large_at.load(Ordering::Relaxed) > after {
            true => Some(self.reading.lock().await),
            false => None,
        };
        let next = after + 1;
        if let Some(json) = lock(&self.large).get(&next).and_then(Weak::upgrade) {
            return Ok(vec![StoredEvent { seq: next, json: Bytes::from_owner(SharedBytes(json)), more: 0 }]);
        }
        let mut page = store.read(session, after, limit).await?;
        for event in page.iter_mut().filter(|event| event.json.len() > HELD_BYTES_MAX) {
            event.json = self.shared(event.seq, std::mem::take(&mut event.json));
        }
        Ok(page)
    }

    /// The bytes of a large event, or the same ones that another client was given and still holds.
    fn shared(&self, seq: u64, json: Bytes) -> Bytes {
        self.large_at.fetch_max(seq, Ordering::Relaxed);
        let mut large = lock(&self.large);
        large.retain(|_, held| held.strong_count() > 0);
        let held = large.get(&seq).and_then(Weak::upgrade).unwrap_or_else(|| {
            let held = Arc::new(json);
            large.insert(seq, Arc::downgrade(&held));
            held
        });
        Bytes::from_owner(SharedBytes(held))
    }

    pub(crate) fn show(&self, item: StreamItem) {
        let shown = if item.json.len() <= HELD_BYTES_MAX {
            Shown::Item(item)
        } else {
            self.large_at.fetch_max(item.cursor.seq, Ordering::Relaxed);
            Shown::Look
        };
        if let Some(sender) = &*lock(&self.sender) {
            // Nobody watching is no error.
            let _ = sender.send(shown);
        }
    }
}

impl Hubs {
    /// Lets the watchers of a session look into its log again, whatever they will find there.
    pub(crate) fn look(&self, session: SessionId) {
        let hub = lock(&self.0).get(&session).cloned();
        if let Some(sender) = hub.and_then(|hub| lock(&hub.sender).clone()) {
            let _ = sender.send(Shown::Look);
        }
    }
}

pub(crate) struct Watch {
    pub(crate) receiver: broadcast::Receiver<Shown>,
    pub(crate) hub: Arc<Hub>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.hub.watchers.fetch_sub(1, Ordering::Relaxed) == 1 {
            let mut sender = lock(&self.hub.sender);
            if !self.hub.is_watched() {
                *sender = None;
            }
        }
    }
}

/// The hubs of all sessions that are warm or watched.
#[derive(Debug, Default)]
pub(crate) struct Hubs(Mutex<HashMap<SessionId, Arc<Hub>>>);

/// Entries are looked through for unused ones whenever the map has grown this much.
const PRUNE_EVERY: usize = 1024;

impl Hubs {
    pub(crate) fn of(&self, session: SessionId) -> Arc<Hub> {
        let mut hubs = lock(&self.0);
        if hubs.len() >= PRUNE_EVERY && hubs.len() == hubs.capacity() {
            hubs.retain(|_, hub| Arc::strong_count(hub) > 1);
        }
        hubs.entry(session).or_default().clone()
    }

    pub(crate) fn forget_unused(&self, session: SessionId) {
        let mut hubs = lock(&self.0);
        if hubs.get(&session).is_some_and(|hub| Arc::strong_count(hub) == 1) {
            hubs.remove(&session);
        }
    }

    pub(crate) fn watchers(&self) -> usize {
        lock(&self.0).values().map(|hub| hub.watchers.load(Ordering::Relaxed)).sum()
    }
}

/// A panic while a lock was held leaves plain data behind, which is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

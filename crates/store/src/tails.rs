//! Wake-ups for those who follow a session. A hint only: it never carries events.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tenure_core::ids::SessionId;
use tokio::sync::watch;

/// Below this many followed sessions nobody looks for abandoned ones.
const PRUNE_FROM: usize = 64;

pub(crate) struct Tails(Mutex<Inner>);

struct Inner {
    senders: HashMap<SessionId, watch::Sender<u64>>,
    /// The size at which abandoned entries are dropped, so that pruning costs nothing on average.
    prune_at: usize,
}

impl Default for Tails {
    fn default() -> Self {
        Self(Mutex::new(Inner { senders: HashMap::new(), prune_at: PRUNE_FROM }))
    }
}

impl Tails {
    pub fn follow(&self, session: SessionId) -> watch::Receiver<u64> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.senders.len() >= inner.prune_at {
            inner.senders.retain(|_, sender| sender.receiver_count() > 0);
            inner.prune_at = PRUNE_FROM.max(inner.senders.len() * 2);
        }
        inner.senders.entry(session).or_insert_with(|| watch::Sender::new(0)).subscribe()
    }

    pub fn wake(&self, session: SessionId) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = inner.senders.get(&session) else { return };
        if sender.receiver_count() == 0 {
            inner.senders.remove(&session);
        } else {
            sender.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

//! Sessions that an earlier life left open: until each of them has been looked at, what is known of it is of that life.

use std::{collections::HashSet, time::Duration};

use tenure_core::ids::SessionId;
use tokio::sync::watch;

/// How long an answer waits for them. One that takes longer is told as it was left.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// Those that have not been looked at yet; nothing while not even their list has been read.
pub(crate) struct LeftOpen(watch::Sender<Option<HashSet<SessionId>>>);

impl Default for LeftOpen {
    fn default() -> Self {
        Self(watch::channel(None).0)
    }
}

impl LeftOpen {
    pub(crate) fn found(&self, ids: &[SessionId]) {
        self.0.send_replace(Some(ids.iter().copied().collect()));
    }

    /// This one has recovered, or could not.
    pub(crate) fn looked_at(&self, id: SessionId) {
        self.0.send_if_modified(|left| left.as_mut().is_some_and(|left| left.remove(&id)));
    }

    pub(crate) fn is_none_left(&self) -> bool {
        self.0.borrow().as_ref().is_some_and(HashSet::is_empty)
    }

    /// Waits until all of them have been looked at.
    pub(crate) async fn all(&self) {
        self.until(HashSet::is_empty).await;
    }

    /// Waits until this one has been looked at.
    pub(crate) async fn one(&self, id: SessionId) {
        self.until(|left| !left.contains(&id)).await;
    }

    /// Whether this is one of them that has not been looked at yet; waits for the list of them.
    pub(crate) async fn has(&self, id: SessionId) -> bool {
        self.until(|_| true).await;
        self.0.borrow().as_ref().is_some_and(|left| left.contains(&id))
    }

    async fn until(&self, done: impl Fn(&HashSet<SessionId>) -> bool) {
        let is_done = |left: &Option<HashSet<SessionId>>| left.as_ref().is_some_and(&done);
        if !is_done(&self.0.borrow()) {
            let mut left = self.0.subscribe();
            let _ = tokio::time::timeout(LOOK_MAX, left.wait_for(is_done)).await;
        }
    }
}

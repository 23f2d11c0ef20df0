//! Sessions that an earlier life left open: until each of them has been looked at, what is known of it is of that life.

use std::{collections::HashSet, time::Duration};

use tenure_core::ids::SessionId;
use tokio::sync::watch;

/// How long an answer waits for them. One that takes longer is told as it was left.
const LOOK_MAX: Duration = Duration::from_secs(10);

pub(crate) struct LeftOpen(watch::Sender<Look>);

enum Look {
    /// Their list is being read; these have been looked at before.
    Begun(HashSet<SessionId>),
    /// Those that have not been looked at yet.
    Left(HashSet<SessionId>),
}

impl Default for LeftOpen {
    fn default() -> Self {
        Self(watch::channel(Look::Begun(HashSet::new())).0)
    }
}

impl LeftOpen {
    pub(crate) fn found(&self, ids: &[SessionId]) {
        self.0.send_modify(|look| {
            let is_left = |id: &SessionId| !matches!(look, Look::Begun(looked) if looked.contains(id));
            *look = Look::Left(ids.iter().copied().filter(is_left).collect());
        });
    }

    /// This one has recovered, or could not.
    pub(crate) fn looked_at(&self, id: SessionId) {
        self.0.send_if_modified(|look| match look {
            Look::Begun(looked) => {
                looked.insert(id);
                false
            }
            Look::Left(left) => left.remove(&id),
        });
    }

    pub(crate) fn is_none_left(&self) -> bool {
        matches!(&*self.0.borrow(), Look::Left(left) if left.is_empty())
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
        matches!(&*self.0.borrow(), Look::Left(left) if left.contains(&id))
    }

    async fn until(&self, done: impl Fn(&HashSet<SessionId>) -> bool) {
        let is_done = |look: &Look| matches!(look, Look::Left(left) if done(left));
        if !is_done(&self.0.borrow()) {
            let mut left = self.0.subscribe();
            let _ = tokio::time::timeout(LOOK_MAX, left.wait_for(is_done)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_was_looked_at_before_the_list_was_read_is_not_waited_for() {
        let [early, late] = [1, 2].map(|number| SessionId::new(ulid::Ulid::from_parts(1, number)));
        let open = LeftOpen::default();
        open.looked_at(early);
        assert!(!open.is_none_left());
        open.found(&[early, late]);
        assert!(!open.has(early).await && open.has(late).await);
        open.looked_at(late);
        assert!(open.is_none_left());
        open.all().await;
    }
}

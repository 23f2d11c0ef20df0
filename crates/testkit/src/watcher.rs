//! Clients of a session's stream: one that is asked item by item, one that reads on by itself.

use tenure_core::cursor::Cursor;
use tenure_engine::{StreamItem, Subscription};
use tokio::{sync::watch, task::JoinHandle};

use crate::within;

/// A watcher that takes in everything as soon as it is shown.
pub struct Recorder {
    seen: watch::Receiver<Vec<StreamItem>>,
    _task: AbortOnDrop,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Recorder {
    /// All that was shown, once that cursor is reached.
    pub async fn up_to(&self, last: Cursor) -> Vec<StreamItem> {
        let mut seen = self.seen.clone();
        let reached = |seen: &Vec<StreamItem>| seen.last().is_some_and(|item| item.cursor >= last);
        within("the recorder sees it", seen.wait_for(reached)).await.expect("the recorder is at work").clone()
    }
}

/// One watcher of a session.
pub struct Watcher {
    subscription: Subscription,
}

impl Watcher {
    pub fn new(subscription: Subscription) -> Self {
        Self { subscription }
    }

    /// Reads on in a task of its own.
    pub fn into_recorder(mut self) -> Recorder {
        let (taken, seen) = watch::channel(Vec::new());
        let task = tokio::spawn(async move {
            while let Some(item) = self.subscription.next().await {
                let item = item.expect("the stream can be read");
                taken.send_modify(|seen: &mut Vec<StreamItem>| seen.push(item));
            }
        });
        Recorder { seen, _task: AbortOnDrop(task) }
    }

    pub async fn next(&mut self) -> StreamItem {
        let next = within("something is shown", self.subscription.next()).await;
        next.expect("the stream goes on").expect("the stream can be read")
    }

    /// Everything up to and with the first item of this type.
    pub async fn until(&mut self, wire_type: &str) -> Vec<StreamItem> {
        let mut items = Vec::new();
        loop {
            let item = self.next().await;
            let found = item.wire_type == wire_type;
            items.push(item);
            if found {
                return items;
            }
        }
    }

    /// Everything up to the end of the stream.
    pub async fn rest(mut self) -> Vec<StreamItem> {
        let mut items = Vec::new();
        while let Some(item) = within("the stream ends", self.subscription.next()).await {
            items.push(item.expect("the stream can be read"));
        }
        items
    }
}

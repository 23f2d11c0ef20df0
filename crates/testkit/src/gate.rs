//! A place where work stops until the test lets it go on.

use tokio::sync::{Semaphore, watch};

/// Enough for every passage of a test.
const FOR_GOOD: usize = 1 << 20;

pub struct Gate {
    reached: watch::Sender<usize>,
    permits: Semaphore,
}

impl Default for Gate {
    fn default() -> Self {
        Self { reached: watch::channel(0).0, permits: Semaphore::new(0) }
    }
}

impl Gate {
    /// Stops here until a passage is free.
    pub async fn pass(&self) {
        self.reached.send_modify(|count| *count += 1);
        if let Ok(permit) = self.permits.acquire().await {
            permit.forget();
        }
    }

    /// Waits until the gate was come to that many times in all.
    pub async fn reached(&self, times: usize) {
        let mut reached = self.reached.subscribe();
        // The sender lives as long as the gate.
        let _ = reached.wait_for(|count| *count >= times).await;
    }

    /// How often it was come to.
    pub fn count(&self) -> usize {
        *self.reached.borrow()
    }

    /// Lets one through.
    pub fn open_once(&self) {
        self.permits.add_permits(1);
    }

    /// Lets all through, now and later.
    pub fn open(&self) {
        self.permits.add_permits(FOR_GOOD);
    }
}

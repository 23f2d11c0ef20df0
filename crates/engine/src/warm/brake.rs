//! What stops one piece of work, and why.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tenure_core::model::{Fault, FaultKind};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What is told of work that was stopped at the turn's time limit.
pub(super) const TIME_UP: &str = "the turn's time limit was reached";

#[derive(Clone)]
pub(super) struct Brake {
    pub(super) token: CancellationToken,
    begun: Instant,
    time_up: Arc<AtomicBool>,
}

impl Brake {
    pub(super) fn new(token: CancellationToken) -> Self {
        Self { token, begun: Instant::now(), time_up: Arc::default() }
    }

    /// Stops work whose turn goes on: unlike other work that is stopped, it tells its end.
    pub(super) fn time_up(&self) {
        // One that is being stopped already has another reason.
        if !self.token.is_cancelled() {
            self.time_up.store(true, Ordering::Release);
            self.token.cancel();
        }
    }

    pub(super) fn is_time_up(&self) -> bool {
        self.time_up.load(Ordering::Acquire)
    }

    pub(super) fn ran_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

pub(super) fn time_up_fault() -> Fault {
    Fault::new(FaultKind::Canceled, TIME_UP)
}

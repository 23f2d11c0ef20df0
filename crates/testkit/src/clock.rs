//! Time and chance that a test can foresee: tokio's own clock, which can be paused, and a counted chance.

use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::time::Timestamp;
use tenure_engine::Clock;
use tokio::time::Instant;

/// 2025-01-01.
const BASE_MS: u64 = 1_735_689_600_000;
/// Spreads the counter over all bits of a chance, so that no two are alike in any part.
const SPREAD: u128 = 0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835;

pub struct TestClock {
    base: Timestamp,
    began: Instant,
    drawn: AtomicU64,
}

impl Default for TestClock {
    fn default() -> Self {
        Self::going_on(Timestamp::from_ms(BASE_MS), 1)
    }
}

impl TestClock {
    /// A clock that shows this time now, with so many chances drawn before: a new process on the same machine.
    pub fn going_on(now: Timestamp, drawn: u64) -> Self {
        Self { base: now, began: Instant::now(), drawn: AtomicU64::new(drawn) }
    }

    pub fn drawn(&self) -> u64 {
        self.drawn.load(Ordering::Relaxed)
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.base.plus_ms(passed)
    }

    fn chance(&self) -> u128 {
        u128::from(self.drawn.fetch_add(1, Ordering::Relaxed)).wrapping_mul(SPREAD)
    }
}

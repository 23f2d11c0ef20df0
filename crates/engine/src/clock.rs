//! Time and chance for the engine. Everything below it is handed them as values.

use std::{
    fs::File,
    io::Read,
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use tenure_core::time::{Moment, Timestamp};

/// Where the engine gets time and chance from; tests hand in their own.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
    fn chance(&self) -> u128;

    fn moment(&self) -> Moment {
        Moment::new(self.now(), self.chance())
    }
}

/// The machine's clock, and chance drawn from a seed of the operating system.
pub struct SystemClock {
    seed: [u8; 32],
    drawn: AtomicU64,
}

impl SystemClock {
    /// Fails only where the operating system gives no random bytes.
    pub fn new() -> std::io::Result<Self> {
        let mut seed = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Self { seed, drawn: AtomicU64::new(0) })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }

    fn chance(&self) -> u128 {
        let count = self.drawn.fetch_add(1, Ordering::Relaxed);
        let hash = blake3::keyed_hash(&self.seed, &count.to_le_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.as_bytes()[..16]);
        u128::from_le_bytes(bytes)
    }
}

//! Who was turned away, and why: counted by reason, and told in the log, not more often than somebody can read. Nothing that
//! was sent is repeated.

use std::{
    net::IpAddr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Codes that tell of somebody who should not be here, or of too much. Others are mistakes between friends.
pub(crate) const REASONS: [&str; 20] = [
    "bad_host",
    "bad_origin",
    "unauthorized",
    "token_expired",
    "not_allowed",
    "bad_login",
    "too_fast",
    "too_many_failures",
    "too_many_connections",
    "too_many_streams",
    "too_many_imports",
    "bad_head",
    "head_too_large",
    "head_timeout",
    "body_too_large",
    "attachment_too_large",
    "archive_too_large",
    "bad_archive",
    "body_timeout",
    "tls_failed",
];
/// One line a reason in this time.
const LINE_EVERY: Duration = Duration::from_secs(10);

#[derive(Default)]
pub(crate) struct Refusals {
    counts: [AtomicU64; REASONS.len()],
    told: Mutex<[Told; REASONS.len()]>,
}

#[derive(Default, Clone, Copy)]
struct Told {
    at: Option<Instant>,
    /// Since then, without a line.
    unsaid: u64,
}

impl Refusals {
    /// Counts a refusal if its code is one of the reasons. `from` is for the log alone.
    pub(crate) fn note(&self, code: &str, from: IpAddr) {
        let Some(at) = REASONS.iter().position(|reason| *reason == code) else { return };
        self.counts[at].fetch_add(1, Ordering::Relaxed);
        if let Some(before) = self.line_due(at, Instant::now()) {
            match before {
                0 => tracing::warn!("refused a request from {from}: {code}"),
                more => tracing::warn!("refused a request from {from}: {code}, and {more} more since the last line"),
            }
        }
    }

    /// How many went by without a line, if it is time for one.
    fn line_due(&self, at: usize, now: Instant) -> Option<u64> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = &mut told[at];
        if told.at.is_some_and(|last| now.saturating_duration_since(last) < LINE_EVERY) {
            told.unsaid += 1;
            return None;
        }
        let unsaid = told.unsaid;
        *told = Told { at: Some(now), unsaid: 0 };
        Some(unsaid)
    }

    pub(crate) fn seen(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        REASONS.into_iter().zip(&self.counts).map(|(reason, count)| (reason, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_by_reason() {
        let refusals = Refusals::default();
        for code in ["bad_host", "unknown_path", "bad_host", "too_fast"] {
            refusals.note(code, IpAddr::from([127, 0, 0, 1]));
        }
        let seen: Vec<_> = refusals.seen().filter(|(_, count)| *count > 0).collect();
        assert_eq!(seen, [("bad_host", 2), ("too_fast", 1)]);
    }

    #[test]
    fn the_log_gets_a_line_now_and_then() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.line_due(0, start), Some(0));
        assert!((0..5).all(|_| refusals.line_due(0, start).is_none()));
        assert_eq!(refusals.line_due(1, start), Some(0), "each reason has lines of its own");
        assert_eq!(refusals.line_due(0, start + LINE_EVERY), Some(5));
    }
}

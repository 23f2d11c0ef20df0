//! Counts of what has happened since the start, for those who watch the daemon. Nothing depends on them.

use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::{
    event::{Body, Event},
    model::{MicroUsd, Usage},
};

const TYPES: usize = Body::WIRE_TYPES.len();

/// What the engine counts itself.
#[derive(Debug)]
pub(crate) struct Tally {
    events: [AtomicU64; TYPES],
    deltas: AtomicU64,
    input_tokens: AtomicU64,
    output_tokens: AtomicU64,
    cache_read_tokens: AtomicU64,
    cache_write_tokens: AtomicU64,
    micro_usd: AtomicU64,
}

/// The counts at one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Numbered events that were written, by type.
    pub events: Vec<(&'static str, u64)>,
    pub deltas: u64,
    pub usage: Usage,
    /// Known costs only.
    pub micro_usd: MicroUsd,
    pub warm_sessions: usize,
    pub open_turns: usize,
    pub subscribers: usize,
    pub retired_sessions: usize,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            events: std::array::from_fn(|_| AtomicU64::new(0)),
            deltas: AtomicU64::new(0),
            input_tokens: AtomicU64::new(0),
            output_tokens: AtomicU64::new(0),
            cache_read_tokens: AtomicU64::new(0),
            cache_write_tokens: AtomicU64::new(0),
            micro_usd: AtomicU64::new(0),
        }
    }
}

impl Tally {
    pub(crate) fn note(&self, event: &Event) {
        let wire_type = event.body.wire_type();
        if let Some(at) = Body::WIRE_TYPES.iter().position(|known| *known == wire_type) {
            add(&self.events[at], 1);
        }
        let (usage, cost) = match &event.body {
            Body::ModelOutputCompleted(output) => (&output.usage, output.cost_micro_usd),
            Body::ModelAttemptFailed(failed) => (&failed.usage, failed.cost_micro_usd),
            Body::ContextCompacted(compacted) => (&compacted.usage, compacted.cost_micro_usd),
            Body::CompactionFailed(failed) => (&failed.usage, failed.cost_micro_usd),
            _ => return,
        };
        add(&self.input_tokens, usage.input_tokens);
        add(&self.output_tokens, usage.output_tokens);
        add(&self.cache_read_tokens, usage.cache_read_tokens);
        add(&self.cache_write_tokens, usage.cache_write_tokens);
        add(&self.micro_usd, cost.unwrap_or(0));
    }

    pub(crate) fn note_deltas(&self, count: usize) {
        add(&self.deltas, count as u64);
    }

    pub(crate) fn events(&self) -> Vec<(&'static str, u64)> {
        Body::WIRE_TYPES.iter().copied().zip(self.events.iter().map(get)).collect()
    }

    pub(crate) fn deltas(&self) -> u64 {
        get(&self.deltas)
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            input_tokens: get(&self.input_tokens),
            output_tokens: get(&self.output_tokens),
            cache_read_tokens: get(&self.cache_read_tokens),
            cache_write_tokens: get(&self.cache_write_tokens),
        }
    }

    pub(crate) fn micro_usd(&self) -> MicroUsd {
        get(&self.micro_usd)
    }
}

/// Vendors' numbers are added up here, and none of them may make a count go back.
fn add(to: &AtomicU64, count: u64) {
    let _ = to.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| Some(now.saturating_add(count)));
}

fn get(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

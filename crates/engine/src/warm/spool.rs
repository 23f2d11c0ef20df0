//! Deltas: handed to the operating system first, then shown.

use std::collections::HashMap;

use tenure_core::{
    command::Partial,
    delta::{Delta, Stream},
    model::Usage,
};
use tenure_store::SpoolRecord;

use super::{Fragment, News, Warm};
use crate::{Error, subscription::delta_item};

/// A merged record is not let grow beyond this.
const RECORD_BYTES_MAX: usize = 64 * 1024;

/// What was shown of the model call under way, and how far each stream has come.
#[derive(Debug, Default)]
pub(super) struct Shown {
    text: String,
    thinking: String,
    offsets: HashMap<(u32, u32, Stream), u64>,
}

impl Shown {
    fn take(&mut self, delta: &Delta) {
        *self.offsets.entry((delta.step, delta.attempt, delta.stream)).or_default() += delta.text.len() as u64;
        match delta.stream {
            Stream::Text => self.text.push_str(&delta.text),
            Stream::Thinking => self.thinking.push_str(&delta.text),
            Stream::Arguments(_) | Stream::Output(_) => {}
        }
    }

    /// What a cut call had shown; the next attempt begins with nothing.
    pub(super) fn cut(&mut self, usage: Usage) -> Partial {
        let (text, thinking) = (std::mem::take(&mut self.text), std::mem::take(&mut self.thinking));
        Partial { text, thinking, usage, cost: None }
    }

    /// Text that was shown before, from a spool or from a decision the disk refused.
    pub(super) fn put_back(&mut self, text: &str, thinking: &str) {
        self.text.push_str(text);
        self.thinking.push_str(thinking);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.thinking.is_empty()
    }

    /// The step is over, and with it all its streams.
    pub(super) fn clear(&mut self) {
        *self = Shown::default();
    }
}

impl Warm {
    /// Writes and shows a fragment and all that wait behind it, joined where they belong together.
    pub(super) async fn show_all(&mut self, first: Fragment) -> Result<(), (News, Error)> {
        let Some(turn) = self.state.turn.as_ref().map(|turn| turn.id) else { return Ok(()) };
        let mut deltas = vec![self.delta(first, 0)];
        while let Some(News::Delta(_)) = self.held.front() {
            let Some(News::Delta(fragment)) = self.held.pop_front() else { break };
            let ahead = deltas.iter().filter(|delta| same_stream(delta, &fragment));
            let ahead = ahead.map(|delta| delta.text.len() as u64).sum();
            let next = self.delta(fragment, ahead);
            match deltas.last_mut() {
                Some(last) if last.takes(&next) && last.text.len() + next.text.len() <= RECORD_BYTES_MAX => {
                    last.text.push_str(&next.text);
                }
                _ => deltas.push(next),
            }
        }
        let store = self.shared.parts.store.clone();
        match store.spool_append(self.id, turn, &deltas).await {
            Ok(ends) => {
                self.disk_took();
                for (delta, pos) in deltas.into_iter().zip(ends) {
                    self.shown.take(&delta);
                    if self.hub.is_watched() {
                        self.hub.show(delta_item(self.id, turn, &SpoolRecord { pos, delta }));
                    }
                }
                Ok(())
            }
            Err(error) => Err((self.hold_back(deltas), error.into())),
        }
    }

    fn delta(&self, fragment: Fragment, ahead: u64) -> Delta {
        let Fragment { step, attempt, stream, text } = fragment;
        let written = self.shown.offsets.get(&(step, attempt, stream)).copied().unwrap_or(0);
        let (seq, ts) = (self.state.seq, self.shared.parts.clock.now());
        Delta { seq, ts, step, attempt, stream, offset: written + ahead, text }
    }

    /// Puts deltas back in front of what waits; returns the first.
    fn hold_back(&mut self, deltas: Vec<Delta>) -> News {
        let mut fragments = deltas.into_iter().map(|delta| {
            let Delta { step, attempt, stream, text, .. } = delta;
            News::Delta(Fragment { step, attempt, stream, text })
        });
        let first = fragments.next();
        let rest: Vec<News> = fragments.collect();
        for fragment in rest.into_iter().rev() {
            self.held.push_front(fragment);
        }
        // There was at least the one that was handed in.
        first
            .unwrap_or_else(|| News::Delta(Fragment { step: 0, attempt: 0, stream: Stream::Text, text: String::new() }))
    }
}

fn same_stream(delta: &Delta, fragment: &Fragment) -> bool {
    (delta.step, delta.attempt, delta.stream) == (fragment.step, fragment.attempt, fragment.stream)
}

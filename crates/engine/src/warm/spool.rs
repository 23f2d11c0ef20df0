//! Deltas: handed to the operating system first, then shown.

use std::collections::HashMap;

use tenure_core::{
    command::Partial,
    delta::{Delta, Stream},
    ids::TurnId,
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
    pub(super) fn take(&mut self, delta: &Delta) {
        *self.offsets.entry((delta.step, delta.attempt, delta.stream)).or_default() += delta.text.len() as u64;
        match delta.stream {
            Stream::Text => self.text.push_str(&delta.text),
            Stream::Thinking => self.thinking.push_str(&delta.text),
            Stream::Arguments(_) | Stream::Output(_) => {}
        }
    }

    /// What the attempt under way has shown.
    pub(super) fn so_far(&self) -> Partial {
        let begun = self.offsets.keys().any(|(_, _, stream)| !matches!(stream, Stream::Output(_)));
        Partial { text: self.text.clone(), thinking: self.thinking.clone(), begun, ..Partial::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.thinking.is_empty()
    }

    /// The attempt is over, and with it all its streams.
    pub(super) fn clear(&mut self) {
        *self = Shown::default();
    }
}

impl Warm {
    /// Writes and shows a fragment and all that wait behind it, joined where they belong together.
    pub(super) async fn show_all(&mut self, first: Fragment) -> Result<(), (News, Error)> {
        let turn = first.turn;
        // What work still says after its turn was settled belongs nowhere.
        if self.state.turn.as_ref().is_none_or(|open| open.id != turn) {
            return Ok(());
        }
        let mut deltas = vec![self.delta(first, 0)];
        while matches!(self.held.front(), Some(News::Delta(next)) if next.turn == turn) {
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
                self.shared.tally.note_deltas(deltas.len());
                for (delta, pos) in deltas.into_iter().zip(ends) {
                    self.shown.take(&delta);
                    if self.hub.is_watched() {
                        self.hub.show(delta_item(self.id, turn, &SpoolRecord { pos, delta }));
                    }
                }
                Ok(())
            }
            Err(error) => {
                let error = error.into();
                self.lose(&error);
                Err((self.hold_back(turn, deltas), error))
            }
        }
    }

    fn delta(&self, fragment: Fragment, ahead: u64) -> Delta {
        let Fragment { step, attempt, stream, text, .. } = fragment;
        let written = self.shown.offsets.get(&(step, attempt, stream)).copied().unwrap_or(0);
        let (seq, ts) = (self.state.seq, self.shared.parts.clock.now());
        Delta { seq, ts, step, attempt, stream, offset: written + ahead, text }
    }

    /// Puts deltas back in front of what waits; returns the first.
    fn hold_back(&mut self, turn: TurnId, deltas: Vec<Delta>) -> News {
        let mut first = Fragment { turn, step: 0, attempt: 0, stream: Stream::Text, text: String::new() };
        for (index, delta) in deltas.into_iter().enumerate().rev() {
            let Delta { step, attempt, stream, text, .. } = delta;
            let fragment = Fragment { turn, step, attempt, stream, text };
            match index {
                0 => first = fragment,
                _ => self.held.push_front(News::Delta(fragment)),
            }
        }
        News::Delta(first)
    }
}

fn same_stream(delta: &Delta, fragment: &Fragment) -> bool {
    (delta.step, delta.attempt, delta.stream) == (fragment.step, fragment.attempt, fragment.stream)
}

#[cfg(test)]
mod tests {
    use tenure_core::time::Timestamp;

    use super::*;

    #[test]
    fn a_reply_has_begun_with_whatever_the_model_sent_first() {
        let delta = |stream| Delta {
            seq: 1,
            ts: Timestamp::from_ms(1),
            step: 1,
            attempt: 1,
            stream,
            offset: 0,
            text: "x".into(),
        };
        assert!(!Shown::default().so_far().begun);
        for stream in [Stream::Text, Stream::Thinking, Stream::Arguments(0)] {
            let mut shown = Shown::default();
            shown.take(&delta(stream));
            assert!(shown.so_far().begun, "{stream:?}");
        }
    }
}

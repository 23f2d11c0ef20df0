//! The invariants of compactions: one at a time, never without end, and nothing that matters is kept from the model.

use std::collections::BTreeSet;

use tenure_core::{
    context::{ChatMessage, ModelRequest, Transcript, Voice},
    event::{ActorKind, Body, Event},
    ids::{CallId, SessionId},
    message::joined_text,
};

use super::{faults::Faults, record::Record, world::World};

/// Compactions of the policy in one step: what a full window asks for, and what a vendor's refusals ask for.
const IN_VAIN_MAX: u32 = 3;
/// Events that may have come to last after a request was made and before the model was asked.
const LATE_EVENTS_MAX: usize = 16;
/// How much of the newest request the model is sure to see, in the smallest room: its number is in it.
const REQUEST_SEEN: usize = 40;

/// A compaction under way.
#[derive(Debug, Clone, Copy)]
pub struct Compaction {
    blocking: bool,
}

impl Record {
    /// Nothing is left to do.
    pub fn rests(&self) -> bool {
        self.open.is_none() && self.queued.is_empty() && self.compaction.is_none() && self.undoing.is_none()
    }

    /// The open turn waits for a summary.
    pub fn waits_for_summary(&self) -> bool {
        self.open.is_some() && self.compaction.is_some_and(|under_way| under_way.blocking)
    }

    pub(super) fn take_compaction(&mut self, event: &Event, faults: &mut Faults) {
        let (seq, under_way) = (event.seq, self.compaction);
        match &event.body {
            Body::CompactionStarted(started) => {
                let sane = under_way.is_none_or(|under_way| started.blocking && !under_way.blocking);
                // One that a turn before waited for serves the next one's overflow as well.
                let sane = sane || event.actor.kind == ActorKind::Policy;
                faults.need(sane, || format!("event {seq} begins a compaction beside {under_way:?}"));
                if under_way.is_none() && event.actor.kind == ActorKind::Policy {
                    self.compacted_in_vain += 1;
                }
                let often = self.compacted_in_vain;
                faults.need(often <= IN_VAIN_MAX, || format!("event {seq} compacts without end"));
                self.compaction = Some(Compaction { blocking: started.blocking });
            }
            Body::ContextCompacted(compacted) => {
                faults.need(under_way.is_some(), || format!("event {seq} tells of a summary that nobody asked for"));
                let sane = compacted.context_from <= compacted.kept_from && compacted.kept_from <= seq;
                let sane = sane && compacted.tokens_after < compacted.tokens_before;
                faults.need(sane, || format!("event {seq} keeps what is not there: {compacted:?}"));
                self.compaction = None;
            }
            Body::CompactionFailed(failed) => {
                faults.need(under_way.is_some(), || format!("event {seq} fails a compaction that nobody began"));
                if failed.retry_at.is_none() {
                    self.compaction = None;
                }
            }
            _ => {}
        }
    }

    /// Goes on with what the model is to be shown.
    pub(super) fn tell(&mut self, event: &Event) {
        self.told.push(event);
        self.told = supplied(std::mem::take(&mut self.told), &self.events);
        self.newest = taken_in(&self.told, event).or(self.newest.take());
    }

    /// What the model is asked is what the log says, and holds what a model needs to go on.
    pub fn check_request(&self, request: &ModelRequest, faults: &mut Faults) {
        let waits = self.compaction.is_some_and(|under_way| under_way.blocking);
        faults.need(!waits, || format!("{}: the model is asked while its turn waits for a summary", self.id));
        let shows = |told: &Transcript| told.messages().eq(request.messages.iter().map(|message| &**message));
        let Some(events) = self.folds().find_map(|(events, told)| shows(&told).then_some(events)) else {
            let told: Vec<_> = self.told.messages().collect();
            faults.need(false, || {
                format!("{}: the model is asked {:?}, the log says {told:?}", self.id, request.messages)
            });
            return;
        };
        self.begins_with_summary(events, request, faults);
        // A request that was made before the last events came cannot hold what they brought.
        let newest = match events.len() == self.events.len() {
            true => self.newest.clone(),
            false => newest_of(events, &self.events),
        };
        let seen = |newest: &String| request.messages.iter().any(|message| text(message).contains(newest));
        let shown = newest.as_ref().is_none_or(seen);
        faults.need(shown, || format!("{}: the model is not told of {newest:?}", self.id));
        answers_follow(self.id, request, faults);
    }

    /// The conversation as it is now, and as it was before the last events came.
    fn folds(&self) -> impl Iterator<Item = (&[Event], Transcript)> {
        let now = std::iter::once_with(|| (&self.events[..], self.told.clone()));
        let earliest = self.events.len().saturating_sub(LATE_EVENTS_MAX);
        let before = (earliest..self.events.len()).rev().map(|length| {
            let mut told = Transcript::default();
            self.events[..length].iter().for_each(|event| told.push(event));
            (&self.events[..length], supplied(told, &self.events))
        });
        now.chain(before)
    }

    fn begins_with_summary(&self, past: &[Event], request: &ModelRequest, faults: &mut Faults) {
        let summary = past.iter().rev().find_map(|event| match &event.body {
            Body::ContextCompacted(compacted) => Some(&compacted.summary),
            _ => None,
        });
        let Some(summary) = summary else { return };
        let first = request.messages.first().map(|message| text(message)).unwrap_or_default();
        faults.need(first.contains(summary), || format!("{}: a request begins with {first:?}", self.id));
    }
}

/// A conversation with all that it speaks of.
fn supplied(mut told: Transcript, events: &[Event]) -> Transcript {
    let missing: Vec<u64> = told.missing().collect();
    missing.into_iter().for_each(|seq| told.supply(&events[seq as usize - 1]));
    told
}

/// How the message begins that an event brings into the conversation.
fn taken_in(told: &Transcript, event: &Event) -> Option<String> {
    let takes_in = matches!(event.body, Body::TurnStarted(_) | Body::MessageDelivered(_));
    let last = told.entries().last().filter(|entry| takes_in && entry.voice == Voice::Person)?;
    Some(text(&last.message).trim().chars().take(REQUEST_SEEN).collect())
}

/// The same for the last message that an earlier part of the log brings in.
fn newest_of(past: &[Event], events: &[Event]) -> Option<String> {
    let (mut told, mut newest) = (Transcript::default(), None);
    for event in past {
        told.push(event);
        told = supplied(told, events);
        newest = taken_in(&told, event).or(newest);
    }
    newest
}

/// A call is never parted from its result.
fn answers_follow(session: SessionId, request: &ModelRequest, faults: &mut Faults) {
    let mut open: BTreeSet<CallId> = BTreeSet::new();
    for message in &request.messages {
        let fits = match &**message {
            ChatMessage::Tool { call, .. } => open.remove(call),
            ChatMessage::System { .. } | ChatMessage::User { .. } => open.is_empty(),
            ChatMessage::Assistant { calls, .. } => {
                let all_answered = open.is_empty();
                open.extend(calls.iter().map(|call| call.id));
                all_answered
            }
        };
        faults.need(fits, || format!("{session}: a call and its result are parted: {:?}", request.messages));
    }
    faults.need(open.is_empty(), || format!("{session}: calls without a result: {open:?}"));
}

fn text(message: &ChatMessage) -> String {
    match message {
        ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. } => {
            joined_text(parts)
        }
        ChatMessage::Assistant { text, .. } => text.clone(),
    }
}

impl World {
    pub fn summary_starts(&self, session: SessionId) {
        let known = &mut *self.known();
        let under_way = known.summaries.entry(session).or_default();
        *under_way += 1;
        let alone = *under_way == 1;
        known.faults.need(alone, || format!("{session}: a summary beside another one"));
    }

    pub fn summary_ends(&self, session: SessionId) {
        if let Some(under_way) = self.known().summaries.get_mut(&session) {
            *under_way -= 1;
        }
    }
}

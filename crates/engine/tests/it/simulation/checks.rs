//! The invariants of a log, looked at decision by decision in the instant in which it lasts. Written from the specification; only the fold is the core's.

use tenure_core::{
    cursor::Cursor,
    delta::{Delta, Stream},
    event::{ActorKind, Body, Event},
    ids::TurnId,
    message::MessageRef,
    session::KEY_KEPT_MS,
};

use super::{
    faults::Faults,
    record::{Item, KeyUsed, Open, Record},
    work::Running,
};

impl Record {
    /// Takes in one decision.
    pub fn take(&mut self, events: &[Event], running: &[Running], faults: &mut Faults) {
        let (first, last) = (self.head() + 1, self.head() + events.len() as u64);
        let asker = events.iter().find_map(|event| event.actor.id.clone()).unwrap_or_default();
        for event in events {
            self.take_key(event, &asker, faults);
            let tag = event.actor.id.as_ref().filter(|_| event.actor.kind == ActorKind::User);
            if let Some(tag) = tag {
                let before = self.decisions.insert(tag.clone(), (first, last));
                let holds = before.is_none_or(|before| before == (first, last));
                faults.need(holds, || format!("the command {tag} had its effect twice, again at {first}"));
            }
            self.take_event(event, running, faults);
        }
        self.unsure = false;
    }

    fn take_event(&mut self, event: &Event, running: &[Running], faults: &mut Faults) {
        let head = self.head();
        faults.need(event.seq == head + 1, || format!("event {} follows event {head}", event.seq));
        faults.need(event.session_id == self.id, || format!("event {} is of another session", event.seq));
        let last = self.events.last().map_or(event.ts, |last| last.ts);
        faults.need(event.ts >= last, || format!("time runs backwards at event {}", event.seq));
        faults.need(!self.ended, || format!("event {} comes after the session's end", event.seq));
        if let Some(turn) = event.turn_id {
            let settled = self.settled.get(&turn);
            faults.need(settled.is_none(), || format!("event {} is of {turn}, which is settled", event.seq));
        }
        self.take_body(event, running, faults);
        if event.seq > 1 {
            self.state.apply(event);
        }
        self.events.push(event.clone());
        self.tell(event);
        self.items.push(Item { cursor: Cursor::at(event.seq), delta: None, may_be_gone: false });
    }

    /// The key stands on the decision's first event, whoever caused that.
    fn take_key(&mut self, event: &Event, asker: &str, faults: &mut Faults) {
        let Some(used) = &event.key else { return };
        let name = (used.endpoint.clone(), used.key.clone());
        let kept = self.keys.get(&name).filter(|first| first.at.plus_ms(KEY_KEPT_MS) > event.ts);
        faults.need(kept.is_none(), || format!("the key {name:?} was used again at event {}", event.seq));
        let used = KeyUsed { tag: asker.to_owned(), at: event.ts, answer: used.answer.clone() };
        self.keys.insert(name, used);
    }

    fn take_body(&mut self, event: &Event, running: &[Running], faults: &mut Faults) {
        let seq = event.seq;
        match &event.body {
            Body::AttachmentAdded(added) => {
                let new = self.attachments.insert(added.attachment.r#ref.clone());
                faults.need(new, || format!("the same file is attached again at event {seq}"));
            }
            Body::SessionUpdated(updated) => {
                if let Some(policy) = &updated.policy {
                    self.policy = policy.clone();
                }
            }
            Body::SessionForked(_) => {
                faults.need(false, || format!("event {seq} tells of a fork that nobody asked for"))
            }
            Body::EventLost(_) => faults.need(false, || format!("event {seq} was lost")),
            Body::SessionCompleted(_) | Body::SessionCanceled(_) | Body::SessionExpired(_) | Body::SessionFailed(_) => {
                let rests = self.open.is_none() && self.queued.is_empty() && self.undoing.is_none();
                faults.need(rests, || format!("the session ends at event {seq} with turns left"));
                (self.ended, self.compaction) = (true, None);
            }
            Body::MessageAdded(added) => {
                let before = self.messages.insert(added.message_id, seq);
                faults.need(before.is_none(), || format!("event {seq} adds a message again"));
            }
            Body::MessageDelivered(delivered) => {
                let fresh = self.taken.insert(delivered.message_id);
                faults.need(fresh, || format!("event {seq} delivers a message again"));
            }
            Body::TurnQueued(queued) => {
                let turn = turn_of(event, faults);
                self.take_messages(&queued.messages, queued.retry_of.is_some(), seq, faults);
                faults.need(self.queued.insert(turn), || format!("event {seq} queues {turn} again"));
            }
            Body::TurnStarted(started) => {
                let turn = turn_of(event, faults);
                let again = self.queued.remove(&turn) || started.retry_of.is_some();
                self.take_messages(&started.messages, again, seq, faults);
                let open = self.open.as_ref().map(|open| open.id);
                faults.need(open.is_none(), || format!("event {seq} starts {turn} beside {open:?}"));
                faults.need(self.undoing.is_none(), || format!("event {seq} starts {turn} while files are put back"));
                self.open = Some(Open::new(turn));
                self.compacted_in_vain = 0;
            }
            Body::TurnCompleted(_) => self.settle(event, "completed", &[], running, faults),
            Body::TurnFailed(_) => self.settle(event, "failed", &[], running, faults),
            Body::TurnCanceled(canceled) => self.settle(event, "cancelled", &canceled.left, running, faults),
            Body::TurnExpired(_) => self.settle(event, "expired", &[], running, faults),
            Body::BudgetRaised(raised) => {
                self.budgets = raised.budgets.clone();
                if let Some(open) = &mut self.open {
                    (open.paused, open.time_up) = (false, false);
                }
            }
            Body::CompactionStarted(_) | Body::ContextCompacted(_) | Body::CompactionFailed(_) => {
                self.take_compaction(event, faults);
            }
            Body::CheckpointCreated(_)
            | Body::UndoRequested(_)
            | Body::RestoreStarted(_)
            | Body::WorkspaceRestored(_) => {
                self.take_undo(event, faults);
            }
            Body::SessionCreated(_)
            | Body::ContextSeeded(_)
            | Body::ToolsOffered(_)
            | Body::ChildStarted(_)
            | Body::ChildWaiting(_)
            | Body::ChildSettled(_) => {}
            Body::TurnInterrupted(_)
            | Body::TurnResumed(_)
            | Body::CancelRequested(_)
            | Body::BudgetReached(_)
            | Body::ModelOutputCompleted(_)
            | Body::ModelAttemptFailed(_)
            | Body::ToolCallStarted(_)
            | Body::ToolCallCompleted(_)
            | Body::ApprovalRequested(_)
            | Body::ApprovalGranted(_)
            | Body::ApprovalDenied(_)
            | Body::ApprovalExpired(_)
            | Body::ReviewStarted(_)
            | Body::ReviewCompleted(_)
            | Body::ReviewFailed(_) => self.take_step(event, faults),
        }
    }

    /// Every message enters one turn; a retried turn and one that comes out of the queue name theirs again.
    fn take_messages(&mut self, messages: &[MessageRef], again: bool, seq: u64, faults: &mut Faults) {
        for message in messages {
            let known = self.messages.get(&message.id) == Some(&message.seq);
            faults.need(known, || format!("event {seq} takes in a message that is not there: {message:?}"));
            let fresh = self.taken.insert(message.id);
            faults.need(fresh || again, || format!("event {seq} takes in {} for a second turn", message.id));
        }
    }

    fn settle(&mut self, event: &Event, how: &'static str, left: &[String], running: &[Running], faults: &mut Faults) {
        let turn = turn_of(event, faults);
        self.settled.insert(turn, how);
        if self.queued.remove(&turn) {
            faults.need(how == "cancelled", || format!("{turn} was {how} in the queue"));
            return;
        }
        let open = self.open.take().filter(|open| open.id == turn);
        let Some(open) = open else {
            faults.need(false, || format!("{turn} was {how} and was not open"));
            return;
        };
        let stops = matches!(how, "cancelled" | "expired");
        faults.need(open.stopping == stops, || format!("{turn} was {how}, stopping: {}", open.stopping));
        let closed = open.torn || open.shown.values().all(String::is_empty);
        faults.need(closed, || format!("{turn} was {how} with text that nothing closed: {:?}", open.shown));
        for (id, call) in self.calls.iter().filter(|(_, call)| call.turn == turn) {
            faults.need(call.outcome.is_some(), || format!("{turn} was {how} and {id} has no result"));
        }
        for run in running.iter().filter(|run| run.turn == turn) {
            let named = left.iter().any(|named| named.contains(&run.call.to_string()));
            faults.need(named, || format!("{turn} was {how} while {} runs: {}", run.name, run.call));
            self.left.insert(run.call);
        }
    }

    /// Takes in deltas that came to last after the last event.
    pub fn take_deltas(&mut self, turn: TurnId, deltas: &[Delta], ends: &[u64], faults: &mut Faults) {
        let head = self.head();
        let is_open = self.open.as_ref().is_some_and(|open| open.id == turn);
        faults.need(is_open, || format!("something is shown after event {head} of {turn}, which is not open"));
        for (delta, pos) in deltas.iter().zip(ends) {
            faults.need(delta.seq == head, || format!("a delta after event {head} says it follows {}", delta.seq));
            // Behind damage that a power cut left in a spool, only those who watch at that time see what is written.
            let may_be_gone = self.open.as_ref().is_some_and(|open| open.torn);
            self.check_delta(delta, faults);
            let cursor = Cursor { seq: delta.seq, pos: *pos };
            self.items.push(Item { cursor, delta: Some((turn, delta.clone())), may_be_gone });
        }
    }

    fn check_delta(&mut self, delta: &Delta, faults: &mut Faults) {
        let head = self.head();
        let calls = &self.calls;
        let Some(open) = &mut self.open else { return };
        let key = (delta.step, delta.attempt, delta.stream);
        let length = open.lengths.entry(key).or_default();
        faults.need(open.torn || delta.offset == *length, || format!("after event {head}: {length} and {delta:?}"));
        *length = delta.offset + delta.text.len() as u64;
        match delta.stream {
            Stream::Output(id) => {
                let runs = calls.get(&id).is_some_and(|call| call.intents > 0 && call.outcome.is_none());
                faults.need(runs, || format!("after event {head}: {id} shows something and does not run"));
            }
            Stream::Text | Stream::Thinking | Stream::Arguments(_) => {
                let awaited = (delta.step, delta.attempt) == (open.step + 1, open.attempts + 1);
                faults.need(awaited, || format!("after event {head}: not awaited: {delta:?}"));
            }
        }
        if delta.stream == Stream::Text {
            open.shown.entry((delta.step, delta.attempt)).or_default().push_str(&delta.text);
        }
    }
}

impl Open {
    fn new(id: TurnId) -> Open {
        Open {
            id,
            stopping: false,
            stopping_since: 0,
            interrupted: false,
            paused: false,
            time_up: false,
            step: 0,
            attempts: 0,
            order: vec![],
            calls_started: 0,
            resumed_in_a_row: 0,
            shown: Default::default(),
            lengths: Default::default(),
            torn: false,
        }
    }
}

fn turn_of(event: &Event, faults: &mut Faults) -> TurnId {
    let named = event.turn_id;
    faults.need(named.is_some(), || format!("event {} names no turn", event.seq));
    named.unwrap_or(TurnId::new(Default::default()))
}

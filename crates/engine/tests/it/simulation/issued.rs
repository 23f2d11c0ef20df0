//! One command that a client sent, and whether what it was told is what the log says.

use tenure_core::{
    command::{Answer, Command, Refusal, Update},
    event::{Body, Event},
    ids::SessionId,
    session::KEY_KEPT_MS,
    time::Timestamp,
};
use tenure_engine::Error;

use super::{faults::Faults, record::Record, world::World};

#[derive(Debug, Clone)]
pub struct Issued {
    pub tag: String,
    pub session: SessionId,
    pub command: Command,
    pub key: Option<String>,
    pub asked_at: Timestamp,
    /// `None` while it is under way, and for ever if the daemon was killed in the meantime.
    pub answer: Option<Result<Answer, Error>>,
}

impl World {
    pub fn issue(&self, issued: Issued) {
        let mut known = self.known();
        known.sum.commands += 1;
        known.issued.insert(issued.tag.clone(), issued);
    }

    /// A client got its answer: the log must say so by now.
    pub fn answered(&self, tag: &str, answer: Result<Answer, Error>) {
        let known = &mut *self.known();
        let Some(issued) = known.issued.get_mut(tag) else { return };
        issued.answer = Some(answer.clone());
        let issued = issued.clone();
        let Some(record) = known.records.get(&issued.session) else { return };
        let first = issued.key.as_ref().and_then(|key| {
            let used = record.keys.get(&(issued.command.endpoint().to_owned(), key.clone()));
            used.map(|used| (used, known.issued.get(&used.tag).map(|first| &first.command)))
        });
        match &answer {
            Ok(answer) => {
                known.sum.acknowledged += 1;
                match (&issued.key, record.decision(tag)) {
                    (None, Some(decision)) => issued.check_effect(answer, decision, record, &mut known.faults),
                    (None, None) => issued.check_no_effect(answer, record, &mut known.faults),
                    (Some(_), decision) => {
                        if let Some(decision) = decision {
                            issued.check_effect(answer, decision, record, &mut known.faults);
                        }
                        let same = first.is_some_and(|(used, command)| {
                            let kept = used.tag == tag || used.at.plus_ms(KEY_KEPT_MS) > issued.asked_at;
                            used.answer == *answer && command == Some(&issued.command) && kept
                        });
                        known
                            .faults
                            .need(same, || format!("{issued:?} got {answer:?}, which is not what its key says"));
                    }
                }
            }
            Err(Error::Refused(refusal)) => {
                if refusal.code == "key_reused" {
                    let other = first.is_some_and(|(used, command)| {
                        command != Some(&issued.command) && used.at.plus_ms(KEY_KEPT_MS) > issued.asked_at
                    });
                    known.faults.need(other, || format!("{issued:?} was refused for its key"));
                }
                issued.check_refusal(refusal, record, &mut known.faults);
            }
            Err(error) => {
                let fair = matches!(error, Error::Store(tenure_store::Error::Disk { .. }) | Error::Closed);
                known.faults.need(fair, || format!("{issued:?} failed: {error}"));
            }
        }
        let silent = answer.is_ok() || record.decision(tag).is_none();
        known.faults.need(silent, || format!("{issued:?} had its effect and was answered with {answer:?}"));
    }
}

impl Issued {
    /// The one decision it led to does what was asked and what was told.
    fn check_effect(&self, answer: &Answer, decision: &[Event], record: &Record, faults: &mut Faults) {
        let begins = |turn, event: &Event| {
            let starts = matches!(&event.body, Body::TurnStarted(_) | Body::TurnQueued(_));
            starts && event.turn_id == Some(turn)
        };
        let any = |fits: &dyn Fn(&Event) -> bool| decision.iter().any(fits);
        let holds = match (&self.command, answer) {
            (Command::SendMessage { parts, role, .. }, Answer::Message { message_id, turn_id }) => {
                let added = any(&|event| match &event.body {
                    Body::MessageAdded(added) => {
                        let same = added.message_id == *message_id && added.parts == *parts && added.role == *role;
                        // A turn of its own, a turn it steers, or none.
                        same && (turn_id.is_none_or(|turn| any(&|event| begins(turn, event)))
                            || event.turn_id == *turn_id)
                    }
                    _ => false,
                });
                added && decision.iter().filter(|event| matches!(event.body, Body::MessageAdded(_))).count() == 1
            }
            (Command::StartTurn, Answer::Turn { turn_id }) => any(&|event| begins(*turn_id, event)),
            (Command::Retry { turn_id: of }, Answer::Turn { turn_id }) => any(&|event| match &event.body {
                Body::TurnStarted(started) => event.turn_id == Some(*turn_id) && started.retry_of == Some(*of),
                Body::TurnQueued(queued) => event.turn_id == Some(*turn_id) && queued.retry_of == Some(*of),
                _ => false,
            }),
            (Command::Resume { turn_id: of }, Answer::Turn { turn_id }) => {
                of == turn_id && any(&|event| matches!(&event.body, Body::TurnResumed(resumed) if !resumed.automatic))
            }
            (Command::Answer { call, .. }, Answer::Approval { .. }) => {
                self.is_answer(answer) && record.calls.get(call).is_some_and(|call| call.answered.is_some())
            }
            (Command::Cancel { .. }, Answer::Canceling { turn_id }) => {
                any(&|event| {
                    event.turn_id == Some(*turn_id)
                        && matches!(event.body, Body::CancelRequested(_) | Body::TurnCanceled(_))
                }) || self.key.is_some()
            }
            (Command::Update(_), Answer::Updated { seq }) => {
                let last = decision.last().map(|event| event.seq);
                last == Some(*seq) && self.is_updated(decision)
            }
            (Command::Attach { attachment }, Answer::Attached { attachment: told }) => {
                let added =
                    |event: &Event| matches!(&event.body, Body::AttachmentAdded(added) if added.attachment == *told);
                told == attachment && (any(&added) || self.key.is_some())
            }
            (Command::Compact, Answer::Compacting { .. }) => {
                any(&|event| matches!(event.body, Body::CompactionStarted(_))) || self.key.is_some()
            }
            (Command::Undo { turn_id: of }, Answer::Undoing { turn_id, seq }) => {
                of.is_none_or(|of| of == *turn_id)
                    && any(&|event| match &event.body {
                        Body::UndoRequested(undo) => undo.turn_id == *turn_id && event.seq == *seq,
                        _ => false,
                    })
            }
            (Command::End { .. }, Answer::Ended { .. }) => {
                any(&|event| match &event.body {
                    Body::SessionCompleted(_) => true,
                    Body::CancelRequested(request) => request.end_session,
                    _ => false,
                }) || self.key.is_some()
            }
            _ => false,
        };
        faults.need(holds, || format!("{self:?} got {answer:?} and the log says {decision:?}"));
    }

    fn is_answer(&self, answer: &Answer) -> bool {
        let Command::Answer { call, verdict, scope, .. } = &self.command else { return false };
        *answer == Answer::Approval { tool_call_id: *call, verdict: *verdict, scope: *scope }
    }

    fn is_updated(&self, decision: &[Event]) -> bool {
        let Command::Update(update) = &self.command else { return false };
        let Update { title, policy, labels, budgets, .. } = &**update;
        let settings = title.is_none() && policy.is_none() && labels.is_none()
            || decision.iter().any(|event| match &event.body {
                Body::SessionUpdated(updated) => {
                    updated.title == *title && updated.labels == *labels && updated.policy == *policy
                }
                _ => false,
            });
        let raised = decision.iter().find_map(|event| match &event.body {
            Body::BudgetRaised(raised) => Some(&raised.budgets),
            _ => None,
        });
        settings && raised.is_none_or(|raised| budgets.as_ref() == Some(raised))
    }

    /// Taken, and nothing was left to do for it.
    fn check_no_effect(&self, answer: &Answer, record: &Record, faults: &mut Faults) {
        let holds = match (&self.command, answer) {
            (Command::Cancel { .. }, Answer::Canceling { turn_id }) => {
                let stopping = record.open.as_ref().is_some_and(|open| open.id == *turn_id && open.stopping);
                stopping || record.settled.contains_key(turn_id)
            }
            (Command::Update(update), Answer::Updated { .. }) => {
                update.title.is_none() && update.policy.is_none() && update.labels.is_none()
            }
            (Command::Attach { attachment }, Answer::Attached { attachment: told }) => told == attachment,
            // One was under way then; it may be over by now.
            (Command::Compact, Answer::Compacting { seq }) => {
                let begun = |event: &tenure_core::event::Event| matches!(event.body, Body::CompactionStarted(_));
                record.events.iter().take(*seq as usize).any(begun)
            }
            (Command::End { .. }, Answer::Ended { status }) => status == "canceled",
            _ => false,
        };
        faults.need(holds, || format!("{self:?} got {answer:?} and the log says nothing of it"));
    }

    fn check_refusal(&self, refusal: &Refusal, record: &Record, faults: &mut Faults) {
        let common = ["key_reused", "session_ended"];
        let codes: &[&str] = match &self.command {
            Command::SendMessage { .. } => {
                &["queue_full", "bad_role", "empty_message", "unsupported_part", "unknown_attachment"]
            }
            Command::StartTurn => &["nothing_to_send", "queue_full"],
            Command::Answer { .. } => &["already_answered", "unknown_call", "not_waiting"],
            Command::Cancel { .. } => &["no_open_turn", "turn_settled", "unknown_turn"],
            Command::Retry { .. } => &["turn_completed", "turn_open", "unknown_turn", "queue_full"],
            Command::Resume { .. } => &["not_interrupted", "unknown_turn"],
            Command::Update(_) => &["version_mismatch", "budget_lowered", "unsupported_policy"],
            Command::Attach { .. } => &["attachments_full", "attachment_exists"],
            Command::Undo { .. } => {
                &["turn_open", "undo_running", "no_checkpoint", "unknown_turn", "already_undone", "later_changes"]
            }
            Command::End { .. } => &["undo_running"],
            Command::Compact => &[],
        };
        let fair = common.contains(&refusal.code) || codes.contains(&refusal.code);
        faults.need(fair, || format!("{self:?} was refused with {refusal:?}"));
        if refusal.code != "already_answered" {
            return;
        }
        let Command::Answer { call, .. } = &self.command else { return };
        let first = record.calls.get(call).and_then(|call| call.answered);
        let told =
            first.map(|(verdict, scope, seq)| serde_json::json!({ "verdict": verdict, "scope": scope, "seq": seq }));
        let same = told.as_ref() == Some(&refusal.detail);
        faults.need(same, || format!("{self:?} lost against {first:?} and was told {:?}", refusal.detail));
    }
}

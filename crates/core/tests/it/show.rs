//! Events, effects and answers as short lines: the wire name and the data that matters.

use serde::Serialize;
use tenure_core::{
    budget::Breach,
    command::Answer,
    event::{ActorKind, Body, Event},
    ids::{MessageId, TurnId},
    message::{MessageRef, joined_text},
    session::{Decision, Effect},
    time::Timestamp,
};

use crate::world::{World, call_name};

/// A word as the wire spells it.
pub fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value).unwrap() {
        serde_json::Value::String(word) => word,
        other => other.to_string(),
    }
}

impl World {
    pub fn show_decision(&self, decision: &Decision) -> Vec<String> {
        decision.events.iter().map(|event| self.show_event(event)).collect()
    }

    pub fn show_wanted(&self) -> Vec<String> {
        self.session.wanted().iter().map(|effect| self.show_effect(effect)).collect()
    }

    fn show_turn(&self, id: TurnId) -> String {
        match self.turns.iter().position(|turn| *turn == id) {
            Some(index) => format!("t{}", index + 1),
            None => "t?".into(),
        }
    }

    fn show_message(&self, id: MessageId) -> String {
        match self.messages.iter().position(|message| *message == id) {
            Some(index) => format!("m{}", index + 1),
            None => "m?".into(),
        }
    }

    fn show_messages(&self, messages: &[MessageRef]) -> String {
        let all: Vec<String> = messages.iter().map(|message| self.show_message(message.id)).collect();
        all.join(",")
    }

    fn show_retry(&self, retry_of: Option<TurnId>) -> String {
        retry_of.map_or(String::new(), |turn| format!(" retry_of {}", self.show_turn(turn)))
    }

    pub fn show_event(&self, event: &Event) -> String {
        let turn = event.turn_id.map_or("-".to_owned(), |turn| self.show_turn(turn));
        let rest = match &event.body {
            Body::SessionCreated(_) | Body::ContextSeeded(_) | Body::ToolsOffered(_) => String::new(),
            Body::CompactionStarted(data) => {
                format!("{}{}", word(&data.trigger), if data.blocking { " blocking" } else { "" })
            }
            Body::ContextCompacted(data) => format!("{} from {}", word(&data.trigger), data.kept_from),
            Body::CompactionFailed(data) => {
                let retry = data.retry_at.map_or(String::new(), |at| format!(" retry {}", after(event.ts, at)));
                format!("{}{retry}", word(&data.reason.kind))
            }
            Body::AttachmentAdded(data) => data.attachment.r#ref.clone(),
            Body::SessionUpdated(data) => {
                let title = data.title.as_deref().map(|title| format!("title {title}"));
                let policy = data.policy.as_ref().map(|_| "policy".to_owned());
                let labels = data.labels.as_ref().map(|labels| format!("labels {}", labels.join(",")));
                [title, policy, labels].into_iter().flatten().collect::<Vec<_>>().join(" ")
            }
            Body::SessionForked(data) => format!("at {}", data.at_seq),
            Body::EventLost(data) => data.reason.clone(),
            Body::SessionCompleted(_) | Body::SessionCanceled(_) => String::new(),
            Body::SessionFailed(data) => data.code.clone(),
            Body::SessionExpired(data) => format!("idle {}", data.idle_ms),
            Body::MessageAdded(data) => format!("{} {turn}", self.show_message(data.message_id)),
            Body::MessageDelivered(data) => format!("{} step {}", self.show_message(data.message_id), data.step),
            Body::TurnQueued(data) => {
                format!("{turn} {}{}", self.show_messages(&data.messages), self.show_retry(data.retry_of))
            }
            Body::TurnStarted(data) => {
                format!("{turn} {}{}", self.show_messages(&data.messages), self.show_retry(data.retry_of))
            }
            Body::TurnCompleted(data) => format!("{turn} {}", word(&data.verification)),
            Body::TurnFailed(data) => format!("{turn} {}", data.code),
            Body::TurnCanceled(data) if data.left.is_empty() => turn,
            Body::TurnCanceled(data) => format!("{turn} left {}", data.left.join(",")),
            Body::TurnExpired(data) => format!("{turn} {}", show_breach(&data.reached)),
            Body::TurnInterrupted(data) => {
                let classed = |call: &tenure_core::event::ClassedCall| {
                    format!(" {}={}", call_name(call.tool_call_id), word(&call.class))
                };
                format!("{turn}{}", data.calls.iter().map(classed).collect::<String>())
            }
            Body::TurnResumed(data) => format!("{turn} {}", if data.automatic { "automatic" } else { "asked" }),
            Body::CancelRequested(data) => format!("{turn}{}", if data.end_session { " and end" } else { "" }),
            Body::ModelOutputCompleted(data) => {
                let calls: String = data.tool_calls.iter().map(|call| format!(" {}", call_name(call.id))).collect();
                format!("{}.{}{calls}", data.step, data.attempt)
            }
            Body::ModelAttemptFailed(data) => {
                let retry = data.retry_at.map_or(String::new(), |at| format!(" retry {}", after(event.ts, at)));
                let text = if data.text.is_empty() { String::new() } else { format!(" '{}'", data.text) };
                format!("{}.{} {}{text}{retry}", data.step, data.attempt, word(&data.reason.kind))
            }
            Body::ToolCallStarted(data) => format!("{} run {}", call_name(data.tool_call_id), data.run),
            Body::ToolCallCompleted(data) => {
                let how = if data.result.ok { "ok" } else { "failed" };
                format!("{} {} {how}", call_name(data.tool_call_id), word(&data.outcome))
            }
            Body::ApprovalRequested(data) => {
                let expires = data.expires_at.map_or(String::new(), |at| format!(" expires {}", after(event.ts, at)));
                format!("{}{expires}", call_name(data.tool_call_id))
            }
            Body::ApprovalGranted(data) => {
                format!("{} {}{}", call_name(data.tool_call_id), word(&data.scope), by_policy(event))
            }
            Body::ApprovalDenied(data) => {
                format!("{} {}{}", call_name(data.tool_call_id), word(&data.scope), by_policy(event))
            }
            Body::ApprovalExpired(data) => call_name(data.tool_call_id),
            Body::ReviewStarted(data) => call_name(data.tool_call_id),
            Body::ReviewCompleted(data) => format!("{} {}", call_name(data.tool_call_id), word(&data.verdict)),
            Body::ReviewFailed(data) => {
                let retry = data.retry_at.map_or(String::new(), |at| format!(" retry {}", after(event.ts, at)));
                format!("{}.{} {}{retry}", call_name(data.tool_call_id), data.attempt, word(&data.reason.kind))
            }
            Body::BudgetReached(data) => show_breach(&data.reached),
            Body::BudgetRaised(_) => String::new(),
            Body::ChildStarted(_) | Body::ChildWaiting(_) | Body::ChildSettled(_) => String::new(),
            Body::CheckpointCreated(data) => {
                let paths: Vec<&str> = data.files.iter().map(|file| file.path.as_str()).collect();
                format!("{turn} {}", paths.join(","))
            }
            Body::UndoRequested(data) => format!("{} at {}", self.show_turn(data.turn_id), data.checkpoint_seq),
            Body::RestoreStarted(data) => self.show_turn(data.turn_id),
            Body::WorkspaceRestored(data) => {
                let refused: Vec<&str> = data.refused.iter().map(|file| file.path.as_str()).collect();
                let paths = data.restored.iter().map(String::as_str).chain(refused).collect::<Vec<_>>().join(",");
                format!("{} {} {paths}", self.show_turn(data.turn_id), word(&data.outcome))
            }
        };
        format!("{} {rest}", event.body.wire_type()).trim_end().to_owned()
    }

    fn show_effect(&self, effect: &Effect) -> String {
        match effect {
            Effect::CallModel { step, attempt, not_before, .. } => {
                let wait = not_before.map_or(String::new(), |at| format!(" {}", after(self.now(), at)));
                format!("CallModel {step}.{attempt}{wait}")
            }
            Effect::Compact { attempt, not_before } => {
                let wait = not_before.map_or(String::new(), |at| format!(" {}", after(self.now(), at)));
                format!("Compact {attempt}{wait}")
            }
            Effect::PrepareTool { call, .. } => format!("PrepareTool {}", call_name(*call)),
            Effect::ReviewChange { call, attempt, not_before, .. } => {
                let wait = not_before.map_or(String::new(), |at| format!(" {}", after(self.now(), at)));
                format!("ReviewChange {}.{attempt}{wait}", call_name(*call))
            }
            Effect::RunTool { call, run, .. } => format!("RunTool {} run {run}", call_name(*call)),
            Effect::TimeUp { at, .. } => format!("TimeUp {}", after(self.now(), *at)),
            Effect::Wake { call, at } => format!("Wake {} {}", call_name(*call), after(self.now(), *at)),
            Effect::ReportGone { turn } => format!("ReportGone {}", self.show_turn(*turn)),
            Effect::PrepareRestore { undo } => format!("PrepareRestore {undo}"),
            Effect::RestoreWorkspace { undo } => format!("RestoreWorkspace {undo}"),
        }
    }

    pub fn show_answer(&self, answer: &Answer) -> String {
        match answer {
            Answer::Message { message_id, turn_id } => {
                let turn = turn_id.map_or("-".to_owned(), |turn| self.show_turn(turn));
                format!("message {} {turn}", self.show_message(*message_id))
            }
            Answer::Turn { turn_id } => format!("turn {}", self.show_turn(*turn_id)),
            Answer::Approval { tool_call_id, verdict, scope } => {
                format!("approval {} {} {}", call_name(*tool_call_id), word(verdict), word(scope))
            }
            Answer::Canceling { turn_id } => format!("canceling {}", self.show_turn(*turn_id)),
            Answer::Updated { seq } => format!("updated {seq}"),
            Answer::Attached { attachment } => format!("attached {}", attachment.r#ref),
            Answer::Undoing { turn_id, seq } => format!("undoing {} {seq}", self.show_turn(*turn_id)),
            Answer::Compacting { seq } => format!("compacting {seq}"),
            Answer::Ended { status } => format!("ended {status}"),
        }
    }

    /// The results that the log holds for one call.
    pub fn results_of(&self, name: &str) -> Vec<String> {
        let done = self.events.iter().filter_map(|event| match &event.body {
            Body::ToolCallCompleted(done) if call_name(done.tool_call_id) == name => Some(done),
            _ => None,
        });
        done.map(|done| joined_text(&done.result.parts)).collect()
    }
}

fn show_breach(breach: &Breach) -> String {
    format!("{} {} of {}", word(&breach.budget), breach.used, breach.limit)
}

fn by_policy(event: &Event) -> &'static str {
    if event.actor.kind == ActorKind::Policy { " by policy" } else { "" }
}

fn after(from: Timestamp, to: Timestamp) -> String {
    format!("{:+}", i128::from(to.ms()) - i128::from(from.ms()))
}

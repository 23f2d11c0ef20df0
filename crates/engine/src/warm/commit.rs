//! One decision: judged, written, applied, shown.

use std::sync::Arc;

use bytes::Bytes;
use tenure_core::{
    command::{Answer, Command, Input, Refusal},
    cursor::Cursor,
    event::{Actor, Body, Event},
    message::Part,
    policy::{Rule, RuleAction, Scope},
    session::{Decision, Session},
};

use super::{Disk, Warm};
use crate::{Error, StreamItem, redaction::redacted};

impl Warm {
    pub(super) async fn command(
        &mut self,
        mut command: Command,
        key: Option<String>,
        actor: Actor,
    ) -> Result<Answer, Error> {
        self.check_parts(&command)?;
        self.redact(&mut command);
        let key = key.map(|key| self.shared.parts.secrets.redact(&key).into_owned());
        let input = Input::Command { command, actor, key };
        let answer = match self.closed_for_writing() {
            Some(error) => self.known_answer(input).ok_or(error)?,
            None => self.commit(input).await.inspect_err(|error| self.command_refused(error))?,
        };
        answer.ok_or_else(|| Error::Bug("a command without an answer".into()))
    }

    /// The answer of a command that needs nothing written, such as one that was answered before.
    fn known_answer(&self, input: Input) -> Option<Option<Answer>> {
        let decision = self.state.decide(input, &mut self.shared.parts.clock.moment()).ok()?;
        decision.events.is_empty().then_some(decision.answer)
    }

    /// While something waits for the disk nothing may overtake it.
    fn closed_for_writing(&self) -> Option<Error> {
        let closed = !self.recovered || (self.disk != Disk::Fine && !self.held.is_empty());
        closed.then(|| {
            let (what, why) = ("earlier events of this session", "they are being retried");
            Error::Store(tenure_store::Error::Disk {
                asked: tenure_store::Asked::Write,
                what: what.into(),
                why: why.into(),
            })
        })
    }

    fn check_parts(&self, command: &Command) -> Result<(), Error> {
        let Command::SendMessage { parts, .. } = command else { return Ok(()) };
        let name = &self.state.settings.model;
        let is_text = |part: &Part| matches!(part, Part::Text { .. });
        // Where only a key is missing nobody knows yet; the turn says so.
        let Some(model) = parts.iter().any(|part| !is_text(part)).then(|| self.shared.parts.models.resolve(name))
        else {
            return Ok(());
        };
        let Ok(model) = model else { return Ok(()) };
        let Some(other) = parts.iter().find(|part| !is_text(part) && !model.takes(part)) else { return Ok(()) };
        let message = format!("the model {name} cannot take {}", other.described());
        Err(Refusal::new("unsupported_part", message, "send it as text, or choose another model").into())
    }

    /// Known secrets never reach the log.
    fn redact(&self, command: &mut Command) {
        let secrets = &self.shared.parts.secrets;
        let clean = |text: &mut String| *text = secrets.redact(text).into_owned();
        match command {
            Command::SendMessage { parts, .. } => {
                for part in parts {
                    if let Part::Text { text } = part {
                        clean(text);
                    }
                }
            }
            Command::Answer { reason, .. } | Command::Cancel { reason, .. } | Command::End { reason } => {
                reason.iter_mut().for_each(clean);
            }
            // Where to act and whom to ask must stay as they were named.
            Command::Update(update) => {
                update.title.iter_mut().chain(update.labels.iter_mut().flatten()).for_each(clean);
                update.policy.iter_mut().for_each(|policy| *policy = redacted(secrets, policy));
            }
            // A name that was made of a secret would not be found under another one: it is made without it.
            Command::Compact
            | Command::Undo { .. }
            | Command::Attach { .. }
            | Command::StartTurn
            | Command::Retry { .. }
            | Command::Resume { .. } => {}
        }
    }

    /// Judges an input and makes what follows last before anybody sees it.
    pub(super) async fn commit(&mut self, input: Input) -> Result<Option<Answer>, Error> {
        let mut moment = self.shared.parts.clock.moment();
        let decision = self.state.decide(input, &mut moment)?;
        if decision.events.is_empty() {
            return Ok(decision.answer);
        }
        let store = self.shared.parts.store.clone();
        match store.append(self.id, self.epoch, self.state.seq, &decision.events).await {
            Ok(head) => self.head = head,
            Err(error) => {
                let error = error.into();
                self.lose(&error);
                return Err(error);
            }
        }
        self.disk_took();
        Ok(self.adopt(decision))
    }

    fn adopt(&mut self, decision: Decision) -> Option<Answer> {
        let Decision { events, state, answer } = decision;
        for event in &events {
            if let Some(transcript) = &mut self.transcript {
                transcript.push(event);
            }
            self.shared.happened(event);
            self.note_record(event);
            self.note_standing(event);
        }
        let open = |state: &Session| state.turn.as_ref().map(|turn| turn.id);
        if open(&self.state) != open(&state) {
            // Another turn's streams begin at nothing, and its work is its own.
            self.shown.clear();
            self.left.clear();
            self.took.clear();
            self.cut_model = None;
            self.bill = None;
            self.stopping_since = None;
        }
        self.state = Arc::new(state);
        self.state_out.send_replace(self.state.clone());
        self.note_turn();
        if self.hub.is_watched() {
            events.iter().for_each(|event| self.show_event(event));
        }
        answer
    }

    fn show_event(&self, event: &Event) {
        let Ok(json) = serde_json::to_vec(event) else { return };
        let wire_type = event.body.wire_type().into();
        self.hub.show(StreamItem { cursor: Cursor::at(event.seq), wire_type, json: Bytes::from(json) });
    }

    /// An answer for always becomes a rule of every new session.
    fn note_standing(&self, event: &Event) {
        let (call, action) = match &event.body {
            Body::ApprovalGranted(granted) if granted.scope == Scope::Always => {
                (granted.tool_call_id, RuleAction::Allow)
            }
            Body::ApprovalDenied(denied) if denied.scope == Scope::Always => (denied.tool_call_id, RuleAction::Deny),
            _ => return,
        };
        let Some(call) = self.state.turn.as_ref().and_then(|turn| turn.call(call)) else { return };
        let (tool, exact) = (call.call.name.clone(), Some(call.call.subject.clone()));
        self.shared.parts.standing.add(Rule { tool, exact, pattern: None, action });
    }
}

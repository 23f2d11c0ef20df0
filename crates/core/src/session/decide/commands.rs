//! Commands from people: each is taken as a whole or refused as a whole.

use serde_json::json;

use super::{Draft, check_policy, unknown_turn};
use crate::{
    budget::{BudgetKind, Budgets},
    command::{Answer, Command, Refusal, Update, Verdict},
    event::{
        Actor, ApprovalDenied, ApprovalGranted, AttachmentAdded, BudgetRaised, CancelRequested, MessageAdded,
        SessionCompleted, SessionUpdated, TurnCanceled, TurnFailed, TurnQueued, TurnResumed, TurnStarted,
    },
    ids::{CallId, TurnId},
    message::{Attachment, Delivery, MessageRef, Part, Role},
    policy::Scope,
    session::{ATTACHMENTS_MAX, CallState, Life, Phase, QUEUE_MAX, Stop, TurnStatus, UNSENT_MAX},
    tool::Outcome,
};

impl Draft<'_> {
    pub(super) fn command(&mut self, command: Command, actor: Actor) -> Result<Answer, Refusal> {
        if self.state.life != Life::Open {
            let status = self.state.status();
            let hint = "go on in a fork of it (`tenure session fork`), or create a new session";
            return Err(Refusal::new("session_ended", format!("this session is {status}"), hint));
        }
        if let Some(turn) = &self.state.turn
            && let Phase::Stopping(Stop::Cancel { end_session: true, .. }) = turn.phase
        {
            return match command {
                // What was asked for is under way already.
                Command::Cancel { .. } => Ok(Answer::Canceling { turn_id: turn.id }),
                Command::End { .. } => Ok(Answer::Ended { status: "canceled".into() }),
                _ => Err(Refusal::new("session_ended", "this session is being ended", "create a new session")),
            };
        }
        match command {
            Command::SendMessage { role, parts, delivery, auto_run } => {
                self.send_message(role, parts, delivery, auto_run, actor)
            }
            Command::StartTurn => self.start_unsent(actor),
            Command::Answer { turn_id, call, verdict, scope, reason } => {
                self.answer_approval(turn_id, call, verdict, scope, reason, actor)
            }
            Command::Cancel { turn_id, reason } => self.cancel(turn_id, reason, actor),
            Command::Retry { turn_id } => self.retry(turn_id, actor),
            Command::Resume { turn_id } => self.resume(turn_id, actor),
            Command::Update(update) => self.update(*update, actor),
            Command::Attach { attachment } => self.attach(attachment, actor),
            Command::Compact => Ok(self.compact_asked(actor)),
            Command::Undo { turn_id } => self.undo(turn_id, actor),
            Command::End { reason } => self.end(reason, actor),
        }
    }

    fn send_message(
        &mut self,
        role: Role,
        parts: Vec<Part>,
        delivery: Delivery,
        auto_run: Option<bool>,
        actor: Actor,
    ) -> Result<Answer, Refusal> {
        if !matches!(role, Role::User | Role::System) {
            return Err(Refusal::new("bad_role", "a message's role is 'user' or 'system'", "use role 'user'"));
        }
        if parts.is_empty() {
            return Err(Refusal::new("empty_message", "a message needs at least one part", "add a text part"));
        }
        let known = |name: &str| self.state.attachments.iter().any(|known| known.r#ref == name);
        if let Some(name) = parts.iter().filter_map(Part::attachment).find(|name| !known(name)) {
            let message = format!("this session has no attachment '{name}'");
            return Err(Refusal::new("unknown_attachment", message, "upload it first, and use the ref you get"));
        }
        let message_id = self.moment.message_id();
        let auto_run = auto_run.unwrap_or(self.state.settings.auto_run);
        let steered = match (&self.state.turn, delivery) {
            (Some(turn), Delivery::Steer) if matches!(turn.phase, Phase::Going | Phase::Budget(_)) => Some(turn.id),
            _ => None,
        };
        let added = |auto_run| MessageAdded { message_id, role, parts, delivery, auto_run };
        if let Some(turn_id) = steered {
            let waiting = self.state.turn.as_ref().map_or(0, |turn| turn.steers.len());
            check_room(waiting, UNSENT_MAX)?;
            self.emit(actor, Some(turn_id), added(true));
            self.steer_waiting_request();
            return Ok(Answer::Message { message_id, turn_id: Some(turn_id) });
        }
        if !auto_run {
            check_room(self.state.unsent.len(), UNSENT_MAX)?;
            self.emit(actor, None, added(false));
            return Ok(Answer::Message { message_id, turn_id: None });
        }
        self.check_queue()?;
        let turn_id = self.moment.turn_id();
        self.emit(actor.clone(), Some(turn_id), added(true));
        let message = MessageRef { id: message_id, seq: self.state.seq };
        self.supersede();
        // Read after an interrupted turn gave way: the steering messages it left are among them.
        let mut messages = self.state.unsent.clone();
        messages.push(message);
        self.begin_turn(turn_id, messages, None, actor);
        Ok(Answer::Message { message_id, turn_id: Some(turn_id) })
    }

    /// The same file again is the same attachment.
    fn attach(&mut self, attachment: Attachment, actor: Actor) -> Result<Answer, Refusal> {
        let known = self.state.attachments.iter().find(|known| known.r#ref == attachment.r#ref);
        if let Some(known) = known {
            if *known != attachment {
                let message = format!("'{}' is attached already, as {}", known.r#ref, known.mime_type);
                return Err(Refusal::new(
                    "attachment_exists",
                    message,
                    "use it as it is, or give the file another name",
                ));
            }
            return Ok(Answer::Attached { attachment });
        }
        if self.state.attachments.len() >= ATTACHMENTS_MAX {
            let message = format!("this session has {ATTACHMENTS_MAX} attachments already");
            return Err(Refusal::new("attachments_full", message, "go on in a new session"));
        }
        self.emit(actor, None, AttachmentAdded { attachment: attachment.clone() });
        Ok(Answer::Attached { attachment })
    }

    /// While the next attempt waits for its time its request is not built yet: what steers it goes along.
    fn steer_waiting_request(&mut self) {
        let now = self.moment.at;
        let waits = self
            .state
            .turn
            .as_ref()
            .is_some_and(|turn| turn.awaits_model() && turn.attempts.not_before.is_some_and(|at| at > now));
        if waits {
            self.deliver_steers();
        }
    }

    fn check_queue(&self) -> Result<(), Refusal> {
        let waits = self.state.turn.as_ref().is_some_and(|turn| turn.phase != Phase::Interrupted)
            || self.state.restoring.is_some();
        if waits { check_room(self.state.queue.len(), QUEUE_MAX) } else { Ok(()) }
    }

    fn start_unsent(&mut self, actor: Actor) -> Result<Answer, Refusal> {
        if self.state.unsent.is_empty() {
            return Err(Refusal::new("nothing_to_send", "no message waits for a turn", "send a message first"));
        }
        self.check_queue()?;
        let turn_id = self.moment.turn_id();
        self.supersede();
        let messages = self.state.unsent.clone();
        self.begin_turn(turn_id, messages, None, actor);
        Ok(Answer::Turn { turn_id })
    }

    /// Starts a turn now, or behind the open one. While files are put back nothing else may touch them.
    fn begin_turn(&mut self, id: TurnId, messages: Vec<MessageRef>, retry_of: Option<TurnId>, actor: Actor) {
        if self.state.turn.is_some() || self.state.restoring.is_some() {
            self.emit(actor, Some(id), TurnQueued { messages, retry_of });
            return;
        }
        let model = self.state.settings.model.clone();
        self.emit(actor, Some(id), TurnStarted { messages, retry_of, model });
        self.go_on();
    }

    /// An interrupted turn gives way to a new one.
    fn supersede(&mut self) {
        if self.state.turn.as_ref().is_some_and(|turn| turn.phase == Phase::Interrupted) {
            self.close_calls("the turn gave way to a new one", &[]);
            self.fail_turn(Actor::SYSTEM, "superseded", "a new turn was started while this one was interrupted");
        }
    }

    pub(super) fn fail_turn(&mut self, actor: Actor, code: &str, message: &str) {
        let Some(turn) = &self.state.turn else { return };
        let (spent, cost_micro_usd) = (turn.spent, turn.spent.cost());
        self.checkpoint();
        self.emit_in_turn(actor, TurnFailed { code: code.into(), message: message.into(), spent, cost_micro_usd });
        self.start_queued();
    }

    fn answer_approval(
        &mut self,
        turn_id: Option<TurnId>,
        id: CallId,
        verdict: Verdict,
        scope: Scope,
        reason: Option<String>,
        actor: Actor,
    ) -> Result<Answer, Refusal> {
        if let Some(first) = self.state.answered.iter().find(|answered| answered.call == id) {
            let detail = json!({ "verdict": first.verdict, "scope": first.scope, "seq": first.seq });
            let message = "this approval was answered already";
            return Err(Refusal::new("already_answered", message, "nothing is left to do").with(detail));
        }
        let turn = self.state.turn.as_ref().filter(|turn| turn_id.is_none_or(|id| id == turn.id));
        let call = turn.and_then(|turn| turn.call(id)).ok_or_else(|| {
            let message = format!("no open turn of this session has a call {id}");
            Refusal::new("unknown_call", message, "look at the session's pending approvals")
        })?;
        let waiting = matches!(call.state, CallState::Waiting { .. });
        let stopping = turn.is_some_and(|turn| matches!(turn.phase, Phase::Stopping(_)));
        if !waiting || stopping {
            return Err(Refusal::new(
                "not_waiting",
                "this call does not wait for an approval",
                "nothing is left to do",
            ));
        }
        let (name, subject) = (call.call.name.clone(), call.call.subject.clone());
        match verdict {
            Verdict::Approve => {
                self.emit_in_turn(actor, ApprovalGranted { tool_call_id: id, name: name.clone(), scope, reason });
                if scope != Scope::Once {
                    self.grant_alike(&name, &subject);
                }
            }
            Verdict::Deny => {
                let why = match &reason {
                    Some(reason) => format!("denied by the user: {reason}"),
                    None => "denied by the user".to_owned(),
                };
                self.emit_in_turn(actor, ApprovalDenied { tool_call_id: id, name, scope, reason });
                self.end_unrun(id, Outcome::NotRun, &why);
            }
        }
        self.go_on();
        Ok(Answer::Approval { tool_call_id: id, verdict, scope })
    }

    /// A lasting yes also answers the same call where it waits already.
    fn grant_alike(&mut self, name: &str, subject: &str) {
        let calls = self.state.turn.iter().flat_map(|turn| &turn.calls);
        let alike = calls.filter(|call| {
            matches!(call.state, CallState::Waiting { .. }) && call.call.name == name && call.call.subject == subject
        });
        let ids: Vec<CallId> = alike.map(|call| call.call.id).collect();
        for tool_call_id in ids {
            let name = name.to_owned();
            let reason = Some("the same call was approved for the session".to_owned());
            self.emit_in_turn(Actor::POLICY, ApprovalGranted { tool_call_id, name, scope: Scope::Once, reason });
        }
    }

    fn cancel(&mut self, turn_id: Option<TurnId>, reason: Option<String>, actor: Actor) -> Result<Answer, Refusal> {
        let open = self.state.turn.as_ref().map(|turn| turn.id);
        let Some(id) = turn_id.or(open) else {
            return Err(Refusal::new("no_open_turn", "no turn is open in this session", "nothing is left to cancel"));
        };
        if Some(id) == open {
            let stopping = self.state.turn.as_ref().is_some_and(|turn| matches!(turn.phase, Phase::Stopping(_)));
            if !stopping {
                self.emit_in_turn(actor, CancelRequested { reason, end_session: false });
            }
            return Ok(Answer::Canceling { turn_id: id });
        }
        match self.state.turn_status(id) {
            Some(TurnStatus::Pending) => {
                self.cancel_queued(id, reason, actor);
                Ok(Answer::Canceling { turn_id: id })
            }
            Some(_) => Err(Refusal::new("turn_settled", "this turn has come to its end", "nothing is left to cancel")),
            None => Err(unknown_turn(id)),
        }
    }

    pub(super) fn cancel_queued(&mut self, id: TurnId, reason: Option<String>, actor: Actor) {
        let canceled = TurnCanceled { reason, left: Vec::new(), spent: Default::default(), cost_micro_usd: Some(0) };
        self.emit(actor, Some(id), canceled);
    }

    fn retry(&mut self, id: TurnId, actor: Actor) -> Result<Answer, Refusal> {
        let open = self.state.turn.as_ref().filter(|turn| turn.id == id);
        let messages = match (open, self.state.settled.iter().find(|turn| turn.id == id)) {
            (Some(turn), _) if turn.phase == Phase::Interrupted => turn.messages.clone(),
            (_, Some(turn)) if turn.status != TurnStatus::Completed => turn.messages.clone(),
            (_, Some(_)) => {
                let message = "this turn was completed; only failed, canceled, expired or interrupted ones are retried";
                return Err(Refusal::new("turn_completed", message, "send a new message instead"));
            }
            (Some(_), None) => {
                return Err(Refusal::new("turn_open", "this turn is still open", "cancel it first, or wait for it"));
            }
            (None, None) if self.state.turn_status(id).is_some() => {
                return Err(Refusal::new(
                    "turn_open",
                    "this turn waits in the queue",
                    "cancel it first, or wait for it",
                ));
            }
            (None, None) => return Err(unknown_turn(id)),
        };
        self.check_queue()?;
        let turn_id = self.moment.turn_id();
        self.supersede();
        self.begin_turn(turn_id, messages, Some(id), actor);
        Ok(Answer::Turn { turn_id })
    }

    fn resume(&mut self, id: TurnId, actor: Actor) -> Result<Answer, Refusal> {
        let open = self.state.turn.as_ref().filter(|turn| turn.id == id);
        match open.map(|turn| &turn.phase) {
            Some(Phase::Interrupted) => {
                self.emit_in_turn(actor, TurnResumed { automatic: false });
                self.go_on();
                Ok(Answer::Turn { turn_id: id })
            }
            Some(_) => Err(Refusal::new("not_interrupted", "this turn is not interrupted", "wait for it")),
            None if self.state.turn_status(id).is_some() => {
                Err(Refusal::new("not_interrupted", "this turn is not interrupted", "retry it to run it again"))
            }
            None => Err(unknown_turn(id)),
        }
    }

    fn update(&mut self, update: Update, actor: Actor) -> Result<Answer, Refusal> {
        let Update { title, policy, labels, model, workspace_path, budgets, if_match, said: _ } = update;
        let updated = SessionUpdated { title, policy, labels, model, workspace_path };
        if let Some(seen) = if_match.filter(|seen| *seen != self.state.seq) {
            let message = format!("the session is at event {}, not at {seen}", self.state.seq);
            return Err(Refusal::new("version_mismatch", message, "read the session again"));
        }
        if let Some(policy) = &updated.policy {
            check_policy(policy)?;
        }
        if let Some(budgets) = &budgets {
            self.state.budgets.check_raise(budgets)?;
        }
        if (updated.model.is_some() || updated.workspace_path.is_some()) && self.state.turn.is_some() {
            let message = "the model and the workspace stay as they are while a turn is open";
            return Err(Refusal::new("turn_open", message, "cancel it first, or wait for it"));
        }
        if updated.workspace_path.is_some() {
            self.check_not_restoring()?;
        }
        if updated != SessionUpdated::default() {
            let judged_anew = updated.policy.is_some();
            self.emit(actor.clone(), None, updated);
            // A call that the old policy let start may need a yes now. A model call under way is left alone.
            if judged_anew && self.state.turn.as_ref().is_some_and(|turn| !turn.awaits_model()) {
                self.go_on();
            }
        }
        if let Some(budgets) = budgets.filter(|budgets| *budgets != self.state.budgets) {
            let paused = self.state.turn.as_ref().is_some_and(|turn| matches!(turn.phase, Phase::Budget(_)));
            self.emit(actor, None, BudgetRaised { budgets });
            if paused {
                self.go_on();
            }
        }
        Ok(Answer::Updated { seq: self.state.seq })
    }

    fn end(&mut self, reason: Option<String>, actor: Actor) -> Result<Answer, Refusal> {
        if self.state.turn.is_some() {
            self.emit_in_turn(actor, CancelRequested { reason, end_session: true });
            return Ok(Answer::Ended { status: "canceled".into() });
        }
        self.check_not_restoring()?;
        self.emit(actor, None, SessionCompleted { reason });
        Ok(Answer::Ended { status: "completed".into() })
    }
}

fn check_room(used: usize, max: usize) -> Result<(), Refusal> {
    if used < max {
        return Ok(());
    }
    Err(Refusal::new("queue_full", format!("{max} are waiting already"), "try again when the open turn is settled"))
}

impl Budgets {
    fn check_raise(&self, new: &Budgets) -> Result<(), Refusal> {
        let lowered = |old: Option<u64>, new: Option<u64>| match (old, new) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(old), Some(new)) => new < old,
        };
        let pairs = [
            (BudgetKind::Steps, self.max_steps, new.max_steps),
            (BudgetKind::ToolCalls, self.max_tool_calls, new.max_tool_calls),
            (BudgetKind::Duration, self.max_duration_ms, new.max_duration_ms),
            (BudgetKind::Tokens, self.max_tokens, new.max_tokens),
            (BudgetKind::Money, self.max_micro_usd, new.max_micro_usd),
        ];
        match pairs.into_iter().find(|(_, old, new)| lowered(*old, *new)) {
            None => Ok(()),
            Some((kind, old, _)) => {
                let message = match old {
                    Some(old) => format!("a turn may use {} now, and a limit can only be raised", kind.amount(old)),
                    None => format!("there is no limit on {} now, and one can only be raised", kind.name()),
                };
                let hint = match kind {
                    BudgetKind::Steps => "name a higher max_steps, or null for none",
                    BudgetKind::ToolCalls => "name a higher max_tool_calls, or null for none",
                    BudgetKind::Duration => "name a higher max_duration_ms, or null for none",
                    BudgetKind::Tokens => "name a higher max_tokens, or null for none",
                    BudgetKind::Money => "name a higher max_micro_usd, or null for none",
                };
                Err(Refusal::new("budget_lowered", message, hint))
            }
        }
    }
}

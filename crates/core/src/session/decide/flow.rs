//! What follows of itself: which calls start, when the model is asked again, when a turn is done.

use serde_json::json;

use super::Draft;
use crate::{
    budget::Breach,
    event::{
        Actor, ApprovalDenied, ApprovalRequested, BudgetReached, CallOrigin, MessageDelivered, ToolCallCompleted,
        ToolCallStarted, TurnCompleted, TurnStarted, Verification,
    },
    ids::CallId,
    policy::{RuleAction, Scope},
    session::{Call, CallState, Life, Phase, Review, wanted::Reviewer},
    tool::{Intent, Outcome, Proposed, Runner, ToolCall, ToolKind, ToolResult, VerifyPlan},
};

impl Draft<'_> {
    /// Moves the open turn as far as it can go without the world.
    pub(super) fn go_on(&mut self) {
        if !self.is_going() {
            return;
        }
        self.tell_unknown();
        self.judge_asked();
        self.start_ready();
        if self.is_going() && self.state.turn.as_ref().is_some_and(|turn| turn.awaits_model()) {
            self.after_calls();
        }
    }

    fn is_going(&self) -> bool {
        self.state.life == Life::Open && self.state.turn.as_ref().is_some_and(|turn| turn.phase == Phase::Going)
    }

    fn calls_where(&self, fits: impl Fn(&Call) -> bool) -> Vec<Call> {
        self.state.turn.iter().flat_map(|turn| &turn.calls).filter(|call| fits(call)).cloned().collect()
    }

    /// A call that a crash cut is never run again by itself: the model is told and goes on.
    fn tell_unknown(&mut self) {
        for call in self.calls_where(|call| call.state == CallState::Unknown) {
            let why = "The outcome of this call is unknown: the daemon was stopped while it ran. It was not run again. \
                       It may have taken effect wholly, in part or not at all; look before you repeat it.";
            self.end_unrun(call.call.id, Outcome::Unknown, why);
        }
    }

    fn judge_asked(&mut self) {
        for call in self.calls_where(|call| call.state == CallState::Asked) {
            if let Some(problem) = &call.call.problem {
                self.end_unrun(call.call.id, Outcome::NotRun, problem);
                continue;
            }
            match self.state.judge(&call) {
                RuleAction::Allow => {}
                RuleAction::Ask if self.state.is_shown_first(&call) => {}
                RuleAction::Ask => self.ask_or_deny(&call, None),
                RuleAction::Deny => self.deny_by_policy(&call, "the policy forbids this call"),
            }
        }
    }

    pub(super) fn ask_or_deny(&mut self, call: &Call, proposed: Option<Proposed>) {
        if !self.state.policy.approval.attended {
            self.deny_by_policy(call, "this call needs an approval and nobody can be asked");
            return;
        }
        let expires = self.state.policy.approval.expires_after_ms;
        let request = ApprovalRequested {
            tool_call_id: call.call.id,
            name: call.call.name.clone(),
            kind: call.call.kind,
            input: call.call.input.clone(),
            subject: call.call.subject.clone(),
            origin: call.origin,
            expires_at: expires.map(|ms| self.moment.at.plus_ms(ms)),
            proposed,
        };
        self.emit_in_turn(Actor::POLICY, request);
    }

    fn deny_by_policy(&mut self, call: &Call, why: &str) {
        let (tool_call_id, name) = (call.call.id, call.call.name.clone());
        let denied = ApprovalDenied { tool_call_id, name, scope: Scope::Once, reason: Some(why.into()) };
        self.emit_in_turn(Actor::POLICY, denied);
        self.end_unrun(tool_call_id, Outcome::NotRun, why);
    }

    /// Starts what policy, order and budget let start. Write calls are prepared first, so they start on another input.
    fn start_ready(&mut self) {
        let count = self.state.turn.as_ref().map_or(0, |turn| turn.calls.len());
        for index in 0..count {
            let Some(turn) = self.state.turn.as_ref().filter(|turn| turn.phase == Phase::Going) else { return };
            let call = &turn.calls[index];
            if call.call.kind != ToolKind::Write && self.state.may_start(turn, index) {
                let id = call.call.id;
                self.start_call(id, Intent::default());
            }
        }
    }

    /// Records a call's intent, unless the budget is used up.
    pub(super) fn start_call(&mut self, id: CallId, intent: Intent) {
        let Some(turn) = &self.state.turn else { return };
        let Some(call) = turn.call(id) else { return };
        if call.runs == 0
            && let Some(reached) = self.state.budgets.before_call(&turn.spent)
        {
            self.reach(reached);
            return;
        }
        let started = ToolCallStarted {
            tool_call_id: id,
            name: call.call.name.clone(),
            kind: call.call.kind,
            input: call.call.input.clone(),
            runner: Runner::default(),
            origin: call.origin,
            run: call.runs + 1,
            intent,
        };
        self.emit_in_turn(Actor::AGENT, started);
    }

    /// Starts a write call, or has somebody look at what it would do.
    pub(super) fn start_or_review(&mut self, id: CallId, intent: Intent, diff: Option<String>) {
        let Some(call) = self.state.turn.as_ref().and_then(|turn| turn.call(id)).cloned() else { return };
        let proposed = Proposed { diff: diff.unwrap_or_default(), digest: intent.digest() };
        match self.state.reviewer(&call, &proposed.digest) {
            None => self.start_call(id, intent),
            Some(Reviewer::Model) => self.ask_reviewer(&call, proposed),
            // A second question under the same name would take a late answer to the first one for its own.
            Some(Reviewer::Person) if matches!(call.review, Review::Shown { .. }) => {
                let why = "a file has changed since this change was shown and approved; nothing was changed. Read it \
                           again and try anew.";
                self.end_unrun(id, Outcome::NotRun, why);
                self.go_on();
            }
            Some(Reviewer::Person) => {
                self.ask_or_deny(&call, Some(proposed));
                self.go_on();
            }
        }
    }

    pub(super) fn reach(&mut self, reached: Breach) {
        self.emit_in_turn(Actor::POLICY, BudgetReached { reached });
    }

    /// All calls of the step are done: the model goes on, or the turn is checked and completed.
    fn after_calls(&mut self) {
        let Some(turn) = &self.state.turn else { return };
        if !turn.last_output.as_ref().is_some_and(|last| last.is_final) {
            self.open_step();
            return;
        }
        let verified = turn.calls.iter().find(|call| call.origin == CallOrigin::VerifyPolicy);
        match verified.map(|call| &call.state) {
            Some(CallState::Done { ok: false }) if turn.verification != Verification::Denied => {
                self.after_failed_check()
            }
            Some(_) => self.complete(),
            None if turn.dirty && turn.steers.is_empty() && self.state.policy.verify.auto_verify => self.verify(),
            None => self.complete(),
        }
    }

    /// The model is asked for its next step, with the steering messages that wait.
    pub(super) fn open_step(&mut self) {
        let Some(turn) = &self.state.turn else { return };
        if let Some(reached) = self.state.budgets.before_step(&turn.spent) {
            self.reach(reached);
            return;
        }
        self.deliver_steers();
    }

    pub(super) fn deliver_steers(&mut self) {
        let Some(turn) = &self.state.turn else { return };
        let step = turn.next_step();
        for message in turn.steers.clone() {
            self.emit_in_turn(Actor::SYSTEM, MessageDelivered { message_id: message.id, step });
        }
    }

    fn verify(&mut self) {
        match self.state.verify_plan() {
            Some(plan) => self.start_verification(plan),
            None => self.complete(),
        }
    }

    fn start_verification(&mut self, plan: VerifyPlan) {
        let call = ToolCall {
            id: self.moment.call_id(),
            provider_id: None,
            name: "verify".into(),
            kind: ToolKind::Exec,
            subject: plan.subject(),
            input: json!({ "commands": plan.commands }),
            secrets: vec![],
            problem: None,
        };
        let call = Call::asked(call, CallOrigin::VerifyPolicy);
        match self.state.judge(&call) {
            RuleAction::Allow => self.start_policy_call(&call),
            RuleAction::Ask if self.state.policy.approval.attended => self.ask_or_deny(&call, None),
            RuleAction::Ask | RuleAction::Deny => self.complete_as(Verification::Denied),
        }
    }

    fn start_policy_call(&mut self, call: &Call) {
        let Some(turn) = &self.state.turn else { return };
        if let Some(reached) = self.state.budgets.before_call(&turn.spent) {
            self.reach(reached);
            return;
        }
        let started = ToolCallStarted {
            tool_call_id: call.call.id,
            name: call.call.name.clone(),
            kind: call.call.kind,
            input: call.call.input.clone(),
            runner: Runner::default(),
            origin: call.origin,
            run: 1,
            intent: Intent::default(),
        };
        self.emit_in_turn(Actor::POLICY, started);
    }

    fn after_failed_check(&mut self) {
        let Some(turn) = &self.state.turn else { return };
        if turn.verify_failures >= self.state.policy.verify.max_attempts {
            let message = format!("verification failed {} times", turn.verify_failures);
            self.fail_turn(Actor::POLICY, "verification_failed", &message);
        } else {
            self.open_step();
        }
    }

    fn complete(&mut self) {
        let Some(turn) = &self.state.turn else { return };
        let verification = match (turn.verification, turn.dirty) {
            (Verification::Denied, true) => Verification::Denied,
            (_, true) if self.state.policy.verify.auto_verify => Verification::Skipped,
            (_, true) => Verification::NotNeeded,
            (known, false) => known,
        };
        self.complete_as(verification);
    }

    fn complete_as(&mut self, verification: Verification) {
        let Some(turn) = &self.state.turn else { return };
        if !turn.steers.is_empty() {
            self.open_step();
            return;
        }
        let Some(last) = &turn.last_output else { return };
        let (message_id, spent, cost_micro_usd) = (last.message_id, turn.spent, turn.spent.cost());
        self.checkpoint();
        self.emit_in_turn(Actor::AGENT, TurnCompleted { message_id, spent, cost_micro_usd, verification });
        self.start_queued();
    }

    /// The next turn of the queue starts as soon as none is open.
    pub(super) fn start_queued(&mut self) {
        if self.state.life != Life::Open || self.state.turn.is_some() || self.state.restoring.is_some() {
            return;
        }
        let Some(next) = self.state.queue.front().cloned() else { return };
        let model = self.state.settings.model.clone();
        let started = TurnStarted { messages: next.messages, retry_of: next.retry_of, model };
        self.emit(Actor::SYSTEM, Some(next.id), started);
        self.go_on();
    }

    /// Closes a call that has no result of its own.
    pub(super) fn end_unrun(&mut self, id: CallId, outcome: Outcome, why: &str) {
        self.end_cut(id, outcome, why, 0);
    }

    fn end_cut(&mut self, id: CallId, outcome: Outcome, why: &str, duration_ms: u64) {
        let Some(call) = self.state.turn.as_ref().and_then(|turn| turn.call(id)) else { return };
        let done = ToolCallCompleted {
            tool_call_id: id,
            name: call.call.name.clone(),
            origin: call.origin,
            outcome,
            result: ToolResult::failed(why),
            duration_ms,
        };
        self.emit_in_turn(Actor::SYSTEM, done);
    }

    /// No call is left without a result, so that the conversation stays whole for any vendor.
    pub(super) fn close_calls(&mut self, why: &str, took: &[(CallId, u64)]) {
        for call in self.calls_where(|call| !call.is_done()) {
            match call.state {
                CallState::Started { .. } => {
                    let why = format!("stopped while it ran: {why}; it may have taken effect in part");
                    let ran_ms = took.iter().find(|(id, _)| *id == call.call.id).map_or(0, |(_, ms)| *ms);
                    self.end_cut(call.call.id, Outcome::Canceled, &why, ran_ms);
                }
                CallState::Unknown => {
                    let why = "the outcome of this call is unknown: the daemon was stopped while it ran";
                    self.end_unrun(call.call.id, Outcome::Unknown, why);
                }
                _ => self.end_unrun(call.call.id, Outcome::NotRun, &format!("not run: {why}")),
            }
        }
    }
}

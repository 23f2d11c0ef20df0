//! The invariants of a step: replies, calls, approvals, crashes and budgets of the open turn.

use tenure_core::{
    command::Verdict,
    event::{
        ActorKind, ApprovalRequested, Body, CallOrigin, Event, ModelOutputCompleted, ToolCallCompleted,
        ToolCallStarted, TurnInterrupted,
    },
    ids::{CallId, TurnId},
    message::joined_text,
    policy::{PatchReview, Resume, RuleAction, Scope},
    tool::{CallClass, Outcome, ToolCall, ToolKind},
};

use super::{
    faults::Faults,
    record::{Call, Open, Record},
    rules::{Asked, verdict},
};

impl Record {
    pub(super) fn take_step(&mut self, event: &Event, faults: &mut Faults) {
        let seq = event.seq;
        let Some(mut open) = self.open.take() else {
            faults.need(false, || format!("event {seq} needs an open turn"));
            return;
        };
        let same = event.turn_id == Some(open.id);
        faults.need(same, || format!("event {seq} is of {:?} while {} is open", event.turn_id, open.id));
        match &event.body {
            Body::TurnInterrupted(cut) => self.interrupt(&mut open, cut, seq, faults),
            Body::TurnResumed(resumed) => self.resume(&mut open, resumed.automatic, seq, faults),
            Body::CancelRequested(_) => (open.stopping, open.stopping_since) = (true, seq),
            Body::BudgetReached(_) => {
                open.time_up = false;
                match self.policy.approval.attended {
                    true => open.paused = true,
                    false => (open.stopping, open.stopping_since) = (true, seq),
                }
            }
            Body::ModelOutputCompleted(output) => {
                self.compacted_in_vain = 0;
                self.take_output(&mut open, output, seq, faults);
            }
            Body::ModelAttemptFailed(failed) => {
                let awaited = (failed.step, failed.attempt) == (open.step + 1, open.attempts + 1);
                faults.need(awaited, || format!("event {seq}: attempt {} of step {}", failed.attempt, failed.step));
                open.attempts = failed.attempt;
                open.close_text(failed.step, failed.attempt, &failed.text, seq, faults);
            }
            Body::ToolCallStarted(started) => self.start_call(&mut open, started, seq, faults),
            Body::ToolCallCompleted(done) => self.end_call(&mut open, done, seq, faults),
            Body::ApprovalRequested(request) => self.request(&mut open, request, seq, faults),
            Body::ApprovalGranted(granted) => {
                self.answer(granted.tool_call_id, Verdict::Approve, granted.scope, event, faults);
            }
            Body::ApprovalDenied(denied) => {
                self.answer(denied.tool_call_id, Verdict::Deny, denied.scope, event, faults);
            }
            Body::ApprovalExpired(expired) => {
                let call = self.calls.get(&expired.tool_call_id);
                let due = call.and_then(|call| call.requested.flatten()).is_some_and(|at| at <= event.ts);
                faults.need(due, || format!("event {seq}: the approval expires before its time"));
                self.answer(expired.tool_call_id, Verdict::Deny, Scope::Once, event, faults);
            }
            Body::ReviewStarted(started) => self.review(started.tool_call_id, None, seq, faults),
            Body::ReviewCompleted(done) => self.review(done.tool_call_id, Some(done.verdict), seq, faults),
            // Where the reviewer could not, a yes of a person will do, also one from before.
            Body::ReviewFailed(failed) if failed.is_given_up() => {
                if let Some(call) = self.calls.get_mut(&failed.tool_call_id) {
                    (call.shown, call.reviewed) = (true, matches!(call.answered, Some((Verdict::Approve, ..))));
                }
            }
            _ => {}
        }
        self.open = Some(open);
    }

    fn interrupt(&mut self, open: &mut Open, cut: &TurnInterrupted, seq: u64, faults: &mut Faults) {
        open.interrupted = true;
        (open.paused, open.time_up) = (false, false);
        for (id, call) in self.calls.iter_mut().filter(|(_, call)| call.turn == open.id) {
            let runs = call.intents > 0 && call.outcome.is_none() && !call.cut;
            let named = cut.calls.iter().find(|named| named.tool_call_id == *id);
            faults.need(named.is_some() == runs, || format!("event {seq}: {id} runs: {runs}, named: {named:?}"));
            // Tools of a life leave no traces that could be looked at.
            let unknown = named.is_none_or(|named| named.class == CallClass::Unknown);
            faults.need(unknown, || format!("event {seq}: {named:?}"));
            call.cut |= runs;
        }
    }

    fn resume(&mut self, open: &mut Open, automatic: bool, seq: u64, faults: &mut Faults) {
        faults.need(open.interrupted && !open.stopping, || format!("event {seq} resumes what was not interrupted"));
        open.interrupted = false;
        open.resumed_in_a_row = if automatic { open.resumed_in_a_row + 1 } else { 0 };
        if !automatic {
            return;
        }
        let unknown = self
            .calls
            .values()
            .any(|call| call.turn == open.id && call.cut && call.kind != ToolKind::Read && call.outcome.is_none());
        let allowed = match self.policy.recovery.resume {
            Resume::Ask => false,
            Resume::Safe => !unknown,
            Resume::Always => true,
        };
        faults.need(allowed, || format!("event {seq} resumes by itself against the policy"));
        faults.need(open.resumed_in_a_row <= 3, || format!("event {seq} resumes by itself once too often"));
    }

    fn take_output(&mut self, open: &mut Open, output: &ModelOutputCompleted, seq: u64, faults: &mut Faults) {
        let awaited = (output.step, output.attempt) == (open.step + 1, open.attempts + 1);
        faults.need(awaited, || format!("event {seq}: attempt {} of step {}", output.attempt, output.step));
        faults.need(open.is_going(), || format!("event {seq} is a reply of a turn that does not go on"));
        let done = open.order.iter().all(|id| self.calls[id].outcome.is_some());
        faults.need(done, || format!("event {seq} is a reply before all results are there"));
        open.close_text(output.step, output.attempt, &output.text, seq, faults);
        (open.step, open.attempts, open.resumed_in_a_row) = (output.step, 0, 0);
        let within = self.budgets.max_steps.is_none_or(|max| u64::from(output.step) <= max);
        faults.need(within, || format!("event {seq} is step {} of {:?}", output.step, self.budgets.max_steps));
        open.order.clear();
        for call in &output.tool_calls {
            self.know(open, call);
        }
    }

    fn know(&mut self, open: &mut Open, call: &ToolCall) {
        open.order.push(call.id);
        let known = Call {
            turn: open.id,
            name: call.name.clone(),
            kind: call.kind,
            subject: call.subject.clone(),
            has_problem: call.problem.is_some(),
            requested: None,
            answered: None,
            shown: false,
            reviewed: false,
            intents: 0,
            runs: 0,
            cut: false,
            outcome: None,
            gave: None,
        };
        self.calls.insert(call.id, known);
    }

    /// The verification's own call enters with its first event.
    fn know_verification(&mut self, open: &mut Open, id: CallId, input: &serde_json::Value) {
        let commands = input["commands"].as_array().into_iter().flatten().filter_map(|command| command.as_str());
        let call = ToolCall {
            id,
            provider_id: None,
            name: "verify".into(),
            kind: ToolKind::Exec,
            input: input.clone(),
            subject: commands.collect::<Vec<_>>().join("\n"),
            secrets: vec![],
            problem: None,
        };
        self.know(open, &call);
    }

    fn start_call(&mut self, open: &mut Open, started: &ToolCallStarted, seq: u64, faults: &mut Faults) {
        let id = started.tool_call_id;
        if started.origin == CallOrigin::VerifyPolicy && !self.calls.contains_key(&id) {
            self.know_verification(open, id, &started.input);
        }
        faults.need(open.is_going(), || format!("event {seq} starts a call of a turn that does not go on"));
        self.check_order(open, id, seq, faults);
        let Some(call) = self.calls.get_mut(&id) else {
            faults.need(false, || format!("event {seq} starts a call that nobody asked for"));
            return;
        };
        let whole = call.turn == open.id && call.name == started.name && call.kind == started.kind;
        faults.need(whole && !call.has_problem, || format!("event {seq} starts {} otherwise", call.name));
        faults.need(call.outcome.is_none(), || format!("event {seq} starts a call that has its result"));
        call.intents += 1;
        faults.need(started.run == call.intents, || format!("event {seq} is run {} of {id}", started.run));
        if started.run > 1 {
            let may = call.kind == ToolKind::Read && call.cut;
            faults.need(may, || format!("event {seq} runs a {:?} call again, cut: {}", call.kind, call.cut));
            call.cut = false;
            return;
        }
        open.calls_started += 1;
        let within = self.budgets.max_tool_calls.is_none_or(|max| open.calls_started <= max);
        faults.need(within, || format!("event {seq} starts call {} of the turn", open.calls_started));
        let asked = Asked { name: &call.name, kind: call.kind, subject: &call.subject };
        let approved = matches!(call.answered, Some((Verdict::Approve, ..)));
        let denied = matches!(call.answered, Some((Verdict::Deny, ..)));
        let allowed = approved || verdict(&self.policy, &self.lasting, &asked) == RuleAction::Allow;
        let waits = call.requested.is_some() && call.answered.is_none();
        faults.need(allowed && !denied && !waits, || format!("event {seq} starts {} without leave", call.name));
        // A yes from before the policy wanted reviews is one all the same.
        let looked_at = call.reviewed || (approved && !call.shown);
        let needs_review = call.kind == ToolKind::Write && self.policy.patch_review != PatchReview::Off;
        let lasting = self.lasting.allowed.contains(&(call.name.clone(), call.subject.clone()));
        faults.need(!needs_review || looked_at || lasting, || format!("event {seq} makes a change nobody looked at"));
    }

    /// Only reads go side by side; all else comes in the order in which it was asked for.
    fn check_order(&self, open: &Open, id: CallId, seq: u64, faults: &mut Faults) {
        let reads = |id: &CallId| self.calls.get(id).is_some_and(|call| call.kind == ToolKind::Read);
        let earlier = open.order.iter().take_while(|other| **other != id);
        for other in earlier.filter(|other| self.calls[*other].outcome.is_none()) {
            faults.need(reads(other) && reads(&id), || format!("event {seq} starts {id} before {other} is done"));
        }
        let later = open.order.iter().skip_while(|other| **other != id).skip(1);
        for other in later.filter(|other| self.calls[*other].intents > 0 && self.calls[*other].outcome.is_none()) {
            faults.need(reads(other) && reads(&id), || format!("event {seq} starts {id} beside {other}"));
        }
    }

    fn end_call(&mut self, open: &mut Open, done: &ToolCallCompleted, seq: u64, faults: &mut Faults) {
        let Some(call) = self.calls.get_mut(&done.tool_call_id) else {
            faults.need(false, || format!("event {seq} ends a call that nobody asked for"));
            return;
        };
        faults.need(call.outcome.is_none(), || format!("event {seq} is a second result of {}", done.tool_call_id));
        faults.need(call.turn == open.id, || format!("event {seq} is of a call of another turn"));
        let runs = call.intents > 0 && !call.cut;
        let limit = done.result.error.as_deref().is_some_and(|error| error.contains("time limit was reached"));
        let timed_out = limit && self.budgets.max_duration_ms.is_some();
        let fits = match done.outcome {
            Outcome::Finished => runs && call.gave.as_deref() == Some(&joined_text(&done.result.parts)),
            Outcome::Unknown => call.cut && call.kind != ToolKind::Read,
            Outcome::Canceled => runs && (open.stopping || open.interrupted || timed_out),
            // A read that was cut and not run again counts as not run.
            Outcome::NotRun => call.intents == 0 || (call.cut && call.kind == ToolKind::Read),
        };
        faults.need(fits, || {
            let known = (call.intents, call.cut, &call.gave);
            format!("event {seq}: {:?} of {} with intents, cut, gave {known:?}: {done:?}", done.outcome, call.name)
        });
        if done.outcome == Outcome::Finished {
            open.resumed_in_a_row = 0;
        }
        call.outcome = Some(done.outcome);
    }

    /// A model is shown a change to come, or has said what it thinks of it.
    fn review(&mut self, id: CallId, said: Option<Verdict>, seq: u64, faults: &mut Faults) {
        let Some(call) = self.calls.get_mut(&id) else {
            faults.need(false, || format!("event {seq} reviews a call that nobody asked for"));
            return;
        };
        let to_come = call.kind == ToolKind::Write && call.intents == 0 && call.outcome.is_none();
        faults.need(to_come, || format!("event {seq} reviews {}, which is no change to come", call.name));
        call.reviewed = said == Some(Verdict::Approve);
    }

    fn request(&mut self, open: &mut Open, request: &ApprovalRequested, seq: u64, faults: &mut Faults) {
        let id = request.tool_call_id;
        if request.origin == CallOrigin::VerifyPolicy && !self.calls.contains_key(&id) {
            self.know_verification(open, id, &request.input);
        }
        faults.need(open.is_going(), || format!("event {seq} asks for a turn that does not go on"));
        let attended = self.policy.approval.attended;
        let Some(call) = self.calls.get_mut(&id) else { return };
        let asked = Asked { name: &call.name, kind: call.kind, subject: &call.subject };
        let shows = request.proposed.is_some();
        let reviews = shows && call.kind == ToolKind::Write && self.policy.patch_review != PatchReview::Off;
        let asks = (reviews || verdict(&self.policy, &self.lasting, &asked) == RuleAction::Ask) && attended;
        let fresh = call.requested.is_none() && call.intents == 0 && call.outcome.is_none();
        call.shown |= shows;
        faults.need(asks && fresh, || format!("event {seq} asks for {} without need", call.name));
        call.requested = Some(request.expires_at);
        self.refused = false;
    }

    fn answer(&mut self, id: CallId, said: Verdict, scope: Scope, event: &Event, faults: &mut Faults) {
        let seq = event.seq;
        let Some(call) = self.calls.get_mut(&id) else {
            faults.need(false, || format!("event {seq} answers for a call that nobody asked for"));
            return;
        };
        faults.need(call.answered.is_none(), || format!("event {seq} is a second answer to {id}"));
        faults.need(call.intents == 0 && call.outcome.is_none(), || format!("event {seq} answers too late for {id}"));
        let person = event.actor.kind == ActorKind::User;
        // A yes in the instant in which its time is over is taken, and one while the disk takes nothing else.
        let late = call.requested.flatten().is_some_and(|at| at.plus_ms(1000) <= event.ts);
        faults.need(!(person && late) || self.refused, || {
            format!("event {seq} answers for {id} after its time was over")
        });
        let asked = Asked { name: &call.name, kind: call.kind, subject: &call.subject };
        let judged = verdict(&self.policy, &self.lasting, &asked);
        let unasked = match judged {
            RuleAction::Deny => true,
            RuleAction::Ask => !self.policy.approval.attended,
            RuleAction::Allow => false,
        };
        let unreviewed = call.kind == ToolKind::Write && self.policy.patch_review != PatchReview::Off;
        let unasked = unasked || (unreviewed && !self.policy.approval.attended);
        let may = call.requested.is_some() || (said == Verdict::Deny && !person && unasked);
        call.reviewed |= call.shown && said == Verdict::Approve;
        faults.need(may, || format!("event {seq} answers for {} where nobody was asked", call.name));
        call.answered = Some((said, scope, seq));
        let lasts = scope != Scope::Once || (call.name == "verify" && said == Verdict::Approve);
        if lasts {
            let named = (call.name.clone(), call.subject.clone());
            match said {
                Verdict::Approve => self.lasting.allowed.push(named),
                Verdict::Deny => self.lasting.forbidden.push(named),
            }
        }
    }

    /// Called when a tool begins to act: its intent lasts by now, and no side effect happens twice.
    pub fn tool_starts(&mut self, turn: TurnId, id: CallId, faults: &mut Faults) {
        faults.need(self.may_begin(turn), || format!("{id} begins for {turn}, which is not open or was told to stop"));
        let Some(call) = self.calls.get_mut(&id) else {
            faults.need(false, || format!("{id} runs and nobody asked for it"));
            return;
        };
        call.runs += 1;
        let (runs, intents) = (call.runs, call.intents);
        faults.need(runs <= intents, || format!("{} {id} ran {runs} times with {intents} intents", call.name));
        let twice = runs > 1 && call.kind != ToolKind::Read;
        faults.need(!twice, || format!("{} {id} acts a second time", call.name));
        faults.need(call.outcome.is_none(), || format!("{} {id} runs after its result", call.name));
        call.gave = None;
    }
}

impl Open {
    fn is_going(&self) -> bool {
        !self.stopping && !self.interrupted && !self.paused && !self.time_up
    }

    /// What was shown of a reply is what its last word keeps of it.
    fn close_text(&mut self, step: u32, attempt: u32, text: &str, seq: u64, faults: &mut Faults) {
        let shown = self.shown.remove(&(step, attempt)).unwrap_or_default();
        let kept = if self.torn { shown.starts_with(text) || text.starts_with(&shown) } else { shown == text };
        faults.need(kept, || format!("event {seq} keeps {text:?}, and {shown:?} was shown"));
    }
}

//! A model's look at a change before it is made: when it is asked, what its answer comes to, and what follows when it
//! gives none. What it sends back is told to the model that made the change.

use super::{Draft, work::next_try};
use crate::{
    command::{Partial, Refusal, Review, Verdict},
    event::{Actor, ReviewCompleted, ReviewFailed, ReviewStarted},
    ids::{CallId, TurnId},
    model::{Fault, FaultKind, MicroUsd},
    session::{Attempts, Call, Decision, Phase, Session},
    time::{Moment, Timestamp},
    tool::{Outcome, Proposed},
};

impl Session {
    /// The call under review, if this answer is the one it waits for.
    fn awaited_review(&self, (turn, call, attempt): (TurnId, CallId, u32)) -> Result<(&Call, &Attempts), Refusal> {
        let open = self.turn.as_ref().filter(|open| open.id == turn && open.phase == Phase::Going);
        let call = open.and_then(|open| open.call(call)).ok_or_else(Refusal::stale)?;
        let attempts = call.reviewing().filter(|attempts| attempts.made + 1 == attempt);
        Ok((call, attempts.ok_or_else(Refusal::stale)?))
    }

    pub(super) fn reviewed(
        &self,
        key: (TurnId, CallId, u32),
        review: Review,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let (call, _) = self.awaited_review(key)?;
        let model = self.turn.as_ref().map(|turn| turn.model.clone()).unwrap_or_default();
        let mut draft = Draft::new(self, moment);
        let Review { verdict, reason, usage, cost } = review;
        let completed = ReviewCompleted {
            tool_call_id: call.call.id,
            name: call.call.name.clone(),
            verdict,
            reason: reason.clone(),
            model,
            usage,
            cost_micro_usd: cost,
        };
        draft.emit_in_turn(Actor::AGENT, completed);
        if verdict == Verdict::Deny {
            let why = format!("The review sent this change back, and nothing was changed: {reason}");
            draft.end_unrun(call.call.id, Outcome::NotRun, &why);
        }
        draft.go_on();
        Ok(draft.done())
    }

    pub(super) fn review_failed(
        &self,
        key: (TurnId, CallId, u32),
        fault: Fault,
        partial: Partial,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let (call, attempts) = self.awaited_review(key)?;
        let retry_at = next_try(attempts, &fault, moment);
        let mut draft = Draft::new(self, moment);
        draft.attempt_at_review_failed(call, fault, partial, retry_at);
        draft.go_on();
        Ok(draft.done())
    }
}

impl ReviewFailed {
    /// No other attempt follows by this event alone. One that we stopped ourselves is made again when the turn goes on.
    pub fn is_given_up(&self) -> bool {
        self.retry_at.is_none() && !matches!(self.reason.kind, FaultKind::Canceled | FaultKind::Interrupted)
    }
}

impl Draft<'_> {
    pub(super) fn ask_reviewer(&mut self, call: &Call, proposed: Proposed) {
        let Some(turn) = &self.state.turn else { return };
        let (tool_call_id, name, model) = (call.call.id, call.call.name.clone(), turn.model.clone());
        self.emit_in_turn(Actor::POLICY, ReviewStarted { tool_call_id, name, model, proposed });
    }

    /// The daemon was stopped while a review was made. Tells whether one was cut.
    pub(super) fn cut_review(&mut self, untold: Option<MicroUsd>) -> bool {
        let now = self.moment.at;
        let is_going = self.state.turn.as_ref().is_some_and(|turn| turn.phase == Phase::Going);
        let is_cut = |attempts: &Attempts| is_going && attempts.not_before.is_none_or(|at| at <= now);
        let Some(call) = self.under_review().filter(|call| call.reviewing().is_some_and(is_cut)) else { return false };
        let fault = Fault::new(FaultKind::Interrupted, "the daemon was stopped while the change was reviewed");
        self.attempt_at_review_failed(&call, fault, Partial { cost: untold, ..Partial::default() }, None);
        true
    }

    /// The turn is being stopped, and with it the review that it waits for.
    pub(super) fn stop_review(&mut self, cut: Option<Partial>) {
        let Some(call) = self.under_review() else { return };
        // Between two attempts nothing is used up.
        let Some(partial) = cut else { return };
        let fault = Fault::new(FaultKind::Canceled, "the turn was stopped");
        self.attempt_at_review_failed(&call, fault, partial, None);
    }

    /// There is one at most: write calls come one after the other.
    fn under_review(&self) -> Option<Call> {
        let calls = self.state.turn.iter().flat_map(|turn| &turn.calls);
        calls.into_iter().find(|call| call.reviewing().is_some()).cloned()
    }

    fn attempt_at_review_failed(&mut self, call: &Call, reason: Fault, partial: Partial, retry_at: Option<Timestamp>) {
        let Partial { usage, cost, begun, .. } = partial;
        let failed = ReviewFailed {
            tool_call_id: call.call.id,
            name: call.call.name.clone(),
            attempt: call.reviewing().map_or(0, |attempts| attempts.made) + 1,
            reason,
            usage,
            cost_micro_usd: cost,
            begun,
            retry_at,
        };
        self.emit_in_turn(Actor::SYSTEM, failed);
    }
}

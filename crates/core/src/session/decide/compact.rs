//! Shortening the context: when it begins, what it comes to, and what follows when it fails. The log keeps everything.

use super::{
    Draft,
    work::{given_up, next_try},
};
use crate::{
    command::{Answer, Partial, Refusal},
    event::{Actor, CompactTrigger, CompactionFailed, CompactionStarted, ContextCompacted},
    ids::TurnId,
    model::{Fault, FaultKind, MicroUsd},
    session::{AUTO_RESUMES_MAX, Attempts, COMPACTIONS_MAX, Compaction, Decision, SUMMARY_OVERFLOWS_MAX, Session},
    time::{Moment, Timestamp},
};

/// A context that has grown by less than this since it was last compacted is left alone.
const GROWTH_PERCENT_MIN: u64 = 10;

impl Session {
    /// The next request takes so many tokens of so many: it is time to compact, or not.
    pub(super) fn context_measured(
        &self,
        turn: TurnId,
        tokens: u64,
        window: u64,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let open = self.turn.as_ref().filter(|open| open.id == turn && open.awaits_model());
        let open = open.ok_or_else(Refusal::stale)?;
        let mut draft = Draft::new(self, moment);
        let policy = &self.policy.compaction;
        let is_above = |percent: u8| tokens.saturating_mul(100) >= window.saturating_mul(percent.into());
        let grown = tokens.saturating_sub(self.compacted_to).saturating_mul(100);
        let has_grown = grown >= window.saturating_mul(GROWTH_PERCENT_MIN);
        let blocking = is_above(policy.block_percent);
        let begins = match &self.compaction {
            None => is_above(policy.from_percent) && has_grown && open.compactions == 0,
            Some(under_way) => blocking && !under_way.blocking,
        };
        if policy.auto && begins {
            draft.compact(CompactTrigger::Threshold, blocking, Some(tokens), Actor::POLICY);
        }
        Ok(draft.done())
    }

    /// The compaction under way, if this answer is the one it waits for.
    fn awaited_compaction(&self, attempt: u32) -> Result<&Compaction, Refusal> {
        let under_way = self.compaction.as_ref().filter(|under_way| under_way.attempts.made + 1 == attempt);
        under_way.ok_or_else(Refusal::stale)
    }

    pub(super) fn compacted(
        &self,
        attempt: u32,
        compacted: ContextCompacted,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let Compaction { trigger, blocking, .. } = *self.awaited_compaction(attempt)?;
        // An answer to what was asked for is never passed over: it would be asked for again, and again.
        if compacted.kept_from < self.context_from || compacted.kept_from > self.seq + 1 {
            let fault = Fault::new(FaultKind::BadRequest, "the summary does not fit the conversation");
            return self.compact_failed(attempt, fault, whole(&compacted), moment);
        }
        // A context must not grow by what was to make it shorter.
        let (before, after) = (compacted.tokens_before, compacted.tokens_after);
        if after >= before {
            let why = format!("the summary is no shorter than what it tells: {before} tokens would become {after}");
            let fault = Fault::new(FaultKind::ReplyTooLarge, why);
            return self.compact_failed(attempt, fault, whole(&compacted), moment);
        }
        // Messages that wait are still to be shown. What was left behind before stays behind: a retry fetches it.
        let waits_from = self.first_needed().unwrap_or(u64::MAX);
        let needed_from = compacted.context_from.min(compacted.kept_from).min(waits_from);
        let context_from = needed_from.max(self.context_from);
        let mut draft = Draft::new(self, moment);
        draft.emit_in_turn(Actor::AGENT, ContextCompacted { trigger, context_from, ..compacted });
        // A turn that did not wait may be talking to the model: its request is made.
        if blocking {
            draft.step_if_awaited();
        }
        Ok(draft.done())
    }

    pub(super) fn compact_failed(
        &self,
        attempt: u32,
        mut fault: Fault,
        partial: Partial,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let under_way = self.awaited_compaction(attempt)?.clone();
        let retry_at = match fault.kind {
            FaultKind::ContextOverflow => (under_way.overflows + 1 < SUMMARY_OVERFLOWS_MAX).then_some(moment.at),
            _ => next_try(&under_way.attempts, &fault, moment),
        };
        if retry_at.is_none() {
            fault.message = given_up(&under_way.attempts, &fault, moment);
        }
        let mut draft = Draft::new(self, moment);
        draft.summary_failed(fault.clone(), partial, retry_at);
        if retry_at.is_none() && under_way.blocking && draft.awaits_model() {
            match under_way.trigger {
                CompactTrigger::Overflow => {
                    let message = self.still_too_long(&fault);
                    draft.fail_turn(Actor::SYSTEM, FaultKind::ContextOverflow.code(), &message);
                }
                // The vendor has the last word on whether it is too long.
                CompactTrigger::Threshold | CompactTrigger::Asked => draft.step_if_awaited(),
            }
        }
        Ok(draft.done())
    }

    /// The vendor's own words, why nothing came of a summary, and what may help.
    fn still_too_long(&self, fault: &Fault) -> String {
        let told = self.turn.as_ref().and_then(|turn| turn.too_long.as_deref());
        format!(
            "{}; the context could not be compacted: {fault}; say it in fewer words, or take a model with a larger window",
            told.unwrap_or("the context is too long for the model"),
        )
    }

    /// Whether a shorter context may help the open turn on.
    pub(super) fn may_compact(&self) -> bool {
        let tried = self.turn.as_ref().map_or(0, |turn| turn.compactions);
        self.policy.compaction.auto && tried < COMPACTIONS_MAX
    }
}

/// What a summary has used up that came whole and is not taken.
fn whole(compacted: &ContextCompacted) -> Partial {
    Partial { usage: compacted.usage, cost: compacted.cost_micro_usd, ..Partial::default() }
}

impl Draft<'_> {
    pub(super) fn compact(&mut self, trigger: CompactTrigger, blocking: bool, tokens: Option<u64>, actor: Actor) {
        self.emit_in_turn(actor, CompactionStarted { trigger, blocking, tokens });
    }

    /// Somebody wants a shorter context; one that is under way will do.
    pub(super) fn compact_asked(&mut self, actor: Actor) -> Answer {
        if self.state.compaction.is_none() {
            self.compact(CompactTrigger::Asked, false, None, actor);
        }
        Answer::Compacting { seq: self.state.seq }
    }

    /// The daemon was stopped while the summary was made: another attempt follows, unless that happens again and again.
    /// Tells whether one was cut.
    pub(super) fn cut_compaction(&mut self, untold: Option<MicroUsd>) -> bool {
        let now = self.moment.at;
        let cut = self.state.compacting().filter(|cut| cut.attempts.not_before.is_none_or(|at| at <= now));
        let Some(Attempts { made, failed, .. }) = cut.map(|cut| cut.attempts.clone()) else { return false };
        let reason = Fault::new(FaultKind::Interrupted, "the daemon was stopped while the summary was made");
        let retry_at = (made.saturating_sub(failed) < AUTO_RESUMES_MAX).then_some(now);
        self.summary_failed(reason, Partial { cost: untold, ..Partial::default() }, retry_at);
        true
    }

    /// The turn is being stopped, and with it what it waited for.
    pub(super) fn stop_compaction(&mut self, cut: Option<Partial>) {
        let reason = Fault::new(FaultKind::Canceled, "the turn was stopped");
        // Between two attempts nothing is used up.
        let nothing = || Partial { cost: Some(0), ..Partial::default() };
        self.summary_failed(reason, cut.unwrap_or_else(nothing), None);
    }

    fn summary_failed(&mut self, reason: Fault, partial: Partial, retry_at: Option<Timestamp>) {
        let Partial { usage, cost, begun, .. } = partial;
        let failed = CompactionFailed { reason, usage, cost_micro_usd: cost, begun, retry_at };
        self.emit_in_turn(Actor::SYSTEM, failed);
    }

    fn awaits_model(&self) -> bool {
        self.state.turn.as_ref().is_some_and(|turn| turn.awaits_model())
    }

    /// The request is made anew: the budget is looked at, and what waits to steer it goes along.
    fn step_if_awaited(&mut self) {
        if self.awaits_model() {
            self.open_step();
        }
    }
}

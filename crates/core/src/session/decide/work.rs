//! Answers of work that was wanted: model replies, tool results, time, and the end of stopped work.

use super::Draft;
use crate::{
    budget::{Breach, BudgetKind},
    command::{ModelOutput, Partial, Refusal},
    event::{
        Actor, ApprovalExpired, CompactTrigger, ModelAttemptFailed, ModelOutputCompleted, SessionCanceled,
        ToolCallCompleted, TurnCanceled, TurnExpired,
    },
    ids::{CallId, TurnId},
    model::{Fault, FaultKind},
    session::{ATTEMPTS_MAX, Attempts, CallState, Decision, Phase, RETRYING_MS_MAX, Session, Stop, Turn},
    time::{Moment, Timestamp},
    tool::{Intent, Outcome, ToolKind, ToolResult},
};

/// The first wait before another attempt; it doubles with each.
const BACKOFF_MS_FIRST: u64 = 500;
const BACKOFF_MS_MAX: u64 = 60_000;
/// A step whose attempts have failed so often is not asked again for a text that fits its schema.
const MISFITS_MAX: u32 = 2;
/// A server on this machine that is not there so many times in a row has not been started.
const NO_SERVER_MAX: u32 = 4;

/// What is told of work that was stopped.
pub(super) struct Gone {
    pub(super) left: Vec<String>,
    pub(super) took: Vec<(CallId, u64)>,
    pub(super) cut: Option<Partial>,
}

impl Session {
    /// The open turn, if this answer is the one it waits for; late answers of older attempts are stale.
    fn awaited(&self, (turn, step, attempt): (TurnId, u32, u32)) -> Result<&Turn, Refusal> {
        let open = self.turn.as_ref().filter(|open| open.id == turn && open.awaits_model());
        open.filter(|open| open.next_step() == step && open.next_attempt() == attempt).ok_or_else(Refusal::stale)
    }

    pub(super) fn model_done(
        &self,
        key: (TurnId, u32, u32),
        output: ModelOutput,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let model = self.awaited(key)?.model.clone();
        let mut draft = Draft::new(self, moment);
        let completed = ModelOutputCompleted {
            message_id: draft.moment.message_id(),
            step: key.1,
            attempt: key.2,
            model,
            text: output.text,
            thinking: output.thinking,
            tool_calls: output.calls,
            stop_reason: output.stop_reason,
            usage: output.usage,
            cost_micro_usd: output.cost,
        };
        draft.emit_in_turn(Actor::AGENT, completed);
        draft.go_on();
        Ok(draft.done())
    }

    pub(super) fn model_failed(
        &self,
        key: (TurnId, u32, u32),
        fault: Fault,
        partial: Partial,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let attempts = &self.awaited(key)?.attempts;
        let retry_at = next_try(attempts, &fault, moment);
        let why = given_up(attempts, &fault, moment);
        let mut draft = Draft::new(self, moment);
        draft.attempt_failed(key.1, key.2, fault.clone(), partial, retry_at);
        match retry_at {
            // The turn's time was up: it waits for more, or has got more meanwhile.
            None if fault.kind == FaultKind::Canceled => draft.open_step(),
            // The next attempt is a new request: the budget is looked at, and what waits to steer it goes along.
            Some(_) => draft.open_step(),
            None if fault.kind == FaultKind::ContextOverflow && self.may_compact() => {
                draft.compact(CompactTrigger::Overflow, true, None, Actor::POLICY);
            }
            None => draft.fail_turn(Actor::SYSTEM, fault.kind.code(), &why),
        }
        Ok(draft.done())
    }

    pub(super) fn tool_prepared(
        &self,
        turn: TurnId,
        id: CallId,
        intent: Result<Intent, String>,
        diff: Option<String>,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let open = self.turn.as_ref().filter(|open| open.id == turn && open.phase == Phase::Going);
        let open = open.ok_or_else(Refusal::stale)?;
        let index = open.calls.iter().position(|call| call.call.id == id && call.call.kind == ToolKind::Write);
        index.filter(|index| self.may_start(open, *index)).ok_or_else(Refusal::stale)?;
        let mut draft = Draft::new(self, moment);
        match intent {
            Ok(intent) => draft.start_or_review(id, intent, diff),
            Err(problem) => {
                draft.end_unrun(id, Outcome::NotRun, &problem);
                draft.go_on();
            }
        }
        Ok(draft.done())
    }

    pub(super) fn tool_done(
        &self,
        (turn, id, run): (TurnId, CallId, u32),
        outcome: Outcome,
        result: ToolResult,
        duration_ms: u64,
        moment: &mut Moment,
    ) -> Result<Decision, Refusal> {
        let open = self.turn.as_ref().filter(|open| open.id == turn);
        let call = open.and_then(|open| open.call(id)).ok_or_else(Refusal::stale)?;
        if !call.is_running() || call.runs != run {
            return Err(Refusal::stale());
        }
        let (name, origin) = (call.call.name.clone(), call.origin);
        let mut draft = Draft::new(self, moment);
        let done = ToolCallCompleted { tool_call_id: id, name, origin, outcome, result, duration_ms };
        draft.emit_in_turn(Actor::AGENT, done);
        draft.go_on();
        Ok(draft.done())
    }

    /// The turn has used up its time.
    pub(super) fn time_up(&self, id: TurnId, moment: &mut Moment) -> Result<Decision, Refusal> {
        let turn = self.turn.as_ref().filter(|turn| turn.id == id).ok_or_else(Refusal::stale)?;
        let is_up = self.time_up_at(turn).is_some_and(|at| at <= moment.at);
        let limit = self.budgets.max_duration_ms.filter(|_| is_up).ok_or_else(Refusal::stale)?;
        let used = turn.active_ms_at(moment.at);
        let mut draft = Draft::new(self, moment);
        draft.reach(Breach { budget: BudgetKind::Duration, limit, used });
        Ok(draft.done())
    }

    pub(super) fn approval_expired(&self, id: CallId, moment: &mut Moment) -> Result<Decision, Refusal> {
        let open = self.turn.as_ref().filter(|turn| !matches!(turn.phase, Phase::Stopping(_)));
        let call = open.and_then(|turn| turn.call(id)).ok_or_else(Refusal::stale)?;
        match call.state {
            CallState::Waiting { expires_at: Some(at) } if at <= moment.at => {}
            _ => return Err(Refusal::stale()),
        }
        let name = call.call.name.clone();
        let mut draft = Draft::new(self, moment);
        draft.emit_in_turn(Actor::POLICY, ApprovalExpired { tool_call_id: id, name });
        draft.end_unrun(id, Outcome::NotRun, "nobody answered in time, which counts as no");
        draft.go_on();
        Ok(draft.done())
    }

    pub(super) fn work_gone(&self, id: TurnId, gone: Gone, moment: &mut Moment) -> Result<Decision, Refusal> {
        let turn = self.turn.as_ref().filter(|turn| turn.id == id).ok_or_else(Refusal::stale)?;
        let Phase::Stopping(stop) = turn.phase.clone() else { return Err(Refusal::stale()) };
        let (step, attempt) = (turn.next_step(), turn.next_attempt());
        let Gone { left, took, cut } = gone;
        let mut draft = Draft::new(self, moment);
        if self.waits_for_compaction() {
            draft.stop_compaction(cut);
        } else if turn.calls.iter().any(|call| call.reviewing().is_some()) {
            draft.stop_review(cut);
        } else if let Some(partial) = cut {
            let fault = Fault::new(FaultKind::Canceled, "the turn was stopped");
            draft.attempt_failed(step, attempt, fault, partial, None);
        }
        draft.stopped(stop, left, &took);
        Ok(draft.done())
    }
}

impl Draft<'_> {
    pub(super) fn attempt_failed(
        &mut self,
        step: u32,
        attempt: u32,
        reason: Fault,
        partial: Partial,
        retry_at: Option<Timestamp>,
    ) {
        let Partial { text, thinking, usage, cost, begun } = partial;
        let failed =
            ModelAttemptFailed { step, attempt, reason, text, thinking, usage, cost_micro_usd: cost, begun, retry_at };
        self.emit_in_turn(Actor::SYSTEM, failed);
    }

    fn stopped(&mut self, stop: Stop, left: Vec<String>, took: &[(CallId, u64)]) {
        match stop {
            Stop::Expire(reached) => {
                self.close_calls("the budget was used up", took);
                let Some(turn) = &self.state.turn else { return };
                let (spent, cost_micro_usd) = (turn.spent, turn.spent.cost());
                self.checkpoint();
                self.emit_in_turn(Actor::POLICY, TurnExpired { reached, spent, cost_micro_usd });
                self.start_queued();
            }
            Stop::Cancel { reason, end_session } => {
                self.close_calls("the turn was canceled", took);
                let Some(turn) = &self.state.turn else { return };
                let (spent, cost_micro_usd) = (turn.spent, turn.spent.cost());
                self.checkpoint();
                let canceled = TurnCanceled { reason: reason.clone(), left, spent, cost_micro_usd };
                self.emit_in_turn(Actor::SYSTEM, canceled);
                match end_session {
                    true => self.end_canceled(reason),
                    false => self.start_queued(),
                }
            }
        }
    }

    fn end_canceled(&mut self, reason: Option<String>) {
        let queued: Vec<TurnId> = self.state.queue.iter().map(|queued| queued.id).collect();
        for id in queued {
            self.cancel_queued(id, reason.clone(), Actor::SYSTEM);
        }
        self.emit(Actor::SYSTEM, None, SessionCanceled { reason });
    }
}

/// What a fault comes to that is not tried again: a vendor may have asked for more time than it gets.
pub(super) fn given_up(attempts: &Attempts, fault: &Fault, moment: &Moment) -> String {
    let wait = fault.retry_after_ms.filter(|_| fault.kind.retryable() && attempts.failed + 1 < ATTEMPTS_MAX);
    match wait.filter(|wait| moment.at.plus_ms(*wait) > last_try(attempts, moment)) {
        Some(wait) => {
            let (wait, limit) = (minutes(wait), minutes(RETRYING_MS_MAX));
            format!("{}; the vendor asks to wait for {wait}, and a call is tried for {limit} at most", fault.message)
        }
        None => fault.message.clone(),
    }
}

/// A time for people, in whole minutes, rounded up.
fn minutes(ms: u64) -> String {
    let minutes = ms.div_ceil(60_000);
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes} min"),
        (hours, 0) => format!("{hours} h"),
        (hours, minutes) => format!("{hours} h {minutes} min"),
    }
}

/// When to try again, or `None` where that would not help or was tried enough.
pub(super) fn next_try(attempts: &Attempts, fault: &Fault, moment: &Moment) -> Option<Timestamp> {
    // Chance may mend what does not fit its schema, but seldom more than once.
    let may_help = match fault.kind {
        FaultKind::SchemaMismatch => attempts.failed + 1 < MISFITS_MAX,
        // One that was there a moment ago may come back; one that was never there is not waited for.
        FaultKind::NoServer => attempts.reached || attempts.failed + 1 < NO_SERVER_MAX,
        kind => kind.retryable(),
    };
    if !may_help || attempts.failed + 1 >= ATTEMPTS_MAX {
        return None;
    }
    let backoff = (BACKOFF_MS_FIRST << attempts.failed.min(10)).min(BACKOFF_MS_MAX);
    // A little chance keeps many sessions from trying at the same instant.
    let jittered = backoff + backoff * moment.permille() / 4000;
    let next = moment.at.plus_ms(fault.retry_after_ms.unwrap_or(jittered));
    (next <= last_try(attempts, moment)).then_some(next)
}

fn last_try(attempts: &Attempts, moment: &Moment) -> Timestamp {
    attempts.first_failed_at.unwrap_or(moment.at).plus_ms(RETRYING_MS_MAX)
}

//! After a crash or a stop: what was cut is named, classed and, where the policy says so, goes on.

use super::Draft;
use crate::{
    command::Partial,
    event::{Actor, ClassedCall, ToolCallCompleted, TurnInterrupted, TurnResumed},
    ids::CallId,
    model::{Fault, FaultKind},
    policy::Resume,
    session::{AUTO_RESUMES_MAX, Call, CallState, Decision, Effect, Phase, Session},
    time::{Moment, Timestamp},
    tool::{CallClass, Outcome, ToolKind, ToolResult},
};

impl Session {
    /// A turn whose model call or tool was cut is interrupted; one that only waits stays as it is. One that waits behind
    /// nothing, as a log from elsewhere may have it, starts.
    pub(super) fn recover(
        &self,
        classes: &[(CallId, CallClass)],
        restore: Option<CallClass>,
        partial: Partial,
        seen: Option<Timestamp>,
        moment: &mut Moment,
    ) -> Decision {
        let mut draft = Draft::new(self, moment);
        let cut_summary = draft.cut_compaction(partial.cost);
        let cut_review = draft.cut_review(partial.cost);
        draft.cut_restore(restore);
        let Some(turn) = &self.turn else {
            draft.start_queued();
            return draft.done();
        };
        let (awaits, waits) = (turn.awaits_model(), self.waits_for_compaction());
        let cut_model = awaits && !waits && turn.attempts.not_before.is_none_or(|at| at <= draft.moment.at);
        let cut_calls: Vec<&Call> = turn.calls.iter().filter(|call| call.is_running()).collect();
        // A write that was being prepared did nothing yet, but its turn was at work: it is cut as well.
        let cut_preparation = self.wanted().iter().any(|effect| matches!(effect, Effect::PrepareTool { .. }));
        let runs = matches!(turn.phase, Phase::Going | Phase::Budget(_));
        let cut_wait = awaits && waits && cut_summary;
        if !runs || (!cut_model && !cut_wait && !cut_preparation && !cut_review && cut_calls.is_empty()) {
            return draft.done();
        }
        if cut_model {
            let fault = Fault::new(FaultKind::Interrupted, "the daemon was stopped while the model was answering");
            draft.attempt_failed(turn.next_step(), turn.next_attempt(), fault, partial, None);
        }
        let calls: Vec<ClassedCall> = cut_calls.iter().map(|call| classed(call, classes)).collect();
        let active_ms = seen.map_or(0, |at| turn.active_ms_at(at) - turn.spent.active_ms);
        draft.emit_in_turn(Actor::SYSTEM, TurnInterrupted { calls: calls.clone(), active_ms });
        for call in calls.iter().filter(|call| call.class == CallClass::Finished) {
            draft.tell_finished(call.tool_call_id);
        }
        draft.resume_by_policy();
        draft.done()
    }
}

fn classed(call: &Call, classes: &[(CallId, CallClass)]) -> ClassedCall {
    let found = classes.iter().find(|(id, _)| *id == call.call.id).map(|(_, class)| *class);
    // Only write calls leave traces that can be looked at.
    let class = found.filter(|_| call.call.kind == ToolKind::Write).unwrap_or(CallClass::Unknown);
    ClassedCall { tool_call_id: call.call.id, name: call.call.name.clone(), class }
}

impl Draft<'_> {
    fn tell_finished(&mut self, id: CallId) {
        let Some(call) = self.state.turn.as_ref().and_then(|turn| turn.call(id)) else { return };
        let done = ToolCallCompleted {
            tool_call_id: id,
            name: call.call.name.clone(),
            origin: call.origin,
            outcome: Outcome::Finished,
            result: ToolResult::ok(
                "done; the daemon was stopped before it could tell, and found it complete afterwards",
            ),
            duration_ms: 0,
        };
        self.emit_in_turn(Actor::SYSTEM, done);
    }

    fn resume_by_policy(&mut self) {
        let Some(turn) = &self.state.turn else { return };
        let unknown = turn.calls.iter().any(|call| call.state == CallState::Unknown);
        let resumes = match self.state.policy.recovery.resume {
            Resume::Ask => false,
            Resume::Safe => !unknown,
            Resume::Always => true,
        };
        if resumes && turn.auto_resumes < AUTO_RESUMES_MAX {
            self.emit_in_turn(Actor::SYSTEM, TurnResumed { automatic: true });
            self.go_on();
        }
    }
}

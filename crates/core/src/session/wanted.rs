//! What the state asks for. The one road for start, resume, cancel, retry and recovery.

use crate::{
    ids::{CallId, TurnId},
    policy::{PatchReview, RuleAction},
    session::{Attempts, Call, CallState, Life, Phase, RestoringPhase, Review, Session, Turn},
    time::Timestamp,
    tool::{ToolKind, VerifySource},
};

/// Work that should be under way, under a stable key: the effect itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    CallModel {
        turn: TurnId,
        step: u32,
        attempt: u32,
        not_before: Option<Timestamp>,
    },
    /// Summarizes the older part of the context.
    Compact {
        attempt: u32,
        not_before: Option<Timestamp>,
    },
    /// Finds out what a write call would do, without doing it.
    PrepareTool {
        turn: TurnId,
        call: CallId,
    },
    /// Asks a model whether what a write call would do is good.
    ReviewChange {
        turn: TurnId,
        call: CallId,
        attempt: u32,
        not_before: Option<Timestamp>,
    },
    RunTool {
        turn: TurnId,
        call: CallId,
        run: u32,
    },
    /// Ends what the turn does when it has used up its time, and tells.
    TimeUp {
        turn: TurnId,
        at: Timestamp,
    },
    /// Tells when the time has come at which an approval expires.
    Wake {
        call: CallId,
        at: Timestamp,
    },
    /// Sees that nothing of the turn runs any more, and tells.
    ReportGone {
        turn: TurnId,
    },
    /// Finds out whether a turn's changes can be taken back, without touching a file. The undo is named by its event.
    PrepareRestore {
        undo: u64,
    },
    /// Takes them back.
    RestoreWorkspace {
        undo: u64,
    },
}

/// Who looks at a change before it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reviewer {
    Person,
    Model,
}

impl Session {
    /// All effects that should be under way now; whatever else runs is to be stopped.
    pub fn wanted(&self) -> Vec<Effect> {
        if self.life != Life::Open {
            return Vec::new();
        }
        let time_up = |turn| self.time_up_at(turn).map(|at| Effect::TimeUp { turn: turn.id, at });
        let mut wanted: Vec<Effect> = self.turn.iter().filter_map(time_up).collect();
        wanted.extend(self.turn.iter().flat_map(|turn| self.wanted_by(turn)));
        wanted.extend(self.compacting().map(|compaction| Effect::Compact {
            attempt: compaction.attempts.made + 1,
            not_before: compaction.attempts.not_before,
        }));
        wanted.extend(self.restoring.as_ref().map(|restoring| match restoring.phase {
            RestoringPhase::Preparing => Effect::PrepareRestore { undo: restoring.undo },
            RestoringPhase::Started { .. } => Effect::RestoreWorkspace { undo: restoring.undo },
        }));
        wanted
    }

    fn wanted_by(&self, turn: &Turn) -> Vec<Effect> {
        match &turn.phase {
            // A turn that waits for something else starts nothing, but an approval's time passes all the same.
            Phase::Budget(_) | Phase::Interrupted => running_calls(turn).chain(approvals(turn)).collect(),
            Phase::Stopping(_) => vec![Effect::ReportGone { turn: turn.id }],
            Phase::Going if turn.awaits_model() && self.waits_for_compaction() => Vec::new(),
            Phase::Going if turn.awaits_model() => vec![Effect::CallModel {
                turn: turn.id,
                step: turn.next_step(),
                attempt: turn.next_attempt(),
                not_before: turn.attempts.not_before,
            }],
            Phase::Going => {
                let calls = running_calls(turn).chain(approvals(turn)).chain(reviews(turn));
                calls.chain(self.preparations(turn)).collect()
            }
        }
    }

    /// When the turn's time is used up, if it passes: not while it waits for people alone.
    pub(super) fn time_up_at(&self, turn: &Turn) -> Option<Timestamp> {
        let limit = self.budgets.max_duration_ms.filter(|_| turn.is_active())?;
        Some(turn.clock.plus_ms(limit.saturating_sub(turn.spent.active_ms)))
    }

    fn preparations<'a>(&'a self, turn: &'a Turn) -> impl Iterator<Item = Effect> + 'a {
        turn.calls.iter().enumerate().filter_map(|(index, call)| {
            let ready = call.call.kind == ToolKind::Write && self.may_start(turn, index);
            ready.then_some(Effect::PrepareTool { turn: turn.id, call: call.call.id })
        })
    }

    /// Whether policy and order let this call start now.
    pub(super) fn may_start(&self, turn: &Turn, index: usize) -> bool {
        let call = &turn.calls[index];
        let cleared = match call.state {
            CallState::Cleared => true,
            CallState::Asked => {
                let judged = self.judge(call);
                let may = judged == RuleAction::Allow || (judged == RuleAction::Ask && self.is_shown_first(call));
                call.call.problem.is_none() && may
            }
            CallState::Waiting { .. }
            | CallState::Reviewing { .. }
            | CallState::Started { .. }
            | CallState::Unknown
            | CallState::Done { .. } => false,
        };
        cleared && turn.calls[..index].iter().all(|earlier| earlier.is_done() || side_by_side(earlier, call))
    }

    /// What policy and earlier answers say of a call.
    pub(super) fn judge(&self, call: &Call) -> RuleAction {
        let named = |list: &[(String, String)]| {
            list.iter().any(|(tool, subject)| *tool == call.call.name && *subject == call.call.subject)
        };
        if named(&self.denials) {
            return RuleAction::Deny;
        }
        match self.policy.approval.judge(&call.call.name, call.call.kind, &call.call.subject) {
            RuleAction::Ask if named(&self.grants) => RuleAction::Allow,
            // Verification commands the user chose run unasked; those of the workspace are asked for.
            RuleAction::Ask if call.call.name == "verify" && self.is_trusted(&call.call.subject) => RuleAction::Allow,
            action => action,
        }
    }

    /// Whether a person who is asked for this call is shown what it would change, and so is asked once that is known.
    pub(super) fn is_shown_first(&self, call: &Call) -> bool {
        let policy = &self.policy;
        call.call.kind == ToolKind::Write && policy.patch_review == PatchReview::Request && policy.approval.attended
    }

    /// Who has to look at this change before it is made.
    pub(super) fn reviewer(&self, call: &Call, digest: &str) -> Option<Reviewer> {
        let asks = match (&call.review, self.policy.patch_review) {
            (_, PatchReview::Off) => return None,
            (Review::Shown { digest: shown }, _) if shown == digest => return None,
            (Review::Shown { .. }, PatchReview::Request) => Reviewer::Person,
            // Who allowed this call before it was to be shown, or before the reviewer failed, is not asked twice.
            (Review::GivenUp, _) | (_, PatchReview::Request)
                if self.answered.iter().any(|answered| answered.call == call.call.id) =>
            {
                return None;
            }
            (Review::GivenUp, _) | (_, PatchReview::Request) => Reviewer::Person,
            (Review::None | Review::Shown { .. }, PatchReview::Auto) => Reviewer::Model,
        };
        // Who allowed such calls for the whole session has seen enough of them.
        let granted =
            self.grants.iter().any(|(tool, subject)| *tool == call.call.name && *subject == call.call.subject);
        (!granted).then_some(asks)
    }

    fn is_trusted(&self, commands: &str) -> bool {
        self.verify_plan().is_some_and(|plan| {
            matches!(plan.source, VerifySource::Config | VerifySource::Policy) && plan.subject() == commands
        })
    }
}

fn running_calls(turn: &Turn) -> impl Iterator<Item = Effect> + '_ {
    let started = turn.calls.iter().filter(|call| call.is_running());
    started.map(|call| Effect::RunTool { turn: turn.id, call: call.call.id, run: call.runs })
}

fn reviews(turn: &Turn) -> impl Iterator<Item = Effect> + '_ {
    turn.calls.iter().filter_map(|call| {
        let Attempts { made, not_before, .. } = call.reviewing()?;
        let (attempt, not_before) = (made + 1, *not_before);
        Some(Effect::ReviewChange { turn: turn.id, call: call.call.id, attempt, not_before })
    })
}

fn approvals(turn: &Turn) -> impl Iterator<Item = Effect> + '_ {
    turn.calls.iter().filter_map(|call| match call.state {
        CallState::Waiting { expires_at: Some(at) } => Some(Effect::Wake { call: call.call.id, at }),
        _ => None,
    })
}

/// Only `read` calls run beside each other.
fn side_by_side(earlier: &Call, call: &Call) -> bool {
    earlier.call.kind == ToolKind::Read && call.call.kind == ToolKind::Read
}

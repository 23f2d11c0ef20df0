//! The state of a session: the fold of its log. Bodies stay in the log and are held by reference.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    budget::{Breach, Budgets, Spent},
    command::{Answer, Verdict},
    event::{CallOrigin, CompactTrigger, Verification},
    ids::{CallId, MessageId, SessionId, TurnId},
    message::{Attachment, MessageRef},
    model::is_zero,
    policy::{Policy, Scope},
    time::Timestamp,
    tool::{Intent, ToolCall, VerifyPlan, VerifySource},
};

mod apply;
mod checkpoint;
mod decide;
mod wanted;

pub use checkpoint::{Checkpoint, CheckpointState, Restoring, RestoringPhase, Written};
pub use decide::{Decision, LOG_DAMAGED, create, fail_damaged, fork};
pub use wanted::Effect;

/// Turns that wait behind the open one.
pub const QUEUE_MAX: usize = 32;
/// Messages appended without a turn that one turn can take in.
pub const UNSENT_MAX: usize = 256;
/// Settled turns that the state remembers.
pub const SETTLED_MAX: usize = 64;
/// Answered approvals that the state remembers, to tell the loser of a race who won.
pub const ANSWERED_MAX: usize = 64;
/// Calls that a session remembers as allowed, and as forbidden.
pub const GRANTS_MAX: usize = 256;
/// Files that one session may be given.
pub const ATTACHMENTS_MAX: usize = 256;
/// Turns that can be taken back, the last ones.
pub const CHECKPOINTS_MAX: usize = 64;
/// Files that those have changed, all together.
pub const CHECKPOINT_PATHS_MAX: usize = 8192;
/// Files that one turn may change and still be taken back.
pub const WRITTEN_MAX: usize = 2048;
/// How long an idempotency key is kept.
pub const KEY_KEPT_MS: u64 = 24 * 60 * 60 * 1000;
/// Automatic resumes without progress.
pub const AUTO_RESUMES_MAX: u32 = 3;
/// Attempts at one model step.
pub const ATTEMPTS_MAX: u32 = 10;
/// Compactions of one step's context that a vendor still refuses as too long.
pub const COMPACTIONS_MAX: u32 = 2;
/// Attempts at a summary that a vendor refuses as too long; each reads half as much as the one before.
pub const SUMMARY_OVERFLOWS_MAX: u32 = 5;
/// How long one model step is retried.
pub const RETRYING_MS_MAX: u64 = 15 * 60 * 1000;

/// What a session was created with.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Settings {
    pub workspace_path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    pub auto_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    pub model: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    #[serde(skip_serializing_if = "serde_json::Value::is_null")]
    pub preferences: serde_json::Value,
    /// What the last text of a turn has to fit, as a JSON Schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<serde_json::Value>,
    /// The session, turn and call that started this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Parent {
    pub session_id: SessionId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<TurnId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<CallId>,
}

/// Where a session's log was copied from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    pub session_id: SessionId,
    pub seq: u64,
}

/// Events that a repair of the log could not bring back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The first of them.
    pub from_seq: u64,
    pub events: u64,
    /// Why the first one is gone.
    pub reason: String,
}

impl Lost {
    /// One more is gone, after those that are known.
    pub fn add(lost: &mut Option<Lost>, seq: u64, reason: &str) {
        match lost {
            Some(lost) => lost.events += 1,
            None => *lost = Some(Lost { from_seq: seq, events: 1, reason: reason.to_owned() }),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    pub id: SessionId,
    /// The last event's number.
    pub seq: u64,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub settings: Settings,
    pub policy: Policy,
    pub budgets: Budgets,
    pub life: Life,
    /// The one open turn.
    pub turn: Option<Turn>,
    pub queue: VecDeque<QueuedTurn>,
    /// Messages no turn has taken in yet.
    pub unsent: Vec<MessageRef>,
    pub last_turn_id: Option<TurnId>,
    pub settled: VecDeque<SettledTurn>,
    /// Calls a person allowed for the whole session: tool and subject.
    pub grants: Vec<(String, String)>,
    /// Calls a person forbade for the whole session.
    pub denials: Vec<(String, String)>,
    pub answered: VecDeque<Answered>,
    /// What was last read from the workspace, by digest, and the verification it gave.
    pub seed: Option<Seed>,
    /// The tools that are offered beside those built in, by the digest of what was last recorded of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<String>,
    /// The workspace is new to the session: the turn that is open, or the next one, is told of it in brief.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bundle_due: bool,
    /// The first event that the present context holds.
    pub context_from: u64,
    /// The older part of the context is being summarized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compaction>,
    /// Tokens of the context when it was last compacted, or could not be: what did not help is not repeated at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub compacted_to: u64,
    /// What settled turns and children have used.
    pub total: Spent,
    pub children: Vec<SessionId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// What the last turns did to files, oldest first.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub checkpoints: VecDeque<Checkpoint>,
    /// A turn's changes are being taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restoring: Option<Restoring>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forked_from: Option<Origin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<Lost>,
    /// Idempotency keys of the last 24 hours, by endpoint and key.
    pub keys: Arc<BTreeMap<String, KeyRecord>>,
}

/// How a key is kept: no endpoint's name holds a space.
fn key_name(endpoint: &str, key: &str) -> String {
    format!("{endpoint} {key}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    Open,
    Completed,
    Failed,
    Canceled,
    Expired,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeyRecord {
    pub digest: String,
    pub answer: Answer,
    pub at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seed {
    pub seq: u64,
    pub digest: String,
    pub verify: Option<VerifyPlan>,
}

/// A compaction under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compaction {
    pub trigger: CompactTrigger,
    /// The open turn waits for it, and takes it along when it is stopped.
    pub blocking: bool,
    /// Tokens of the context, where they were measured.
    pub tokens: Option<u64>,
    pub attempts: Attempts,
    /// Attempts that were themselves too long for the model: the next one reads less.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub overflows: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueuedTurn {
    pub id: TurnId,
    pub messages: Vec<MessageRef>,
    pub retry_of: Option<TurnId>,
    pub queued_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettledTurn {
    pub id: TurnId,
    /// What is usual is left out of snapshots, which hold many of these.
    #[serde(default = "completed", skip_serializing_if = "is_completed")]
    pub status: TurnStatus,
    #[serde(rename = "of")]
    pub messages: Vec<MessageRef>,
    /// The event that settled it.
    pub seq: u64,
}

fn completed() -> TurnStatus {
    TurnStatus::Completed
}

fn is_completed(status: &TurnStatus) -> bool {
    *status == TurnStatus::Completed
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    pub call: CallId,
    pub verdict: Verdict,
    pub scope: Scope,
    pub seq: u64,
}

/// The open turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    pub id: TurnId,
    pub messages: Vec<MessageRef>,
    pub retry_of: Option<TurnId>,
    pub model: String,
    pub started_at: Timestamp,
    pub started_seq: u64,
    pub phase: Phase,
    /// Model steps that came to their end.
    pub step: u32,
    /// The last reply, by reference.
    pub last_output: Option<LastOutput>,
    /// Calls of the present step, and the verification after it.
    pub calls: Vec<Call>,
    /// The present step's failed attempts.
    pub attempts: Attempts,
    pub steers: Vec<MessageRef>,
    pub spent: Spent,
    /// Up to when `spent.active_ms` is counted.
    pub clock: Timestamp,
    /// Something was written since the last verification.
    pub dirty: bool,
    pub verification: Verification,
    pub verify_failures: u32,
    pub auto_resumes: u32,
    /// Compactions since the last reply: one that does not help is not repeated for ever.
    #[serde(default, skip_serializing_if = "is_none_yet")]
    pub compactions: u32,
    /// How the vendor refused the present request as too long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_long: Option<String>,
    /// What its calls did to files so far.
    #[serde(default, skip_serializing_if = "Written::is_nothing")]
    pub written: Written,
}

fn is_none_yet(count: &u32) -> bool {
    *count == 0
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastOutput {
    pub message_id: MessageId,
    pub seq: u64,
    /// It asked for no tool.
    pub is_final: bool,
}

/// Attempts at the step under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempts {
    /// All attempts that ended without a reply, crashes included.
    pub made: u32,
    /// Those that count against the limit.
    pub failed: u32,
    /// The model's server was there at some time in this turn.
    #[serde(default)]
    pub reached: bool,
    pub first_failed_at: Option<Timestamp>,
    pub not_before: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It goes on: a model call, an approval or a tool is what it waits for.
    Going,
    /// A budget was met; raising it lets the turn go on.
    Budget(Breach),
    /// A crash cut it; `resume` lets it go on.
    Interrupted,
    /// Its work is being stopped.
    Stopping(Stop),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    Cancel { reason: Option<String>, end_session: bool },
    Expire(Breach),
}

/// One call of the present step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    #[serde(flatten)]
    pub call: ToolCall,
    pub origin: CallOrigin,
    pub state: CallState,
    /// Times it was started.
    pub runs: u32,
    #[serde(default, skip_serializing_if = "Review::is_none")]
    pub review: Review,
}

/// How far the review of a call's change has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Review {
    /// Nobody has been shown what it would change.
    #[default]
    None,
    /// Whoever was asked was shown the change with this digest. Their yes is for that one alone.
    Shown { digest: String },
    /// The model that should look at it could not: a person is asked.
    GivenUp,
}

impl Review {
    fn is_none(&self) -> bool {
        *self == Review::None
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Asked for; policy or its place in the order has not let it start yet.
    Asked,
    /// A person is asked.
    Waiting {
        expires_at: Option<Timestamp>,
    },
    /// A model looks at what it would change, which the event with this number tells.
    Reviewing {
        seq: u64,
        attempts: Attempts,
    },
    /// A person or a reviewing model said yes.
    Cleared,
    /// Its intent is recorded.
    Started {
        intent: Intent,
    },
    /// A crash cut it and nobody can tell what it did.
    Unknown,
    Done {
        ok: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    Pending,
    Running,
    WaitingApproval,
    WaitingBudget,
    Completed,
    Failed,
    Cancelled,
    Expired,
    Interrupted,
}

impl TurnStatus {
    pub fn is_settled(self) -> bool {
        use TurnStatus::*;
        match self {
            Completed | Failed | Cancelled | Expired => true,
            Pending | Running | WaitingApproval | WaitingBudget | Interrupted => false,
        }
    }
}

impl Turn {
    pub fn status(&self) -> TurnStatus {
        match &self.phase {
            Phase::Budget(_) => TurnStatus::WaitingBudget,
            Phase::Interrupted => TurnStatus::Interrupted,
            Phase::Going if self.calls.iter().any(|call| matches!(call.state, CallState::Waiting { .. })) => {
                TurnStatus::WaitingApproval
            }
            Phase::Going | Phase::Stopping(_) => TurnStatus::Running,
        }
    }

    /// Whether its time passes: something of it is at work. A call that runs is, also while a person is asked of another.
    pub fn is_active(&self) -> bool {
        self.phase == Phase::Going && (self.status() == TurnStatus::Running || self.calls.iter().any(Call::is_running))
    }

    /// For how long it has been active at a time after its last event. Waiting for people alone does not count.
    pub fn active_ms_at(&self, at: Timestamp) -> u64 {
        let passed = u64::try_from(at.since(self.clock).as_millis()).unwrap_or(u64::MAX);
        self.spent.active_ms.saturating_add(if self.is_active() { passed } else { 0 })
    }

    pub fn call(&self, id: CallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.call.id == id)
    }

    /// Whether the next thing is a reply of the model.
    pub fn awaits_model(&self) -> bool {
        self.phase == Phase::Going && self.calls.iter().all(Call::is_done)
    }

    /// The number of the step under way.
    pub fn next_step(&self) -> u32 {
        self.step + 1
    }

    /// The number of the attempt under way.
    pub fn next_attempt(&self) -> u32 {
        self.attempts.made + 1
    }
}

impl Call {
    /// As it enters its turn.
    pub(crate) fn asked(call: ToolCall, origin: CallOrigin) -> Self {
        Self { call, origin, state: CallState::Asked, runs: 0, review: Review::None }
    }

    pub fn is_done(&self) -> bool {
        matches!(self.state, CallState::Done { .. })
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, CallState::Started { .. })
    }

    /// The attempts at a review that is under way.
    pub fn reviewing(&self) -> Option<&Attempts> {
        match &self.state {
            CallState::Reviewing { attempts, .. } => Some(attempts),
            _ => None,
        }
    }
}

impl Session {
    /// Whether a command of this endpoint was taken under this key.
    pub fn knows_key(&self, endpoint: &str, key: &str) -> bool {
        self.keys.contains_key(&key_name(endpoint, key))
    }

    /// What all its turns have used, the open one included.
    pub fn spent(&self) -> Spent {
        let mut spent = self.total;
        if let Some(turn) = &self.turn {
            spent.add(&turn.spent);
        }
        spent
    }

    /// The status on the wire, as S1 names it.
    pub fn status(&self) -> &'static str {
        match self.life {
            Life::Completed => "completed",
            Life::Failed => "failed",
            Life::Canceled => "canceled",
            Life::Expired => "expired",
            Life::Open => match &self.turn {
                Some(turn) if turn.status() == TurnStatus::WaitingApproval => "waiting_approval",
                _ => "active",
            },
        }
    }

    /// The verification commands that hold now, and where they came from.
    pub fn verify_plan(&self) -> Option<VerifyPlan> {
        match &self.policy.verify.commands {
            Some(commands) if commands.is_empty() => None,
            Some(commands) => Some(VerifyPlan { source: VerifySource::Policy, commands: commands.clone() }),
            None => self.seed.as_ref().and_then(|seed| seed.verify.clone()),
        }
    }

    /// What a `verify` call runs: the very text that was shown, asked for or trusted, whatever has changed since.
    pub fn plan_of(&self, call: &Call) -> Option<VerifyPlan> {
        let plan = self.verify_plan()?;
        match call.origin {
            CallOrigin::Model => Some(plan).filter(|plan| plan.subject() == call.call.subject),
            CallOrigin::VerifyPolicy => {
                let commands = call.call.input.get("commands")?.as_array()?;
                let commands = commands.iter().filter_map(|command| command.as_str().map(str::to_owned)).collect();
                Some(VerifyPlan { source: plan.source, commands })
            }
        }
    }

    /// Whether anything is left to do or to answer.
    pub fn is_pending(&self) -> bool {
        self.turn.is_some() || self.compaction.is_some() || self.restoring.is_some()
    }

    /// Whether the open turn waits for a shorter context.
    pub fn waits_for_compaction(&self) -> bool {
        self.compaction.as_ref().is_some_and(|compaction| compaction.blocking)
    }

    /// The compaction that is under way now: one that its turn waits for rests and stops with that.
    pub fn compacting(&self) -> Option<&Compaction> {
        let rests =
            self.turn.as_ref().is_some_and(|turn| matches!(turn.phase, Phase::Interrupted | Phase::Stopping(_)));
        self.compaction.as_ref().filter(|compaction| !(rests && compaction.blocking))
    }

    /// The status of a turn that the state still knows.
    pub fn turn_status(&self, id: TurnId) -> Option<TurnStatus> {
        if let Some(turn) = self.turn.as_ref().filter(|turn| turn.id == id) {
            return Some(turn.status());
        }
        if self.queue.iter().any(|queued| queued.id == id) {
            return Some(TurnStatus::Pending);
        }
        self.settled.iter().find(|settled| settled.id == id).map(|settled| settled.status)
    }
}

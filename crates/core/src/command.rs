//! What is asked of a session: commands from people, answers from effects, and what they get back.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    budget::Budgets,
    event::{Actor, ContextCompacted, ContextSeeded, RefusedFile, ToolsOffered},
    ids::{CallId, MessageId, TurnId},
    message::{Attachment, Delivery, Part, Role},
    model::{Block, Fault, MicroUsd, StopReason, Thinking, Usage},
    policy::{Policy, Scope},
    time::Timestamp,
    tool::{CallClass, Intent, Outcome, ToolCall, ToolResult},
};

/// A request from outside. It may be refused; a refusal changes nothing.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    SendMessage {
        role: Role,
        parts: Vec<Part>,
        delivery: Delivery,
        /// `None`: as the session was created.
        auto_run: Option<bool>,
    },
    /// Starts a turn over messages that were only appended.
    StartTurn,
    /// Answers one approval.
    Answer {
        turn_id: Option<TurnId>,
        call: CallId,
        verdict: Verdict,
        scope: Scope,
        reason: Option<String>,
    },
    /// Cancels the open turn, or the named one.
    Cancel {
        turn_id: Option<TurnId>,
        reason: Option<String>,
    },
    /// A new turn with the same input, pointing back.
    Retry {
        turn_id: TurnId,
    },
    /// An interrupted turn goes on.
    Resume {
        turn_id: TurnId,
    },
    Update(Box<Update>),
    /// A file whose bytes are durable beside the log.
    Attach {
        attachment: Attachment,
    },
    /// Summarizes the older part of the context.
    Compact,
    /// Takes back what a settled turn did to files: the named one, or the last that can be.
    Undo {
        turn_id: Option<TurnId>,
    },
    End {
        reason: Option<String>,
    },
}

/// What is to be changed of a session; what is not said stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Update {
    pub title: Option<String>,
    pub policy: Option<Policy>,
    pub labels: Option<Vec<String>>,
    /// Not while a turn is open; the same holds for the folder.
    pub model: Option<String>,
    pub workspace_path: Option<String>,
    /// Only raising is allowed.
    pub budgets: Option<Budgets>,
    /// The last event the caller has seen; another one since then refuses the update.
    pub if_match: Option<u64>,
    /// A digest of what the caller said, where that was laid over the present settings: the same words under the same
    /// key are the same request, whatever the settings are by then.
    pub said: Option<String>,
}

impl Command {
    /// The endpoint an idempotency key is scoped to.
    pub fn endpoint(&self) -> &'static str {
        match self {
            Command::SendMessage { .. } => "messages",
            Command::StartTurn => "turns",
            Command::Answer { .. } => "approve",
            Command::Cancel { .. } => "cancel",
            Command::Retry { .. } => "retry",
            Command::Resume { .. } => "resume",
            Command::Update(_) => "update",
            Command::Attach { .. } => "attachments",
            Command::Compact => "compact",
            Command::Undo { .. } => "undo",
            Command::End { .. } => "end",
        }
    }

    /// A digest of all it says, to tell a repeated command from another one under the same key.
    pub fn digest(&self) -> String {
        let said = match self {
            Command::Update(update) => update.said.clone(),
            _ => None,
        };
        said.unwrap_or_else(|| digest_of(self))
    }
}

/// The digest of anything that can be written as JSON.
pub fn digest_of(value: &impl Serialize) -> String {
    let bytes = serde_json::to_vec(value).unwrap_or_default();
    blake3::hash(&bytes).to_hex()[..32].to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Approve,
    Deny,
}

/// A key and the answer its command got, as the log keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeyUse {
    pub endpoint: String,
    pub key: String,
    pub digest: String,
    pub answer: Answer,
}

/// What a command that was taken gets back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Message {
        message_id: MessageId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
    },
    Turn {
        turn_id: TurnId,
    },
    Approval {
        tool_call_id: CallId,
        verdict: Verdict,
        scope: Scope,
    },
    Canceling {
        turn_id: TurnId,
    },
    Updated {
        seq: u64,
    },
    Attached {
        attachment: Attachment,
    },
    /// It is under way; `context_compacted` or `compaction_failed` follows.
    Compacting {
        seq: u64,
    },
    /// It is under way; `workspace_restored` follows.
    Undoing {
        turn_id: TurnId,
        seq: u64,
    },
    Ended {
        status: String,
    },
}

/// A model's whole reply to one request, put together by the engine from what was shown.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelOutput {
    pub text: String,
    pub thinking: Vec<Thinking>,
    pub calls: Vec<ToolCall>,
    /// In which order they came, where that is not the usual one.
    pub order: Vec<Block>,
    pub stop_reason: StopReason,
    pub usage: Usage,
    pub cost: Option<MicroUsd>,
    /// What the request was guessed to have, to learn from; 0 where nobody guessed.
    pub guessed_tokens: u64,
}

/// A model's whole answer on a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Review {
    pub verdict: Verdict,
    pub reason: String,
    pub usage: Usage,
    pub cost: Option<MicroUsd>,
}

/// What a reply had shown and used up when it was cut.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partial {
    pub text: String,
    pub thinking: String,
    pub usage: Usage,
    /// `None` where it is not known; of a call that was cut that is not the same as nothing.
    pub cost: Option<MicroUsd>,
    /// Whether something of it had come that was not counted: that is not for nothing.
    pub begun: bool,
}

/// Everything a session can be told.
#[derive(Debug, Clone)]
pub enum Input {
    Command {
        command: Command,
        actor: Actor,
        key: Option<String>,
    },
    /// What was read from the workspace before a model call.
    ContextFound(ContextSeeded),
    /// What can be offered beside the built-in tools, before a model call.
    ToolsFound(ToolsOffered),
    /// How much of the window the next request would take.
    ContextMeasured {
        turn: TurnId,
        tokens: u64,
        window: u64,
    },
    /// The summary that a `Compact` effect was to make.
    Compacted {
        attempt: u32,
        compacted: ContextCompacted,
    },
    CompactFailed {
        attempt: u32,
        fault: Fault,
        /// What it used up; a summary that is not whole is shown to nobody.
        partial: Partial,
    },
    ModelDone {
        turn: TurnId,
        step: u32,
        attempt: u32,
        output: ModelOutput,
    },
    ModelFailed {
        turn: TurnId,
        step: u32,
        attempt: u32,
        fault: Fault,
        partial: Partial,
    },
    /// A write call's intent, or why it cannot be done.
    ToolPrepared {
        turn: TurnId,
        call: CallId,
        intent: Result<Intent, String>,
        /// What it would change, where that is to be reviewed.
        diff: Option<String>,
    },
    /// What a model says of a change.
    Reviewed {
        turn: TurnId,
        call: CallId,
        attempt: u32,
        review: Review,
    },
    ReviewFailed {
        turn: TurnId,
        call: CallId,
        attempt: u32,
        fault: Fault,
        partial: Partial,
    },
    ToolDone {
        turn: TurnId,
        call: CallId,
        run: u32,
        /// It came to its end, or was stopped at the turn's time limit.
        outcome: Outcome,
        result: ToolResult,
        duration_ms: u64,
    },
    /// The time of an effect `TimeUp` has come, and nothing of the turn runs any more.
    TimeUp {
        turn: TurnId,
    },
    /// The time of an effect `Wake` has come.
    Woke {
        call: CallId,
    },
    /// All work of a stopped turn is gone, but for what is named in `left`.
    WorkGone {
        turn: TurnId,
        left: Vec<String>,
        /// How long calls ran that were stopped.
        took: Vec<(CallId, u64)>,
        /// The model call that was stopped with it, or the summary that the turn waited for.
        cut: Option<Partial>,
    },
    /// Whether a turn's files can be put back, and how; the undo is named by its first event.
    RestorePrepared {
        undo: u64,
        prepared: Result<PreparedRestore, Vec<RefusedFile>>,
    },
    /// All files were put back, or none.
    RestoreDone {
        undo: u64,
        done: Result<(), FailedRestore>,
    },
    /// The session was loaded after a crash or stop; open calls were looked at.
    Recover {
        classes: Vec<(CallId, CallClass)>,
        /// What became of putting files back, where that had begun.
        restore: Option<CallClass>,
        partial: Partial,
        /// When the open turn last showed something.
        seen: Option<Timestamp>,
    },
    /// The sweeper saw no event for this long.
    Expire {
        idle_ms: u64,
    },
}

/// What putting a turn's files back would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreparedRestore {
    pub intent: Intent,
    /// Files that changed while the turn ran and are not the turn's.
    pub not_undone: Vec<String>,
    pub more_not_undone: bool,
}

/// Why files were not put back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FailedRestore {
    /// Nothing was changed.
    Nothing(Vec<RefusedFile>),
    /// Some were, and those could not be changed again.
    InPart(Vec<RefusedFile>),
}

/// Why a command was refused: the asker's fault, with a stable code.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub code: &'static str,
    pub message: String,
    pub hint: &'static str,
    /// Further facts, such as the first answer to an approval.
    pub detail: Value,
}

impl Refusal {
    pub fn new(code: &'static str, message: impl Into<String>, hint: &'static str) -> Self {
        Self { code, message: message.into(), hint, detail: Value::Null }
    }

    /// A late answer of work that is no longer wanted; nobody is to blame.
    pub fn stale() -> Self {
        Self::new("stale", "this work is no longer wanted", "")
    }

    pub fn with(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

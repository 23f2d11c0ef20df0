//! The numbered facts of a session. An event is never edited; its wire name never changes.

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};
use serde_json::value::RawValue;

use crate::{
    budget::{Breach, Budgets, Spent},
    command::{KeyUse, Verdict, digest_of},
    ids::{CallId, MessageId, SessionId, TurnId},
    message::{Attachment, Delivery, MessageRef, Part, Role},
    model::{Block, Fault, MicroUsd, StopReason, Thinking, Usage, is_zero},
    policy::{Policy, Scope},
    session::Settings,
    time::Timestamp,
    tool::{
        CallClass, FileChange, Intent, OfferedTool, Outcome, Proposed, Runner, ToolCall, ToolKind, ToolResult,
        VerifyPlan,
    },
};

/// Who caused an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Actor {
    pub kind: ActorKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ActorKind {
    User,
    Agent,
    Policy,
    System,
}

impl Actor {
    pub fn user(surface: impl Into<String>) -> Self {
        Self { kind: ActorKind::User, id: None, surface: Some(surface.into()) }
    }

    pub const fn of(kind: ActorKind) -> Self {
        Self { kind, id: None, surface: None }
    }

    pub const AGENT: Actor = Actor::of(ActorKind::Agent);
    pub const POLICY: Actor = Actor::of(ActorKind::Policy);
    pub const SYSTEM: Actor = Actor::of(ActorKind::System);
}

/// One event: what the log keeps and every native stream shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub seq: u64,
    pub ts: Timestamp,
    pub session_id: SessionId,
    pub turn_id: Option<TurnId>,
    pub actor: Actor,
    /// The command that caused it, where that carried an idempotency key; on the first event of its decision.
    pub key: Option<KeyUse>,
    pub body: Body,
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("Event", 8)?;
        out.serialize_field("seq", &self.seq)?;
        out.serialize_field("ts", &self.ts)?;
        out.serialize_field("session_id", &self.session_id)?;
        if let Some(turn) = &self.turn_id {
            out.serialize_field("turn_id", turn)?;
        }
        out.serialize_field("type", self.body.wire_type())?;
        out.serialize_field("actor", &self.actor)?;
        if let Some(key) = &self.key {
            out.serialize_field("key", key)?;
        }
        out.serialize_field("data", &self.body)?;
        out.end()
    }
}

/// The envelope with its data still as text: for readers that only need to pass it on.
#[derive(Debug, Deserialize)]
pub struct Envelope<'a> {
    pub seq: u64,
    pub ts: Timestamp,
    pub session_id: SessionId,
    #[serde(default)]
    pub turn_id: Option<TurnId>,
    #[serde(rename = "type", borrow)]
    pub wire_type: std::borrow::Cow<'a, str>,
    pub actor: Actor,
    #[serde(default)]
    pub key: Option<KeyUse>,
    #[serde(borrow)]
    pub data: &'a RawValue,
}

impl Event {
    /// Reads one event from its JSON; further fields of a stored line are passed over.
    pub fn from_json(line: &str) -> Result<Event, serde_json::Error> {
        let envelope: Envelope<'_> = serde_json::from_str(line)?;
        Ok(Event {
            body: Body::from_json(&envelope.wire_type, envelope.data)?,
            seq: envelope.seq,
            ts: envelope.ts,
            session_id: envelope.session_id,
            turn_id: envelope.turn_id,
            actor: envelope.actor,
            key: envelope.key,
        })
    }
}

impl Body {
    /// The blobs beside the log that this event names.
    pub fn blobs(&self) -> impl Iterator<Item = NamedBlob<'_>> {
        let (attachment, artifacts, files) = match self {
            Body::AttachmentAdded(added) => (Some(&added.attachment), &[][..], &[][..]),
            Body::ToolCallCompleted(done) => (None, &done.result.artifacts[..], &[][..]),
            Body::ToolCallStarted(started) => (None, &[][..], &started.intent.files[..]),
            Body::CheckpointCreated(checkpoint) => (None, &[][..], &checkpoint.files[..]),
            Body::RestoreStarted(started) => (None, &[][..], &started.intent.files[..]),
            _ => (None, &[][..], &[][..]),
        };
        let attachment = attachment.into_iter().map(|attachment| NamedBlob {
            name: &attachment.r#ref,
            bytes: Some(attachment.bytes),
            digest: Some(&attachment.digest),
        });
        let artifacts = artifacts.iter().map(|artifact| NamedBlob {
            name: &artifact.r#ref,
            bytes: artifact.content.as_ref().map(|content| content.bytes),
            digest: artifact.content.as_ref().map(|content| content.digest.as_str()),
        });
        let old_bytes = files.iter().filter_map(|file| {
            Some(NamedBlob { name: file.old_bytes.as_deref()?, bytes: None, digest: file.before.as_deref() })
        });
        attachment.chain(artifacts).chain(old_bytes)
    }
}

/// A file beside the log as an event names it, with as much as that tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedBlob<'a> {
    pub name: &'a str,
    pub bytes: Option<u64>,
    /// BLAKE3 in hex.
    pub digest: Option<&'a str>,
}

macro_rules! bodies {
    ($($name:ident $wire:literal,)*) => {
        /// What happened. Rust names are the CamelCase of the wire names.
        #[derive(Debug, Clone, PartialEq, Serialize)]
        #[serde(untagged)]
        pub enum Body { $($name(Box<$name>),)* }

        impl Body {
            /// Every numbered event type there is.
            pub const WIRE_TYPES: &'static [&'static str] = &[$($wire,)*];

            pub fn wire_type(&self) -> &'static str {
                match self { $(Body::$name(_) => $wire,)* }
            }

            /// How the data of each type looks.
            #[cfg(feature = "schema")]
            pub fn schemas(of: &mut schemars::SchemaGenerator) -> Vec<(&'static str, schemars::Schema)> {
                vec![$(($wire, of.subschema_for::<$name>()),)*]
            }

            pub fn from_json(wire_type: &str, data: &RawValue) -> Result<Body, serde_json::Error> {
                match wire_type {
                    $($wire => Ok(Body::$name(serde_json::from_str(data.get())?)),)*
                    other => Err(serde::de::Error::custom(format_args!(
                        "event type '{other}' is not known to this version"
                    ))),
                }
            }
        }

        $(impl From<$name> for Body {
            fn from(data: $name) -> Body { Body::$name(Box::new(data)) }
        })*
    };
}

bodies! {
    SessionCreated "session_created",
    SessionUpdated "session_updated",
    SessionForked "session_forked",
    SessionCompleted "session_completed",
    SessionFailed "session_failed",
    SessionCanceled "session_canceled",
    SessionExpired "session_expired",
    MessageAdded "message_added",
    MessageDelivered "message_delivered",
    AttachmentAdded "attachment_added",
    TurnQueued "turn_queued",
    TurnStarted "turn_started",
    TurnCompleted "turn_completed",
    TurnFailed "turn_failed",
    TurnCanceled "turn_canceled",
    TurnExpired "turn_expired",
    TurnInterrupted "turn_interrupted",
    TurnResumed "turn_resumed",
    CancelRequested "cancel_requested",
    ContextSeeded "context_seeded",
    ToolsOffered "tools_offered",
    CompactionStarted "compaction_started",
    ContextCompacted "context_compacted",
    CompactionFailed "compaction_failed",
    ModelOutputCompleted "model_output_completed",
    ModelAttemptFailed "model_attempt_failed",
    ToolCallStarted "tool_call_started",
    ToolCallCompleted "tool_call_completed",
    ApprovalRequested "approval_requested",
    ApprovalGranted "approval_granted",
    ApprovalDenied "approval_denied",
    ApprovalExpired "approval_expired",
    ReviewStarted "review_started",
    ReviewCompleted "review_completed",
    ReviewFailed "review_failed",
    BudgetReached "budget_reached",
    BudgetRaised "budget_raised",
    ChildStarted "child_started",
    ChildWaiting "child_waiting",
    ChildSettled "child_settled",
    EventLost "event_lost",
    CheckpointCreated "checkpoint_created",
    UndoRequested "undo_requested",
    RestoreStarted "restore_started",
    WorkspaceRestored "workspace_restored",
}

macro_rules! data {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident : $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }
    )*};
}

data! {
    /// A session was made, with these settings.
    SessionCreated { settings: Settings, policy: Policy, budgets: Budgets, }
    /// Settings were changed; what is not said stayed as it was.
    #[derive(Default)] SessionUpdated {
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] policy: Option<Policy>,
        #[serde(default, skip_serializing_if = "Option::is_none")] labels: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")] model: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] workspace_path: Option<String>,
    }
    /// Everything before it is a copy of another session's log; from here on this one goes its own way.
    SessionForked {
        from: SessionId,
        /// The last event that was copied, by its number there and here.
        at_seq: u64,
        /// As it was, where it is not said; so are the next two.
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] model: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] workspace_path: Option<String>,
        /// Labels are names of one session, so a copy has none that were not given to it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] labels: Vec<String>,
    }
    /// The session was ended; it can only be read, forked and exported.
    SessionCompleted { #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>, }
    /// The session was ended while a turn was open, which was canceled.
    SessionCanceled { #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>, }
    /// The session cannot go on.
    SessionFailed { code: String, message: String, }
    /// The session ended because nothing happened in it for this long.
    SessionExpired { idle_ms: u64, }

    /// Somebody said something.
    MessageAdded {
        message_id: MessageId,
        role: Role,
        parts: Vec<Part>,
        delivery: Delivery,
        auto_run: bool,
    }
    /// Its bytes are durable.
    AttachmentAdded { #[serde(flatten)] attachment: Attachment, }
    /// A steering message entered the request of this step.
    MessageDelivered { message_id: MessageId, step: u32, }

    /// A turn waits behind the open one.
    TurnQueued { messages: Vec<MessageRef>, #[serde(default, skip_serializing_if = "Option::is_none")] retry_of: Option<TurnId>, }
    /// A turn began, over these messages.
    TurnStarted {
        messages: Vec<MessageRef>,
        #[serde(default, skip_serializing_if = "Option::is_none")] retry_of: Option<TurnId>,
        model: String,
    }
    /// The turn came to its end with this answer.
    TurnCompleted {
        message_id: MessageId,
        spent: Spent,
        cost_micro_usd: Option<MicroUsd>,
        verification: Verification,
    }
    /// The turn could not go on.
    TurnFailed { code: String, message: String, spent: Spent, cost_micro_usd: Option<MicroUsd>, }
    /// The turn was canceled, and its work is gone.
    TurnCanceled {
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
        /// What did not end within the time limit or runs elsewhere.
        left: Vec<String>,
        spent: Spent,
        cost_micro_usd: Option<MicroUsd>,
    }
    /// A budget was reached and nobody was there to raise it.
    TurnExpired { reached: Breach, spent: Spent, cost_micro_usd: Option<MicroUsd>, }
    /// A crash or a stop of the daemon cut the turn; open calls are classed.
    TurnInterrupted {
        calls: Vec<ClassedCall>,
        /// For how long it is known to have worked since the event before, from what it showed.
        #[serde(default, skip_serializing_if = "is_zero")] active_ms: u64,
    }
    /// An interrupted turn goes on.
    TurnResumed { automatic: bool, }
    /// The turn is to be canceled; `turn_canceled` follows when its work is gone.
    CancelRequested {
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
        /// The session ends when the turn is gone.
        end_session: bool,
    }

    /// What was read from the workspace to shape the context.
    ContextSeeded {
        source: SeedSource,
        files: Vec<SeedFile>,
        #[serde(default, skip_serializing_if = "Option::is_none")] verify: Option<VerifyPlan>,
        /// What was gathered for the turn that is open: once for each workspace, and shown before that turn's messages.
        #[serde(default, skip_serializing_if = "Option::is_none")] bundle: Option<Bundle>,
    }
    /// One file, cut where it is too long.
    SeedFile { path: String, text: String, #[serde(default, skip_serializing_if = "std::ops::Not::not")] truncated: bool, }

    /// From now on the model is offered these tools beside those that are built in. All of them each time.
    ToolsOffered { tools: Vec<OfferedTool>, }
    /// A workspace in brief, as it was when its first turn began.
    #[derive(Default)] Bundle {
        /// Branch, head and what is changed.
        #[serde(default, skip_serializing_if = "Option::is_none")] git: Option<String>,
        /// The most important symbols of the sources.
        #[serde(default, skip_serializing_if = "Option::is_none")] map: Option<String>,
        /// Pieces of files that fit the task, the best first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] chunks: Vec<SeedChunk>,
        /// What is missing of it, and why.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] left_out: Vec<String>,
    }
    /// Lines of a file, counted from 1, both ends included.
    SeedChunk { path: String, first_line: u32, last_line: u32, text: String, }

    /// The older part of the context is being summarized. Told again where a turn comes to wait for one under way.
    CompactionStarted {
        trigger: CompactTrigger,
        /// The turn waits for it; otherwise it goes on beside it.
        blocking: bool,
        /// Tokens of the context, where they were measured.
        #[serde(default, skip_serializing_if = "Option::is_none")] tokens: Option<u64>,
    }
    /// From now on the model is shown this summary in place of what came before `kept_from`. The log keeps everything.
    ContextCompacted {
        trigger: CompactTrigger,
        summary: String,
        /// The last request of a person that is no longer shown, word by word.
        #[serde(default, skip_serializing_if = "Option::is_none")] request: Option<String>,
        /// Secrets whose marks the summary and the request rightly show.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] secrets: Vec<String>,
        /// The first event whose message is still shown as it is.
        kept_from: u64,
        /// The first event that is needed to show it.
        context_from: u64,
        tokens_before: u64,
        tokens_after: u64,
        model: String,
        usage: Usage,
        cost_micro_usd: Option<MicroUsd>,
    }
    /// The context stays as it was, for now or until it is asked for again.
    CompactionFailed {
        reason: Fault,
        usage: Usage,
        cost_micro_usd: Option<MicroUsd>,
        /// Whether some of a reply had come and was not counted: that costs something, and nobody knows what.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] begun: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")] retry_at: Option<Timestamp>,
    }

    /// A model's whole reply.
    ModelOutputCompleted {
        message_id: MessageId,
        step: u32,
        attempt: u32,
        model: String,
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] thinking: Vec<Thinking>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] tool_calls: Vec<ToolCall>,
        /// In which order they came; where it is not said, thoughts came first, then the text, then the calls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] order: Vec<Block>,
        stop_reason: StopReason,
        usage: Usage,
        /// `None`: the price is not known.
        cost_micro_usd: Option<MicroUsd>,
    }
    /// An attempt that did not come to its end; the text shown so far is kept and abandoned.
    ModelAttemptFailed {
        step: u32,
        attempt: u32,
        reason: Fault,
        text: String,
        #[serde(default, skip_serializing_if = "String::is_empty")] thinking: String,
        usage: Usage,
        cost_micro_usd: Option<MicroUsd>,
        /// Whether some of a reply had come and was not counted: that costs something, and nobody knows what.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] begun: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")] retry_at: Option<Timestamp>,
    }

    /// A call is about to run: its intent is durable before it does anything.
    ToolCallStarted {
        tool_call_id: CallId,
        name: String,
        kind: ToolKind,
        input: serde_json::Value,
        runner: Runner,
        origin: CallOrigin,
        /// 1, or more when a `read` call is run again after a crash.
        run: u32,
        #[serde(default, skip_serializing_if = "Intent::is_empty")] intent: Intent,
    }
    /// A call came to its end; the model sees this result.
    ToolCallCompleted {
        tool_call_id: CallId,
        name: String,
        origin: CallOrigin,
        outcome: Outcome,
        #[serde(flatten)] result: ToolResult,
        duration_ms: u64,
    }
    /// A call waits for a yes or no.
    ApprovalRequested {
        tool_call_id: CallId,
        name: String,
        kind: ToolKind,
        input: serde_json::Value,
        #[serde(default, skip_serializing_if = "String::is_empty")] subject: String,
        origin: CallOrigin,
        #[serde(default, skip_serializing_if = "Option::is_none")] expires_at: Option<Timestamp>,
        /// What it would change, where changes are reviewed.
        #[serde(default, skip_serializing_if = "Option::is_none")] proposed: Option<Proposed>,
    }
    /// A call may run.
    ApprovalGranted {
        tool_call_id: CallId,
        name: String,
        scope: Scope,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
    }
    /// A call may not run.
    ApprovalDenied {
        tool_call_id: CallId,
        name: String,
        #[serde(default)] scope: Scope,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
    }
    /// Nobody answered in time, which counts as a no.
    ApprovalExpired { tool_call_id: CallId, name: String, }
    /// A model is asked whether a change is good.
    ReviewStarted { tool_call_id: CallId, name: String, model: String, proposed: Proposed, }
    /// It approves the change, or sends it back with a reason.
    ReviewCompleted {
        tool_call_id: CallId,
        name: String,
        verdict: Verdict,
        reason: String,
        model: String,
        usage: Usage,
        cost_micro_usd: Option<MicroUsd>,
    }
    /// An attempt at a review that did not come to its end. Where no other follows, a person is asked.
    ReviewFailed {
        tool_call_id: CallId,
        name: String,
        attempt: u32,
        reason: Fault,
        usage: Usage,
        cost_micro_usd: Option<MicroUsd>,
        /// Whether some of a reply had come and was not counted: that costs something, and nobody knows what.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] begun: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")] retry_at: Option<Timestamp>,
    }

    /// The turn met a limit and waits for a higher one.
    BudgetReached { reached: Breach, }
    /// These are the limits from now on.
    BudgetRaised { budgets: Budgets, }

    /// A session of its own was started for a part of the work.
    ChildStarted { child: SessionId, #[serde(default, skip_serializing_if = "Option::is_none")] tool_call_id: Option<CallId>, }
    /// A child waits for a yes or no.
    ChildWaiting { child: SessionId, tool_call_id: CallId, name: String, }
    /// A child came to its end.
    ChildSettled { child: SessionId, ok: bool, cost_micro_usd: Option<MicroUsd>, }

    /// Stands where an event was that damage to the log took, so that all others keep their numbers.
    EventLost { reason: String, }

    /// What the turn's write calls did to files, taken together: enough to take it back. The turn's end follows.
    CheckpointCreated {
        /// The folder that the paths are relative to.
        workspace_path: String,
        started_at: Timestamp,
        /// Each file as it was at the turn's first touch, and as the turn left it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] files: Vec<FileChange>,
        /// Folders that the turn made for them, the outer ones first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] folders: Vec<String>,
        /// Write calls of which nobody can tell what they did; their files are not among `files` for that.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] unknown: Vec<UnknownWrite>,
        /// Commands ran too; what those did to files is not known here.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] commands: bool,
        /// There were more files than are kept, so the turn cannot be taken back.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] incomplete: bool,
        /// Secrets that stand in the paths as marks, by name.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] secrets: Vec<String>,
    }
    /// Somebody wants what this turn did to files taken back; `workspace_restored` follows.
    UndoRequested { turn_id: TurnId, checkpoint_seq: u64, }
    /// Every file is what the turn left, and what it is now is kept: they are about to be put back.
    RestoreStarted {
        turn_id: TurnId,
        intent: Intent,
        /// Files that changed while the turn ran and that are not among the turn's: commands changed them, or people.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] not_undone: Vec<String>,
        /// There are more of them, or the workspace was too large to look at all of it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] more_not_undone: bool,
    }
    /// What became of taking a turn's changes back: all of them were, or none.
    WorkspaceRestored {
        turn_id: TurnId,
        outcome: RestoreOutcome,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] restored: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] refused: Vec<RefusedFile>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] not_undone: Vec<String>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] more_not_undone: bool,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] unknown: Vec<UnknownWrite>,
    }
    /// A write call that may have changed these files.
    #[derive(Eq)] UnknownWrite { tool_call_id: CallId, name: String, paths: Vec<String>, }
    /// A file that is not what the turn left, or cannot be put back.
    #[derive(Eq)] RefusedFile { path: String, why: String, }
}

/// How taking back a turn's changes ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RestoreOutcome {
    /// Every file is as it was before the turn.
    Restored,
    /// No file was changed.
    Refused,
    /// A crash cut it, and somebody changed files since: what is not named was put back or left, nobody can tell.
    Unknown,
}

impl ContextSeeded {
    /// A digest of what is looked at again before every turn; not of when it was read.
    pub fn digest(&self) -> String {
        digest_of(&(&self.files, &self.verify))
    }
}

impl ToolsOffered {
    pub fn digest(&self) -> String {
        digest_of(&self.tools)
    }
}

impl Bundle {
    pub fn is_empty(&self) -> bool {
        *self == Bundle::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SeedSource {
    New,
    Startup,
    Resume,
}

/// Why a context was compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CompactTrigger {
    /// It had grown to the policy's share of the window.
    Threshold,
    /// The vendor refused it as too long.
    Overflow,
    /// Somebody asked for it.
    Asked,
}

/// Who asked for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CallOrigin {
    /// The model.
    Model,
    /// The verification policy, after a write.
    VerifyPolicy,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassedCall {
    pub tool_call_id: CallId,
    pub name: String,
    pub class: CallClass,
}

/// What became of verification in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verification {
    /// Nothing was written, or the policy is off.
    #[default]
    NotNeeded,
    Passed,
    /// Something was written and no command was found to verify it with.
    Skipped,
    /// A person said no to the commands.
    Denied,
}

//! Bodies of answers. Fields a reader does not know are passed over.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::request::{Part, Role, Scope, Verdict};

macro_rules! responses {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident : $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }
    )*};
}

responses! {
    Created { session_id: String, }
    MessageAccepted {
        message_id: String,
        /// Not there when the message was only appended.
        #[serde(default, skip_serializing_if = "Option::is_none")] turn_id: Option<String>,
    }
    ApprovalAnswered { tool_call_id: String, action: Verdict, scope: Scope, }
    /// The cancel was taken; `turn_canceled` follows when the work is gone.
    Canceling { turn_id: String, status: String, }
    TurnStarted { turn_id: String, }
    /// A compaction is under way; `context_compacted` or `compaction_failed` follows.
    Compacting {
        /// The event with which it began, or a later one if it was under way before.
        seq: u64,
        status: String,
    }
    /// A turn's changes to files are being taken back; `workspace_restored` follows.
    Undoing {
        turn_id: String,
        /// The event with which it began.
        seq: u64,
        status: String,
    }
    Ended { status: String, }

    /// A session that was made from another one, or from an archive under an id of its own.
    Forked {
        session_id: String,
        forked_from: Origin,
        /// Files that the copied events name and that were lost, or changed on the disk.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] missing: Vec<String>,
    }
    /// The session and the last event of it that were copied.
    Origin { session_id: String, seq: u64, }
    /// `POST /v1/sessions/import`.
    Imported {
        session_id: String,
        /// The last event that came with it.
        seq: u64,
        /// Where it was copied from, if it has an id of its own now.
        #[serde(default, skip_serializing_if = "Option::is_none")] forked_from: Option<Origin>,
        /// Files that its log names and that were missing when it was exported.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] missing: Vec<String>,
    }

    /// A file that a tool left behind, such as the whole of a long output.
    ArtifactView {
        /// How events name it.
        r#ref: String,
        bytes: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")] turn_id: Option<String>,
    }
    /// `GET …/artifacts`.
    ArtifactList {
        artifacts: Vec<ArtifactView>,
        /// What to send as `?cursor=` for the next page.
        next: Option<String>,
    }

    SessionList {
        sessions: Vec<SessionRow>,
        /// What to send as `?cursor=` for the next page.
        next: Option<String>,
    }
    SessionRow {
        id: String,
        created_at: String,
        updated_at: String,
        status: String,
        /// What its open turn does; `null` where none is open.
        #[serde(default)] turn_status: Option<String>,
        workspace_path: String,
        #[serde(default)] title: Option<String>,
        #[serde(default)] last_turn_id: Option<String>,
        #[serde(default)] role: Option<String>,
        #[serde(default)] labels: Vec<String>,
    }

    /// `GET …/messages`.
    MessageList {
        messages: Vec<Message>,
        /// What to send as `?cursor=` for the next page.
        next: Option<String>,
        /// What is missing between these messages, and behind the last of all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] damage: Vec<Damage>,
    }
    /// Something of a session's log is not there.
    Damage {
        /// `unreadable`: from that event on nothing can be read until the log is repaired. `lost`: a repair put `event_lost`
        /// in the place of what is gone.
        kind: String,
        /// The first event that is not there.
        from_seq: u64,
        /// How many are gone, where that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")] events: Option<u64>,
        reason: String,
        /// What can be done about it.
        hint: String,
    }
    /// One message of a conversation.
    Message {
        /// For what a tool answered, the id of the call.
        id: String,
        /// The event that holds it.
        seq: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")] turn_id: Option<String>,
        role: Role,
        parts: Vec<Part>,
        created_at: String,
        /// The model that wrote it.
        #[serde(default, skip_serializing_if = "Option::is_none")] model: Option<String>,
        /// What the model asked for beside its text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] tool_calls: Vec<ToolCall>,
        /// The tool that answered.
        #[serde(default, skip_serializing_if = "Option::is_none")] name: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] ok: Option<bool>,
    }
    ToolCall { id: String, name: String, input: Value, }

    /// A file that a session was given.
    AttachmentView {
        /// How parts of messages name it.
        r#ref: String,
        mime_type: String,
        bytes: u64,
        /// BLAKE3 of its bytes.
        digest: String,
    }
    /// `GET …/attachments`.
    AttachmentList { attachments: Vec<AttachmentView>, }

    /// `GET /v1/tools`.
    ToolList {
        tools: Vec<ToolView>,
        /// Where tools come from that are not built in, where a session or a workspace was named.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] sources: Vec<ToolSourceView>,
        /// What could not be used of what a workspace names.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] problems: Vec<String>,
    }
    ToolSourceView {
        /// `mcp:<server>` or `plugin:<name>`.
        name: String,
        /// `unapproved | unlisted | listed | running | failed`.
        state: String,
        /// Why it cannot be used now.
        #[serde(default, skip_serializing_if = "Option::is_none")] problem: Option<String>,
    }
    ToolView {
        name: String,
        /// `built_in`, or the name of its source.
        #[serde(default)] source: String,
        description: String,
        /// `read | write | exec | network`.
        kind: String,
        /// Whether a person is asked first, where a session's policy does not say otherwise.
        requires_approval: bool,
        /// JSON Schema.
        input_schema: Value,
    }

    /// `GET /v1/models`.
    ModelList {
        /// The model of sessions that name none.
        default_model: String,
        models: Vec<ModelView>,
        /// Where models come from. Any other model of theirs can be named too.
        providers: Vec<ProviderView>,
    }
    ModelView {
        /// `provider/model`, as sessions name it.
        name: String,
        provider: String,
        /// Whether it can be asked now.
        ready: bool,
        /// What is missing before it can be.
        #[serde(default, skip_serializing_if = "Option::is_none")] missing: Option<String>,
        /// `built_in | config | server`: who knows of it.
        source: String,
        /// Other names for it, such as `small`.
        #[serde(default)] aliases: Vec<String>,
        /// Tokens that a request and its reply may have together; `null` where that is not known.
        #[serde(default)] window: Option<u64>,
        /// Tokens that a reply may have.
        #[serde(default)] output_max: Option<u64>,
        /// `null` where they are not known.
        #[serde(default)] prices: Option<PriceView>,
        /// Kinds of parts that it can be sent besides text: `image`, `audio`, `file`.
        #[serde(default)] takes: Vec<String>,
        /// `native | schema`: how tools are offered to it.
        tool_mode: String,
        /// `none | budget | effort | adaptive`: how it is told to think.
        thinking: String,
    }
    /// US dollars for a million tokens.
    PriceView {
        input: f64,
        output: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")] cache_read: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] cache_write: Option<f64>,
        /// Other prices for a whole request that is longer.
        #[serde(default, skip_serializing_if = "Option::is_none")] long: Option<LongPriceView>,
    }
    LongPriceView {
        /// Tokens of input, cached ones too.
        above: u64,
        input: f64,
        output: f64,
        #[serde(default, skip_serializing_if = "Option::is_none")] cache_read: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] cache_write: Option<f64>,
    }
    ProviderView {
        name: String,
        /// `anthropic | chat | responses | gemini`: the format it speaks.
        wire: String,
        base_url: String,
        /// Whether it runs on the daemon's machine.
        local: bool,
        ready: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")] missing: Option<String>,
        /// Why a server on the daemon's machine could not be asked what it has, as a code: `no_server`, `auth` and the like.
        #[serde(default, skip_serializing_if = "Option::is_none")] fault: Option<String>,
        /// Whether there is a key for it.
        has_key: bool,
        /// The variable that its key is looked for in.
        #[serde(default, skip_serializing_if = "Option::is_none")] key_variable: Option<String>,
    }

    /// `GET /v1/usage`.
    UsageView {
        /// How many sessions it is the sum of.
        sessions: usize,
        spent: Spent,
        /// `null` where a price is not known.
        cost_micro_usd: Option<u64>,
    }

    /// A session's metadata and latest state.
    SessionView {
        id: String,
        created_at: String,
        updated_at: String,
        /// `active | waiting_approval | completed | failed | canceled | expired`.
        status: String,
        workspace_path: String,
        #[serde(default)] system_prompt: Option<String>,
        #[serde(default)] last_turn_id: Option<String>,
        /// The last event's number: a cursor, and the version for `If-Match`.
        seq: u64,
        #[serde(default)] title: Option<String>,
        #[serde(default)] role: Option<String>,
        #[serde(default)] mode: Option<String>,
        #[serde(default)] model: String,
        #[serde(default)] labels: Vec<String>,
        #[serde(default)] auto_run: bool,
        #[serde(default)] memory: Option<String>,
        #[serde(default)] preferences: Map<String, Value>,
        /// What the last text of every turn has to fit.
        #[serde(default, skip_serializing_if = "Option::is_none")] output_schema: Option<Value>,
        #[serde(default)] policy: Value,
        #[serde(default)] budgets: Value,
        #[serde(default)] turn: Option<OpenTurn>,
        /// Turns that wait behind the open one, the next one first.
        #[serde(default)] queue: Vec<String>,
        #[serde(default)] approvals: Vec<Approval>,
        #[serde(default)] usage: Usage,
        #[serde(default)] spent: Spent,
        /// `null` where a price is not known.
        #[serde(default)] cost_micro_usd: Option<u64>,
        #[serde(default)] forked_from: Option<Origin>,
        /// What of its log is not there.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] damage: Vec<Damage>,
    }
    OpenTurn {
        id: String,
        status: String,
        /// Model steps that came to their end.
        #[serde(default)] step: u32,
        started_at: String,
        #[serde(default)] model: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] retry_of: Option<String>,
        #[serde(default)] messages: Vec<MessageRef>,
        /// Calls that a crash cut and that are not run again: nobody can tell what they did.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] unknown_calls: Vec<ToolCall>,
        #[serde(default)] spent: Spent,
        #[serde(default)] cost_micro_usd: Option<u64>,
    }
    /// A tool call that waits for a yes or no.
    Approval {
        turn_id: String,
        tool_call_id: String,
        name: String,
        kind: String,
        input: Value,
        #[serde(default)] subject: String,
        origin: String,
        #[serde(default)] expires_at: Option<String>,
    }

    /// A turn's record.
    TurnView {
        id: String,
        session_id: String,
        #[serde(default)] seq: u64,
        /// `pending | running | streaming | waiting_approval | waiting_budget | completed | failed | cancelled | expired | interrupted`.
        status: String,
        created_at: String,
        updated_at: String,
        #[serde(default)] messages: Vec<MessageRef>,
        #[serde(default, skip_serializing_if = "Option::is_none")] retry_of: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] model: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] response: Option<Answer>,
        #[serde(default, skip_serializing_if = "Option::is_none")] error: Option<TurnError>,
        /// `not_needed | passed | skipped | denied`.
        #[serde(default, skip_serializing_if = "Option::is_none")] verification: Option<String>,
        #[serde(default)] spent: Spent,
        #[serde(default)] cost_micro_usd: Option<u64>,
        /// What a cancel could not end.
        #[serde(default)] left: Vec<String>,
    }
    /// The turn's last answer.
    Answer { message_id: String, text: String, }
    TurnError { code: String, message: String, }
    /// A message, by its id and the event that holds it.
    MessageRef { id: String, seq: u64, }

    /// `GET /healthz`.
    Health { status: String, version: String, }
    /// `GET /readyz`.
    Ready {
        /// `ready | starting | stopping`.
        status: String,
        /// `power | process | memory`.
        durability: String,
        #[serde(default)] notices: Vec<String>,
    }
}

/// Tokens. `input_tokens` does not hold the cached ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
}

/// What a turn, or a whole session, has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Spent {
    pub steps: u64,
    pub tool_calls: u64,
    /// Waiting for people does not count.
    pub active_ms: u64,
    pub usage: Usage,
    /// Known costs only.
    pub micro_usd: u64,
    /// Whether a step's price is not known.
    pub unpriced: bool,
}

impl TurnView {
    /// Whether nothing more will happen in this turn.
    pub fn is_settled(&self) -> bool {
        matches!(self.status.as_str(), "completed" | "failed" | "cancelled" | "expired")
    }
}

//! Plain data of our HTTP protocol, as clients and the daemon both see it. It holds no rules and knows nothing of the engine: ids, times and statuses are text here.
//!
//! Requests refuse unknown fields. Responses and events pass over them, so that an older client can read a newer daemon.

mod access;
mod daemon;
mod event;
mod missing;
mod object;
mod policy;
mod problem;
mod request;
mod response;
#[cfg(feature = "schema")]
mod schema;

pub use access::{Login, NewLogin, NewToken, RotateToken, TokenList, TokenMade, TokenRevoked, TokenView};
pub use daemon::DaemonInfo;
pub use event::{Actor, Event};
pub use missing::{MISSING, Missing};
pub use policy::{
    ApprovalPolicy, Budgets, CompactionPolicy, Nullable, PatchReview, Policy, RecoveryPolicy, Resume, Rule, RuleAction,
    ToolKind, VerifyPolicy,
};
pub use problem::Problem;
pub use request::{
    Approve, Cancel, CreateSession, Delivery, EmptyCommand, End, Fork, NewAttachment, Part, Patch, Role, Scope,
    SendMessage, SessionFilter, Undo, Verdict,
};
pub use response::{
    Answer, Approval, ApprovalAnswered, ArtifactList, ArtifactView, AttachmentList, AttachmentView, Canceling,
    Compacting, Created, Damage, Ended, Forked, Health, Imported, LongPriceView, Message, MessageAccepted, MessageList,
    MessageRef, ModelList, ModelView, OpenTurn, Origin, PriceView, ProviderView, Ready, SessionList, SessionRow,
    SessionView, Spent, ToolCall, ToolList, ToolSourceView, ToolView, TurnError, TurnStarted, TurnView, Undoing, Usage,
    UsageView,
};

/// The media type of a request's and an ordinary response's body.
pub const JSON: &str = "application/json";
/// The media type of a refusal.
pub const PROBLEM_JSON: &str = "application/problem+json";
/// The media type of the event stream.
pub const EVENT_STREAM: &str = "text/event-stream";
/// The media type of the event stream as one JSON object a line.
pub const NDJSON: &str = "application/x-ndjson";
/// The media type of an exported session.
pub const ARCHIVE: &str = "application/gzip";
/// An event that has no number: a part of the stream is gone.
pub const STREAM_RESET: &str = "stream_reset";
/// An event that has no number: what comes behind it in the log cannot be read.
pub const LOG_DAMAGED: &str = "log_damaged";
/// The header that carries an idempotency key.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header with which a client says where its stream was cut.
pub const LAST_EVENT_ID: &str = "last-event-id";
/// The longest wait that one `GET …/turns/{id}?wait_ms=` may ask for.
pub const WAIT_MS_MAX: u64 = 60_000;

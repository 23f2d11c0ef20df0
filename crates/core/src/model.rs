//! What a model call costs, why it stopped and how it fails.

use serde::{Deserialize, Serialize};

/// Tokens of one model reply. `input` does not hold the cached ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Usage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_read_tokens: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub cache_write_tokens: u64,
}

/// Counts that mostly are zero are left out of events and records, where they are written several times a turn.
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Usage {
    pub fn add(&mut self, other: &Usage) {
        // Vendors are not trusted to count well: no number they send may overflow.
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.cache_read_tokens = self.cache_read_tokens.saturating_add(other.cache_read_tokens);
        self.cache_write_tokens = self.cache_write_tokens.saturating_add(other.cache_write_tokens);
    }

    /// Takes in a later count of the same reply. It may be finer, such as which part of the input was cached, but nothing
    /// that was used is taken back.
    pub fn raise(&mut self, later: &Usage) {
        let output_tokens = self.output_tokens.max(later.output_tokens);
        if later.sent() >= self.sent() {
            *self = *later;
        }
        self.output_tokens = output_tokens;
    }

    /// All tokens of the request, cached or not.
    pub fn sent(&self) -> u64 {
        self.input_tokens.saturating_add(self.cache_read_tokens).saturating_add(self.cache_write_tokens)
    }

    /// What counts against a token budget: output plus input not read from a cache.
    pub fn budget_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.cache_write_tokens).saturating_add(self.output_tokens)
    }
}

/// Millionths of a US dollar.
pub type MicroUsd = u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    EndTurn,
    ToolUse,
    MaxTokens,
    Refusal,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// 429.
    RateLimited,
    /// 529 and the like.
    Overloaded,
    /// 5xx.
    Server,
    /// Refused or reset connections, failed name lookups.
    Network,
    /// Nothing takes connections at an address of this machine.
    NoServer,
    /// The stream ended without its closing mark.
    StreamCut,
    /// The watchdog saw no byte for too long.
    StreamStalled,
    /// The stream broke its own format.
    Malformed,
    /// 401 and 403.
    Auth,
    /// The account has nothing left to spend.
    Quota,
    /// The other side's certificate is not trusted.
    Tls,
    /// 400.
    BadRequest,
    /// 404, or no provider of that name.
    UnknownModel,
    /// The reply is longer, or asks for more, than one event may hold.
    ReplyTooLarge,
    /// What the model said does not fit the schema that was asked for: that of a turn's answer, or that of an action.
    SchemaMismatch,
    /// The request does not fit the model's window.
    ContextOverflow,
    /// A crash of ours cut the call.
    Interrupted,
    /// The turn was stopped while the call was under way.
    Canceled,
}

impl FaultKind {
    /// Whether another attempt may help.
    pub fn retryable(self) -> bool {
        use FaultKind::*;
        match self {
            RateLimited | Overloaded | Server | Network | NoServer | StreamCut | StreamStalled | Malformed
            | Interrupted => true,
            Auth | Quota | Tls | BadRequest | UnknownModel | ReplyTooLarge | SchemaMismatch | ContextOverflow
            | Canceled => false,
        }
    }

    /// Whether the vendor may have begun to answer: what is not told of the cost is unknown then, not nothing.
    pub fn follows_a_beginning(self) -> bool {
        use FaultKind::*;
        matches!(self, StreamCut | StreamStalled | Interrupted | Canceled)
    }

    /// Whether nobody was there, or nobody who speaks.
    pub fn is_silence(self) -> bool {
        use FaultKind::*;
        matches!(self, NoServer | Network | Tls | StreamCut | StreamStalled)
    }

    /// The stable code a failed turn carries.
    pub fn code(self) -> &'static str {
        use FaultKind::*;
        match self {
            RateLimited => "rate_limited",
            Overloaded => "overloaded",
            Server => "server",
            Network => "network",
            NoServer => "no_server",
            StreamCut => "stream_cut",
            StreamStalled => "stream_stalled",
            Malformed => "malformed",
            Auth => "auth",
            Quota => "quota",
            Tls => "tls",
            BadRequest => "bad_request",
            UnknownModel => "unknown_model",
            ReplyTooLarge => "reply_too_large",
            SchemaMismatch => "schema_mismatch",
            ContextOverflow => "context_overflow",
            Interrupted => "interrupted",
            Canceled => "canceled",
        }
    }
}

/// A model call that did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[error("{message}")]
pub struct Fault {
    pub kind: FaultKind,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// Why the model had stopped, where its reply came to an end and is of no use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
}

impl Fault {
    pub fn new(kind: FaultKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), retry_after_ms: None, stop_reason: None }
    }
}

/// A block of the model's thinking, kept byte-exact because some vendors demand it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Thinking {
    pub text: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The wire format that made the signature, and what it belongs to there. Only that format sends it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// A block of a reply, by its place: where text, thoughts and calls come in turn, vendors want them back in that order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// So many bytes of the text that follow those before.
    Text(u64),
    /// The next of the thoughts.
    Thinking,
    /// The next of the calls.
    Call,
}

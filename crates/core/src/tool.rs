//! What a tool is, what a call of it intends, and how it ended.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{command::digest_of, ids::CallId, message::Part};

/// What a tool may do to the world. Only `read` calls may ever be run twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Read,
    Write,
    Exec,
    Network,
}

/// A named ability, as the model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    /// JSON Schema of the input.
    pub input_schema: Value,
    pub kind: ToolKind,
}

/// A tool that is not built in, as the model was offered it, and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OfferedTool {
    /// `mcp:<server>` or `plugin:<name>`.
    pub source: String,
    #[serde(flatten)]
    pub spec: ToolSpec,
}

/// A call as the model asked for it, judged for form by the registry before it is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolCall {
    pub id: CallId,
    /// The vendor's own name for the call, sent back with its result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    pub name: String,
    pub kind: ToolKind,
    pub input: Value,
    /// What approval rules match on, such as a shell command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// Secrets that stand in the input as marks and are put back when it starts, by name. A mark that the model wrote
    /// without having been shown it is not among them and stays as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Why it cannot run at all (no such tool, input that does not fit): told to the model instead of running it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// How deep an input may be nested. Far below what a reader of JSON takes, since an event wraps it.
pub const INPUT_DEPTH_MAX: usize = 64;

/// How deep arrays and objects stand inside each other.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Where a call runs. Other runners come later; the field is there from the first day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Runner(pub String);

impl Default for Runner {
    fn default() -> Self {
        Runner("local".into())
    }
}

/// One file that a write call is about to change. Digests are BLAKE3 in hex; `None` means no such file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileChange {
    /// Relative to the workspace.
    pub path: String,
    pub before: Option<String>,
    pub after: Option<String>,
    /// The blob that holds the bytes from before, by name below the session's artifacts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_bytes: Option<String>,
    /// Unix mode bits from before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
    /// Unix mode bits from after; only told in a checkpoint, and only where they are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode_after: Option<u32>,
    /// Where it really is, if symlinks lead there: a path that leads elsewhere later is not this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<String>,
}

/// What a call is about to do, recorded before it does it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Intent {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileChange>,
    /// Folders that are not there and are made for them, relative to the workspace, the outer ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folders: Vec<String>,
}

impl Intent {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.folders.is_empty()
    }

    /// A digest of what it does to which files as they are now.
    pub fn digest(&self) -> String {
        let files = self.files.iter().map(|file| (&file.path, &file.before, &file.after));
        digest_of(&(files.collect::<Vec<_>>(), &self.folders))
    }
}

/// What a write call would change, for whoever looks at it before it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Proposed {
    /// Unified diffs; long ones are cut, and say so.
    pub diff: String,
    /// Of the intent: an answer holds for this change alone.
    pub digest: String,
}

/// How a call with a recorded intent and no recorded outcome is classed after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CallClass {
    /// Nothing of it happened: it may run.
    NotStarted,
    /// All of it happened.
    Finished,
    /// Nobody can tell: it is never run again by itself.
    Unknown,
}

/// How a call came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran and this is its result.
    Finished,
    /// A crash cut it; whether it took effect is not known.
    Unknown,
    /// It never ran: denied, malformed, or its turn ended first.
    NotRun,
    /// It was stopped while it ran.
    Canceled,
}

/// A file beside the log that holds what did not fit in a result. In old logs it is a name alone, and stays one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(with = "ArtifactForm"))]
#[serde(from = "ArtifactForm", into = "ArtifactForm")]
pub struct Artifact {
    /// `artifacts/<turn>/<file>`.
    pub r#ref: String,
    pub content: Option<Content>,
}

/// What a file beside the log holds, to tell whether it still does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub bytes: u64,
    /// BLAKE3 in hex.
    pub digest: String,
}

impl Artifact {
    /// An artifact that holds these bytes.
    pub fn of(r#ref: impl Into<String>, bytes: &[u8]) -> Self {
        let digest = blake3::hash(bytes).to_hex().to_string();
        Self { r#ref: r#ref.into(), content: Some(Content { bytes: bytes.len() as u64, digest }) }
    }
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
enum ArtifactForm {
    Name(String),
    Whole { r#ref: String, bytes: u64, digest: String },
}

impl From<ArtifactForm> for Artifact {
    fn from(form: ArtifactForm) -> Self {
        match form {
            ArtifactForm::Name(r#ref) => Self { r#ref, content: None },
            ArtifactForm::Whole { r#ref, bytes, digest } => Self { r#ref, content: Some(Content { bytes, digest }) },
        }
    }
}

impl From<Artifact> for ArtifactForm {
    fn from(Artifact { r#ref, content }: Artifact) -> Self {
        match content {
            None => Self::Name(r#ref),
            Some(Content { bytes, digest }) => Self::Whole { r#ref, bytes, digest },
        }
    }
}

/// What a tool gave back. A failed tool is a result, not an error of ours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolResult {
    pub ok: bool,
    pub parts: Vec<Part>,
    /// What did not fit, as it is kept beside the log.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// A short reason when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Secrets whose values were replaced by marks in it, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
    /// Facts about the run, such as `exit_code`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

impl ToolResult {
    pub fn ok(text: impl Into<String>) -> Self {
        Self {
            ok: true,
            parts: vec![Part::text(text)],
            artifacts: vec![],
            error: None,
            redacted: vec![],
            detail: Value::Null,
        }
    }

    pub fn failed(error: impl Into<String>) -> Self {
        let error = error.into();
        Self {
            ok: false,
            parts: vec![Part::text(error.clone())],
            artifacts: vec![],
            error: Some(error),
            redacted: vec![],
            detail: Value::Null,
        }
    }
}

/// Where the verification commands came from, and so whether they may run unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum VerifySource {
    /// The user's own configuration: trusted.
    Config,
    /// AGENTS.md of the workspace.
    AgentsMd,
    /// The workspace's Makefile has a `test` target.
    Makefile,
    /// The session's own policy, given by the person who made the session: trusted.
    Policy,
}

/// Verification commands found for a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VerifyPlan {
    pub source: VerifySource,
    pub commands: Vec<String>,
}

impl VerifyPlan {
    /// The subject of a `verify` call that runs this plan: the exact text that is asked for, granted or trusted.
    pub fn subject(&self) -> String {
        self.commands.join("\n")
    }
}

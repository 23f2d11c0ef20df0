//! What a tool is to its caller, and what the caller lends it. No tool is defined here.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::Value;
use tenure_core::{
    ids::{CallId, SessionId, TurnId},
    tool::{Artifact, Intent, ToolResult, ToolSpec, VerifyPlan},
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

impl CallContext {
    /// The name of a blob of this call: `suffix` follows the call's id.
    pub(crate) fn blob_name(&self, suffix: &str) -> String {
        format!("artifacts/{}/{}{suffix}", self.turn_id, self.call_id)
    }
}

/// Takes what a running tool prints, as it prints it. Waits when the reader is slow.
#[async_trait]
pub trait OutputSink: Send + Sync {
    async fn write(&self, text: String);
}

/// Keeps bytes beside the session's log.
#[async_trait]
pub trait Blobs: Send + Sync {
    /// Durable before it returns; tells what is kept, which has no secrets in it.
    async fn put(&self, name: &str, bytes: Bytes) -> Result<Artifact, String>;
    async fn get(&self, name: &str) -> Result<Option<Bytes>, String>;
}

/// What a tool gave back, and what it could not end within the limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Invoked {
    pub result: ToolResult,
    /// Processes that were still alive when waiting for their end was given up, by name and pid.
    pub left: Vec<String>,
}

impl Invoked {
    /// A call that left no process behind.
    pub fn done(result: ToolResult) -> Self {
        Self { result, left: vec![] }
    }

    pub fn failed(error: impl Into<String>) -> Self {
        Self::done(ToolResult::failed(error))
    }
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

    /// For `write` tools: the change that an intent stands for, as unified diffs for whoever reviews it. An error says
    /// that the files are no longer what the intent says.
    async fn preview(&self, context: &CallContext, input: &Value, intent: &Intent) -> Result<String, String> {
        let _ = (context, input, intent);
        Ok(String::new())
    }

    async fn invoke(&self, context: &CallContext, input: &Value, intent: &Intent) -> Invoked;
}

/// A field of an input that the schema has already judged; what does not fit reads as empty.
pub(crate) fn text_field<'v>(input: &'v Value, name: &str) -> &'v str {
    input.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A yes or no of an input; what is not said is a no.
pub(crate) fn flag(input: &Value, name: &str) -> bool {
    input.get(name).and_then(Value::as_bool).unwrap_or(false)
}

/// Runs work that waits for the disk away from the async threads. Where there is only one of those, as in tests under a
/// simulated clock, it is done in place: the same life goes the same way again.
pub(crate) async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    if tokio::runtime::Handle::current().runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(panic) => Err(format!("the tool failed inside: {panic}")),
    }
}

//! One call of a tool: prepared, run, its output shown as it comes and its result redacted.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use serde_json::Value;
use tenure_core::{
    delta::Stream,
    ids::{CallId, SessionId, TurnId},
    policy::PatchReview,
    redact::{Secrets, StreamRedactor},
    tool::{Intent, ToolResult, VerifyPlan, VerifySource},
};
use tenure_store::Store;
use tenure_tools::{CallContext, Invoked, OutputSink, Registry, Tool, foreign::Foreign};
use tokio_util::sync::CancellationToken;

use crate::{
    files::SessionFiles,
    hub::lock,
    redaction::{redacted, restored},
    warm::Shower,
};

pub(crate) struct CallOfTool {
    pub(crate) tools: Arc<Registry>,
    pub(crate) foreign: Option<Arc<Foreign>>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) secrets: Secrets,
    /// Those of them that the tool is given.
    pub(crate) put_back: Secrets,
    pub(crate) session: SessionId,
    pub(crate) turn: TurnId,
    pub(crate) call: CallId,
    pub(crate) name: String,
    pub(crate) input: Value,
    /// What was asked about, where somebody was asked.
    pub(crate) subject: String,
    pub(crate) workspace: PathBuf,
    pub(crate) verify: Option<VerifyPlan>,
    pub(crate) require_clean: bool,
    pub(crate) patch_review: PatchReview,
    pub(crate) cancel: CancellationToken,
    pub(crate) shower: Shower,
}

/// What a write call would do.
pub(crate) struct Prepared {
    pub(crate) intent: Intent,
    /// For whoever reviews it.
    pub(crate) diff: Option<String>,
}

impl CallOfTool {
    pub(crate) async fn prepare(mut self) -> Result<Prepared, String> {
        let tool = self.tools.get(&self.name).ok_or_else(|| format!("no tool named {}", self.name))?;
        self.restore();
        let sink = Arc::new(Sink::new(&self));
        let context = self.context(sink);
        let told = |problem: String| self.secrets.redact(&problem).into_owned();
        let intent = tool.prepare(&context, &self.input).await.map_err(told)?;
        let diff = match self.patch_review {
            PatchReview::Off => None,
            PatchReview::Request | PatchReview::Auto => {
                let diff = tool.preview(&context, &self.input, &intent).await.map_err(told)?;
                Some(self.secrets.redact(&diff).into_owned())
            }
        };
        Ok(Prepared { intent: redacted(&self.secrets, &intent), diff })
    }

    /// Runs it; the intent is on disk by now.
    pub(crate) async fn run(mut self, intent: Intent) -> Invoked {
        let tool = match self.tool().await {
            Ok(tool) => tool,
            Err(why) => return Invoked::failed(self.secrets.redact(&why)),
        };
        self.restore();
        let intent = restored(&self.put_back, &intent);
        let sink = Arc::new(Sink::new(&self));
        let mut invoked = tool.invoke(&self.context(sink.clone()), &self.input, &intent).await;
        sink.finish().await;
        invoked.result = self.redact_result(invoked.result);
        invoked.left = redacted(&self.secrets, &invoked.left);
        invoked
    }

    /// The built-in tool of this name, or the foreign one as it is now: what it stands for must still be what was shown.
    async fn tool(&self) -> Result<Arc<dyn Tool>, String> {
        if let Some(tool) = self.tools.get(&self.name) {
            return Ok(tool);
        }
        let name = &self.name;
        let gone =
            || format!("there is no tool named {name} any more: its source was changed, removed or not approved");
        let foreign = self.foreign.as_ref().ok_or_else(gone)?;
        let tool = foreign.tool(&self.workspace, name).await.ok_or_else(gone)?;
        match self.secrets.redact(&tool.subject(&self.input, None)) == self.subject {
            true => Ok(tool),
            false => Err(format!("what {name} stands for was changed after it was shown; it was not run")),
        }
    }

    /// The tool acts on what was meant, not on what was recorded.
    fn restore(&mut self) {
        self.put_back.restore_json(&mut self.input);
        // The user's own commands may hold secrets; a mark in those of a workspace was put there by somebody else.
        let trusted = |plan: &&VerifyPlan| matches!(plan.source, VerifySource::Config | VerifySource::Policy);
        if let Some(plan) = self.verify.as_ref().filter(trusted) {
            self.verify = Some(restored(&self.secrets, plan));
        }
    }

    /// The result without secrets, and which ones stood in it.
    fn redact_result(&self, result: ToolResult) -> ToolResult {
        let names = serde_json::to_value(&result).map(|json| self.secrets.names_in_json(&json)).unwrap_or_default();
        ToolResult { redacted: names.into_iter().collect(), ..redacted(&self.secrets, &result) }
    }

    fn context(&self, output: Arc<Sink>) -> CallContext {
        CallContext {
            session_id: self.session,
            turn_id: self.turn,
            call_id: self.call,
            workspace: self.workspace.clone(),
            cancel: self.cancel.clone(),
            output,
            blobs: Arc::new(SessionFiles {
                store: self.store.clone(),
                session: self.session,
                secrets: self.secrets.clone(),
            }),
            verify: self.verify.clone(),
            require_clean: self.require_clean,
        }
    }
}

/// Shows a tool's output as deltas.
struct Sink {
    stream: Stream,
    redactor: Mutex<StreamRedactor>,
    shower: Shower,
}

impl Sink {
    fn new(call: &CallOfTool) -> Self {
        Self {
            stream: Stream::Output(call.call),
            redactor: Mutex::new(StreamRedactor::new(call.secrets.clone())),
            shower: call.shower.clone(),
        }
    }

    async fn finish(&self) {
        let clear = lock(&self.redactor).finish();
        self.shower.show(self.stream, clear).await;
    }
}

#[async_trait]
impl OutputSink for Sink {
    async fn write(&self, text: String) {
        let clear = lock(&self.redactor).push(&text);
        self.shower.show(self.stream, clear).await;
    }
}

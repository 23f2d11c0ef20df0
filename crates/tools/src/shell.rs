//! The `shell` tool: one command line in the workspace, under a supervisor. It never lets a process outlive its call.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use tenure_core::{
    message::Part,
    tool::{Artifact, Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan},
};

use crate::{
    CallContext, Invoked, OUTPUT_BYTES_MAX, TIMEOUT_MAX, Tool,
    command::{Commands, Ended, Job},
    order::Exit,
    output::Capture,
    tool::text_field,
};

/// Room for the line that says how it ended.
const NOTE_BYTES: usize = 1024;

pub(crate) struct Shell {
    commands: Arc<Commands>,
    timeout: Duration,
}

impl Shell {
    pub(crate) fn new(commands: Arc<Commands>, timeout: Duration) -> Self {
        Self { commands, timeout }
    }
}

#[async_trait]
impl Tool for Shell {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "shell".into(),
            description: format!(
                "Runs a shell command line in the workspace and returns what it printed. There is nothing to read on \
                 its input. Processes it leaves in the background are ended when it ends. It is ended after {} s, or \
                 after `timeout_ms`.",
                self.timeout.as_secs()
            ),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "command": {"type": "string", "minLength": 1, "description": "the command line"},
                    "timeout_ms": {"type": "integer", "minimum": 1, "maximum": TIMEOUT_MAX.as_millis() as u64}
                },
                "required": ["command"],
                "additionalProperties": false
            }),
            kind: ToolKind::Exec,
        }
    }

    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        text_field(input, "command").to_owned()
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        let asked = input.get("timeout_ms").and_then(Value::as_u64).map(Duration::from_millis);
        let timeout = asked.unwrap_or(self.timeout).min(TIMEOUT_MAX);
        let job = Job {
            call_id: context.call_id,
            workspace: &context.workspace,
            line: text_field(input, "command"),
            timeout,
            cancel: &context.cancel,
            sink: Some(&*context.output),
        };
        let mut capture = Capture::new(OUTPUT_BYTES_MAX);
        let ended = self.commands.run(&job, &mut capture).await;
        let shown = keep_output(context, capture, ".txt", OUTPUT_BYTES_MAX - NOTE_BYTES).await;
        Invoked { result: result_of(&ended, timeout, shown), left: ended.left }
    }
}

/// What the model sees of an output, and the artifact with the rest.
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) artifacts: Vec<Artifact>,
}

/// Stores an output that does not fit beside the log.
pub(crate) async fn keep_output(context: &CallContext, capture: Capture, suffix: &str, bytes_max: usize) -> Shown {
    let name = context.blob_name(suffix);
    let bounded = capture.bounded(bytes_max, &name);
    if bounded.whole_fits {
        return Shown { text: bounded.text, artifacts: vec![] };
    }
    match context.blobs.put(&name, Bytes::from(capture.into_kept())).await {
        Ok(artifact) => Shown { text: bounded.text, artifacts: vec![artifact] },
        Err(error) => {
            let text = format!("{}\n[the whole output could not be stored: {error}]", bounded.text);
            Shown { text, artifacts: vec![] }
        }
    }
}

fn result_of(ended: &Ended, timeout: Duration, shown: Shown) -> ToolResult {
    let error = reason(&ended.exit, timeout);
    let mut text = shown.text;
    if text.is_empty() {
        text.push_str("(no output)");
    }
    if let Some(error) = &error {
        let join = if text.ends_with('\n') { "" } else { "\n" };
        text.push_str(&format!("{join}[{error}]"));
    }
    ToolResult {
        ok: error.is_none(),
        parts: vec![Part::text(text)],
        artifacts: shown.artifacts,
        error,
        redacted: vec![],
        detail: detail(ended),
    }
}

/// Why it counts as failed; `None` for exit code 0.
pub(crate) fn reason(exit: &Exit, timeout: Duration) -> Option<String> {
    match exit {
        Exit::Code(0) => None,
        Exit::Code(code) => Some(format!("exit code {code}")),
        Exit::Signal(signal) => Some(format!("ended by signal {signal}")),
        Exit::TimedOut => Some(format!("timed out after {} ms and was ended", timeout.as_millis())),
        Exit::Stopped => Some("stopped".into()),
        Exit::Failed(why) => Some(why.clone()),
    }
}

pub(crate) fn detail(ended: &Ended) -> Value {
    let (code, signal) = match ended.exit {
        Exit::Code(code) => (Some(code), None),
        Exit::Signal(signal) => (None, Some(signal)),
        _ => (None, None),
    };
    json!({
        "exit_code": code,
        "signal": signal,
        "timed_out": ended.exit == Exit::TimedOut,
        "duration_ms": u64::try_from(ended.duration.as_millis()).unwrap_or(u64::MAX),
    })
}

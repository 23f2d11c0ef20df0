//! The `verify` tool: the workspace's own checks, in order, up to the first that fails. It never picks the commands
//! itself, and never counts checks that change tracked files as passed where a clean tree is required.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::{
    message::Part,
    tool::{Artifact, Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan},
};

use crate::{
    CallContext, Invoked, OUTPUT_BYTES_MAX, OutputSink, Tool,
    command::{Commands, Ended, Job},
    order::Exit,
    output::{Capture, head_of},
    shell::{Shown, detail, keep_output, reason},
};

/// What is shown of a command that passed; the one that failed gets the rest of the room.
const PASSED_BYTES_MAX: usize = 1024;
const FAILED_BYTES_MAX: usize = OUTPUT_BYTES_MAX / 2;

/// The tracked files' state as text: names, then every change. Options keep settings of the repository from running
/// programs of their own.
const STATE_LINE: &str = "export GIT_OPTIONAL_LOCKS=0; g() { git -c core.fsmonitor=false \"$@\"; }; \
     g status --porcelain -uno && g diff --no-ext-diff --no-textconv --binary && \
     g diff --cached --no-ext-diff --no-textconv --binary";

pub(crate) struct Verify {
    commands: Arc<Commands>,
    timeout: Duration,
}

impl Verify {
    pub(crate) fn new(commands: Arc<Commands>, timeout: Duration) -> Self {
        Self { commands, timeout }
    }
}

#[async_trait]
impl Tool for Verify {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "verify".into(),
            description: "Runs the workspace's verification commands (such as its tests) in order and stops at the \
                          first that fails."
                .into(),
            input_schema: json!({"type": "object", "properties": {}, "additionalProperties": false}),
            kind: ToolKind::Exec,
        }
    }

    fn subject(&self, _input: &Value, verify: Option<&VerifyPlan>) -> String {
        verify.map(|plan| plan.commands.join("\n")).unwrap_or_default()
    }

    async fn invoke(&self, context: &CallContext, _input: &Value, _intent: &Intent) -> Invoked {
        let commands = context.verify.as_ref().map(|plan| plan.commands.as_slice()).unwrap_or_default();
        if commands.is_empty() {
            return Invoked::failed(
                "there are no verification commands for this workspace: none are configured, AGENTS.md names none \
                 under a heading about verification, and there is no Makefile with a test target",
            );
        }
        let before = if context.require_clean { self.tracked_state(context).await } else { None };
        let mut verification = Verification::default();
        for (at, line) in commands.iter().enumerate() {
            verification.add(context, self.run(context, line).await, at, line, self.timeout).await;
            if verification.failed.is_some() {
                break;
            }
        }
        if let (Some(before), None) = (before, &verification.failed) {
            verification.compare(before, self.tracked_state(context).await);
        }
        verification.into_invoked()
    }
}

impl Verify {
    async fn run(&self, context: &CallContext, line: &str) -> (Ended, Capture) {
        context.output.write(format!("$ {line}\n")).await;
        let job = self.job(context, line, Some(&*context.output));
        let mut capture = Capture::new(FAILED_BYTES_MAX);
        (self.commands.run(&job, &mut capture).await, capture)
    }

    /// `None`: not a git repository, or git cannot tell.
    async fn tracked_state(&self, context: &CallContext) -> Option<TrackedState> {
        let mut capture = Capture::new(1024);
        let ended = self.commands.run(&self.job(context, STATE_LINE, None), &mut capture).await;
        if ended.exit != Exit::Code(0) {
            return None;
        }
        let total = capture.total();
        let text = capture.into_kept();
        let mut digest = blake3::Hasher::new();
        digest.update(&text).update(&total.to_le_bytes());
        let names = String::from_utf8_lossy(&text)
            .lines()
            .take_while(|line| !line.starts_with("diff "))
            .map(str::to_owned)
            .collect();
        Some(TrackedState { names, digest: digest.finalize() })
    }

    fn job<'c>(&self, context: &'c CallContext, line: &'c str, sink: Option<&'c dyn OutputSink>) -> Job<'c> {
        Job {
            call_id: context.call_id,
            workspace: &context.workspace,
            line,
            timeout: self.timeout,
            cancel: &context.cancel,
            sink,
        }
    }
}

/// What git says of the tracked files.
struct TrackedState {
    /// Lines of `git status`.
    names: Vec<String>,
    digest: blake3::Hash,
}

impl TrackedState {
    /// The names that are new here; where only the content differs, all that are changed.
    fn differing(self, before: &TrackedState) -> Vec<String> {
        let (new, known): (Vec<_>, Vec<_>) = self.names.into_iter().partition(|name| !before.names.contains(name));
        if new.is_empty() { known } else { new }
    }
}

/// The commands run so far.
#[derive(Default)]
struct Verification {
    text: String,
    artifacts: Vec<Artifact>,
    details: Vec<Value>,
    failed: Option<String>,
    left: Vec<String>,
}

impl Verification {
    async fn add(&mut self, context: &CallContext, run: (Ended, Capture), at: usize, line: &str, timeout: Duration) {
        let (ended, capture) = run;
        let why = reason(&ended.exit, timeout);
        let bytes_max = if why.is_some() { FAILED_BYTES_MAX } else { PASSED_BYTES_MAX };
        let Shown { text, artifacts } = keep_output(context, capture, &format!("-{at}.txt"), bytes_max).await;
        let outcome = why.clone().unwrap_or_else(|| "exit code 0".into());
        self.text.push_str(&format!("$ {}\n{}\n[{outcome}]\n", head_of(line, 512), text.trim_end()));
        self.artifacts.extend(artifacts);
        let mut detail = detail(&ended);
        detail["command"] = line.into();
        self.details.push(detail);
        self.left.extend(ended.left);
        self.failed = why.map(|why| format!("verification failed: {}: {why}", head_of(line, 512)));
    }

    fn compare(&mut self, before: TrackedState, after: Option<TrackedState>) {
        let why = match after {
            Some(after) if after.digest == before.digest => return,
            Some(after) => format!("the commands left tracked files changed: {}", after.differing(&before).join(", ")),
            None => "git could not tell afterwards whether tracked files were changed".into(),
        };
        let why = head_of(&format!("verification failed: {why}"), PASSED_BYTES_MAX);
        self.text.push_str(&format!("[{why}]\n"));
        self.failed = Some(why);
    }

    fn into_invoked(self) -> Invoked {
        let result = ToolResult {
            ok: self.failed.is_none(),
            // The end counts most: the command that failed stands there.
            parts: vec![Part::text(tail_of(self.text.trim_end(), OUTPUT_BYTES_MAX))],
            artifacts: self.artifacts,
            error: self.failed,
            redacted: vec![],
            detail: json!({ "commands": self.details }),
        };
        Invoked { result, left: self.left }
    }
}

fn tail_of(text: &str, bytes_max: usize) -> String {
    const NOTE: &str = "[the beginning is left out]\n";
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let from = text.ceil_char_boundary(text.len() - (bytes_max - NOTE.len()));
    format!("{NOTE}{}", &text[from..])
}

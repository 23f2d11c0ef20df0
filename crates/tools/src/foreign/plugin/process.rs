//! One run of a plugin: asked once, answered once, then gone with all it started. It is never asked a second time by
//! itself.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tenure_core::{message::Part, redact::Secrets, tool::ToolResult};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::unix::pipe,
};

use super::protocol::{Ask, LINE_BYTES_MAX, PROTOCOL, PluginTool, Told};
use crate::{
    CallContext, OUTPUT_BYTES_MAX, STOP_GRACE,
    command::Commands,
    foreign::listing::{Described, bounded},
    output::Capture,
    service::{Life, Post, Service},
    shell::keep_output,
};

/// How long a plugin gets to describe itself.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long one call may take.
const CALL_TIMEOUT: Duration = crate::TIMEOUT_MAX;

static STARTS: AtomicU64 = AtomicU64::new(1);

/// Asks a plugin which tools it has.
pub(in crate::foreign) async fn describe(
    name: &str,
    program: PathBuf,
    workspace: &Path,
    commands: &Arc<Commands>,
) -> Result<Vec<Described>, String> {
    let mut talk = Talk::start(name, program, workspace, commands).await?;
    talk.say(&Ask::Describe { protocol: PROTOCOL }).await;
    let answered = async {
        loop {
            match talk.hear().await? {
                Told::Tools { tools } => return Ok(tools),
                Told::Progress { .. } | Told::Result { .. } => {}
            }
        }
    };
    let limit = || Err(format!("it did not describe itself within {} s", DESCRIBE_TIMEOUT.as_secs()));
    let tools = tokio::time::timeout(DESCRIBE_TIMEOUT, answered).await.unwrap_or_else(|_| limit())?;
    let described = |tool: PluginTool| Described {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
        read_only: false,
    };
    Ok(bounded(tools.into_iter().map(described).collect(), &Secrets::default()))
}

/// Runs one call. A plugin that ends without a result leaves the outcome unknown.
pub(in crate::foreign) async fn call(
    (name, tool): (&str, &str),
    program: PathBuf,
    input: &Value,
    context: &CallContext,
    commands: &Arc<Commands>,
) -> ToolResult {
    let mut talk = match Talk::start(name, program, &context.workspace, commands).await {
        Ok(talk) => talk,
        Err(why) => return ToolResult::failed(format!("the plugin {name} could not be started: {why}")),
    };
    let (id, workspace) = (context.call_id.to_string(), context.workspace.to_string_lossy());
    talk.say(&Ask::Call { id: &id, tool, input, workspace: &workspace }).await;
    let result = tokio::select! {
        biased;
        result = answer(&mut talk, &id, context) => Some(result),
        () = context.cancel.cancelled() => None,
        () = tokio::time::sleep(CALL_TIMEOUT) => {
            Some(Err(format!("it took longer than {} s and was ended", CALL_TIMEOUT.as_secs())))
        }
    };
    let result = match result {
        Some(result) => result,
        None => {
            talk.say(&Ask::Cancel { id: &id }).await;
            // A chance to stop in good order; then it is ended.
            let _ = tokio::time::timeout(STOP_GRACE, answer(&mut talk, &id, context)).await;
            Err("it was stopped".into())
        }
    };
    talk.end().await;
    match result {
        Ok(answer) => shown(answer, context).await,
        Err(why) => ToolResult::failed(format!("the plugin {name} gave no result: {why}. {}", super::super::UNKNOWN)),
    }
}

struct Answer {
    ok: bool,
    text: String,
    detail: Value,
}

async fn answer(talk: &mut Talk, wanted: &str, context: &CallContext) -> Result<Answer, String> {
    loop {
        match talk.hear().await? {
            Told::Progress { id, text } if id == wanted => context.output.write(text).await,
            Told::Result { id, ok, text, detail } if id == wanted => return Ok(Answer { ok, text, detail }),
            Told::Progress { .. } | Told::Result { .. } | Told::Tools { .. } => {}
        }
    }
}

async fn shown(answer: Answer, context: &CallContext) -> ToolResult {
    let mut capture = Capture::new(OUTPUT_BYTES_MAX);
    capture.push(answer.text.as_bytes());
    let shown = keep_output(context, capture, ".txt", OUTPUT_BYTES_MAX).await;
    let text = if shown.text.is_empty() { "(no output)".to_owned() } else { shown.text };
    let error = (!answer.ok).then(|| crate::output::head_of(text.lines().next().unwrap_or_default(), 256));
    let small = answer.detail.to_string().len() <= OUTPUT_BYTES_MAX;
    let detail = if small { answer.detail } else { Value::Null };
    ToolResult {
        ok: answer.ok,
        parts: vec![Part::text(text)],
        artifacts: shown.artifacts,
        error,
        redacted: vec![],
        detail,
    }
}

/// A plugin that runs, and what it said.
struct Talk {
    input: pipe::Sender,
    output: BufReader<pipe::Receiver>,
    life: Life,
    /// The beginning of a line whose rest has not come yet.
    line: Vec<u8>,
}

impl Talk {
    async fn start(name: &str, program: PathBuf, workspace: &Path, commands: &Arc<Commands>) -> Result<Self, String> {
        let id = format!("plugin_{name}_{}", STARTS.fetch_add(1, Ordering::Relaxed));
        let command = vec![program.to_string_lossy().into_owned()];
        let post = Post { id, command, environment: BTreeMap::new(), folder: workspace };
        let Service { input, output, life } = commands.serve(post).await?;
        Ok(Self { input, output: BufReader::new(output), life, line: vec![] })
    }

    async fn say(&mut self, ask: &Ask<'_>) {
        let line = serde_json::to_string(ask).unwrap_or_default() + "\n";
        // One that does not read shows by its silence.
        let _ = self.input.write_all(line.as_bytes()).await;
    }

    /// The next message. An error: there is none to come, or it makes no sense.
    async fn hear(&mut self) -> Result<Told, String> {
        loop {
            let room = (LINE_BYTES_MAX - self.line.len()) as u64;
            // What was read of a line stays here when the wait for the rest is given up.
            let read = (&mut self.output).take(room).read_until(b'\n', &mut self.line).await;
            let count = read.map_err(|error| error.to_string())?;
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                if let Some(told) = Told::parse(&line)? {
                    return Ok(told);
                }
            } else if self.line.len() >= LINE_BYTES_MAX {
                return Err(format!("a line is longer than {LINE_BYTES_MAX} bytes"));
            } else if count == 0 {
                return Err(self.how_it_ended().await);
            }
        }
    }

    async fn how_it_ended(&self) -> String {
        let ended = tokio::time::timeout(STOP_GRACE, self.life.ended()).await;
        let how = ended.unwrap_or_else(|_| "it closed its output".into());
        match self.life.complaints() {
            said if said.is_empty() => how,
            said => format!("{how}; it said: {}", crate::output::head_of(&said, 1024)),
        }
    }

    /// Ends it and all it started, and waits for that.
    async fn end(self) {
        drop((self.input, self.output));
        self.life.stop().await;
    }
}

//! The `diagram` tool: a DOT or Mermaid text becomes an SVG artifact. Drawing is done by a process of its own with limits
//! of its own, since a layout of a few lines may take for ever; what comes out is a picture and nothing else (`svg.rs`).

mod draw;
mod svg;

use std::{ffi::OsString, path::PathBuf, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use tenure_core::tool::{Artifact, Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan};

use crate::{
    CallContext, Invoked, Tool, ToolsConfig,
    output::head_of,
    program::{End, Programs, Ran, Task},
    tool::text_field,
};
pub use draw::{DRAW_ARG, draw};

const SOURCE_BYTES_MAX: u64 = 256 * 1024;
/// Of the picture; a larger one helps nobody.
const SVG_BYTES_MAX: usize = 8 * 1024 * 1024;
const DRAW_TIME_MAX: Duration = Duration::from_secs(30);
/// What is told of why a text could not be drawn.
const COMPLAINT_BYTES_MAX: usize = 2 * 1024;
/// What the built-in drawing of DOT leaves out. Graphviz leaves out nothing.
const PLAINLY: &str = "drawn without Graphviz, so clusters, ports, HTML-like labels and most shapes are left out or plain; \
                       the user can install it (on Debian: apt install graphviz)";

pub(crate) struct Diagram {
    programs: Programs,
    /// The daemon's own binary, which draws in a hidden mode.
    drawer: PathBuf,
}

impl Diagram {
    pub(crate) fn new(config: &ToolsConfig, programs: Programs) -> Self {
        Self { programs, drawer: config.supervisor.clone() }
    }
}

#[async_trait]
impl Tool for Diagram {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "diagram".into(),
            description: "Draws a diagram from a DOT (Graphviz) or Mermaid text and keeps it as an SVG artifact that \
                          people can open. Mermaid: flowchart, sequenceDiagram, classDiagram, stateDiagram-v2, \
                          erDiagram, gantt, pie, mindmap, timeline, journey, gitGraph and others; links, scripts \
                          and embedded pictures are left out."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "language": {"enum": ["dot", "mermaid"]},
                    "source": {"type": "string", "minLength": 1, "maxLength": SOURCE_BYTES_MAX, "description": "the diagram's text"}
                },
                "required": ["language", "source"],
                "additionalProperties": false
            }),
            kind: ToolKind::Exec,
        }
    }

    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        let first = text_field(input, "source").trim_start().lines().next().unwrap_or_default();
        format!("{}: {}", text_field(input, "language"), first.trim_end())
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        match self.drawn(context, text_field(input, "language"), text_field(input, "source")).await {
            Ok((svg, note)) => kept(context, svg, note).await,
            Err(error) => Invoked::failed(error),
        }
    }
}

impl Diagram {
    /// The picture, and what is to be said of it.
    async fn drawn(
        &self,
        context: &CallContext,
        language: &str,
        source: &str,
    ) -> Result<(Vec<u8>, Option<&'static str>), String> {
        let graphviz = if language == "dot" { self.programs.find("dot", &context.workspace) } else { None };
        let Some(program) = graphviz else {
            let svg = self.draw(context, language, source.as_bytes()).await?;
            return Ok((svg, (language == "dot").then_some(PLAINLY)));
        };
        let task = Task {
            program: &program,
            arguments: vec!["-Tsvg".into()],
            // With these Graphviz reads no file that a text names.
            environment: [("SERVER_NAME", "tenure"), ("GV_FILE_PATH", "/nonexistent")]
                .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                .to_vec(),
            folder: "/".as_ref(),
            input: source.as_bytes().to_vec(),
            timeout: DRAW_TIME_MAX,
            output_max: SVG_BYTES_MAX,
        };
        let svg = succeeded(self.programs.run(context, task).await?)?;
        Ok((self.draw(context, draw::CLEAN, &svg).await?, None))
    }

    /// In a process of its own: the daemon's binary in its hidden mode.
    async fn draw(&self, context: &CallContext, what: &str, source: &[u8]) -> Result<Vec<u8>, String> {
        let task = Task {
            program: &self.drawer,
            arguments: vec![DRAW_ARG.into(), what.into()],
            environment: vec![],
            folder: "/".as_ref(),
            input: source.to_vec(),
            timeout: DRAW_TIME_MAX,
            output_max: SVG_BYTES_MAX,
        };
        succeeded(self.programs.run(context, task).await?)
    }
}

fn succeeded(ran: Ran) -> Result<Vec<u8>, String> {
    match ran.end {
        End::Code(0) => Ok(ran.output),
        End::Full => Err(format!("the picture is larger than {} MiB; draw less at a time", SVG_BYTES_MAX >> 20)),
        End::TimedOut => {
            Err(format!("drawing took longer than {} s and was ended; draw less at a time", DRAW_TIME_MAX.as_secs()))
        }
        End::Stopped => Err("stopped".into()),
        End::Code(_) if !ran.complaint.is_empty() => {
            Err(format!("it could not be drawn: {}", head_of(&ran.complaint, COMPLAINT_BYTES_MAX)))
        }
        End::Code(_) | End::Signal => Err("drawing failed without a word; the text is perhaps too large for it".into()),
    }
}

async fn kept(context: &CallContext, svg: Vec<u8>, note: Option<&str>) -> Invoked {
    let bytes = svg.len();
    match context.blobs.put(&context.blob_name(".svg"), Bytes::from(svg)).await {
        Ok(artifact) => Invoked::done(told(artifact, bytes, note)),
        Err(error) => Invoked::failed(format!("the picture could not be stored: {error}")),
    }
}

fn told(artifact: Artifact, bytes: usize, note: Option<&str>) -> ToolResult {
    let mut text = format!("The diagram is kept as {} (SVG, {bytes} bytes).", artifact.r#ref);
    if let Some(note) = note {
        text.push_str(&format!("\n[{note}]"));
    }
    ToolResult { artifacts: vec![artifact], detail: json!({ "bytes": bytes }), ..ToolResult::ok(text) }
}

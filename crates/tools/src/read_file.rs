//! The `read_file` tool: lines of a text file, bounded. It never changes anything and never reads a file whole into memory.

use std::{fs::File, io::BufRead, io::BufReader, path::Path};

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::tool::{Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan};

use crate::{
    CallContext, Invoked, OUTPUT_BYTES_MAX, Tool,
    tool::{on_disk, text_field},
    workspace::Workspace,
};

/// Room for the note that says where to go on.
const NOTE_BYTES: usize = 256;
/// A NUL byte this early marks a file that is not text.
const BINARY_PROBE_BYTES: usize = 8 * 1024;

pub(crate) struct ReadFile;

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "read_file".into(),
            description: "Reads a text file of the workspace. Long files are read in parts: `offset` is the first \
                          line wanted (from 1), `limit` the number of lines."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "relative to the workspace"},
                    "offset": {"type": "integer", "minimum": 1, "description": "first line, counted from 1"},
                    "limit": {"type": "integer", "minimum": 1, "description": "how many lines at most"}
                },
                "required": ["path"],
                "additionalProperties": false
            }),
            kind: ToolKind::Read,
        }
    }

    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        text_field(input, "path").to_owned()
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        let workspace = context.workspace.clone();
        let path = text_field(input, "path").to_owned();
        let first = input.get("offset").and_then(Value::as_u64).unwrap_or(1);
        let count = input.get("limit").and_then(Value::as_u64).unwrap_or(u64::MAX);
        match on_disk(move || read(&workspace, &path, first, count)).await {
            Ok(text) => Invoked::done(ToolResult::ok(text)),
            Err(error) => Invoked::failed(error),
        }
    }
}

fn read(workspace: &Path, path: &str, first: u64, count: u64) -> Result<String, String> {
    let workspace = Workspace::open(workspace)?;
    let inside = workspace.inside(path)?;
    let file = workspace.open_file(&inside)?.ok_or_else(|| format!("there is no file {inside}"))?;
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let failed = |error: std::io::Error| format!("{inside} cannot be read: {error}");
    let mut reader = BufReader::with_capacity(BINARY_PROBE_BYTES, file);
    if reader.fill_buf().map_err(failed)?.contains(&0) {
        return Ok(format!("{inside} is a binary file of {bytes} bytes; it is not shown"));
    }
    let lines = Lines::read(&mut reader, first, count).map_err(failed)?;
    Ok(lines.text_with_note(first))
}

/// The lines wanted, as far as they fit.
struct Lines {
    bytes: Vec<u8>,
    /// Lines the file has before its end or before reading stopped.
    seen: u64,
    end: End,
}

enum End {
    /// The file's end was reached.
    File,
    /// As many lines as were asked for, and there is more.
    Asked,
    /// No room for the next line.
    Full,
    /// No room for the rest of this one line.
    InLine,
}

impl Lines {
    fn read(reader: &mut BufReader<File>, first: u64, count: u64) -> std::io::Result<Self> {
        let room = OUTPUT_BYTES_MAX - NOTE_BYTES;
        let last = first.saturating_add(count);
        let mut lines = Lines { bytes: vec![], seen: 0, end: End::File };
        let (mut line_start, mut in_line) = (0, false);
        loop {
            let chunk = reader.fill_buf()?;
            if chunk.is_empty() {
                lines.seen += u64::from(in_line);
                return Ok(lines);
            }
            if lines.seen + 1 >= last {
                lines.end = End::Asked;
                return Ok(lines);
            }
            let whole = chunk.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
            let piece = &chunk[..whole.unwrap_or(chunk.len())];
            if lines.seen + 1 >= first {
                if lines.bytes.len() + piece.len() > room {
                    lines.cut(line_start, piece, room);
                    return Ok(lines);
                }
                lines.bytes.extend_from_slice(piece);
            }
            let taken = piece.len();
            in_line = whole.is_none();
            reader.consume(taken);
            if !in_line {
                lines.seen += 1;
                line_start = lines.bytes.len();
            }
        }
    }

    /// Ends at the last whole line; where there is none, inside the line.
    fn cut(&mut self, line_start: usize, piece: &[u8], room: usize) {
        if line_start > 0 {
            self.bytes.truncate(line_start);
            self.end = End::Full;
        } else {
            self.bytes.extend_from_slice(&piece[..room - self.bytes.len()]);
            self.end = End::InLine;
        }
    }

    fn text_with_note(&self, first: u64) -> String {
        let mut text = String::from_utf8_lossy(&self.bytes).into_owned();
        let next = self.seen + 1;
        let note = match self.end {
            End::File if self.bytes.is_empty() && self.seen == 0 => "[the file is empty]".to_owned(),
            End::File if self.seen < first => {
                format!("[the file has only {} lines; offset {first} is past its end]", self.seen)
            }
            End::File => return text,
            End::Asked | End::Full => format!("[there is more; go on with offset {next}]"),
            End::InLine => format!("[line {next} is too long to show whole; it is cut here]"),
        };
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text + &note
    }
}

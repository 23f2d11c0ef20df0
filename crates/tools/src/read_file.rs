//! The `read_file` tool: lines of a text file, bounded, or a picture as the model can see it. It never changes anything
//! and never reads a text file whole into memory.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read as _},
    path::Path,
};

use async_trait::async_trait;
use bytes::Bytes;
use serde_json::{Value, json};
use tenure_core::{
    message::Part,
    tool::{Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan},
};

use crate::{
    CallContext, Invoked, OUTPUT_BYTES_MAX, Tool,
    picture::{Format, PICTURE_BYTES_MAX},
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
                          line wanted (from 1), `limit` the number of lines. A picture (PNG, JPEG, GIF, WebP) is \
                          shown as one."
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
            Ok(Seen::Text(text)) => Invoked::done(ToolResult::ok(text)),
            Ok(Seen::Picture(picture)) => picture.result(context).await,
            Err(error) => Invoked::failed(error),
        }
    }
}

/// What a file turned out to be.
enum Seen {
    Text(String),
    Picture(Picture),
}

struct Picture {
    format: Format,
    bytes: Vec<u8>,
    /// What is said beside it.
    caption: String,
}

impl Picture {
    /// The model is sent what was kept beside the log, so that it sees the same again after a restart.
    async fn result(self, context: &CallContext) -> Invoked {
        let name = context.blob_name(self.format.ending());
        match context.blobs.put(&name, Bytes::from(self.bytes)).await {
            Ok(artifact) => {
                let image = Part::Image { r#ref: name, mime_type: self.format.mime_type().into() };
                let parts = vec![Part::text(self.caption), image];
                Invoked::done(ToolResult { parts, artifacts: vec![artifact], ..ToolResult::ok("") })
            }
            Err(error) => Invoked::failed(format!("the picture could not be stored: {error}")),
        }
    }
}

fn read(workspace: &Path, path: &str, first: u64, count: u64) -> Result<Seen, String> {
    let workspace = Workspace::open(workspace)?;
    let inside = workspace.inside(path)?;
    let file = workspace.open_file(&inside)?.ok_or_else(|| format!("there is no file {inside}"))?;
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let failed = |error: std::io::Error| format!("{inside} cannot be read: {error}");
    let mut reader = BufReader::with_capacity(BINARY_PROBE_BYTES, file);
    let head = reader.fill_buf().map_err(failed)?;
    if let Some(format) = Format::of(head) {
        return picture(format, &mut reader, inside.as_str(), bytes).map_err(failed);
    }
    if head.contains(&0) {
        return Ok(Seen::Text(format!("{inside} is a binary file of {bytes} bytes; it is not shown")));
    }
    let lines = Lines::read(&mut reader, first, count).map_err(failed)?;
    Ok(Seen::Text(lines.text_with_note(first)))
}

/// A picture that a vendor would refuse is only described.
fn picture(format: Format, reader: &mut BufReader<File>, path: &str, bytes: u64) -> std::io::Result<Seen> {
    let kind = format.mime_type();
    let described =
        |why: &str| Ok(Seen::Text(format!("{path} is a picture ({kind}) of {bytes} bytes; it is not shown: {why}")));
    if bytes > PICTURE_BYTES_MAX as u64 {
        return described(&format!("models take no more than {PICTURE_BYTES_MAX} bytes"));
    }
    let mut whole = vec![];
    reader.take(PICTURE_BYTES_MAX as u64).read_to_end(&mut whole)?;
    match format.measure(&whole) {
        Ok((width, height)) => {
            let caption = format!("{path}: {kind}, {width} × {height} pixels, {} bytes", whole.len());
            Ok(Seen::Picture(Picture { format, bytes: whole, caption }))
        }
        Err(why) => described(&why),
    }
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

//! The `search` tool: lines that match, found with ripgrep's own libraries on all processors. The same search of the same
//! files gives the same text, whichever file was read first. It never follows a symlink.

mod found;
mod lines;

use std::sync::Arc;

use async_trait::async_trait;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use ignore::{
    WalkState,
    overrides::{Override, OverrideBuilder},
};
use serde_json::{Value, json};
use tenure_core::{
    message::Part,
    tool::{Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan},
};

use crate::{
    CallContext, Invoked, OUTPUT_BYTES_MAX, Tool,
    output::Capture,
    shell::keep_output,
    tool::{flag, text_field},
    walk::{self, Left, Stop, Stopped, counted},
    workspace::{Spot, Workspace},
};
use found::Found;
use lines::Reader;

/// Matching lines (or files, where only their names are wanted) that are given without a `limit`.
const RESULTS_DEFAULT: u64 = 200;
const RESULTS_MAX: u64 = 2_000;
const CONTEXT_MAX: u64 = 10;
const GLOBS_MAX: u64 = 32;
/// Room for the note that says what was left out.
const NOTE_BYTES: usize = 512;

pub(crate) struct Search;

#[async_trait]
impl Tool for Search {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "search".into(),
            description: "Searches the workspace's text files for lines that match a regular expression (Rust's \
                          syntax) and returns them with their line numbers, file by file. What .gitignore and .ignore \
                          name, hidden files and binary files are left out. The case of letters counts only if the \
                          pattern has a capital."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "pattern": {"type": "string", "minLength": 1, "description": "what to look for, within one line"},
                    "literal": {"type": "boolean", "description": "take the pattern as it is, not as a regular expression"},
                    "path": {"type": "string", "minLength": 1, "description": "a folder or file; the workspace if left out"},
                    "globs": {
                        "type": "array",
                        "items": {"type": "string", "minLength": 1},
                        "maxItems": GLOBS_MAX,
                        "description": "only files like these, such as \"*.rs\" or \"src/**\"; with ! before it: not those"
                    },
                    "case": {"enum": ["smart", "sensitive", "insensitive"]},
                    "context": {"type": "integer", "minimum": 0, "maximum": CONTEXT_MAX, "description": "lines around each match"},
                    "files_only": {"type": "boolean", "description": "only the names of files that have a match"},
                    "hidden": {"type": "boolean", "description": "also names that begin with a dot"},
                    "ignored": {"type": "boolean", "description": "also what ignore rules name"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": RESULTS_MAX, "description": "how many matching lines, or files, at most"}
                },
                "required": ["pattern"],
                "additionalProperties": false
            }),
            kind: ToolKind::Read,
        }
    }

    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        text_field(input, "pattern").to_owned()
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        let (workspace, input) = (context.workspace.clone(), input.clone());
        let work = move |stop: Stop| {
            let workspace = Workspace::open(&workspace)?;
            let query = Query::of(&workspace, &input)?;
            query.run(workspace, &stop)
        };
        match Stop::new(&context.cancel).or(work).await {
            Ok(answer) => answered(context, answer).await,
            Err(error) => Invoked::failed(error),
        }
    }
}

/// The text of an answer, whole in an artifact where it is too long to show.
async fn answered(context: &CallContext, answer: Answer) -> Invoked {
    let mut capture = Capture::new(OUTPUT_BYTES_MAX);
    capture.push(answer.text.as_bytes());
    let shown = keep_output(context, capture, ".txt", OUTPUT_BYTES_MAX - NOTE_BYTES).await;
    let text = match answer.note {
        Some(note) => format!("{}[{note}]", shown.text),
        None => shown.text.trim_end().to_owned(),
    };
    let mut result = ToolResult::ok("");
    result.parts = vec![Part::text(text)];
    result.artifacts = shown.artifacts;
    result.detail = answer.detail;
    Invoked::done(result)
}

struct Answer {
    text: String,
    note: Option<String>,
    detail: Value,
}

/// What is looked for, and where.
struct Query {
    spot: Spot,
    matcher: RegexMatcher,
    globs: Override,
    left: Left,
    context: usize,
    wanted: Wanted,
    limit: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Lines,
    Files,
}

impl Query {
    fn of(workspace: &Workspace, input: &Value) -> Result<Self, String> {
        let number = |name: &str, default: u64| input.get(name).and_then(Value::as_u64).unwrap_or(default) as usize;
        let spot = workspace.spot(input.get("path").and_then(Value::as_str))?;
        Ok(Self {
            matcher: matcher(input)?,
            globs: globs(&spot, input)?,
            left: Left { hidden: !flag(input, "hidden"), ignored: !flag(input, "ignored") },
            context: number("context", 0),
            wanted: if flag(input, "files_only") { Wanted::Files } else { Wanted::Lines },
            limit: number("limit", RESULTS_DEFAULT),
            spot,
        })
    }

    fn run(self, workspace: Workspace, stop: &Stop) -> Result<Answer, String> {
        let found = Arc::new(Found::new(self.limit));
        let walk = walk::walk(&self.spot, self.left, Some(self.globs.clone())).build_parallel();
        walk.run(|| {
            let mut reader = Reader::new(&self.matcher, self.context, self.wanted == Wanted::Files, stop.clone());
            let (found, workspace, root) = (&found, &workspace, &self.spot.root);
            Box::new(move |entry| {
                if stop.reason().is_some() {
                    return WalkState::Quit;
                }
                let Ok(entry) = entry else { return WalkState::Continue };
                if !entry.file_type().is_some_and(|kind| kind.is_file()) {
                    return WalkState::Continue;
                }
                let Ok(below) = entry.path().strip_prefix(root) else { return WalkState::Continue };
                if let Some(file) = workspace.open_found(below) {
                    let room = found.room(below);
                    let matched = reader.read(file, room);
                    found.add(below, matched);
                }
                WalkState::Continue
            })
        });
        if stop.reason() == Some(Stopped::Canceled) {
            return Err("stopped".into());
        }
        let found = Arc::into_inner(found).ok_or("the search has not ended")?;
        Ok(self.answer(found, stop.reason()))
    }

    fn answer(&self, found: Found, stopped: Option<Stopped>) -> Answer {
        let (files, lines) = (found.files(), found.lines());
        let detail = json!({ "files": files, "lines": lines });
        let late = stopped
            .map(|_| format!("the search was ended after {} s; there may be more", walk::WALK_TIME_MAX.as_secs()));
        if files == 0 {
            let text = format!("no line matches in {}", self.place());
            return Answer { text, note: late, detail };
        }
        let (text, shown) = match self.wanted {
            Wanted::Lines => found.text(self.context > 0),
            Wanted::Files => found.names(),
        };
        let (of, what) = match self.wanted {
            Wanted::Lines => (
                lines,
                format!("{} in {}", counted(lines, "matching line", "matching lines"), counted(files, "file", "files")),
            ),
            Wanted::Files => (files, counted(files, "file with a match", "files with a match")),
        };
        let more = (shown < of).then(|| {
            format!("{what}; the first {shown} are here: narrow it by pattern, path or globs, or raise the limit")
        });
        Answer { text, note: late.or(more), detail }
    }

    fn place(&self) -> String {
        match (self.spot.name(), self.globs.num_whitelists() + self.globs.num_ignores()) {
            (".", 0) => "the workspace (ignored, hidden and binary files were left out)".to_owned(),
            (name, 0) => format!("{name} (ignored, hidden and binary files were left out)"),
            (name, _) => {
                format!("the files of {name} that the globs name (ignored, hidden and binary ones were left out)")
            }
        }
    }
}

fn matcher(input: &Value) -> Result<RegexMatcher, String> {
    let mut builder = RegexMatcherBuilder::new();
    // Within a line, as the whole search goes by lines: that is what makes it fast.
    builder.line_terminator(Some(b'\n')).fixed_strings(flag(input, "literal"));
    match text_field(input, "case") {
        "sensitive" => builder.case_insensitive(false),
        "insensitive" => builder.case_insensitive(true),
        _ => builder.case_smart(true),
    };
    let hint = match flag(input, "literal") {
        true => "a pattern cannot go over several lines",
        false => "mend it, or set literal to look for the text as it is; a pattern cannot go over several lines",
    };
    builder.build(text_field(input, "pattern")).map_err(|error| format!("the pattern cannot be used: {error}; {hint}"))
}

fn globs(spot: &Spot, input: &Value) -> Result<Override, String> {
    let mut builder = OverrideBuilder::new(&spot.root);
    let globs = input.get("globs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    for glob in globs {
        builder.add(glob).map_err(|error| format!("the glob '{glob}' cannot be used: {error}"))?;
    }
    builder.build().map_err(|error| format!("the globs cannot be used: {error}"))
}

//! The `repo_map` tool: the most important symbols of the workspace's sources, within a budget. It changes nothing but
//! its own cache.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::tool::{Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan};
use tenure_outline::{Focus, Outline, Stopped, Survey, outline, rank};
use tokio_util::sync::CancellationToken;

use crate::{
    CallContext, Invoked, OUTPUT_BYTES_MAX, Tool,
    sources::{Look, NoSurvey, left_out},
    tool::{on_disk, text_field},
    workspace::Workspace,
};

const TOKENS_DEFAULT: usize = 2_000;
/// What surely fits into a result.
const TOKENS_MAX: usize = 10_000;
/// Words and paths that a focus may have.
const FOCUS_MAX: usize = 100;
/// A repository that takes longer is looked at in parts, or again: what was read is known then.
const TIME_MAX: Duration = Duration::from_secs(60);

pub(crate) struct RepoMap {
    cache: Option<PathBuf>,
}

impl RepoMap {
    pub(crate) fn new(cache: Option<PathBuf>) -> Self {
        Self { cache }
    }
}

#[async_trait]
impl Tool for RepoMap {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "repo_map".into(),
            description: "Shows the most important symbols of the workspace's source files (Rust, Python, TypeScript, \
                          JavaScript, Go, Java, C, C++), by file and line, ranked by how much the other files use \
                          them. Use it to find your way before reading files. `focus` brings what it is about to the \
                          front; `path` looks at a part only."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "a folder or file, relative to the workspace; all of it if left out"},
                    "focus": {
                        "anyOf": [
                            {"type": "string"},
                            {"type": "array", "items": {"type": "string"}, "maxItems": FOCUS_MAX}
                        ],
                        "description": "what you look for: text, or a list of paths and identifiers"
                    },
                    "max_tokens": {
                        "type": "integer", "minimum": 1, "maximum": TOKENS_MAX,
                        "description": format!("about how long the answer may be; {TOKENS_DEFAULT} if left out")
                    }
                },
                "additionalProperties": false
            }),
            kind: ToolKind::Read,
        }
    }

    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        text_field(input, "path").to_owned()
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        let asked = Asked {
            workspace: context.workspace.clone(),
            path: text_field(input, "path").to_owned(),
            focus: focus(input.get("focus")),
            tokens: input.get("max_tokens").and_then(Value::as_u64).map_or(TOKENS_DEFAULT, bounded),
            cache: self.cache.clone(),
            cancel: context.cancel.clone(),
        };
        match on_disk(move || asked.answer()).await {
            Ok(text) => Invoked::done(ToolResult::ok(text)),
            Err(error) => Invoked::failed(error),
        }
    }
}

fn bounded(tokens: u64) -> usize {
    usize::try_from(tokens).unwrap_or(usize::MAX).min(TOKENS_MAX)
}

fn focus(said: Option<&Value>) -> Focus {
    match said {
        Some(Value::String(text)) => Focus::of_text(text),
        Some(Value::Array(list)) => {
            Focus::of_text(&list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n"))
        }
        _ => Focus::default(),
    }
}

struct Asked {
    workspace: PathBuf,
    path: String,
    focus: Focus,
    tokens: usize,
    cache: Option<PathBuf>,
    cancel: CancellationToken,
}

impl Asked {
    fn answer(&self) -> Result<String, String> {
        let below = below(&self.workspace, &self.path)?;
        let look = Look {
            workspace: &self.workspace,
            below: &below,
            cache: self.cache.as_deref(),
            cancel: &self.cancel,
            deadline: Instant::now() + TIME_MAX,
        };
        let survey = look.survey().map_err(|why| match why {
            NoSurvey::Refused(why) => why,
            NoSurvey::Stopped(Stopped::Cancelled) => "stopped before it was done".into(),
            NoSurvey::Stopped(Stopped::Late) => {
                format!("not done within {} s; ask again to go on, or name a path", TIME_MAX.as_secs())
            }
        })?;
        let found = outline(&survey, &rank(&survey, &self.focus), self.tokens);
        Ok(told(&survey, found))
    }
}

/// The path as the outline names it; the workspace itself is the empty one.
fn below(workspace: &Path, path: &str) -> Result<String, String> {
    let given = path.trim();
    if given.is_empty() || Path::new(given).components().all(|part| part == std::path::Component::CurDir) {
        return Ok(String::new());
    }
    if workspace == Path::new(given) {
        return Ok(String::new());
    }
    Workspace::open(workspace)?.inside(given).map(|inside| inside.as_str().to_owned())
}

fn told(survey: &Survey, found: Outline) -> String {
    let mut text = found.text;
    // A budget in tokens is a guess; the bound of a result is not.
    text.truncate(text.floor_char_boundary(OUTPUT_BYTES_MAX - NOTE_BYTES));
    if found.files == 0 {
        text.push_str("[no source files of a known language here]\n");
    } else if found.symbols_shown < found.symbols {
        let (shown, all) = (found.symbols_shown, found.symbols);
        let (files_shown, files) = (found.files_shown, found.files);
        text.push_str(&format!(
            "[{shown} of {all} symbols in {files_shown} of {files} files; to see others name a path or a focus, or \
             raise max_tokens]\n"
        ));
    }
    let left_out = left_out(&survey.skipped);
    if !left_out.is_empty() {
        text.push_str(&format!("[not looked at: {}]\n", left_out.join("; ")));
    }
    text
}

/// Room for what is said of what is left out.
const NOTE_BYTES: usize = 1024;

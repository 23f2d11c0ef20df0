//! The `git_status` tool: status, differences and history, told by `git` itself. It is run unasked, so nothing in a
//! repository may make it run a program or show a file from elsewhere: git is given a private repository folder with
//! settings of our making (`shadow.rs`), and changes nothing.

mod config;
mod repository;
mod shadow;
mod words;

use std::{ffi::OsString, path::Path, time::Duration};

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::{
    message::Part,
    tool::{Intent, ToolKind, ToolResult, ToolSpec, VerifyPlan},
};

use crate::{
    CallContext, Invoked, OUTPUT_BYTES_MAX, OUTPUT_KEPT_MAX, Tool,
    output::Capture,
    program::{End, Programs, Ran, Task},
    shell::keep_output,
    tool::{flag, on_disk, text_field},
    workspace::{Spot, Workspace},
};
use repository::Repository;
use shadow::Shadow;

/// For each run of git.
const GIT_TIME_MAX: Duration = Duration::from_secs(30);
/// Names of all files of the largest repositories.
const NAMES_BYTES_MAX: usize = 256 * 1024 * 1024;
const COMMITS_DEFAULT: u64 = 20;
const COMMITS_MAX: u64 = 200;
/// Room for the note that says how it ended.
const NOTE_BYTES: usize = 512;
const NO_GIT: &str = "there is no git program in the daemon's PATH; install it (on Debian: apt install git), or read the \
                      files themselves";
const NO_REPOSITORY: &str = "the workspace is not in a git repository: there is no .git here or above";

pub(crate) struct GitStatus {
    programs: Programs,
}

impl GitStatus {
    pub(crate) fn new(programs: Programs) -> Self {
        Self { programs }
    }
}

#[async_trait]
impl Tool for GitStatus {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "git_status".into(),
            description: "Tells about the workspace's git repository: which files are changed, staged or new \
                          (`status`), the differences themselves (`diff`; with `staged` those that would be \
                          committed), or the last commits (`log`). Changes nothing."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "what": {"enum": ["status", "diff", "log"], "description": "status if left out"},
                    "path": {"type": "string", "minLength": 1, "description": "only about this file or folder"},
                    "staged": {"type": "boolean", "description": "for diff: between the last commit and what is staged"},
                    "count": {"type": "integer", "minimum": 1, "maximum": COMMITS_MAX, "description": "for log: how many commits"}
                },
                "additionalProperties": false
            }),
            kind: ToolKind::Read,
        }
    }

    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        let what = Some(text_field(input, "what")).filter(|what| !what.is_empty()).unwrap_or("status");
        [what, text_field(input, "path")].join(" ").trim_end().to_owned()
    }

    async fn invoke(&self, context: &CallContext, input: &Value, _intent: &Intent) -> Invoked {
        match self.tell(context, input).await {
            Ok(result) => Invoked::done(result),
            Err(error) => Invoked::failed(error),
        }
    }
}

impl GitStatus {
    async fn tell(&self, context: &CallContext, input: &Value) -> Result<ToolResult, String> {
        let (workspace, path) =
            (context.workspace.clone(), input.get("path").and_then(Value::as_str).map(str::to_owned));
        let (spot, repository) = on_disk(move || {
            let spot = Workspace::open(&workspace)?.about(path.as_deref())?;
            let repository = Repository::around(&spot.root)?.ok_or(NO_REPOSITORY)?;
            Ok((spot, repository))
        })
        .await?;
        let program = self.programs.find("git", &repository.top).ok_or(NO_GIT)?;
        let git = Git { programs: &self.programs, context, program: &program, spot: &spot };
        let settings = git.settings(&repository).await?;
        let under_way = repository.under_way();
        let shadow = on_disk(move || Shadow::make(&repository, &settings)).await?;
        git.check_names(&shadow).await?;
        match text_field(input, "what") {
            "diff" => git.diff(&shadow, flag(input, "staged")).await,
            "log" => git.log(&shadow, input.get("count").and_then(Value::as_u64).unwrap_or(COMMITS_DEFAULT)).await,
            _ => git.status(&shadow, under_way).await,
        }
    }
}

/// One call's way of running git.
struct Git<'c> {
    programs: &'c Programs,
    context: &'c CallContext,
    program: &'c Path,
    spot: &'c Spot,
}

impl Git<'_> {
    /// What the repository and the user have set, as far as it says how files are compared. Reading runs nothing.
    async fn settings(&self, repository: &Repository) -> Result<String, String> {
        let file = repository.common.join("config");
        let own =
            ["config", "--no-includes", "-z", "--list", "--file"].map(OsString::from).into_iter().chain([file.into()]);
        let own = self.run(own.collect(), vec![], NAMES_BYTES_MAX).await?;
        if matches!(own.end, End::Code(1..)) {
            return Err(format!("the settings of the repository cannot be read: {}", own.complaint));
        }
        self.succeeded(&own)?;
        let users = ["config", "--global", "--includes", "-z", "--list"].map(OsString::from).to_vec();
        // Somebody without settings of their own is told so by a code.
        let users = self.run(users, vec![], NAMES_BYTES_MAX).await?;
        Ok(config::kept(&users.output, &own.output))
    }

    /// A damaged or hostile index may name files that are not in the repository, and git would read them.
    async fn check_names(&self, shadow: &Shadow) -> Result<(), String> {
        let listed =
            self.run(words_of(&["ls-files", "-z", "--full-name"], None), shadow.environment(), NAMES_BYTES_MAX).await?;
        self.succeeded(&listed)?;
        let names = listed.output.split(|byte| *byte == 0).filter(|name| !name.is_empty());
        match names.into_iter().find(|name| !words::is_plain_path(name)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "the repository's index names {}, which cannot be a file of it; it is damaged or was tampered with",
                String::from_utf8_lossy(name)
            )),
        }
    }

    async fn status(&self, shadow: &Shadow, under_way: Option<&'static str>) -> Result<ToolResult, String> {
        let arguments =
            ["status", "--porcelain=v2", "--branch", "-z", "--untracked-files=normal", "--ignore-submodules=dirty"];
        let ran = self.run(words_of(&arguments, Some(self.spot)), shadow.environment(), OUTPUT_KEPT_MAX).await?;
        let cut = self.succeeded(&ran)?;
        let status = words::Status::read(&ran.output, &shadow.prefix);
        let mut text = status.text(under_way);
        if cut {
            text.push_str("\n[there is more than can be told: ask for a path]");
        }
        let mut result = self.shown(text).await;
        result.detail = status.detail();
        Ok(result)
    }

    async fn diff(&self, shadow: &Shadow, staged: bool) -> Result<ToolResult, String> {
        let mut arguments = vec![
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--relative",
            "--ignore-submodules=dirty",
            "--submodule=short",
        ];
        arguments.extend(staged.then_some("--cached"));
        let ran = self.run(words_of(&arguments, Some(self.spot)), shadow.environment(), OUTPUT_KEPT_MAX).await?;
        let cut = self.succeeded(&ran)?;
        let mut text = String::from_utf8_lossy(&ran.output).into_owned();
        if text.is_empty() {
            text = match staged {
                true => "nothing is staged".to_owned(),
                false => {
                    "no tracked file differs from what is staged or committed; new files are named by status".to_owned()
                }
            };
        }
        if cut {
            text.push_str(&format!("\n[the differences beyond {} MiB are left out]", OUTPUT_KEPT_MAX >> 20));
        }
        Ok(self.shown(text).await)
    }

    async fn log(&self, shadow: &Shadow, count: u64) -> Result<ToolResult, String> {
        let count = format!("--max-count={count}");
        let arguments = [
            "log",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            "--no-show-signature",
            "--date=iso-strict",
            "--format=%h %ad %an%d%n    %s",
            &count,
        ];
        let whole = self.spot.below.is_none() && shadow.prefix.is_empty();
        let ran = self
            .run(words_of(&arguments, (!whole).then_some(self.spot)), shadow.environment(), OUTPUT_KEPT_MAX)
            .await?;
        if ran.complaint.contains("does not have any commits yet") {
            return Ok(ToolResult::ok("there are no commits yet"));
        }
        self.succeeded(&ran)?;
        let text = String::from_utf8_lossy(&ran.output).trim_end().to_owned();
        Ok(self.shown(if text.is_empty() { "no commit has changed this path".to_owned() } else { text }).await)
    }

    async fn run(
        &self,
        arguments: Vec<OsString>,
        environment: Vec<(OsString, OsString)>,
        output_max: usize,
    ) -> Result<Ran, String> {
        let quiet = ["--no-pager", "--no-optional-locks", "-c", "core.fsmonitor=", "-c", "core.hooksPath=/dev/null"];
        let task = Task {
            program: self.program,
            arguments: quiet.iter().map(OsString::from).chain(arguments).collect(),
            // What is asked of no repository must not find one.
            folder: if environment.is_empty() { Path::new("/") } else { &self.spot.root },
            environment,
            input: vec![],
            timeout: GIT_TIME_MAX,
            output_max,
        };
        self.programs.run(self.context, task).await
    }

    /// Whether the output was cut; an error where git did not come to its end.
    fn succeeded(&self, ran: &Ran) -> Result<bool, String> {
        match ran.end {
            End::Code(0) => Ok(false),
            End::Full => Ok(true),
            End::TimedOut => Err(format!("git did not answer within {} s and was ended", GIT_TIME_MAX.as_secs())),
            End::Stopped => Err("stopped".into()),
            End::Code(_) | End::Signal if ran.complaint.is_empty() => Err("git failed without a word".into()),
            End::Code(_) | End::Signal => Err(format!("git says: {}", ran.complaint)),
        }
    }

    async fn shown(&self, text: String) -> ToolResult {
        let mut capture = Capture::new(OUTPUT_BYTES_MAX);
        capture.push(text.as_bytes());
        let shown = keep_output(self.context, capture, ".txt", OUTPUT_BYTES_MAX - NOTE_BYTES).await;
        ToolResult { artifacts: shown.artifacts, parts: vec![Part::text(shown.text)], ..ToolResult::ok("") }
    }
}

/// The arguments of a run: what to do, and which file or folder it is about.
fn words_of(words: &[&str], about: Option<&Spot>) -> Vec<OsString> {
    let path = about.map(|spot| OsString::from(spot.name()));
    let path = path.into_iter().flat_map(|path| ["--".into(), path]);
    words.iter().map(OsString::from).chain(path).collect()
}

//! What a write tool is about to do to files: computed in memory, recorded as an intent, then carried out all or
//! nothing. It never changes a file that is not what the intent says it was.

use std::collections::HashSet;

use bytes::Bytes;
use serde_json::{Value, json};
use tenure_core::tool::{FileChange, Intent, ToolResult};

use crate::{
    CallContext, Invoked,
    replace::{self, Content, Like, MadeFolder, digest},
    tool::on_disk,
    workspace::{Found, Inside, Workspace},
};

/// What the model is shown of a diff.
const DIFF_BYTES_MAX: usize = 4 * 1024;
/// What a reviewer is shown of a change.
const REVIEWED_BYTES_MAX: usize = 64 * 1024;
/// Longer files are not compared line by line: that takes too long.
const DIFFED_BYTES_MAX: usize = 64 * 1024;

/// One file, before and after. `None`: no such file.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) path: Inside,
    pub(crate) before: Option<Found>,
    pub(crate) after: Option<Vec<u8>>,
    /// Only looked at for a new file.
    pub(crate) made: Made,
    /// What was adjusted to get there; told with the result.
    pub(crate) notes: Vec<String>,
}

/// The permissions of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Plain,
    Executable,
    /// Those of the file that it was before it moved.
    Moved {
        mode: u32,
    },
}

impl Change {
    pub(crate) fn new(path: Inside, before: Option<Found>, after: Option<Vec<u8>>) -> Self {
        Self { path, before, after, made: Made::Plain, notes: vec![] }
    }
}

/// Computes the changes an input asks for from the files as they are now.
pub(crate) type Plan = fn(&Workspace, &Value) -> Result<Vec<Change>, String>;

/// How much a result says.
#[derive(Clone, Copy)]
pub(crate) enum Summary {
    WithDiff,
    /// The model wrote the diff itself.
    CountsOnly,
}

/// The intent of a call; the old bytes are kept before it is returned.
pub(crate) async fn prepare(context: &CallContext, input: &Value, plan: Plan) -> Result<Intent, String> {
    let (changes, mut intent) = compute(context, input, plan).await?;
    for (at, (change, file)) in changes.into_iter().zip(&mut intent.files).enumerate() {
        if let Some(found) = change.before {
            let name = context.blob_name(&format!("-{at}.old"));
            context.blobs.put(&name, Bytes::from(found.bytes)).await?;
            file.old_bytes = Some(name);
        }
    }
    Ok(intent)
}

/// The change that an intent stands for, for whoever reviews it.
pub(crate) async fn preview(
    context: &CallContext,
    input: &Value,
    intent: &Intent,
    plan: Plan,
) -> Result<String, String> {
    let (changes, _) = compute(context, input, plan).await?;
    matches_intent(&changes, intent)?;
    let mut text = String::new();
    for change in changes.iter().filter(|change| !change.is_idle()) {
        text.push_str(&change.diff());
        if text.len() > REVIEWED_BYTES_MAX {
            text.truncate(text.floor_char_boundary(REVIEWED_BYTES_MAX));
            text.push_str("\n[the rest is left out: the change is too long to be shown whole]\n");
            break;
        }
    }
    Ok(text)
}

/// Carries the intent out, if the files still are what it says.
pub(crate) async fn invoke(
    context: &CallContext,
    input: &Value,
    intent: &Intent,
    plan: Plan,
    summary: Summary,
) -> Invoked {
    if context.cancel.is_cancelled() {
        return Invoked::failed("stopped before anything was changed");
    }
    let (path, input, intent) = (context.workspace.clone(), input.clone(), intent.clone());
    let done = on_disk(move || {
        let workspace = Workspace::open(&path)?;
        let changes = checked(plan(&workspace, &input)).map_err(|error| drifted(&workspace, &intent, error))?;
        matches_intent(&changes, &intent)?;
        Ok(match carry_out(&workspace, &changes) {
            Ok(()) => result_of(&changes, summary),
            Err(failed) => failed.into_result(),
        })
    });
    match done.await {
        Ok(result) => Invoked::done(result),
        Err(error) => Invoked::failed(error),
    }
}

/// The changes, and what is recorded of them before the old bytes are kept.
async fn compute(context: &CallContext, input: &Value, plan: Plan) -> Result<(Vec<Change>, Intent), String> {
    let (path, input) = (context.workspace.clone(), input.clone());
    on_disk(move || {
        let workspace = Workspace::open(&path)?;
        let changes = checked(plan(&workspace, &input))?;
        let (mut seen, mut intent) = (HashSet::new(), Intent::default());
        for change in &changes {
            let place = workspace.place(&change.path)?;
            if !seen.insert(place.identity()?) {
                return Err(format!("{} is named twice", change.path));
            }
            if change.after.is_some() {
                let new = place.missing_folders(&change.path).filter(|folder| !intent.folders.contains(folder));
                let new: Vec<String> = new.collect();
                intent.folders.extend(new);
            }
            intent.files.push(FileChange { real: workspace.real(&place, &change.path), ..change.recorded() });
        }
        Ok((changes, intent))
    })
    .await
}

fn checked(changes: Result<Vec<Change>, String>) -> Result<Vec<Change>, String> {
    changes.and_then(|changes| if changes.is_empty() { Err("nothing to change".into()) } else { Ok(changes) })
}

impl Change {
    fn recorded(&self) -> FileChange {
        FileChange {
            path: self.path.as_str().to_owned(),
            before: self.before.as_ref().map(|found| digest(&found.bytes)),
            after: self.after.as_deref().map(digest),
            mode: self.before.as_ref().map(|found| found.mode),
            ..FileChange::default()
        }
    }
}

/// A patch that no longer applies says so because its file changed; that is the better reason to give.
fn drifted(workspace: &Workspace, intent: &Intent, error: String) -> String {
    for file in &intent.files {
        let now = workspace.inside(&file.path).and_then(|path| workspace.place(&path)?.current(&path));
        if now.is_ok_and(|now| now.map(|found| digest(&found.bytes)) != file.before) {
            return changed_since(&file.path);
        }
    }
    error
}

fn matches_intent(changes: &[Change], intent: &Intent) -> Result<(), String> {
    let same_paths = changes.len() == intent.files.len()
        && changes.iter().zip(&intent.files).all(|(change, file)| change.path.as_str() == file.path);
    if !same_paths {
        return Err("the call is not the one that was recorded; nothing was changed".into());
    }
    for (change, file) in changes.iter().zip(&intent.files) {
        let now = change.recorded();
        if now.before != file.before || now.after != file.after {
            return Err(changed_since(&file.path));
        }
    }
    Ok(())
}

fn changed_since(path: &str) -> String {
    format!("the file {path} changed since this call was prepared; nothing was changed. Read it again and try anew.")
}

/// Why not all files were changed, and what could not be put back.
struct Failed {
    error: String,
    stuck: Vec<String>,
}

impl Failed {
    fn into_result(self) -> ToolResult {
        match self.stuck.is_empty() {
            true => ToolResult::failed(format!("{}; nothing was changed", self.error)),
            false => {
                let error = format!("{}; these could not be put back: {}", self.error, self.stuck.join("; "));
                ToolResult { detail: json!({ "stuck": self.stuck }), ..ToolResult::failed(error) }
            }
        }
    }
}

/// All files or none: on an error, those already done are put back.
fn carry_out(workspace: &Workspace, changes: &[Change]) -> Result<(), Failed> {
    let mut made = vec![];
    for (at, change) in changes.iter().enumerate() {
        if let Err(error) = change.carry_out(workspace, &mut made) {
            let stuck = put_back(workspace, &changes[..=at]);
            replace::unmake(made);
            return Err(Failed { error, stuck });
        }
    }
    Ok(())
}

impl Change {
    fn carry_out(&self, workspace: &Workspace, made: &mut Vec<MadeFolder>) -> Result<(), String> {
        let place = workspace.place(&self.path)?;
        match &self.after {
            _ if self.is_idle() => Ok(()),
            None => replace::remove(&place, &self.path),
            Some(bytes) => {
                let like = match (&self.before, self.made) {
                    (Some(found), _) => Like::Replaced(found),
                    (None, Made::Plain) => Like::New { executable: false },
                    (None, Made::Executable) => Like::New { executable: true },
                    (None, Made::Moved { mode }) => Like::Restored { mode: Some(mode & 0o777), owner: None },
                };
                made.extend(replace::put(&place, &self.path, &Content { bytes, like })?);
                Ok(())
            }
        }
    }

    fn put_back(&self, workspace: &Workspace) -> Result<(), String> {
        let place = workspace.place(&self.path)?;
        let now = place.current(&self.path)?;
        let same = now.as_ref().map(|found| &found.bytes) == self.before.as_ref().map(|found| &found.bytes);
        // Someone else's content is not ours to take away.
        let ours = now.as_ref().map(|found| &found.bytes) == self.after.as_ref();
        match (&self.before, same, ours) {
            (_, true, _) => Ok(()),
            (_, false, false) => Err(format!("{} was changed by someone else", self.path)),
            (None, false, true) => replace::remove(&place, &self.path),
            (Some(found), false, true) => {
                let like = Like::Restored { mode: Some(found.mode), owner: Some(found.owner) };
                replace::put(&place, &self.path, &Content { bytes: &found.bytes, like }).map(drop)
            }
        }
    }
}

/// What could not be put back, and why. One file may stand in another's way until that is put back, hence twice.
fn put_back(workspace: &Workspace, changes: &[Change]) -> Vec<String> {
    let stuck: Vec<&Change> = changes.iter().rev().filter(|change| change.put_back(workspace).is_err()).collect();
    stuck.into_iter().filter_map(|change| change.put_back(workspace).err()).collect()
}

fn result_of(changes: &[Change], summary: Summary) -> ToolResult {
    let mut text = String::new();
    let mut files = vec![];
    for change in changes {
        let compared = Compared::of(change);
        text.push_str(&format!("{} {} ({})\n", change.verb(), change.path, compared.counts(change)));
        change.notes.iter().for_each(|note| text.push_str(&format!("  note: {note}\n")));
        files.push(json!({"path": change.path.as_str(), "added": compared.added, "removed": compared.removed}));
        if let (Summary::WithDiff, Some(diff)) = (summary, &compared.diff) {
            text.push_str(&crate::output::head_of(diff, DIFF_BYTES_MAX.saturating_sub(text.len())));
        }
    }
    let text = crate::output::head_of(&text, crate::OUTPUT_BYTES_MAX);
    ToolResult { detail: json!({ "files": files }), ..ToolResult::ok(text.trim_end()) }
}

impl Change {
    /// Whether the file has this content already.
    fn is_idle(&self) -> bool {
        self.before.as_ref().map(|found| &found.bytes) == self.after.as_ref()
    }

    /// The change of this file as a unified diff; of what is no text or too long only that it changes.
    fn diff(&self) -> String {
        let bytes = |side: Option<&[u8]>| side.unwrap_or_default().len();
        let (before, after) = (self.before.as_ref().map(|found| &found.bytes[..]), self.after.as_deref());
        let [old, new] = [before, after].map(|side| std::str::from_utf8(side.unwrap_or_default()));
        let name = |side: Option<&[u8]>, prefix: &str| match side {
            Some(_) => format!("{prefix}/{}", self.path),
            None => "/dev/null".to_owned(),
        };
        let head = format!("--- {}\n+++ {}\n", name(before, "a"), name(after, "b"));
        match (old, new) {
            (Ok(old), Ok(new)) if old.len().max(new.len()) <= DIFFED_BYTES_MAX => {
                let text = diffy::create_patch(old, new).to_string();
                head + text.find("@@ ").map_or("", |at| &text[at..])
            }
            _ => format!("{head}[{} bytes become {} bytes; they are not shown]\n", bytes(before), bytes(after)),
        }
    }

    fn verb(&self) -> &'static str {
        match (&self.before, &self.after) {
            _ if self.is_idle() => "left as it was:",
            (None, _) => "created",
            (_, None) => "deleted",
            _ => "changed",
        }
    }
}

/// How many lines differ; unknown for long files.
struct Compared {
    added: Option<usize>,
    removed: Option<usize>,
    /// Only where a file was changed.
    diff: Option<String>,
}

impl Compared {
    fn of(change: &Change) -> Self {
        let lines = |bytes: &[u8]| bytes.split_inclusive(|byte| *byte == b'\n').count();
        match (&change.before, &change.after) {
            (None, after) => {
                Self { added: Some(lines(after.as_deref().unwrap_or_default())), removed: Some(0), diff: None }
            }
            (Some(found), None) => Self { added: Some(0), removed: Some(lines(&found.bytes)), diff: None },
            (Some(found), Some(after)) => Self::texts(&found.bytes, after),
        }
    }

    fn texts(before: &[u8], after: &[u8]) -> Self {
        if before.len().max(after.len()) > DIFFED_BYTES_MAX {
            return Self { added: None, removed: None, diff: None };
        }
        let (before, after) = (String::from_utf8_lossy(before), String::from_utf8_lossy(after));
        let patch = diffy::create_patch(&before, &after);
        let all = || patch.hunks().iter().flat_map(|hunk| hunk.lines());
        let added = all().filter(|line| matches!(line, diffy::Line::Insert(_))).count();
        let removed = all().filter(|line| matches!(line, diffy::Line::Delete(_))).count();
        let text = patch.to_string();
        // The header names "original" and "modified"; the line above already names the file.
        let diff = text.find("@@ ").map(|at| text[at..].to_owned());
        Self { added: Some(added), removed: Some(removed), diff }
    }

    fn counts(&self, change: &Change) -> String {
        match (self.added, self.removed) {
            (Some(added), Some(removed)) => format!("+{added} -{removed}"),
            _ => format!("{} bytes now", change.after.as_ref().map_or(0, Vec::len)),
        }
    }
}

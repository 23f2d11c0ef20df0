//! The `apply_patch` tool: a patch over one or more files, all of it or nothing.

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::tool::{Intent, ToolKind, ToolSpec, VerifyPlan};

use crate::{
    CallContext, FILE_BYTES_MAX, Invoked, Tool,
    change::{self, Change, Made, Summary},
    patch::{self, Applied, FilePatch, Kind},
    tool::text_field,
    workspace::{Found, Inside, Workspace},
};

/// More files in one patch than this are refused: the intent names each.
const FILES_MAX: usize = 256;
/// Old and new bytes of all files of one patch, which are held in memory together.
const HELD_BYTES_MAX: usize = 4 * FILE_BYTES_MAX;

pub(crate) struct ApplyPatch;

#[async_trait]
impl Tool for ApplyPatch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "apply_patch".into(),
            description: "Changes, creates, moves and deletes files of the workspace, all of it or nothing. Takes a \
                          unified diff (`--- a/path`, `+++ b/path`, `/dev/null` to create or delete, hunks \
                          `@@ -start,count +start,count @@`), or this: `*** Begin Patch`, then for each file \
                          `*** Add File: path` with lines that begin with +, `*** Delete File: path`, or \
                          `*** Update File: path`, perhaps `*** Move to: path`, and hunks that begin with `@@` or \
                          `@@ a line before them` and have lines that begin with a space, - or +; then \
                          `*** End Patch`. Lines with a space or - must be in the file; a hunk goes to the one place \
                          where they are."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {"patch": {"type": "string", "minLength": 1, "description": "the patch, in either format"}},
                "required": ["patch"],
                "additionalProperties": false
            }),
            kind: ToolKind::Write,
        }
    }

    /// The paths, one a line, so that a rule can match on them.
    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        let files = patch::parse(text_field(input, "patch")).unwrap_or_default();
        let paths = files.iter().flat_map(|file| [Some(file.path.as_str()), file.move_to.as_deref()]);
        paths.flatten().collect::<Vec<_>>().join("\n")
    }

    async fn prepare(&self, context: &CallContext, input: &Value) -> Result<Intent, String> {
        change::prepare(context, input, plan).await
    }

    async fn preview(&self, context: &CallContext, input: &Value, intent: &Intent) -> Result<String, String> {
        change::preview(context, input, intent, plan).await
    }

    async fn invoke(&self, context: &CallContext, input: &Value, intent: &Intent) -> Invoked {
        change::invoke(context, input, intent, plan, Summary::CountsOnly).await
    }
}

fn plan(workspace: &Workspace, input: &Value) -> Result<Vec<Change>, String> {
    let files = patch::parse(text_field(input, "patch"))?;
    if files.len() > FILES_MAX {
        return Err(format!("the patch names {} files; {FILES_MAX} is the most", files.len()));
    }
    let (mut changes, mut held) = (Vec::with_capacity(files.len()), 0);
    for file in &files {
        for change in changes_of(workspace, file)? {
            held += change.before.as_ref().map_or(0, |found| found.bytes.len());
            held += change.after.as_ref().map_or(0, Vec::len);
            if held > HELD_BYTES_MAX {
                return Err("the files of this patch are too large together; use several patches".into());
            }
            changes.push(change);
        }
    }
    Ok(changes)
}

fn changes_of(workspace: &Workspace, file: &FilePatch) -> Result<Vec<Change>, String> {
    let path = workspace.inside(&file.path)?;
    let before = workspace.place(&path)?.current(&path)?;
    let applied = match (&before, file.kind) {
        (None, Kind::Create) => Some(file.apply(b"")?),
        (Some(_), Kind::Create) => return Err(format!("{path} exists already; the patch would create it")),
        (None, Kind::Delete | Kind::Modify) => return Err(format!("there is no file {path}")),
        (Some(found), Kind::Modify) => Some(file.apply(&found.bytes)?),
        (Some(found), Kind::Delete) if file.removes_by_lines() && !file.apply(&found.bytes)?.bytes.is_empty() => {
            return Err(format!("the patch deletes {path} but does not remove all of its lines"));
        }
        (Some(_), Kind::Delete) => None,
    };
    if applied.as_ref().is_some_and(|applied| applied.bytes.len() > FILE_BYTES_MAX) {
        return Err(format!("{path} would become larger than {} MiB", FILE_BYTES_MAX >> 20));
    }
    let Applied { bytes, notes } = match applied {
        None => return Ok(vec![Change::new(path, before, None)]),
        Some(applied) => applied,
    };
    match &file.move_to {
        Some(to) => moved(workspace, path, before, to, bytes, notes),
        None => {
            let made = if file.executable { Made::Executable } else { Made::Plain };
            Ok(vec![Change { made, notes, ..Change::new(path, before, Some(bytes)) }])
        }
    }
}

/// The file goes from one place and comes to the other, with its mode.
fn moved(
    workspace: &Workspace,
    path: Inside,
    before: Option<Found>,
    to: &str,
    bytes: Vec<u8>,
    notes: Vec<String>,
) -> Result<Vec<Change>, String> {
    let to = workspace.inside(to)?;
    if workspace.place(&to)?.current(&to)?.is_some() {
        return Err(format!("{to} exists already; the patch would move {path} there"));
    }
    let made = before.as_ref().map_or(Made::Plain, |found| Made::Moved { mode: found.mode });
    let arrives = Change { made, notes, ..Change::new(to, None, Some(bytes)) };
    Ok(vec![arrives, Change::new(path, before, None)])
}

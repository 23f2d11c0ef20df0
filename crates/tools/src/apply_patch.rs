//! The `apply_patch` tool: a unified diff over one or more files, all of it or nothing.

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::tool::{Intent, ToolKind, ToolSpec, VerifyPlan};

use crate::{
    CallContext, FILE_BYTES_MAX, Invoked, Tool,
    change::{self, Change, Summary},
    patch::{self, FilePatch, Kind},
    tool::text_field,
    workspace::Workspace,
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
            description: "Applies a unified diff to files of the workspace, all of it or nothing. Each file has lines \
                          `--- a/path` and `+++ b/path` (`/dev/null` to create or delete) and hunks with exact counts \
                          `@@ -start,count +start,count @@`. Context lines must match the file exactly."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {"patch": {"type": "string", "minLength": 1, "description": "the unified diff"}},
                "required": ["patch"],
                "additionalProperties": false
            }),
            kind: ToolKind::Write,
        }
    }

    /// The paths, one a line, so that a rule can match on them.
    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        let files = patch::parse(text_field(input, "patch")).unwrap_or_default();
        files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>().join("\n")
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
        let change = change_of(workspace, file)?;
        held += change.before.as_ref().map_or(0, |found| found.bytes.len()) + change.after.as_ref().map_or(0, Vec::len);
        if held > HELD_BYTES_MAX {
            return Err("the files of this patch are too large together; use several patches".into());
        }
        changes.push(change);
    }
    Ok(changes)
}

fn change_of(workspace: &Workspace, file: &FilePatch) -> Result<Change, String> {
    let path = workspace.inside(&file.path)?;
    let before = workspace.place(&path)?.current(&path)?;
    let after = match (&before, file.kind) {
        (None, Kind::Create) => Some(file.apply(b"")?),
        (Some(_), Kind::Create) => return Err(format!("{path} exists already; the patch would create it")),
        (None, Kind::Delete | Kind::Modify) => return Err(format!("there is no file {path}")),
        (Some(found), Kind::Modify) => Some(file.apply(&found.bytes)?),
        (Some(found), Kind::Delete) => match file.apply(&found.bytes)?.is_empty() {
            true => None,
            false => return Err(format!("the patch deletes {path} but does not remove all of its lines")),
        },
    };
    if after.as_ref().is_some_and(|bytes| bytes.len() > FILE_BYTES_MAX) {
        return Err(format!("{path} would become larger than {} MiB", FILE_BYTES_MAX >> 20));
    }
    Ok(Change { path, before, after, executable: file.executable })
}

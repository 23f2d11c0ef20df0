//! The `write_file` tool: one file, whole. It never changes a file other than the one it names.

use async_trait::async_trait;
use serde_json::{Value, json};
use tenure_core::tool::{Intent, ToolKind, ToolSpec, VerifyPlan};

use crate::{
    CallContext, FILE_BYTES_MAX, Invoked, Tool,
    change::{self, Change, Summary},
    tool::text_field,
    workspace::Workspace,
};

pub(crate) struct WriteFile;

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_file".into(),
            description: "Writes a file of the workspace whole: creates it (and its folders) or replaces its content."
                .into(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "minLength": 1, "description": "relative to the workspace"},
                    "content": {"type": "string", "description": "the whole new content"}
                },
                "required": ["path", "content"],
                "additionalProperties": false
            }),
            kind: ToolKind::Write,
        }
    }

    fn subject(&self, input: &Value, _verify: Option<&VerifyPlan>) -> String {
        text_field(input, "path").to_owned()
    }

    async fn prepare(&self, context: &CallContext, input: &Value) -> Result<Intent, String> {
        change::prepare(context, input, plan).await
    }

    async fn preview(&self, context: &CallContext, input: &Value, intent: &Intent) -> Result<String, String> {
        change::preview(context, input, intent, plan).await
    }

    async fn invoke(&self, context: &CallContext, input: &Value, intent: &Intent) -> Invoked {
        change::invoke(context, input, intent, plan, Summary::WithDiff).await
    }
}

fn plan(workspace: &Workspace, input: &Value) -> Result<Vec<Change>, String> {
    let content = text_field(input, "content");
    if content.len() > FILE_BYTES_MAX {
        return Err(format!("the content is larger than {} MiB", FILE_BYTES_MAX >> 20));
    }
    let path = workspace.inside(text_field(input, "path"))?;
    let before = workspace.place(&path)?.current(&path)?;
    Ok(vec![Change::new(path, before, Some(content.as_bytes().to_vec()))])
}

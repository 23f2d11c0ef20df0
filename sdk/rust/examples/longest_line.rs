//! A plugin with one tool: the longest line of a file.

use serde_json::json;
use tenure_tool::Plugin;

fn main() {
    let schema = json!({
        "type": "object",
        "properties": {"path": {"type": "string", "description": "relative to the workspace"}},
        "required": ["path"]
    });
    Plugin::new()
        .tool("longest_line", "Tells the longest line of a file.", schema, |call| {
            let path = std::path::Path::new(call.workspace).join(call.input["path"].as_str().unwrap_or_default());
            call.progress(&format!("reading {}\n", path.display()));
            let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            text.lines().max_by_key(|line| line.chars().count()).map(str::to_owned).ok_or("the file is empty".into())
        })
        .run();
}

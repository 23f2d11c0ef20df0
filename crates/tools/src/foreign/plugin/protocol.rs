//! What is said to a plugin and what it answers: one JSON object a line. See docs/plugins.md.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The longest line that a plugin may print.
pub(crate) const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// To a plugin.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Ask<'a> {
    Describe { protocol: u32 },
    Call { id: &'a str, tool: &'a str, input: &'a Value, workspace: &'a str },
    Cancel { id: &'a str },
}

/// The version that is spoken here.
pub(crate) const PROTOCOL: u32 = 1;

/// From a plugin. Fields that are not known are passed over, so that later ones can be added.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Told {
    Tools {
        tools: Vec<PluginTool>,
    },
    Progress {
        id: String,
        text: String,
    },
    Result {
        id: String,
        #[serde(default = "yes")]
        ok: bool,
        #[serde(default)]
        text: String,
        /// Facts for programs, beside the text for the model.
        #[serde(default)]
        detail: Value,
    },
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct PluginTool {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) description: String,
    pub(crate) input_schema: Value,
}

fn yes() -> bool {
    true
}

impl Told {
    /// Reads one line. `None`: an empty line, or a kind of message that is not known here.
    pub(crate) fn parse(line: &[u8]) -> Result<Option<Self>, String> {
        let line = line.trim_ascii();
        if line.is_empty() {
            return Ok(None);
        }
        let value: Value = serde_json::from_slice(line).map_err(|error| format!("a line that is not JSON: {error}"))?;
        match value.get("type").and_then(Value::as_str) {
            Some("tools" | "progress" | "result") => {
                serde_json::from_value(value).map(Some).map_err(|error| format!("a message that does not fit: {error}"))
            }
            Some(_) => Ok(None),
            None => Err("a line without a type".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_are_read_and_bad_ones_named() {
        let done = Told::Result { id: "1".into(), ok: true, text: "t".into(), detail: Value::Null };
        assert_eq!(Told::parse(br#"{"type":"result","id":"1","text":"t","more":1}"#), Ok(Some(done)));
        assert_eq!(Told::parse(b"  \r"), Ok(None));
        assert_eq!(Told::parse(br#"{"type":"log"}"#), Ok(None));
        for bad in ["x", "[]", "{}", r#"{"type":5}"#, r#"{"type":"result"}"#, r#"{"type":"tools","tools":[{}]}"#] {
            assert!(Told::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let ask = serde_json::to_value(Ask::Call { id: "1", tool: "t", input: &json!({}), workspace: "/w" }).unwrap();
        assert_eq!(ask, json!({"type": "call", "id": "1", "tool": "t", "input": {}, "workspace": "/w"}));
    }

    #[test]
    fn any_line_is_read_or_refused() {
        tenure_fuzzkit::target!("plugin").cases(400).run(|line| match Told::parse(line) {
            Ok(Some(_)) => assert!(serde_json::from_slice::<Value>(line.trim_ascii()).is_ok()),
            Ok(None) => {}
            Err(why) => assert!(!why.is_empty()),
        });
    }
}

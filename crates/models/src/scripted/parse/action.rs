//! Reads one action of a script. It knows nothing of the actions around it.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use tenure_core::model::{Fault, FaultKind, StopReason, Usage};

use super::fields;
use crate::scripted::script::{Action, Pace};

/// The key that says what an action is. `pause_ms` is one too, where it stands alone.
const KINDS: [&str; 10] =
    ["text", "thinking", "call", "wait_for", "keep_alive", "usage", "stop_reason", "error", "drop", "stall"];

pub(super) fn read(value: Value) -> Result<Action, String> {
    let Value::Object(map) = value else {
        return Err("is not an object such as {\"text\": \"…\"}".into());
    };
    match kind(&map)? {
        "text" => fields(map).and_then(RawText::read),
        "thinking" => fields(map).and_then(RawThinking::read),
        "call" => fields(map).and_then(RawCall::read),
        "pause_ms" => fields(map).map(|raw: RawPause| Action::Pause(Duration::from_millis(raw.pause_ms))),
        kind => bare(kind, map),
    }
}

fn kind(map: &Map<String, Value>) -> Result<&'static str, String> {
    let kinds: Vec<&'static str> = KINDS.into_iter().filter(|kind| map.contains_key(*kind)).collect();
    match kinds[..] {
        [kind] => Ok(kind),
        [] if map.contains_key("pause_ms") => Ok("pause_ms"),
        [] => Err(format!("is none of `{}`, `pause_ms`", KINDS.join("`, `"))),
        [first, second, ..] => Err(format!("is both `{first}` and `{second}`; write two actions")),
    }
}

/// Actions that consist of their one key.
fn bare(kind: &'static str, mut map: Map<String, Value>) -> Result<Action, String> {
    let value = map.remove(kind).unwrap_or_default();
    if let Some(key) = map.keys().next() {
        return Err(format!("unknown field `{key}` beside `{kind}`"));
    }
    match kind {
        "wait_for" => Ok(Action::WaitFor(field::<PathBuf>(kind, value)?)),
        "usage" => Ok(Action::Usage(field::<RawUsage>(kind, value)?.read())),
        "stop_reason" => Ok(Action::StopReason(field::<StopReason>(kind, value)?)),
        "error" => Ok(Action::Error(field::<RawError>(kind, value)?.read())),
        _ if value != Value::Bool(true) => Err(format!("`{kind}` can only be true")),
        "keep_alive" => Ok(Action::KeepAlive),
        "drop" => Ok(Action::Drop),
        "stall" => Ok(Action::Stall),
        other => Err(format!("`{other}` is not an action")),
    }
}

fn field<T: DeserializeOwned>(name: &str, value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| format!("{name}: {error}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPause {
    pause_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawText {
    text: String,
    chunk: Option<usize>,
    pause_ms: Option<u64>,
}

impl RawText {
    fn read(self) -> Result<Action, String> {
        Ok(Action::Text { text: self.text, pace: pace(self.chunk, self.pause_ms)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawThinking {
    thinking: String,
    signature: Option<String>,
    chunk: Option<usize>,
    pause_ms: Option<u64>,
}

impl RawThinking {
    fn read(self) -> Result<Action, String> {
        let pace = pace(self.chunk, self.pause_ms)?;
        Ok(Action::Thinking { text: self.thinking, signature: self.signature, pace })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCall {
    call: RawCallee,
    chunk: Option<usize>,
    pause_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCallee {
    name: String,
    input: Option<Value>,
    arguments: Option<String>,
}

impl RawCall {
    fn read(self) -> Result<Action, String> {
        let arguments = match (self.call.input, self.call.arguments) {
            (Some(input), None) => input.to_string(),
            (None, Some(text)) => text,
            _ => return Err("call: needs exactly one of `input` and `arguments`".into()),
        };
        Ok(Action::Call { name: self.call.name, arguments, pace: pace(self.chunk, self.pause_ms)? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawError {
    kind: FaultKind,
    message: String,
    retry_after_ms: Option<u64>,
}

impl RawError {
    fn read(self) -> Fault {
        Fault { retry_after_ms: self.retry_after_ms, ..Fault::new(self.kind, self.message) }
    }
}

/// The same fields as `Usage`, which itself lets unknown ones pass.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RawUsage {
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
}

impl RawUsage {
    fn read(self) -> Usage {
        Usage {
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
            cache_read_tokens: self.cache_read_tokens,
            cache_write_tokens: self.cache_write_tokens,
        }
    }
}

fn pace(chunk: Option<usize>, pause_ms: Option<u64>) -> Result<Pace, String> {
    match (chunk, pause_ms) {
        (None, None) => Ok(Pace::Whole),
        (None, Some(_)) => Err("`pause_ms` falls between chunks and needs `chunk` beside it".into()),
        (Some(chunk), pause_ms) => {
            let chars = NonZeroUsize::new(chunk).ok_or("`chunk` is at least 1")?;
            Ok(Pace::Chunks { chars, pause: Duration::from_millis(pause_ms.unwrap_or(0)) })
        }
    }
}

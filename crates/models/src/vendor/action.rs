//! Tools for models whose own tool calls do not work: each reply is one action, an object that a JSON Schema holds in shape. It is either a call of a tool or the answer.

use serde_json::{Value, json};
use tenure_core::{
    model::{Fault, StopReason},
    tool::{ToolCall, ToolSpec},
};

use super::stream::{Fragments, malformed};
use crate::ModelEvent;

/// The action that ends the loop.
const ANSWER: &str = "answer";
/// What stands before the answer's text: the schema fixes the fields and their order.
const ACTION: &str = "action";
const TEXT: &str = "text";
const INPUT: &str = "input";

/// What each reply has to fit.
pub(crate) fn schema(tools: &[ToolSpec], output: Option<&Value>) -> Value {
    let text = output.cloned().unwrap_or_else(|| json!({ "type": "string" }));
    let mut actions = vec![one(ANSWER, TEXT, text)];
    actions.extend(tools.iter().map(|tool| one(&tool.name, INPUT, tool.input_schema.clone())));
    json!({ "anyOf": actions })
}

fn one(action: &str, field: &str, shape: Value) -> Value {
    json!({
        "type": "object",
        "properties": { ACTION: { "const": action }, field: shape },
        "required": [ACTION, field],
        "additionalProperties": false,
    })
}

/// What the model is told of it, since its template tells it of no tools.
pub(crate) fn instructions(tools: &[ToolSpec]) -> String {
    let mut text = format!(
        "Each of your replies is one JSON object. To use a tool, reply {{\"{ACTION}\": \"<name of the tool>\", \
         \"{INPUT}\": {{...}}}}; its result comes in the next message. When you have all you need, reply \
         {{\"{ACTION}\": \"{ANSWER}\", \"{TEXT}\": \"<your answer>\"}}. The tools:\n"
    );
    for tool in tools {
        text.push_str(&format!("\n- {}: {} Its input fits {}\n", tool.name, tool.description, tool.input_schema));
    }
    text
}

/// A reply of the model as it wrote it.
pub(crate) fn said<'a>(text: &str, calls: impl Iterator<Item = &'a ToolCall>) -> String {
    let calls: Vec<String> = calls.map(|call| json!({ ACTION: call.name, INPUT: call.input }).to_string()).collect();
    match calls.is_empty() {
        true => json!({ ACTION: ANSWER, TEXT: text }).to_string(),
        false => calls.join("\n"),
    }
}

/// A result, as the next message tells it.
pub(crate) fn result(name: &str, ok: bool, text: &str) -> String {
    let how = if ok { "Result" } else { "Error" };
    format!("{how} of {name}:\n{text}")
}

/// Reads an action as it comes. The text of an answer is shown while it is written.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    raw: String,
    answer: Option<Answer>,
}

/// An answer under way.
#[derive(Debug)]
struct Answer {
    /// How far `raw` is shown.
    at: usize,
    closed: bool,
}

impl Reader {
    pub(crate) fn push(&mut self, text: &str, out: &mut Fragments) {
        self.raw.push_str(text);
        if self.answer.is_none() {
            self.answer = answer_begin(&self.raw).map(|at| Answer { at, closed: false });
        }
        if let Some(answer) = &mut self.answer {
            answer.show(&self.raw, out);
        }
    }

    /// The action is whole, or it never will be.
    pub(crate) fn end(self, finish: StopReason, out: &mut Fragments) -> Result<StopReason, Fault> {
        if self.answer.is_some() {
            return Ok(if finish == StopReason::MaxTokens { finish } else { StopReason::EndTurn });
        }
        if finish != StopReason::EndTurn {
            return Ok(finish);
        }
        let action: Value = serde_json::from_str(self.raw.trim())
            .map_err(|error| malformed(format!("the reply is no action ({error})")))?;
        match (action.get(ACTION).and_then(Value::as_str), action.get(INPUT), action.get(TEXT)) {
            (Some(ANSWER), _, Some(text)) => {
                let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
                out.push(ModelEvent::Text(text));
                Ok(StopReason::EndTurn)
            }
            (Some(name), Some(input), _) => {
                out.push(ModelEvent::CallStarted { index: 0, provider_id: None, name: name.to_owned() });
                out.push(ModelEvent::CallArguments { index: 0, text: input.to_string() });
                Ok(StopReason::ToolUse)
            }
            _ => Err(malformed("the reply is no action")),
        }
    }
}

/// Where the text of an answer begins, once that can be told.
fn answer_begin(raw: &str) -> Option<usize> {
    let mut rest = raw;
    for token in ["{", "\"action\"", ":", "\"answer\"", ",", "\"text\"", ":", "\""] {
        rest = rest.trim_start().strip_prefix(token)?;
    }
    Some(raw.len() - rest.len())
}

impl Answer {
    /// Shows what has become whole: escapes and pairs of them are not cut.
    fn show(&mut self, raw: &str, out: &mut Fragments) {
        if self.closed {
            return;
        }
        let rest = &raw.as_bytes()[self.at..];
        let (mut whole, mut index) = (0, 0);
        while index < rest.len() {
            index += match rest[index] {
                b'"' => {
                    self.closed = true;
                    whole = index;
                    break;
                }
                b'\\' => match escape_len(&rest[index..]) {
                    Some(len) => len,
                    None => break,
                },
                _ => 1,
            };
            whole = index;
        }
        let piece = &raw[self.at..self.at + whole];
        self.at += whole;
        // What a vendor sends is not believed to be JSON: what cannot be read is shown as it stands.
        let text = serde_json::from_str::<String>(&format!("\"{piece}\"")).unwrap_or_else(|_| piece.to_owned());
        out.push(ModelEvent::Text(text));
    }
}

/// The length of the escape that begins here, with the second half of a pair; `None` while it is not whole.
fn escape_len(bytes: &[u8]) -> Option<usize> {
    match bytes.get(1)? {
        b'u' => {
            let digits = bytes.get(2..6)?;
            let high = matches!(digits, [b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..]);
            match (high, bytes.get(6..)?) {
                (true, []) | (true, [b'\\']) => None,
                (true, [b'\\', b'u', half @ ..]) => (half.len() >= 4).then_some(12),
                _ => Some(6),
            }
        }
        _ => Some(2),
    }
}

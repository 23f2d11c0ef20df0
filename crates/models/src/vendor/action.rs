//! Tools for models whose own tool calls do not work: each reply is one action, an object that a JSON Schema holds in shape. It is either a call of a tool or the answer.

use serde_json::{Value, json};
use tenure_core::{
    model::{Fault, FaultKind, StopReason},
    tool::{ToolCall, ToolSpec},
};

use super::stream::Fragments;
use crate::ModelEvent;

/// The action that ends the loop.
const ANSWER: &str = "answer";
/// What stands before the answer's text: the schema fixes the fields and their order.
const ACTION: &str = "action";
const TEXT: &str = "text";
const INPUT: &str = "input";
/// Marks that models put around what is not the action itself.
const THINK: &str = "<think>";
const THINK_END: &str = "</think>";
const FENCE: &str = "```";
/// How many letters of a reply that is no action are told.
const SAID_MAX: usize = 200;

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
///
/// Servers that do not hold a reply in shape are met half way: what a model thinks aloud before its action is thinking,
/// and an action in a fence is one.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The model's name, to tell people where to change how it is asked.
    model: String,
    raw: String,
    thought: Thought,
    answer: Option<Answer>,
}

/// Thinking that comes as text, before the action.
#[derive(Debug)]
enum Thought {
    /// It may still begin.
    Unsure,
    /// It is shown up to here.
    Open { at: usize },
    /// The action begins here.
    Over { at: usize },
}

/// An answer under way.
#[derive(Debug)]
struct Answer {
    /// How far `raw` is shown.
    at: usize,
    closed: bool,
}

impl Reader {
    pub(crate) fn new(model: &str) -> Self {
        Self { model: model.to_owned(), raw: String::new(), thought: Thought::Unsure, answer: None }
    }

    pub(crate) fn push(&mut self, text: &str, out: &mut Fragments) {
        self.raw.push_str(text);
        self.think(out);
        let Thought::Over { at } = self.thought else { return };
        if self.answer.is_none() {
            let begin = answer_begin(&self.raw[at..]);
            self.answer = begin.map(|begin| Answer { at: at + begin, closed: false });
        }
        if let Some(answer) = &mut self.answer {
            answer.show(&self.raw, out);
        }
    }

    /// Shows what is thinking for sure.
    fn think(&mut self, out: &mut Fragments) {
        if let Thought::Unsure = self.thought {
            let begun = self.raw.trim_start();
            self.thought = match begun.strip_prefix(THINK) {
                Some(rest) => Thought::Open { at: self.raw.len() - rest.len() },
                None if THINK.starts_with(begun) => Thought::Unsure,
                None => Thought::Over { at: 0 },
            };
        }
        let Thought::Open { at } = self.thought else { return };
        let rest = &self.raw[at..];
        let (shown, next) = match rest.find(THINK_END) {
            Some(end) => (end, Thought::Over { at: at + end + THINK_END.len() }),
            None => {
                let held = held_back(rest);
                (rest.len() - held, Thought::Open { at: self.raw.len() - held })
            }
        };
        out.push(ModelEvent::Thinking(rest[..shown].to_owned()));
        if let Thought::Over { .. } = next {
            out.push(ModelEvent::ThinkingDone { signature: None, origin: None });
        }
        self.thought = next;
    }

    /// The action is whole, or it never will be.
    pub(crate) fn end(self, finish: StopReason, out: &mut Fragments) -> Result<StopReason, Fault> {
        if self.answer.is_some() {
            return Ok(if finish == StopReason::MaxTokens { finish } else { StopReason::EndTurn });
        }
        let from = match self.thought {
            Thought::Over { at } => at,
            Thought::Unsure => 0,
            Thought::Open { at } => {
                out.push(ModelEvent::Thinking(self.raw[at..].to_owned()));
                out.push(ModelEvent::ThinkingDone { signature: None, origin: None });
                self.raw.len()
            }
        };
        if finish != StopReason::EndTurn {
            return Ok(finish);
        }
        let said = &self.raw[from..];
        if let Some(action) = Action::of(said) {
            return Ok(action.push(out));
        }
        // Some templates begin the thinking themselves, so that the model only ends it.
        if let Some((thought, rest)) = said.split_once(THINK_END)
            && let Some(action) = Action::of(rest)
        {
            out.push(ModelEvent::Thinking(thought.to_owned()));
            out.push(ModelEvent::ThinkingDone { signature: None, origin: None });
            return Ok(action.push(out));
        }
        Err(self.no_action(said))
    }

    fn no_action(&self, said: &str) -> Fault {
        let said = match said.trim() {
            "" => "nothing".to_owned(),
            said => match said.char_indices().nth(SAID_MAX) {
                Some((end, _)) => format!("“{}…”", &said[..end]),
                None => format!("“{said}”"),
            },
        };
        let why = format!(
            "with `tool_mode = \"schema\"` a reply is one action object, and the model said {said}; set \
             `tool_mode = \"native\"` under [models.\"{}\"] in config.toml, or use a server that holds replies to a \
             `response_format` of the type `json_schema`",
            self.model
        );
        Fault::new(FaultKind::SchemaMismatch, why)
    }
}

/// How much of the end may be the beginning of the mark that ends thinking.
fn held_back(text: &str) -> usize {
    let most = THINK_END.len().min(text.len());
    (1..=most).rev().find(|len| text.ends_with(&THINK_END[..*len])).unwrap_or(0)
}

/// What a reply comes to.
enum Action {
    Answer(String),
    Call { name: String, input: String },
}

impl Action {
    /// The object that a text begins with, or that stands in its first fence; what follows it does not matter.
    fn of(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let object = match text.starts_with('{') {
            true => text,
            false => after_line(&text[text.find(FENCE)?..])?,
        };
        let object = serde_json::Deserializer::from_str(object).into_iter::<Value>().next()?.ok()?;
        match (object.get(ACTION)?.as_str()?, object.get(INPUT), object.get(TEXT)) {
            (ANSWER, _, Some(Value::String(text))) => Some(Action::Answer(text.clone())),
            (ANSWER, _, Some(value)) => Some(Action::Answer(value.to_string())),
            (name, Some(input), _) => Some(Action::Call { name: name.to_owned(), input: input.to_string() }),
            _ => None,
        }
    }

    fn push(self, out: &mut Fragments) -> StopReason {
        match self {
            Action::Answer(text) => {
                out.push(ModelEvent::Text(text));
                StopReason::EndTurn
            }
            Action::Call { name, input } => {
                out.push(ModelEvent::CallStarted { index: 0, provider_id: None, name });
                out.push(ModelEvent::CallArguments { index: 0, text: input });
                StopReason::ToolUse
            }
        }
    }
}

fn after_line(text: &str) -> Option<&str> {
    text.split_once('\n').map(|(_, rest)| rest)
}

/// Where the text of an answer begins, once that can be told.
fn answer_begin(raw: &str) -> Option<usize> {
    let begun = raw.trim_start();
    let mut rest = if begun.starts_with(FENCE) { after_line(begun)? } else { begun };
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

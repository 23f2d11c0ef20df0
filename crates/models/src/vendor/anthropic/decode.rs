//! Reads the events of Anthropic's Messages.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use tenure_core::model::{Fault, FaultKind, StopReason, Usage};
use tenure_sse::Frame;

use super::{ORIGIN, ORIGIN_REDACTED};
use crate::{
    ModelEvent,
    vendor::{
        fault,
        stream::{self, Decoder, Fragments, malformed},
    },
};

/// The state of one reply.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    blocks: HashMap<u64, Open>,
    calls: u32,
    /// Whether any text came.
    speaks: bool,
    usage: Usage,
    stop: Option<StopReason>,
}

/// A block under way.
#[derive(Debug)]
enum Open {
    Thinking { signature: String },
    Call { index: u32 },
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    MessageStart {
        message: Start,
    },
    ContentBlockStart {
        index: u64,
        content_block: Value,
    },
    ContentBlockDelta {
        index: u64,
        delta: Delta,
    },
    ContentBlockStop {
        index: u64,
    },
    MessageDelta {
        delta: End,
        usage: Option<Counts>,
    },
    MessageStop,
    Error {
        error: Value,
    },
    /// Pings, and what is added to the format later.
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Start {
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct End {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(other)]
    Other,
}

/// All are totals of the reply so far; those left out are as they were.
#[derive(Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

impl Decoder for Messages {
    fn take(&mut self, frame: Frame, out: &mut Fragments) -> Result<(), Fault> {
        match stream::json(&frame)? {
            Event::MessageStart { message } => self.count(message.usage, out),
            Event::ContentBlockStart { index, content_block } => self.open(index, content_block, out)?,
            Event::ContentBlockDelta { index, delta } => self.delta(index, delta, out)?,
            Event::ContentBlockStop { index } => {
                if let Some(Open::Thinking { signature }) = self.blocks.remove(&index) {
                    let signature = (!signature.is_empty()).then_some(signature);
                    out.push(ModelEvent::ThinkingDone { signature, origin: Some(ORIGIN.into()) });
                }
            }
            Event::MessageDelta { delta, usage } => {
                self.count(usage, out);
                if let Some(reason) = delta.stop_reason {
                    self.stop = Some(self.stop_reason(&reason)?);
                }
            }
            Event::MessageStop => {
                let stop_reason = self.stop.ok_or_else(|| malformed("it ends without a reason"))?;
                out.push(ModelEvent::Done { stop_reason });
            }
            Event::Error { error } => return Err(fault::in_stream(&error)),
            Event::Other => {}
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Fragments) -> Result<Option<StopReason>, Fault> {
        Ok(None)
    }
}

impl Messages {
    fn open(&mut self, index: u64, block: Value, out: &mut Fragments) -> Result<(), Fault> {
        let field = |name: &str| block.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let open = match field("type").as_str() {
            "text" => {
                self.speaks |= !field("text").is_empty();
                out.push(ModelEvent::Text(field("text")));
                Open::Other
            }
            "thinking" => {
                out.push(ModelEvent::Thinking(field("thinking")));
                Open::Thinking { signature: field("signature") }
            }
            "redacted_thinking" => {
                let signature = Some(field("data"));
                out.push(ModelEvent::ThinkingDone { signature, origin: Some(ORIGIN_REDACTED.into()) });
                Open::Other
            }
            "tool_use" => {
                let (id, name) = (field("id"), field("name"));
                if name.is_empty() {
                    return Err(malformed("a call without a name"));
                }
                let number = self.calls;
                self.calls += 1;
                out.push(ModelEvent::CallStarted { index: number, provider_id: (!id.is_empty()).then_some(id), name });
                // Servers that do not stream arguments have them here.
                if let Some(input) = block.get("input").and_then(Value::as_object).filter(|input| !input.is_empty()) {
                    let text = Value::Object(input.clone()).to_string();
                    out.push(ModelEvent::CallArguments { index: number, text });
                }
                Open::Call { index: number }
            }
            _ => Open::Other,
        };
        self.blocks.insert(index, open);
        Ok(())
    }

    fn delta(&mut self, index: u64, delta: Delta, out: &mut Fragments) -> Result<(), Fault> {
        let Some(open) = self.blocks.get_mut(&index) else {
            return Err(malformed("a delta for a block that was not begun"));
        };
        match (delta, open) {
            (Delta::Text { text }, _) => {
                self.speaks |= !text.is_empty();
                out.push(ModelEvent::Text(text));
            }
            (Delta::Thinking { thinking }, _) => out.push(ModelEvent::Thinking(thinking)),
            (Delta::Signature { signature: more }, Open::Thinking { signature }) => signature.push_str(&more),
            (Delta::InputJson { partial_json }, Open::Call { index }) => {
                out.push(ModelEvent::CallArguments { index: *index, text: partial_json });
            }
            (Delta::InputJson { .. } | Delta::Signature { .. } | Delta::Other, _) => {}
        }
        Ok(())
    }

    fn stop_reason(&self, reason: &str) -> Result<StopReason, Fault> {
        Ok(match reason {
            "end_turn" | "stop_sequence" => StopReason::EndTurn,
            "tool_use" => StopReason::ToolUse,
            "max_tokens" => StopReason::MaxTokens,
            "refusal" => StopReason::Refusal,
            // Text is an answer that was cut. A call of which a part is missing is nothing: with a shorter context it
            // may become whole.
            "model_context_window_exceeded" if self.speaks && self.calls == 0 => StopReason::MaxTokens,
            "model_context_window_exceeded" => {
                return Err(Fault::new(FaultKind::ContextOverflow, "the reply came to the end of the model's window"));
            }
            _ => StopReason::Other,
        })
    }

    fn count(&mut self, counts: Option<Counts>, out: &mut Fragments) {
        let Some(counts) = counts else { return };
        let usage = &mut self.usage;
        usage.input_tokens = counts.input_tokens.unwrap_or(usage.input_tokens);
        usage.output_tokens = counts.output_tokens.unwrap_or(usage.output_tokens);
        usage.cache_read_tokens = counts.cache_read_input_tokens.unwrap_or(usage.cache_read_tokens);
        usage.cache_write_tokens = counts.cache_creation_input_tokens.unwrap_or(usage.cache_write_tokens);
        out.push(ModelEvent::Usage(*usage));
    }
}

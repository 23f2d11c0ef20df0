//! Reads the events of OpenAI's Responses. Whole items are believed before deltas, but what was shown is not taken back.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use tenure_core::model::{Fault, StopReason, Usage};
use tenure_sse::Frame;

use super::ORIGIN;
use crate::{
    ModelEvent,
    vendor::{
        fault,
        stream::{self, Decoder, Fragments, malformed},
    },
};

/// What stands between two parts of a summary.
const PARAGRAPH: &str = "\n\n";

/// The state of one reply.
#[derive(Debug, Default)]
pub(crate) struct Response {
    items: HashMap<u64, Open>,
    calls: u32,
    refused: bool,
}

/// An item under way, and what of it was shown.
#[derive(Debug)]
enum Open {
    Message {
        shown: String,
    },
    Reasoning {
        parts: u32,
        shown: String,
    },
    Call {
        index: u32,
        shown: String,
    },
    /// It was told to the end, or there is nothing to tell.
    Over,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Event {
    #[serde(rename = "response.output_item.added")]
    Added { output_index: u64, item: Value },
    #[serde(rename = "response.output_text.delta")]
    Text { output_index: u64, delta: String },
    #[serde(rename = "response.refusal.delta")]
    Refusal { output_index: u64, delta: String },
    #[serde(rename = "response.reasoning_summary_part.added")]
    SummaryPart { output_index: u64 },
    #[serde(rename = "response.reasoning_summary_text.delta", alias = "response.reasoning_text.delta")]
    Summary { output_index: u64, delta: String },
    #[serde(rename = "response.function_call_arguments.delta")]
    Arguments { output_index: u64, delta: String },
    #[serde(rename = "response.output_item.done")]
    Done { output_index: u64, item: Value },
    #[serde(rename = "response.completed")]
    Completed { response: Value },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: Value },
    #[serde(rename = "response.failed")]
    Failed { response: Value },
    #[serde(rename = "error")]
    Error {
        #[serde(flatten)]
        error: Value,
    },
    /// What tells of progress alone, and what is added to the format later.
    #[serde(other)]
    Other,
}

impl Decoder for Response {
    fn take(&mut self, frame: Frame, out: &mut Fragments) -> Result<(), Fault> {
        match stream::json(&frame)? {
            Event::Added { output_index, item } => self.open(output_index, &item, out)?,
            Event::Text { output_index, delta } => self.text(output_index, delta, out)?,
            Event::Refusal { output_index, delta } => {
                self.refused = true;
                self.text(output_index, delta, out)?;
            }
            Event::SummaryPart { output_index } => {
                if let Some(Open::Reasoning { parts, shown }) = self.items.get_mut(&output_index) {
                    *parts += 1;
                    if *parts > 1 && !shown.is_empty() {
                        shown.push_str(PARAGRAPH);
                        out.push(ModelEvent::Thinking(PARAGRAPH.into()));
                    }
                }
            }
            Event::Summary { output_index, delta } => {
                if let Some(Open::Reasoning { shown, .. }) = self.items.get_mut(&output_index) {
                    shown.push_str(&delta);
                    out.push(ModelEvent::Thinking(delta));
                }
            }
            Event::Arguments { output_index, delta } => {
                let Some(Open::Call { index, shown }) = self.items.get_mut(&output_index) else {
                    return Err(malformed("arguments for a call that was not begun"));
                };
                shown.push_str(&delta);
                out.push(ModelEvent::CallArguments { index: *index, text: delta });
            }
            Event::Done { output_index, item } => self.close(output_index, &item, out)?,
            Event::Completed { response } => {
                self.close_all(&response, out)?;
                let stop_reason = match (self.calls, self.refused) {
                    (1.., _) => StopReason::ToolUse,
                    (0, true) => StopReason::Refusal,
                    (0, false) => StopReason::EndTurn,
                };
                finish(&response, stop_reason, out);
            }
            Event::Incomplete { response } => {
                self.close_all(&response, out)?;
                let reason = response.pointer("/incomplete_details/reason").and_then(Value::as_str);
                let stop_reason = match reason {
                    Some("max_output_tokens" | "max_tokens") => StopReason::MaxTokens,
                    Some("content_filter") => StopReason::Refusal,
                    _ => StopReason::Other,
                };
                finish(&response, stop_reason, out);
            }
            Event::Failed { response } => {
                let fault = fault::in_stream(response.get("error").unwrap_or(&Value::Null));
                count(&response, out);
                return Err(fault);
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

impl Response {
    fn open(&mut self, number: u64, item: &Value, out: &mut Fragments) -> Result<(), Fault> {
        let field = |name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default();
        let open = match field("type") {
            "message" => Open::Message { shown: String::new() },
            "reasoning" => Open::Reasoning { parts: 0, shown: String::new() },
            "function_call" => {
                let (id, name) = (field("call_id"), field("name"));
                if name.is_empty() {
                    return Err(malformed("a call without a name"));
                }
                let index = self.calls;
                self.calls += 1;
                let provider_id = (!id.is_empty()).then(|| id.to_owned());
                out.push(ModelEvent::CallStarted { index, provider_id, name: name.to_owned() });
                Open::Call { index, shown: String::new() }
            }
            _ => Open::Over,
        };
        self.items.insert(number, open);
        Ok(())
    }

    fn text(&mut self, number: u64, delta: String, out: &mut Fragments) -> Result<(), Fault> {
        let Some(Open::Message { shown }) = self.items.get_mut(&number) else {
            return Err(malformed("text for a message that was not begun"));
        };
        shown.push_str(&delta);
        out.push(ModelEvent::Text(delta));
        Ok(())
    }

    /// The reply as a whole. Items that no event has told of are shown now.
    fn close_all(&mut self, response: &Value, out: &mut Fragments) -> Result<(), Fault> {
        let items = response.get("output").and_then(Value::as_array);
        for (number, item) in (0..).zip(items.into_iter().flatten()) {
            self.close(number, item, out)?;
        }
        Ok(())
    }

    /// The item as a whole. What no delta has told of it is shown now.
    fn close(&mut self, number: u64, item: &Value, out: &mut Fragments) -> Result<(), Fault> {
        if !self.items.contains_key(&number) {
            self.open(number, item, out)?;
        }
        match self.items.insert(number, Open::Over) {
            Some(Open::Message { shown }) => {
                let parts = || item.get("content").and_then(Value::as_array).into_iter().flatten();
                let field = |part: &'_ Value, name: &str| part.get(name).and_then(Value::as_str).map(str::to_owned);
                self.refused |= parts().any(|part| field(part, "refusal").is_some());
                let whole: String = parts().filter_map(|part| field(part, "text").or(field(part, "refusal"))).collect();
                out.push(ModelEvent::Text(missing(&shown, &whole)?.to_owned()));
            }
            Some(Open::Call { index, shown }) => {
                let whole = item.get("arguments").and_then(Value::as_str).unwrap_or_default();
                let text = if is_same_json(&shown, whole) { "" } else { missing(&shown, whole)? };
                if !text.is_empty() {
                    out.push(ModelEvent::CallArguments { index, text: text.to_owned() });
                }
            }
            Some(Open::Reasoning { shown, .. }) => {
                // A summary in other words harms nobody: the item goes back as it is.
                let whole = summary(item);
                out.push(ModelEvent::Thinking(missing(&shown, &whole).unwrap_or_default().to_owned()));
                // Without its encrypted part an item cannot be sent back: the vendor keeps nothing for us.
                let encrypted = item.get("encrypted_content").is_some_and(Value::is_string);
                let signature = encrypted.then(|| item.to_string());
                out.push(ModelEvent::ThinkingDone { signature, origin: Some(ORIGIN.into()) });
            }
            _ => {}
        }
        Ok(())
    }
}

/// What of the whole was not shown yet. An item that says nothing of itself is what was shown of it.
fn missing<'a>(shown: &str, whole: &'a str) -> Result<&'a str, Fault> {
    match whole.strip_prefix(shown) {
        Some(tail) => Ok(tail),
        None if whole.is_empty() || whole.trim() == shown.trim() => Ok(""),
        None => Err(malformed("an item is not what its pieces were")),
    }
}

/// Servers may write the same arguments anew.
fn is_same_json(one: &str, other: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    read(one).is_some_and(|one| Some(one) == read(other))
}

/// What an item of reasoning tells of itself.
fn summary(item: &Value) -> String {
    let texts = |field: &str| -> Vec<&str> {
        let parts = item.get(field).and_then(Value::as_array).into_iter().flatten();
        parts.filter_map(|part| part.get("text")?.as_str()).collect()
    };
    let told = texts("summary");
    if told.is_empty() { texts("content").concat() } else { told.join(PARAGRAPH) }
}

fn finish(response: &Value, stop_reason: StopReason, out: &mut Fragments) {
    count(response, out);
    out.push(ModelEvent::Done { stop_reason });
}

/// The vendor's total holds the cached part; ours does not.
fn count(response: &Value, out: &mut Fragments) {
    let Some(usage) = response.get("usage").filter(|usage| usage.is_object()) else { return };
    let number = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let input = number("/input_tokens");
    let cache_read_tokens = number("/input_tokens_details/cached_tokens").min(input);
    let cache_write_tokens = number("/input_tokens_details/cache_write_tokens").min(input - cache_read_tokens);
    out.push(ModelEvent::Usage(Usage {
        input_tokens: input - cache_read_tokens - cache_write_tokens,
        output_tokens: number("/output_tokens"),
        cache_read_tokens,
        cache_write_tokens,
    }));
}

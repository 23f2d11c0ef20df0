//! Reads the chunks of Chat Completions, with what the imitators leave out.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tenure_core::model::{Fault, StopReason, Usage};
use tenure_sse::Frame;

use super::ORIGIN;
use crate::{
    ModelEvent,
    vendor::{
        action::Reader,
        fault,
        stream::{self, Decoder, Fragments, malformed},
    },
};

const DONE: &str = "[DONE]";

/// The state of one reply.
#[derive(Debug, Default)]
pub(crate) struct Completion {
    /// The last call of each number that the server gave.
    calls: BTreeMap<u64, Begun>,
    calls_begun: u32,
    thinks: bool,
    finish: Option<StopReason>,
    refused: bool,
    /// Calls and answers are read out of the text, where they were asked for so.
    action: Option<Reader>,
}

/// A call under way.
#[derive(Debug)]
struct Begun {
    index: u32,
    id: Option<String>,
}

#[derive(Deserialize)]
struct Chunk {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Counts>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default, alias = "message")]
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<CallDelta>>,
}

#[derive(Deserialize)]
struct CallDelta {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    /// Text; some send the object itself.
    arguments: Option<Value>,
}

#[derive(Deserialize)]
struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    /// DeepSeek's name for the cached share.
    prompt_cache_hit_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

impl Completion {
    pub(crate) fn by_schema(model: &str) -> Self {
        Self { action: Some(Reader::new(model)), ..Self::default() }
    }
}

impl Decoder for Completion {
    fn take(&mut self, frame: Frame, out: &mut Fragments) -> Result<(), Fault> {
        if frame.data.trim() == DONE {
            return match self.end(out)? {
                Some(stop_reason) => {
                    out.push(ModelEvent::Done { stop_reason });
                    Ok(())
                }
                None => Err(malformed("it ends without a reason")),
            };
        }
        let chunk: Chunk = stream::json(&frame)?;
        if let Some(error) = &chunk.error {
            return Err(fault::in_stream(error));
        }
        if let Some(counts) = chunk.usage {
            out.push(ModelEvent::Usage(usage(counts)));
        }
        for choice in chunk.choices.into_iter().take(1) {
            self.delta(choice.delta.unwrap_or_default(), out)?;
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish = Some(self.stop_reason(&reason));
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Fragments) -> Result<Option<StopReason>, Fault> {
        let Some(finish) = self.finish else { return Ok(None) };
        self.end_thinking(out);
        match self.action.take() {
            Some(action) => action.end(finish, out).map(Some),
            None => Ok(Some(finish)),
        }
    }
}

impl Completion {
    fn delta(&mut self, delta: Delta, out: &mut Fragments) -> Result<(), Fault> {
        if let Some(text) = delta.reasoning_content.or(delta.reasoning).filter(|text| !text.is_empty()) {
            self.thinks = true;
            out.push(ModelEvent::Thinking(text));
        }
        if let Some(text) = delta.refusal.filter(|text| !text.is_empty()) {
            self.refused = true;
            self.text(text, out);
        }
        if let Some(text) = delta.content.filter(|text| !text.is_empty()) {
            self.text(text, out);
        }
        for call in delta.tool_calls.into_iter().flatten() {
            self.end_thinking(out);
            self.call(call, out)?;
        }
        Ok(())
    }

    fn text(&mut self, text: String, out: &mut Fragments) {
        self.end_thinking(out);
        match &mut self.action {
            Some(action) => action.push(&text, out),
            None => out.push(ModelEvent::Text(text)),
        }
    }

    fn end_thinking(&mut self, out: &mut Fragments) {
        if std::mem::take(&mut self.thinks) {
            out.push(ModelEvent::ThinkingDone { signature: None, origin: Some(ORIGIN.into()) });
        }
    }

    fn call(&mut self, call: CallDelta, out: &mut Fragments) -> Result<(), Fault> {
        let CallDelta { index: number, id, function } = call;
        let function = function.unwrap_or(FunctionDelta { name: None, arguments: None });
        let name = function.name.filter(|name| !name.is_empty());
        // A server that does not number its calls sends each of them whole.
        let number = number.unwrap_or_else(|| match name.is_some() {
            true => self.calls.keys().next_back().map_or(0, |last| last.saturating_add(1)),
            false => self.calls.keys().next_back().copied().unwrap_or(0),
        });
        let id = id.filter(|id| !id.is_empty());
        // Some give all their calls the same number: another name and id is another call.
        let begun = self.calls.get(&number).filter(|begun| name.is_none() || id.is_none() || begun.id == id);
        let index = match (begun, name) {
            (Some(begun), _) => begun.index,
            (None, Some(name)) => {
                let index = self.calls_begun;
                self.calls_begun = index.saturating_add(1);
                self.calls.insert(number, Begun { index, id: id.clone() });
                out.push(ModelEvent::CallStarted { index, provider_id: id, name });
                index
            }
            (None, None) => return Err(malformed("a call without a name")),
        };
        let text = match function.arguments {
            None | Some(Value::Null) => return Ok(()),
            Some(Value::String(text)) if text.is_empty() => return Ok(()),
            Some(Value::String(text)) => text,
            Some(object) => object.to_string(),
        };
        out.push(ModelEvent::CallArguments { index, text });
        Ok(())
    }

    /// Servers that say `stop` after calls are not believed: the calls tell.
    fn stop_reason(&self, reason: &str) -> StopReason {
        match reason {
            "length" => StopReason::MaxTokens,
            "content_filter" => StopReason::Refusal,
            _ if !self.calls.is_empty() => StopReason::ToolUse,
            _ if self.refused => StopReason::Refusal,
            "stop" | "tool_calls" | "function_call" | "eos" => StopReason::EndTurn,
            _ => StopReason::Other,
        }
    }
}

/// The vendor's total holds the cached part; ours does not.
fn usage(counts: Counts) -> Usage {
    let details = counts.prompt_tokens_details;
    let cached = details.as_ref().and_then(|details| details.cached_tokens).or(counts.prompt_cache_hit_tokens);
    let prompt = counts.prompt_tokens.unwrap_or(0);
    let cache_read_tokens = cached.unwrap_or(0).min(prompt);
    let cache_write_tokens = details.and_then(|details| details.cache_write_tokens).unwrap_or(0);
    let cache_write_tokens = cache_write_tokens.min(prompt - cache_read_tokens);
    Usage {
        input_tokens: prompt - cache_read_tokens - cache_write_tokens,
        output_tokens: counts.completion_tokens.unwrap_or(0),
        cache_read_tokens,
        cache_write_tokens,
    }
}

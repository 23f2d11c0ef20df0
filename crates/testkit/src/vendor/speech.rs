//! A reply in each vendor's format.

use serde_json::{Value, json};
use tenure_core::model::{StopReason, Usage};
use tenure_models::vendor::Wire;

/// A vendor's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Anthropic,
    Chat,
    Responses,
    Gemini,
}

impl Format {
    pub const ALL: [Format; 4] = [Format::Anthropic, Format::Chat, Format::Responses, Format::Gemini];

    pub fn wire(self) -> Wire {
        match self {
            Format::Anthropic => Wire::Anthropic,
            Format::Chat => Wire::Chat,
            Format::Responses => Wire::Responses,
            Format::Gemini => Wire::Gemini,
        }
    }

    /// Where models of this format are asked for, below the vendor's address.
    pub fn base_path(self) -> &'static str {
        match self {
            Format::Anthropic => "",
            Format::Chat | Format::Responses => "/v1",
            Format::Gemini => "/v1beta",
        }
    }
}

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Spoken {
    /// Fragments of a thought, and the signature it ends with.
    Thought(Vec<String>, Option<String>),
    /// Fragments of the text.
    Text(Vec<String>),
    /// Calls side by side: id, name, and fragments of their arguments.
    Calls(Vec<(String, String, Vec<String>)>),
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq)]
pub struct Speech {
    pub spoken: Vec<Spoken>,
    pub stop: StopReason,
    pub usage: Usage,
}

impl Speech {
    pub fn text(text: &str) -> Self {
        let words = text.split_inclusive(' ').map(str::to_owned).collect();
        let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        Self { spoken: vec![Spoken::Text(words)], stop: StopReason::EndTurn, usage }
    }

    pub fn call(id: &str, name: &str, arguments: &Value) -> Self {
        let call = (id.to_owned(), name.to_owned(), vec![arguments.to_string()]);
        let usage = Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() };
        Self { spoken: vec![Spoken::Calls(vec![call])], stop: StopReason::ToolUse, usage }
    }

    /// As the events of a stream.
    pub fn events(&self, format: Format) -> String {
        match format {
            Format::Anthropic => self.anthropic(),
            Format::Chat => self.chat(),
            Format::Responses => self.responses(),
            Format::Gemini => self.gemini(),
        }
    }

    fn anthropic(&self) -> String {
        let mut events = Events::default();
        let usage = json!({
            "input_tokens": self.usage.input_tokens, "output_tokens": 1,
            "cache_read_input_tokens": self.usage.cache_read_tokens,
            "cache_creation_input_tokens": self.usage.cache_write_tokens,
        });
        events.named(json!({ "type": "message_start", "message": { "id": "msg_1", "role": "assistant", "content": [], "usage": usage } }));
        events.named(json!({ "type": "ping" }));
        let mut index = 0;
        let mut block = |start: Value, deltas: Vec<Value>| {
            events.named(json!({ "type": "content_block_start", "index": index, "content_block": start }));
            for delta in deltas {
                events.named(json!({ "type": "content_block_delta", "index": index, "delta": delta }));
            }
            events.named(json!({ "type": "content_block_stop", "index": index }));
            index += 1;
        };
        for spoken in &self.spoken {
            match spoken {
                Spoken::Thought(pieces, signature) => {
                    let mut deltas: Vec<_> =
                        pieces.iter().map(|text| json!({ "type": "thinking_delta", "thinking": text })).collect();
                    deltas.extend(signature.iter().map(|text| json!({ "type": "signature_delta", "signature": text })));
                    block(json!({ "type": "thinking", "thinking": "", "signature": "" }), deltas);
                }
                Spoken::Text(pieces) => {
                    let deltas = pieces.iter().map(|text| json!({ "type": "text_delta", "text": text })).collect();
                    block(json!({ "type": "text", "text": "" }), deltas);
                }
                Spoken::Calls(calls) => {
                    for (id, name, pieces) in calls {
                        let mut deltas = vec![json!({ "type": "input_json_delta", "partial_json": "" })];
                        deltas.extend(
                            pieces.iter().map(|text| json!({ "type": "input_json_delta", "partial_json": text })),
                        );
                        block(json!({ "type": "tool_use", "id": id, "name": name, "input": {} }), deltas);
                    }
                }
            }
        }
        let reason = match self.stop {
            StopReason::EndTurn => "end_turn",
            StopReason::ToolUse => "tool_use",
            StopReason::MaxTokens => "max_tokens",
            StopReason::Refusal => "refusal",
            StopReason::Other => "pause_turn",
        };
        let usage = json!({ "output_tokens": self.usage.output_tokens });
        events.named(json!({ "type": "message_delta", "delta": { "stop_reason": reason }, "usage": usage }));
        events.named(json!({ "type": "message_stop" }));
        events.0
    }

    fn chat(&self) -> String {
        let mut events = Events::default();
        let mut delta = |delta: Value, finish: Value| {
            let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
            events.plain(&json!({ "id": "c1", "object": "chat.completion.chunk", "choices": [choice] }));
        };
        delta(json!({ "role": "assistant", "content": "" }), Value::Null);
        let mut before = 0;
        for spoken in &self.spoken {
            match spoken {
                Spoken::Thought(pieces, _) => {
                    pieces.iter().for_each(|text| delta(json!({ "reasoning_content": text }), Value::Null));
                }
                Spoken::Text(pieces) => pieces.iter().for_each(|text| delta(json!({ "content": text }), Value::Null)),
                Spoken::Calls(calls) => {
                    for (index, (id, name, _)) in (before..).zip(calls) {
                        let function = json!({ "name": name, "arguments": "" });
                        let call = json!({ "index": index, "id": id, "type": "function", "function": function });
                        delta(json!({ "tool_calls": [call] }), Value::Null);
                    }
                    // Parallel calls take turns.
                    let longest = calls.iter().map(|(_, _, pieces)| pieces.len()).max().unwrap_or(0);
                    for round in 0..longest {
                        for (index, (_, _, pieces)) in (before..).zip(calls) {
                            let Some(text) = pieces.get(round) else { continue };
                            let call = json!({ "index": index, "function": { "arguments": text } });
                            delta(json!({ "tool_calls": [call] }), Value::Null);
                        }
                    }
                    before += calls.len();
                }
            }
        }
        let reason = match self.stop {
            StopReason::EndTurn => "stop",
            StopReason::ToolUse => "tool_calls",
            StopReason::MaxTokens => "length",
            StopReason::Refusal => "content_filter",
            StopReason::Other => "odd",
        };
        delta(json!({}), json!(reason));
        let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } = self.usage;
        let details = json!({ "cached_tokens": cache_read_tokens, "cache_write_tokens": cache_write_tokens });
        let prompt = input_tokens + cache_read_tokens + cache_write_tokens;
        let usage =
            json!({ "prompt_tokens": prompt, "completion_tokens": output_tokens, "prompt_tokens_details": details });
        events.plain(&json!({ "id": "c1", "choices": [], "usage": usage }));
        events.0.push_str("data: [DONE]\n\n");
        events.0
    }

    fn responses(&self) -> String {
        let mut events = Events::default();
        events.named(json!({ "type": "response.created", "response": { "id": "resp_1", "status": "in_progress" } }));
        let mut number = 0;
        let mut item = |added: Value, deltas: Vec<Value>, done: Value| {
            events.named(json!({ "type": "response.output_item.added", "output_index": number, "item": added }));
            for mut delta in deltas {
                delta["output_index"] = json!(number);
                events.named(delta);
            }
            events.named(json!({ "type": "response.output_item.done", "output_index": number, "item": done }));
            number += 1;
        };
        for spoken in &self.spoken {
            match spoken {
                Spoken::Thought(pieces, signature) => {
                    let mut deltas =
                        vec![json!({ "type": "response.reasoning_summary_part.added", "summary_index": 0 })];
                    deltas.extend(
                        pieces
                            .iter()
                            .map(|text| json!({ "type": "response.reasoning_summary_text.delta", "delta": text })),
                    );
                    let summary = json!([{ "type": "summary_text", "text": pieces.concat() }]);
                    let mut done = json!({ "type": "reasoning", "id": "rs_1", "summary": summary });
                    if let Some(signature) = signature {
                        done["encrypted_content"] = json!(signature);
                    }
                    item(json!({ "type": "reasoning", "id": "rs_1", "summary": [] }), deltas, done);
                }
                Spoken::Text(pieces) => {
                    let deltas =
                        pieces.iter().map(|text| json!({ "type": "response.output_text.delta", "delta": text }));
                    let content = json!([{ "type": "output_text", "text": pieces.concat() }]);
                    let message = json!({ "type": "message", "id": "msg_1", "role": "assistant", "content": [] });
                    let mut done = message.clone();
                    done["content"] = content;
                    item(message, deltas.collect(), done);
                }
                Spoken::Calls(calls) => {
                    for (id, name, pieces) in calls {
                        let deltas = pieces
                            .iter()
                            .map(|text| json!({ "type": "response.function_call_arguments.delta", "delta": text }));
                        let call = json!({ "type": "function_call", "id": "fc_1", "call_id": id, "name": name, "arguments": "" });
                        let mut done = call.clone();
                        done["arguments"] = json!(pieces.concat());
                        item(call, deltas.collect(), done);
                    }
                }
            }
        }
        let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } = self.usage;
        let details = json!({ "cached_tokens": cache_read_tokens, "cache_write_tokens": cache_write_tokens });
        let input = input_tokens + cache_read_tokens + cache_write_tokens;
        let usage = json!({ "input_tokens": input, "input_tokens_details": details, "output_tokens": output_tokens });
        let (kind, why) = match self.stop {
            StopReason::EndTurn | StopReason::ToolUse => ("response.completed", Value::Null),
            StopReason::MaxTokens => ("response.incomplete", json!({ "reason": "max_output_tokens" })),
            StopReason::Refusal => ("response.incomplete", json!({ "reason": "content_filter" })),
            StopReason::Other => ("response.incomplete", json!({ "reason": "odd" })),
        };
        events
            .named(json!({ "type": kind, "response": { "id": "resp_1", "usage": usage, "incomplete_details": why } }));
        events.0
    }

    fn gemini(&self) -> String {
        let mut events = Events::default();
        // A signature comes with the part that follows the thought.
        let mut signed: Option<&String> = None;
        let mut part = |mut part: Value, signature: Option<&String>| {
            if let Some(signature) = signature {
                part["thoughtSignature"] = json!(signature);
            }
            events.plain(&json!({ "candidates": [{ "content": { "role": "model", "parts": [part] } }] }));
        };
        for spoken in &self.spoken {
            match spoken {
                Spoken::Thought(pieces, signature) => {
                    pieces.iter().for_each(|text| part(json!({ "text": text, "thought": true }), None));
                    signed = signature.as_ref();
                }
                Spoken::Text(pieces) => {
                    pieces.iter().for_each(|text| part(json!({ "text": text }), signed.take()));
                }
                Spoken::Calls(calls) => {
                    for (id, name, pieces) in calls {
                        let args: Value = serde_json::from_str(&pieces.concat()).unwrap_or(json!({}));
                        part(json!({ "functionCall": { "id": id, "name": name, "args": args } }), signed.take());
                    }
                }
            }
        }
        let reason = match self.stop {
            StopReason::EndTurn | StopReason::ToolUse => "STOP",
            StopReason::MaxTokens => "MAX_TOKENS",
            StopReason::Refusal => "SAFETY",
            StopReason::Other => "OTHER",
        };
        let Usage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } = self.usage;
        let usage = json!({
            "promptTokenCount": input_tokens + cache_read_tokens + cache_write_tokens,
            "cachedContentTokenCount": cache_read_tokens,
            "candidatesTokenCount": output_tokens,
        });
        events.plain(&json!({ "candidates": [{ "finishReason": reason }], "usageMetadata": usage }));
        events.0
    }
}

/// A stream under way.
#[derive(Default)]
struct Events(String);

impl Events {
    fn named(&mut self, data: Value) {
        let name = data["type"].as_str().unwrap_or_default().to_owned();
        self.0.push_str(&format!("event: {name}\ndata: {data}\n\n"));
    }

    fn plain(&mut self, data: &Value) {
        self.0.push_str(&format!("data: {data}\n\n"));
    }
}

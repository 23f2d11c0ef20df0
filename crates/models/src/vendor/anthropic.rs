//! Anthropic's Messages.

mod decode;

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use tenure_core::{
    context::ModelRequest,
    message::Part,
    model::{Fault, Thinking},
};

use super::{
    conversation::{CallResult, Said, Told, Turn, led_on, spoken, told},
    media::{self, Media},
    schema,
};
use crate::entry::{Effort, Entry, ThinkingStyle};

pub(crate) use decode::Messages as Decoder;

/// Marks thinking that this format signed, and thinking that it keeps to itself.
const ORIGIN: &str = "anthropic";
const ORIGIN_REDACTED: &str = "anthropic-redacted";
/// The vendor wants a limit, whatever it is.
const OUTPUT_MAX: u64 = 32_000;
/// The least that may be given to thinking.
const BUDGET_MIN: u64 = 1024;

/// The messages come last: the next request begins with the bytes of this one.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u64,
    stream: bool,
    /// The end of the request is kept for the next one.
    cache_control: CacheControl,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<ThinkingWish>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Block<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum CacheControl {
    Ephemeral,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ThinkingWish {
    /// Newer models leave the text of their thinking out unless they are asked for it.
    Adaptive {
        display: &'static str,
    },
    Enabled {
        budget_tokens: u64,
    },
}

#[derive(Serialize)]
struct OutputConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Format {
    JsonSchema { schema: Value },
}

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block<'a> {
    Text {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: Source<'a>,
    },
    Document {
        source: Source<'a>,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: Cow<'a, Value>,
    },
    ToolResult {
        tool_use_id: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
        content: Vec<Block<'a>>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Source<'a> {
    Base64 { media_type: &'a str, data: String },
    Text { media_type: &'static str, data: String },
}

pub(crate) fn body(entry: &Entry, request: &ModelRequest, turns: &[Turn<'_>]) -> Result<Vec<u8>, Fault> {
    let max_tokens = entry.output_max.unwrap_or(OUTPUT_MAX);
    let body = Body {
        model: &entry.id,
        max_tokens,
        stream: true,
        cache_control: CacheControl::Ephemeral,
        thinking: thinking_wish(entry, max_tokens),
        output_config: output_config(entry, request),
        tools: request.tools.iter().map(tool).collect(),
        system: system(request),
        messages: messages(turns, &Media(&request.files))?,
    };
    Ok(super::encode(&body))
}

fn tool(spec: &tenure_core::tool::ToolSpec) -> Tool<'_> {
    Tool { name: &spec.name, description: &spec.description, input_schema: &spec.input_schema }
}

fn thinking_wish(entry: &Entry, max_tokens: u64) -> Option<ThinkingWish> {
    match entry.thinking {
        ThinkingStyle::None | ThinkingStyle::Effort => None,
        ThinkingStyle::Adaptive => Some(ThinkingWish::Adaptive { display: "summarized" }),
        ThinkingStyle::Budget => {
            let budget_tokens = entry.effort?.share_of(max_tokens).max(BUDGET_MIN);
            (budget_tokens < max_tokens).then_some(ThinkingWish::Enabled { budget_tokens })
        }
    }
}

fn output_config(entry: &Entry, request: &ModelRequest) -> Option<OutputConfig> {
    let effort = entry.effort.filter(|_| entry.thinking == ThinkingStyle::Adaptive);
    let format = request.output_schema.as_deref().and_then(schema::closed_for_anthropic);
    let format = format.map(|schema| Format::JsonSchema { schema });
    (effort.is_some() || format.is_some()).then_some(OutputConfig { effort, format })
}

/// The stable part has a mark of its own, so that it is found again when the conversation was shortened.
fn system(request: &ModelRequest) -> Vec<Block<'_>> {
    let texts = request.system.iter().map(|text| Cow::Borrowed(&**text)).filter(|text| !is_blank(text));
    // The vendor refuses a schema that leaves an object open.
    let untold = request.output_schema.as_deref().filter(|schema| schema::closed_for_anthropic(schema).is_none());
    let texts: Vec<_> = texts.chain(untold.map(|schema| Cow::Owned(schema::in_words(schema)))).collect();
    let last = texts.len().saturating_sub(1);
    texts
        .into_iter()
        .enumerate()
        .map(|(index, text)| Block::Text { text, cache_control: (index == last).then_some(CacheControl::Ephemeral) })
        .collect()
}

fn messages<'a>(turns: &'a [Turn<'a>], media: &Media<'a>) -> Result<Vec<Message<'a>>, Fault> {
    let mut messages = Vec::with_capacity(turns.len());
    if matches!(turns.first(), Some(Turn::Assistant { .. })) {
        messages.push(Message { role: "user", content: vec![text(media::GOES_ON)] });
    }
    for turn in turns {
        let message = match turn {
            Turn::User { results, said } => Message { role: "user", content: user(results, said, media)? },
            Turn::Assistant { text, thinking, calls, order } => {
                let blocks = led_on(told(text, thinking, calls, order), is_blank);
                Message { role: "assistant", content: blocks.into_iter().filter_map(block).collect() }
            }
        };
        // The vendor refuses a message without content; an empty reply says nothing anyway.
        if !message.content.is_empty() {
            messages.push(message);
        }
    }
    Ok(messages)
}

fn user<'a>(results: &'a [CallResult<'a>], said: &'a [Said<'a>], media: &Media<'a>) -> Result<Vec<Block<'a>>, Fault> {
    let mut content = Vec::new();
    for result in results {
        let parts = blocks(&result.parts, false, media)?;
        content.push(Block::ToolResult { tool_use_id: &result.id, is_error: !result.ok, content: parts });
    }
    for said in said {
        content.extend(blocks(said.parts, said.by_system, media)?);
    }
    Ok(content)
}

fn blocks<'a>(parts: &'a [Part], by_system: bool, media: &Media<'a>) -> Result<Vec<Block<'a>>, Fault> {
    let mut blocks = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Part::Text { text } if text.trim().is_empty() => {}
            Part::Text { text } => blocks.push(Block::Text { text: spoken(by_system, text), cache_control: None }),
            Part::Image { r#ref, mime_type } => {
                let source = Source::Base64 { media_type: mime_type, data: media.base64(r#ref)? };
                blocks.push(Block::Image { source });
            }
            Part::File { r#ref, mime_type } if media::is_text(mime_type) => {
                let source = Source::Text { media_type: "text/plain", data: media.text(r#ref)? };
                blocks.push(Block::Document { source });
            }
            Part::File { r#ref, mime_type } => {
                let source = Source::Base64 { media_type: mime_type, data: media.base64(r#ref)? };
                blocks.push(Block::Document { source });
            }
            Part::Audio { .. } => return Err(media::unsupported(part)),
        }
    }
    Ok(blocks)
}

fn text(text: &str) -> Block<'_> {
    Block::Text { text: text.into(), cache_control: None }
}

/// The vendor refuses text that says nothing.
fn block(told: Told<'_>) -> Option<Block<'_>> {
    match told {
        Told::Text(said) => (!is_blank(said)).then(|| text(said)),
        Told::Thinking(thinking) => thought(thinking),
        Told::Call(_, asked) => Some(Block::ToolUse { id: &asked.id, name: &asked.call.name, input: asked.object() }),
    }
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Thinking goes back as it came, or not at all.
fn thought(thinking: &Thinking) -> Option<Block<'_>> {
    let signature = thinking.signature.as_deref()?;
    match thinking.origin.as_deref() {
        Some(ORIGIN) => Some(Block::Thinking { thinking: &thinking.text, signature }),
        Some(ORIGIN_REDACTED) => Some(Block::RedactedThinking { data: signature }),
        _ => None,
    }
}

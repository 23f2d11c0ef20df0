//! OpenAI's Responses, used without the vendor's memory: all that is needed goes with every request.

mod decode;

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use tenure_core::{
    context::ModelRequest,
    message::Part,
    model::{Fault, Thinking},
};

use super::{
    conversation::{Told, Turn, led_on, text_of, told},
    media::{self, Media},
    schema,
};
use crate::entry::{Effort, Entry, ThinkingStyle};

pub(crate) use decode::Response as Decoder;

/// Marks reasoning whose signature is the vendor's own item, whole.
pub(super) const ORIGIN: &str = "responses";
const SCHEMA_NAME: &str = "reply";

/// The input comes last: the next request begins with the bytes of this one.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    include: Option<[&'static str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Reasoning>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Value>,
    prompt_cache_key: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    #[serde(skip_serializing_if = "String::is_empty")]
    instructions: String,
    input: Vec<Item<'a>>,
}

#[derive(Serialize)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<Effort>,
    summary: &'static str,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    strict: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    Plain(PlainItem<'a>),
    /// As the vendor sent it.
    Kept(Box<RawValue>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum PlainItem<'a> {
    Message { role: &'static str, content: Vec<Content<'a>> },
    FunctionCall { call_id: &'a str, name: &'a str, arguments: String },
    FunctionCallOutput { call_id: &'a str, output: Cow<'a, str> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Content<'a> {
    InputText { text: Cow<'a, str> },
    OutputText { text: &'a str },
    InputImage { image_url: String },
    InputFile { filename: &'a str, file_data: String },
}

pub(crate) fn body(entry: &Entry, request: &ModelRequest, turns: &[Turn<'_>]) -> Result<Vec<u8>, Fault> {
    let media = Media(&request.files);
    let mut input = Vec::with_capacity(turns.len());
    for turn in turns {
        push(turn, &media, &mut input)?;
    }
    let thinks = entry.thinking != ThinkingStyle::None;
    let body = Body {
        model: &entry.id,
        stream: true,
        store: false,
        // A model that does not reason refuses to be asked for its reasoning.
        include: thinks.then_some(["reasoning.encrypted_content"]),
        max_output_tokens: entry.output_max,
        reasoning: thinks.then_some(Reasoning { effort: entry.effort, summary: "auto" }),
        text: request.output_schema.as_deref().map(format),
        prompt_cache_key: request.meta.session_id.to_string(),
        tools: request.tools.iter().map(tool).collect(),
        instructions: request.system.iter().map(|text| &**text).collect::<Vec<_>>().join("\n\n"),
        input,
    };
    Ok(super::encode(&body))
}

/// What strict mode does not take is sent as it is, and the model does its best.
fn format(wished: &Value) -> Value {
    let strict = schema::strict(wished);
    let (is_strict, schema) = (strict.is_some(), strict.as_ref().unwrap_or(wished));
    json!({ "format": { "type": "json_schema", "name": SCHEMA_NAME, "strict": is_strict, "schema": schema } })
}

fn tool(spec: &tenure_core::tool::ToolSpec) -> Tool<'_> {
    Tool {
        r#type: "function",
        name: &spec.name,
        description: &spec.description,
        parameters: &spec.input_schema,
        strict: false,
    }
}

fn push<'a>(turn: &'a Turn<'a>, media: &Media<'a>, input: &mut Vec<Item<'a>>) -> Result<(), Fault> {
    match turn {
        Turn::Assistant { text, thinking, calls, order } => {
            // An item of reasoning has to be followed by what it led to.
            input.extend(led_on(told(text, thinking, calls, order), str::is_empty).into_iter().filter_map(item));
        }
        Turn::User { results, said } => {
            for result in results {
                let output = text_of(&result.parts);
                input.push(Item::Plain(PlainItem::FunctionCallOutput { call_id: &result.id, output }));
            }
            for result in results {
                // Results are text alone here; what else they hold follows as if it had been sent.
                let media_only = result.parts.iter().filter(|part| !matches!(part, Part::Text { .. }));
                let content = media_only.map(|part| content(part, media)).collect::<Result<Vec<_>, _>>()?;
                if !content.is_empty() {
                    input.push(Item::Plain(PlainItem::Message { role: "user", content }));
                }
            }
            for said in said {
                let content = said.parts.iter().map(|part| content(part, media)).collect::<Result<_, _>>()?;
                let role = if said.by_system { "developer" } else { "user" };
                input.push(Item::Plain(PlainItem::Message { role, content }));
            }
        }
    }
    Ok(())
}

fn item<'a>(told: Told<'a>) -> Option<Item<'a>> {
    match told {
        Told::Text("") => None,
        Told::Text(text) => {
            let content = vec![Content::OutputText { text }];
            Some(Item::Plain(PlainItem::Message { role: "assistant", content }))
        }
        Told::Thinking(thinking) => kept(thinking),
        Told::Call(_, asked) => Some(Item::Plain(PlainItem::FunctionCall {
            call_id: &asked.id,
            name: &asked.call.name,
            arguments: asked.call.input.to_string(),
        })),
    }
}

fn kept<'a>(thinking: &Thinking) -> Option<Item<'a>> {
    let item = thinking.signature.as_ref().filter(|_| thinking.origin.as_deref() == Some(ORIGIN))?;
    RawValue::from_string(item.clone()).ok().map(Item::Kept)
}

fn content<'a>(part: &'a Part, media: &Media<'a>) -> Result<Content<'a>, Fault> {
    Ok(match part {
        Part::Text { text } => Content::InputText { text: text.into() },
        Part::Image { r#ref, mime_type } => Content::InputImage { image_url: media.data_url(r#ref, mime_type)? },
        Part::File { r#ref, mime_type } if media::is_text(mime_type) => {
            let text = media::quoted(media::file_name(r#ref), &media.text(r#ref)?);
            Content::InputText { text: text.into() }
        }
        Part::File { r#ref, mime_type } => {
            Content::InputFile { filename: media::file_name(r#ref), file_data: media.data_url(r#ref, mime_type)? }
        }
        Part::Audio { .. } => return Err(media::unsupported(part)),
    })
}

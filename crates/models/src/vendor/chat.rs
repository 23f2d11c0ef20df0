//! OpenAI's Chat Completions, as OpenAI and everyone who imitates it speaks them.

mod decode;

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};
use tenure_core::{
    context::ModelRequest,
    message::Part,
    model::{Fault, Thinking},
};

use super::{
    action,
    conversation::{Asked, CallResult, Said, Turn, text_of},
    media::{self, Media},
    schema,
};
use crate::entry::{Effort, Entry, ToolMode};

pub(crate) use decode::Completion as Decoder;

/// Marks reasoning that a server may want back.
pub(super) const ORIGIN: &str = "chat";
const SCHEMA_NAME: &str = "reply";

/// The messages come last: the next request begins with the bytes of this one.
#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_cache_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Tool<'a>>,
    messages: Vec<Message<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "snake_case")]
enum Message<'a> {
    System {
        content: Cow<'a, str>,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<Cow<'a, str>>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<Call<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: Cow<'a, str>,
    },
}

/// Many servers know no list of parts, so plain text is sent as plain text.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    Text { text: Cow<'a, str> },
    ImageUrl { image_url: ImageUrl },
    InputAudio { input_audio: Audio<'a> },
    File { file: File<'a> },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct Audio<'a> {
    data: String,
    format: &'a str,
}

#[derive(Serialize)]
struct File<'a> {
    filename: &'a str,
    file_data: String,
}

#[derive(Serialize)]
struct Call<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Called<'a>,
}

#[derive(Serialize)]
struct Called<'a> {
    name: &'a str,
    /// JSON in a string.
    arguments: String,
}

pub(crate) fn body(entry: &Entry, request: &ModelRequest, turns: &[Turn<'_>]) -> Result<Vec<u8>, Fault> {
    let by_schema = entry.tool_mode == ToolMode::Schema && !request.tools.is_empty();
    let media = Media(&request.files);
    let shape = Shape { by_schema, sends_reasoning: entry.sends_reasoning };
    let mut messages = system(request, by_schema);
    for turn in turns {
        shape.push(turn, &media, &mut messages)?;
    }
    let body = Body {
        model: &entry.id,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        max_tokens: entry.output_max.filter(|_| !entry.is_openai),
        max_completion_tokens: entry.output_max.filter(|_| entry.is_openai),
        reasoning_effort: entry.effort,
        prompt_cache_key: entry.is_openai.then(|| request.meta.session_id.to_string()),
        response_format: response_format(request, by_schema),
        tools: if by_schema { Vec::new() } else { request.tools.iter().map(tool).collect() },
        messages,
    };
    Ok(super::encode(&body))
}

fn tool(spec: &tenure_core::tool::ToolSpec) -> Tool<'_> {
    let function = Function { name: &spec.name, description: &spec.description, parameters: &spec.input_schema };
    Tool { r#type: "function", function }
}

fn response_format(request: &ModelRequest, by_schema: bool) -> Option<Value> {
    let (is_strict, schema) = match by_schema {
        true => (true, action::schema(&request.tools, request.output_schema.as_deref())),
        false => {
            let wished = request.output_schema.as_deref()?;
            // What strict mode does not take is sent as it is, and the model does its best.
            let strict = schema::strict(wished);
            (strict.is_some(), strict.unwrap_or_else(|| wished.clone()))
        }
    };
    let schema = json!({ "name": SCHEMA_NAME, "strict": is_strict, "schema": schema });
    Some(json!({ "type": "json_schema", "json_schema": schema }))
}

fn system(request: &ModelRequest, by_schema: bool) -> Vec<Message<'_>> {
    let mut text = request.system.iter().map(|text| &**text).collect::<Vec<_>>().join("\n\n");
    if by_schema {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(&action::instructions(&request.tools));
    }
    if text.is_empty() { Vec::new() } else { vec![Message::System { content: text.into() }] }
}

/// How this server wants the conversation.
struct Shape {
    by_schema: bool,
    sends_reasoning: bool,
}

impl Shape {
    fn push<'a>(&self, turn: &'a Turn<'a>, media: &Media<'a>, messages: &mut Vec<Message<'a>>) -> Result<(), Fault> {
        match turn {
            Turn::Assistant { text, thinking, calls, .. } => messages.push(self.assistant(text, thinking, calls)),
            Turn::User { results, said } => {
                for result in results {
                    messages.push(self.result(result));
                }
                // Results are text alone here; what else they hold follows as if it had been sent.
                for result in results.iter().filter(|result| has_media(&result.parts)) {
                    let media_only = result.parts.iter().filter(|part| !matches!(part, Part::Text { .. }));
                    let parts = media_only.map(|part| content_part(part, media)).collect::<Result<_, _>>()?;
                    messages.push(Message::User { content: Content::Parts(parts) });
                }
                for said in said {
                    messages.push(message(said, media)?);
                }
            }
        }
        Ok(())
    }

    fn assistant<'a>(&self, text: &'a str, thinking: &'a [Thinking], calls: &'a [Asked<'a>]) -> Message<'a> {
        let reasoning = self.sends_reasoning.then(|| reasoning(thinking)).filter(|text| !text.is_empty());
        if self.by_schema {
            let content = Some(action::said(text, calls.iter().map(|asked| asked.call)).into());
            return Message::Assistant {
                content,
                reasoning_content: reasoning.map(Cow::Owned),
                tool_calls: Vec::new(),
            };
        }
        let call = |asked: &'a Asked<'a>| Call {
            id: &asked.id,
            r#type: "function",
            function: Called { name: &asked.call.name, arguments: asked.call.input.to_string() },
        };
        Message::Assistant {
            content: (!text.is_empty() || calls.is_empty()).then_some(Cow::Borrowed(text)),
            reasoning_content: reasoning.map(Cow::Owned),
            tool_calls: calls.iter().map(call).collect(),
        }
    }

    fn result<'a>(&self, result: &'a CallResult<'a>) -> Message<'a> {
        let text = text_of(&result.parts);
        match self.by_schema {
            true => Message::User { content: Content::Text(action::result(result.name, result.ok, &text).into()) },
            false => Message::Tool { tool_call_id: &result.id, content: text },
        }
    }
}

fn reasoning(thinking: &[Thinking]) -> String {
    thinking.iter().filter(|block| block.origin.as_deref() == Some(ORIGIN)).map(|block| &*block.text).collect()
}

fn has_media(parts: &[Part]) -> bool {
    parts.iter().any(|part| !matches!(part, Part::Text { .. }))
}

fn message<'a>(said: &'a Said<'a>, media: &Media<'a>) -> Result<Message<'a>, Fault> {
    if said.by_system {
        return Ok(Message::System { content: text_of(said.parts) });
    }
    if !has_media(said.parts) {
        return Ok(Message::User { content: Content::Text(text_of(said.parts)) });
    }
    let parts = said.parts.iter().map(|part| content_part(part, media)).collect::<Result<_, _>>()?;
    Ok(Message::User { content: Content::Parts(parts) })
}

fn content_part<'a>(part: &'a Part, media: &Media<'a>) -> Result<ContentPart<'a>, Fault> {
    Ok(match part {
        Part::Text { text } => ContentPart::Text { text: text.into() },
        Part::Image { r#ref, mime_type } => {
            ContentPart::ImageUrl { image_url: ImageUrl { url: media.data_url(r#ref, mime_type)? } }
        }
        Part::Audio { r#ref, mime_type } => {
            let format = mime_type.rsplit(['/', '-']).next().unwrap_or_default();
            let format = if format == "mpeg" { "mp3" } else { format };
            ContentPart::InputAudio { input_audio: Audio { data: media.base64(r#ref)?, format } }
        }
        Part::File { r#ref, mime_type } if media::is_text(mime_type) => {
            let text = media::quoted(media::file_name(r#ref), &media.text(r#ref)?);
            ContentPart::Text { text: text.into() }
        }
        Part::File { r#ref, mime_type } => {
            let file = File { filename: media::file_name(r#ref), file_data: media.data_url(r#ref, mime_type)? };
            ContentPart::File { file }
        }
    })
}

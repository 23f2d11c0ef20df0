//! Google's Gemini.

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
    conversation::{Asked, CallResult, Said, Told, Turn, spoken, text_of, told},
    media::{self, Media},
};
use crate::entry::{Entry, ThinkingStyle};

pub(crate) use decode::Content as Decoder;

/// Marks what a signature belongs to: the text before it, the thought itself, or a call by its number.
pub(super) const ORIGIN_TEXT: &str = "gemini-text";
pub(super) const ORIGIN_THOUGHT: &str = "gemini-thought";
pub(super) const ORIGIN_CALL: &str = "gemini-call-";
/// The most that may be given to thinking.
const BUDGET_MAX: u64 = 24_576;

/// The contents come last: the next request begins with the bytes of this one.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    generation_config: Option<GenerationConfig<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<[Tools<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_instruction: Option<Content<'a>>,
    contents: Vec<Content<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<&'a Value>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    parameters_json_schema: &'a Value,
}

#[derive(Serialize)]
struct Content<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    parts: Vec<Piece<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Piece<'a> {
    #[serde(flatten)]
    body: PieceBody<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    thought: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum PieceBody<'a> {
    Text(Cow<'a, str>),
    #[serde(rename_all = "camelCase")]
    InlineData {
        mime_type: &'a str,
        data: String,
    },
    FunctionCall {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        name: &'a str,
        args: Cow<'a, Value>,
    },
    FunctionResponse {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a str>,
        name: &'a str,
        response: Value,
    },
}

pub(crate) fn body(entry: &Entry, request: &ModelRequest, turns: &[Turn<'_>]) -> Result<Vec<u8>, Fault> {
    let media = Media(&request.files);
    let function_declarations: Vec<_> = request
        .tools
        .iter()
        .map(|spec| Declaration {
            name: &spec.name,
            description: &spec.description,
            parameters_json_schema: &spec.input_schema,
        })
        .collect();
    let system: Vec<_> = request.system.iter().map(|text| piece(PieceBody::Text(Cow::Borrowed(text)))).collect();
    let body = Body {
        generation_config: generation_config(entry, request),
        tools: (!function_declarations.is_empty()).then_some([Tools { function_declarations }]),
        system_instruction: (!system.is_empty()).then_some(Content { role: None, parts: system }),
        contents: contents(turns, &media)?,
    };
    Ok(super::encode(&body))
}

fn generation_config<'a>(entry: &Entry, request: &'a ModelRequest) -> Option<GenerationConfig<'a>> {
    let schema = request.output_schema.as_deref();
    let config = GenerationConfig {
        max_output_tokens: entry.output_max,
        thinking_config: thinking(entry),
        response_mime_type: schema.map(|_| "application/json"),
        response_json_schema: schema,
    };
    let empty = config.max_output_tokens.is_none() && config.thinking_config.is_none() && schema.is_none();
    (!empty).then_some(config)
}

fn thinking(entry: &Entry) -> Option<Value> {
    let mut wish = json!({ "includeThoughts": true });
    match (entry.thinking, entry.effort) {
        (ThinkingStyle::None, _) => return None,
        (ThinkingStyle::Budget, Some(effort)) => {
            let room = entry.output_max.unwrap_or(BUDGET_MAX).min(BUDGET_MAX);
            wish["thinkingBudget"] = json!(effort.share_of(room));
        }
        (ThinkingStyle::Effort | ThinkingStyle::Adaptive, Some(effort)) => wish["thinkingLevel"] = json!(effort),
        (_, None) => {}
    }
    Some(wish)
}

fn contents<'a>(turns: &'a [Turn<'a>], media: &Media<'a>) -> Result<Vec<Content<'a>>, Fault> {
    let mut contents = Vec::with_capacity(turns.len());
    if matches!(turns.first(), Some(Turn::Assistant { .. })) {
        let parts = vec![piece(PieceBody::Text(Cow::Borrowed(media::GOES_ON)))];
        contents.push(Content { role: Some("user"), parts });
    }
    for turn in turns {
        let content = match turn {
            Turn::User { results, said } => Content { role: Some("user"), parts: user(results, said, media)? },
            Turn::Assistant { text, thinking, calls, order } => {
                let parts = match order.is_empty() {
                    true => unordered(text, thinking, calls),
                    false => ordered(told(text, thinking, calls, order), thinking),
                };
                Content { role: Some("model"), parts }
            }
        };
        if !content.parts.is_empty() {
            contents.push(content);
        }
    }
    Ok(contents)
}

/// A reply whose parts have no order of their own: the text with the one signature that it has, then the calls.
fn unordered<'a>(text: &'a str, thinking: &'a [Thinking], calls: &'a [Asked<'a>]) -> Vec<Piece<'a>> {
    let mut parts: Vec<_> = thinking.iter().filter_map(thought).collect();
    let signature = signed(thinking, ORIGIN_TEXT);
    if !text.is_empty() || signature.is_some() {
        parts.push(Piece { thought_signature: signature, ..piece(PieceBody::Text(Cow::Borrowed(text))) });
    }
    parts.extend(calls.iter().enumerate().map(|(number, asked)| call(number, asked, thinking)));
    parts
}

/// Each part as it came. The signature of a text follows it.
fn ordered<'a>(blocks: Vec<Told<'a>>, thinking: &'a [Thinking]) -> Vec<Piece<'a>> {
    let mut parts: Vec<Piece<'a>> = Vec::with_capacity(blocks.len());
    for block in blocks {
        match block {
            Told::Text("") => {}
            Told::Text(text) => parts.push(piece(PieceBody::Text(Cow::Borrowed(text)))),
            Told::Call(number, asked) => parts.push(call(number, asked, thinking)),
            Told::Thinking(signed) if signed.origin.as_deref() == Some(ORIGIN_TEXT) => {
                let signature = signed.signature.as_deref();
                match parts.last_mut() {
                    Some(Piece { body: PieceBody::Text(_), thought: false, thought_signature: none @ None }) => {
                        *none = signature;
                    }
                    _ => parts.push(Piece { thought_signature: signature, ..piece(PieceBody::Text("".into())) }),
                }
            }
            Told::Thinking(thinking) => parts.extend(thought(thinking)),
        }
    }
    parts
}

fn call<'a>(number: usize, asked: &'a Asked<'a>, thinking: &'a [Thinking]) -> Piece<'a> {
    let body = PieceBody::FunctionCall { id: asked.id.vendors(), name: &asked.call.name, args: asked.object() };
    Piece { thought_signature: signed(thinking, &format!("{ORIGIN_CALL}{number}")), ..piece(body) }
}

/// A thought goes back where it is signed.
fn thought(thinking: &Thinking) -> Option<Piece<'_>> {
    let signature = thinking.signature.as_deref().filter(|_| thinking.origin.as_deref() == Some(ORIGIN_THOUGHT))?;
    let body = PieceBody::Text(Cow::Borrowed(&thinking.text));
    Some(Piece { thought: true, thought_signature: Some(signature), ..piece(body) })
}

fn user<'a>(results: &'a [CallResult<'a>], said: &'a [Said<'a>], media: &Media<'a>) -> Result<Vec<Piece<'a>>, Fault> {
    let mut parts = Vec::new();
    for result in results {
        let field = if result.ok { "result" } else { "error" };
        let response = json!({ field: text_of(&result.parts) });
        parts.push(piece(PieceBody::FunctionResponse { id: result.id.vendors(), name: result.name, response }));
    }
    for result in results {
        for part in result.parts.iter().filter(|part| !matches!(part, Part::Text { .. })) {
            parts.push(part_of(part, false, media)?);
        }
    }
    for said in said {
        for part in said.parts {
            parts.push(part_of(part, said.by_system, media)?);
        }
    }
    Ok(parts)
}

fn part_of<'a>(part: &'a Part, by_system: bool, media: &Media<'a>) -> Result<Piece<'a>, Fault> {
    let body = match part {
        Part::Text { text } => PieceBody::Text(spoken(by_system, text)),
        Part::File { r#ref, mime_type } if media::is_text(mime_type) => {
            PieceBody::Text(media::quoted(media::file_name(r#ref), &media.text(r#ref)?).into())
        }
        Part::Image { r#ref, mime_type } | Part::Audio { r#ref, mime_type } | Part::File { r#ref, mime_type } => {
            PieceBody::InlineData { mime_type, data: media.base64(r#ref)? }
        }
    };
    Ok(piece(body))
}

fn piece(body: PieceBody<'_>) -> Piece<'_> {
    Piece { body, thought: false, thought_signature: None }
}

fn signed<'a>(thinking: &'a [Thinking], origin: &str) -> Option<&'a str> {
    thinking.iter().find(|block| block.origin.as_deref() == Some(origin))?.signature.as_deref()
}

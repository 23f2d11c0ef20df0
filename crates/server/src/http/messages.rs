//! The conversation of a session, page by page.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use tenure_core::{
    event::{Body, Event},
    message,
};
use tenure_engine::Messages;
use tenure_wire::{Message, MessageList, Part, Role, ToolCall};

use super::{
    App, json,
    problem::Rejection,
    query::{InSession, Page, Params, bad_cursor},
    view,
};

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    InSession(session): InSession,
    Params(page): Params<Page>,
) -> Result<Response, Rejection> {
    let limit = page.limit()?;
    let after = match page.cursor {
        None => 0,
        Some(text) => seq(&text).ok_or_else(|| bad_cursor("cursor is not one that a list of messages gave"))?,
    };
    let Messages { events, more, damage, .. } = app.engine.messages(session, after, limit).await?;
    let next = events.last().filter(|_| more).map(|event| event.seq.to_string());
    let damage = damage.iter().map(view::lacking).collect();
    let messages = events.into_iter().filter_map(message).collect();
    Ok(json(StatusCode::OK, &MessageList { messages, next, damage }))
}

/// Digits alone.
fn seq(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// `None` for an event that holds no message.
fn message(event: Event) -> Option<Message> {
    let mut message = Message {
        id: String::new(),
        seq: event.seq,
        turn_id: event.turn_id.map(|turn| turn.to_string()),
        role: Role::User,
        parts: Vec::new(),
        created_at: event.ts.to_string(),
        model: None,
        tool_calls: Vec::new(),
        name: None,
        ok: None,
    };
    match event.body {
        Body::MessageAdded(added) => {
            message.id = added.message_id.to_string();
            message.role = view::role(added.role);
            message.parts = added.parts.into_iter().map(part).collect();
        }
        Body::ModelOutputCompleted(output) => {
            message.id = output.message_id.to_string();
            message.role = Role::Assistant;
            message.parts = Some(output.text).filter(|text| !text.is_empty()).map(Part::text).into_iter().collect();
            message.model = Some(output.model);
            let calls = output.tool_calls.into_iter();
            message.tool_calls =
                calls.map(|call| ToolCall { id: call.id.to_string(), name: call.name, input: call.input }).collect();
        }
        Body::ToolCallCompleted(done) => {
            message.id = done.tool_call_id.to_string();
            message.role = Role::Tool;
            message.parts = done.result.parts.into_iter().map(part).collect();
            message.name = Some(done.name);
            message.ok = Some(done.result.ok);
        }
        _ => return None,
    }
    Some(message)
}

fn part(part: message::Part) -> Part {
    match part {
        message::Part::Text { text } => Part::Text { text },
        message::Part::Image { r#ref, mime_type } => Part::Image { r#ref, mime_type },
        message::Part::Audio { r#ref, mime_type } => Part::Audio { r#ref, mime_type },
        message::Part::File { r#ref, mime_type } => Part::File { r#ref, mime_type },
    }
}

//! Builds requests as the engine would, and plays them to their end.

use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt;
use tenure_core::{
    context::{ChatMessage, ModelRequest, Purpose, RequestMeta},
    message::Part,
    model::Fault,
};
use tenure_models::{
    Model, ModelEvent,
    scripted::{ScriptedModel, parse},
};

pub fn model(script: &str) -> ScriptedModel {
    ScriptedModel::new("test", parse(script).unwrap())
}

/// A script of one step with these actions.
pub fn one_step(actions: &str) -> ScriptedModel {
    model(&format!(r#"{{"steps": [{{"do": {actions}}}]}}"#))
}

pub fn request(messages: Vec<ChatMessage>) -> ModelRequest {
    ModelRequest {
        model: "scripted".into(),
        system: vec![],
        messages: messages.into_iter().map(Arc::new).collect(),
        tools: Arc::from([]),
        files: BTreeMap::new(),
        output_schema: None,
        meta: RequestMeta {
            session_id: "sess_00000000000000000000000001".parse().unwrap(),
            turn_id: "turn_00000000000000000000000002".parse().unwrap(),
            step: 1,
            attempt: 1,
            purpose: Purpose::Step,
        },
    }
}

pub fn user(text: &str) -> ChatMessage {
    ChatMessage::User { parts: vec![Part::text(text)] }
}

pub fn assistant(text: &str) -> ChatMessage {
    ChatMessage::Assistant { text: text.into(), thinking: vec![], calls: vec![], order: vec![] }
}

pub fn tool_result(text: &str) -> ChatMessage {
    ChatMessage::Tool {
        call: "call_00000000000000000000000003".parse().unwrap(),
        provider_id: None,
        name: "shell".into(),
        ok: true,
        parts: vec![Part::text(text)],
    }
}

/// Everything the stream gives until it ends.
pub async fn play(model: &ScriptedModel, request: ModelRequest) -> Vec<Result<ModelEvent, Fault>> {
    model.stream(request).await.unwrap().collect().await
}

/// The joined text of a reply.
pub async fn said(model: &dyn Model, request: ModelRequest) -> String {
    let mut stream = model.stream(request).await.unwrap();
    let mut text = String::new();
    while let Some(event) = stream.next().await {
        if let ModelEvent::Text(fragment) = event.unwrap() {
            text.push_str(&fragment);
        }
    }
    text
}

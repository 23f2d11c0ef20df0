//! What the model is shown: a pure fold of recorded events. Nothing unrecorded ever enters it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    event::{Body, CallOrigin, ContextSeeded, Event},
    ids::{CallId, MessageId, SessionId, TurnId},
    message::{Part, Role, joined_text},
    model::Thinking,
    redact::marks_in,
    session::Session,
    tool::{Outcome, ToolCall, ToolSpec},
};

/// One entry of a model request.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    System { parts: Vec<Part> },
    User { parts: Vec<Part> },
    Assistant { text: String, thinking: Vec<Thinking>, calls: Vec<ToolCall> },
    Tool { call: CallId, provider_id: Option<String>, name: String, ok: bool, parts: Vec<Part> },
}

/// Everything a model call is made of.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    pub model: String,
    /// The stable part, in order: the session's prompt, then what the workspace says.
    pub system: Vec<Arc<str>>,
    pub messages: Vec<Arc<ChatMessage>>,
    pub tools: Arc<[ToolSpec]>,
    /// The bytes of the attachments that the messages name, by their reference.
    pub files: BTreeMap<String, Arc<[u8]>>,
    /// What the reply's text has to fit, as a JSON Schema.
    pub output_schema: Option<Arc<Value>>,
    pub meta: RequestMeta,
}

/// Which call this is; for records and for scripted models, never for the vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestMeta {
    pub session_id: SessionId,
    pub turn_id: TurnId,
    pub step: u32,
    pub attempt: u32,
}

/// The conversation so far, extended event by event.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    messages: Vec<Arc<ChatMessage>>,
    /// Bodies by id: a message enters the conversation when a turn takes it in, and again when that turn is retried.
    bodies: HashMap<MessageId, Arc<ChatMessage>>,
    provider_ids: HashMap<CallId, String>,
    /// Secrets whose marks the model was rightly shown: by a person, or in a result that held their value.
    shown_secrets: BTreeSet<String>,
    seeded: Option<Arc<str>>,
}

impl Transcript {
    pub fn push(&mut self, event: &Event) {
        if let Body::ToolCallCompleted(done) = &event.body {
            self.shown_secrets.extend(done.result.redacted.iter().cloned());
        }
        match &event.body {
            Body::MessageAdded(added) => {
                self.shown_secrets.extend(marks_in(&joined_text(&added.parts)).map(str::to_owned));
                let parts = added.parts.clone();
                let message = match added.role {
                    Role::System => ChatMessage::System { parts },
                    Role::User | Role::Assistant | Role::Tool => ChatMessage::User { parts },
                };
                self.bodies.insert(added.message_id, Arc::new(message));
            }
            Body::TurnStarted(started) => {
                for message in &started.messages {
                    self.deliver(message.id);
                }
            }
            Body::MessageDelivered(delivered) => self.deliver(delivered.message_id),
            Body::ContextSeeded(seeded) => self.seeded = seed_text(seeded),
            Body::ModelOutputCompleted(output) => {
                for call in &output.tool_calls {
                    if let Some(provider_id) = &call.provider_id {
                        self.provider_ids.insert(call.id, provider_id.clone());
                    }
                }
                self.messages.push(Arc::new(ChatMessage::Assistant {
                    text: output.text.clone(),
                    thinking: output.thinking.clone(),
                    calls: output.tool_calls.clone(),
                }));
            }
            Body::ToolCallCompleted(done) if done.origin == CallOrigin::Model => {
                self.messages.push(Arc::new(ChatMessage::Tool {
                    call: done.tool_call_id,
                    provider_id: self.provider_ids.remove(&done.tool_call_id),
                    name: done.name.clone(),
                    ok: done.result.ok,
                    parts: done.result.parts.clone(),
                }));
            }
            // Verification was asked for by policy, so no call of the model's waits for it: it comes as a note.
            Body::ToolCallCompleted(done) => {
                let verdict = match (done.outcome, done.result.ok) {
                    (Outcome::Finished, true) => "passed",
                    (Outcome::Finished, false) => "failed",
                    (Outcome::Unknown | Outcome::Canceled, _) => "was cut",
                    (Outcome::NotRun, _) => "was not run",
                };
                let mut parts = vec![Part::text(format!("Verification after your changes {verdict}.\n"))];
                parts.extend(done.result.parts.iter().cloned());
                self.messages.push(Arc::new(ChatMessage::User { parts }));
            }
            Body::SessionCreated(_)
            | Body::SessionUpdated(_)
            | Body::SessionForked(_)
            | Body::AttachmentAdded(_)
            | Body::SessionCompleted(_)
            | Body::SessionFailed(_)
            | Body::SessionCanceled(_)
            | Body::SessionExpired(_)
            | Body::TurnQueued(_)
            | Body::TurnCompleted(_)
            | Body::TurnFailed(_)
            | Body::TurnCanceled(_)
            | Body::TurnExpired(_)
            | Body::TurnInterrupted(_)
            | Body::TurnResumed(_)
            | Body::CancelRequested(_)
            | Body::ModelAttemptFailed(_)
            | Body::ToolCallStarted(_)
            | Body::ApprovalRequested(_)
            | Body::ApprovalGranted(_)
            | Body::ApprovalDenied(_)
            | Body::ApprovalExpired(_)
            | Body::BudgetReached(_)
            | Body::BudgetRaised(_)
            | Body::ChildStarted(_)
            | Body::ChildWaiting(_)
            | Body::ChildSettled(_)
            | Body::EventLost(_) => {}
        }
    }

    fn deliver(&mut self, id: MessageId) {
        if let Some(message) = self.bodies.get(&id) {
            self.messages.push(message.clone());
        }
    }

    /// The request of the step that the session's open turn waits for.
    pub fn request(&self, session: &Session, tools: Arc<[ToolSpec]>) -> Option<ModelRequest> {
        let turn = session.turn.as_ref().filter(|turn| turn.awaits_model())?;
        let mut system: Vec<Arc<str>> = Vec::new();
        system.extend(session.settings.system_prompt.as_deref().map(Arc::from));
        system.extend(self.seeded.clone());
        Some(ModelRequest {
            model: turn.model.clone(),
            system,
            messages: self.messages.clone(),
            tools,
            files: BTreeMap::new(),
            output_schema: None,
            meta: RequestMeta {
                session_id: session.id,
                turn_id: turn.id,
                step: turn.next_step(),
                attempt: turn.next_attempt(),
            },
        })
    }

    /// Secrets that the model may name, so that a tool gets their values.
    pub fn shown_secrets(&self) -> &BTreeSet<String> {
        &self.shown_secrets
    }

    pub fn messages(&self) -> &[Arc<ChatMessage>] {
        &self.messages
    }
}

fn seed_text(seeded: &ContextSeeded) -> Option<Arc<str>> {
    if seeded.files.is_empty() {
        return None;
    }
    let mut text = String::from("The workspace says of itself:\n");
    for file in &seeded.files {
        text.push_str(&format!("\n--- {} ---\n{}\n", file.path, file.text));
    }
    Some(text.into())
}

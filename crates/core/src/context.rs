//! What the model is shown: a pure fold of recorded events. Nothing unrecorded ever enters it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    event::{Body, Bundle, CallOrigin, ContextCompacted, ContextSeeded, Event, RestoreOutcome, WorkspaceRestored},
    ids::{CallId, MessageId, SessionId, TurnId},
    message::{MessageRef, Part, Role, joined_text},
    model::{Block, FaultKind, Thinking},
    redact::marks_in,
    session::Session,
    tool::{Outcome, ToolCall, ToolSpec},
};

/// One entry of a model request.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    System { parts: Vec<Part> },
    User { parts: Vec<Part> },
    Assistant { text: String, thinking: Vec<Thinking>, calls: Vec<ToolCall>, order: Vec<Block> },
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
    pub purpose: Purpose,
}

/// What a reply is wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The next step of the turn.
    Step,
    /// A summary of what the context is to lose.
    Summary,
    /// Whether a change is good.
    Review,
}

/// The conversation so far, extended event by event.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    entries: Vec<Entry>,
    /// Bodies by id: a message enters the conversation when a turn takes it in, and again when that turn is retried.
    bodies: HashMap<MessageId, Entry>,
    /// Messages that a turn took in and whose bodies are not here, by their place and the event that holds them.
    missing: Vec<(usize, MessageRef)>,
    provider_ids: HashMap<CallId, String>,
    seeded: Option<Arc<str>>,
    counted: Option<Counted>,
    /// Where the last turn began; nothing, where that was before what the context still holds.
    turn_from: u64,
    /// Turns whose request the vendor refused, by their first and last event.
    refused: Vec<(u64, u64)>,
}

/// What a vendor counted of the newest request whose messages still stand as they were sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    pub model: String,
    /// How many messages it had: the first ones.
    pub messages: usize,
    pub tokens: u64,
}

/// One message of the conversation, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub message: Arc<ChatMessage>,
    pub voice: Voice,
    /// The event by which it entered.
    pub seq: u64,
    /// The event that holds its body.
    pub body_seq: u64,
    /// Secrets whose marks it rightly shows: those of a person's words, or of a result that held their value.
    secrets: Vec<String>,
}

/// Who speaks in an entry. To a model a summary and a note are as much a user's words as a person's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Voice {
    Person,
    Agent,
    /// The daemon, or a system message.
    Note,
    /// A summary of what was there before, with the last request among it.
    Summary {
        request: Option<Arc<str>>,
    },
}

impl Transcript {
    pub fn push(&mut self, event: &Event) {
        match &event.body {
            Body::MessageAdded(added) => {
                let secrets = marks_in(&joined_text(&added.parts)).map(str::to_owned).collect();
                let parts = added.parts.clone();
                let (message, voice) = match added.role {
                    Role::System => (ChatMessage::System { parts }, Voice::Note),
                    Role::User | Role::Assistant | Role::Tool => (ChatMessage::User { parts }, Voice::Person),
                };
                let message = Arc::new(message);
                let entry = Entry { message, voice, seq: event.seq, body_seq: event.seq, secrets };
                self.bodies.insert(added.message_id, entry);
            }
            Body::TurnStarted(started) => {
                self.turn_from = event.seq;
                for message in &started.messages {
                    self.deliver(*message, event.seq);
                }
            }
            Body::TurnFailed(failed) if failed.code == FaultKind::BadRequest.code() => {
                self.refused.push((self.turn_from, event.seq));
                let from = self.turn_from;
                let changed = self.entries.iter_mut().filter(|entry| entry.seq >= from).filter_map(Entry::leave_out);
                if changed.count() > 0 {
                    self.counted = None;
                }
            }
            // A message that waits to steer is never left behind by a compaction.
            Body::MessageDelivered(delivered) => {
                self.deliver(MessageRef { id: delivered.message_id, seq: event.seq }, event.seq);
            }
            Body::ContextCompacted(compacted) => self.compact(compacted, event.seq),
            Body::ContextSeeded(seeded) => {
                self.seeded = seed_text(seeded);
                self.take_bundle(seeded, event.seq);
            }
            Body::ModelOutputCompleted(output) => {
                for call in &output.tool_calls {
                    if let Some(provider_id) = &call.provider_id {
                        self.provider_ids.insert(call.id, provider_id.clone());
                    }
                }
                let tokens = output.usage.sent();
                self.counted = Some(Counted { model: output.model.clone(), messages: self.entries.len(), tokens });
                let (text, thinking, order) = (output.text.clone(), output.thinking.clone(), output.order.clone());
                let message = ChatMessage::Assistant { text, thinking, calls: output.tool_calls.clone(), order };
                self.add(message, Voice::Agent, event.seq, vec![]);
            }
            Body::ToolCallCompleted(done) if done.origin == CallOrigin::Model => {
                let message = ChatMessage::Tool {
                    call: done.tool_call_id,
                    provider_id: self.provider_ids.remove(&done.tool_call_id),
                    name: done.name.clone(),
                    ok: done.result.ok,
                    parts: done.result.parts.clone(),
                };
                self.add(message, Voice::Agent, event.seq, done.result.redacted.clone());
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
                self.add(ChatMessage::User { parts }, Voice::Note, event.seq, done.result.redacted.clone());
            }
            // The model would otherwise go on as if its changes were there.
            Body::WorkspaceRestored(restored) => {
                if let Some(text) = restored_text(restored) {
                    self.add(ChatMessage::User { parts: vec![Part::text(text)] }, Voice::Note, event.seq, vec![]);
                }
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
            // What was offered stands in the request beside the conversation.
            | Body::ToolsOffered(_)
            | Body::CompactionStarted(_)
            | Body::CompactionFailed(_)
            | Body::ModelAttemptFailed(_)
            | Body::ToolCallStarted(_)
            | Body::ApprovalRequested(_)
            | Body::ApprovalGranted(_)
            | Body::ApprovalDenied(_)
            | Body::ApprovalExpired(_)
            | Body::ReviewStarted(_)
            | Body::ReviewCompleted(_)
            | Body::ReviewFailed(_)
            | Body::BudgetReached(_)
            | Body::BudgetRaised(_)
            | Body::ChildStarted(_)
            | Body::ChildWaiting(_)
            | Body::ChildSettled(_)
            | Body::CheckpointCreated(_)
            | Body::UndoRequested(_)
            | Body::RestoreStarted(_)
            | Body::EventLost(_) => {}
        }
    }

    fn add(&mut self, message: ChatMessage, voice: Voice, seq: u64, secrets: Vec<String>) {
        self.entries.push(Entry { message: Arc::new(message), voice, seq, body_seq: seq, secrets });
    }

    fn deliver(&mut self, message: MessageRef, seq: u64) {
        match self.bodies.get(&message.id) {
            Some(entry) => self.entries.push(Entry { seq, ..entry.clone() }),
            // It was added before what the context still holds: a turn of long ago is tried again.
            None => {
                self.missing.push((self.entries.len(), message));
                self.add(ChatMessage::User { parts: vec![] }, Voice::Person, seq, vec![]);
            }
        }
    }

    /// A seed from before what the context still holds: what it gathered for its turn is gone with that turn's messages.
    pub fn push_old_seed(&mut self, event: &Event) {
        if let Body::ContextSeeded(seeded) = &event.body {
            self.seeded = seed_text(seeded);
        }
    }

    /// What was gathered for a turn stands before its messages and counts as one of them: what was sent before stays as
    /// it was, and the last word is the person's.
    fn take_bundle(&mut self, seeded: &ContextSeeded, body_seq: u64) {
        let Some(bundle) = &seeded.bundle else { return };
        let last = self.entries.last().filter(|last| last.voice == Voice::Person).map(|last| last.seq);
        let of_turn = |entry: &Entry| Some(entry.seq) == last;
        let at = self.entries.iter().rposition(|entry| !of_turn(entry)).map_or(0, |before| before + 1);
        let message = Arc::new(ChatMessage::User { parts: vec![Part::text(bundle_text(bundle))] });
        let seq = last.unwrap_or(body_seq);
        let entry = Entry { message, voice: Voice::Note, seq, body_seq, secrets: vec![] };
        self.entries.insert(at, entry);
        self.missing.iter_mut().filter(|(index, _)| *index >= at).for_each(|(index, _)| *index += 1);
    }

    /// Where the bodies stand that are not here; each is to be handed to `supply`.
    pub fn missing(&self) -> impl Iterator<Item = u64> + '_ {
        self.missing.iter().map(|(_, message)| message.seq)
    }

    /// Takes in the event that holds a missing body.
    pub fn supply(&mut self, event: &Event) {
        self.push(event);
        let Body::MessageAdded(added) = &event.body else { return };
        let Some(body) = self.bodies.get(&added.message_id).cloned() else { return };
        for (index, _) in self.missing.iter().filter(|(_, message)| message.id == added.message_id) {
            if let Some(entry) = self.entries.get_mut(*index) {
                *entry = Entry { seq: entry.seq, ..body.clone() };
                if self.refused.iter().any(|(from, to)| (*from..=*to).contains(&entry.seq)) {
                    entry.leave_out();
                }
            }
        }
        self.missing.retain(|(_, message)| message.id != added.message_id);
    }

    /// The older part gives way to its summary. What is no longer shown cannot be named any more.
    fn compact(&mut self, compacted: &ContextCompacted, body_seq: u64) {
        // An older summary always gives way.
        let is_kept = |entry: &Entry| entry.seq >= compacted.kept_from && !matches!(entry.voice, Voice::Summary { .. });
        let kept = self.entries.iter().position(is_kept).unwrap_or(self.entries.len());
        let message = Arc::new(ChatMessage::User { parts: vec![Part::text(summary_text(compacted))] });
        let voice = Voice::Summary { request: compacted.request.as_deref().map(Arc::from) };
        // It stands before all that it does not tell of, and gives way with it the next time.
        let seq = compacted.kept_from.saturating_sub(1);
        let summary = Entry { message, voice, seq, body_seq, secrets: compacted.secrets.clone() };
        self.entries.splice(..kept, [summary]);
        self.counted = None;
        self.bodies.retain(|_, body| body.body_seq >= compacted.context_from);
        self.missing.retain(|(index, _)| *index >= kept);
        self.refused.retain(|(_, to)| *to >= compacted.kept_from);
        self.missing.iter_mut().for_each(|(index, _)| *index = *index - kept + 1);
    }

    /// The request of the step that the session's open turn waits for.
    pub fn request(&self, session: &Session, tools: Arc<[ToolSpec]>) -> Option<ModelRequest> {
        let turn = session.turn.as_ref().filter(|turn| turn.awaits_model())?;
        Some(ModelRequest {
            model: turn.model.clone(),
            system: self.system(session),
            messages: self.entries.iter().map(|entry| entry.message.clone()).collect(),
            tools,
            files: BTreeMap::new(),
            output_schema: session.settings.output_schema.clone().map(Arc::new),
            meta: RequestMeta {
                session_id: session.id,
                turn_id: turn.id,
                step: turn.next_step(),
                attempt: turn.next_attempt(),
                purpose: Purpose::Step,
            },
        })
    }

    /// What a vendor's last count is to be compared with.
    pub fn counted(&self) -> Option<&Counted> {
        self.counted.as_ref()
    }

    /// What stands before the conversation.
    pub fn system(&self, session: &Session) -> Vec<Arc<str>> {
        let prompt = session.settings.system_prompt.as_deref().map(Arc::from);
        prompt.into_iter().chain(self.seeded.clone()).collect()
    }

    /// What people said last, in their words: what a new turn is about.
    pub fn task(&self) -> String {
        let of_person = |entry: &&Entry| entry.voice == Voice::Person;
        let said = self.entries.iter().rev().take_while(of_person).filter_map(|entry| match &*entry.message {
            ChatMessage::User { parts } => Some(joined_text(parts)),
            ChatMessage::System { .. } | ChatMessage::Assistant { .. } | ChatMessage::Tool { .. } => None,
        });
        let mut said: Vec<String> = said.collect();
        said.reverse();
        said.join("\n")
    }

    /// Secrets that the model may name, so that a tool gets their values.
    pub fn shown_secrets(&self) -> BTreeSet<String> {
        self.entries.iter().flat_map(|entry| entry.secrets.iter().cloned()).collect()
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn messages(&self) -> impl Iterator<Item = &ChatMessage> {
        self.entries.iter().map(|entry| &*entry.message)
    }
}

impl Entry {
    /// What was attached is only named from now on: a vendor that refused it once would refuse every request with it, and
    /// the session could never go on. Who tries the turn again sends it again.
    fn leave_out(&mut self) -> Option<()> {
        let (ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. }) =
            &*self.message
        else {
            return None;
        };
        parts.iter().find_map(Part::attachment)?;
        let why = "left out, since a request with it was refused";
        match Arc::make_mut(&mut self.message) {
            ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. } => {
                parts.iter_mut().for_each(|part| part.name_only(why));
            }
            ChatMessage::Assistant { .. } => {}
        }
        Some(())
    }
}

/// How the model is told of what it can no longer see.
fn summary_text(compacted: &ContextCompacted) -> String {
    let mut text = String::from("The earlier part of this conversation was summarized.\n\n");
    if let Some(request) = &compacted.request {
        text.push_str(&format!("The user's last request in it, word by word:\n{request}\n\nThe summary:\n"));
    }
    text + &compacted.summary
}

/// How many files the model is told of by name.
const RESTORED_SHOWN_MAX: usize = 50;

/// How the model is told that its changes are gone. Where nothing was changed there is nothing to tell.
fn restored_text(restored: &WorkspaceRestored) -> Option<String> {
    let (mut text, paths): (String, Vec<&str>) = match restored.outcome {
        RestoreOutcome::Refused => return None,
        RestoreOutcome::Restored => (
            "The user took back the changes of an earlier turn. These files are again as they were before it:\n".into(),
            restored.restored.iter().map(String::as_str).collect(),
        ),
        RestoreOutcome::Unknown => (
            "The user wanted the changes of an earlier turn taken back, and that was cut. Look at these files before \
             you rely on them:\n"
                .into(),
            restored.refused.iter().map(|file| file.path.as_str()).collect(),
        ),
    };
    for path in paths.iter().take(RESTORED_SHOWN_MAX) {
        text.push_str(&format!("- {path}\n"));
    }
    match paths.len().saturating_sub(RESTORED_SHOWN_MAX) {
        0 => {}
        more => text.push_str(&format!("and {more} more.\n")),
    }
    text.push_str("Do not make the same changes again unless you are asked to.");
    Some(text)
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

/// How the model is told what was gathered for its task.
fn bundle_text(bundle: &Bundle) -> String {
    let mut text = String::from("The workspace in brief, as it was when this turn began. It may have changed since.\n");
    if let Some(git) = &bundle.git {
        text.push_str(&format!("\n--- git ---\n{}\n", git.trim_end()));
    }
    if let Some(map) = &bundle.map {
        text.push_str(&format!("\n--- the most important symbols, by file and line ---\n{}\n", map.trim_end()));
    }
    for chunk in &bundle.chunks {
        let (first, last) = (chunk.first_line, chunk.last_line);
        text.push_str(&format!("\n--- {}, lines {first} to {last} ---\n{}\n", chunk.path, chunk.text.trim_end()));
    }
    for left_out in &bundle.left_out {
        text.push_str(&format!("\n[{left_out}]\n"));
    }
    text
}

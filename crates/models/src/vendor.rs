//! Models behind HTTP: a request in the vendor's own format, and its stream read back.

mod action;
mod anthropic;
mod chat;
mod conversation;
mod fault;
mod gemini;
mod media;
mod responses;
mod schema;
mod stream;
mod transport;
pub(crate) mod window;

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use tenure_core::{
    context::{ChatMessage, ModelRequest},
    message::Part,
    model::{Fault, FaultKind, MicroUsd, Usage},
};

use crate::{
    Model, ModelEvent, Patience,
    entry::{Entry, PartKind, Prices, ToolMode},
    tokens,
};

pub(crate) use transport::is_http_proxy;
pub use transport::{Endpoint, Transport, shown_url};

/// A vendor's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and what imitates it.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Google Gemini.
    Gemini,
}

/// Images that Anthropic and OpenAI know.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

impl Wire {
    /// Whether the format has a place for such parts, whatever the model can take.
    pub(crate) fn carries(self, kind: PartKind) -> bool {
        match (self, kind) {
            (Wire::Anthropic | Wire::Responses, PartKind::Audio) => false,
            (_, PartKind::Image | PartKind::Audio | PartKind::File) => true,
        }
    }

    /// Whether images of this type can be sent at all. Servers that imitate others know for themselves what they read.
    fn shows(self, mime_type: &str) -> bool {
        match self {
            Wire::Anthropic | Wire::Responses => IMAGE_TYPES.contains(&mime_type),
            Wire::Chat | Wire::Gemini => true,
        }
    }
}

/// One model at one endpoint.
#[derive(Debug)]
pub struct VendorModel {
    pub(crate) entry: Entry,
    pub(crate) wire: Wire,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) transport: Transport,
    learned: Arc<Learned>,
}

/// What a server told of a model while it was being used.
#[derive(Debug, Default)]
struct Learned {
    asked: AtomicBool,
    /// Its window; nothing, while that is not known.
    window: AtomicU64,
}

impl VendorModel {
    pub fn new(entry: Entry, wire: Wire, endpoint: Arc<Endpoint>, transport: Transport) -> Self {
        Self { entry, wire, endpoint, transport, learned: Arc::default() }
    }

    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The bytes of a request, as the vendor gets them.
    pub fn body(&self, request: &ModelRequest) -> Result<Vec<u8>, Fault> {
        let messages = self.fitting(&request.messages);
        let turns = &conversation::turns(messages.iter().map(|message| &**message));
        match self.wire {
            Wire::Anthropic => anthropic::body(&self.entry, request, turns),
            Wire::Chat => chat::body(&self.entry, request, turns),
            Wire::Responses => responses::body(&self.entry, request, turns),
            Wire::Gemini => gemini::body(&self.entry, request, turns),
        }
    }

    /// What an earlier model of the session was given and this one cannot take is only named.
    fn fitting<'r>(&self, messages: &'r [Arc<ChatMessage>]) -> Cow<'r, [Arc<ChatMessage>]> {
        let fits = |message: &Arc<ChatMessage>| parts_of(message).iter().all(|part| self.takes(part));
        if messages.iter().all(fits) {
            return Cow::Borrowed(messages);
        }
        let named = |part: &mut Part| {
            if !self.takes(part) {
                part.name_only("left out, since you cannot take it");
            }
        };
        let mut messages = messages.to_vec();
        for message in messages.iter_mut().filter(|message| !fits(message)) {
            match Arc::make_mut(message) {
                ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. } => {
                    parts.iter_mut().for_each(named);
                }
                ChatMessage::Assistant { .. } => {}
            }
        }
        Cow::Owned(messages)
    }

    fn takes_kind(&self, part_kind: &str) -> bool {
        self.entry.takes.iter().any(|kind| kind.name() == part_kind && self.wire.carries(*kind))
    }

    fn path(&self) -> String {
        match self.wire {
            Wire::Anthropic => "v1/messages".to_owned(),
            Wire::Chat => "chat/completions".to_owned(),
            Wire::Responses => "responses".to_owned(),
            Wire::Gemini => format!("models/{}:streamGenerateContent?alt=sse", self.entry.id),
        }
    }

    /// The fragments of a reply, from its bytes as they come.
    pub fn read(
        &self,
        chunks: BoxStream<'static, Result<Bytes, Fault>>,
        with_tools: bool,
    ) -> BoxStream<'static, Result<ModelEvent, Fault>> {
        match self.wire {
            Wire::Anthropic => stream::fragments(chunks, anthropic::Decoder::default()),
            Wire::Chat if with_tools && self.entry.tool_mode == ToolMode::Schema => {
                stream::fragments(chunks, chat::Decoder::by_schema(&self.entry.name))
            }
            Wire::Chat => stream::fragments(chunks, chat::Decoder::default()),
            Wire::Responses => stream::fragments(chunks, responses::Decoder::default()),
            Wire::Gemini => stream::fragments(chunks, gemini::Decoder::default()),
        }
    }

    /// Asks a server on this machine for the model's window, once and beside the turn: now the model is loaded.
    fn learn(&self) {
        let may = self.entry.window.is_none() && self.endpoint.is_local();
        if !may || self.learned.asked.swap(true, Ordering::Relaxed) {
            return;
        }
        let (transport, endpoint, wire) = (self.transport.clone(), self.endpoint.clone(), self.wire);
        let (id, learned) = (self.entry.id.clone(), self.learned.clone());
        tokio::spawn(async move {
            let told = window::of(&transport, &endpoint, wire, &id).await;
            learned.window.store(told.unwrap_or(0), Ordering::Relaxed);
        });
    }

    /// What the vendor said is followed by what can be done about it.
    fn explained(&self, mut fault: Fault) -> Fault {
        let hint = match fault.kind {
            FaultKind::Auth => Some(self.endpoint.key_hint()),
            FaultKind::NoServer => Some(self.endpoint.address_hint()),
            FaultKind::UnknownModel => {
                Some(format!("{} offers no model {}; see `tenure models`", self.endpoint.provider, self.entry.id))
            }
            _ => None,
        };
        if let Some(hint) = hint {
            fault.message.extend(["; ", &hint]);
        }
        fault.message = format!("{}: {}", self.endpoint.provider, fault.message);
        fault
    }
}

#[async_trait]
impl Model for VendorModel {
    async fn stream(&self, request: ModelRequest) -> Result<BoxStream<'static, Result<ModelEvent, Fault>>, Fault> {
        let body = self.body(&request)?;
        let chunks = self.transport.post(&self.endpoint, self.wire, &self.path(), body).await;
        let chunks = chunks.map_err(|fault| self.explained(fault))?;
        self.learn();
        Ok(self.read(chunks, !request.tools.is_empty()))
    }

    fn cost(&self, usage: &Usage) -> Option<MicroUsd> {
        // A vendor that told no count has not said that it was for nothing.
        let is_told = *usage != Usage::default();
        self.entry.prices.filter(|prices| is_told || *prices == Prices::FREE).map(|prices| prices.cost(usage))
    }

    fn window(&self) -> Option<u64> {
        match self.entry.is_openai {
            // The reply's share of the window is kept free: what is sent may not reach into it.
            true => self.entry.window.map(|window| window.saturating_sub(self.entry.output_max.unwrap_or(0))),
            false => self.entry.window.or_else(|| {
                let learned = self.learned.window.load(Ordering::Relaxed);
                (learned > 0).then_some(learned)
            }),
        }
    }

    fn count(&self, request: &ModelRequest) -> u64 {
        match self.entry.is_openai {
            true => tokens::OPENAI.of_request(request),
            false => tokens::of_request(request),
        }
    }

    fn count_message(&self, message: &Arc<ChatMessage>) -> u64 {
        match self.entry.is_openai {
            true => tokens::OPENAI.of_message(message),
            false => tokens::of_message(message),
        }
    }

    fn recount(&self, request: &ModelRequest, guessed: u64) -> Option<u64> {
        match self.entry.is_openai {
            true => tokens::OPENAI.counted(request),
            false => Some(guessed),
        }
    }

    fn patience(&self) -> Patience {
        self.entry.patience
    }

    fn takes(&self, part: &Part) -> bool {
        match part {
            Part::Text { .. } => true,
            // It goes as text.
            Part::File { mime_type, .. } if media::is_text(mime_type) => true,
            Part::File { mime_type, .. } => media::is_pdf(mime_type) && self.takes_kind(part.kind()),
            Part::Image { mime_type, .. } => self.wire.shows(mime_type) && self.takes_kind(part.kind()),
            Part::Audio { .. } => self.takes_kind(part.kind()),
        }
    }
}

fn parts_of(message: &ChatMessage) -> &[Part] {
    match message {
        ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. } => parts,
        ChatMessage::Assistant { .. } => &[],
    }
}

/// Nothing in a request can fail to become JSON.
fn encode(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("a request is made of strings, numbers and JSON")
}

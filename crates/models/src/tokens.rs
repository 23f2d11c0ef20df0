//! How many tokens a request has. A guess by its bytes, which the vendor's own numbers correct as turns go by.

use tenure_core::{
    context::{ChatMessage, ModelRequest},
    message::Part,
};

const BYTES_PER_TOKEN: u64 = 4;
/// What an attachment takes, whatever it shows: vendors count pictures and pages by rules of their own.
const ATTACHMENT_TOKENS: u64 = 1_500;

/// Tokens of so many bytes of text.
pub fn of_bytes(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// Tokens of a request, its attachments too.
pub fn of_request(request: &ModelRequest) -> u64 {
    let attachments: u64 = request.messages.iter().map(|message| attachments(message)).sum();
    of_bytes(text_bytes(request)) + attachments * ATTACHMENT_TOKENS
}

pub fn of_message(message: &ChatMessage) -> u64 {
    of_bytes(message_bytes(message)) + attachments(message) * ATTACHMENT_TOKENS
}

/// Bytes of all that a request says in text.
pub(crate) fn text_bytes(request: &ModelRequest) -> usize {
    let system: usize = request.system.iter().map(|text| text.len()).sum();
    let messages: usize = request.messages.iter().map(|message| message_bytes(message)).sum();
    let tools = request.tools.iter();
    let tools: usize =
        tools.map(|tool| tool.name.len() + tool.description.len() + tool.input_schema.to_string().len()).sum();
    system + messages + tools
}

fn message_bytes(message: &ChatMessage) -> usize {
    match message {
        ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. } => {
            parts.iter().map(part_bytes).sum()
        }
        ChatMessage::Assistant { text, thinking, calls } => {
            let thinking: usize = thinking.iter().map(|block| block.text.len()).sum();
            let calls: usize = calls.iter().map(|call| call.name.len() + call.input.to_string().len()).sum();
            text.len() + thinking + calls
        }
    }
}

fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text } => text.len(),
        Part::Image { .. } | Part::Audio { .. } | Part::File { .. } => 0,
    }
}

fn attachments(message: &ChatMessage) -> u64 {
    match message {
        ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. } => {
            parts.iter().filter(|part| part.attachment().is_some()).count() as u64
        }
        ChatMessage::Assistant { .. } => 0,
    }
}

/// Corrects guesses by what a vendor counted.
#[derive(Debug, Clone, Copy)]
pub struct Gauge {
    /// Counted tokens for each guessed one.
    ratio: f64,
}

impl Default for Gauge {
    fn default() -> Self {
        Self { ratio: 1.0 }
    }
}

impl Gauge {
    /// A guess, corrected.
    pub fn read(&self, guessed: u64) -> u64 {
        (guessed as f64 * self.ratio).ceil() as u64
    }

    /// The vendor counted this many tokens where that many were guessed. A wild number is not believed.
    pub fn set(&mut self, guessed: u64, counted: u64) {
        let ratio = counted as f64 / guessed as f64;
        if guessed > 0 && (0.1..=10.0).contains(&ratio) {
            self.ratio = ratio;
        }
    }
}

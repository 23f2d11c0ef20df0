//! How many tokens a request has. Where a vendor's vocabulary is public, it is counted; elsewhere it is a guess by its bytes. Both are corrected by the vendor's own numbers as turns go by.

mod counter;
mod vocabulary;

use std::sync::LazyLock;

use tenure_core::{
    context::{ChatMessage, ModelRequest},
    message::Part,
};

pub use counter::Counter;

/// The one for all of OpenAI's models, so that there is never more than one vocabulary in memory. Nothing is loaded before it is asked.
pub(crate) static OPENAI: LazyLock<Counter> = LazyLock::new(Counter::default);

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
    let mut bytes = 0;
    texts(message, &mut |text| bytes += text.len());
    bytes
}

/// All that a message says in text.
fn texts(message: &ChatMessage, each: &mut dyn FnMut(&str)) {
    match message {
        ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. } => {
            parts.iter().for_each(|part| match part {
                Part::Text { text } => each(text),
                Part::Image { .. } | Part::Audio { .. } | Part::File { .. } => {}
            });
        }
        ChatMessage::Assistant { text, thinking, calls, .. } => {
            each(text);
            thinking.iter().for_each(|block| each(&block.text));
            for call in calls {
                each(&call.name);
                each(&call.input.to_string());
            }
        }
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

/// Corrects guesses by what a vendor counted: the middle one of the last three corrections holds, so that a single odd number changes nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Gauge {
    /// Counted tokens for each guessed one, the newest first.
    ratios: [Option<f64>; 3],
}

/// What is believed of a vendor's numbers.
const RATIO_MIN: f64 = 0.1;
const RATIO_MAX: f64 = 10.0;

impl Gauge {
    /// A guess, corrected.
    pub fn read(&self, guessed: u64) -> u64 {
        (guessed as f64 * self.ratio()).ceil() as u64
    }

    /// The vendor counted this many tokens where that many were guessed. A wild number is not believed.
    pub fn set(&mut self, guessed: u64, counted: u64) {
        let ratio = counted as f64 / guessed as f64;
        if guessed > 0 && (RATIO_MIN..=RATIO_MAX).contains(&ratio) {
            let [first, second, _] = self.ratios;
            self.ratios = [Some(ratio), first, second];
        }
    }

    /// Whether no vendor's number has come yet.
    pub fn is_new(&self) -> bool {
        self.ratios[0].is_none()
    }

    fn ratio(&self) -> f64 {
        match self.ratios {
            [Some(a), Some(b), Some(c)] => a.max(b).min(a.min(b).max(c)),
            [Some(a), Some(b), None] => (a + b) / 2.0,
            [Some(a), ..] => a,
            [None, ..] => 1.0,
        }
    }
}

//! Shortens a context: which messages stay as they are, and what the model says of the others. It never retries.

use std::sync::Arc;

use futures::StreamExt;
use tenure_core::{
    command::Input,
    context::{ChatMessage, Entry, ModelRequest},
    event::{CompactTrigger, ContextCompacted},
    message::{Part, joined_text},
    model::{Fault, FaultKind, MicroUsd, Usage},
    redact::{Secrets, marks_in},
};
use tenure_models::{
    Model, ModelEvent,
    tokens::{self, Gauge},
};

use crate::model_call::within;

/// The share of the window that stays as it is.
const KEPT_SHARE: u64 = 4;
/// What a model without a known window keeps.
const KEPT_TOKENS: u64 = 8_000;
/// The share of the window that the summary is made from.
const READ_SHARE: u64 = 2;
/// What one message or result gives to the summary: its beginning and its end.
const EXCERPT_HEAD: usize = 6_000;
const EXCERPT_TAIL: usize = 2_000;
/// How much of the last request of a person is kept word by word.
const REQUEST_CHARS_MAX: usize = 8_000;
/// A summary is not let grow beyond this.
const SUMMARY_BYTES_MAX: usize = 256 * 1024;

const PROMPT: &str = "You shorten the record of a conversation between a user and an assistant that works with tools. \
    Your summary takes the record's place, so the assistant must be able to go on from it alone. Tell: what the user \
    wants and has said to be done or left alone; what was found out (names of files, commands, errors, numbers, exact \
    where they matter); what was changed and where; what was tried and failed; what is open and what comes next. \
    Leave out greetings and whatever no longer matters. Write plain text, at most 1,500 words. Keep marks like \
    ${secret:NAME} as they are.";

/// What is to be summarized, and what stays.
pub(crate) struct Plan {
    pub(crate) kept_from: u64,
    pub(crate) context_from: u64,
    tokens_kept: u64,
    tokens_before: u64,
    record: String,
    /// The last request that goes, in its own words.
    request: Option<String>,
}

impl Plan {
    /// `None` where nothing can go: all that is there has to stay.
    pub(crate) fn make(entries: &[Entry], window: Option<u64>, gauge: Gauge) -> Option<Plan> {
        let weights: Vec<u64> = entries.iter().map(|entry| gauge.read(tokens::of_message(&entry.message))).collect();
        let first = first_kept(entries, &weights, window.map_or(KEPT_TOKENS, |window| window / KEPT_SHARE));
        let (gone, kept) = entries.split_at(first);
        let kept_from = kept.first()?.seq;
        if gone.is_empty() {
            return None;
        }
        let readable =
            window.map_or(usize::MAX, |window| usize::try_from(window / READ_SHARE * 4).unwrap_or(usize::MAX));
        Some(Plan {
            kept_from,
            context_from: kept.iter().map(|entry| entry.body_seq).min().unwrap_or(kept_from).min(kept_from),
            tokens_kept: weights[first..].iter().sum(),
            tokens_before: weights.iter().sum(),
            record: shortened(&record(gone), readable / 4, readable - readable / 4),
            request: gone.iter().rev().find_map(|entry| request_of(&entry.message)),
        })
    }

    pub(crate) fn messages(&self) -> Vec<Arc<ChatMessage>> {
        let text = format!("The record:\n\n{}\n\nNow write the summary.", self.record);
        vec![Arc::new(ChatMessage::User { parts: vec![Part::text(text)] })]
    }

    pub(crate) fn system() -> Vec<Arc<str>> {
        vec![PROMPT.into()]
    }

    fn text(&self, summary: &str) -> String {
        match &self.request {
            None => summary.to_owned(),
            Some(request) => format!("The user's last request in it, word by word:\n{request}\n\n{summary}"),
        }
    }
}

/// The newest messages up to a bound, and never a result without its call.
fn first_kept(entries: &[Entry], weights: &[u64], tokens_max: u64) -> usize {
    let mut first = entries.len();
    let mut kept = 0_u64;
    while first > 0 && kept + weights[first - 1] <= tokens_max {
        first -= 1;
        kept += weights[first];
    }
    let is_result = |index: usize| matches!(&*entries[index].message, ChatMessage::Tool { .. });
    while first < entries.len() && is_result(first) {
        first += 1;
    }
    // The last word and what belongs to it stay, however long they are.
    let last_word = (0..entries.len()).rev().find(|index| !is_result(*index)).unwrap_or(0);
    let mut first = first.min(last_word);
    // Messages that came in together stay together.
    while first > 0 && first < entries.len() && entries[first - 1].seq == entries[first].seq {
        first -= 1;
    }
    first
}

fn request_of(message: &ChatMessage) -> Option<String> {
    let ChatMessage::User { parts } = message else { return None };
    let text = joined_text(parts);
    let text = text.trim();
    (!text.is_empty()).then(|| text.chars().take(REQUEST_CHARS_MAX).collect())
}

/// The conversation as plain text.
fn record(entries: &[Entry]) -> String {
    let mut record = String::new();
    for entry in entries {
        let (who, text) = match &*entry.message {
            ChatMessage::System { parts } => ("System".to_owned(), joined_text(parts)),
            ChatMessage::User { parts } => ("User".to_owned(), said(parts)),
            ChatMessage::Assistant { text, calls, .. } => {
                let calls = calls.iter().map(|call| format!("\n[calls {} with {}]", call.name, call.input));
                ("Assistant".to_owned(), text.clone() + &calls.collect::<String>())
            }
            ChatMessage::Tool { name, ok, parts, .. } => {
                let how = if *ok { "Result" } else { "Error" };
                (format!("{how} of {name}"), said(parts))
            }
        };
        record.push_str(&format!("{who}: {}\n\n", shortened(&text, EXCERPT_HEAD, EXCERPT_TAIL)));
    }
    record
}

/// Text, with a word for what is no text.
fn said(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match part {
        Part::Text { text } => text.clone(),
        other => format!("[{}: {}]", other.kind(), other.attachment().unwrap_or_default()),
    });
    texts.collect()
}

/// The beginning and the end of what is too long.
fn shortened(text: &str, head: usize, tail: usize) -> String {
    if text.len() <= head.saturating_add(tail) {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(head);
    let tail = text.ceil_char_boundary(text.len() - tail);
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}

/// A compaction as an effect.
pub(crate) struct Compacting {
    pub(crate) attempt: u32,
    pub(crate) trigger: CompactTrigger,
    pub(crate) model: Arc<dyn Model>,
    pub(crate) request: ModelRequest,
    pub(crate) plan: Plan,
    pub(crate) gauge: Gauge,
    pub(crate) secrets: Secrets,
    /// Secrets whose marks the model was shown.
    pub(crate) shown_secrets: std::collections::BTreeSet<String>,
}

impl Compacting {
    pub(crate) async fn run(self) -> Input {
        let mut usage = Usage::default();
        match self.summary(&mut usage).await {
            Ok(summary) => Input::Compacted { attempt: self.attempt, compacted: self.compacted(summary, usage) },
            Err(mut fault) => {
                fault.message = self.secrets.redact(&fault.message).into_owned();
                let cost: Option<MicroUsd> = self.model.cost(&usage);
                Input::CompactFailed { attempt: self.attempt, fault, usage, cost }
            }
        }
    }

    async fn summary(&self, usage: &mut Usage) -> Result<String, Fault> {
        let patience = self.model.patience();
        let mut stream = within(patience.first_byte, self.model.stream(self.request.clone())).await??;
        let mut text = String::new();
        let mut limit = patience.first_byte;
        loop {
            let Some(event) = within(limit, stream.next()).await? else {
                return Err(Fault::new(FaultKind::StreamCut, "the stream ended without its closing mark"));
            };
            limit = patience.between_bytes;
            match event? {
                ModelEvent::Text(more) => text.push_str(&more),
                ModelEvent::Usage(counted) => *usage = counted,
                ModelEvent::Done { .. } => break,
                ModelEvent::KeepAlive
                | ModelEvent::Thinking(_)
                | ModelEvent::ThinkingDone { .. }
                | ModelEvent::CallStarted { .. }
                | ModelEvent::CallArguments { .. } => {}
            }
            if text.len() > SUMMARY_BYTES_MAX {
                let why = format!("the summary is longer than {SUMMARY_BYTES_MAX} bytes");
                return Err(Fault::new(FaultKind::ReplyTooLarge, why));
            }
        }
        match text.trim() {
            "" => Err(Fault::new(FaultKind::Malformed, "the model gave an empty summary")),
            text => Ok(self.secrets.redact(text).into_owned()),
        }
    }

    fn compacted(&self, summary: String, usage: Usage) -> ContextCompacted {
        let summary = self.plan.text(&summary);
        let secrets = marks_in(&summary).filter(|name| self.shown_secrets.contains(*name)).map(str::to_owned).collect();
        let tokens_after = self.plan.tokens_kept + self.gauge.read(tokens::of_bytes(summary.len()));
        ContextCompacted {
            trigger: self.trigger,
            summary,
            secrets,
            kept_from: self.plan.kept_from,
            context_from: self.plan.context_from,
            tokens_before: self.plan.tokens_before,
            tokens_after,
            model: self.request.model.clone(),
            usage,
            cost_micro_usd: self.model.cost(&usage),
        }
    }
}

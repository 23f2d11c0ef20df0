//! Shortens a context: which messages stay as they are, and what the model says of the others. It never retries.

use std::{collections::BTreeSet, sync::Arc};

use tenure_core::{
    command::{Input, Partial},
    context::{ChatMessage, Entry, ModelRequest, Voice},
    event::{CompactTrigger, ContextCompacted},
    message::{Part, joined_text},
    model::{Fault, FaultKind, StopReason},
    redact::{Secrets, marks_in},
};
use tenure_models::{
    Model,
    tokens::{self, Gauge},
};

use crate::{model_call::Bill, unseen};

/// The share of the room that stays as it is.
const KEPT_SHARE: u64 = 4;
/// The share of the room that the summary is made from.
const READ_SHARE: u64 = 2;
/// What one message or result gives to the summary: its beginning and its end.
const EXCERPT_HEAD: usize = 6_000;
const EXCERPT_TAIL: usize = 2_000;
/// How much of the last request of a person is kept word by word, in a room that is large enough.
const REQUEST_BYTES_MAX: usize = 8_000;
/// The share of the room that it may take.
const REQUEST_SHARE: u64 = 8;
/// A summary takes about this much even where little was said: less than that is not worth one.
const SUMMARY_TOKENS_MIN: u64 = 100;
/// A summary is not let grow beyond this.
const SUMMARY_BYTES_MAX: usize = 256 * 1024;

const PROMPT: &str = "You shorten the record of a conversation between a user and an assistant that works with tools. \
    Your summary takes the record's place, so the assistant must be able to go on from it alone. Tell: what the user \
    wants and has said to be done or left alone; what was found out (names of files, commands, errors, numbers, exact \
    where they matter); what was changed and where; what was tried and failed; what is open and what comes next. \
    Leave out greetings and whatever no longer matters. Write plain text, at most 1,500 words. Keep marks like \
    ${secret:NAME} as they are.";

/// What a plan is made from, besides the conversation.
pub(crate) struct Room {
    /// Tokens of what stands before the conversation: prompt and tools.
    pub(crate) overhead: u64,
    /// The model's window, where that is known.
    pub(crate) window: Option<u64>,
    /// How often a summary of this was itself too long to be made: half as much is read each time.
    pub(crate) overflows: u32,
    pub(crate) gauge: Gauge,
}

/// What is to be summarized, and what stays.
pub(crate) struct Plan {
    kept_from: u64,
    context_from: u64,
    tokens_kept: u64,
    tokens_before: u64,
    record: String,
    /// The last request that goes, in its own words.
    request: Option<String>,
}

impl Plan {
    /// `None` where nothing is gained: all that is there has to stay, or takes no more room than a summary of it.
    pub(crate) fn make(entries: &[Entry], model: &dyn Model, room: &Room) -> Option<Plan> {
        let weigh = |entry: &Entry| room.gauge.read(model.count_message(&entry.message));
        let weights: Vec<u64> = entries.iter().map(weigh).collect();
        let said: u64 = weights.iter().sum();
        let tokens_before = room.overhead + said;
        // Whatever a window is said to be: what is there now was too much, or more than somebody wanted.
        let tokens_max = room.window.map_or(tokens_before, |window| window.min(tokens_before));
        let first = first_kept(entries, &weights, tokens_max.min(said) / KEPT_SHARE);
        let (gone, kept) = entries.split_at(first);
        let kept_from = kept.first()?.seq;
        let record = record(gone);
        let readable = room.bytes(record.len(), tokens_max / READ_SHARE) >> room.overflows.min(usize::BITS - 1);
        let quoted = |text: String| {
            let bytes = room.bytes(text.len(), tokens_max / REQUEST_SHARE).min(REQUEST_BYTES_MAX);
            shortened(&text, bytes - bytes / 4, bytes / 4)
        };
        let asking = gone.iter().rev().find_map(|entry| Some((entry, quoted(request_of(entry)?))));
        // What an earlier summary tells will be told again, at about the same length.
        let is_fresh = |entry: &Entry| !matches!(entry.voice, Voice::Summary { .. });
        let fresh: u64 = gone.iter().zip(&weights).filter(|(entry, _)| is_fresh(entry)).map(|(_, weight)| weight).sum();
        let told_anew = asking.as_ref().filter(|(entry, _)| is_fresh(entry)).map_or(0, |(_, text)| text.len());
        if fresh <= SUMMARY_TOKENS_MIN + room.gauge.read(tokens::of_bytes(told_anew)) {
            return None;
        }
        Some(Plan {
            kept_from,
            context_from: kept.iter().map(|entry| entry.body_seq).min().unwrap_or(kept_from).min(kept_from),
            tokens_kept: room.overhead + weights[first..].iter().sum::<u64>(),
            tokens_before,
            record: shortened(&record, readable / 4, readable - readable / 4),
            request: asking.map(|(_, text)| text),
        })
    }

    pub(crate) fn messages(&self) -> Vec<Arc<ChatMessage>> {
        let text = format!("The record:\n\n{}\n\nNow write the summary.", self.record);
        vec![Arc::new(ChatMessage::User { parts: vec![Part::text(text)] })]
    }

    pub(crate) fn system() -> Vec<Arc<str>> {
        vec![PROMPT.into()]
    }
}

impl Room {
    /// How many of a text's bytes make so many tokens.
    fn bytes(&self, bytes: usize, tokens_max: u64) -> usize {
        let tokens = self.gauge.read(tokens::of_bytes(bytes)).max(1);
        let share = u128::from(tokens_max.min(tokens)) * bytes as u128 / u128::from(tokens);
        usize::try_from(share).unwrap_or(usize::MAX)
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

/// What a person asked for last, here or in what a summary tells of.
fn request_of(entry: &Entry) -> Option<String> {
    match (&entry.voice, &*entry.message) {
        (Voice::Summary { request }, _) => request.as_deref().map(str::to_owned),
        (Voice::Person, ChatMessage::User { parts }) => {
            Some(said(parts).trim().to_owned()).filter(|text| !text.is_empty())
        }
        _ => None,
    }
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
        // What a summary tells has been shortened before.
        let text = match entry.voice {
            Voice::Summary { .. } => text,
            Voice::Person | Voice::Agent | Voice::Note => shortened(&text, EXCERPT_HEAD, EXCERPT_TAIL),
        };
        record.push_str(&format!("{who}: {text}\n\n"));
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
    pub(crate) shown_secrets: BTreeSet<String>,
    pub(crate) bill: Bill,
}

impl Compacting {
    pub(crate) async fn run(self) -> Input {
        let attempt = self.attempt;
        match self.summary().await {
            Ok(summary) => Input::Compacted { attempt, compacted: self.compacted(summary) },
            Err(mut fault) => {
                fault.message = self.secrets.redact(&fault.message).into_owned();
                Input::CompactFailed { attempt, fault, partial: self.bill.so_far() }
            }
        }
    }

    async fn summary(&self) -> Result<String, Fault> {
        let (text, stop_reason) =
            unseen::reply(&self.model, self.request.clone(), &self.bill, SUMMARY_BYTES_MAX).await?;
        match (stop_reason, text.trim()) {
            (StopReason::Refusal, _) => Err(Fault::new(FaultKind::BadRequest, "the model refused to write a summary")),
            (StopReason::MaxTokens, _) => {
                let why = "the model reached its output limit before the summary was whole";
                Err(Fault::new(FaultKind::ReplyTooLarge, why))
            }
            (_, "") => Err(Fault::new(FaultKind::Malformed, "the model gave an empty summary")),
            (_, text) => Ok(self.secrets.redact(text).into_owned()),
        }
    }

    fn compacted(self, summary: String) -> ContextCompacted {
        let Partial { usage, cost, .. } = self.bill.so_far();
        let Plan { kept_from, context_from, tokens_kept, tokens_before, request, .. } = self.plan;
        let said = [Some(summary.as_str()), request.as_deref()];
        let said: usize = said.into_iter().flatten().map(str::len).sum();
        let marks = marks_in(&summary).chain(request.iter().flat_map(|request| marks_in(request)));
        let shown: BTreeSet<&str> = marks.filter(|name| self.shown_secrets.contains(*name)).collect();
        ContextCompacted {
            trigger: self.trigger,
            secrets: shown.into_iter().map(str::to_owned).collect(),
            kept_from,
            context_from,
            tokens_before,
            tokens_after: tokens_kept + self.gauge.read(tokens::of_bytes(said)),
            model: self.request.model,
            usage,
            cost_micro_usd: cost,
            summary,
            request,
        }
    }
}

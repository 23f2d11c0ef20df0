//! The conversation in the shape that all vendors want: users and assistants in turn, and for each call its result.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use serde_json::{Value, json};
use tenure_core::{
    context::ChatMessage,
    ids::CallId,
    message::Part,
    model::{Block, Thinking},
    tool::ToolCall,
};

/// What the model is told of a call whose result nobody recorded. No vendor takes a call without a result.
const NO_RESULT: &str = "There is no result: the call was cut.";

/// One side's part of the conversation.
#[derive(Debug)]
pub(crate) enum Turn<'a> {
    /// The results of the calls before it, then what people said.
    User {
        results: Vec<CallResult<'a>>,
        said: Vec<Said<'a>>,
    },
    Assistant {
        text: &'a str,
        thinking: &'a [Thinking],
        calls: Vec<Asked<'a>>,
        order: &'a [Block],
    },
}

/// A block of an assistant's turn, at its place.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Told<'a> {
    Text(&'a str),
    Thinking(&'a Thinking),
    /// With its number.
    Call(usize, &'a Asked<'a>),
}

/// The blocks of a reply in the order in which they came. Nothing is left out, whatever the order says.
pub(crate) fn told<'a>(
    mut text: &'a str,
    thinking: &'a [Thinking],
    calls: &'a [Asked<'a>],
    order: &[Block],
) -> Vec<Told<'a>> {
    let mut blocks = Vec::with_capacity(order.len() + 1);
    let mut thoughts = thinking.iter();
    let mut calls = calls.iter().enumerate();
    for block in order {
        match block {
            Block::Text(bytes) => {
                let at = usize::try_from(*bytes).map_or(text.len(), |bytes| text.floor_char_boundary(bytes));
                let (this, rest) = text.split_at(at);
                text = rest;
                blocks.push(Told::Text(this));
            }
            Block::Thinking => blocks.extend(thoughts.next().map(Told::Thinking)),
            Block::Call => blocks.extend(calls.next().map(|(number, asked)| Told::Call(number, asked))),
        }
    }
    blocks.splice(0..0, thoughts.map(Told::Thinking));
    blocks.extend((!text.is_empty()).then_some(Told::Text(text)));
    blocks.extend(calls.map(|(number, asked)| Told::Call(number, asked)));
    blocks
}

/// The same without thoughts that came to nothing: they may not stand at the end, nor alone. What is no text differs.
pub(crate) fn led_on<'a>(mut blocks: Vec<Told<'a>>, is_nothing: fn(&str) -> bool) -> Vec<Told<'a>> {
    let last = blocks.iter().rposition(|block| match block {
        Told::Text(text) => !is_nothing(text),
        Told::Thinking(_) => false,
        Told::Call(..) => true,
    });
    blocks.truncate(last.map_or(0, |last| last + 1));
    blocks
}

#[derive(Debug)]
pub(crate) struct Said<'a> {
    /// It is the system that speaks, in the middle of the conversation.
    pub(crate) by_system: bool,
    pub(crate) parts: &'a [Part],
}

/// The vendor's name for a call, or ours where there is none.
#[derive(Debug, Clone)]
pub(crate) struct CallName<'a>(Cow<'a, str>);

impl CallName<'_> {
    /// The vendor's alone, for those that need none.
    pub(crate) fn vendors(&self) -> Option<&str> {
        match &self.0 {
            Cow::Borrowed(id) => Some(id),
            Cow::Owned(_) => None,
        }
    }
}

impl std::ops::Deref for CallName<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) id: CallName<'a>,
    pub(crate) call: &'a ToolCall,
}

impl Asked<'_> {
    /// The input as an object, which is all that vendors take back. A model may have written anything.
    pub(crate) fn object(&self) -> Cow<'_, Value> {
        match &self.call.input {
            input @ Value::Object(_) => Cow::Borrowed(input),
            other => Cow::Owned(json!({ "malformed": other })),
        }
    }
}

#[derive(Debug)]
pub(crate) struct CallResult<'a> {
    pub(crate) id: CallName<'a>,
    pub(crate) name: &'a str,
    pub(crate) ok: bool,
    pub(crate) parts: Cow<'a, [Part]>,
}

/// The turns of a conversation. What was said before a message was added stays as it was, so requests grow at their end
/// only.
pub(crate) fn turns<'a>(messages: impl Iterator<Item = &'a ChatMessage>) -> Vec<Turn<'a>> {
    let mut builder = Builder::default();
    for message in messages {
        builder.push(message);
    }
    builder.settle();
    builder.turns
}

#[derive(Default)]
struct Builder<'a> {
    turns: Vec<Turn<'a>>,
    ids: Ids<'a>,
    /// Calls of the last reply that have no result yet, in their order.
    open: Vec<(CallId, CallName<'a>, &'a str)>,
    /// Results of the last reply's calls as they came.
    results: HashMap<CallId, (bool, &'a [Part])>,
    said: Vec<Said<'a>>,
}

impl<'a> Builder<'a> {
    fn push(&mut self, message: &'a ChatMessage) {
        match message {
            ChatMessage::System { parts } => self.said.push(Said { by_system: true, parts }),
            ChatMessage::User { parts } => self.said.push(Said { by_system: false, parts }),
            ChatMessage::Tool { call, ok, parts, .. } if self.open.iter().any(|(open, ..)| open == call) => {
                self.results.insert(*call, (*ok, parts));
            }
            // Its call is no longer part of the context.
            ChatMessage::Tool { parts, .. } => self.said.push(Said { by_system: false, parts }),
            ChatMessage::Assistant { text, thinking, calls, order } => {
                self.settle();
                let calls: Vec<_> = calls.iter().map(|call| Asked { id: self.ids.of(call), call }).collect();
                self.open = calls.iter().map(|asked| (asked.call.id, asked.id.clone(), &*asked.call.name)).collect();
                self.turns.push(Turn::Assistant { text, thinking, calls, order });
            }
        }
    }

    /// Ends the user's turn, if there is one.
    fn settle(&mut self) {
        let results: Vec<_> = std::mem::take(&mut self.open)
            .into_iter()
            .map(|(call, id, name)| match self.results.remove(&call) {
                Some((ok, parts)) => CallResult { id, name, ok, parts: Cow::Borrowed(parts) },
                None => CallResult { id, name, ok: false, parts: Cow::Owned(vec![Part::text(NO_RESULT)]) },
            })
            .collect();
        let said = std::mem::take(&mut self.said);
        if !results.is_empty() || !said.is_empty() {
            self.turns.push(Turn::User { results, said });
        }
    }
}

/// Names for calls that are taken by every vendor and differ within a request.
#[derive(Default)]
struct Ids<'a> {
    taken: HashSet<&'a str>,
}

impl<'a> Ids<'a> {
    fn of(&mut self, call: &'a ToolCall) -> CallName<'a> {
        match call.provider_id.as_deref() {
            Some(id) if is_plain(id) && self.taken.insert(id) => CallName(Cow::Borrowed(id)),
            _ => CallName(Cow::Owned(call.id.to_string())),
        }
    }
}

fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !id.is_empty() && id.len() <= 64 && id.bytes().all(plain)
}

/// What is said in text of a result or a message, where nothing but text is taken.
pub(crate) fn text_of(parts: &[Part]) -> Cow<'_, str> {
    match parts {
        [Part::Text { text }] => Cow::Borrowed(text),
        parts => Cow::Owned(tenure_core::message::joined_text(parts)),
    }
}

/// Who speaks, where a system's word has no place of its own in the middle of a conversation.
pub(crate) fn spoken<'a>(by_system: bool, text: &'a str) -> Cow<'a, str> {
    match by_system {
        false => Cow::Borrowed(text),
        true => Cow::Owned(format!("<system>\n{text}\n</system>")),
    }
}

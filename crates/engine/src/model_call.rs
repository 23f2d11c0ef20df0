//! One call of a model: its stream becomes deltas, and in the end a reply or a fault. It never retries.

mod order;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::StreamExt;
use serde_json::{Value, json};
use tenure_core::{
    command::{ModelOutput, Partial},
    context::{ChatMessage, ModelRequest},
    delta::Stream,
    message::{Attachment, Part},
    model::{Fault, FaultKind, StopReason, Thinking, Usage},
    redact::{Secrets, StreamRedactor, marks_in},
    time::Moment,
    tool::{INPUT_DEPTH_MAX, ToolCall, ToolKind, VerifyPlan, depth},
};
use tenure_models::{Model, ModelEvent, Patience};
use tenure_store::Store;
use tenure_tools::Registry;
use tokio::time::Instant;

use self::order::Order;
use crate::warm::Shower;

/// A reply is not let grow beyond this.
const REPLY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// What a reply may take as JSON: escaping and marks make it longer, and it has to fit a line of the log.
const EVENT_BYTES_MAX: usize = 24 * 1024 * 1024;
/// Calls that one reply may ask for.
const CALLS_MAX: u32 = 128;
/// How many letters of an answer that does not fit its schema are told.
const SAID_MAX: usize = 200;
/// What becomes of the attachments of a request that was refused.
const LEFT_OUT: &str = "; what this turn had attached is only named to the model from now on: attach it again, or retry \
                        the turn, to send it again";
/// Models put it around what is asked of them, whatever they are told.
const FENCE: &str = "```";

pub(crate) struct ModelCall {
    pub(crate) model: Arc<dyn Model>,
    pub(crate) request: ModelRequest,
    pub(crate) guessed_tokens: u64,
    pub(crate) store: Arc<dyn Store>,
    /// What the session's attachments hold.
    pub(crate) attachments: Vec<Attachment>,
    pub(crate) secrets: Secrets,
    pub(crate) tools: Arc<Registry>,
    pub(crate) verify: Option<VerifyPlan>,
    /// Secrets whose marks the model was shown.
    pub(crate) shown_secrets: BTreeSet<String>,
    pub(crate) moment: Moment,
    pub(crate) shower: Shower,
    pub(crate) bill: Bill,
}

/// What a call under way has used up by now, for whoever stops it.
#[derive(Clone)]
pub(crate) struct Bill {
    model: Arc<dyn Model>,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Used {
    usage: Usage,
    /// Something has come that was not counted.
    begun: bool,
}

impl Bill {
    pub(crate) fn new(model: Arc<dyn Model>) -> Self {
        Self { model, used: Arc::default() }
    }

    /// Nothing of what was shown is in it.
    pub(crate) fn so_far(&self) -> Partial {
        let Used { usage, begun } = *self.lock();
        Partial { usage, cost: self.model.cost(&usage), begun, ..Partial::default() }
    }

    /// Takes in what a fragment tells.
    pub(crate) fn note(&self, event: &ModelEvent) {
        match event {
            ModelEvent::KeepAlive => {}
            ModelEvent::Usage(usage) => self.lock().usage = *usage,
            // Whole, and counted: whatever is found wrong with it, its cost is known.
            ModelEvent::Done { .. } => {
                let mut used = self.lock();
                used.begun &= used.usage == Usage::default();
            }
            ModelEvent::Text(_)
            | ModelEvent::Thinking(_)
            | ModelEvent::ThinkingDone { .. }
            | ModelEvent::CallStarted { .. }
            | ModelEvent::CallArguments { .. } => self.lock().begun = true,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ModelCall {
    pub(crate) async fn run(mut self) -> Result<ModelOutput, Fault> {
        let patience = self.model.patience();
        let mut reply = Reply::new(self.secrets.clone());
        let outcome = self.stream(&mut reply, patience).await;
        match outcome {
            Ok(stop_reason) => {
                let fits = self.fit(&mut reply, stop_reason);
                // What does not fit was said all the same.
                self.show_unseen(&mut reply).await;
                fits.and_then(|()| self.output(reply, stop_reason))
            }
            Err(mut fault) => {
                fault.message = self.secrets.redact(&fault.message).into_owned();
                if fault.kind == FaultKind::BadRequest && !self.request.files.is_empty() {
                    fault.message.push_str(LEFT_OUT);
                }
                Err(fault)
            }
        }
    }

    async fn stream(&mut self, reply: &mut Reply, patience: Patience) -> Result<StopReason, Fault> {
        self.fetch_files().await?;
        let begun = Instant::now();
        let mut stream = within(patience.first_byte, self.model.stream(self.request.clone())).await??;
        let mut limit = patience.first_byte.saturating_sub(begun.elapsed());
        loop {
            let Some(event) = within(limit, stream.next()).await? else {
                let why = "the stream ended without its closing mark";
                return Err(Fault::new(FaultKind::StreamCut, why));
            };
            limit = patience.between_bytes;
            let event = event?;
            self.bill.note(&event);
            if let Some(stop_reason) = self.take(reply, event).await? {
                self.flush(reply).await?;
                return Ok(stop_reason);
            }
        }
    }

    /// The bytes of what the messages name.
    async fn fetch_files(&mut self) -> Result<(), Fault> {
        let session = self.request.meta.session_id;
        for message in self.request.messages.clone() {
            let (ChatMessage::System { parts } | ChatMessage::User { parts } | ChatMessage::Tool { parts, .. }) =
                &*message
            else {
                continue;
            };
            for name in parts.iter().filter_map(Part::attachment) {
                if self.request.files.contains_key(name) {
                    continue;
                }
                let bytes = self.store.blob_get(session, name).await;
                let bytes = bytes.map_err(|error| Fault::new(FaultKind::Server, error.to_string()))?;
                let lost = |what: &str| Fault::new(FaultKind::BadRequest, format!("the bytes of {name} {what}"));
                let bytes = bytes.ok_or_else(|| lost("are gone"))?;
                let known = self.attachments.iter().find(|attachment| attachment.r#ref == name);
                // What the disk has made of a file is not what somebody sent.
                if known.is_some_and(|known| known.digest != blake3::hash(&bytes).to_hex().as_str()) {
                    return Err(lost("were changed on the disk"));
                }
                self.request.files.insert(name.to_owned(), Arc::from(&*bytes));
            }
        }
        Ok(())
    }

    async fn take(&self, reply: &mut Reply, event: ModelEvent) -> Result<Option<StopReason>, Fault> {
        match event {
            ModelEvent::KeepAlive => {}
            ModelEvent::Text(text) => {
                let clear = reply.text_redactor.push(&text);
                self.show_text(reply, clear).await?;
            }
            ModelEvent::Thinking(text) => {
                reply.order.text_over(reply.text_redactor.held());
                reply.order.thought_begun();
                let clear = reply.thinking_redactor.push(&text);
                self.show_thinking(reply, clear).await?;
            }
            ModelEvent::ThinkingDone { signature, origin } => {
                let clear = reply.thinking_redactor.finish();
                self.show_thinking(reply, clear).await?;
                reply.order.text_over(reply.text_redactor.held());
                reply.close_thinking(signature, origin);
            }
            ModelEvent::CallStarted { index, provider_id, name } => {
                if index >= CALLS_MAX {
                    let why = format!("the reply asks for more than {CALLS_MAX} calls");
                    return Err(Fault::new(FaultKind::ReplyTooLarge, why));
                }
                let redactor = StreamRedactor::new(self.secrets.in_json());
                reply.calls.insert(index, Asked { provider_id, name, arguments: String::new(), redactor });
                reply.order.text_over(reply.text_redactor.held());
                reply.order.call();
                // What was said before a call is not the answer.
                self.show_unseen(reply).await;
            }
            ModelEvent::CallArguments { index, text } => {
                let Some(call) = reply.calls.get_mut(&index) else {
                    return Err(Fault::new(FaultKind::Malformed, "arguments came for a call that was not begun"));
                };
                call.arguments.push_str(&text);
                let clear = call.redactor.push(&text);
                self.shower.show(Stream::Arguments(index), clear).await;
            }
            ModelEvent::Usage(usage) => reply.usage = usage,
            ModelEvent::Done { stop_reason } => return Ok(Some(stop_reason)),
        }
        reply.check_room(0)?;
        Ok(None)
    }

    async fn show_text(&self, reply: &mut Reply, clear: String) -> Result<(), Fault> {
        reply.check_room(clear.len())?;
        reply.order.text(&clear);
        reply.text.push_str(&clear);
        let begins = reply.text.trim_start();
        // An answer of a given shape may have to be taken out of what is around it, and what is shown cannot be taken back.
        if self.request.output_schema.is_none() || !reply.calls.is_empty() || begins.starts_with(['{', '[', '"']) {
            self.show_unseen(reply).await;
        }
        Ok(())
    }

    async fn show_unseen(&self, reply: &mut Reply) {
        let unseen = reply.text[reply.shown..].to_owned();
        reply.shown = reply.text.len();
        self.shower.show(Stream::Text, unseen).await;
    }

    /// The answer of a turn fits its schema, or there is none.
    fn fit(&self, reply: &mut Reply, stop_reason: StopReason) -> Result<(), Fault> {
        let Some(schema) = self.request.output_schema.as_deref().filter(|_| reply.calls.is_empty()) else {
            return Ok(());
        };
        let Err(problem) = tenure_tools::check_text(schema, &reply.text) else { return Ok(()) };
        let problem = match fenced(&reply.text).filter(|_| reply.shown == 0) {
            None => problem,
            Some(value) => match tenure_tools::check_text(schema, value) {
                Ok(()) => {
                    reply.text = value.to_owned();
                    // It is one block now.
                    reply.order = Order::default();
                    return Ok(());
                }
                Err(problem) => problem,
            },
        };
        Err(misfit(stop_reason, &self.secrets.redact(&problem), &reply.text))
    }

    async fn show_thinking(&self, reply: &mut Reply, clear: String) -> Result<(), Fault> {
        reply.check_room(clear.len())?;
        reply.thinking_open.push_str(&clear);
        self.shower.show(Stream::Thinking, clear).await;
        Ok(())
    }

    /// What was held back because a secret might have begun there.
    async fn flush(&self, reply: &mut Reply) -> Result<(), Fault> {
        let text = reply.text_redactor.finish();
        self.show_text(reply, text).await?;
        let thinking = reply.thinking_redactor.finish();
        self.show_thinking(reply, thinking).await?;
        reply.close_thinking(None, None);
        for (index, call) in &mut reply.calls {
            let clear = call.redactor.finish();
            self.shower.show(Stream::Arguments(*index), clear).await;
        }
        Ok(())
    }

    fn output(mut self, reply: Reply, stop_reason: StopReason) -> Result<ModelOutput, Fault> {
        let Reply { text, thinking, calls, order, usage, .. } = reply;
        let calls: Vec<ToolCall> = calls.into_values().map(|asked| self.judge_form(asked)).collect();
        let cost = self.model.cost(&usage);
        let encoded = serde_json::to_vec(&(&text, &thinking, &calls)).map_or(usize::MAX, |json| json.len());
        if encoded > EVENT_BYTES_MAX {
            let why = format!("the reply takes {encoded} bytes to record, more than {EVENT_BYTES_MAX}");
            return Err(Fault::new(FaultKind::ReplyTooLarge, why));
        }
        // A guess of nothing corrects nothing.
        let guessed_tokens = self.model.recount(&self.request, self.guessed_tokens).unwrap_or(0);
        let order = order.told();
        Ok(ModelOutput { text, thinking, calls, order, stop_reason, usage, cost, guessed_tokens })
    }

    /// Whether a call has the right form; whether it may run is not asked here.
    fn judge_form(&mut self, asked: Asked) -> ToolCall {
        let Asked { provider_id, name, arguments, .. } = asked;
        let parsed = match arguments.trim() {
            "" => Ok(json!({})),
            text => serde_json::from_str::<Value>(text),
        };
        let mut secrets = Vec::new();
        let malformed = |why: String| {
            let raw = self.secrets.in_json().redact(&arguments).into_owned();
            (json!({ "malformed": raw }), Some(why))
        };
        let (input, problem) = match parsed {
            Ok(input) if depth(&input) > INPUT_DEPTH_MAX => {
                malformed(format!("the arguments are nested deeper than {INPUT_DEPTH_MAX}"))
            }
            Ok(mut input) => {
                secrets = self.put_back(&input);
                let problem = self.tools.check(&name, &input).err();
                let problem = problem.map(|problem| self.secrets.redact(&problem).into_owned());
                self.secrets.redact_json(&mut input);
                (input, problem)
            }
            Err(error) => malformed(format!("the arguments are not valid JSON: {error}")),
        };
        let name = self.secrets.redact(&name).into_owned();
        ToolCall {
            id: self.moment.call_id(),
            provider_id,
            kind: self.tools.kind(&name).unwrap_or(ToolKind::Read),
            subject: self.secrets.redact(&self.tools.subject(&name, &input, self.verify.as_ref())).into_owned(),
            name,
            input,
            secrets,
            problem,
        }
    }

    /// The secrets that the tool will be given: those whose values the model wrote, and those whose marks it wrote after
    /// it had been shown them. A mark that it made up is only text.
    fn put_back(&self, input: &Value) -> Vec<String> {
        let mut names = self.secrets.names_in_json(input);
        let text = input.to_string();
        names.extend(marks_in(&text).filter(|name| self.shown_secrets.contains(*name)).map(str::to_owned));
        names.into_iter().collect()
    }
}

/// The JSON value that stands in the first fence of a text.
pub(crate) fn fenced(text: &str) -> Option<&str> {
    let (_, inside) = text.split_once(FENCE)?;
    // The name of a language may follow it.
    let inside = inside.trim_start_matches(|letter: char| letter.is_ascii_alphanumeric()).trim_start();
    let mut values = serde_json::Deserializer::from_str(inside).into_iter::<serde::de::IgnoredAny>();
    values.next()?.ok()?;
    Some(&inside[..values.byte_offset()])
}

fn misfit(stop_reason: StopReason, problem: &str, text: &str) -> Fault {
    let why = match stop_reason {
        StopReason::MaxTokens => {
            "the answer was cut at the model's output limit (max_tokens), and so does not fit its schema"
        }
        StopReason::Refusal => "the model refused, and so the answer does not fit its schema",
        StopReason::EndTurn | StopReason::ToolUse | StopReason::Other => "the answer does not fit its schema",
    };
    let said = match (text.trim(), text.trim().char_indices().nth(SAID_MAX)) {
        ("", _) => "nothing".to_owned(),
        (said, Some((end, _))) => format!("“{}…”", &said[..end]),
        (said, None) => format!("“{said}”"),
    };
    let why = format!("{why}: {problem}; the model said {said}");
    Fault { stop_reason: Some(stop_reason), ..Fault::new(FaultKind::SchemaMismatch, why) }
}

/// The reply as far as it has come.
struct Reply {
    text: String,
    /// How much of it was shown.
    shown: usize,
    text_redactor: StreamRedactor,
    thinking: Vec<Thinking>,
    thinking_open: String,
    thinking_redactor: StreamRedactor,
    calls: BTreeMap<u32, Asked>,
    order: Order,
    usage: Usage,
}

struct Asked {
    provider_id: Option<String>,
    name: String,
    arguments: String,
    redactor: StreamRedactor,
}

impl Reply {
    fn new(secrets: Secrets) -> Self {
        Self {
            text: String::new(),
            shown: 0,
            text_redactor: StreamRedactor::new(secrets.clone()),
            thinking: Vec::new(),
            thinking_open: String::new(),
            thinking_redactor: StreamRedactor::new(secrets),
            calls: BTreeMap::new(),
            order: Order::default(),
            usage: Usage::default(),
        }
    }

    fn close_thinking(&mut self, signature: Option<String>, origin: Option<String>) {
        let text = std::mem::take(&mut self.thinking_open);
        // A redacted block no longer fits its signature: no vendor would take it back.
        if (text.is_empty() && signature.is_none()) || text.contains("${secret:") {
            self.order.thought_dropped();
            return;
        }
        self.order.thought();
        self.thinking.push(Thinking { text, signature, origin });
    }

    /// What is shown is kept when the reply fails, so it is bounded before it is shown: a mark may be far longer than its
    /// secret.
    fn check_room(&self, more: usize) -> Result<(), Fault> {
        if self.bytes() + more <= REPLY_BYTES_MAX {
            return Ok(());
        }
        Err(Fault::new(FaultKind::ReplyTooLarge, format!("the reply is longer than {REPLY_BYTES_MAX} bytes")))
    }

    fn bytes(&self) -> usize {
        let arguments: usize = self.calls.values().map(|call| call.arguments.len()).sum();
        let thinking: usize = self.thinking.iter().map(|block| block.text.len()).sum();
        self.text.len() + self.thinking_open.len() + thinking + arguments
    }
}

/// The watchdog: silence for too long is a fault, never a hang.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Result<T, Fault> {
    tokio::time::timeout(limit, work).await.map_err(|_| {
        let seconds = limit.as_secs_f64();
        let why = format!("the model sent nothing for {seconds} s, which is the limit of its entry in the config");
        Fault::new(FaultKind::StreamStalled, why)
    })
}

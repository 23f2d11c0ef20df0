//! Shows a session's events as text: answers as they stream, calls, approvals and results as short lines. It decides nothing and asks nothing.

mod look;
mod question;

pub use look::{Look, Paint, Raw, Tone, columns, cut, cut_front, money, span, tamed};
pub use question::{Before, COMPARED_BYTES_MAX, question};

use serde_json::Value;
use tenure_wire::Event;

/// Where a piece of text belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// The model's answer: what a pipe wants.
    Answer,
    /// All that is told about the work.
    Note,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub channel: Channel,
    pub text: String,
}

/// How much is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// What somebody who asked wants to see.
    Story,
    /// Every numbered event, with its number.
    Log,
}

pub struct Printer {
    answers: Look,
    /// How notes look: they may go elsewhere.
    look: Look,
    detail: Detail,
    /// What the last piece was part of, if its line is still open.
    open: Option<Open>,
    /// Which attempt's text is being shown, and how much of it was.
    shown: Shown,
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Open {
    Answer,
    Thinking,
    Output(String),
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Shown {
    step: u64,
    attempt: u64,
    bytes: usize,
}

impl Printer {
    pub fn new(look: Look, detail: Detail) -> Self {
        Self { answers: look, look, detail, open: None, shown: Shown::default(), pieces: vec![] }
    }

    /// For when notes go to another place than answers.
    pub fn notes(mut self, look: Look) -> Self {
        self.look = look;
        self
    }

    /// What to write for one event.
    pub fn event(&mut self, event: &Event) -> Vec<Piece> {
        match event.wire_type.as_str() {
            "model_output_delta" => self.answer_delta(&event.data),
            "model_thinking_delta" => self.thinking_delta(&event.data),
            "tool_output_delta" => self.output_delta(&event.data),
            "tool_arguments_delta" => {}
            "model_output_completed" => self.answer_completed(event),
            _ => self.other(event),
        }
        std::mem::take(&mut self.pieces)
    }

    /// Closes the line that is still open.
    pub fn finish(&mut self) -> Vec<Piece> {
        self.close();
        std::mem::take(&mut self.pieces)
    }

    fn put(&mut self, channel: Channel, text: String) {
        if !text.is_empty() {
            self.pieces.push(Piece { channel, text });
        }
    }

    fn close(&mut self) {
        match self.open.take() {
            None => {}
            Some(Open::Answer) => self.put(Channel::Answer, "\n".into()),
            Some(Open::Thinking | Open::Output(_)) => self.put(Channel::Note, "\n".into()),
        }
    }

    fn note(&mut self, tone: Tone, text: &str) {
        self.close();
        // What went wrong is told in full: its end says what to do.
        let line = match tone {
            Tone::Bad => self.look.folded(&tamed(&text.replace('\n', "⏎"))),
            _ => self.look.line(text, 0),
        };
        let painted = self.look.paint(tone, &line);
        self.put(Channel::Note, format!("{painted}\n"));
    }

    fn answer_delta(&mut self, data: &Value) {
        let (step, attempt) = (number(data, "step"), number(data, "attempt"));
        if (self.shown.step, self.shown.attempt) != (step, attempt) {
            self.shown = Shown { step, attempt, bytes: 0 };
        }
        let fragment = text(data, "text");
        self.shown.bytes = number(data, "offset") as usize + fragment.len();
        self.answer(fragment);
    }

    fn answer(&mut self, fragment: &str) {
        if fragment.is_empty() {
            return;
        }
        if self.open != Some(Open::Answer) {
            self.close();
        }
        self.put(Channel::Answer, self.answers.answer(fragment));
        self.open = if fragment.ends_with('\n') { None } else { Some(Open::Answer) };
    }

    /// Shows what of the whole text has not been seen, such as when deltas are no longer kept.
    fn answer_completed(&mut self, event: &Event) {
        let (step, attempt) = (number(&event.data, "step"), number(&event.data, "attempt"));
        let whole = text(&event.data, "text");
        let seen = if (self.shown.step, self.shown.attempt) == (step, attempt) { self.shown.bytes } else { 0 };
        self.answer(whole.get(seen..).unwrap_or_default());
        self.close();
        self.shown = Shown::default();
        if self.detail == Detail::Log {
            self.log_line(event, &model_line(&event.data));
        }
    }

    fn thinking_delta(&mut self, data: &Value) {
        if self.open != Some(Open::Thinking) {
            self.close();
        }
        let fragment = tamed(text(data, "text"));
        let painted = self.look.paint(Tone::Faint, &fragment);
        self.put(Channel::Note, painted);
        self.open = if fragment.ends_with('\n') { None } else { Some(Open::Thinking) };
    }

    /// A running tool's output, each line behind a bar.
    fn output_delta(&mut self, data: &Value) {
        let call = text(data, "tool_call_id").to_owned();
        let mut inside = self.open == Some(Open::Output(call.clone()));
        if !inside {
            self.close();
        }
        let fragment = tamed(text(data, "text"));
        for line in fragment.split_inclusive('\n') {
            let bar = if inside { "" } else { "  │ " };
            let body = self.look.paint(Tone::Faint, &format!("{bar}{}", line.trim_end_matches('\n')));
            inside = !line.ends_with('\n');
            self.put(Channel::Note, if inside { body } else { format!("{body}\n") });
        }
        self.open = inside.then_some(Open::Output(call));
    }

    fn other(&mut self, event: &Event) {
        match (self.detail, told(event)) {
            (Detail::Story, Some(_)) if turn_tells_it(event) => {}
            (Detail::Story, Some((tone, line))) => self.note(tone, &line),
            (Detail::Log, Some((_, line))) => self.log_line(event, &line),
            (Detail::Log, None) => self.log_line(event, &background(event)),
            (Detail::Story, None) => {}
        }
    }

    fn log_line(&mut self, event: &Event, line: &str) {
        self.note(Tone::Faint, &format!("{:>5}  {}  {line}", event.seq, event.wire_type));
    }
}

/// What is worth telling to somebody who asked; `None` for what goes on behind.
fn told(event: &Event) -> Option<(Tone, String)> {
    let data = &event.data;
    let name = text(data, "name");
    Some(match event.wire_type.as_str() {
        "tool_call_started" => (Tone::Name, format!("→ {name}  {}", subject(data))),
        "tool_call_completed" => completed(data),
        "approval_requested" => (Tone::Ask, format!("? {name} needs a yes:  {}", subject(data))),
        "approval_granted" => (Tone::Good, format!("  {name}: approved ({}){}", text(data, "scope"), reason(data))),
        "approval_denied" => (Tone::Bad, format!("  {name}: denied{}", reason(data))),
        "approval_expired" => (Tone::Bad, format!("  {name}: nobody answered in time")),
        "model_attempt_failed" => (Tone::Bad, attempt_failed(data)),
        "turn_interrupted" => (Tone::Bad, interrupted(data)),
        "turn_resumed" => (Tone::Good, "The turn goes on.".into()),
        "turn_failed" => (Tone::Bad, format!("The turn failed: {} ({})", text(data, "message"), text(data, "code"))),
        "turn_canceled" => (Tone::Bad, format!("The turn was canceled{}{}", reason(data), left(data))),
        "turn_expired" => (Tone::Bad, format!("The turn ended at its budget: {}", breach(data))),
        "budget_reached" => (Tone::Ask, format!("A budget is used up: {}. Raise it to go on.", breach(data))),
        "budget_raised" => (Tone::Good, "The budget was raised.".into()),
        "cancel_requested" => (Tone::Faint, "Canceling…".into()),
        "compaction_started" => (Tone::Faint, compaction_started(data)),
        "context_compacted" => (Tone::Faint, compacted(data)),
        "compaction_failed" => (Tone::Bad, not_compacted(data)),
        "event_lost" => (Tone::Bad, format!("This event was lost to damage: {}", text(data, "reason"))),
        "log_damaged" => (Tone::Bad, unreadable(data)),
        "stream_reset" => (Tone::Faint, "Streamed fragments are gone; whole texts follow.".into()),
        "turn_completed" => return verification(data),
        _ => return None,
    })
}

fn compaction_started(data: &Value) -> String {
    let why = match text(data, "trigger") {
        "asked" => "The older part of the conversation is summarized",
        "overflow" => "The conversation is too long for the model: its older part is summarized",
        _ => "The conversation fills the model's window: its older part is summarized",
    };
    let tokens = data["tokens"].as_u64().map(|tokens| format!(" ({tokens} tokens)")).unwrap_or_default();
    let waits = if data["blocking"] == true { "; the turn waits for it" } else { "" };
    format!("{why}{tokens}{waits}…")
}

fn compacted(data: &Value) -> String {
    let (before, after) = (number(data, "tokens_before"), number(data, "tokens_after"));
    let cost = money(data["cost_micro_usd"].as_u64());
    format!("Summarized: {before} tokens became {after}, {cost}. The log keeps everything.")
}

fn not_compacted(data: &Value) -> String {
    let again = if data["retry_at"].is_null() { "" } else { "; it is tried again" };
    format!("The conversation could not be summarized: {}{again}", text(&data["reason"], "message"))
}

fn unreadable(data: &Value) -> String {
    format!(
        "The log is damaged; from event {} on it cannot be read: {}",
        number(data, "from_seq"),
        text(data, "reason")
    )
}

/// What the log view says of the other events.
fn background(event: &Event) -> String {
    let data = &event.data;
    match event.wire_type.as_str() {
        "session_created" => text(&data["settings"], "workspace_path").to_owned(),
        "session_updated" => changes(data).join(", "),
        "session_forked" => forked(data),
        "session_expired" => format!("nothing happened for {}", span(number(data, "idle_ms"))),
        "attachment_added" => text(data, "ref").to_owned(),
        "message_delivered" => format!("{} in step {}", text(data, "message_id"), number(data, "step")),
        "message_added" => format!("{}: {}", text(data, "role"), text(&data["parts"][0], "text")),
        "turn_started" => text(data, "model").to_owned(),
        "turn_completed" => "nothing to verify".into(),
        "session_completed" | "session_canceled" => text(data, "reason").to_owned(),
        "session_failed" => text(data, "message").to_owned(),
        _ => String::new(),
    }
}

/// What a session was given.
fn changes(data: &Value) -> Vec<String> {
    let words = [("title", "title"), ("model", "model"), ("workspace_path", "workspace")];
    let said = |(field, name): (&str, &str)| data[field].as_str().map(|value| format!("{name}: {value}"));
    let mut all: Vec<String> = words.into_iter().filter_map(said).collect();
    if let Some(labels) = data["labels"].as_array() {
        let labels: Vec<&str> = labels.iter().filter_map(Value::as_str).collect();
        all.push(if labels.is_empty() { "no labels".into() } else { format!("labels: {}", labels.join(" ")) });
    }
    if data["policy"].is_object() {
        all.push("another policy".into());
    }
    all
}

fn forked(data: &Value) -> String {
    let from = format!("from {} at event {}", text(data, "from"), number(data, "at_seq"));
    std::iter::once(from).chain(changes(data)).collect::<Vec<_>>().join(", ")
}

fn completed(data: &Value) -> (Tone, String) {
    let name = text(data, "name");
    let took = span(number(data, "duration_ms"));
    match (text(data, "outcome"), data["ok"].as_bool()) {
        ("finished", Some(true)) => (Tone::Good, format!("✓ {name}  {took}{}", changed_lines(data))),
        ("finished", _) => (Tone::Bad, format!("✗ {name}  {took}  {}", text(data, "error"))),
        ("unknown", _) => (Tone::Ask, format!("? {name}  whether it took effect is unknown; it was not run again")),
        ("canceled", _) => (Tone::Bad, format!("✗ {name}  canceled")),
        _ => {
            let why = text(data, "error");
            (Tone::Bad, format!("✗ {name}  not run: {}", why.strip_prefix("not run: ").unwrap_or(why)))
        }
    }
}

/// How many lines came and went in all files that a call changed, where that is known.
fn changed_lines(data: &Value) -> String {
    let files = data["detail"]["files"].as_array().map(Vec::as_slice).unwrap_or_default();
    let sum = |field: &str| files.iter().map(|file| file[field].as_u64()).sum::<Option<u64>>();
    match (sum("added"), sum("removed")) {
        (Some(added), Some(removed)) if added + removed > 0 => format!("  +{added} -{removed}"),
        _ => String::new(),
    }
}

/// What a call is about, in a few words: its command, path or files.
pub fn subject(data: &Value) -> String {
    let input = &data["input"];
    if let Some(commands) = input["commands"].as_array() {
        return commands.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" && ");
    }
    if let Some(patch) = input["patch"].as_str() {
        let files = patch.lines().filter_map(|line| line.strip_prefix("+++ "));
        return files.map(|file| file.strip_prefix("b/").unwrap_or(file)).collect::<Vec<_>>().join(", ");
    }
    for field in ["command", "path", "url"] {
        if let Some(found) = input[field].as_str() {
            return found.to_owned();
        }
    }
    let subject = text(data, "subject");
    if subject.is_empty() { input.to_string() } else { subject.to_owned() }
}

fn model_line(data: &Value) -> String {
    let usage = &data["usage"];
    let (input, output) = (number(usage, "input_tokens"), number(usage, "output_tokens"));
    format!("{}  {input} tokens in, {output} out, {}", text(data, "model"), money(data["cost_micro_usd"].as_u64()))
}

fn attempt_failed(data: &Value) -> String {
    let kind = text(&data["reason"], "kind");
    format!("The model's answer was cut ({kind}): {}", text(&data["reason"], "message"))
}

/// A failed attempt that is not tried again ends the turn, and its end tells why.
fn turn_tells_it(event: &Event) -> bool {
    let (data, kind) = (&event.data, text(&event.data["reason"], "kind"));
    event.wire_type == "model_attempt_failed" && data["retry_at"].is_null() && kind != "interrupted"
}

fn interrupted(data: &Value) -> String {
    let calls = data["calls"].as_array().map(Vec::as_slice).unwrap_or_default();
    let classed: Vec<String> =
        calls.iter().map(|call| format!("{}: {}", text(call, "name"), class(text(call, "class")))).collect();
    match classed.is_empty() {
        true => "The daemon was stopped in the middle of this turn.".into(),
        false => format!("The daemon was stopped in the middle of this turn. {}", classed.join(", ")),
    }
}

/// A call's class after a crash, in words.
pub fn class(class: &str) -> &str {
    match class {
        "not_started" => "not started",
        other => other,
    }
}

fn verification(data: &Value) -> Option<(Tone, String)> {
    match text(data, "verification") {
        "passed" => Some((Tone::Good, "Verified.".into())),
        "skipped" => Some((Tone::Ask, "Not verified: no command to verify with was found.".into())),
        "denied" => Some((Tone::Ask, "Not verified: running the commands was not allowed.".into())),
        _ => None,
    }
}

fn breach(data: &Value) -> String {
    let reached = &data["reached"];
    format!("{} {} of {}", text(reached, "budget"), number(reached, "used"), number(reached, "limit"))
}

fn reason(data: &Value) -> String {
    match text(data, "reason") {
        "" => String::new(),
        reason => format!(": {reason}"),
    }
}

fn left(data: &Value) -> String {
    let names: Vec<&str> = data["left"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if names.is_empty() { String::new() } else { format!("; still there: {}", names.join(", ")) }
}

fn text<'d>(data: &'d Value, field: &str) -> &'d str {
    data[field].as_str().unwrap_or_default()
}

fn number(data: &Value, field: &str) -> u64 {
    data[field].as_u64().unwrap_or_default()
}

#[cfg(test)]
mod tests;

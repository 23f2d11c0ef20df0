//! Shows a session's events as text: answers as they stream, calls, approvals and results as short lines. It decides nothing and asks nothing.

mod look;
mod question;

pub use look::{Look, Paint, Raw, Tone, columns, cut, cut_front, dollars, money, paid, span, tamed};
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
    answered: Answered,
    /// Why the last attempt failed, as it was told: the same is not told twice.
    failed: String,
    pieces: Vec<Piece>,
}

/// When an answer's text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// As it comes, also where it is abandoned afterwards.
    Live,
    /// Once it is whole: what is abandoned is never shown.
    Whole,
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
        Self {
            answers: look,
            look,
            detail,
            open: None,
            shown: Shown::default(),
            answered: Answered::Live,
            failed: String::new(),
            pieces: vec![],
        }
    }

    pub fn answered(mut self, answered: Answered) -> Self {
        self.answered = answered;
        self
    }

    /// For when notes go to another place than answers.
    pub fn notes(mut self, look: Look) -> Self {
        self.look = look;
        self
    }

    /// What to write for one event.
    pub fn event(&mut self, event: &Event) -> Vec<Piece> {
        match event.wire_type.as_str() {
            "model_output_delta" if self.answered == Answered::Whole => {}
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

    /// What went wrong or asks for something is told in full, since its end says what to do. Other lines are cut, and so
    /// are those that begin with a mark.
    fn note(&mut self, tone: Tone, text: &str) {
        self.close();
        let line = match tone {
            Tone::Bad | Tone::Ask if !text.starts_with('?') => self.look.folded(&tamed(&text.replace('\n', "⏎"))),
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
        self.failed.clear();
        let stop = stopped(&event.data);
        match self.detail {
            Detail::Log => {
                let stop = stop.map(|stop| format!("  {stop}")).unwrap_or_default();
                self.log_line(event, &format!("{}{stop}", model_line(&event.data)));
            }
            Detail::Story => stop.into_iter().for_each(|stop| self.note(Tone::Bad, stop)),
        }
    }

    /// An attempt that is made again. In an outage the same is told once, and then only when the next attempt is made.
    fn attempt_failed(&mut self, event: &Event) {
        let (data, reason) = (&event.data, &event.data["reason"]);
        let (kind, message) = (text(reason, "kind"), text(reason, "message"));
        let is_seen = self.open == Some(Open::Answer) || !text(data, "text").is_empty();
        let begun = is_seen || !text(data, "thinking").is_empty();
        let what = match (kind, begun) {
            ("schema_mismatch", _) => "The model's answer does not fit",
            ("interrupted" | "canceled", _) | (_, true) => "The model's answer was cut",
            _ => "The model did not answer",
        };
        let lost = if is_seen && self.answered == Answered::Live { " What was said of it does not count." } else { "" };
        let told = format!("{what} ({kind}): {}", full_stop(message));
        let again = trying_again(event);
        let line = match told == self.failed && lost.is_empty() && !again.is_empty() {
            true => format!("The same once more ({kind}).{again}"),
            false => format!("{told}{lost}{again}"),
        };
        self.failed = told;
        self.note(Tone::Bad, &line);
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
            (Detail::Story, _) if event.wire_type == "model_attempt_failed" => self.attempt_failed(event),
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
        "review_started" => (Tone::Faint, format!("  {name}: a model looks at the change…")),
        "review_completed" => reviewed(data),
        "review_failed" => (Tone::Bad, not_reviewed(data)),
        "model_attempt_failed" => (Tone::Bad, attempt_failed(event)),
        "turn_interrupted" => (Tone::Bad, interrupted(data)),
        "turn_resumed" => (Tone::Good, "The turn goes on.".into()),
        "turn_failed" => (Tone::Bad, format!("The turn failed: {} ({})", text(data, "message"), text(data, "code"))),
        "turn_canceled" => (Tone::Bad, format!("The turn was canceled{}{}", reason(data), left(data))),
        "turn_expired" => (Tone::Bad, expired(event)),
        "budget_reached" => (Tone::Ask, format!("A budget is used up: {}. {}", breach(data), raising(event))),
        "budget_raised" => (Tone::Good, "The budget was raised.".into()),
        "cancel_requested" => (Tone::Faint, "Canceling…".into()),
        "compaction_started" => (Tone::Faint, compaction_started(data)),
        "context_compacted" => (Tone::Faint, compacted(data)),
        "compaction_failed" => (Tone::Bad, not_compacted(data)),
        "undo_requested" => (Tone::Faint, format!("Taking back the changes of {}…", text(data, "turn_id"))),
        "workspace_restored" => undone(data),
        "event_lost" => (Tone::Bad, format!("This event was lost to damage: {}", text(data, "reason"))),
        "log_damaged" => (Tone::Bad, unreadable(data)),
        "stream_reset" => (Tone::Faint, "Streamed fragments are gone; whole texts follow.".into()),
        "turn_completed" => return verification(data),
        _ => return None,
    })
}

fn reviewed(data: &Value) -> (Tone, String) {
    let (name, why) = (text(data, "name"), text(data, "reason"));
    match text(data, "verdict") {
        "approve" => (Tone::Good, format!("  {name}: the review approves it: {why}")),
        _ => (Tone::Bad, format!("  {name}: the review sends it back: {why}")),
    }
}

fn not_reviewed(data: &Value) -> String {
    let again = if data["retry_at"].is_null() { "" } else { "; it is tried again" };
    format!("The change could not be reviewed: {}{again}", text(&data["reason"], "message"))
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

/// In one line; `session undo` names every file.
fn undone(data: &Value) -> (Tone, String) {
    let count = |field: &str| data[field].as_array().map_or(0, Vec::len);
    let files = |count: usize| format!("{count} file{}", if count == 1 { "" } else { "s" });
    let first = &data["refused"][0];
    match text(data, "outcome") {
        "restored" => {
            let commands = match count("not_undone") {
                0 => String::new(),
                others => format!("; {} that changed meanwhile were left", files(others)),
            };
            (Tone::Good, format!("Taken back: {} as before the turn{commands}", files(count("restored"))))
        }
        "refused" => {
            let told = format!("{}: {}", text(first, "path"), text(first, "why"));
            (Tone::Bad, format!("Nothing was taken back. {} in the way; {told}", files(count("refused"))))
        }
        _ => (Tone::Bad, format!("Whether it was taken back is unknown for {}; look at them", files(count("refused")))),
    }
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
        "checkpoint_created" => format!("{} files can be taken back", data["files"].as_array().map_or(0, Vec::len)),
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
        return patch.lines().filter_map(patched).collect::<Vec<_>>().join(", ");
    }
    for field in ["command", "path", "url"] {
        if let Some(found) = input[field].as_str() {
            return found.to_owned();
        }
    }
    let subject = text(data, "subject");
    if subject.is_empty() { input.to_string() } else { subject.to_owned() }
}

/// The file that a line of a patch names, in either format.
fn patched(line: &str) -> Option<&str> {
    let diffed = line.strip_prefix("+++ ").map(|file| file.strip_prefix("b/").unwrap_or(file));
    let headers = ["*** Add File: ", "*** Update File: ", "*** Delete File: "];
    diffed.or_else(|| headers.iter().find_map(|header| line.strip_prefix(header)))
}

fn model_line(data: &Value) -> String {
    let usage = &data["usage"];
    let of = |field| number(usage, field);
    let input = tokens_in(of("input_tokens"), of("cache_read_tokens"), of("cache_write_tokens"));
    let cost = money(data["cost_micro_usd"].as_u64());
    format!("{}  tokens {input}, {} out, {cost}", text(data, "model"), of("output_tokens"))
}

/// All tokens that a vendor was sent, with how many of them went through its cache.
pub fn tokens_in(fresh: u64, read: u64, written: u64) -> String {
    let all = fresh.saturating_add(read).saturating_add(written);
    let parts = [(read, "read from cache"), (written, "written to cache")];
    let cached: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    match cached.is_empty() {
        true => format!("{all} in"),
        false => format!("{all} in ({})", cached.join(", ")),
    }
}

/// Why an answer is not what was asked for, though it came to its end.
fn stopped(data: &Value) -> Option<&'static str> {
    let calls = data["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty());
    match text(data, "stop_reason") {
        "max_tokens" => Some("The answer was cut: the model reached its output limit."),
        "refusal" => Some("The model refused to answer, or its vendor's filter stopped the answer."),
        _ if text(data, "text").trim().is_empty() && !calls => Some("The model answered with nothing."),
        "other" => Some("The model stopped for a reason that is not known here: its answer may not be whole."),
        _ => None,
    }
}

fn attempt_failed(event: &Event) -> String {
    let reason = &event.data["reason"];
    let told = format!("{}: {}", text(reason, "kind"), full_stop(text(reason, "message")));
    format!("{told}{}", trying_again(event))
}

fn full_stop(sentence: &str) -> String {
    let sentence = sentence.trim_end();
    if sentence.ends_with(['.', '!', '?']) { sentence.to_owned() } else { format!("{sentence}.") }
}

/// When it is tried again, counted from the failure.
fn trying_again(event: &Event) -> String {
    let at = |time: &str| time.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond);
    let Some(retry_at) = event.data["retry_at"].as_str() else { return String::new() };
    let wait = at(retry_at).zip(at(&event.ts)).and_then(|(then, now)| u64::try_from(then - now).ok());
    match wait {
        Some(ms) if ms >= 60_000 => format!(" Trying again in {}.", span(ms)),
        Some(ms) if ms >= 500 => format!(" Trying again in {} s.", (ms + 500) / 1000),
        _ => " Trying again.".into(),
    }
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

/// What a limit is of, and what a command line calls it.
pub const LIMITS: [(&str, &str); 5] = [
    ("steps", "--max-steps"),
    ("tool_calls", "--max-calls"),
    ("duration", "--max-time"),
    ("tokens", "--max-tokens"),
    ("money", "--max-cost"),
];

/// A limit in its own units: `$0.034 of $0.03`.
pub fn of_limit(budget: &str, used: u64, limit: u64) -> String {
    match budget {
        "money" => format!("{} of {}", dollars(used), dollars(limit)),
        "duration" => format!("{} of {}", span(used), span(limit)),
        "tool_calls" => format!("{used} of {limit} tool calls"),
        what => format!("{used} of {limit} {what}"),
    }
}

fn breach(data: &Value) -> String {
    let reached = &data["reached"];
    of_limit(text(reached, "budget"), number(reached, "used"), number(reached, "limit"))
}

fn expired(event: &Event) -> String {
    let ended = format!("The turn ended at its budget: {}.", breach(&event.data));
    format!("{ended} With a higher one it runs again: tenure session retry {}", event.session_id)
}

/// The command that lets a turn go on.
fn raising(event: &Event) -> String {
    let budget = text(&event.data["reached"], "budget");
    let flag = LIMITS.iter().find(|(known, _)| *known == budget).map_or("--max-…", |(_, flag)| flag);
    format!("To raise it: tenure session change {} {flag} MORE", event.session_id)
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

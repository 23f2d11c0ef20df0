//! What the demo saw, and whether the promises held. Every line of the summary is checked, not told.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tenure_client::{
    Item,
    print::{Look, Tone, class},
};
use tenure_wire::Event;

/// Everything a stream gave, in order.
#[derive(Default)]
pub struct Seen {
    events: Vec<Event>,
    /// The numbered ones as they came, byte for byte.
    numbered: Vec<(u64, String)>,
    cursors: Vec<String>,
    cut: Option<String>,
    connections: u32,
}

/// One streamed answer: turn, step, attempt.
type Attempt = (String, u64, u64);

impl Seen {
    pub fn push(&mut self, item: &Item) -> anyhow::Result<Event> {
        let event: Event = serde_json::from_str(&item.json)?;
        if event.pos.is_none() {
            self.numbered.push((event.seq, item.json.clone()));
        }
        self.cursors.push(item.cursor.clone());
        self.events.push(event.clone());
        Ok(event)
    }

    /// Notes where the stream stood when the daemon died.
    pub fn cut_at(&mut self, cursor: String) {
        self.cut = Some(cursor);
    }

    pub fn connections(&mut self, count: u32) {
        self.connections = count;
    }

    fn of_type<'a>(&'a self, wire_type: &'a str) -> impl Iterator<Item = &'a Event> {
        self.events.iter().filter(move |event| event.wire_type == wire_type)
    }

    fn deltas(&self) -> usize {
        self.events.len() - self.numbered.len()
    }

    /// Numbered 1, 2, 3 … without a gap or a repeat, and no cursor twice.
    fn is_whole(&self) -> bool {
        let in_order = self.numbered.iter().zip(1..).all(|((seq, _), expected)| *seq == expected);
        let unique: BTreeSet<&String> = self.cursors.iter().collect();
        in_order && !self.numbered.is_empty() && unique.len() == self.cursors.len()
    }

    /// The joined fragments of each attempt.
    fn streamed(&self) -> BTreeMap<Attempt, String> {
        let mut texts: BTreeMap<Attempt, String> = BTreeMap::new();
        for event in self.of_type("model_output_delta") {
            let text = event.data["text"].as_str().unwrap_or_default();
            texts.entry(attempt(event)).or_default().push_str(text);
        }
        texts
    }

    /// How many answers were recorded, and whether each equals what was streamed of it.
    fn texts_agree(&self) -> (usize, bool) {
        let streamed = self.streamed();
        let recorded: Vec<&Event> =
            self.of_type("model_output_completed").chain(self.of_type("model_attempt_failed")).collect();
        let agree = recorded.iter().all(|event| {
            let whole = event.data["text"].as_str().unwrap_or_default();
            streamed.get(&attempt(event)).map_or("", String::as_str) == whole
        });
        (recorded.len(), agree)
    }

    /// Each call of the step that the crash cut, with its class.
    pub fn classes(&self) -> Vec<(String, String)> {
        let Some(cut) = self.events.iter().position(|event| event.wire_type == "turn_interrupted") else {
            return vec![];
        };
        let before = &self.events[..cut];
        let Some(step) = before.iter().rfind(|event| event.wire_type == "model_output_completed") else {
            return vec![];
        };
        let calls = step.data["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
        calls.iter().map(|call| (called(call), self.class_of(&call["id"], before, &self.events[cut]))).collect()
    }

    fn class_of(&self, id: &Value, before: &[Event], interrupted: &Event) -> String {
        let finished = |event: &Event| event.wire_type == "tool_call_completed" && event.data["tool_call_id"] == *id;
        if before.iter().any(finished) {
            return "finished".into();
        }
        let classed = interrupted.data["calls"].as_array().into_iter().flatten();
        let found = classed.into_iter().find(|call| call["tool_call_id"] == *id);
        found.and_then(|call| call["class"].as_str()).unwrap_or("not_started").to_owned()
    }

    /// Whether each run of the verification went well.
    fn verifications(&self) -> Vec<bool> {
        let runs = self.of_type("tool_call_completed").filter(|event| event.data["origin"] == "verify_policy");
        runs.map(|event| event.data["ok"] == true).collect()
    }

    fn starts_of(&self, name: &str) -> usize {
        self.of_type("tool_call_started").filter(|event| event.data["name"] == *name).count()
    }
}

fn attempt(event: &Event) -> Attempt {
    let number = |field: &str| event.data[field].as_u64().unwrap_or_default();
    (event.turn_id.clone().unwrap_or_default(), number("step"), number("attempt"))
}

fn called(call: &Value) -> String {
    format!("{} {}", call["name"].as_str().unwrap_or_default(), tenure_client::print::subject(call))
}

struct Check {
    what: String,
    is_good: bool,
}

pub struct Report {
    checks: Vec<Check>,
    events: usize,
    deltas: usize,
    turns: usize,
    cut: Option<String>,
    classes: Vec<(String, String)>,
    session: String,
    folder: PathBuf,
    data: PathBuf,
    repo: PathBuf,
    log: PathBuf,
}

impl Report {
    #[expect(clippy::too_many_arguments, reason = "it is put together in one place, from what the story holds")]
    pub fn of(
        seen: &Seen,
        history: &Seen,
        releases: &str,
        session: String,
        folder: PathBuf,
        data: PathBuf,
        repo: PathBuf,
        log: PathBuf,
    ) -> Self {
        Self {
            checks: checks(seen, history, releases),
            events: seen.numbered.len(),
            deltas: seen.deltas(),
            turns: seen.of_type("turn_started").count(),
            cut: seen.cut.clone(),
            classes: seen.classes(),
            session,
            folder,
            data,
            repo,
            log,
        }
    }

    pub fn is_good(&self) -> bool {
        self.checks.iter().all(|check| check.is_good)
    }

    pub fn to_json(&self) -> Value {
        let checks = self.checks.iter().map(|check| json!({"check": check.what, "ok": check.is_good}));
        let classes = self.classes.iter().map(|(call, class)| json!({"call": call, "class": class}));
        json!({
            "ok": self.is_good(),
            "checks": checks.collect::<Vec<_>>(),
            "events": self.events,
            "deltas": self.deltas,
            "turns": self.turns,
            "cut_at": self.cut,
            "calls": classes.collect::<Vec<_>>(),
            "session_id": self.session,
            "data": self.data,
            "repository": self.repo,
            "log": self.log,
        })
    }

    pub fn to_text(&self, look: Look, stays: bool) -> String {
        let mut lines = vec![String::new(), look.paint(Tone::Ask, "── What was seen, and checked")];
        for check in &self.checks {
            let (sign, tone) = if check.is_good { ("✓", Tone::Good) } else { ("✗", Tone::Bad) };
            lines.push(format!("{} {}", look.paint(tone, sign), check.what));
        }
        lines.push(format!(
            "  {} turn, {} numbered events, {} streamed fragments",
            self.turns, self.events, self.deltas
        ));
        let cut = self.cut.as_deref().unwrap_or("?");
        let classes: Vec<String> = self.classes.iter().map(|(call, kind)| format!("{call}: {}", class(kind))).collect();
        lines.push(format!("  The crash cut the stream at {cut}. Calls of that step: {}.", classes.join("; ")));
        if stays {
            lines.extend(self.next_steps(look));
        }
        lines.join("\n")
    }

    fn next_steps(&self, look: Look) -> Vec<String> {
        let tenure = program();
        let data = self.data.display();
        let session = &self.session;
        vec![
            format!("  The log: {}", self.log.display()),
            String::new(),
            look.paint(Tone::Ask, "── To go on"),
            format!("{tenure} --data {data} session events {session}"),
            format!("{tenure} --data {data} ask --session {session} \"hello again\""),
            format!("git -C {} diff", self.repo.display()),
            format!("rm -r {}      # when you have seen enough", self.folder.display()),
            format!("{tenure} serve    # your own daemon, on 127.0.0.1:8787"),
        ]
    }
}

fn checks(seen: &Seen, history: &Seen, releases: &str) -> Vec<Check> {
    let (answers, agree) = seen.texts_agree();
    let released = releases.lines().count();
    let check = |what: String, is_good: bool| Check { what, is_good };
    let count = seen.numbered.len();
    let completed = seen.of_type("turn_completed").any(|event| event.data["verification"] == "passed");
    vec![
        check(format!("events 1 to {count} came once each, in order, across the crash"), seen.is_whole()),
        check(
            format!("the stream was cut and went on by itself ({} connections)", seen.connections),
            seen.connections >= 2 && seen.cut.is_some(),
        ),
        check(
            format!("what streamed equals what was recorded, byte for byte ({answers} answers)"),
            agree && answers > 0,
        ),
        check("a fresh reader gets the very same events".into(), history.numbered == seen.numbered),
        check(
            format!("the release ran once: releases.log has {released} line"),
            released == 1 && seen.starts_of("shell") == 1,
        ),
        check(
            "verification failed once, was mended and passed; the turn is completed".into(),
            completed && seen.verifications() == [false, true],
        ),
    ]
}

/// How this program can be called from here.
fn program() -> String {
    let Ok(own) = std::env::current_exe() else { return "tenure".into() };
    let on_path = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join("tenure").canonicalize().is_ok_and(|found| found == own))
    });
    if on_path {
        return "tenure".into();
    }
    let here = std::env::current_dir().ok();
    let nearby = here.as_deref().and_then(|here| own.strip_prefix(here).ok()).map(Path::to_owned);
    nearby.unwrap_or(own).display().to_string()
}

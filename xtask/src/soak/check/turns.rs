//! Every turn is settled once, every call has one result, every approval one answer, every end is the last event.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::atomic::Ordering,
};

use serde_json::Value;

use super::{Fresh, text};
use crate::soak::{
    book::{Book, lock},
    world::{World, add},
};

const SETTLING: [&str; 4] = ["turn_completed", "turn_failed", "turn_canceled", "turn_expired"];

pub fn check(world: &World, book: &Book, fresh: &Fresh) {
    count_kinds(world, fresh);
    settled_once(world, book, fresh);
    answered_once(world, book, fresh);
    one_result_each(world, book, fresh);
    delivered(world, book, fresh);
    queue_moves(world, book, fresh);
    ended(world, book, fresh);
}

fn count_kinds(world: &World, fresh: &Fresh) {
    for event in &fresh.events {
        let (kind, data) = (text(&event["type"]), &event["data"]);
        let more = match kind {
            "tool_call_completed" => text(&data["outcome"]),
            "turn_failed" => text(&data["code"]),
            "turn_completed" => text(&data["verification"]),
            "turn_resumed" if data["automatic"] == true => "automatic",
            _ => "",
        };
        world.count_kind(format!("{kind} {more}").trim_end().to_owned());
    }
}

fn settled_once(world: &World, book: &Book, fresh: &Fresh) {
    let mut turns: BTreeMap<&str, usize> = BTreeMap::new();
    for (event, _) in fresh.of(&["turn_started", "turn_queued"]) {
        turns.entry(text(&event["turn_id"])).or_default();
    }
    for (event, _) in fresh.of(&SETTLING) {
        *turns.entry(text(&event["turn_id"])).or_default() += 1;
    }
    add(&world.counts.settled, turns.len());
    for (turn, times) in turns {
        world.check(times == 1, || format!("{}: {turn} was settled {times} times", book.session));
    }
}

fn answered_once(world: &World, book: &Book, fresh: &Fresh) {
    let mut answers: HashMap<&str, Vec<&str>> = HashMap::new();
    for (event, data) in fresh.of(&["approval_granted", "approval_denied", "approval_expired"]) {
        answers.entry(text(&data["tool_call_id"])).or_default().push(text(&event["type"]));
    }
    for (call, answers) in &answers {
        world.check(answers.len() == 1, || format!("{}: {call} was answered {answers:?}", book.session));
    }
    for command in lock(&book.sent).iter().filter(|command| command.path.ends_with("/approve")) {
        let call = text(&command.body["tool_call_id"]);
        let promised = if command.body["action"] == "approve" { "approval_granted" } else { "approval_denied" };
        let found = answers.get(call).and_then(|answers| answers.first());
        world.check(found == Some(&promised), || {
            format!("{}: {} was taken for {call}, the log says {found:?}", book.session, command.body)
        });
    }
}

fn one_result_each(world: &World, book: &Book, fresh: &Fresh) {
    let mut results: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, data) in fresh.of(&["model_output_completed"]) {
        for call in data["tool_calls"].as_array().into_iter().flatten() {
            results.entry(text(&call["id"])).or_default();
        }
    }
    let mut started: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, data) in fresh.of(&["tool_call_started"]) {
        results.entry(text(&data["tool_call_id"])).or_default();
        if data["kind"] == "exec" {
            *started.entry(text(&data["tool_call_id"])).or_default() += 1;
        }
    }
    for (_, data) in fresh.of(&["tool_call_completed"]) {
        *results.entry(text(&data["tool_call_id"])).or_default() += 1;
    }
    for (call, times) in results {
        world.check(times == 1, || format!("{}: {call} has {times} results", book.session));
    }
    for (call, times) in started {
        world.check(times == 1, || format!("{}: the command {call} was started {times} times", book.session));
    }
}

/// Every message reached a turn. One that steered a turn that was cut waits for the next message, which takes it along.
fn delivered(world: &World, book: &Book, fresh: &Fresh) {
    let begun: HashMap<&str, &str> = fresh
        .of(&["turn_started", "turn_queued"])
        .flat_map(|(event, data)| {
            data["messages"].as_array().into_iter().flatten().map(move |message| (event, message))
        })
        .map(|(event, message)| (text(&message["id"]), text(&event["turn_id"])))
        .collect();
    let steered: HashSet<&str> = fresh.of(&["message_delivered"]).map(|(_, data)| text(&data["message_id"])).collect();
    let settled: HashMap<&str, u64> =
        fresh.of(&SETTLING).map(|(event, _)| (text(&event["turn_id"]), event["seq"].as_u64().unwrap_or(0))).collect();
    let completed: HashSet<&str> = fresh.of(&["turn_completed"]).map(|(event, _)| text(&event["turn_id"])).collect();
    let seq = |event: &Value| event["seq"].as_u64().unwrap_or(0);
    let beginnings = || fresh.of(&["message_added"]).filter(|(_, data)| begun.contains_key(text(&data["message_id"])));
    for (event, data) in fresh.of(&["message_added"]) {
        let id = text(&data["message_id"]);
        let waits_since = settled.get(text(&event["turn_id"])).copied().unwrap_or(seq(event));
        let reached = begun.contains_key(id) || steered.contains(id);
        let late = data["delivery"] == "steer"
            && completed.contains(text(&event["turn_id"]))
            && begun.get(id) != Some(&text(&event["turn_id"]))
            && !steered.contains(id);
        world.check(!late, || format!("{}: {id} steered a turn that was completed without it: {event}", book.session));
        world.check(reached || !beginnings().any(|(later, _)| seq(later) > waits_since), || {
            format!("{}: {id} was acknowledged and no turn ever got it: {event}", book.session)
        });
    }
}

/// Where turns wait, the end of one is at once the start of the next, or the end of those that wait.
fn queue_moves(world: &World, book: &Book, fresh: &Fresh) {
    let mut waiting: Vec<&str> = Vec::new();
    for (at, event) in fresh.events.iter().enumerate() {
        let (kind, turn) = (text(&event["type"]), text(&event["turn_id"]));
        match kind {
            "turn_queued" => waiting.push(turn),
            "turn_started" => waiting.retain(|queued| *queued != turn),
            _ if SETTLING.contains(&kind) => {
                let was_open = !waiting.contains(&turn);
                waiting.retain(|queued| *queued != turn);
                let next = fresh.events.get(at + 1).map_or("nothing", |next| text(&next["type"]));
                let moves = ["turn_started", "turn_canceled", "session_canceled", "session_completed"].contains(&next);
                world.check(!was_open || waiting.is_empty() || moves, || {
                    format!("{}: {turn} was settled, {waiting:?} wait, and {next} follows", book.session)
                });
            }
            _ => {}
        }
    }
}

fn ended(world: &World, book: &Book, fresh: &Fresh) {
    let ends = fresh.of(&["session_completed", "session_canceled", "session_failed", "session_expired"]).count();
    let wanted = usize::from(book.ended.load(Ordering::Relaxed));
    let last = fresh.events.last().map_or("", |event| text(&event["type"]));
    world.check(ends == wanted && (wanted == 0 || last.starts_with("session_")), || {
        format!("{}: ended {ends} times where {wanted} was asked for; its last event is {last}", book.session)
    });
}

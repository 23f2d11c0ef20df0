//! Sends commands as a careful client does: each with a key, sent again under the same key until it is answered, and recorded when it was taken.

use std::{
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    book::{Book, Sent, lock},
    chance::Chance,
    script,
    world::{World, add},
};
use crate::http::Answer;

const AGAIN_AFTER: Duration = Duration::from_millis(15);
/// A daemon that is killed every few seconds still answers within this time.
const ANSWER_MAX: Duration = Duration::from_secs(90);
/// What may be refused in a race between clients, or because a person was too late.
const RACES: [&str; 12] = [
    "already_answered",
    "not_waiting",
    "unknown_call",
    "no_open_turn",
    "turn_settled",
    "turn_open",
    "turn_completed",
    "not_interrupted",
    "session_ended",
    "queue_full",
    "nothing_to_send",
    "unknown_turn",
];

/// What became of a command.
#[derive(Debug, Clone)]
pub enum Told {
    Taken(Value),
    Refused,
    /// No answer came.
    Nothing,
}

/// Asks until there is an answer that does not say "later". `None`: none came in time, or the soak was interrupted.
pub fn answered(world: &World, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> Option<Answer> {
    let deadline = Instant::now() + ANSWER_MAX;
    loop {
        match world.setup.ask(method, path, key, body) {
            Ok(answer) if answer.status != 503 => return Some(answer),
            _ if world.is_interrupted() => return None,
            last if Instant::now() > deadline => {
                world.find(format!("{method} {path} was not answered within {ANSWER_MAX:?}: {last:?}"));
                return None;
            }
            _ => {
                add(&world.counts.resent, 1);
                thread::sleep(AGAIN_AFTER);
            }
        }
    }
}

/// One command to a session. A key is never used for a second command.
pub fn send(world: &World, book: &Book, below: &str, body: Value) -> Told {
    let key = format!("soak-{}", world.number());
    send_keyed(world, book, below, body, key)
}

fn send_keyed(world: &World, book: &Book, below: &str, body: Value, key: String) -> Told {
    let path = book.path(below);
    let Some(answer) = answered(world, "POST", &path, Some(&key), Some(&body)) else { return Told::Nothing };
    if answer.is_success() {
        add(&world.counts.commands, 1);
        let told = answer.json().unwrap_or_default();
        lock(&book.sent).push(Sent { method: "POST", path, key, body, answer });
        return Told::Taken(told);
    }
    add(&world.counts.refused, 1);
    let code = answer.json().ok().and_then(|problem| problem["code"].as_str().map(str::to_owned)).unwrap_or_default();
    if !RACES.contains(&&*code) {
        world.find(format!("{}: POST {path} {body} was refused with {answer}", book.session));
    }
    Told::Refused
}

/// The same command under the same key twice at one time: one answer for both.
pub fn send_twice(world: &World, book: &Book, below: &str, body: &Value) -> Told {
    let key = format!("soak-{}", world.number());
    let (first, second) = thread::scope(|scope| {
        let other = scope.spawn(|| answered(world, "POST", &book.path(below), Some(&key), Some(body)));
        let first = send_keyed(world, book, below, body.clone(), key.clone());
        (first, other.join().ok().flatten())
    });
    if let (Told::Taken(first), Some(second)) = (&first, second) {
        let same = second.is_success() && second.json().is_ok_and(|second| second == *first);
        world.check(same, || {
            format!("{}: {below} with key {key}, sent twice at once: {first} and {second}", book.session)
        });
    }
    first
}

/// Makes a session with a workspace of its own.
pub fn create(world: &World, chance: &mut Chance) -> Option<Book> {
    let number = world.number();
    let workspace = world.folder.join("workspaces").join(format!("w{number}"));
    if let Err(error) = script::furnish(&workspace) {
        world.find(format!("the workspace {} cannot be made: {error}", workspace.display()));
        return None;
    }
    let body = script::create_body(&world.scripts, &workspace, chance);
    let (path, key) = ("/v1/sessions".to_owned(), format!("soak-{number}"));
    let answer = answered(world, "POST", &path, Some(&key), Some(&body))?;
    let made = answer.json().ok().and_then(|made| made["session_id"].as_str().map(str::to_owned));
    let Some(session) = made else {
        world.find(format!("POST {path} {body} was refused with {answer}"));
        return None;
    };
    add(&world.counts.commands, 1);
    let created = Sent { method: "POST", path, key, body, answer };
    Some(Book::new(session, workspace, 4 + chance.below(16), created))
}

/// The session as it is now.
pub fn view(world: &World, book: &Book) -> Option<Value> {
    let answer = answered(world, "GET", &book.path(""), None, None)?;
    match answer.json() {
        Ok(view) if answer.is_success() => Some(view),
        _ => {
            world.find(format!("{}: GET was answered with {answer}", book.session));
            None
        }
    }
}

/// Ends a session; from then on it is only read.
pub fn end(world: &World, book: &Book) {
    if let Told::Taken(_) = send(world, book, "/end", json!({"reason": "it had its turns"})) {
        book.ended.store(true, Ordering::Release);
    }
}

/// Answers an approval.
pub fn approve(world: &World, book: &Book, call: &str, action: &str, scope: &str) -> Told {
    send(world, book, "/approve", json!({"tool_call_id": call, "action": action, "scope": scope}))
}

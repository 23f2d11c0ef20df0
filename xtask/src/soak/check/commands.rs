//! What clients were told is in the log: each acknowledged command once, none that nobody sent, and its key still gets its first answer.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use super::{Fresh, text};
use crate::soak::{
    book::{Book, Sent, lock},
    command::{answered, view},
    world::World,
};

/// Every so many keys one is also tried with another body.
const OTHER_BODY_EVERY: usize = 16;

pub fn check(world: &World, book: &Book, fresh: &Fresh) {
    let mut in_log: HashMap<(&str, &str), Vec<&Value>> = HashMap::new();
    for event in fresh.events.iter().filter(|event| !event["key"].is_null()) {
        in_log.entry((text(&event["key"]["endpoint"]), text(&event["key"]["key"]))).or_default().push(event);
    }
    let sent = lock(&book.sent);
    for command in sent.iter().filter(|command| command.path != "/v1/sessions") {
        let name = (endpoint(command), &*command.key);
        let events = in_log.remove(&name).unwrap_or_default();
        world.check(events.len() == 1, || {
            format!("{}: {} is in the log {} times: {command:?}", book.session, command.key, events.len())
        });
        if let Some(event) = events.first() {
            let (promised, found) =
                (ids_in(&command.answer.json().unwrap_or_default()), ids_in(&event["key"]["answer"]));
            world.check(promised.iter().all(|id| found.contains(id)), || {
                format!("{}: {} was answered {promised:?}, the log says {event}", book.session, command.key)
            });
        }
    }
    for (name, events) in in_log {
        world.find(format!("{}: {name:?} is in the log, but no client was ever told so: {events:?}", book.session));
    }
    messages(world, book, fresh, &sent);
}

/// The last word of a command's path is what its key is scoped to.
fn endpoint(sent: &Sent) -> &str {
    sent.path.rsplit('/').next().unwrap_or_default()
}

/// All ids in an answer, however deep.
fn ids_in(answer: &Value) -> HashSet<String> {
    match answer {
        Value::String(word) if ["msg_", "turn_", "call_"].iter().any(|kind| word.starts_with(kind)) => {
            HashSet::from([word.clone()])
        }
        Value::Object(fields) => fields.values().flat_map(ids_in).collect(),
        _ => HashSet::new(),
    }
}

/// As many messages as were acknowledged, and those.
fn messages(world: &World, book: &Book, fresh: &Fresh, sent: &[Sent]) {
    let taken = sent.iter().filter(|command| endpoint(command) == "messages");
    let mut promised: Vec<(String, String)> = taken
        .map(|command| {
            let id = command.answer.json().map(|answer| text(&answer["message_id"]).to_owned());
            (id.unwrap_or_default(), text(&command.body["parts"][0]["text"]).to_owned())
        })
        .collect();
    let mut found: Vec<(String, String)> = fresh
        .of(&["message_added"])
        .map(|(_, data)| (text(&data["message_id"]).to_owned(), text(&data["parts"][0]["text"]).to_owned()))
        .collect();
    promised.sort();
    found.sort();
    world.check(promised == found, || {
        format!("{}: messages acknowledged: {promised:?}, in the log: {found:?}", book.session)
    });
}

/// The same key and body get the first answer, another body is refused, and nothing happens.
pub fn repeat(world: &World, book: &Book, fresh: &Fresh) {
    let sent = lock(&book.sent).clone();
    for (number, command) in sent.iter().enumerate() {
        let again = |body: &Value| answered(world, command.method, &command.path, Some(&command.key), Some(body));
        let Some(answer) = again(&command.body) else { return };
        world.check(answer == command.answer, || {
            format!("{}: {} was answered {}, now {answer}", book.session, command.key, command.answer)
        });
        if number % OTHER_BODY_EVERY == 1 && endpoint(command) == "messages" {
            let Some(answer) = again(&json!({"parts": [{"type": "text", "text": "another body"}]})) else { return };
            let refused = answer.status == 409 && answer.json().is_ok_and(|problem| problem["code"] == "key_reused");
            world.check(refused, || format!("{}: {} with another body: {answer}", book.session, command.key));
        }
    }
    let last = fresh.events.last().map_or(0, |event| event["seq"].as_u64().unwrap_or(0));
    if let Some(view) = view(world, book) {
        world.check(view["seq"] == last, || {
            format!("{}: repeated commands moved it from {last} to {}", book.session, view["seq"])
        });
    }
}

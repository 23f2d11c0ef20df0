//! The schemas of the streams: one for each type of event, told apart by `type`, with an example that was really written.

use serde_json::{Map, Value, json};
use tenure_core::{
    command::KeyUse,
    delta::{Delta, Stream, WireDelta},
    event::{Actor, Body, Event},
    time::Timestamp,
};
use tenure_engine::is_of_status;
use tenure_wire as wire;

use super::{
    examples,
    schemas::{Place, Schemas, camel},
};

/// Logs that together have every type of event, as the store wrote them.
const LOGS: [&str; 4] = [
    include_str!("../../../../store/tests/golden/v1/events.ndjson"),
    include_str!("../../../../store/tests/golden/v1/undo.ndjson"),
    include_str!("../../../../store/tests/golden/v1/review.ndjson"),
    include_str!("../../../../store/tests/golden/v1/offers.ndjson"),
];

/// The numbered events of the logs, as a stream shows them: byte for byte.
pub(super) fn written() -> impl Iterator<Item = (Event, String)> {
    LOGS.iter().flat_map(|log| log.lines()).map(|line| {
        let event = Event::from_json(line).expect("a line of the log");
        let text = serde_json::to_string(&event).expect("an event");
        (event, text)
    })
}

pub(super) fn examples() -> Vec<Value> {
    written().map(|(_, text)| serde_json::from_str(&text).expect("JSON")).collect()
}

/// All schemas of events, by name.
pub(super) fn components(schemas: &mut Schemas) -> Map<String, Value> {
    let numbered = numbered(schemas);
    let deltas = deltas();
    let of_status = |name: &String| Body::WIRE_TYPES.iter().any(|known| is_of_status(known) && name_of(known) == *name);
    let feed: Vec<String> =
        numbered.keys().filter(|name| of_status(name)).cloned().chain(["FeedResetEvent".to_owned()]).collect();
    let all: Vec<String> = numbered
        .keys()
        .chain(deltas.keys())
        .cloned()
        .chain(["StreamResetEvent".to_owned(), "LogDamagedEvent".to_owned()])
        .collect();
    let mut components = numbered;
    components.extend(deltas);
    components.insert("StreamResetEvent".into(), reset());
    components.insert("LogDamagedEvent".into(), log_damaged());
    components.insert("FeedResetEvent".into(), feed_reset());
    let about = "One event of a session's stream. Clients pass over types they do not know.";
    components.insert("Event".into(), one_of(about, &all));
    let about = "One event of the stream over all sessions: what changes their status. Clients pass over types they do not know.";
    components.insert("FeedEvent".into(), one_of(about, &feed));
    components
}

fn name_of(wire_type: &str) -> String {
    format!("{}Event", camel(wire_type))
}

fn one_of(description: &str, names: &[String]) -> Value {
    let reference = |name: &String| format!("#/components/schemas/{name}");
    let wire_type = |name: &str| {
        let mut text = String::new();
        for letter in name.trim_end_matches("Event").replace("FeedReset", "StreamReset").chars() {
            if letter.is_ascii_uppercase() && !text.is_empty() {
                text.push('_');
            }
            text.push(letter.to_ascii_lowercase());
        }
        text
    };
    let mapping: Map<String, Value> = names.iter().map(|name| (wire_type(name), json!(reference(name)))).collect();
    let all: Vec<Value> = names.iter().map(|name| json!({ "$ref": reference(name) })).collect();
    json!({ "description": description, "oneOf": all, "discriminator": { "propertyName": "type", "mapping": mapping } })
}

fn numbered(schemas: &mut Schemas) -> Map<String, Value> {
    let (actor, key) = (schemas.add::<Actor>(Place::Event), schemas.add::<KeyUse>(Place::Event));
    let data = Body::schemas(schemas.at(Place::Event));
    let definitions = schemas.at(Place::Event).definitions().clone();
    let examples = examples();
    let one = |(wire_type, data): (&str, schemars::Schema)| {
        let own: Vec<&Value> = examples.iter().filter(|event| event["type"] == wire_type).take(1).collect();
        let schema = json!({
            "type": "object",
            "description": definitions[&camel(wire_type)]["description"],
            "required": ["seq", "ts", "session_id", "type", "actor", "data"],
            "properties": {
                "seq": { "type": "integer", "minimum": 1, "description": "The event's number, and its cursor." },
                "ts": { "type": "string", "format": "date-time" },
                "session_id": { "$ref": "#/event/SessionId" },
                "turn_id": { "$ref": "#/event/TurnId" },
                "type": { "const": wire_type },
                "actor": actor,
                "key": key,
                "data": data,
            },
            "examples": own,
        });
        (name_of(wire_type), schema)
    };
    data.into_iter().map(one).collect()
}

/// One delta of each stream, as it is shown.
fn shown(stream: Stream, text: &str) -> Value {
    let (seq, ts, offset) = (12, Timestamp::from_ms(examples::AT_MS), 6);
    let delta = Delta { seq, ts, step: 1, attempt: 1, stream, offset, text: text.into() };
    let shown = WireDelta { session_id: examples::session(), turn_id: examples::turn(), pos: 1830, delta: &delta };
    serde_json::to_value(shown).expect("a delta")
}

fn deltas() -> Map<String, Value> {
    let number = |description: &str| json!({ "type": "integer", "minimum": 0, "description": description });
    let (step, attempt) = (number("The model step."), number("The attempt at that step."));
    let one = |(stream, text, about, own): (Stream, &str, &str, Vec<(&str, Value)>)| {
        let mut properties: Map<String, Value> =
            own.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
        properties.insert("offset".into(), number("Bytes of this output before this piece."));
        properties.insert("text".into(), json!({ "type": "string" }));
        let required: Vec<&String> = properties.keys().collect();
        let data = json!({ "type": "object", "required": required, "properties": properties });
        let schema = json!({
            "type": "object",
            "description": about,
            "required": ["seq", "pos", "ts", "session_id", "turn_id", "type", "data"],
            "properties": {
                "seq": { "type": "integer", "minimum": 1, "description": "The last numbered event before it." },
                "pos": { "type": "integer", "minimum": 1, "description": "Where it ends in its turn's spool; its cursor is `seq.pos`." },
                "ts": { "type": "string", "format": "date-time" },
                "session_id": { "$ref": "#/event/SessionId" },
                "turn_id": { "$ref": "#/event/TurnId" },
                "type": { "const": stream.wire_type() },
                "data": data,
            },
            "examples": [shown(stream, text)],
        });
        (name_of(stream.wire_type()), schema)
    };
    let of_model = || vec![("step", step.clone()), ("attempt", attempt.clone())];
    let mut of_arguments = of_model();
    of_arguments.push(("index", number("Which call of the step.")));
    let of_output = vec![("tool_call_id", json!({ "$ref": "#/event/CallId" }))];
    [
        (Stream::Text, "is a test", "A piece of the answer.", of_model()),
        (Stream::Thinking, "Let me see.", "A piece of the model's thinking.", of_model()),
        (Stream::Arguments(0), "{\"path\":", "A piece of a tool call's arguments.", of_arguments),
        (Stream::Output(examples::call()), "ok 1\n", "A piece of what a running tool prints.", of_output),
    ]
    .map(one)
    .into_iter()
    .collect()
}

fn reset() -> Value {
    json!({
        "type": "object",
        "description": "Deltas before here are gone, or were never there; the numbered events that follow carry the whole text.",
        "required": ["type", "session_id", "seq", "data"],
        "properties": {
            "seq": { "type": "integer", "minimum": 0 },
            "session_id": { "$ref": "#/event/SessionId" },
            "type": { "const": "stream_reset" },
            "data": { "type": "object", "required": ["after"], "properties": { "after": { "type": "integer", "minimum": 0 } } },
        },
        "examples": [{ "type": "stream_reset", "session_id": examples::session(), "seq": 12, "data": { "after": 12 } }],
    })
}

fn log_damaged() -> Value {
    json!({
        "type": "object",
        "description": "The log is damaged: this is all of it that can be read, and the stream ends.",
        "required": ["type", "session_id", "seq", "data"],
        "properties": {
            "seq": { "type": "integer", "minimum": 0, "description": "The last event that can be read." },
            "session_id": { "$ref": "#/event/SessionId" },
            "type": { "const": wire::LOG_DAMAGED },
            "data": { "$ref": "#/components/schemas/Damage" },
        },
        "examples": [{
            "type": wire::LOG_DAMAGED, "session_id": examples::session(), "seq": 12,
            "data": { "kind": "unreadable", "from_seq": 13, "reason": "its checksum does not fit", "hint": "mend it with `tenure store repair`" },
        }],
    })
}

fn feed_reset() -> Value {
    json!({
        "type": "object",
        "description": "Something may be missing before here: list the sessions again.",
        "required": ["type", "ts", "data"],
        "properties": {
            "ts": { "type": "string", "format": "date-time" },
            "type": { "const": "stream_reset" },
            "data": { "type": "object" },
        },
        "examples": [{ "type": "stream_reset", "ts": Timestamp::from_ms(examples::AT_MS), "data": {} }],
    })
}

//! JSON Schema of everything that is sent, from the types themselves. What the wire's plain text fields hold (ids, times, statuses, lengths) is added here by name.

use std::collections::{BTreeMap, BTreeSet};

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use tenure_core::{budget, event::Body, ids, policy};

use crate::limits::TextLimits;

/// Where a type is met. The same name may stand for different things there: a request is closed and may leave out what an answer always says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Request,
    Answer,
    Event,
}

impl Place {
    const ALL: [Place; 3] = [Place::Request, Place::Answer, Place::Event];

    fn path(self) -> &'static str {
        match self {
            Place::Request => "/request",
            Place::Answer => "/answer",
            Place::Event => "/event",
        }
    }

    fn reference(self, name: &str) -> Value {
        json!({ "$ref": format!("#{}/{name}", self.path()) })
    }
}

pub(super) struct Schemas {
    of: BTreeMap<Place, SchemaGenerator>,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let generator = |place: Place| {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = place.path().into();
            if place != Place::Request {
                settings = settings.for_serialize();
            }
            (place, settings.into_generator())
        };
        let mut schemas = Self { of: Place::ALL.map(generator).into() };
        schemas.add::<ids::SessionId>(Place::Event);
        schemas.add::<ids::TurnId>(Place::Event);
        schemas.add::<ids::MessageId>(Place::Event);
        schemas.add::<ids::CallId>(Place::Event);
        schemas.add::<policy::Policy>(Place::Event);
        schemas.add::<budget::Budgets>(Place::Event);
        schemas
    }

    /// A reference to the type's schema.
    pub(super) fn add<T: JsonSchema>(&mut self, place: Place) -> Value {
        self.at(place).subschema_for::<T>().into()
    }

    pub(super) fn at(&mut self, place: Place) -> &mut SchemaGenerator {
        self.of.get_mut(&place).expect("there is one for each place")
    }

    /// The properties of a type, in place: a request's parameters.
    pub(super) fn fields<T: JsonSchema>(&mut self) -> Map<String, Value> {
        let mut schema: Value = self.at(Place::Request).clone().into_root_schema_for::<T>().into();
        refine(&mut schema, "", Place::Request);
        schema["properties"].as_object().cloned().unwrap_or_default()
    }

    /// All definitions under their final names, and what each reference is called now.
    pub(super) fn finish(mut self) -> (Map<String, Value>, BTreeMap<String, String>) {
        let mut found: BTreeMap<(Place, String), Value> = BTreeMap::new();
        for place in Place::ALL {
            for (name, mut schema) in self.at(place).take_definitions(true) {
                refine(&mut schema, &name, place);
                found.insert((place, name), schema);
            }
        }
        let names = final_names(&found);
        let by_reference = names
            .iter()
            .map(|((place, name), last)| (format!("#{}/{name}", place.path()), format!("#/components/schemas/{last}")));
        let by_reference = by_reference.collect();
        let definitions = found.into_iter().map(|(key, schema)| (names[&key].clone(), schema)).collect();
        (definitions, by_reference)
    }
}

/// The data of an event is called after its type; what differs between places gets a name of its own.
fn final_names(found: &BTreeMap<(Place, String), Value>) -> BTreeMap<(Place, String), String> {
    let differing = differing(found);
    let is_data: BTreeSet<String> = Body::WIRE_TYPES.iter().map(|wire_type| camel(wire_type)).collect();
    let name_of = |place: Place, name: &str| {
        let elsewhere = |other: Place| other != place && found.contains_key(&(other, name.to_owned()));
        match place {
            Place::Event if is_data.contains(name) => format!("{name}Data"),
            Place::Event if differing.contains(name) && elsewhere(Place::Answer) => format!("Event{name}"),
            Place::Request if differing.contains(name) && (elsewhere(Place::Answer) || elsewhere(Place::Event)) => {
                format!("{name}Input")
            }
            _ => name.to_owned(),
        }
    };
    found.keys().map(|(place, name)| ((*place, name.clone()), name_of(*place, name))).collect()
}

/// Names that do not mean the same everywhere, by themselves or by what they refer to.
fn differing(found: &BTreeMap<(Place, String), Value>) -> BTreeSet<String> {
    let plain = |schema: &Value| {
        Place::ALL.iter().fold(schema.to_string(), |text, place| text.replace(&format!("#{}/", place.path()), "#/"))
    };
    let mut texts: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for ((_, name), schema) in found {
        texts.entry(name).or_default().insert(plain(schema));
    }
    let mut differing: BTreeSet<String> =
        texts.iter().filter(|(_, texts)| texts.len() > 1).map(|(name, _)| (*name).to_owned()).collect();
    loop {
        let refers = |texts: &BTreeSet<String>| {
            differing.iter().any(|name| texts.iter().any(|text| text.contains(&format!("\"#/{name}\""))))
        };
        let more: Vec<String> = texts
            .iter()
            .filter(|(name, texts)| !differing.contains(**name) && refers(texts))
            .map(|(name, _)| (*name).to_owned())
            .collect();
        if more.is_empty() {
            return differing;
        }
        differing.extend(more);
    }
}

/// `turn_started` as `TurnStarted`.
pub(super) fn camel(wire_type: &str) -> String {
    let words = wire_type.split('_').map(|word| word[..1].to_ascii_uppercase() + &word[1..]);
    words.collect()
}

/// Gives every reference its final name.
pub(super) fn rename(value: &mut Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                match field {
                    Value::String(text) if key == "$ref" => {
                        if let Some(name) = names.get(text.as_str()) {
                            *text = name.clone();
                        }
                    }
                    _ => rename(field, names),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        _ => {}
    }
}

/// Brings one schema, and all inside it, into its published form.
fn refine(schema: &mut Value, name: &str, place: Place) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| refine(item, name, place)),
        Value::Object(fields) => {
            bound_numbers(fields);
            if place != Place::Request {
                // A newer daemon may say more.
                fields.remove("additionalProperties");
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = text.replace("`None`", "`null`").replace('\n', " ");
            }
            // A field may go by such a name too; then it is no text.
            fields.retain(|key, field| !(["$schema", "title"].contains(&key.as_str()) && field.is_string()));
            if let (Some(Value::Object(properties)), true) = (fields.get_mut("properties"), place != Place::Event) {
                for (field, schema) in properties.iter_mut() {
                    said_of_field(name, field, schema, place);
                }
            }
            for field in fields.values_mut() {
                refine(field, name, place);
            }
        }
        _ => {}
    }
}

fn bound_numbers(fields: &mut Map<String, Value>) {
    let most = match fields.get("format").and_then(Value::as_str) {
        Some("uint64" | "uint") => u64::MAX,
        Some("uint32") => u64::from(u32::MAX),
        Some("uint16") => u64::from(u16::MAX),
        _ => return,
    };
    fields.entry("maximum").or_insert(most.into());
    if fields["format"] == "uint" {
        fields.insert("format".into(), "uint64".into());
    }
}

const SESSION_STATUS: [&str; 6] = ["active", "waiting_approval", "completed", "failed", "canceled", "expired"];
const TURN_STATUS: [&str; 10] = [
    "pending",
    "running",
    "streaming",
    "waiting_approval",
    "waiting_budget",
    "completed",
    "failed",
    "cancelled",
    "expired",
    "interrupted",
];
const OPEN_TURN_STATUS: [&str; 4] = ["running", "waiting_approval", "waiting_budget", "interrupted"];
/// One line that says something, without control characters.
const LINE: &str = r"^[^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$";
const BASE64: &str = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";
const MIME_TYPE: &str = r"^[ \t]*[!#$&^_.+A-Za-z0-9-]{1,64}/[!#$&^_.+A-Za-z0-9-]{1,64}[ \t]*(;.*)?$";
pub(super) const KEY: &str = "^[ -~]{1,255}$";

/// What a field of the wire holds beyond its type.
fn said_of_field(name: &str, field: &str, schema: &mut Value, place: Place) {
    let limits = TextLimits::default();
    let line = |most: usize| json!({ "pattern": LINE, "maxLength": most });
    let id = |name: &str| Place::Event.reference(name);
    let more = match (name, field) {
        (_, "session_id") | ("SessionView" | "SessionRow", "id") => return point(schema, id("SessionId")),
        (_, "turn_id" | "last_turn_id" | "retry_of") | ("TurnView" | "OpenTurn", "id") => {
            return point(schema, id("TurnId"));
        }
        (_, "message_id") | ("MessageRef", "id") => return point(schema, id("MessageId")),
        (_, "tool_call_id") | ("ToolCall", "id") => return point(schema, id("CallId")),
        ("SessionView", "queue") => return schema["items"] = id("TurnId"),
        ("SessionView", "policy") => return point(schema, Place::Event.reference("Policy")),
        ("SessionView", "budgets") => return point(schema, Place::Event.reference("Budgets")),
        ("SessionView" | "SessionRow", "status") | ("", "status") => json!({ "enum": SESSION_STATUS }),
        ("TurnView" | "OpenTurn", "status") => json!({ "enum": TURN_STATUS }),
        ("SessionRow", "turn_status") => json!({ "enum": OPEN_TURN_STATUS }),
        ("Ended", "status") => json!({ "enum": ["completed", "canceled", "failed", "expired", "purged"] }),
        ("Canceling", "status") => json!({ "const": "canceling" }),
        ("Health", "status") => json!({ "const": "ok" }),
        ("Ready", "status") => json!({ "enum": ["ready", "starting", "stopping"] }),
        ("Ready", "durability") => json!({ "enum": ["power", "process", "memory"] }),
        ("TurnView", "verification") => json!({ "enum": ["not_needed", "passed", "skipped", "denied"] }),
        ("Approval" | "ToolView", "kind") => json!({ "enum": ["read", "write", "exec", "network"] }),
        ("Approval", "origin") => json!({ "enum": ["model", "verify_policy"] }),
        (_, "created_at" | "updated_at" | "started_at" | "expires_at") => json!({ "format": "date-time" }),
        ("", "limit") => {
            json!({ "minimum": 1, "maximum": super::super::query::PAGE_MAX, "default": super::super::query::PAGE_DEFAULT })
        }
        ("", "wait_ms") => json!({ "maximum": tenure_wire::WAIT_MS_MAX }),
        ("", "label" | "role" | "text" | "provider") => line(limits.name_chars_max),
        _ if place != Place::Request => return,
        (_, "idempotency_key") => json!({ "pattern": KEY }),
        ("SendMessage", "role") => {
            return *schema = json!({ "description": "Only these two are accepted from outside.", "enum": ["user", "system", null] });
        }
        ("SendMessage", "parts") => json!({ "minItems": 1, "maxItems": limits.parts_max }),
        ("NewToken", "name") => json!({ "pattern": "^[a-z0-9][a-z0-9._-]{0,63}$" }),
        ("NewAttachment", "name") => line(limits.name_chars_max),
        ("NewAttachment", "mime_type") => json!({ "pattern": MIME_TYPE }),
        ("NewAttachment", "data") => json!({ "pattern": BASE64, "contentEncoding": "base64" }),
        (_, "title") => line(limits.title_chars_max),
        (_, "role" | "model" | "mode") => line(limits.name_chars_max),
        (_, "labels") => return items(schema, limits.labels_max, line(limits.name_chars_max)),
        ("", "session") => line(limits.name_chars_max),
        (_, "workspace") => json!({ "pattern": r"^/[^\x00]*$", "maxLength": limits.path_bytes_max }),
        (_, "workspace_path") if !name.is_empty() => {
            json!({ "pattern": r"^/[^\x00]*$", "maxLength": limits.path_bytes_max })
        }
        (_, "reason") => json!({ "maxLength": limits.reason_chars_max }),
        (_, "memory") => json!({ "maxLength": limits.memory_bytes_max }),
        ("CompactionPolicy", "from_percent" | "block_percent") => json!({ "minimum": 1, "maximum": 100 }),
        ("ApprovalPolicy", "require_for_tools") => {
            return items(schema, limits.policy_entries_max, line(limits.name_chars_max));
        }
        ("ApprovalPolicy", "rules") => json!({ "maxItems": limits.policy_entries_max }),
        ("VerifyPolicy", "commands") => {
            return items(schema, limits.policy_entries_max, line(limits.policy_entry_chars_max));
        }
        ("Rule", "tool") => line(limits.name_chars_max),
        ("Rule", "pattern" | "exact") => json!({ "maxLength": limits.policy_entry_chars_max }),
        _ => return,
    };
    lay_over(schema, more);
}

fn lay_over(schema: &mut Value, more: Value) {
    let is_nullable = schema["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
    let (Value::Object(fields), Value::Object(mut more)) = (schema, more) else { return };
    if let (Some(Value::Array(words)), true) = (more.get_mut("enum"), is_nullable) {
        words.push(Value::Null);
    }
    fields.append(&mut more);
}

fn items(schema: &mut Value, most: usize, item: Value) {
    lay_over(&mut schema["items"], item);
    schema["maxItems"] = most.into();
}

/// Puts a reference in the place of plain text, and keeps what was said of it.
fn point(schema: &mut Value, reference: Value) {
    let is_nullable = schema["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
    let description = schema.get("description").cloned();
    *schema = match is_nullable {
        true => json!({ "anyOf": [reference, { "type": "null" }] }),
        false => reference,
    };
    if let Some(description) = description {
        schema["description"] = description;
    }
}

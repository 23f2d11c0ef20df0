//! Holds every answer that a test gets against the API's description: the status, the code and the shape have to stand there.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, LazyLock, Mutex},
};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use crate::rig::Got;

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json")).unwrap();
    serde_json::from_str(&text).unwrap()
});
static VALIDATORS: LazyLock<Mutex<HashMap<String, Arc<Validator>>>> = LazyLock::new(Mutex::default);

/// What is refused before it is clear what was asked for.
const BEFORE: [&str; 5] = ["unknown_path", "wrong_method", "unauthorized", "bad_host", "bad_origin"];

#[track_caller]
pub fn check(method: &str, path: &str, got: &Got) {
    // A path that is not in the document, and a method that its path does not have.
    let operation = operation_at(path).map(|(name, path)| (name, &path[method.to_ascii_lowercase()]));
    let Some((name, operation)) = operation.filter(|(_, operation)| operation.is_object()) else {
        assert!(method == "HEAD" || BEFORE.contains(&got.code()), "{method} {path} is not in the document: {got:?}");
        return;
    };
    let place = format!("{method} {name} {}", got.status);
    let response = resolved(&operation["responses"][got.status.to_string()]);
    assert!(response.is_object(), "{place} is not in the document: {got:?}");
    let media_type = got.header("content-type").split(';').next().unwrap_or("").to_owned();
    let content = &response["content"];
    let own = [media_type.as_str(), "*/*"].into_iter().find_map(|name| content.get(name));
    assert!(own.is_some() || content.is_null() && got.body == json!(""), "{place}: no {media_type} in the document");
    if let (Some(schema), true) =
        (own.and_then(|own| own.get("schema")), media_type.ends_with("json") && got.body.is_object())
    {
        fits(&place, schema, &got.body);
    }
}

/// One event of a session's stream.
#[track_caller]
pub fn check_event(event: &Value) {
    let wire_type = event["type"].as_str().unwrap();
    let to = &DOCUMENT["components"]["schemas"]["Event"]["discriminator"]["mapping"][wire_type];
    assert!(to.is_string(), "events of type {wire_type} are not in the document");
    fits(wire_type, &json!({ "$ref": to }), event);
}

#[track_caller]
fn fits(place: &str, schema: &Value, value: &Value) {
    let validator = validator(place, schema);
    let problems: Vec<String> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(problems.is_empty(), "{place} is not as the document says: {problems:?}\n{value:#}");
}

/// The path of the document that an address stands for; one with more plain words goes first.
fn operation_at(path: &str) -> Option<(&'static str, &'static Value)> {
    let parts: Vec<&str> = path.split('/').collect();
    let fits = |template: &str| {
        let known: Vec<&str> = template.split('/').collect();
        // An artifact's name may hold more of them.
        let rest = template.ends_with("/artifacts/{file}") && parts.len() > known.len();
        (parts.len() == known.len() || rest)
            && known.iter().zip(&parts).all(|(known, part)| known.starts_with('{') && !part.is_empty() || known == part)
    };
    let paths = DOCUMENT["paths"].as_object().unwrap().iter().filter(|(template, _)| fits(template));
    paths.min_by_key(|(template, _)| template.matches('{').count()).map(|(template, path)| (template.as_str(), path))
}

fn resolved(value: &'static Value) -> &'static Value {
    match value.get("$ref").and_then(Value::as_str) {
        Some(to) => DOCUMENT.pointer(to.trim_start_matches('#')).unwrap(),
        None => value,
    }
}

fn validator(place: &str, schema: &Value) -> Arc<Validator> {
    let key = format!("{place} {schema}");
    let mut validators = VALIDATORS.lock().unwrap();
    let made = || {
        let mut whole = schema.clone();
        let mut used = BTreeSet::new();
        collect(schema, &mut used);
        let schemas = &DOCUMENT["components"]["schemas"];
        let own: Map<String, Value> = used.iter().map(|name| (name.clone(), schemas[name].clone())).collect();
        whole["components"] = json!({ "schemas": own });
        Arc::new(jsonschema::options().should_validate_formats(true).build(&whole).unwrap())
    };
    validators.entry(key).or_insert_with(made).clone()
}

/// All schemas that one leads to.
fn collect(value: &Value, used: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(to) = fields.get("$ref").and_then(Value::as_str) {
                let name = to.trim_start_matches("#/components/schemas/");
                if used.insert(name.to_owned()) {
                    collect(&DOCUMENT["components"]["schemas"][name], used);
                }
            }
            fields.values().for_each(|field| collect(field, used));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, used)),
        _ => {}
    }
}

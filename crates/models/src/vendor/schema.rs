//! Schemas for a reply, in the forms that vendors hold a model to. The answer is checked against the user's own schema
//! elsewhere: here nothing is added that an answer which is right by that one would have to break.

use serde_json::{Map, Value, json};

/// What every strict mode knows and we leave as it is.
const KNOWN: [&str; 12] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "$defs",
    "description",
    "title",
];
/// Limits that OpenAI's strict mode knows and Anthropic's refuses.
const LIMITS: [&str; 9] = [
    "pattern",
    "format",
    "multipleOf",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minItems",
    "maxItems",
];
/// Limits that only the check of the answer knows.
const OTHER_LIMITS: [&str; 5] = ["minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties"];
/// Says nothing of the value.
const DIALECT: &str = "$schema";

/// For OpenAI: every object is closed and all that it may have is demanded. `None` where that would change what is wanted.
pub(crate) fn strict(schema: &Value) -> Option<Value> {
    // Its strict mode wants an object, and no choice of them.
    is_object(schema.as_object()?).then_some(())?;
    closed(schema, Mode::OpenAi)
}

/// For Anthropic: every object is closed, and limits are told in words. `None` where that would change what is wanted.
pub(crate) fn closed_for_anthropic(schema: &Value) -> Option<Value> {
    closed(schema, Mode::Anthropic)
}

/// What a model is told of a schema that its vendor does not hold it to.
pub(crate) fn in_words(schema: &Value) -> String {
    format!("Your answer is one JSON value and nothing else. It fits this JSON Schema: {schema}")
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    OpenAi,
    Anthropic,
}

fn closed(schema: &Value, mode: Mode) -> Option<Value> {
    let mut out = Map::new();
    let schema = schema.as_object()?;
    let mut limits = Map::new();
    for (name, value) in schema.iter().filter(|(name, _)| *name != DIALECT) {
        match name.as_str() {
            name if KNOWN.contains(&name) => {
                out.insert(name.to_owned(), value.clone());
            }
            name if LIMITS.contains(&name) && mode == Mode::OpenAi => {
                out.insert(name.to_owned(), value.clone());
            }
            name if (LIMITS.contains(&name) || OTHER_LIMITS.contains(&name)) && mode == Mode::Anthropic => {
                limits.insert(name.to_owned(), value.clone());
            }
            _ => return None,
        }
    }
    // Neither mode takes what may be anything.
    ["type", "enum", "const", "anyOf", "$ref", "properties"].iter().find(|name| out.contains_key(**name))?;
    tell(limits, &mut out);
    close(&mut out, mode)?;
    for name in ["properties", "$defs"] {
        if let Some(Value::Object(schemas)) = out.get_mut(name) {
            for schema in schemas.values_mut() {
                *schema = closed(schema, mode)?;
            }
        }
    }
    if let Some(items) = out.get_mut("items") {
        *items = closed(items, mode)?;
    }
    if let Some(choices) = out.get_mut("anyOf") {
        let choices = choices.as_array_mut()?;
        for choice in choices {
            *choice = closed(choice, mode)?;
        }
    }
    Some(Value::Object(out))
}

/// A limit that the vendor does not take is not lost on the model.
fn tell(limits: Map<String, Value>, out: &mut Map<String, Value>) {
    if limits.is_empty() {
        return;
    }
    let before = out.get("description").and_then(Value::as_str).map(|text| format!("{text} ")).unwrap_or_default();
    out.insert("description".into(), json!(format!("{before}It has to fit {}.", Value::Object(limits))));
}

/// An object says what it may have, and no more; a list says of what.
fn close(out: &mut Map<String, Value>, mode: Mode) -> Option<()> {
    if is_a(out, "array") && !out.contains_key("items") {
        return None;
    }
    if !is_object(out) {
        return Some(());
    }
    // Parts that are put together know nothing of each other's fields.
    let is_composed = out.contains_key("anyOf") || out.contains_key("$ref");
    let is_open = out.get("additionalProperties").is_some_and(|more| *more != json!(false));
    let fields = out.get("properties").and_then(Value::as_object);
    let fields: Vec<Value> = fields.map(|fields| fields.keys().map(|name| json!(name)).collect()).unwrap_or_default();
    let is_any = fields.is_empty() && out.get("additionalProperties") != Some(&json!(false));
    let required = out.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    // One that is not listed could never be there.
    let is_closed_out = required.iter().any(|name| !fields.contains(name));
    let is_partly_free = mode == Mode::OpenAi && fields.iter().any(|name| !required.contains(name));
    if is_composed || is_open || is_any || is_closed_out || is_partly_free {
        return None;
    }
    out.insert("additionalProperties".into(), json!(false));
    // It is wanted even where it is empty.
    out.insert("required".into(), Value::Array(required));
    Some(())
}

fn is_object(schema: &Map<String, Value>) -> bool {
    is_a(schema, "object") || schema.contains_key("properties")
}

fn is_a(schema: &Map<String, Value>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(several)) => several.iter().any(|one| one == kind),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(properties: Value, required: &[&str]) -> Value {
        json!({ "type": "object", "properties": properties, "required": required })
    }

    #[test]
    fn objects_are_closed_at_every_depth() {
        let inner = of(json!({ "n": { "type": "integer" } }), &["n"]);
        let list = json!({ "type": "array", "items": inner, "minItems": 1 });
        let choice = json!({ "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/one" }] });
        let mut schema = of(json!({ "list": list, "choice": choice }), &["list", "choice"]);
        schema["$defs"] = json!({ "one": of(json!({ "a": { "type": "string" } }), &["a"]) });
        schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
        let strict = strict(&schema).expect("it can be closed");
        for place in ["", "/properties/list/items", "/$defs/one"] {
            assert_eq!(strict.pointer(&format!("{place}/additionalProperties")), Some(&json!(false)), "{place}");
        }
        assert_eq!(strict.get("$schema"), None);
        assert_eq!(strict.pointer("/properties/list/minItems"), Some(&json!(1)));
        let told = closed_for_anthropic(&schema).expect("it can be closed");
        assert_eq!(told.pointer("/properties/list/minItems"), None);
        let words = told.pointer("/properties/list/description").and_then(Value::as_str);
        assert_eq!(words, Some("It has to fit {\"minItems\":1}."));
    }

    #[test]
    fn what_would_mean_something_else_is_left_alone() {
        let text = json!({ "type": "string" });
        let mut open = of(json!({ "a": text }), &["a"]);
        open["additionalProperties"] = json!(true);
        let rows = [
            open,
            json!({ "type": "object" }),
            of(json!({ "a": {} }), &["a"]),
            json!({ "type": "object", "additionalProperties": { "type": "integer" } }),
            json!({ "type": "object", "properties": { "a": true }, "required": ["a"] }),
            of(json!({ "a": { "type": "array" } }), &["a"]),
            of(json!({ "a": { "oneOf": [text, { "type": "null" }] } }), &["a"]),
            of(json!({ "a": text }), &["a", "b"]),
            json!({ "type": "object", "properties": { "a": text }, "required": ["a"], "anyOf": [{ "type": "object" }] }),
        ];
        for schema in rows {
            assert_eq!(strict(&schema), None, "{schema}");
            assert_eq!(closed_for_anthropic(&schema), None, "{schema}");
        }
        let free = of(json!({ "a": text, "b": text }), &["a"]);
        assert_eq!(strict(&free), None, "what may be left out would have to be made up");
        assert_eq!(closed_for_anthropic(&free).expect("it may be left out there")["required"], json!(["a"]));
        assert_eq!(strict(&json!({ "type": "array", "items": text })), None);
    }
}

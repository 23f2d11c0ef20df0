//! Puts the document together, and compares it with the committed one.

use serde_json::{Map, Value, json};

use super::{
    codes::CODES,
    events, examples,
    operation::{Operation, shared_refusals},
    operations::{self, TAGS},
    schemas::{Place, Schemas, rename},
};

const ABOUT: &str = "Tenure runs AI agents as sessions that last: journaled, crash-proof, and open to any client that wants to watch, steer, approve, cancel, resume or replay.\n\nEvery call needs the token of the daemon's data folder as a bearer token; health and this description do not. Requests refuse fields and parameters they do not know; answers and events may gain new ones, which clients pass over. Errors are `application/problem+json` with a stable `code`. Numbers named as limits are the defaults.";

/// The whole document.
fn document() -> Value {
    let mut schemas = Schemas::new();
    let operations = operations::all(&mut schemas);
    let of_events = events::components(&mut schemas);
    schemas.add::<tenure_wire::Problem>(Place::Answer);
    let (mut definitions, names) = schemas.finish();
    for (name, schema) in of_events {
        assert!(definitions.insert(name.clone(), schema).is_none(), "two schemas are called {name}");
    }
    // Of its words a message may only say two, which stand there themselves.
    definitions.remove("RoleInput");
    definitions.insert("Code".into(), codes());
    definitions["Problem"]["properties"]["code"] = json!({ "$ref": "#/components/schemas/Code" });
    definitions["Problem"]["examples"] = json!([examples::problem()]);
    let tags: Vec<Value> = TAGS.iter().map(|(name, about)| json!({ "name": name, "description": about })).collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tenure",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:8787", "description": "The default address." }],
        "security": [{ "token": [] }],
        "tags": tags,
        "paths": paths(&operations),
        "components": {
            "schemas": definitions,
            "responses": shared_refusals(&operations),
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "The content of the file `token` in the data folder." },
            },
        },
    });
    rename(&mut document, &names);
    document
}

fn paths(operations: &[Operation]) -> Map<String, Value> {
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        let before = path[operation.method].take();
        assert!(before.is_null(), "{} {} is described twice", operation.method, operation.path);
        path[operation.method] = operation.to_json();
    }
    paths
}

/// All codes, with what they mean.
fn codes() -> Value {
    let lines: Vec<String> =
        CODES.iter().map(|(code, status, meaning)| format!("- `{code}` ({status}): {meaning}")).collect();
    let mut codes: Vec<&str> = CODES.iter().map(|(code, ..)| *code).collect();
    codes.dedup();
    let description =
        format!("Stable: programs may compare it. Newer daemons may know more of them.\n\n{}", lines.join("\n"));
    json!({ "type": "string", "description": description, "examples": codes })
}

mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;
    use crate::http::ROUTES;

    /// Set to write the document anew after a deliberate change of the API.
    const BLESS: &str = "TENURE_BLESS";
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");

    #[test]
    fn the_committed_document_is_what_the_types_say() {
        let today = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if std::env::var_os(BLESS).is_some() {
            fs::write(PATH, &today).unwrap();
        }
        let committed = fs::read_to_string(PATH).unwrap();
        let differing = committed.lines().zip(today.lines()).position(|(committed, today)| committed != today);
        assert!(
            committed == today,
            "docs/openapi.json is of yesterday from line {:?} on: run this with {BLESS}=1",
            differing.map(|line| line + 1)
        );
    }

    #[test]
    fn every_route_is_described_and_no_other() {
        let routes: BTreeSet<(String, &str)> = ROUTES
            .iter()
            .flat_map(|(path, methods)| methods.iter().map(|method| (path.replace("{*", "{"), *method)))
            // Only there to refuse what `get` would do.
            .filter(|(_, method)| *method != "head")
            .collect();
        let operations = operations::all(&mut Schemas::new());
        let described: BTreeSet<(String, &str)> =
            operations.iter().map(|one| (one.path.to_owned(), one.method)).collect();
        assert_eq!(routes, described);
    }

    #[test]
    fn operations_have_one_name_each() {
        let operations = operations::all(&mut Schemas::new());
        let names: BTreeSet<&str> = operations.iter().map(|one| one.id).collect();
        assert_eq!(names.len(), operations.len());
    }

    /// Every value in the document, with the path to it.
    fn walk<'a>(value: &'a Value, path: &str, visit: &mut impl FnMut(&str, &'a Value)) {
        visit(path, value);
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, field)| {
                walk(field, &format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), visit)
            }),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| walk(item, &format!("{path}/{index}"), visit))
            }
            _ => {}
        }
    }

    #[test]
    fn references_and_links_lead_somewhere() {
        let document = document();
        let names: BTreeSet<&str> = operations::all(&mut Schemas::new()).iter().map(|one| one.id).collect();
        let mut used = BTreeSet::new();
        walk(&document, "", &mut |path, value| {
            if let Some(to) = value.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(to.strip_prefix('#').unwrap()).is_some(), "{path} leads to {to}");
                used.insert(to.to_owned());
            }
            if let Some(to) = value.get("operationId").and_then(Value::as_str) {
                assert!(names.contains(to), "{path} leads to {to}");
            }
        });
        let schemas = document["components"]["schemas"].as_object().unwrap().keys();
        // The streams refer to these two from an extension.
        let unused: Vec<&String> =
            schemas.filter(|name| !used.contains(&format!("#/components/schemas/{name}"))).collect();
        assert_eq!(unused, Vec::<&String>::new());
    }

    /// Checks a value against a schema of the document.
    fn check(document: &Value, schema: &Value, value: &Value, path: &str) {
        let mut whole = schema.clone();
        whole["components"] = document["components"].clone();
        let validator = jsonschema::options().should_validate_formats(true).build(&whole).unwrap();
        let problems: Vec<String> =
            validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(problems.is_empty(), "the example at {path} does not fit: {problems:?}\n{value:#}");
    }

    #[test]
    fn every_example_fits_its_schema() {
        let document = document();
        let mut found = 0;
        walk(&document, "", &mut |path, value| {
            let in_schema = path.strip_prefix("/components/schemas/").is_some_and(|rest| !rest.contains('/'));
            if let (Some(examples), true) = (value.get("examples").and_then(Value::as_array), in_schema) {
                examples.iter().for_each(|example| check(&document, value, example, path));
                found += 1;
            }
            if let (Some(example), Some(schema)) = (value.get("example"), value.get("schema")) {
                check(&document, schema, example, path);
                found += 1;
            }
        });
        assert!(found > 60, "only {found} examples");
    }

    #[test]
    fn every_operation_and_event_has_an_example() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        for event in schemas["Event"]["oneOf"].as_array().unwrap() {
            let name = event["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
            assert!(schemas[name]["examples"][0].is_object(), "{name} has no example");
        }
        // Files, archives, this document and its page stand for themselves.
        let exempt = [
            "downloadAttachment",
            "downloadArtifact",
            "exportSession",
            "exportSessionByPost",
            "getDescription",
            "getPage",
            "getHome",
            "logIn",
            "logOut",
        ];
        for operation in operations::all(&mut Schemas::new()).iter().filter(|one| !exempt.contains(&one.id)) {
            let text = operation.to_json().to_string();
            assert!(text.contains("\"example\":"), "{} has no example", operation.id);
        }
    }

    #[test]
    fn every_event_of_the_log_is_one_of_the_events() {
        let document = document();
        let event = json!({ "$ref": "#/components/schemas/Event" });
        for example in events::examples() {
            check(&document, &event, &example, "the golden log");
        }
        let unknown = json!({ "seq": 1, "type": "turn_startled" });
        let mut whole = event;
        whole["components"] = document["components"].clone();
        assert!(!jsonschema::validator_for(&whole).unwrap().is_valid(&unknown));
    }

    #[test]
    fn requests_are_closed_and_answers_open() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        for (name, closed) in
            [("CreateSession", true), ("PolicyInput", true), ("Policy", false), ("SessionView", false)]
        {
            assert_eq!(schemas[name]["additionalProperties"] == false, closed, "{name}");
        }
    }
}

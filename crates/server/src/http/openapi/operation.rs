//! One operation of the API, put together step by step. It knows what all operations share, so that a new one is a few lines.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tenure_wire as wire;

use super::{
    codes::{CODES, status_of},
    schemas::{KEY, Place, Schemas, camel},
};

/// Whatever is asked for, this may be the answer.
const ANY: [&str; 9] = [
    "bad_head",
    "bad_host",
    "bad_origin",
    "bad_query",
    "head_timeout",
    "head_too_large",
    "internal",
    "too_many_connections",
    "unsupported_coding",
];
/// Of what needs a token.
const WITH_TOKEN: [&str; 4] = ["unauthorized", "token_expired", "too_many_failures", "too_fast"];
/// Of what reads a session.
const IN_SESSION: [&str; 5] = ["unknown_session", "session_purged", "unknown_path", "session_damaged", "disk_refused"];
/// Of what is handed to a session's task.
const COMMAND: [&str; 3] = ["session_ended", "overloaded", "shutting_down"];
const JSON_BODY: [&str; 5] = ["bad_json", "bad_request", "wrong_content_type", "body_too_large", "body_timeout"];

pub(super) struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    pub id: &'static str,
    tag: &'static str,
    summary: &'static str,
    about: String,
    is_open: bool,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: BTreeMap<u16, Value>,
    codes: BTreeMap<u16, BTreeSet<&'static str>>,
}

impl Operation {
    pub(super) fn new(
        method: &'static str,
        path: &'static str,
        id: &'static str,
        tag: &'static str,
        summary: &'static str,
    ) -> Self {
        let (is_open, about, parameters, body) = (false, String::new(), Vec::new(), None);
        let (answers, codes) = (BTreeMap::new(), BTreeMap::new());
        let new = Self { method, path, id, tag, summary, about, is_open, parameters, body, answers, codes };
        let new = new.refuses(&ANY).refuses(&WITH_TOKEN).path_parameters();
        match new.path.contains("{session}") {
            true => new.refuses(&IN_SESSION),
            false => new,
        }
    }

    /// Needs no token.
    pub(super) fn open(mut self) -> Self {
        self.is_open = true;
        for codes in self.codes.values_mut() {
            codes.retain(|code| !WITH_TOKEN.contains(code));
        }
        self.codes.retain(|_, codes| !codes.is_empty());
        self
    }

    pub(super) fn about(mut self, about: &str) -> Self {
        self.about = about.to_owned();
        self
    }

    fn path_parameters(mut self) -> Self {
        for (name, description, schema) in [
            (
                "session",
                "The session's id, one of its labels (an open session first, then the latest), or a role (its latest open session).",
                json!({ "type": "string", "minLength": 1 }),
            ),
            ("turn", "The turn's id.", json!({ "$ref": "#/event/TurnId" })),
            ("token", "The token's name.", json!({ "type": "string", "minLength": 1 })),
            (
                "file",
                "What stands behind the folder in the file's `ref`; a `/` in it may be sent as it is.",
                json!({ "type": "string", "minLength": 1 }),
            ),
        ] {
            if self.path.contains(&format!("{{{name}}}")) {
                self.parameters.push(json!({ "name": name, "in": "path", "required": true, "description": description, "schema": schema }));
            }
        }
        self
    }

    pub(super) fn header(mut self, name: &str, description: &str, schema: Value) -> Self {
        self.parameters.push(json!({ "name": name, "in": "header", "description": description, "schema": schema }));
        self
    }

    /// The parameters that a type reads, some of them with more to say.
    pub(super) fn query<T: JsonSchema>(mut self, schemas: &mut Schemas, more: Value) -> Self {
        for (name, mut schema) in schemas.fields::<T>() {
            not_null(&mut schema);
            let description =
                schema.as_object_mut().and_then(|fields| fields.remove("description")).unwrap_or_default();
            if let (Value::Object(fields), Value::Object(more)) = (&mut schema, &more[&name]) {
                fields.append(&mut more.clone());
            }
            let mut parameter = json!({ "name": name, "in": "query", "description": description, "schema": schema });
            if parameter["schema"]["type"] == "array" {
                // With commas between them.
                parameter["explode"] = false.into();
            }
            self.parameters.push(parameter);
        }
        self
    }

    /// A parameter that has to be there.
    pub(super) fn needs(mut self, name: &str) -> Self {
        let parameter = self.parameters.iter_mut().find(|one| one["name"] == name);
        parameter.expect("a parameter of that name")["required"] = true.into();
        self
    }

    /// May be asked with a token or without; a wrong one is refused.
    pub(super) fn half_open(self) -> Self {
        self.open().refuses(&WITH_TOKEN)
    }

    /// Takes an idempotency key.
    pub(super) fn keyed(self) -> Self {
        let description = "The same key and body again get the first answer, for 24 hours and also after a restart. Another body under the same key is refused.";
        self.header("Idempotency-Key", description, json!({ "type": "string", "pattern": KEY }))
            .refuses(&["bad_idempotency_key", "key_reused"])
    }

    /// A command to a session, with a key.
    pub(super) fn command(self) -> Self {
        self.keyed().refuses(&COMMAND)
    }

    /// A JSON body that has to be there.
    pub(super) fn takes<T: Serialize + JsonSchema>(self, schemas: &mut Schemas, example: &T) -> Self {
        let content = json_content::<T>(schemas, Place::Request, example);
        self.body(json!({ "required": true, "content": { wire::JSON: content } })).refuses(&JSON_BODY)
    }

    /// A JSON body that may be left out.
    pub(super) fn may_take<T: Serialize + JsonSchema>(self, schemas: &mut Schemas, example: &T) -> Self {
        let content = json_content::<T>(schemas, Place::Request, example);
        self.body(json!({ "content": { wire::JSON: content } })).refuses(&JSON_BODY)
    }

    pub(super) fn body(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Another form of the body beside JSON.
    pub(super) fn and_takes(mut self, media_type: &str, content: Value) -> Self {
        self.body.as_mut().expect("a first form")["content"][media_type] = content;
        self
    }

    /// A JSON answer.
    pub(super) fn answers<T: Serialize + JsonSchema>(
        self,
        schemas: &mut Schemas,
        status: u16,
        description: &str,
        example: &T,
    ) -> Self {
        let content = json_content::<T>(schemas, Place::Answer, example);
        self.answer(status, description, json!({ wire::JSON: content }))
    }

    /// Any other answer; `null` is one without a body.
    pub(super) fn answer(mut self, status: u16, description: &str, content: Value) -> Self {
        let mut answer = json!({ "description": description });
        if !content.is_null() {
            answer["content"] = content;
        }
        self.answers.insert(status, answer);
        self
    }

    /// A header that an answer always has.
    pub(super) fn with_header(mut self, status: u16, name: &str, description: &str) -> Self {
        let header = json!({ "description": description, "required": true, "schema": { "type": "string" } });
        self.answers.get_mut(&status).expect("an answer to put it on")["headers"][name] = header;
        self
    }

    /// What can be done next with what an answer says: operation, parameter, where it stands in the answer.
    pub(super) fn leads_to(mut self, status: u16, parameters: &[(&str, &str)], operations: &[&str]) -> Self {
        let answer = self.answers.get_mut(&status).expect("an answer that leads on");
        let parameters: Map<String, Value> =
            parameters.iter().map(|(name, from)| ((*name).to_owned(), json!(from))).collect();
        for operation in operations {
            answer["links"][operation] = json!({ "operationId": operation, "parameters": parameters });
        }
        self
    }

    /// The same for an operation that also needs a body.
    pub(super) fn leads_to_body(self, status: u16, operation: &str, parameters: &[(&str, &str)], body: Value) -> Self {
        let mut led = self.leads_to(status, parameters, &[operation]);
        let answer = led.answers.get_mut(&status).expect("an answer that leads on");
        answer["links"][operation]["requestBody"] = body;
        led
    }

    pub(super) fn refuses(mut self, codes: &[&'static str]) -> Self {
        for code in codes {
            self.codes.entry(status_of(code)).or_default().insert(code);
        }
        self
    }

    /// For a code that has another status elsewhere.
    pub(super) fn refuses_as(mut self, status: u16, code: &'static str) -> Self {
        assert!(CODES.iter().any(|known| (known.0, known.1) == (code, status)), "{code} {status}");
        self.codes.entry(status).or_default().insert(code);
        self
    }

    pub(super) fn to_json(&self) -> Value {
        let mut operation = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "parameters": self.parameters,
            "responses": self.responses(),
        });
        if !self.about.is_empty() {
            operation["description"] = self.about.clone().into();
        }
        if let Some(body) = &self.body {
            operation["requestBody"] = body.clone();
        }
        if self.is_open {
            operation["security"] = json!([]);
        }
        operation
    }

    fn responses(&self) -> Value {
        let mut responses: Map<String, Value> =
            self.answers.iter().map(|(status, answer)| (status.to_string(), answer.clone())).collect();
        for (status, codes) in &self.codes {
            let refusal = refusal(*status, codes);
            match responses.get_mut(&status.to_string()) {
                // Both an answer and a refusal, by media type.
                Some(answer) => answer["content"][wire::PROBLEM_JSON] = refusal["content"][wire::PROBLEM_JSON].clone(),
                None => drop(responses.insert(status.to_string(), shared(codes).unwrap_or(refusal))),
            }
        }
        Value::Object(responses)
    }
}

fn json_content<T: Serialize + JsonSchema>(schemas: &mut Schemas, place: Place, example: &T) -> Value {
    json!({ "schema": schemas.add::<T>(place), "example": example })
}

/// Refusals for one reason alone are met everywhere: they stand in the document once.
fn shared(codes: &BTreeSet<&'static str>) -> Option<Value> {
    let only = codes.first().filter(|_| codes.len() == 1)?;
    Some(json!({ "$ref": format!("#/components/responses/{}", camel(only)) }))
}

/// What `shared` refers to.
pub(super) fn shared_refusals(operations: &[Operation]) -> Map<String, Value> {
    let alone = operations.iter().flat_map(|one| &one.codes).filter(|(_, codes)| codes.len() == 1);
    alone.map(|(status, codes)| (codes.iter().map(|code| camel(code)).collect(), refusal(*status, codes))).collect()
}

fn refusal(status: u16, codes: &BTreeSet<&'static str>) -> Value {
    let meaning =
        |code: &&str| CODES.iter().find(|known| (known.0, known.1) == (*code, status)).map_or("", |known| known.2);
    let lines: Vec<String> = codes.iter().map(|code| format!("`{code}`: {}", meaning(code))).collect();
    let schema = json!({
        "allOf": [{ "$ref": "#/answer/Problem" }, { "properties": { "code": { "enum": codes }, "status": { "const": status } } }],
    });
    let mut refusal =
        json!({ "description": lines.join(" "), "content": { wire::PROBLEM_JSON: { "schema": schema } } });
    let header = match status {
        401 => Some(("WWW-Authenticate", true)),
        405 => Some(("Allow", true)),
        416 => Some(("Content-Range", true)),
        429 | 503 => Some(("Retry-After", true)),
        _ => None,
    };
    if let Some((name, required)) = header {
        refusal["headers"][name] = json!({ "required": required, "schema": { "type": "string" } });
    }
    refusal
}

/// A parameter is there or not; it is never null.
fn not_null(schema: &mut Value) {
    if let Some(types) = schema["type"].as_array() {
        schema["type"] = types.iter().find(|name| *name != "null").cloned().unwrap_or_default();
    }
    if let Some(words) = schema.get_mut("enum").and_then(Value::as_array_mut) {
        words.retain(|word| !word.is_null());
    }
}

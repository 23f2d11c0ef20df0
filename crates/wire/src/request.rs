//! Bodies of requests. Unknown fields are refused, so that a misspelt one is never silently passed over.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    object::objects,
    policy::{Budgets, Policy, words},
};

macro_rules! requests {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident : $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(remote = "Self", deny_unknown_fields)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $type,)*
            /// The same key and body again gets the first answer; the header `Idempotency-Key` does the same.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub idempotency_key: Option<String>,
        }

        objects! { $name }
    )*};
}

requests! {
    /// `POST /v1/sessions`.
    CreateSession {
        /// Absolute, and an existing folder.
        workspace_path: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] system_prompt: Option<String>,
        /// Whether a message starts a turn by itself; by default it does.
        #[serde(default, skip_serializing_if = "Option::is_none")] auto_run: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] role: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] model: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] mode: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] labels: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")] budgets: Option<Budgets>,
        #[serde(default, skip_serializing_if = "Option::is_none")] policy: Option<Policy>,
        #[serde(default, skip_serializing_if = "Option::is_none")] memory: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] preferences: Option<Map<String, Value>>,
        /// A JSON Schema that the last text of every turn has to fit.
        #[serde(default, skip_serializing_if = "Option::is_none")] output_schema: Option<Map<String, Value>>,
    }
    /// `POST /v1/sessions/{id}/messages`.
    SendMessage {
        #[serde(default, skip_serializing_if = "Option::is_none")] role: Option<Role>,
        parts: Vec<Part>,
        /// As the session was created, where it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")] auto_run: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")] delivery: Option<Delivery>,
    }
    /// `POST /v1/sessions/{id}/approve`.
    Approve {
        #[serde(default, skip_serializing_if = "Option::is_none")] turn_id: Option<String>,
        tool_call_id: String,
        action: Verdict,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] scope: Option<Scope>,
    }
    /// `POST /v1/sessions/{id}/cancel`. The body may be left out.
    Cancel {
        /// The open turn, where it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")] turn_id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
    }
    /// `POST /v1/sessions/{id}/undo`. The body may be left out.
    Undo {
        /// The last turn whose changes can still be taken back, where it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")] turn_id: Option<String>,
    }
    /// `PATCH /v1/sessions/{id}`. What is not said stays as it is, inside `policy` and `budgets` too.
    Patch {
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] labels: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")] policy: Option<Policy>,
        /// For the turns to come; not while one is open.
        #[serde(default, skip_serializing_if = "Option::is_none")] model: Option<String>,
        /// Absolute, and an existing folder; not while a turn is open.
        #[serde(default, skip_serializing_if = "Option::is_none")] workspace_path: Option<String>,
        /// Only raising is allowed.
        #[serde(default, skip_serializing_if = "Option::is_none")] budgets: Option<Budgets>,
    }
    /// `POST /v1/sessions/{id}/fork`. The body may be left out.
    Fork {
        /// The last event that the fork shares with this session; the present one, where it is not said.
        #[serde(default, skip_serializing_if = "Option::is_none")] seq: Option<u64>,
        /// As this session's, where it is not said; so are the model and the folder.
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] model: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] workspace_path: Option<String>,
        /// A fork has no labels but these.
        #[serde(default, skip_serializing_if = "Option::is_none")] labels: Option<Vec<String>>,
    }
    /// `POST /v1/sessions/{id}/end`. The body may be left out.
    End {
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
    }
    /// `POST …/attachments`, as JSON.
    NewAttachment {
        /// A file name; what is not plain in it is replaced.
        name: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] mime_type: Option<String>,
        /// The bytes, in base64.
        data: String,
    }
    /// `POST …/turns`, `…/retry`, `…/resume` and `…/compact`, which need no body.
    EmptyCommand {}
}

/// The parameters with which `GET /v1/sessions` picks; what is not said does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionFilter {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_path: Option<String>,
    /// A text that the title or a message holds as it stands, whatever its case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(remote = "Self", tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    Text { text: String },
    Image { r#ref: String, mime_type: String },
    Audio { r#ref: String, mime_type: String },
    File { r#ref: String, mime_type: String },
}

objects! { Part }

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Part::Text { text: text.into() }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Part::Text { .. } => "text",
            Part::Image { .. } => "image",
            Part::Audio { .. } => "audio",
            Part::File { .. } => "file",
        }
    }
}

words! {
    /// Whose message it is. Only `user` and `system` are accepted from outside.
    Role { System, User, Assistant, Tool, }
    /// For when a turn is under way: wait, or enter its next model request.
    Delivery { Queue, Steer, }
    Verdict { Approve, Deny, }
    /// How far an approval reaches.
    Scope { Once, Session, Always, }
}

impl Default for Verdict {
    /// Nothing is allowed by leaving it out: this only serves `Approve::default()`.
    fn default() -> Self {
        Verdict::Deny
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back_as_it_was_written() {
        let message = SendMessage {
            role: Some(Role::User),
            parts: vec![Part::text("hi"), Part::File { r#ref: "attachments/a".into(), mime_type: "text/plain".into() }],
            auto_run: Some(false),
            ..SendMessage::default()
        };
        let text = serde_json::to_string(&message).unwrap();
        let file = r#"{"type":"file","ref":"attachments/a","mime_type":"text/plain"}"#;
        let expected = format!(r#"{{"role":"user","parts":[{{"type":"text","text":"hi"}},{file}],"auto_run":false}}"#);
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<SendMessage>(&text).unwrap(), message);
    }

    #[test]
    fn an_array_is_no_request() {
        assert!(serde_json::from_str::<End>(r#"["over",null]"#).is_err());
        assert!(serde_json::from_str::<Part>(r#"["text",{"text":"hi"}]"#).is_err());
        assert!(serde_json::from_str::<Part>(r#"["text","hi"]"#).is_err());
    }

    #[test]
    fn unknown_fields_are_refused() {
        assert!(serde_json::from_str::<End>(r#"{"reasn":"x"}"#).is_err());
        assert!(serde_json::from_str::<Part>(r#"{"type":"text","text":"hi","x":1}"#).is_err());
    }
}

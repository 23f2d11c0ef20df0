//! What a client gets when something was refused or failed.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An `application/problem+json` body: a stable code, one plain sentence and a hint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Problem {
    #[serde(rename = "type", default = "about_blank")]
    pub kind: String,
    /// The status in words.
    #[serde(default)]
    pub title: String,
    pub status: u16,
    /// Stable: programs may compare it.
    pub code: String,
    /// For people; its wording may change.
    #[serde(default)]
    pub detail: String,
    #[serde(default)]
    pub hint: String,
    /// Further facts, such as the first answer to an approval.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub info: Value,
}

fn about_blank() -> String {
    "about:blank".to_owned()
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}

impl std::error::Error for Problem {}

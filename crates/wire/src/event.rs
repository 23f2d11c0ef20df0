//! One event of a session's stream, as every native stream shows it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A numbered event, or a delta that follows one. Clients pass over types they do not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    pub seq: u64,
    /// Only deltas have it: where the delta ends in its turn's spool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pos: Option<u64>,
    #[serde(default)]
    pub ts: String,
    pub session_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    #[serde(rename = "type")]
    pub wire_type: String,
    /// Deltas have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    #[serde(default)]
    pub data: Value,
}

impl Event {
    /// The cursor that continues right after this event.
    pub fn cursor(&self) -> String {
        match self.pos {
            None | Some(0) => self.seq.to_string(),
            Some(pos) => format!("{}.{pos}", self.seq),
        }
    }
}

/// Who caused an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Actor {
    /// `user | agent | policy | system`.
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub surface: Option<String>,
}

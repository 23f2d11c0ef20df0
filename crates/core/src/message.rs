//! Messages and their parts, as the conversation holds them.

use serde::{Deserialize, Serialize};

use crate::ids::MessageId;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    System,
    User,
    Assistant,
    Tool,
}

/// A piece of a message or of a tool's result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Part {
    Text { text: String },
    Image { r#ref: String, mime_type: String },
    Audio { r#ref: String, mime_type: String },
    File { r#ref: String, mime_type: String },
}

impl Part {
    pub fn text(text: impl Into<String>) -> Self {
        Part::Text { text: text.into() }
    }

    /// The attachment that it stands for.
    pub fn attachment(&self) -> Option<&str> {
        match self {
            Part::Text { .. } => None,
            Part::Image { r#ref, .. } | Part::Audio { r#ref, .. } | Part::File { r#ref, .. } => Some(r#ref),
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Part::Text { .. } => "text",
            Part::Image { .. } => "image",
            Part::Audio { .. } => "audio",
            Part::File { .. } => "file",
        }
    }

    /// What it is, for people.
    pub fn described(&self) -> String {
        match self {
            Part::Text { .. } => "text".to_owned(),
            Part::Image { mime_type, .. } | Part::Audio { mime_type, .. } | Part::File { mime_type, .. } => {
                format!("a part of type '{}' ({mime_type})", self.kind())
            }
        }
    }
}

impl Part {
    /// Puts its name in the place of an attachment, with the reason why it is not there.
    pub fn name_only(&mut self, why: &str) {
        if let Some(name) = self.attachment() {
            *self = Part::text(format!("({}, {name}: {why})", self.described()));
        }
    }
}

/// The text of all text parts, joined as they stand.
pub fn joined_text(parts: &[Part]) -> String {
    let mut all = String::new();
    for part in parts {
        if let Part::Text { text } = part {
            all.push_str(text);
        }
    }
    all
}

/// A file that somebody gave to a session; its bytes lie beside the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Attachment {
    /// `attachments/<name>`: how parts of messages name it.
    pub r#ref: String,
    pub mime_type: String,
    pub bytes: u64,
    /// Of its bytes.
    pub digest: String,
}

/// What to do with a message while a turn is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// It waits its turn.
    #[default]
    Queue,
    /// It enters the next model request of the turn under way.
    Steer,
}

/// A message that the log holds, by reference: its body stands at `seq`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MessageRef {
    pub id: MessageId,
    pub seq: u64,
}

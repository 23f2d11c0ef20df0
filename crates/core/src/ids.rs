//! Names of things: ULIDs with a prefix. They are handed in as values and never made here by chance.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use ulid::Ulid;

/// A text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a valid id: expected {prefix}_ and 26 letters or digits")]
pub struct BadId {
    pub text: String,
    pub prefix: &'static str,
}

macro_rules! ids {
    ($(#[doc = $doc:literal] $name:ident $prefix:literal;)*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Ulid);

        impl $name {
            pub const PREFIX: &'static str = $prefix;

            pub fn new(ulid: Ulid) -> Self {
                Self(ulid)
            }

            pub fn ulid(self) -> Ulid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut buffer = [0; ulid::ULID_LEN];
                write!(f, concat!($prefix, "_{}"), self.0.array_to_str(&mut buffer))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                let bad = || BadId { text: text.chars().take(64).collect(), prefix: $prefix };
                let rest = text.strip_prefix(concat!($prefix, "_")).ok_or_else(bad)?;
                let ulid = Ulid::from_string(rest).map_err(|_| bad())?;
                let id = Self(ulid);
                // One id has one spelling, so that a path or a key never has two.
                if id.to_string() == text { Ok(id) } else { Err(bad()) }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
                text.parse().map_err(de::Error::custom)
            }
        }

        #[cfg(feature = "schema")]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({
                    "type": "string",
                    "description": $doc.trim(),
                    "pattern": concat!("^", $prefix, "_[0-7][0-9A-HJKMNP-TV-Z]{25}$"),
                })
            }
        }
    )*};
}

ids! {
    /// One conversation, one log.
    SessionId "sess";
    /// One input and all that happens until it is settled.
    TurnId "turn";
    /// One message of a conversation.
    MessageId "msg";
    /// One tool call.
    CallId "call";
    /// One execution of a workflow.
    RunId "run";
    /// Bytes kept beside a log.
    ArtifactId "art";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_prints_with_its_prefix_and_reads_back() {
        let id = SessionId::new(Ulid::from_parts(1_700_000_000_000, 7));
        assert_eq!(id.to_string().parse::<SessionId>(), Ok(id));
        assert!(id.to_string().starts_with("sess_"));
        assert_eq!(serde_json::from_str::<SessionId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
    }

    #[test]
    fn foreign_prefixes_other_spellings_and_paths_are_refused() {
        let id = TurnId::new(Ulid::from_parts(5, 0xABC)).to_string();
        for bad in ["", "turn_", "sess_../../etc", &id.to_lowercase(), &id.replace("turn", "sess"), &format!("{id}x")] {
            assert!(bad.parse::<TurnId>().is_err(), "{bad}");
        }
    }
}

//! The one cursor of every stream: `seq` of a numbered event, or `seq.pos` of a delta after it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A place in a session's stream. `pos` is 0 for the numbered event itself, and otherwise the byte at which the delta's record ends in its turn's spool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    pub seq: u64,
    pub pos: u64,
}

impl Cursor {
    pub const START: Cursor = Cursor { seq: 0, pos: 0 };

    pub fn at(seq: u64) -> Self {
        Cursor { seq, pos: 0 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a cursor: expected a number such as 42, or 42.1830 inside a streamed output")]
pub struct BadCursor(String);

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pos {
            0 => write!(f, "{}", self.seq),
            pos => write!(f, "{}.{pos}", self.seq),
        }
    }
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let bad = || BadCursor(text.chars().take(64).collect());
        let number = |part: &str| {
            let plain = !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if plain { part.parse::<u64>().map_err(|_| bad()) } else { Err(bad()) }
        };
        match text.split_once('.') {
            None => Ok(Cursor { seq: number(text)?, pos: 0 }),
            Some((seq, pos)) => Ok(Cursor { seq: number(seq)?, pos: number(pos)? }),
        }
    }
}

impl Serialize for Cursor {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Cursor {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_print_read_and_order() {
        for (text, cursor) in [("0", Cursor::START), ("42", Cursor::at(42)), ("42.1830", Cursor { seq: 42, pos: 1830 })]
        {
            assert_eq!(text.parse(), Ok(cursor));
            assert_eq!(cursor.to_string(), text);
        }
        assert!(Cursor { seq: 42, pos: 1830 } < Cursor::at(43));
        for bad in ["", ".", "4.", ".4", "-1", "+1", "1.2.3", "x", "99999999999999999999999", " 1"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}

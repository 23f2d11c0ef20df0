//! Time and chance as values. Nothing here reads a clock.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use ulid::Ulid;

use crate::ids::{CallId, MessageId, SessionId, TurnId};

/// The last instant that RFC 3339 can tell here (late in the year 9999): what is later could not be read back.
pub(crate) const TIMESTAMP_MS_MAX: u64 = 253_402_207_200_000;

/// Milliseconds since 1970, in UTC; RFC 3339 on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    pub const fn ms(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero when a clock went backwards.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms).min(TIMESTAMP_MS_MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(ms) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => write!(f, "{}", jiff::Timestamp::MAX),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        let at: jiff::Timestamp = text.parse().map_err(de::Error::custom)?;
        let ms = u64::try_from(at.as_millisecond()).map_err(|_| de::Error::custom("a time before 1970"))?;
        Ok(Timestamp(ms.min(TIMESTAMP_MS_MAX)))
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// The instant of one decision, with the chance it may use. The same moment gives the same ids.
#[derive(Debug, Clone)]
pub struct Moment {
    pub at: Timestamp,
    chance: u128,
    used: u64,
}

impl Moment {
    pub fn new(at: Timestamp, chance: u128) -> Self {
        Self { at, chance, used: 0 }
    }

    fn next_ulid(&mut self) -> Ulid {
        // The counter sits in the low bits: ids of one decision sort in the order they were made.
        let low = (self.chance & !0xFFFF) | u128::from(self.used & 0xFFFF);
        self.used += 1;
        Ulid::from_parts(self.at.ms(), low)
    }

    pub fn session_id(&mut self) -> SessionId {
        SessionId::new(self.next_ulid())
    }

    pub fn turn_id(&mut self) -> TurnId {
        TurnId::new(self.next_ulid())
    }

    pub fn message_id(&mut self) -> MessageId {
        MessageId::new(self.next_ulid())
    }

    pub fn call_id(&mut self) -> CallId {
        CallId::new(self.next_ulid())
    }

    /// A number from 0 to 999 for jitter.
    pub fn permille(&self) -> u64 {
        u64::try_from((self.chance >> 64) % 1000).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_with_milliseconds() {
        let at = Timestamp::from_ms(1_735_689_600_120);
        assert_eq!(serde_json::to_string(&at).unwrap(), "\"2025-01-01T00:00:00.120Z\"");
        assert_eq!(serde_json::from_str::<Timestamp>("\"2025-01-01T00:00:00.120Z\"").unwrap(), at);
    }

    #[test]
    fn a_moment_gives_the_same_ids_again_and_in_order() {
        let mut a = Moment::new(Timestamp::from_ms(9), 1 << 70);
        let mut b = a.clone();
        let (first, second) = (a.turn_id(), a.turn_id());
        assert_eq!((first, second), (b.turn_id(), b.turn_id()));
        assert!(first < second);
    }
}

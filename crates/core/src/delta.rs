//! Deltas: fragments of an output under way. They go to the turn's spool, never to the log.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeStruct};

use crate::{
    ids::{CallId, SessionId, TurnId},
    time::{TIMESTAMP_MS_MAX, Timestamp},
};

/// Which output a delta belongs to. Deltas of different streams are never merged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Stream {
    /// The answer's text.
    #[default]
    Text,
    /// The model's thinking.
    Thinking,
    /// The arguments of the n-th tool call of the step.
    Arguments(u32),
    /// What a running tool prints.
    Output(CallId),
}

fn first() -> u32 {
    1
}

fn is_first(number: &u32) -> bool {
    *number == 1
}

impl Stream {
    fn is_text(&self) -> bool {
        *self == Stream::Text
    }

    /// The wire type of a delta of this stream.
    pub fn wire_type(self) -> &'static str {
        match self {
            Stream::Text => "model_output_delta",
            Stream::Thinking => "model_thinking_delta",
            Stream::Arguments(_) => "tool_arguments_delta",
            Stream::Output(_) => "tool_output_delta",
        }
    }
}

impl Serialize for Stream {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Stream::Text => s.serialize_str("text"),
            Stream::Thinking => s.serialize_str("think"),
            Stream::Arguments(index) => s.collect_str(&format_args!("args{index}")),
            Stream::Output(call) => s.collect_str(call),
        }
    }
}

impl<'de> Deserialize<'de> for Stream {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(d)?;
        match &*text {
            "text" => Ok(Stream::Text),
            "think" => Ok(Stream::Thinking),
            other => match other.strip_prefix("args") {
                Some(index) => index.parse().map(Stream::Arguments).map_err(de::Error::custom),
                None => other.parse().map(Stream::Output).map_err(de::Error::custom),
            },
        }
    }
}

/// A fragment of an output, as it is kept in the turn's spool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delta {
    /// The last numbered event before it.
    pub seq: u64,
    pub ts: Timestamp,
    pub step: u32,
    pub attempt: u32,
    pub stream: Stream,
    /// Bytes of this stream before this record.
    pub offset: u64,
    pub text: String,
}

/// A delta as a line of its turn's spool: lean names, and what is usual is left out, because there are many of them.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    #[serde(rename = "s")]
    seq: u64,
    /// Milliseconds since the turn's id was made, less than none if a clock was set back.
    #[serde(rename = "m")]
    ms: i64,
    #[serde(rename = "t", default = "first", skip_serializing_if = "is_first")]
    step: u32,
    #[serde(rename = "a", default = "first", skip_serializing_if = "is_first")]
    attempt: u32,
    #[serde(rename = "k", default, skip_serializing_if = "Stream::is_text")]
    stream: Stream,
    #[serde(rename = "o")]
    offset: u64,
    #[serde(rename = "d", borrow)]
    text: Cow<'a, str>,
}

impl Delta {
    /// The line for the turn's spool, without its end.
    pub fn to_line(&self, turn: TurnId) -> serde_json::Result<Vec<u8>> {
        let Delta { seq, ts, step, attempt, stream, offset, ref text } = *self;
        // The times of all clocks are far below the limit, and so is their difference.
        let ms = ts.ms() as i64 - turn.ulid().timestamp_ms() as i64;
        serde_json::to_vec(&Line { seq, ms, step, attempt, stream, offset, text: text.into() })
    }

    /// What `to_line` made for the same turn.
    pub fn from_line(line: &[u8], turn: TurnId) -> serde_json::Result<Self> {
        let Line { seq, ms, step, attempt, stream, offset, text } = serde_json::from_slice(line)?;
        let ms = turn.ulid().timestamp_ms().checked_add_signed(ms).filter(|ms| *ms <= TIMESTAMP_MS_MAX);
        let ms = ms.ok_or_else(|| de::Error::custom("no such time"))?;
        Ok(Self { seq, ts: Timestamp::from_ms(ms), step, attempt, stream, offset, text: text.into_owned() })
    }

    /// Whether `next` can be joined to this one without changing what a reader sees.
    pub fn takes(&self, next: &Delta) -> bool {
        self.seq == next.seq
            && self.step == next.step
            && self.attempt == next.attempt
            && self.stream == next.stream
            && self.offset + self.text.len() as u64 == next.offset
    }
}

/// A delta on the wire: the envelope of a numbered event with `pos` beside `seq`.
pub struct WireDelta<'a> {
    pub session_id: SessionId,
    pub turn_id: TurnId,
    pub pos: u64,
    pub delta: &'a Delta,
}

impl Serialize for WireDelta<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("Delta", 7)?;
        out.serialize_field("seq", &self.delta.seq)?;
        out.serialize_field("pos", &self.pos)?;
        out.serialize_field("ts", &self.delta.ts)?;
        out.serialize_field("session_id", &self.session_id)?;
        out.serialize_field("turn_id", &self.turn_id)?;
        out.serialize_field("type", self.delta.stream.wire_type())?;
        out.serialize_field("data", &WireData(self.delta))?;
        out.end()
    }
}

struct WireData<'a>(&'a Delta);

impl Serialize for WireData<'_> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut out = s.serialize_struct("Data", 5)?;
        match self.0.stream {
            Stream::Text | Stream::Thinking => {
                out.serialize_field("step", &self.0.step)?;
                out.serialize_field("attempt", &self.0.attempt)?;
            }
            Stream::Arguments(index) => {
                out.serialize_field("step", &self.0.step)?;
                out.serialize_field("attempt", &self.0.attempt)?;
                out.serialize_field("index", &index)?;
            }
            Stream::Output(call) => out.serialize_field("tool_call_id", &call)?,
        }
        out.serialize_field("offset", &self.0.offset)?;
        out.serialize_field("text", &self.0.text)?;
        out.end()
    }
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    #[test]
    fn what_is_usual_is_left_out_and_may_stand_there() {
        let turn = TurnId::new(Ulid::from_parts(1_700_000_000_000, 7));
        let (seq, ts) = (7, Timestamp::from_ms(1_700_000_000_005));
        let usual = Delta { seq, ts, step: 1, attempt: 1, stream: Stream::Text, offset: 3, text: "a".into() };
        let other = Delta { step: 2, attempt: 3, stream: Stream::Thinking, ..usual.clone() };
        let early = Delta { ts: Timestamp::from_ms(1_699_999_999_999), text: "\n\u{e4}".into(), ..usual.clone() };
        let usual_json = r#"{"s":7,"m":5,"o":3,"d":"a"}"#;
        let other_json = r#"{"s":7,"m":5,"t":2,"a":3,"k":"think","o":3,"d":"a"}"#;
        let early_json = "{\"s\":7,\"m\":-1,\"o\":3,\"d\":\"\\n\u{e4}\"}";
        for (delta, json) in [(&usual, usual_json), (&other, other_json), (&early, early_json)] {
            assert_eq!(String::from_utf8(delta.to_line(turn).unwrap()).unwrap(), json);
            assert_eq!(&Delta::from_line(json.as_bytes(), turn).unwrap(), delta);
        }
        let in_full = r#"{"s":7,"m":5,"t":1,"a":1,"k":"text","o":3,"d":"a"}"#;
        assert_eq!(Delta::from_line(in_full.as_bytes(), turn).unwrap(), usual);
        for no_time in [i64::MIN, -1_700_000_000_001, i64::MAX] {
            let json = format!(r#"{{"s":7,"m":{no_time},"o":3,"d":"a"}}"#);
            assert!(Delta::from_line(json.as_bytes(), turn).is_err());
        }
    }
}

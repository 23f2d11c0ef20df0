//! Deltas: fragments of an output under way. They go to the turn's spool, never to the log.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeStruct};

use crate::{
    ids::{CallId, SessionId, TurnId},
    time::Timestamp,
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
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
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

/// One record of a spool: lean names, and what is usual is left out, because there are many of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delta {
    /// The last numbered event before it.
    #[serde(rename = "s")]
    pub seq: u64,
    #[serde(rename = "m", with = "ms")]
    pub ts: Timestamp,
    #[serde(rename = "t", default = "first", skip_serializing_if = "is_first")]
    pub step: u32,
    #[serde(rename = "a", default = "first", skip_serializing_if = "is_first")]
    pub attempt: u32,
    #[serde(rename = "k", default, skip_serializing_if = "Stream::is_text")]
    pub stream: Stream,
    /// Bytes of this stream before this record.
    #[serde(rename = "o")]
    pub offset: u64,
    #[serde(rename = "d")]
    pub text: String,
}

mod ms {
    use super::*;

    pub fn serialize<S: Serializer>(at: &Timestamp, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_u64(at.ms())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Timestamp, D::Error> {
        u64::deserialize(d).map(Timestamp::from_ms)
    }
}

impl Delta {
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
    use super::*;

    #[test]
    fn what_is_usual_is_left_out_and_may_stand_there() {
        let (seq, ts) = (7, Timestamp::from_ms(5));
        let usual = Delta { seq, ts, step: 1, attempt: 1, stream: Stream::Text, offset: 3, text: "a".into() };
        let other = Delta { step: 2, attempt: 3, stream: Stream::Thinking, ..usual.clone() };
        let usual_json = r#"{"s":7,"m":5,"o":3,"d":"a"}"#;
        let other_json = r#"{"s":7,"m":5,"t":2,"a":3,"k":"think","o":3,"d":"a"}"#;
        for (delta, json) in [(&usual, usual_json), (&other, other_json)] {
            assert_eq!(serde_json::to_string(delta).unwrap(), json);
            assert_eq!(&serde_json::from_str::<Delta>(json).unwrap(), delta);
        }
        let in_full = r#"{"s":7,"m":5,"t":1,"a":1,"k":"text","o":3,"d":"a"}"#;
        assert_eq!(serde_json::from_str::<Delta>(in_full).unwrap(), usual);
    }
}

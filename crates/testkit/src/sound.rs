//! What must hold of every stream of every session, whatever happened to it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tenure_core::{
    cursor::Cursor,
    event::{Body, Event},
    ids::{CallId, TurnId},
    session::Session,
};
use tenure_engine::StreamItem;

use crate::rig::{as_json, as_text};

/// A stream of one output: turn, wire type, and what tells it from others of that type.
type StreamKey = (TurnId, String, String);

/// Looks at a whole stream from its first event on.
#[derive(Default)]
struct Soundness {
    last: Cursor,
    lengths: BTreeMap<StreamKey, usize>,
    /// Text and thinking shown per turn, step and attempt, while it is neither completed nor closed.
    open: BTreeMap<(TurnId, u64, u64), String>,
    asked: BTreeSet<CallId>,
    runs: BTreeMap<CallId, u32>,
    settled: BTreeSet<TurnId>,
}

/// Panics where a stream breaks a promise; gives back the state it folds to.
pub fn assert_sound(items: &[StreamItem]) -> Session {
    let mut sound = Soundness::default();
    let mut state: Option<Session> = None;
    for item in items {
        assert!(item.cursor > sound.last, "{} comes after {}", item.cursor, sound.last);
        match item.cursor.pos {
            0 => {
                assert_eq!(item.cursor.seq, sound.last.seq + 1, "a number is missing");
                let event = Event::from_json(as_text(item)).expect("an event");
                sound.take_event(&event);
                match &mut state {
                    Some(state) => state.apply(&event),
                    None => state = Session::born(&event),
                }
            }
            _ => {
                assert_eq!(item.cursor.seq, sound.last.seq, "a delta stands at its place");
                sound.take_delta(&as_json(item));
            }
        }
        sound.last = item.cursor;
    }
    let state = state.expect("a stream begins with session_created");
    sound.at_end(&state);
    state
}

impl Soundness {
    fn take_delta(&mut self, delta: &Value) {
        let turn: TurnId = serde_json::from_value(delta["turn_id"].clone()).expect("a delta names its turn");
        assert!(!self.settled.contains(&turn), "nothing is shown of a settled turn");
        let (kind, data) = (delta["type"].as_str().expect("a type"), &delta["data"]);
        let text = data["text"].as_str().expect("a text");
        let which = match kind {
            "tool_output_delta" => {
                let call: CallId = serde_json::from_value(data["tool_call_id"].clone()).expect("a call");
                format!("{call} {}", self.runs.get(&call).expect("a call shows nothing before it starts"))
            }
            _ => format!("{} {} {}", data["step"], data["attempt"], data["index"]),
        };
        let length = self.lengths.entry((turn, kind.to_owned(), which)).or_default();
        assert_eq!(data["offset"].as_u64(), Some(*length as u64), "an offset counts the bytes before: {delta}");
        *length += text.len();
        if let (Some(step), Some(attempt)) = (data["step"].as_u64(), data["attempt"].as_u64()) {
            let open = self.open.entry((turn, step, attempt)).or_default();
            if kind == "model_output_delta" {
                open.push_str(text);
            }
        }
    }

    fn take_event(&mut self, event: &Event) {
        let turn = event.turn_id;
        match &event.body {
            Body::ModelOutputCompleted(output) => {
                self.close(turn, output.step, output.attempt, &output.text);
                self.asked.extend(output.tool_calls.iter().map(|call| call.id));
            }
            Body::ModelAttemptFailed(failed) => self.close(turn, failed.step, failed.attempt, &failed.text),
            Body::ToolCallStarted(started) => {
                let before = self.runs.insert(started.tool_call_id, started.run).unwrap_or(0);
                assert_eq!(started.run, before + 1, "each run has its own intent");
            }
            Body::ToolCallCompleted(done) => {
                let policy = done.origin == tenure_core::event::CallOrigin::VerifyPolicy;
                assert!(self.asked.remove(&done.tool_call_id) || policy, "a call has one result");
            }
            Body::TurnCompleted(_) | Body::TurnFailed(_) | Body::TurnCanceled(_) | Body::TurnExpired(_) => {
                let turn = turn.expect("a settled turn has a name");
                assert!(self.settled.insert(turn), "{turn} was settled twice");
                assert!(self.asked.is_empty(), "no call is left without a result: {:?}", self.asked);
                let left: Vec<_> = self.open.keys().filter(|(open, ..)| *open == turn).collect();
                assert!(left.is_empty(), "a reply that was shown is neither completed nor closed: {left:?}");
            }
            _ => {}
        }
    }

    fn close(&mut self, turn: Option<TurnId>, step: u32, attempt: u32, text: &str) {
        let turn = turn.expect("a reply belongs to a turn");
        let shown = self.open.remove(&(turn, step.into(), attempt.into())).unwrap_or_default();
        assert_eq!(shown, text, "what was shown of step {step}, attempt {attempt}");
    }

    fn at_end(&self, state: &Session) {
        if state.turn.is_none() {
            assert!(self.asked.is_empty() && self.open.is_empty(), "nothing is left open");
        }
    }
}

//! A session with its whole log, driven by inputs. After each one it checks what must hold in any log.

use std::collections::BTreeMap;

use tenure_core::{
    budget::Budgets,
    command::{Input, Refusal},
    event::{Actor, Event, SessionCreated},
    ids::{CallId, MessageId, SessionId, TurnId},
    session::{Decision, Session, Settings, create},
    time::{Moment, Timestamp},
};
use ulid::Ulid;

/// When every script begins.
pub const START_MS: u64 = 1_735_689_600_000;

pub struct World {
    pub session: Session,
    pub events: Vec<Event>,
    pub now_ms: u64,
    /// Turns and messages in the order of their first event: `t1`, `t2`, `m1`, `m2`.
    pub turns: Vec<TurnId>,
    pub messages: Vec<MessageId>,
    decisions: u128,
}

/// A plain session: runs messages at once, default policy and budgets.
/// Its turns have all the time they need: what watches over that would be wanted everywhere.
pub fn plain() -> SessionCreated {
    let settings =
        Settings { workspace_path: "/w".into(), auto_run: true, model: "model".into(), ..Default::default() };
    let budgets = Budgets { max_duration_ms: None, ..Budgets::default() };
    SessionCreated { settings, policy: Default::default(), budgets }
}

impl World {
    pub fn new(created: SessionCreated) -> World {
        let id = SessionId::new(Ulid::from_parts(START_MS, 1));
        let mut moment = Moment::new(Timestamp::from_ms(START_MS), 1);
        let decision = create(id, created, Actor::user("test"), &mut moment).expect("a plain session is created");
        let mut world = World {
            session: decision.state.clone(),
            events: Vec::new(),
            now_ms: START_MS,
            turns: Vec::new(),
            messages: Vec::new(),
            decisions: 1,
        };
        world.take(&decision);
        world
    }

    pub fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.now_ms)
    }

    /// What the session would answer; nothing changes.
    pub fn judge(&self, input: Input) -> Result<Decision, Refusal> {
        // Jitter is zero, so that times can be told exactly.
        let chance = ((self.decisions * 1000) << 64) | (self.decisions << 16);
        self.session.decide(input, &mut Moment::new(self.now(), chance))
    }

    pub fn tell(&mut self, input: Input) -> Result<Decision, Refusal> {
        let decision = self.judge(input)?;
        self.decisions += 1;
        self.take(&decision);
        Ok(decision)
    }

    fn take(&mut self, decision: &Decision) {
        for event in &decision.events {
            assert_eq!(event.seq, self.events.len() as u64 + 1, "numbers follow each other");
            if let Some(last) = self.events.last() {
                assert!(event.ts >= last.ts, "time never runs backwards inside a log");
            }
            let line = serde_json::to_string(event).unwrap();
            assert_eq!(&Event::from_json(&line).unwrap(), event, "an event reads back as it was");
            self.name(event);
            self.events.push(event.clone());
        }
        assert_eq!(fold(&self.events), decision.state, "the state is the fold of the log");
        let snapshot = serde_json::to_string(&decision.state).unwrap();
        assert_eq!(serde_json::from_str::<Session>(&snapshot).unwrap(), decision.state, "a snapshot loses nothing");
        self.session = decision.state.clone();
    }

    fn name(&mut self, event: &Event) {
        if let Some(turn) = event.turn_id.filter(|turn| !self.turns.contains(turn)) {
            self.turns.push(turn);
        }
        if let tenure_core::event::Body::MessageAdded(added) = &event.body {
            self.messages.push(added.message_id);
        }
    }

    pub fn turn(&self, name: &str) -> TurnId {
        let index: usize = name.strip_prefix('t').and_then(|n| n.parse().ok()).expect("a turn's name is t1, t2 …");
        self.turns[index - 1]
    }

    pub fn open_turn(&self) -> TurnId {
        self.session.turn.as_ref().expect("a turn is open").id
    }

    /// The attempt at a review that this call waits for.
    pub fn review_attempt(&self, name: &str) -> u32 {
        let call = self.session.turn.as_ref().and_then(|turn| turn.call(self.call(name)));
        call.and_then(|call| call.reviewing()).map_or(0, |attempts| attempts.made) + 1
    }

    /// The call of this name; `verify` is the one that the policy added last.
    pub fn call(&self, name: &str) -> CallId {
        let mut calls = self.session.turn.iter().flat_map(|turn| &turn.calls);
        match calls.rfind(|call| call.call.name == "verify" && call.call.id.ulid().timestamp_ms() != 0) {
            Some(call) if name == "verify" => call.call.id,
            _ => call_id(name),
        }
    }
}

/// The state that a log folds to.
pub fn fold(events: &[Event]) -> Session {
    let mut state = Session::born(&events[0]).expect("a log begins with session_created");
    for event in &events[1..] {
        state.apply(event);
    }
    state
}

/// A call's id spells its name, so that it can be told from the id alone.
pub fn call_id(name: &str) -> CallId {
    assert!(name.len() <= 8, "a call's name is short");
    let number = name.bytes().fold(0u128, |number, byte| (number << 8) | u128::from(byte));
    CallId::new(Ulid::from_parts(0, number))
}

/// The name that an id spells; calls of the policy have ids of their own.
pub fn call_name(id: CallId) -> String {
    let ulid = id.ulid();
    if ulid.timestamp_ms() != 0 {
        return "verify".into();
    }
    let bytes = ulid.random().to_be_bytes();
    String::from_utf8(bytes.into_iter().skip_while(|byte| *byte == 0).collect()).expect("a call's name is text")
}

/// Counts what a list holds.
pub fn tally<T: Ord>(items: impl IntoIterator<Item = T>) -> BTreeMap<T, usize> {
    let mut counts = BTreeMap::new();
    for item in items {
        *counts.entry(item).or_insert(0) += 1;
    }
    counts
}

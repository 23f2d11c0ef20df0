//! Tells that what was shown of a session is not all of it.

use serde_json::Value;
use tenure_client::print::tamed;
use tenure_wire::{Damage, Event, LOG_DAMAGED};

use crate::exit::{Exit, Problem};

const LOST: &str = "lost";

/// What was found missing while a session was read.
#[derive(Debug, Default)]
pub struct Gaps(Vec<Damage>);

impl Gaps {
    /// Those that are known already become one with what is found further on.
    pub fn add(&mut self, damage: Damage) {
        match self.0.iter_mut().find(|known| known.kind == damage.kind) {
            Some(known) => known.events = known.events.zip(damage.events).map(|(known, more)| known + more),
            None => self.0.push(damage),
        }
    }

    /// Looks whether an event stands for something that is missing.
    pub fn note(&mut self, event: &Event) -> serde_json::Result<()> {
        match event.wire_type.as_str() {
            "event_lost" => self.add(Damage {
                kind: LOST.into(),
                from_seq: event.seq,
                events: Some(1),
                reason: event.data["reason"].as_str().unwrap_or_default().into(),
                hint: "`tenure session fork` goes on from what is left".into(),
            }),
            LOG_DAMAGED => self.add(serde_json::from_value(event.data.clone())?),
            _ => {}
        }
        Ok(())
    }

    /// Puts them beside what is told to a program.
    pub fn beside(&self, mut body: Value) -> serde_json::Result<Value> {
        if !self.0.is_empty() {
            body["damage"] = serde_json::to_value(&self.0)?;
        }
        Ok(body)
    }

    /// How the command ends after it has shown what there is.
    pub fn told(self) -> anyhow::Result<Exit> {
        let Some(last) = self.0.last() else { return Ok(Exit::Ok) };
        let all: Vec<String> = self.0.iter().map(sentence).collect();
        Err(Problem::damaged(format!("this is not all of the session: {}", all.join("; ")), last.hint.clone()).into())
    }
}

pub fn sentence(damage: &Damage) -> String {
    let Damage { from_seq, reason, .. } = damage;
    let reason = tamed(reason);
    match (damage.kind.as_str(), damage.events) {
        (LOST, Some(1)) => format!("event {from_seq} is lost: {reason}"),
        (LOST, Some(events)) => format!("{events} events are lost, the first of them is {from_seq}: {reason}"),
        _ => format!("from event {from_seq} on it cannot be read: {reason}"),
    }
}

//! Everything that a life knows besides the engine: what lasts, who is at work, what was asked and what was answered.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tenure_core::{
    context::{ModelRequest, RequestMeta},
    delta::Delta,
    event::Event,
    ids::{CallId, SessionId, TurnId},
    tool::ToolKind,
};
use tenure_store::SpoolRecord;
use tenure_testkit::Witness;

use super::{faults::Faults, issued::Issued, record::Record, work::Running};

/// What a run of lives adds up to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Sum {
    pub lives: u64,
    pub acts: u64,
    pub crashes: u64,
    pub commands: u64,
    pub acknowledged: u64,
    pub events: u64,
    pub checks: u64,
}

impl Sum {
    pub fn add(&mut self, other: &Sum) {
        self.lives += other.lives;
        self.acts += other.acts;
        self.crashes += other.crashes;
        self.commands += other.commands;
        self.acknowledged += other.acknowledged;
        self.events += other.events;
        self.checks += other.checks;
    }
}

#[derive(Default)]
pub struct Known {
    pub records: BTreeMap<SessionId, Record>,
    pub faults: Faults,
    pub issued: BTreeMap<String, Issued>,
    pub sum: Sum,
    tools: BTreeMap<CallId, Running>,
    models: BTreeMap<SessionId, u32>,
    pub summaries: BTreeMap<SessionId, u32>,
}

#[derive(Default)]
pub struct World(Mutex<Known>);

/// Says what happens, as it happens, to whoever looks into one life.
pub fn tell(what: impl FnOnce() -> String) {
    if std::env::var_os("STORY").is_some() {
        eprintln!("{}", what());
    }
}

impl World {
    pub fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn model_starts(&self, request: &ModelRequest) {
        let RequestMeta { session_id: session, turn_id: turn, step, attempt, .. } = request.meta;
        let known = &mut *self.known();
        let under_way = known.models.entry(session).or_default();
        *under_way += 1;
        let alone = *under_way == 1;
        known.faults.need(alone, || format!("{session}: a model call beside another one"));
        let record = known.records.get(&session).filter(|record| record.may_begin(turn));
        let awaited = record.and_then(|record| record.open.as_ref()).is_some_and(|open| {
            (open.step + 1, open.attempts + 1) == (step, attempt) && !open.interrupted && !open.paused
        });
        known.faults.need(awaited, || format!("{session}: the model is asked for step {step}.{attempt} of {turn}"));
        if let Some(record) = record {
            record.check_request(request, &mut known.faults);
        }
    }

    pub fn model_ends(&self, session: SessionId) {
        if let Some(under_way) = self.known().models.get_mut(&session) {
            *under_way -= 1;
        }
    }

    /// Deltas in the spool of the open turn when a new daemon begins: those shown before, and perhaps refused ones.
    pub fn find_deltas(&self, session: SessionId, turn: TurnId, found: &[SpoolRecord]) {
        let known = &mut *self.known();
        let Some(record) = known.records.get_mut(&session) else { return };
        let of_turn = record.items.iter().filter(|item| item.delta.as_ref().is_some_and(|(of, _)| *of == turn));
        let last = of_turn.map(|item| item.cursor.pos).max().unwrap_or(0);
        let head = record.head();
        for found in found.iter().filter(|found| found.pos > last && found.delta.seq == head) {
            let unsure = record.unsure || record.spools_lost;
            known.faults.need(unsure, || format!("{session}: a delta was found that nobody wrote: {found:?}"));
            record.take_deltas(turn, std::slice::from_ref(&found.delta), &[found.pos], &mut known.faults);
        }
    }

    pub fn tool_starts(&self, run: Running) {
        let known = &mut *self.known();
        let Some(record) = known.records.get_mut(&run.session) else { return };
        for other in known.tools.values().filter(|other| other.session == run.session) {
            let reads = other.kind == ToolKind::Read && run.kind == ToolKind::Read;
            let beside = reads || record.left.contains(&other.call);
            known.faults.need(beside, || format!("{}: {run:?} beside {other:?}", run.session));
        }
        record.tool_starts(run.turn, run.call, &mut known.faults);
        known.tools.insert(run.call, run);
    }

    pub fn tool_gives(&self, session: SessionId, call: CallId, text: String) {
        let known = &mut *self.known();
        let record = known.records.get_mut(&session);
        if let Some(call) = record.and_then(|record| record.calls.get_mut(&call)) {
            call.gave = Some(text);
        }
    }

    pub fn tool_ends(&self, call: CallId) {
        self.known().tools.remove(&call);
    }
}

impl Witness for World {
    fn appended(&self, session: SessionId, events: &[Event]) {
        let known = &mut *self.known();
        known.sum.events += events.len() as u64;
        let Some(first) = events.first() else { return };
        let Some(born) = Record::born(first).or_else(|| known.records.remove(&session)) else { return };
        let running: Vec<Running> = known.tools.values().cloned().collect();
        let record = known.records.entry(session).or_insert(born);
        record.take(events, &running, &mut known.faults);
        let tags = events.iter().filter_map(|event| event.actor.id.as_ref());
        for issued in tags.filter_map(|tag| known.issued.get(tag)) {
            let refused = matches!(issued.answer, Some(Err(_)));
            known.faults.need(!refused, || format!("{session}: {issued:?} was refused and had its effect"));
        }
    }

    fn spooled(&self, session: SessionId, turn: TurnId, deltas: &[Delta], ends: &[u64]) {
        let known = &mut *self.known();
        let Some(record) = known.records.get_mut(&session) else { return };
        record.take_deltas(turn, deltas, ends, &mut known.faults);
    }

    fn heard(&self, session: SessionId, seq: u64) {
        if let Some(record) = self.known().records.get_mut(&session) {
            record.heard = seq;
        }
    }

    fn refused(&self, session: SessionId) {
        if let Some(record) = self.known().records.get_mut(&session) {
            (record.refused, record.unsure) = (true, true);
        }
    }

    fn swept(&self, spools: u64) {
        if spools > 0 {
            self.known().records.values_mut().for_each(|record| record.lose_old_spools());
        }
    }
}

//! The looks at a whole life: after every act, and once more at its end.

use std::time::Duration;

use tenure_core::{
    command::{Command, Update, Verdict},
    ids::SessionId,
    policy::Scope,
    session::{Phase, Session},
};
use tenure_engine::{Engine, Error};
use tenure_store::{Limit, Store};

use super::{
    commands::Wish,
    faults::Faults,
    life::{Day, Life},
    readers::Reader,
    record::Record,
    script,
    world::World,
};

/// Looks for an end of all work, each some seconds of simulated time after the other.
const HELPED_MAX: usize = 3000;

impl Life {
    /// What the engine shows and what the store holds are what came to last.
    pub async fn look(&mut self, day: &Day) -> Result<(), String> {
        self.first_fault()?;
        for session in self.sessions() {
            see_state(&day.engine, &self.world, session).await;
            read_back(&*day.store, &self.world, session).await;
        }
        let broken = day.engine.notices().into_iter().find(|notice| notice.contains("by a fault of the daemon"));
        self.world.known().faults.need(broken.is_none(), || format!("{broken:?}"));
        self.first_fault()
    }

    /// Everybody helps until nothing is left to do; then everything is looked at once more.
    pub async fn finish(&mut self, day: &Day) -> Result<(), String> {
        day.store.clear();
        let mut quiet = false;
        for round in 0.. {
            let help = self.help();
            let rests = help.is_empty() && self.rests();
            // What lasts may still be on its way to the engine, and a command on its way to it: one more look.
            if rests && quiet {
                break;
            }
            quiet = rests;
            if round > HELPED_MAX {
                return Err(format!("no end comes: {}", self.what_is_open()));
            }
            let tasks = help.into_iter().map(|(session, wish)| self.send(day, session, wish)).collect();
            self.join(tasks).await;
            let pause = if rests { 2000 } else { 200 + 100 * round as u64 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.look(day).await?;
        }
        self.read_all(day).await;
        for session in self.sessions() {
            check_snapshot(&*day.store, &self.world, session).await;
        }
        self.look_back();
        self.first_fault()
    }

    fn look_back(&self) {
        let known = &mut *self.world.known();
        for record in known.records.values() {
            record.at_end(&mut known.faults);
        }
    }

    /// What somebody could do for sessions that wait.
    fn help(&mut self) -> Vec<(SessionId, Wish)> {
        let known = self.world.known();
        let mut help = vec![];
        for record in known.records.values().filter(|record| !record.ended) {
            let waiting = record.waiting().into_iter().map(|call| {
                let (verdict, scope) = (Verdict::Approve, Scope::Once);
                Command::Answer { turn_id: None, call, verdict, scope, reason: None }
            });
            help.extend(waiting.map(|command| (record.id, (command, None))));
            let Some(turn) = &record.state.turn else { continue };
            let command = match turn.phase {
                Phase::Interrupted => Command::Resume { turn_id: turn.id },
                Phase::Budget(_) => Command::Update(Box::new(Update {
                    budgets: Some(script::raised(&record.state.budgets)),
                    ..Update::default()
                })),
                Phase::Going | Phase::Stopping(_) => continue,
            };
            help.push((record.id, (command, None)));
        }
        help
    }

    fn rests(&self) -> bool {
        self.world.known().records.values().all(|record| record.rests())
    }

    fn what_is_open(&self) -> String {
        let known = self.world.known();
        let open: Vec<_> = known.records.values().filter_map(|record| record.state.turn.as_ref()).collect();
        format!("{open:?}")
    }

    /// Every watcher reads to the end, and a new one from the beginning.
    async fn read_all(&mut self, day: &Day) {
        for session in self.sessions() {
            let fresh = Reader::at(session, 0, &self.world.known().records[&session]);
            self.readers.push(fresh);
        }
        for reader in &mut self.readers {
            // Once to the end of its old stream, once more with a new one.
            for _ in 0..3 {
                reader.read(&day.engine, &self.world, usize::MAX).await;
            }
            let known = &mut *self.world.known();
            let record = &known.records[&reader.session];
            let done = reader.is_done(record);
            known.faults.need(done, || {
                let place = reader.place();
                format!("{}: a watcher stays at {place:?} of {} items", reader.session, record.items.len())
            });
        }
    }
}

/// The state that the engine shows is the fold up to its number, and never goes back.
async fn see_state(engine: &Engine, world: &World, session: SessionId) {
    let shown = engine.session(session).await;
    let known = &mut *world.known();
    let Some(record) = known.records.get_mut(&session) else { return };
    let shown = match shown {
        Ok(shown) => shown,
        // A disk that is being harmed may refuse to open a log.
        Err(Error::Store(tenure_store::Error::Disk { .. })) => return,
        Err(error) => return known.faults.need(false, || format!("{session} shows no state: {error}")),
    };
    let fits = record.lagging.seq <= shown.seq && shown.seq <= record.head();
    let (from, head) = (record.lagging.seq, record.head());
    known.faults.need(fits, || format!("{session} shows a state at {}, after {from}, of {head}", shown.seq));
    if !fits {
        return;
    }
    for event in &record.events[from as usize..shown.seq as usize] {
        record.lagging.apply(event);
    }
    let same = *shown == record.lagging;
    known.faults.need(same, || format!("{session}: the state is {shown:?}, and the fold {:?}", record.lagging));
}

/// The store gives back what was written, and nothing else.
async fn read_back(store: &dyn Store, world: &World, session: SessionId) {
    let after = world.known().records[&session].read_back;
    let read = store.read(session, after, Limit { events: usize::MAX, bytes: usize::MAX }).await;
    let known = &mut *world.known();
    let Some(record) = known.records.get_mut(&session) else { return };
    let Ok(read) = read else { return };
    let events: Vec<_> = read.iter().filter_map(|stored| stored.parse().ok()).collect();
    let same = events == record.events[after as usize..];
    known.faults.need(same, || format!("{session}: the store gives other events than were written after {after}"));
    record.read_back = record.head();
}

/// A snapshot with the rest of the log is the same state.
async fn check_snapshot(store: &dyn Store, world: &World, session: SessionId) {
    let Ok(Some(snapshot)) = store.snapshot_get(session).await else { return };
    let known = &mut *world.known();
    let record = &known.records[&session];
    let Ok(mut state) = serde_json::from_slice::<Session>(&snapshot.state) else {
        return known.faults.need(false, || format!("{session}: the snapshot cannot be read"));
    };
    for event in record.events.iter().skip(snapshot.seq as usize) {
        state.apply(event);
    }
    known.faults.need(state == record.state, || format!("{session}: the snapshot at {} differs", snapshot.seq));
}

impl Record {
    fn at_end(&self, faults: &mut Faults) {
        let mut fold = self.events.first().and_then(Session::born);
        for event in self.events.iter().skip(1) {
            if let Some(fold) = &mut fold {
                fold.apply(event);
            }
        }
        faults.need(fold.as_ref() == Some(&self.state), || format!("{}: the fold from scratch differs", self.id));
        for message in self.messages.keys() {
            let waits = self.state.unsent.iter().any(|unsent| unsent.id == *message);
            let taken = self.taken.contains(message);
            faults.need(taken || waits || self.ended, || format!("{}: {message} is lost", self.id));
            faults.need(!(taken && waits), || format!("{}: {message} waits and was taken in", self.id));
        }
    }
}

//! Forks in a life: each begins with the same events, says so, starts nothing by itself, and is there after every crash.

use tenure_core::{
    event::{Actor, Body, Event},
    ids::SessionId,
    session::{Session, TurnStatus},
};
use tenure_engine::{Error, NewFork};
use tenure_store::{Limit, Store};

use super::life::{Day, Life};

impl Life {
    /// Forks a session at some event; twice at once where there is a key.
    pub async fn fork(&mut self, day: &Day, session: SessionId) {
        let past: Vec<Event> = match self.world.known().records.get(&session) {
            Some(record) => record.events.clone(),
            None => return,
        };
        let seq = 1 + self.dice.roll(past.len() as u64);
        self.asked += 1;
        let key = self.dice.chance(50).then(|| format!("fork {}", self.asked));
        let make = || {
            let new = NewFork { seq: Some(seq), ..NewFork::default() };
            day.engine.fork(session, new, key.clone(), Actor::user("life"))
        };
        let made = match key.is_some() {
            true => {
                let (one, two) = tokio::join!(make(), make());
                if let (Ok(one), Ok(two)) = (&one, &two) {
                    self.world
                        .known()
                        .faults
                        .need(one == two, || format!("one key made the forks {one:?} and {two:?}"));
                }
                one.or(two)
            }
            false => make().await,
        };
        let id = match made {
            Ok(forked) => forked.session_id,
            // A disk that is being harmed may refuse to make it.
            Err(Error::Store(_)) => return,
            Err(error) => {
                self.world.known().faults.need(false, || format!("no fork of {session} at {seq}: {error}"));
                return;
            }
        };
        let events = read(&*day.store, id).await;
        self.look_at_fork(session, &past[..seq as usize], &events);
        self.forks.insert(id, events);
    }

    fn look_at_fork(&self, from: SessionId, past: &[Event], events: &[Event]) {
        let faults = &mut self.world.known().faults;
        let as_ours = |event: &Event| Event { session_id: events[0].session_id, ..event.clone() };
        let shared = events.len() > past.len() && past.iter().map(as_ours).eq(events[..past.len()].iter().cloned());
        faults.need(shared, || format!("the fork {events:?} does not begin as {past:?}"));
        let told = events[past.len()..].iter().any(|event| {
            matches!(&event.body, Body::SessionForked(forked) if (forked.from, forked.at_seq) == (from, past.len() as u64))
        });
        faults.need(told, || format!("a fork of {from} does not say so: {events:?}"));
        let mut state = Session::born(&events[0]).expect("a log begins with a session");
        events[1..].iter().for_each(|event| state.apply(event));
        let rests = state.turn.as_ref().is_none_or(|turn| turn.status() == TurnStatus::Interrupted);
        faults.need(rests && state.queue.is_empty(), || format!("a fork of {from} is at work: {:?}", state.turn));
    }

    /// Nobody speaks to a fork, so it stays as it was made, but for its end after long silence.
    pub async fn look_at_forks(&self, store: &dyn Store) {
        for (id, events) in &self.forks {
            let found = read(store, *id).await;
            let (same, more) = found.split_at(events.len().min(found.len()));
            let holds = same == events && more.iter().all(|event| matches!(event.body, Body::SessionExpired(_)));
            self.world.known().faults.need(holds, || format!("the fork {id} was {events:?} and is {found:?}"));
        }
    }
}

async fn read(store: &dyn Store, id: SessionId) -> Vec<Event> {
    let mut events: Vec<Event> = vec![];
    loop {
        let page = store.read(id, events.len() as u64, Limit::default()).await.unwrap_or_default();
        if page.is_empty() {
            return events;
        }
        events.extend(page.iter().map(|stored| stored.parse().expect("what was stored can be read")));
    }
}

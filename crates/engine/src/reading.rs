//! What can be asked of the engine: states, records, lists, counts and subscriptions. Nothing here changes a session.

use std::{
    collections::HashSet,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tenure_core::{
    budget::Spent,
    command::Refusal,
    cursor::Cursor,
    ids::{SessionId, TurnId},
    session::{Life, Session, Turn, TurnStatus},
    tool::{OfferedTool, ToolSpec},
};
use tenure_store::Row;
use tenure_tools::foreign::{Selection, SourceState};

use crate::{
    Counts, Damage, Engine, Error, FeedCursor, FeedSubscription, Found, Messages, Subscription, TurnRecord, Wanted,
    history,
    hub::lock,
    load,
    redaction::redacted,
    search,
    warm::{Mail, row_of},
};

impl Engine {
    /// The state of a session. Looking at a cold one does not warm it.
    pub async fn session(&self, session: SessionId) -> Result<Arc<Session>, Error> {
        // One that an earlier life left open comes before its turn, if somebody asks for it.
        if self.0.left_open.has(session).await && self.warm(session).await.is_ok() {
            self.0.left_open.one(session).await;
        }
        if let Some(state) = self.0.warm_state(session) {
            return Ok(state.borrow().clone());
        }
        let store = &*self.0.parts.store;
        let checked = store.check(session).await;
        match (load::state(store, session).await, checked) {
            (Ok((mut state, ..)), Err(tenure_store::Error::Damaged { .. })) => {
                state.life = Life::Failed;
                // The listing reads no logs: it learns of damage from whoever meets it.
                if let Err(error) = store.row_put(row_of(&state)).await {
                    tracing::debug!("the row of {session} was not written: {error}");
                }
                Ok(Arc::new(state))
            }
            // Not even its first event can be read.
            (Err(_), Err(damage @ tenure_store::Error::Damaged { .. })) => Err(damage.into()),
            (loaded, _) => Ok(Arc::new(loaded?.0)),
        }
    }

    /// The state of a session as it was at one of its events.
    pub async fn session_at(&self, session: SessionId, seq: u64) -> Result<Arc<Session>, Error> {
        let present = self.session(session).await?;
        if seq >= present.seq {
            return Ok(present);
        }
        let store = &*self.0.parts.store;
        let head = tenure_store::Head { seq, ..store.head(session).await? };
        Ok(Arc::new(load::state_at(store, session, head).await?.0))
    }

    /// A turn's record; with `wait`, when it rests or the time is over.
    pub async fn turn(&self, session: SessionId, turn: TurnId, wait: Option<Duration>) -> Result<TurnRecord, Error> {
        let deadline = tokio::time::Instant::now() + wait.unwrap_or_default();
        loop {
            // What changes from here on is noticed, also while the record is being asked for.
            let mut state = self.0.warm_state(session);
            if let Some(state) = &mut state {
                state.borrow_and_update();
            }
            let record = self.turn_now(session, turn, state.is_some()).await?;
            if wait.is_none() || record.status.is_resting() {
                return Ok(record);
            }
            let Some(mut state) = state else {
                // Nothing happens to a cold session.
                self.warm(session).await?;
                continue;
            };
            tokio::select! {
                biased;
                // An error says that the session was put out of memory: look again.
                _ = state.changed() => {}
                () = tokio::time::sleep_until(deadline) => return Ok(record),
                () = self.0.stop.cancelled() => return Ok(record),
            }
        }
    }

    async fn turn_now(&self, session: SessionId, turn: TurnId, is_warm: bool) -> Result<TurnRecord, Error> {
        let store = &*self.0.parts.store;
        let record = match is_warm {
            true => self.post(session, |reply| Mail::Turn { turn, reply }).await??,
            false => {
                let (state, ..) = load::state(store, session).await?;
                let record = load::record(store, &state, turn).await?;
                record.map(|mut record| {
                    record.refresh(&state);
                    record
                })
            }
        };
        let hint = "list the session's turns";
        record.ok_or_else(|| Refusal::new("unknown_turn", format!("there is no turn {turn} here"), hint).into())
    }

    /// Sessions, newest first, that are what is wanted.
    pub async fn list(&self, before: Option<SessionId>, limit: usize, wanted: &Wanted) -> Result<Found, Error> {
        self.0.left_open.all().await;
        search::list(&*self.0.parts.store, before, limit, wanted).await
    }

    /// What the open turns of these sessions do, each in its row's place. Only sessions that have something pending are
    /// looked at.
    pub async fn turns_of(&self, rows: &[Row]) -> Result<Vec<Option<TurnStatus>>, Error> {
        let (mut found, mut marked) = (Vec::with_capacity(rows.len()), None);
        for row in rows {
            let status = |state: &Session| state.turn.as_ref().map(Turn::status);
            found.push(match self.0.warm_state(row.id) {
                _ if !matches!(&*row.status, "active" | "waiting_approval") => None,
                Some(state) => status(&state.borrow()),
                None => {
                    let open: &HashSet<SessionId> = match &mut marked {
                        Some(open) => open,
                        none => none.insert(self.0.parts.store.open_sessions().await?.into_iter().collect()),
                    };
                    match open.contains(&row.id) {
                        // One that was purged meanwhile, or cannot be read, has no turn.
                        true => self.session(row.id).await.ok().and_then(|state| status(&state)),
                        false => None,
                    }
                }
            });
        }
        Ok(found)
    }

    /// The session that goes by this name: the latest with such a label, an open one first; or the latest open one of
    /// such a role.
    pub async fn named(&self, name: &str) -> Result<Option<SessionId>, Error> {
        search::named(&*self.0.parts.store, name).await
    }

    /// What all sessions have used, and how many there are.
    pub async fn usage(&self, wanted: &Wanted) -> Result<(Spent, usize), Error> {
        self.0.left_open.all().await;
        search::usage(&*self.0.parts.store, wanted).await
    }

    /// The conversation after an event, oldest first: the events that hold messages.
    pub async fn messages(&self, session: SessionId, after: u64, limit: usize) -> Result<Messages, Error> {
        let store = &*self.0.parts.store;
        let head = store.head(session).await?.seq;
        if after > head {
            store.check(session).await?;
            return Err(behind_the_end(after, head));
        }
        let mut found = history::messages(store, session, after, limit, history::MESSAGES).await?;
        if !found.more {
            found.damage.extend(Damage::of_log(store, session).await?);
        }
        Ok(found)
    }

    /// The tools that agents can be given.
    pub fn tools(&self) -> Arc<[ToolSpec]> {
        self.0.parts.tools.specs()
    }

    /// The foreign tools of a workspace as far as they are known; nothing is started for it.
    pub async fn foreign_tools(&self, workspace: PathBuf) -> ForeignTools {
        let Some(foreign) = self.0.parts.foreign.clone() else { return ForeignTools::default() };
        let look = move || {
            let found = foreign.find(&workspace, &Selection::All);
            let tools = foreign.offer(&found).tools.into_iter().map(|(offered, _)| offered).collect();
            let told = |state: SourceState| ToolSource {
                name: state.source,
                state: serde_json::to_value(state.state).ok().and_then(|word| Some(word.as_str()?.to_owned())),
                problem: state.problem,
            };
            let sources = foreign.states(&found).into_iter().map(told).collect();
            ForeignTools { tools, sources, problems: found.problems }
        };
        let found = tokio::task::spawn_blocking(look).await.unwrap_or_default();
        redacted(&self.0.parts.secrets, &found)
    }

    /// The model of sessions that name none.
    pub fn default_model(&self) -> &str {
        &self.0.parts.config.default_model
    }

    /// The models that sessions can have.
    pub fn models(&self) -> &dyn tenure_models::Registry {
        &*self.0.parts.models
    }

    pub fn counts(&self) -> Counts {
        let tally = &self.0.tally;
        Counts {
            events: tally.events(),
            deltas: tally.deltas(),
            usage: tally.usage(),
            micro_usd: tally.micro_usd(),
            warm_sessions: lock(&self.0.slots).len(),
            open_turns: self.open_turns(),
            subscribers: self.subscribers(),
            retired_sessions: self.retired(),
        }
    }

    /// Everything after `after`: history, and with `follow` what comes.
    pub async fn events(&self, session: SessionId, after: Cursor, follow: bool) -> Result<Subscription, Error> {
        let store = self.0.parts.store.clone();
        let head = store.head(session).await?;
        if after.seq > head.seq || follow && after.seq == head.seq {
            store.check(session).await?;
        }
        if after.seq > head.seq {
            return Err(behind_the_end(after.seq, head.seq));
        }
        let hub = self.0.hubs.of(session);
        let watch = follow.then(|| hub.watch());
        Subscription::open(store, session, after, (hub, watch), self.0.stop.clone()).await
    }

    /// What happens in all sessions, at the level of their status: after a place, or from now on.
    pub fn feed(&self, after: Option<FeedCursor>, follow: bool) -> FeedSubscription {
        FeedSubscription::open(self.0.clone(), after, follow)
    }

    /// What people should know: damage found, leftovers ended, sessions that could not be recovered.
    pub fn notices(&self) -> Vec<String> {
        for notice in self.0.parts.store.notices() {
            self.0.notice(notice);
        }
        lock(&self.0.notices).clone()
    }

    pub fn open_turns(&self) -> usize {
        self.0.open_turns.load(Ordering::Relaxed)
    }

    /// How many sessions have left the memory since the start, each with what it needed there.
    pub fn retired(&self) -> usize {
        self.0.retired.load(Ordering::Relaxed)
    }

    /// Clients that follow one session or all of them.
    pub fn subscribers(&self) -> usize {
        self.0.hubs.watchers() + self.0.feed.watchers()
    }
}

/// A cursor that nobody was given.
fn behind_the_end(after: u64, head: u64) -> Error {
    let message = format!("there is no event {after} in this session; its last one is {head}");
    let hint = "send a cursor that this session gave, or leave it out to begin at the start";
    Refusal::new("bad_cursor", message, hint).into()
}

/// What a workspace brings beside the built-in tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ForeignTools {
    pub tools: Vec<OfferedTool>,
    pub sources: Vec<ToolSource>,
    /// What could not be used, for people.
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolSource {
    pub name: String,
    /// How it is, in a word.
    pub state: Option<String>,
    pub problem: Option<String>,
}

//! The store in memory: the same contract, for tests and for daemons that share one store. Nothing survives the process.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::{
    delta::Delta,
    event::Event,
    ids::{SessionId, TurnId},
    session::KEY_KEPT_MS,
    time::Timestamp,
};
use tokio::sync::watch;

use crate::{
    Blob, CUT, CreateKey, Epoch, Error, Head, Limit, Result, Row, Snapshot, SpoolPage, SpoolRecord, SpoolSum, Stage,
    Store, StoredEvent, SweepReport, delta_line,
    inbox::Inbox,
    line,
    line::{LogReader, Place},
    name::check_blob,
    staged::{Staged, Taken},
    tails::Tails,
};

/// Share it between daemons by cloning the `Arc`; a restart is a new daemon on the same store.
#[derive(Default)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    tails: Arc<Tails>,
    staged: Arc<Staged>,
    inbox: Inbox,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<SessionId, Session>,
    open: BTreeSet<SessionId>,
    keys: HashMap<(String, String), CreateKey>,
    rows: BTreeMap<SessionId, Row>,
}

struct Session {
    epoch: u64,
    tip: Place,
    events: Vec<StoredEvent>,
    spools: HashMap<TurnId, Spool>,
    snapshot: Option<Snapshot>,
    turns: HashMap<TurnId, Bytes>,
    blobs: HashMap<String, Bytes>,
}

impl Default for Session {
    fn default() -> Self {
        Self {
            epoch: 1,
            tip: Place::START,
            events: vec![],
            spools: HashMap::new(),
            snapshot: None,
            turns: HashMap::new(),
            blobs: HashMap::new(),
        }
    }
}

#[derive(Default)]
struct Spool {
    records: Vec<SpoolRecord>,
    closed_at: Option<Timestamp>,
}

impl MemoryStore {
    pub fn new() -> Arc<MemoryStore> {
        Arc::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A session that nobody sees yet.
struct MemoryStage {
    state: Arc<Mutex<State>>,
    tails: Arc<Tails>,
    taken: Taken,
    session: Session,
    reader: LogReader,
}

#[async_trait]
impl Stage for MemoryStage {
    async fn append(&mut self, events: &[Event]) -> Result<Head> {
        let head = self.session.append(self.taken.session(), events)?;
        self.reader = LogReader::at(self.session.tip);
        Ok(head)
    }

    async fn append_lines(&mut self, lines: Bytes) -> Result<Vec<StoredEvent>> {
        let events = self.reader.take(&lines).map_err(Error::NoLog)?;
        self.session.tip = self.reader.place;
        self.session.events.extend(events.iter().cloned());
        Ok(events)
    }

    async fn blob_put(&mut self, name: &str, bytes: Bytes) -> Result<()> {
        check_blob(name)?;
        self.session.blobs.insert(name.to_owned(), bytes);
        Ok(())
    }

    async fn commit(self: Box<Self>) -> Result<Head> {
        if !self.reader.is_whole() {
            return Err(Error::NoLog(CUT.into()));
        }
        let head = self.session.head();
        let mut state = lock(&self.state);
        if state.sessions.contains_key(&self.taken.session()) {
            return Err(Error::Exists(self.taken.session()));
        }
        state.sessions.insert(self.taken.session(), self.session);
        state.open.insert(self.taken.session());
        drop(state);
        self.tails.wake(self.taken.session());
        Ok(head)
    }
}

impl State {
    fn session(&mut self, session: SessionId) -> Result<&mut Session> {
        self.sessions.get_mut(&session).ok_or(Error::NoSession(session))
    }

    /// The session, if `epoch` is still the one that may write.
    fn owned(&mut self, session: SessionId, epoch: Epoch) -> Result<&mut Session> {
        let found = self.session(session)?;
        match found.epoch {
            theirs if theirs == epoch.0 => Ok(found),
            theirs => Err(Error::Fenced { ours: epoch.0, theirs }),
        }
    }
}

impl Session {
    fn head(&self) -> Head {
        Head { seq: self.tip.seq, bytes: self.tip.offset }
    }

    fn append(&mut self, session: SessionId, events: &[Event]) -> Result<Head> {
        // The bytes are made as for a file, so that sizes and refusals are the same.
        let (_, tip) = line::encode(&self.tip, session, events)?;
        for (index, event) in events.iter().enumerate() {
            let json = serde_json::to_vec(event).map_err(|error| Error::Other(error.to_string()))?;
            let more = (events.len() - 1 - index) as u64;
            self.events.push(StoredEvent { seq: event.seq, json: json.into(), more });
        }
        self.tip = tip;
        Ok(self.head())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn create(&self, session: SessionId, events: &[Event]) -> Result<(Epoch, Head)> {
        if events.is_empty() {
            return Err(Error::Other("a session starts with at least one event".into()));
        }
        let mut state = self.state();
        if state.sessions.contains_key(&session) {
            return Err(Error::Exists(session));
        }
        let mut made = Session::default();
        let head = made.append(session, events)?;
        state.sessions.insert(session, made);
        state.open.insert(session);
        drop(state);
        self.tails.wake(session);
        Ok((Epoch(1), head))
    }

    async fn claim(&self, session: SessionId) -> Result<Epoch> {
        let mut state = self.state();
        let session = state.session(session)?;
        session.epoch += 1;
        Ok(Epoch(session.epoch))
    }

    async fn renew(&self, session: SessionId, epoch: Epoch) -> Result<()> {
        self.state().owned(session, epoch).map(drop)
    }

    /// Memory does not rot.
    async fn check(&self, session: SessionId) -> Result<()> {
        self.head(session).await.map(drop)
    }

    async fn release(&self, session: SessionId, epoch: Epoch) -> Result<()> {
        self.state().owned(session, epoch).map(drop)
    }

    async fn append(&self, session: SessionId, epoch: Epoch, expected_seq: u64, events: &[Event]) -> Result<Head> {
        let mut state = self.state();
        let log = state.owned(session, epoch)?;
        if log.tip.seq != expected_seq {
            return Err(Error::Conflict { expected: expected_seq, found: log.tip.seq });
        }
        let head = log.append(session, events)?;
        state.open.insert(session);
        drop(state);
        self.tails.wake(session);
        Ok(head)
    }

    async fn head(&self, session: SessionId) -> Result<Head> {
        Ok(self.state().session(session)?.head())
    }

    async fn read(&self, session: SessionId, after: u64, limit: Limit) -> Result<Vec<StoredEvent>> {
        let mut state = self.state();
        let events = &state.session(session)?.events;
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(events.len());
        let mut bytes = 0;
        let fits = |event: &&StoredEvent| {
            let first = bytes == 0;
            bytes += event.json.len();
            first || bytes <= limit.bytes
        };
        Ok(events[from..].iter().take(limit.events.max(1)).take_while(fits).cloned().collect())
    }

    fn tail(&self, session: SessionId) -> watch::Receiver<u64> {
        self.tails.follow(session)
    }

    async fn inbox_put(&self, session: SessionId, command: Bytes) -> Result<()> {
        self.inbox.put(session, command)?;
        self.tails.wake(session);
        Ok(())
    }

    async fn inbox_take(&self, session: SessionId, epoch: Epoch) -> Result<Vec<Bytes>> {
        self.state().owned(session, epoch)?;
        Ok(self.inbox.take(session))
    }

    async fn spool_append(&self, session: SessionId, turn: TurnId, deltas: &[Delta]) -> Result<Vec<u64>> {
        let mut state = self.state();
        let spool = state.session(session)?.spools.entry(turn).or_default();
        spool.closed_at = None;
        let mut ends = Vec::with_capacity(deltas.len());
        for delta in deltas {
            let line = delta_line::encode(delta, turn)?;
            let pos = spool.records.last().map_or(0, |record| record.pos) + line.len() as u64;
            spool.records.push(SpoolRecord { pos, delta: delta.clone() });
            ends.push(pos);
        }
        drop(state);
        self.tails.wake(session);
        Ok(ends)
    }

    async fn spool_read(&self, session: SessionId, turn: TurnId, pos: u64, bytes: usize) -> Result<SpoolPage> {
        let state = self.state();
        let spool = state.sessions.get(&session).and_then(|session| session.spools.get(&turn));
        let records = spool.map_or(&[][..], |spool| &spool.records);
        let from = match pos {
            0 => 0,
            pos => match records.binary_search_by_key(&pos, |record| record.pos) {
                Ok(at) => at + 1,
                Err(_) => return Ok(SpoolPage::Gone),
            },
        };
        let end = pos.saturating_add(bytes as u64);
        let mut last = pos;
        let fits = |record: &&SpoolRecord| {
            let first = last == pos;
            (first || last < end).then(|| last = record.pos).is_some()
        };
        Ok(SpoolPage::Records(records[from..].iter().take_while(fits).cloned().collect()))
    }

    async fn spool_close(&self, session: SessionId, turn: TurnId) -> Result<Option<SpoolSum>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let now = Timestamp::from_ms(u64::try_from(now).unwrap_or(u64::MAX));
        let mut state = self.state();
        let spool = state.sessions.get_mut(&session).and_then(|session| session.spools.get_mut(&turn));
        let Some(spool) = spool else { return Ok(None) };
        spool.closed_at = Some(now);
        // The bytes are made as for a file, so that the sum is the same.
        let mut content = Vec::new();
        for record in &spool.records {
            content.extend(delta_line::encode(&record.delta, turn)?);
        }
        Ok((!content.is_empty()).then(|| SpoolSum::of(&content)))
    }

    async fn snapshot_put(&self, session: SessionId, snapshot: Snapshot) -> Result<()> {
        let mut state = self.state();
        let found = state.session(session)?;
        if snapshot.seq > found.tip.seq {
            return Err(Error::Conflict { expected: snapshot.seq, found: found.tip.seq });
        }
        found.snapshot = Some(snapshot);
        Ok(())
    }

    async fn snapshot_get(&self, session: SessionId) -> Result<Option<Snapshot>> {
        Ok(self.state().session(session)?.snapshot.clone())
    }

    async fn turn_put(&self, session: SessionId, turn: TurnId, record: Bytes) -> Result<()> {
        self.state().session(session)?.turns.insert(turn, record);
        Ok(())
    }

    async fn turn_get(&self, session: SessionId, turn: TurnId) -> Result<Option<Bytes>> {
        Ok(self.state().sessions.get(&session).and_then(|session| session.turns.get(&turn)).cloned())
    }

    async fn key_get(&self, endpoint: &str, key: &str, now: Timestamp) -> Result<Option<CreateKey>> {
        let state = self.state();
        let found = state.keys.get(&(endpoint.to_owned(), key.to_owned()));
        Ok(found.filter(|found| now.ms().saturating_sub(found.at.ms()) < KEY_KEPT_MS).cloned())
    }

    async fn key_put(&self, key: CreateKey) -> Result<CreateKey> {
        // Looked up and put under one lock: of two at the same moment, one is the first.
        let mut state = self.state();
        let name = (key.endpoint.clone(), key.key.clone());
        let kept = |first: &&CreateKey| key.at.ms().saturating_sub(first.at.ms()) < KEY_KEPT_MS;
        if let Some(first) = state.keys.get(&name).filter(kept) {
            return Ok(first.clone());
        }
        state.keys.insert(name, key.clone());
        Ok(key)
    }

    async fn key_replace(&self, key: CreateKey) -> Result<()> {
        self.state().keys.insert((key.endpoint.clone(), key.key.clone()), key);
        Ok(())
    }

    async fn row_put(&self, row: Row) -> Result<()> {
        let row = row.trimmed();
        self.state().rows.insert(row.id, row);
        Ok(())
    }

    async fn has_row(&self, session: SessionId) -> Result<bool> {
        Ok(self.state().rows.contains_key(&session))
    }

    async fn list(&self, before: Option<SessionId>, limit: usize) -> Result<Vec<Row>> {
        let state = self.state();
        let rows = state.rows.values().rev().filter(|row| before.is_none_or(|before| row.id < before));
        Ok(rows.take(limit).cloned().collect())
    }

    async fn open_sessions(&self) -> Result<Vec<SessionId>> {
        Ok(self.state().open.iter().copied().collect())
    }

    async fn mark_settled(&self, session: SessionId) -> Result<()> {
        self.state().open.remove(&session);
        Ok(())
    }

    async fn blob_put(&self, session: SessionId, name: &str, bytes: Bytes) -> Result<()> {
        check_blob(name)?;
        self.state().session(session)?.blobs.insert(name.to_owned(), bytes);
        Ok(())
    }

    async fn blob_get(&self, session: SessionId, name: &str) -> Result<Option<Bytes>> {
        check_blob(name)?;
        Ok(self.state().sessions.get(&session).and_then(|session| session.blobs.get(name)).cloned())
    }

    async fn blob_list(&self, session: SessionId, folder: &str) -> Result<Vec<Blob>> {
        check_blob(folder)?;
        let mut state = self.state();
        let below = format!("{folder}/");
        let blobs = state.session(session)?.blobs.iter().filter(|(name, _)| name.starts_with(&below));
        let mut blobs: Vec<Blob> =
            blobs.map(|(name, bytes)| Blob { name: name.clone(), bytes: bytes.len() as u64 }).collect();
        blobs.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(blobs)
    }

    async fn stage(&self, session: SessionId) -> Result<Box<dyn Stage>> {
        let taken = self.staged.take(session)?;
        if self.state().sessions.contains_key(&session) {
            return Err(Error::Exists(session));
        }
        let (state, tails) = (self.state.clone(), self.tails.clone());
        Ok(Box::new(MemoryStage { state, tails, taken, session: Session::default(), reader: LogReader::new() }))
    }

    async fn purge(&self, session: SessionId) -> Result<()> {
        let mut state = self.state();
        state.sessions.remove(&session).ok_or(Error::NoSession(session))?;
        state.open.remove(&session);
        state.rows.remove(&session);
        drop(state);
        self.inbox.take(session);
        self.tails.wake(session);
        Ok(())
    }

    async fn sweep(&self, spools_before: Timestamp) -> Result<SweepReport> {
        let mut spools_deleted = 0;
        for session in self.state().sessions.values_mut() {
            session.spools.retain(|_, spool| {
                let old = spool.closed_at.is_some_and(|at| at < spools_before);
                spools_deleted += u64::from(old);
                !old
            });
        }
        Ok(SweepReport { spools_deleted })
    }

    fn notices(&self) -> Vec<String> {
        vec![]
    }
}

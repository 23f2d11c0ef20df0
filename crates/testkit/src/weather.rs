//! A store whose writes go through at once, late or not at all, as a simulated life wants it, and that tells of every write in the instant it lasts.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::{
    delta::Delta,
    event::Event,
    ids::{SessionId, TurnId},
    time::Timestamp,
};
use tenure_store::{
    Asked, Blob, CreateKey, Epoch, Error, Head, Limit, Result, Row, Snapshot, SpoolPage, SpoolSum, Stage, Store,
    StoredEvent, SweepReport,
};
use tokio::sync::watch;

/// Sees every write between the instant in which it lasts and the instant in which the writer hears of it.
pub trait Witness: Send + Sync + 'static {
    fn appended(&self, session: SessionId, events: &[Event]);
    fn spooled(&self, session: SessionId, turn: TurnId, deltas: &[Delta], ends: &[u64]);
    /// The writer hears that all up to this event lasts.
    fn heard(&self, session: SessionId, seq: u64);
    /// Something of this session could not be written.
    fn refused(&self, session: SessionId);
    /// So many spools of settled turns had their time.
    fn swept(&self, spools: u64);
}

/// What the next calls of one session meet.
#[derive(Debug, Clone, Copy, Default)]
pub struct Weather {
    /// How long a write waits before it is made, and before its writer hears of it.
    pub before: Duration,
    pub after: Duration,
    /// How many writes are slow.
    pub slow: u32,
    pub appends_refused: u32,
    pub deltas_refused: u32,
    pub claims_refused: u32,
    /// Snapshots, rows and records of turns: caches, whose loss must not matter.
    pub caches_refused: u32,
}

pub struct WeatherStore {
    inner: Arc<dyn Store>,
    witness: Arc<dyn Witness>,
    weather: Mutex<HashMap<SessionId, Weather>>,
}

impl WeatherStore {
    pub fn over(inner: Arc<dyn Store>, witness: Arc<dyn Witness>) -> Arc<Self> {
        Arc::new(Self { inner, witness, weather: Mutex::default() })
    }

    pub fn set(&self, session: SessionId, weather: Weather) {
        self.weather().insert(session, weather);
    }

    /// From now on everything goes through at once.
    pub fn clear(&self) {
        self.weather().clear();
    }

    fn weather(&self) -> MutexGuard<'_, HashMap<SessionId, Weather>> {
        self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, session: SessionId, what: &str, left: impl Fn(&mut Weather) -> &mut u32) -> Result<()> {
        let mut weather = self.weather();
        match weather.get_mut(&session).map(left) {
            Some(left) if *left > 0 => {
                *left -= 1;
                Err(Error::Disk { asked: Asked::Write, what: what.into(), why: "the weather is bad".into() })
            }
            _ => Ok(()),
        }
    }

    /// How long this write waits before and after it.
    fn delays(&self, session: SessionId) -> (Duration, Duration) {
        match self.weather().get_mut(&session) {
            Some(weather) if weather.slow > 0 => {
                weather.slow -= 1;
                (weather.before, weather.after)
            }
            _ => (Duration::ZERO, Duration::ZERO),
        }
    }
}

/// Runs a call of the inner store to its end without letting anything else run. Threads of the inner store may work for it, but no other task sees whether they were fast: the same life goes the same way twice.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(tokio::task::unconstrained(work));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

#[async_trait]
impl Store for WeatherStore {
    async fn create(&self, session: SessionId, events: &[Event]) -> Result<(Epoch, Head)> {
        let made = at_once(self.inner.create(session, events))?;
        self.witness.appended(session, events);
        Ok(made)
    }
    async fn claim(&self, session: SessionId) -> Result<Epoch> {
        self.judge(session, "a claim", |weather| &mut weather.claims_refused)?;
        at_once(self.inner.claim(session))
    }
    async fn renew(&self, session: SessionId, epoch: Epoch) -> Result<()> {
        at_once(self.inner.renew(session, epoch))
    }
    async fn check(&self, session: SessionId) -> Result<()> {
        at_once(self.inner.check(session))
    }
    async fn release(&self, session: SessionId, epoch: Epoch) -> Result<()> {
        at_once(self.inner.release(session, epoch))
    }
    async fn append(&self, session: SessionId, epoch: Epoch, expected_seq: u64, events: &[Event]) -> Result<Head> {
        let (before, after) = self.delays(session);
        pause(before).await;
        let judged = self.judge(session, "events", |weather| &mut weather.appends_refused);
        let appended = judged.and_then(|()| at_once(self.inner.append(session, epoch, expected_seq, events)));
        let head = appended.inspect_err(|_| self.witness.refused(session))?;
        self.witness.appended(session, events);
        pause(after).await;
        self.witness.heard(session, head.seq);
        Ok(head)
    }
    async fn head(&self, session: SessionId) -> Result<Head> {
        at_once(self.inner.head(session))
    }
    async fn read(&self, session: SessionId, after: u64, limit: Limit) -> Result<Vec<StoredEvent>> {
        at_once(self.inner.read(session, after, limit))
    }
    fn tail(&self, session: SessionId) -> watch::Receiver<u64> {
        self.inner.tail(session)
    }
    async fn inbox_put(&self, session: SessionId, command: Bytes) -> Result<()> {
        at_once(self.inner.inbox_put(session, command))
    }
    async fn inbox_take(&self, session: SessionId, epoch: Epoch) -> Result<Vec<Bytes>> {
        at_once(self.inner.inbox_take(session, epoch))
    }
    async fn spool_append(&self, session: SessionId, turn: TurnId, deltas: &[Delta]) -> Result<Vec<u64>> {
        let (before, after) = self.delays(session);
        pause(before).await;
        let judged = self.judge(session, "deltas", |weather| &mut weather.deltas_refused);
        let spooled = judged.and_then(|()| at_once(self.inner.spool_append(session, turn, deltas)));
        let ends = spooled.inspect_err(|_| self.witness.refused(session))?;
        self.witness.spooled(session, turn, deltas, &ends);
        pause(after).await;
        Ok(ends)
    }
    async fn spool_read(&self, session: SessionId, turn: TurnId, pos: u64, bytes: usize) -> Result<SpoolPage> {
        at_once(self.inner.spool_read(session, turn, pos, bytes))
    }
    async fn spool_close(&self, session: SessionId, turn: TurnId) -> Result<Option<SpoolSum>> {
        at_once(self.inner.spool_close(session, turn))
    }
    async fn snapshot_put(&self, session: SessionId, snapshot: Snapshot) -> Result<()> {
        self.judge(session, "a snapshot", |weather| &mut weather.caches_refused)?;
        at_once(self.inner.snapshot_put(session, snapshot))
    }
    async fn snapshot_get(&self, session: SessionId) -> Result<Option<Snapshot>> {
        at_once(self.inner.snapshot_get(session))
    }
    async fn turn_put(&self, session: SessionId, turn: TurnId, record: Bytes) -> Result<()> {
        self.judge(session, "a record", |weather| &mut weather.caches_refused)?;
        at_once(self.inner.turn_put(session, turn, record))
    }
    async fn turn_get(&self, session: SessionId, turn: TurnId) -> Result<Option<Bytes>> {
        at_once(self.inner.turn_get(session, turn))
    }
    async fn key_get(&self, endpoint: &str, key: &str, now: Timestamp) -> Result<Option<CreateKey>> {
        at_once(self.inner.key_get(endpoint, key, now))
    }
    async fn key_put(&self, key: CreateKey) -> Result<CreateKey> {
        at_once(self.inner.key_put(key))
    }
    async fn key_replace(&self, key: CreateKey) -> Result<()> {
        at_once(self.inner.key_replace(key))
    }
    async fn row_put(&self, row: Row) -> Result<()> {
        self.judge(row.id, "a row", |weather| &mut weather.caches_refused)?;
        at_once(self.inner.row_put(row))
    }
    async fn has_row(&self, session: SessionId) -> Result<bool> {
        at_once(self.inner.has_row(session))
    }
    async fn list(&self, before: Option<SessionId>, limit: usize) -> Result<Vec<Row>> {
        at_once(self.inner.list(before, limit))
    }
    async fn open_sessions(&self) -> Result<Vec<SessionId>> {
        at_once(self.inner.open_sessions())
    }
    async fn mark_settled(&self, session: SessionId) -> Result<()> {
        at_once(self.inner.mark_settled(session))
    }
    async fn blob_put(&self, session: SessionId, name: &str, bytes: Bytes) -> Result<()> {
        at_once(self.inner.blob_put(session, name, bytes))
    }
    async fn blob_get(&self, session: SessionId, name: &str) -> Result<Option<Bytes>> {
        at_once(self.inner.blob_get(session, name))
    }
    async fn blob_list(&self, session: SessionId, folder: &str) -> Result<Vec<Blob>> {
        at_once(self.inner.blob_list(session, folder))
    }
    async fn stage(&self, session: SessionId) -> Result<Box<dyn Stage>> {
        let inner = at_once(self.inner.stage(session))?;
        Ok(Box::new(WeatherStage { inner }))
    }
    async fn purge(&self, session: SessionId) -> Result<()> {
        at_once(self.inner.purge(session))
    }
    async fn sweep(&self, spools_before: Timestamp) -> Result<SweepReport> {
        let report = at_once(self.inner.sweep(spools_before))?;
        self.witness.swept(report.spools_deleted);
        Ok(report)
    }
    fn notices(&self) -> Vec<String> {
        self.inner.notices()
    }
}

/// A session in the making, with the same care.
struct WeatherStage {
    inner: Box<dyn Stage>,
}

#[async_trait]
impl Stage for WeatherStage {
    async fn append(&mut self, events: &[Event]) -> Result<Head> {
        at_once(self.inner.append(events))
    }
    async fn append_lines(&mut self, lines: Bytes) -> Result<Vec<StoredEvent>> {
        at_once(self.inner.append_lines(lines))
    }
    async fn blob_put(&mut self, name: &str, bytes: Bytes) -> Result<()> {
        at_once(self.inner.blob_put(name, bytes))
    }
    async fn commit(self: Box<Self>) -> Result<Head> {
        at_once(self.inner.commit())
    }
}

//! A store that refuses what a test tells it to, for one session, and passes everything else on.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
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

pub struct UnwillingStore {
    inner: Arc<dyn Store>,
    session: Mutex<Option<SessionId>>,
    /// Only appends that begin with an event of this type are refused; all, if there is none.
    wire_type: Mutex<Option<&'static str>>,
    appends: AtomicUsize,
    spool_appends: AtomicUsize,
    claims: AtomicUsize,
    panics: AtomicUsize,
    /// How often something was refused.
    refused: watch::Sender<usize>,
}

impl UnwillingStore {
    pub fn over(inner: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self {
            inner,
            session: Mutex::default(),
            wire_type: Mutex::default(),
            appends: AtomicUsize::new(0),
            spool_appends: AtomicUsize::new(0),
            claims: AtomicUsize::new(0),
            panics: AtomicUsize::new(0),
            refused: watch::channel(0).0,
        })
    }

    /// The next so many decisions of this session are refused.
    pub fn refuse_appends(&self, session: SessionId, times: usize) {
        self.aim(session, None);
        self.appends.store(times, Ordering::SeqCst);
    }

    /// The next so many decisions of this session that begin with this event are refused.
    pub fn refuse_decisions(&self, session: SessionId, wire_type: &'static str, times: usize) {
        self.aim(session, Some(wire_type));
        self.appends.store(times, Ordering::SeqCst);
    }

    /// The next so many writes to a spool of this session are refused.
    pub fn refuse_deltas(&self, session: SessionId, times: usize) {
        self.aim(session, None);
        self.spool_appends.store(times, Ordering::SeqCst);
    }

    /// The next so many claims of this session are refused.
    pub fn refuse_claims(&self, session: SessionId, times: usize) {
        self.aim(session, None);
        self.claims.store(times, Ordering::SeqCst);
    }

    /// The next so many decisions of this session meet a bug of the store.
    pub fn panic_on_appends(&self, session: SessionId, times: usize) {
        self.aim(session, None);
        self.panics.store(times, Ordering::SeqCst);
    }

    /// Waits until something was refused so many times.
    pub async fn refused(&self, times: usize) {
        // The sender lives as long as the store.
        let _ = self.refused.subscribe().wait_for(|count| *count >= times).await;
    }

    fn aim(&self, session: SessionId, wire_type: Option<&'static str>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
        *self.wire_type.lock().unwrap_or_else(PoisonError::into_inner) = wire_type;
    }

    fn judge(&self, session: SessionId, left: &AtomicUsize, what: &str) -> Result<()> {
        let aimed = *self.session.lock().unwrap_or_else(PoisonError::into_inner);
        let takes_one = |left: usize| left.checked_sub(1);
        if aimed == Some(session) && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, takes_one).is_ok() {
            self.refused.send_modify(|count| *count += 1);
            return Err(Error::Disk { asked: Asked::Write, what: what.into(), why: "the test says so".into() });
        }
        Ok(())
    }

    fn judge_decision(&self, session: SessionId, events: &[Event]) -> Result<()> {
        let only = *self.wire_type.lock().unwrap_or_else(PoisonError::into_inner);
        let first = events.first().map(|event| event.body.wire_type());
        if only.is_some() && only != first {
            return Ok(());
        }
        self.judge(session, &self.appends, "events")
    }
}

#[async_trait]
impl Store for UnwillingStore {
    async fn create(&self, session: SessionId, events: &[Event]) -> Result<(Epoch, Head)> {
        self.inner.create(session, events).await
    }
    async fn claim(&self, session: SessionId) -> Result<Epoch> {
        self.judge(session, &self.claims, "a claim")?;
        self.inner.claim(session).await
    }
    async fn renew(&self, session: SessionId, epoch: Epoch) -> Result<()> {
        self.inner.renew(session, epoch).await
    }
    async fn check(&self, session: SessionId) -> Result<()> {
        self.inner.check(session).await
    }
    async fn release(&self, session: SessionId, epoch: Epoch) -> Result<()> {
        self.inner.release(session, epoch).await
    }
    async fn append(&self, session: SessionId, epoch: Epoch, expected_seq: u64, events: &[Event]) -> Result<Head> {
        self.judge_decision(session, events)?;
        if self.judge(session, &self.panics, "events").is_err() {
            panic!("a store that breaks on purpose");
        }
        self.inner.append(session, epoch, expected_seq, events).await
    }
    async fn head(&self, session: SessionId) -> Result<Head> {
        self.inner.head(session).await
    }
    async fn read(&self, session: SessionId, after: u64, limit: Limit) -> Result<Vec<StoredEvent>> {
        self.inner.read(session, after, limit).await
    }
    fn tail(&self, session: SessionId) -> watch::Receiver<u64> {
        self.inner.tail(session)
    }
    async fn inbox_put(&self, session: SessionId, command: Bytes) -> Result<()> {
        self.inner.inbox_put(session, command).await
    }
    async fn inbox_take(&self, session: SessionId, epoch: Epoch) -> Result<Vec<Bytes>> {
        self.inner.inbox_take(session, epoch).await
    }
    async fn spool_append(&self, session: SessionId, turn: TurnId, deltas: &[Delta]) -> Result<Vec<u64>> {
        self.judge(session, &self.spool_appends, "deltas")?;
        self.inner.spool_append(session, turn, deltas).await
    }
    async fn spool_read(&self, session: SessionId, turn: TurnId, pos: u64, bytes: usize) -> Result<SpoolPage> {
        self.inner.spool_read(session, turn, pos, bytes).await
    }
    async fn spool_close(&self, session: SessionId, turn: TurnId) -> Result<Option<SpoolSum>> {
        self.inner.spool_close(session, turn).await
    }
    async fn snapshot_put(&self, session: SessionId, snapshot: Snapshot) -> Result<()> {
        self.inner.snapshot_put(session, snapshot).await
    }
    async fn snapshot_get(&self, session: SessionId) -> Result<Option<Snapshot>> {
        self.inner.snapshot_get(session).await
    }
    async fn turn_put(&self, session: SessionId, turn: TurnId, record: Bytes) -> Result<()> {
        self.inner.turn_put(session, turn, record).await
    }
    async fn turn_get(&self, session: SessionId, turn: TurnId) -> Result<Option<Bytes>> {
        self.inner.turn_get(session, turn).await
    }
    async fn key_get(&self, endpoint: &str, key: &str, now: Timestamp) -> Result<Option<CreateKey>> {
        self.inner.key_get(endpoint, key, now).await
    }
    async fn key_put(&self, key: CreateKey) -> Result<CreateKey> {
        self.inner.key_put(key).await
    }
    async fn key_replace(&self, key: CreateKey) -> Result<()> {
        self.inner.key_replace(key).await
    }
    async fn row_put(&self, row: Row) -> Result<()> {
        self.inner.row_put(row).await
    }
    async fn has_row(&self, session: SessionId) -> Result<bool> {
        self.inner.has_row(session).await
    }
    async fn list(&self, before: Option<SessionId>, limit: usize) -> Result<Vec<Row>> {
        self.inner.list(before, limit).await
    }
    async fn open_sessions(&self) -> Result<Vec<SessionId>> {
        self.inner.open_sessions().await
    }
    async fn mark_settled(&self, session: SessionId) -> Result<()> {
        self.inner.mark_settled(session).await
    }
    async fn blob_put(&self, session: SessionId, name: &str, bytes: Bytes) -> Result<()> {
        self.inner.blob_put(session, name, bytes).await
    }
    async fn blob_get(&self, session: SessionId, name: &str) -> Result<Option<Bytes>> {
        self.inner.blob_get(session, name).await
    }
    async fn blob_list(&self, session: SessionId, folder: &str) -> Result<Vec<Blob>> {
        self.inner.blob_list(session, folder).await
    }
    async fn stage(&self, session: SessionId) -> Result<Box<dyn Stage>> {
        self.inner.stage(session).await
    }
    async fn purge(&self, session: SessionId) -> Result<()> {
        self.inner.purge(session).await
    }
    async fn sweep(&self, spools_before: Timestamp) -> Result<SweepReport> {
        self.inner.sweep(spools_before).await
    }
    fn notices(&self) -> Vec<String> {
        self.inner.notices()
    }
}

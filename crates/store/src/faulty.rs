//! The file store on a disk that fails as it is told to: refused writes, failed syncs, power cuts. For tests; it lives in memory.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::{
    delta::Delta,
    event::Event,
    ids::{SessionId, TurnId},
    time::Timestamp,
};
use tokio::sync::watch;

use self::disk::FaultyDisk;
use crate::{
    Blob, CreateKey, Epoch, FileStore, Head, Limit, Result, Row, Snapshot, SpoolPage, SpoolSum, Stage, Store,
    StoredEvent, SweepReport,
};

mod content;
mod disk;
mod handle;
mod power;
mod remains;

pub use remains::Remains;

/// Where the data folder lies on the faulty disk.
const ROOT: &str = "/data";

/// What a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The write of a decision to a log.
    LogWrite,
    /// The sync of a log.
    LogSync,
    /// Cutting a log back.
    LogCut,
    /// The write of deltas to a spool.
    SpoolWrite,
    /// Cutting a spool back.
    SpoolCut,
    /// The sync of a folder.
    FolderSync,
    /// A new file or folder.
    Make,
    Rename,
    Remove,
    /// A write or sync of any other file.
    Other,
}

/// How much is done of what is then reported as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    Nothing,
    /// Half of the bytes; for a sync, every second sector. Of a change of names nothing is done.
    Half,
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// ENOSPC.
    NoSpace,
    /// EIO.
    Io,
}

/// One planned fault: the first `after` calls at the point go well, the next `times` fail.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    pub point: Point,
    pub after: u64,
    pub times: u64,
    pub harm: Harm,
    pub reason: Reason,
}

impl Fault {
    /// The next call at this point fails for want of space, with nothing done.
    pub fn next(point: Point) -> Fault {
        Fault { point, after: 0, times: 1, harm: Harm::Nothing, reason: Reason::NoSpace }
    }

    pub fn with(self, harm: Harm) -> Fault {
        Fault { harm, ..self }
    }

    pub fn after(self, after: u64) -> Fault {
        Fault { after, ..self }
    }

    pub fn times(self, times: u64) -> Fault {
        Fault { times, ..self }
    }
}

pub struct FaultyStore {
    inner: Arc<FileStore>,
    disk: Arc<FaultyDisk>,
}

impl FaultyStore {
    /// An empty store on a disk that works until it is told otherwise.
    pub fn new() -> Arc<FaultyStore> {
        // Holds because nothing can have planned a fault on a disk that was just made.
        Remains(Arc::default()).open().expect("an empty disk without faults refuses nothing")
    }

    pub fn plan(&self, fault: Fault) {
        self.disk.plan(fault);
    }

    /// Changes made to the disk so far: the instants at which the power can be cut.
    pub fn changes(&self) -> u64 {
        self.disk.changes()
    }

    /// After so many more changes every call fails, as if the power or the process were gone.
    pub fn stop_after(&self, changes: u64) {
        self.disk.stop_after(changes);
    }

    /// The disk under this store.
    pub fn disk(&self) -> Remains {
        Remains(self.disk.clone())
    }

    /// The store that a new process finds after `kill -9`: all that was handed to the operating system.
    pub fn after_kill(&self) -> Result<Arc<FaultyStore>> {
        self.disk().after_kill().open()
    }

    /// The store that is found after a power cut: what was synced, and of the rest what the seed chooses.
    pub fn after_power_cut(&self, seed: u64) -> Result<Arc<FaultyStore>> {
        self.disk().after_power_cut(seed).open()
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn create(&self, session: SessionId, events: &[Event]) -> Result<(Epoch, Head)> {
        self.inner.create(session, events).await
    }
    async fn claim(&self, session: SessionId) -> Result<Epoch> {
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

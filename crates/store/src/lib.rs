//! Keeps logs, spools, snapshots and blobs so that what was acknowledged survives a crash. It never judges what an event means.

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::{
    delta::Delta,
    event::Event,
    ids::{SessionId, TurnId},
    time::Timestamp,
};
use tokio::sync::watch;

mod data;
mod delta_line;
mod disk;
mod error;
mod faulty;
mod file;
mod inbox;
mod line;
mod memory;
mod name;
mod notices;
mod seal;
mod spool_sum;
mod staged;
mod tails;

pub use data::*;
pub use error::{Asked, Error, Result};
pub use faulty::{Fault, FaultyStore, Harm, Point, Reason, Remains};
pub use file::{Durability, FileStore, Options, upkeep};
pub use line::{LogReader, LogWriter};
pub use memory::MemoryStore;
pub use name::is_blob_name;
pub use spool_sum::SpoolSum;

/// The narrow door to durable memory. An implementer must keep these:
/// - `append` is all or nothing and synced before it returns (with `durability = power`); no reader sees an event before that.
/// - `append` refuses an old epoch and a head that is not the expected one, without changing anything.
/// - after a failed append nothing of it is ever seen; a later append of the same events may succeed.
/// - spool records are handed to the operating system, in order, before `spool_append` returns.
/// - nothing assumes that the writer is in this process.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Makes the log with its first decision, which leaves nothing pending: only an append makes sure that the session is
    /// among the open ones after a power cut. `Exists` if it is there with at least one event.
    async fn create(&self, session: SessionId, events: &[Event]) -> Result<(Epoch, Head)>;

    /// Takes the right to write; older epochs are refused from then on. `Damaged` if nobody may write any more.
    async fn claim(&self, session: SessionId) -> Result<Epoch>;
    /// Keeps it.
    async fn renew(&self, session: SessionId, epoch: Epoch) -> Result<()>;
    /// Gives it back.
    async fn release(&self, session: SessionId, epoch: Epoch) -> Result<()>;
    /// `Damaged` where nobody may write and reading ends before the log does; `NoSession` also where the log was taken away
    /// since it was opened.
    async fn check(&self, session: SessionId) -> Result<()>;

    /// Appends one decision.
    async fn append(&self, session: SessionId, epoch: Epoch, expected_seq: u64, events: &[Event]) -> Result<Head>;
    /// Where the log ends; opens it if need be (torn tails are cut and kept aside on the way).
    async fn head(&self, session: SessionId) -> Result<Head>;
    /// Numbered events after `after`, in order; bounded memory whatever the log's size. Ends before any damage.
    async fn read(&self, session: SessionId, after: u64, limit: Limit) -> Result<Vec<StoredEvent>>;
    /// A hint that the log or a spool has grown; the log is always read again.
    fn tail(&self, session: SessionId) -> watch::Receiver<u64>;

    /// Puts a command in the inbox of a session whose writer is elsewhere.
    async fn inbox_put(&self, session: SessionId, command: Bytes) -> Result<()>;
    /// Takes all that is in the inbox, oldest first.
    async fn inbox_take(&self, session: SessionId, epoch: Epoch) -> Result<Vec<Bytes>>;

    /// Appends deltas to a turn's spool; returns the `pos` of each.
    async fn spool_append(&self, session: SessionId, turn: TurnId, deltas: &[Delta]) -> Result<Vec<u64>>;
    /// Records after `pos`, up to about `bytes`. A torn last record is not returned; it is cut by the next append.
    async fn spool_read(&self, session: SessionId, turn: TurnId, pos: u64, bytes: usize) -> Result<SpoolPage>;
    /// The turn has settled: its spool is closed, and deleted by `sweep` when its time is over. Gives what tells it from one
    /// that has changed, for the turn's record; `None` where nothing was spooled.
    async fn spool_close(&self, session: SessionId, turn: TurnId) -> Result<Option<SpoolSum>>;

    async fn snapshot_put(&self, session: SessionId, snapshot: Snapshot) -> Result<()>;
    /// `None` also when it is damaged or ahead of the log.
    async fn snapshot_get(&self, session: SessionId) -> Result<Option<Snapshot>>;
    /// The turn's record, a projection (S3); unsynced. A JSON object whose `seq` is the last event it holds and whose
    /// `spool`, if it is there, is what `spool_close` gave.
    async fn turn_put(&self, session: SessionId, turn: TurnId, record: Bytes) -> Result<()>;
    async fn turn_get(&self, session: SessionId, turn: TurnId) -> Result<Option<Bytes>>;

    /// Looks up a create key that is not older than 24 h.
    async fn key_get(&self, endpoint: &str, key: &str, now: Timestamp) -> Result<Option<CreateKey>>;
    /// Records a create key; synced before it returns. If one is there already, that one is returned and nothing is written.
    async fn key_put(&self, key: CreateKey) -> Result<CreateKey>;
    /// The same in the place of any earlier one.
    async fn key_replace(&self, key: CreateKey) -> Result<()>;

    /// Puts or replaces a row of the listing; unsynced, a cache.
    async fn row_put(&self, row: Row) -> Result<()>;
    /// Whether the listing knows such a session, also one that is gone though nobody deleted it.
    async fn has_row(&self, session: SessionId) -> Result<bool>;
    /// Newest first (by id), after `before` if given.
    async fn list(&self, before: Option<SessionId>, limit: usize) -> Result<Vec<Row>>;
    /// Sessions that were warm or had anything pending when the store was last used: all that a start-up looks at.
    async fn open_sessions(&self) -> Result<Vec<SessionId>>;
    /// The session is cold and has nothing pending.
    async fn mark_settled(&self, session: SessionId) -> Result<()>;

    /// Keeps bytes beside the log under a relative name such as `artifacts/turn_…/x.txt`; synced before it returns.
    async fn blob_put(&self, session: SessionId, name: &str, bytes: Bytes) -> Result<()>;
    async fn blob_get(&self, session: SessionId, name: &str) -> Result<Option<Bytes>>;

    /// The blobs below a folder such as `artifacts`, by name.
    async fn blob_list(&self, session: SessionId, folder: &str) -> Result<Vec<Blob>>;

    /// Begins to put a whole session in place. `Exists` if it is there.
    async fn stage(&self, session: SessionId) -> Result<Box<dyn Stage>>;

    /// Deletes a session and all that belongs to it, for good. A crash leaves the whole of it or nothing.
    async fn purge(&self, session: SessionId) -> Result<()>;

    /// Deletes spools whose turn settled before `spools_before`.
    async fn sweep(&self, spools_before: Timestamp) -> Result<SweepReport>;
    /// What was cut, mended or found damaged since the last call, for people.
    fn notices(&self) -> Vec<String>;
}

/// A session that is put in place as a whole, such as a copy or one that comes from elsewhere. Nobody sees it before
/// `commit`; if it is dropped before that, or the daemon is, there is no such session.
#[async_trait]
pub trait Stage: Send {
    /// Adds one decision.
    async fn append(&mut self, events: &[Event]) -> Result<Head>;
    /// Adds whole lines as a `LogWriter` made them, which must follow those that are there; gives the events in them.
    /// `NoLog` where they do not.
    async fn append_lines(&mut self, lines: Bytes) -> Result<Vec<StoredEvent>>;
    async fn blob_put(&mut self, name: &str, bytes: Bytes) -> Result<()>;
    /// Makes all of it durable, then visible, among the open sessions. `Exists` if somebody was faster.
    async fn commit(self: Box<Self>) -> Result<Head>;
}

/// Why lines that end inside a decision are no log.
pub(crate) const CUT: &str = "it ends inside a decision";

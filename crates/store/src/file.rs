//! The store in plain files that people can read: the layout of the data folder, and the door that leads to its parts.
//! One daemon per folder; one broken session never touches the others.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::{
    delta::Delta,
    event::Event,
    ids::{SessionId, TurnId},
    time::Timestamp,
};
use tokio::sync::{Semaphore, watch};

pub(crate) use self::{folder::Folder, layout::Layout};

use self::{
    folder::{Keep, is_missing},
    keys::Keys,
    listing::Listing,
    lock::Lock,
    log::Log,
    logs::Logs,
    marks::Marks,
    spool::{Spools, Summed},
    stage::FileStage,
    sweep::Sweeper,
};
use crate::{
    Blob, CreateKey, Epoch, Error, Head, Limit, Result, Row, Snapshot, SpoolPage, SpoolSum, Stage, Store, StoredEvent,
    SweepReport,
    disk::{Disk, OsDisk},
    inbox::Inbox,
    seal::{self, Sealed},
    staged::Staged,
    tails::Tails,
};

mod blob;
mod folder;
mod keys;
mod layout;
mod lines;
mod listing;
mod lock;
mod log;
mod logs;
mod marks;
mod scan;
mod snapshot;
mod spool;
mod stage;
mod sweep;
mod trash;
pub mod upkeep;

/// Turn records are small; what is larger is not one.
const TURN_BYTES_MAX: u64 = 16 << 20;

/// What an acknowledged append survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A power cut: synced before acknowledged.
    #[default]
    Power,
    /// `kill -9`, but not a power cut: handed to the operating system.
    Process,
}

#[derive(Debug, Clone)]
pub struct Options {
    pub durability: Durability,
    /// How many logs are synced side by side. A disk makes one write of the syncs that wait together, so that many
    /// sessions that write at once are faster the more of them may wait.
    pub sync_threads: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { durability: Durability::default(), sync_threads: 64 }
    }
}

pub struct FileStore {
    folder: Arc<Folder>,
    marks: Arc<Marks>,
    logs: Arc<Logs>,
    spools: Arc<Spools>,
    sweeper: Arc<Sweeper>,
    keys: Keys,
    listing: Listing,
    tails: Arc<Tails>,
    inbox: Inbox,
    syncs: Arc<Semaphore>,
    /// Sessions that are being put in place.
    staged: Arc<Staged>,
}

impl FileStore {
    /// Takes the data folder, making it if need be. Reads the lock and the names in `open/`, and syncs nothing.
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Arc<FileStore>> {
        let root = std::path::absolute(path).map_err(|error| Error::disk("the path of the data folder", &error))?;
        let disk = OsDisk { syncs: options.durability == Durability::Power };
        Self::open_on(Arc::new(disk), root, &options)
    }

    pub(crate) fn open_on(disk: Arc<dyn Disk>, root: PathBuf, options: &Options) -> Result<Arc<FileStore>> {
        let layout = Layout::new(root);
        make_folders(&*disk, &layout).map_err(|error| Error::disk("to make the data folder", &error))?;
        let folder = Arc::new(Folder::new(disk, layout));
        let lock = Lock::take(&folder)?;
        trash::empty(&folder);
        let marks = Arc::new(Marks::new(folder.clone(), lock));
        let logs = Arc::new(Logs::new(folder.clone(), marks.list()?, options.durability));
        Ok(Arc::new(FileStore {
            logs,
            marks,
            spools: Arc::new(Spools::new(folder.clone())),
            sweeper: Arc::default(),
            keys: Keys::new(folder.clone()),
            listing: Listing::new(folder.clone()),
            tails: Arc::default(),
            inbox: Inbox::default(),
            syncs: Arc::new(Semaphore::new(options.sync_threads.max(1))),
            staged: Arc::default(),
            folder,
        }))
    }

    /// Writes one decision on one of the threads that sync, while nobody else can append to the same log.
    async fn commit(&self, session: SessionId, log: Arc<Log>, expected_seq: u64, events: &[Event]) -> Result<Head> {
        let mut writer = log.writer().lock_owned().await;
        log.check(&writer, expected_seq)?;
        if events.is_empty() {
            return Ok(log.head());
        }
        let decision = log.encode(&writer, events)?;
        let permit = self.syncs.clone().acquire_owned().await.map_err(|error| Error::Other(error.to_string()))?;
        let (marks, tails) = (self.marks.clone(), self.tails.clone());
        // From here on the work is done whether or not the asker still waits for it.
        blocking(move || {
            match expected_seq {
                0 => marks.put_new(session)?,
                _ => marks.put(session)?,
            }
            let head = log.append(&mut writer, decision)?;
            drop((writer, permit));
            tails.wake(session);
            Ok(head)
        })
        .await
    }

    /// A session that turns out to be gone, though nobody deleted it, is listed no more.
    async fn noticed<T>(&self, session: SessionId, found: Result<T>) -> Result<T> {
        if let Err(Error::NoSession(_)) = found {
            // A listing that cannot be read lists nothing.
            let _ = self.listing.lose(session).await;
        }
        found
    }

    fn check_epoch(&self, epoch: Epoch) -> Result<()> {
        match self.marks.epoch() {
            ours if ours == epoch => Ok(()),
            Epoch(theirs) => Err(Error::Fenced { ours: epoch.0, theirs }),
        }
    }

    /// Does something with the folder on a thread that may wait for the disk.
    async fn on_disk<T: Send + 'static>(&self, work: impl FnOnce(&Folder) -> Result<T> + Send + 'static) -> Result<T> {
        let folder = self.folder.clone();
        blocking(move || work(&folder)).await
    }
}

#[async_trait]
impl Store for FileStore {
    async fn create(&self, session: SessionId, events: &[Event]) -> Result<(Epoch, Head)> {
        if events.is_empty() {
            return Err(Error::Other("a session starts with at least one event".into()));
        }
        let log = self.logs.get_or_make(session).await?;
        if log.exists() {
            return Err(Error::Exists(session));
        }
        match self.commit(session, log, 0, events).await {
            Ok(head) => Ok((self.marks.epoch(), head)),
            // Somebody else made it in between.
            Err(Error::Conflict { .. }) => Err(Error::Exists(session)),
            // The mark may stay: without a log it is passed over.
            Err(error) => Err(error),
        }
    }

    /// The folder has one daemon, so its epoch is that of every session in it.
    async fn claim(&self, session: SessionId) -> Result<Epoch> {
        self.logs.get(session).await?.check_writable()?;
        Ok(self.marks.epoch())
    }

    async fn check(&self, session: SessionId) -> Result<()> {
        let mut log = self.logs.get(session).await;
        if log.as_ref().is_ok_and(|log| log.check_there().is_err()) {
            // What stands there now is another one, from a backup perhaps.
            log = self.logs.get(session).await;
        }
        self.noticed(session, log).await?.check_writable()
    }

    async fn renew(&self, _session: SessionId, epoch: Epoch) -> Result<()> {
        self.check_epoch(epoch)
    }

    async fn release(&self, _session: SessionId, epoch: Epoch) -> Result<()> {
        self.check_epoch(epoch)
    }

    async fn append(&self, session: SessionId, epoch: Epoch, expected_seq: u64, events: &[Event]) -> Result<Head> {
        self.check_epoch(epoch)?;
        let log = self.logs.get(session).await?;
        let appended = self.commit(session, log, expected_seq, events).await;
        self.noticed(session, appended).await
    }

    async fn head(&self, session: SessionId) -> Result<Head> {
        let log = self.logs.get(session).await;
        Ok(self.noticed(session, log).await?.head())
    }

    async fn read(&self, session: SessionId, after: u64, limit: Limit) -> Result<Vec<StoredEvent>> {
        let log = self.logs.get(session).await?;
        if after >= log.head().seq {
            return Ok(vec![]);
        }
        blocking(move || log.read(after, limit)).await
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
        self.check_epoch(epoch)?;
        Ok(self.inbox.take(session))
    }

    /// Written where it is called: one write to the page cache is faster than handing it to another thread.
    async fn spool_append(&self, session: SessionId, turn: TurnId, deltas: &[Delta]) -> Result<Vec<u64>> {
        let ends = self.spools.append(session, turn, deltas)?;
        self.tails.wake(session);
        Ok(ends)
    }

    async fn spool_read(&self, session: SessionId, turn: TurnId, pos: u64, bytes: usize) -> Result<SpoolPage> {
        let spools = self.spools.clone();
        blocking(move || spools.read(session, turn, pos, bytes)).await
    }

    async fn spool_close(&self, session: SessionId, turn: TurnId) -> Result<Option<SpoolSum>> {
        match self.spools.close(session, turn) {
            Summed::Known(sum) => Ok(sum),
            Summed::Unknown => {
                let spools = self.spools.clone();
                blocking(move || spools.sum(session, turn)).await
            }
        }
    }

    async fn snapshot_put(&self, session: SessionId, snapshot: Snapshot) -> Result<()> {
        let log = self.logs.get(session).await?;
        let found = log.head().seq;
        if snapshot.seq > found {
            return Err(Error::Conflict { expected: snapshot.seq, found });
        }
        self.on_disk(move |folder| {
            // Without a place the next opening starts from the beginning; the snapshot is good all the same.
            let place = log.decision_end(snapshot.seq)?.unwrap_or(crate::line::Place::START);
            snapshot::write(folder, session, &snapshot, &place)
        })
        .await
    }

    async fn snapshot_get(&self, session: SessionId) -> Result<Option<Snapshot>> {
        let log = self.logs.get(session).await?;
        self.on_disk(move |folder| {
            let Some(found) = snapshot::read(folder, session) else { return Ok(None) };
            // Another log under the same name, or one that lost its tail, makes it worthless.
            let fits = found.seq <= log.head().seq && log.has_place(&found.place)?;
            Ok(fits.then_some(Snapshot { seq: found.seq, state: found.state }))
        })
        .await
    }

    async fn turn_put(&self, session: SessionId, turn: TurnId, record: Bytes) -> Result<()> {
        self.on_disk(move |folder| {
            let failed = |error| Error::disk(format_args!("the record of {turn}"), &error);
            folder.disk.make_dir(&folder.layout.turns(session)).map_err(|error| match is_missing(&error) {
                true => Error::NoSession(session),
                false => failed(error),
            })?;
            let mut sealed = record.to_vec();
            seal::put(&mut sealed);
            folder.replace(&folder.layout.turn(session, turn), &[&sealed], Keep::Unsynced).map_err(failed)
        })
        .await
    }

    async fn turn_get(&self, session: SessionId, turn: TurnId) -> Result<Option<Bytes>> {
        self.on_disk(move |folder| {
            let record = folder.read_if_there(&folder.layout.turn(session, turn), TURN_BYTES_MAX);
            let record = record.map_err(|error| Error::unread(format_args!("the record of {turn}"), &error))?;
            Ok(record.and_then(unsealed))
        })
        .await
    }

    async fn key_get(&self, endpoint: &str, key: &str, now: Timestamp) -> Result<Option<CreateKey>> {
        self.keys.get(endpoint, key, now).await
    }

    async fn key_put(&self, key: CreateKey) -> Result<CreateKey> {
        let marks = self.marks.clone();
        blocking(move || marks.found()).await?;
        self.keys.put(key).await
    }

    async fn key_replace(&self, key: CreateKey) -> Result<()> {
        let marks = self.marks.clone();
        blocking(move || marks.found()).await?;
        self.keys.replace(key).await
    }

    async fn row_put(&self, row: Row) -> Result<()> {
        self.listing.put(row).await
    }

    async fn has_row(&self, session: SessionId) -> Result<bool> {
        self.listing.has(session).await
    }

    async fn list(&self, before: Option<SessionId>, limit: usize) -> Result<Vec<Row>> {
        self.listing.list(before, limit).await
    }

    /// A mark whose session never came to a first write is passed over.
    async fn open_sessions(&self) -> Result<Vec<SessionId>> {
        let marks = self.marks.clone();
        self.on_disk(move |folder| {
            let mut sessions = marks.list()?;
            sessions.sort_unstable();
            sessions.retain(|session| match folder.disk.stat(&folder.layout.log(*session)) {
                Ok(stat) => stat.bytes > 0,
                Err(error) => !is_missing(&error),
            });
            Ok(sessions)
        })
        .await
    }

    async fn mark_settled(&self, session: SessionId) -> Result<()> {
        self.listing.settle(session).await?;
        if self.logs.is_unsynced(session) {
            // Opening syncs what an earlier life left; without the mark nobody would do it later.
            match self.logs.get(session).await {
                Ok(_) | Err(Error::NoSession(_) | Error::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        // Not while an append is under way: it counts on the mark.
        let mut open = match self.logs.get_if_open(session).await {
            Some(log) => Some((log.writer().lock_owned().await, log)),
            None => None,
        };
        let marks = self.marks.clone();
        blocking(move || {
            if let Some((writer, log)) = &mut open {
                // What a refused append left is cut first: without the mark the next life would take it for synced.
                log.mend(writer)?;
            }
            marks.remove(session)
        })
        .await
    }

    async fn blob_put(&self, session: SessionId, name: &str, bytes: Bytes) -> Result<()> {
        let name = name.to_owned();
        self.on_disk(move |folder| blob::put(folder, session, &name, &bytes)).await
    }

    async fn blob_get(&self, session: SessionId, name: &str) -> Result<Option<Bytes>> {
        let name = name.to_owned();
        self.on_disk(move |folder| blob::get(folder, session, &name)).await
    }

    async fn blob_list(&self, session: SessionId, folder: &str) -> Result<Vec<Blob>> {
        let below = folder.to_owned();
        self.on_disk(move |folder| blob::list(folder, session, &below)).await
    }

    async fn stage(&self, session: SessionId) -> Result<Box<dyn Stage>> {
        // Taken before it is looked at: who looked first could find nothing, and take it when another one is done.
        let taken = self.staged.take(session)?;
        match self.logs.get(session).await {
            Err(Error::NoSession(_)) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(Error::Exists(session)),
        }
        let (logs, marks, tails) = (self.logs.clone(), self.marks.clone(), self.tails.clone());
        let folder = self.folder.clone();
        blocking(move || Ok(Box::new(FileStage::begin(folder, logs, marks, tails, taken)?) as Box<dyn Stage>)).await
    }

    async fn purge(&self, session: SessionId) -> Result<()> {
        // Nobody puts another one in its place meanwhile.
        let _taken = self.staged.take(session).map_err(|_| Error::NoSession(session))?;
        let (folder, marks) = (self.folder.clone(), self.marks.clone());
        self.logs
            .take_out(session, move || {
                marks.found()?;
                trash::put(&folder, session)?;
                // Not earlier: without its mark a session that a power cut brings back would wait for ever.
                // And where it stays: a mark without a log is passed over.
                let _ = marks.remove(session);
                Ok(())
            })
            .await?;
        self.spools.forget(session);
        self.inbox.take(session);
        self.tails.wake(session);
        if let Err(error) = self.listing.purge(session).await {
            // The session is gone all the same. What is in the trash says so until the next start tells the listing.
            self.folder.notices.add(format!("the listing was not told that {session} is gone: {error}"));
            return Ok(());
        }
        self.on_disk(move |folder| {
            trash::delete(folder, session);
            Ok(())
        })
        .await
    }

    async fn sweep(&self, spools_before: Timestamp) -> Result<SweepReport> {
        let (sweeper, marks, spools) = (self.sweeper.clone(), self.marks.clone(), self.spools.clone());
        self.on_disk(move |folder| sweeper.sweep(folder, &marks, &spools, spools_before)).await
    }

    fn notices(&self) -> Vec<String> {
        self.folder.notices.take()
    }
}

/// Runs work that waits for a disk on a thread of its own. It goes on even if the asker gives up.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Error::Other(format!("work on the disk did not come to its end: {error}"))),
    }
}

/// A record without its sum; one that is damaged is as good as missing.
fn unsealed(record: Vec<u8>) -> Option<Bytes> {
    match seal::check(&record) {
        Sealed::Good(body) => Some([body, b"}"].concat().into()),
        Sealed::Unsealed => Some(record.into()),
        Sealed::Bad => None,
    }
}

/// Makes the data folder and those in it.
fn make_folders(disk: &dyn Disk, layout: &Layout) -> std::io::Result<()> {
    let missing: Vec<&Path> = layout.root().ancestors().take_while(|path| disk.stat(path).is_err()).collect();
    for path in missing.into_iter().rev() {
        disk.make_dir(path)?;
    }
    disk.make_dir(&layout.sessions())?;
    disk.make_dir(&layout.open())?;
    Ok(())
}

//! A session that is put in place as a whole: its blobs first, its log under another name, and that name last of all.
//! A folder without a log is no session, so whatever is cut before then has never been.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_trait::async_trait;
use bytes::Bytes;
use tenure_core::{event::Event, ids::SessionId};

use super::{blob, blocking, folder::Folder, logs::Logs, marks::Marks};
use crate::{
    CUT, Error, Head, Result, Stage, StoredEvent,
    disk::{DiskFile, Open},
    line::{self, LogReader},
    staged::Taken,
    tails::Tails,
};

pub(crate) struct FileStage {
    folder: Arc<Folder>,
    logs: Arc<Logs>,
    marks: Arc<Marks>,
    tails: Arc<Tails>,
    file: Arc<dyn DiskFile>,
    reader: LogReader,
    blobs: Vec<String>,
    committed: bool,
    taken: Taken,
}

impl FileStage {
    pub fn begin(
        folder: Arc<Folder>,
        logs: Arc<Logs>,
        marks: Arc<Marks>,
        tails: Arc<Tails>,
        taken: Taken,
    ) -> Result<Self> {
        let session = taken.session();
        let failed = |error: io::Error| failed(session, &error);
        folder.disk.make_dir(&folder.layout.session(session)).map_err(failed)?;
        let file = folder.disk.open(&folder.layout.staged_log(session), Open::Empty).map_err(failed)?.into();
        let (reader, blobs) = (LogReader::new(), Vec::new());
        Ok(Self { folder, logs, marks, tails, file, reader, blobs, committed: false, taken })
    }

    fn session(&self) -> SessionId {
        self.taken.session()
    }

    fn head(&self) -> Head {
        Head { seq: self.reader.place.seq, bytes: self.reader.place.offset }
    }

    async fn write(&self, bytes: Bytes, offset: u64) -> Result<()> {
        let (file, session) = (self.file.clone(), self.session());
        blocking(move || file.write_all_at(&bytes, offset).map_err(|error| failed(session, &error))).await
    }

    /// On a thread that may wait for the disk, while nobody can open the log.
    fn put_in_place(folder: &Folder, marks: &Marks, file: &dyn DiskFile, session: SessionId) -> Result<()> {
        let failed = |error: io::Error| failed(session, &error);
        file.sync().map_err(failed)?;
        marks.put(session)?;
        let (from, to) = (folder.layout.staged_log(session), folder.layout.log(session));
        let sync = || {
            folder.disk.sync_dir(&folder.layout.session(session))?;
            folder.disk.sync_dir(&folder.layout.sessions())
        };
        folder.disk.rename(&from, &to).map_err(failed)?;
        sync().map_err(|error| {
            // Nobody was told of it, so it must not be there either.
            let _ = folder.disk.remove(&to);
            failed(error)
        })
    }
}

#[async_trait]
impl Stage for FileStage {
    async fn append(&mut self, events: &[Event]) -> Result<Head> {
        let before = self.reader.place;
        let (bytes, place) = line::encode(&before, self.session(), events)?;
        self.write(bytes.into(), before.offset).await?;
        self.reader = LogReader::at(place);
        Ok(self.head())
    }

    async fn append_lines(&mut self, lines: Bytes) -> Result<Vec<StoredEvent>> {
        let before = self.reader.place;
        let events = self.reader.take(&lines).map_err(Error::NoLog)?;
        self.write(lines, before.offset).await?;
        Ok(events)
    }

    async fn blob_put(&mut self, name: &str, bytes: Bytes) -> Result<()> {
        let (folder, session, blob) = (self.folder.clone(), self.session(), name.to_owned());
        self.blobs.push(blob.clone());
        blocking(move || blob::put(&folder, session, &blob, &bytes)).await
    }

    async fn commit(mut self: Box<Self>) -> Result<Head> {
        if !self.reader.is_whole() {
            return Err(Error::NoLog(CUT.into()));
        }
        let session = self.session();
        let (folder, marks, file) = (self.folder.clone(), self.marks.clone(), self.file.clone());
        self.logs.put(session, move || Self::put_in_place(&folder, &marks, &*file, session)).await?;
        self.committed = true;
        self.tails.wake(session);
        Ok(self.head())
    }
}

impl Drop for FileStage {
    /// Best effort: what stays is no session, and the next one under this name writes over it.
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        let (disk, layout) = (&self.folder.disk, &self.folder.layout);
        let base = layout.session(self.session());
        let _ = disk.remove(&layout.staged_log(self.session()));
        for name in &self.blobs {
            let _ = disk.remove(&base.join(name));
        }
        // The innermost first; one that holds something else stays.
        let parents = self.blobs.iter().flat_map(|name| Path::new(name).ancestors().skip(1));
        let folders: BTreeSet<PathBuf> = parents.map(|parent| base.join(parent)).chain([base.clone()]).collect();
        for folder in folders.iter().rev() {
            let _ = disk.remove_dir(folder);
        }
    }
}

fn failed(session: SessionId, error: &io::Error) -> Error {
    Error::disk(format_args!("{session} as a whole"), error)
}

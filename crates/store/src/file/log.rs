//! One open log: its file, how far it is known to be good, and the one place that appends to it.
//! It never shows an event before its decision is synced, and never a part of a decision.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tenure_core::{event::Event, ids::SessionId};

use super::{
    folder::Folder,
    lines::CHUNK_BYTES,
    scan::{Tail, scan},
};
use crate::{
    Error, Head, Result,
    disk::{DiskFile, Open},
    line::{self, Place},
};

mod reading;

pub(crate) use reading::ends_at;

/// Places in a log that are remembered, so that paging and tailing readers need no search.
const BOOKMARKS_MAX: usize = 64;
/// Cut files per offset; more than this many crashes at one place is not a crash any more.
const CUTS_MAX: u32 = 1000;

pub(crate) struct Log {
    session: SessionId,
    folder: Arc<Folder>,
    file: Box<dyn DiskFile>,
    view: Mutex<View>,
    writer: Arc<tokio::sync::Mutex<Writer>>,
    /// The file is longer than what is known good. Such a log is not put out of memory: nobody else knows what to cut.
    overlong: AtomicBool,
    /// Its session was purged or removed: what is written here is in no log any more.
    gone: AtomicBool,
}

/// What readers may see.
struct View {
    /// The end of the last decision known to be synced.
    tip: Place,
    damage: Option<Damage>,
    bookmarks: VecDeque<Place>,
}

#[derive(Debug, Clone)]
struct Damage {
    /// The last event before it.
    seq: u64,
    why: String,
}

/// What the one who appends knows.
pub(crate) struct Writer {
    tip: Place,
    mend: Option<Mend>,
}

/// One decision, ready to be written.
pub(crate) struct Decision {
    bytes: Vec<u8>,
    tip: Place,
}

/// What must be done with the bytes behind the tip before anything is appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mend {
    /// They came from a crash: keep them aside, then cut.
    KeepAside,
    /// They came from a write of ours that failed: cut.
    Cut,
}

impl Log {
    /// Opens a log and checks it from `from` on, which must be the end of a decision. A torn tail is cut on the way. One
    /// that ends before an event that is known to have been in it has lost its end, which no crash takes.
    pub fn open(
        folder: Arc<Folder>,
        session: SessionId,
        file: Box<dyn DiskFile>,
        from: Place,
        expected_seq: u64,
    ) -> Result<Log> {
        let failed = |error: io::Error| Error::unread(format_args!("the log of {session}"), &error);
        let scan = scan(&*file, from, file.len().map_err(failed)?).map_err(failed)?;
        let (damage, mend) = match scan.tail {
            Tail::Clean | Tail::Torn if scan.tip.seq < expected_seq => {
                let why = format!("its end is lost: it held event {expected_seq}");
                (Some(Damage { seq: scan.tip.seq, why }), None)
            }
            Tail::Clean => (None, None),
            Tail::Torn => (None, Some(Mend::KeepAside)),
            Tail::Bad { why } => (Some(Damage { seq: scan.tip.seq, why }), None),
        };
        let log = Log {
            session,
            folder,
            file,
            view: Mutex::new(View { tip: scan.tip, damage: None, bookmarks: VecDeque::from([from]) }),
            writer: Arc::new(tokio::sync::Mutex::new(Writer { tip: scan.tip, mend })),
            overlong: AtomicBool::new(mend.is_some()),
            gone: AtomicBool::new(false),
        };
        if let Some(damage) = damage {
            log.set_damage(damage);
        }
        log.mend_at_open();
        Ok(log)
    }

    /// If the disk refuses, the good part can be read all the same, and the next append tries again.
    fn mend_at_open(&self) {
        // Nobody else has the log yet, so the lock is free.
        if let Ok(mut writer) = self.writer.try_lock()
            && let Err(error) = self.mend(&mut writer)
        {
            self.folder.notices.add(format!("the torn tail of the log of {} is not cut yet: {error}", self.session));
        }
    }

    /// Whether there is anything in it. A log without a whole first decision counts as not existing.
    pub fn exists(&self) -> bool {
        let view = self.view();
        view.tip.seq > 0 || view.damage.is_some()
    }

    pub fn head(&self) -> Head {
        let view = self.view();
        match &view.damage {
            Some(damage) => Head { seq: damage.seq, bytes: view.tip.offset },
            None => Head { seq: view.tip.seq, bytes: view.tip.offset },
        }
    }

    pub fn is_overlong(&self) -> bool {
        self.overlong.load(Ordering::Acquire)
    }

    /// The right to append, one at a time in the order of asking.
    pub fn writer(&self) -> Arc<tokio::sync::Mutex<Writer>> {
        self.writer.clone()
    }

    /// Whether a decision may be appended after `expected_seq`. Changes nothing.
    pub fn check(&self, writer: &Writer, expected_seq: u64) -> Result<()> {
        self.check_writable()?;
        if writer.tip.seq != expected_seq {
            return Err(Error::Conflict { expected: expected_seq, found: writer.tip.seq });
        }
        Ok(())
    }

    /// Nobody appends to it any more.
    pub fn leave(&self) {
        self.gone.store(true, Ordering::Release);
        self.overlong.store(false, Ordering::Release);
    }

    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub fn check_writable(&self) -> Result<()> {
        if self.is_gone() {
            return Err(Error::NoSession(self.session));
        }
        match &self.view().damage {
            None => Ok(()),
            Some(Damage { seq, why }) => Err(Error::Damaged { session: self.session, seq: *seq, why: why.clone() }),
        }
    }

    /// The bytes of a decision that would be appended next.
    pub fn encode(&self, writer: &Writer, events: &[Event]) -> Result<Decision> {
        let (bytes, tip) = line::encode(&writer.tip, self.session, events)?;
        Ok(Decision { bytes, tip })
    }

    /// Appends a decision made with the same `writer`: written at once, synced, and only then shown.
    pub fn append(&self, writer: &mut Writer, decision: Decision) -> Result<Head> {
        let Decision { bytes, tip } = decision;
        self.mend(writer)?;
        if let Err(error) = self.write(&bytes, &writer.tip) {
            self.overlong.store(true, Ordering::Release);
            writer.mend = Some(Mend::Cut);
            if let Err(error) = self.mend(writer) {
                let notice =
                    format!("the log of {} is closed for writing until it can be cut back: {error}", self.session);
                self.folder.notices.add(notice);
            }
            return Err(Error::disk(format_args!("events of {}", self.session), &error));
        }
        self.check_there()?;
        let before = std::mem::replace(&mut writer.tip, tip);
        let mut view = self.view();
        view.bookmark(before);
        view.tip = tip;
        Ok(Head { seq: tip.seq, bytes: tip.offset })
    }

    /// Refuses what was written to a log that somebody has removed or moved away: nobody would find it again. After the
    /// write, so that what was removed before the answer is never answered; it costs less than a thousandth of a sync.
    pub fn check_there(&self) -> Result<()> {
        // Where nobody can tell, the write that went well counts.
        if self.file.is_at(&self.folder.layout.log(self.session)).unwrap_or(true) {
            return Ok(());
        }
        self.leave();
        let notice =
            format!("the log of {} was removed or moved while it was in use: the session is gone", self.session);
        self.folder.notices.add(notice);
        Err(Error::NoSession(self.session))
    }

    fn write(&self, bytes: &[u8], tip: &Place) -> io::Result<()> {
        self.file.write_all_at(bytes, tip.offset)?;
        self.file.sync()?;
        if tip.seq == 0 {
            // The log's own name, and its folder's, must survive too.
            self.folder.disk.sync_dir(&self.folder.layout.session(self.session))?;
            self.folder.disk.sync_dir(&self.folder.layout.sessions())?;
        }
        Ok(())
    }

    /// Cuts the file back to its tip if anything stands behind it.
    pub fn mend(&self, writer: &mut Writer) -> Result<()> {
        let Some(mend) = writer.mend else { return Ok(()) };
        let failed = |error: io::Error| Error::disk(format_args!("to cut the log of {}", self.session), &error);
        if mend == Mend::KeepAside {
            self.keep_aside(writer.tip.offset).map_err(failed)?;
            writer.mend = Some(Mend::Cut);
        }
        self.file.set_len(writer.tip.offset).map_err(failed)?;
        // Synced, so that no crash brings back what was refused.
        self.file.sync().map_err(failed)?;
        writer.mend = None;
        self.overlong.store(false, Ordering::Release);
        Ok(())
    }

    /// Copies all bytes from `offset` on to a file of their own.
    fn keep_aside(&self, offset: u64) -> io::Result<()> {
        let (name, aside) = self.new_cut_file(offset)?;
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut copied = 0;
        loop {
            let read = self.file.read_full_at(&mut chunk, offset + copied)?;
            if read == 0 {
                break;
            }
            aside.write_all_at(&chunk[..read], copied)?;
            copied += read as u64;
        }
        aside.sync()?;
        self.folder.disk.sync_dir(&self.folder.layout.session(self.session))?;
        self.folder.notices.add(format!(
            "the log of {} had {copied} bytes of an unfinished write after event {}; they were cut and kept in {name}",
            self.session,
            self.view().tip.seq,
        ));
        Ok(())
    }

    fn new_cut_file(&self, offset: u64) -> io::Result<(String, Box<dyn DiskFile>)> {
        for n in 0..CUTS_MAX {
            let path = self.folder.layout.cut(self.session, offset, n);
            match self.folder.disk.open(&path, Open::New) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(file) => return Ok((path.display().to_string(), file)),
            }
        }
        Err(io::Error::other("too many cut files"))
    }

    fn set_damage(&self, damage: Damage) {
        let mut view = self.view();
        if view.damage.as_ref().is_some_and(|known| known.seq <= damage.seq) {
            return;
        }
        self.folder.notices.add(format!(
            "the log of {} is damaged after event {}: {}; it can be read up to there, and not written",
            self.session, damage.seq, damage.why
        ));
        view.damage = Some(damage);
    }

    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl View {
    fn bookmark(&mut self, place: Place) {
        if self.bookmarks.iter().any(|known| known.seq == place.seq) {
            return;
        }
        if self.bookmarks.len() == BOOKMARKS_MAX {
            self.bookmarks.pop_front();
        }
        self.bookmarks.push_back(place);
    }
}

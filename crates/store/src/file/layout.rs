//! Where things lie in the data folder. It only makes names, it never opens them.

use std::path::{Path, PathBuf};

use tenure_core::ids::{SessionId, TurnId};

use crate::name::TEMPORARY;

pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    pub fn keys(&self) -> PathBuf {
        self.root.join("keys.ndjson")
    }

    pub fn index(&self) -> PathBuf {
        self.root.join("index.ndjson")
    }

    /// Holds one mark per session that is warm or has anything pending.
    pub fn open(&self) -> PathBuf {
        self.root.join("open")
    }

    pub fn open_mark(&self, session: SessionId) -> PathBuf {
        self.open().join(session.to_string())
    }

    pub fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    pub fn session(&self, session: SessionId) -> PathBuf {
        self.sessions().join(session.to_string())
    }

    /// Holds what is being deleted.
    pub fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    pub fn log(&self, session: SessionId) -> PathBuf {
        self.session(session).join("events.ndjson")
    }

    /// A log that is not in place yet.
    pub fn staged_log(&self, session: SessionId) -> PathBuf {
        self.session(session).join(format!("{TEMPORARY}log"))
    }

    pub fn snapshot(&self, session: SessionId) -> PathBuf {
        self.session(session).join("session.json")
    }

    /// Where bytes cut from a log's tail are kept.
    pub fn cut(&self, session: SessionId, offset: u64, n: u32) -> PathBuf {
        self.session(session).join(format!("cut-{offset}-{n}.bin"))
    }

    /// Where a file of the folder itself is kept that was damaged.
    pub fn damaged(&self, name: &str, n: u32) -> PathBuf {
        self.root.join(format!("damaged-{n}.{name}"))
    }

    /// Where a log is kept that was damaged.
    pub fn damaged_log(&self, session: SessionId, n: u32) -> PathBuf {
        self.session(session).join(format!("damaged-{n}.ndjson"))
    }

    /// Where a blob is kept that was damaged; empty where nothing was left of it.
    pub fn damaged_blob(&self, session: SessionId, name: &str) -> PathBuf {
        self.session(session).join("damaged").join(name)
    }

    pub fn turns(&self, session: SessionId) -> PathBuf {
        self.session(session).join("turns")
    }

    pub fn turn(&self, session: SessionId, turn: TurnId) -> PathBuf {
        self.turns(session).join(format!("{turn}.json"))
    }

    pub fn spools(&self, session: SessionId) -> PathBuf {
        self.session(session).join("logs")
    }

    pub fn spool(&self, session: SessionId, turn: TurnId) -> PathBuf {
        self.spools(session).join(format!("{turn}.log"))
    }

    /// The turn whose record has this file name.
    pub fn turn_of_record(name: &str) -> Option<TurnId> {
        name.strip_suffix(".json")?.parse().ok()
    }

    /// The turn whose spool has this file name.
    pub fn turn_of_spool(name: &str) -> Option<TurnId> {
        name.strip_suffix(".log")?.parse().ok()
    }
}

//! Why the store could not do something. It never holds a refusal: those are made in `core`.

use std::{fmt, io};

use tenure_core::ids::SessionId;

/// What was asked of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Read,
    Write,
}

/// Why the store could not do something. The world's fault, never the asker's.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    #[error("there is no session {0}")]
    NoSession(SessionId),
    #[error("session {0} exists already")]
    Exists(SessionId),
    #[error("another writer has taken over (epoch {theirs}, ours is {ours})")]
    Fenced { ours: u64, theirs: u64 },
    #[error("the log is at event {found}, not at {expected}")]
    Conflict { expected: u64, found: u64 },
    /// A line further up the log is bad: the session can be read up to it, and not written.
    #[error("the log of {session} is damaged after event {seq}: {why}")]
    Damaged { session: SessionId, seq: u64, why: String },
    /// A write or sync failed, and the session is closed for writing until a retry succeeds; or something cannot be read.
    #[error("the disk refused {asked}{what}: {why}")]
    Disk { asked: Asked, what: String, why: String },
    /// What was said to be lines of a log is none.
    #[error("this is no log: {0}")]
    NoLog(String),
    #[error("there are {limit} idempotency keys of the last 24 hours already")]
    KeysFull { limit: usize },
    #[error("there is no data folder at {0}")]
    NoFolder(String),
    #[error("the data folder is in use by process {pid}")]
    Locked { pid: u32 },
    #[error("{0}")]
    Other(String),
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// The disk did not give what was kept.
    pub(crate) fn unread(what: impl fmt::Display, why: &io::Error) -> Self {
        Error::Disk { asked: Asked::Read, what: what.to_string(), why: why.to_string() }
    }

    /// The disk did not take something.
    pub(crate) fn disk(what: impl fmt::Display, why: &io::Error) -> Self {
        Error::Disk { asked: Asked::Write, what: what.to_string(), why: why.to_string() }
    }
}

impl fmt::Display for Asked {
    /// As it stands before what was to be read or written.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Asked::Read => out.write_str("to read "),
            Asked::Write => Ok(()),
        }
    }
}

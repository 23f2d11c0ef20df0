//! Commands that wait for the session's writer, in memory. Enough where the only daemon there can be is the writer.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use bytes::Bytes;
use tenure_core::ids::SessionId;

use crate::{Error, Result};

/// Commands that may wait for one session, and sessions that commands may wait for.
const WAITING_MAX: usize = 256;
const SESSIONS_MAX: usize = 4096;

#[derive(Default)]
pub(crate) struct Inbox(Mutex<HashMap<SessionId, Vec<Bytes>>>);

impl Inbox {
    pub fn put(&self, session: SessionId, command: Bytes) -> Result<()> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == SESSIONS_MAX && !all.contains_key(&session) {
            return Err(Error::Other(format!("commands wait for {SESSIONS_MAX} sessions already")));
        }
        let waiting = all.entry(session).or_default();
        if waiting.len() == WAITING_MAX {
            return Err(Error::Other(format!("{WAITING_MAX} commands wait for {session} already")));
        }
        waiting.push(command);
        Ok(())
    }

    pub fn take(&self, session: SessionId) -> Vec<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&session).unwrap_or_default()
    }
}

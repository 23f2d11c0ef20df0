//! Who puts which session in place just now.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use tenure_core::ids::SessionId;

use crate::{Error, Result};

/// The sessions that somebody is putting in place just now.
#[derive(Default)]
pub(crate) struct Staged(Mutex<HashSet<SessionId>>);

impl Staged {
    /// Only one may do it at a time.
    pub fn take(self: &Arc<Self>, session: SessionId) -> Result<Taken> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(session) {
            true => Ok(Taken { staged: self.clone(), session }),
            false => Err(Error::Exists(session)),
        }
    }
}

/// The right to put this session in place.
pub(crate) struct Taken {
    staged: Arc<Staged>,
    session: SessionId,
}

impl Taken {
    pub fn session(&self) -> SessionId {
        self.session
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.staged.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.session);
    }
}

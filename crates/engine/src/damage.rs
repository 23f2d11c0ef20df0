//! What of a session's log is not there any more, for whoever reads it: nobody takes a part for the whole.

use serde_json::{Value, json};
use tenure_core::{
    ids::SessionId,
    session::{Lost, Session},
};
use tenure_store::Store;

use crate::{Engine, Error};

/// Something of a session's log is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// From this event on nothing can be read, until the log is repaired.
    Unreadable { from_seq: u64, why: String },
    /// A repair put `event_lost` in their place.
    Lost(Lost),
}

impl Damage {
    /// What cannot be read of a log as it lies there now.
    pub(crate) async fn of_log(store: &dyn Store, session: SessionId) -> Result<Option<Self>, Error> {
        match store.check(session).await {
            Ok(()) => Ok(None),
            Err(tenure_store::Error::Damaged { seq, why, .. }) => Ok(Some(Self::Unreadable { from_seq: seq + 1, why })),
            Err(error) => Err(error.into()),
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Damage::Unreadable { .. } => "unreadable",
            Damage::Lost(_) => "lost",
        }
    }

    /// The first event that is not there.
    pub fn from_seq(&self) -> u64 {
        match self {
            Damage::Unreadable { from_seq, .. } | Damage::Lost(Lost { from_seq, .. }) => *from_seq,
        }
    }

    /// How many are gone, where that is known.
    pub fn events(&self) -> Option<u64> {
        match self {
            Damage::Unreadable { .. } => None,
            Damage::Lost(lost) => Some(lost.events),
        }
    }

    pub fn reason(&self) -> &str {
        match self {
            Damage::Unreadable { why, .. } => why,
            Damage::Lost(lost) => &lost.reason,
        }
    }

    /// What can be done about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Damage::Unreadable { .. } => {
                "mend it with `tenure store repair` while the daemon is stopped, \
                 or go on from the last event before it with `tenure session fork`"
            }
            Damage::Lost(_) => {
                "all that could be read is here; `tenure session fork` goes on from it, or with --at from before the damage"
            }
        }
    }

    /// As a stream tells it.
    pub(crate) fn told(&self) -> Value {
        json!({ "kind": self.kind(), "from_seq": self.from_seq(), "reason": self.reason(), "hint": self.hint() })
    }
}

impl Engine {
    /// All that is known to be missing of a session's log.
    pub async fn damage(&self, session: &Session) -> Result<Vec<Damage>, Error> {
        let unreadable = Damage::of_log(&*self.0.parts.store, session.id).await?;
        Ok(session.lost.clone().map(Damage::Lost).into_iter().chain(unreadable).collect())
    }
}

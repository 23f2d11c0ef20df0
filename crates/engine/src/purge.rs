//! Deletes a session for good: it is ended, leaves the memory, and then the disk.

use std::time::Duration;

use tenure_core::{
    command::{Command, Refusal},
    event::Actor,
    ids::SessionId,
    session::Life,
};
use tokio::time::Instant;

use crate::{
    Engine, Error,
    hub::lock,
    warm::{Leave, Mail},
};

/// How long a session may take to end. What a cancel cannot end holds it up no longer than a turn's.
const END_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Nobody warms a session up while this lives.
struct Closed<'e> {
    engine: &'e Engine,
    id: SessionId,
}

impl<'e> Closed<'e> {
    fn new(engine: &'e Engine, id: SessionId) -> Result<Self, Error> {
        match lock(&engine.0.purging).insert(id) {
            true => Ok(Self { engine, id }),
            // Somebody else is at it.
            false => Err(Error::NoSession(id)),
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        lock(&self.engine.0.purging).remove(&self.id);
    }
}

impl Engine {
    /// Whether it is being deleted just now.
    pub(crate) fn is_purging(&self, id: SessionId) -> bool {
        lock(&self.0.purging).contains(&id)
    }

    /// Deletes a session and all that belongs to it. One that is open is ended first; one that is damaged goes as it is.
    pub async fn purge(&self, id: SessionId, actor: Actor) -> Result<(), Error> {
        let deadline = Instant::now() + END_MAX;
        let is_whole = match self.session(id).await {
            Ok(_) => true,
            Err(gone @ Error::NoSession(_)) => return Err(gone),
            Err(_) => false,
        };
        if is_whole {
            self.end_for_good(id, actor, deadline).await?;
        }
        let _closed = Closed::new(self, id)?;
        self.put_out_of_memory(id, deadline).await?;
        self.keep_purged(id).await?;
        self.0.parts.store.purge(id).await?;
        self.0.named.forget(id);
        self.0.hubs.look(id);
        Ok(())
    }

    async fn end_for_good(&self, id: SessionId, actor: Actor, deadline: Instant) -> Result<(), Error> {
        let end = Command::End { reason: Some("purged".into()) };
        match self.command(id, end, None, actor).await {
            Ok(_) | Err(Error::Refused(_)) => {}
            Err(error) => return Err(error),
        }
        while self.session(id).await?.life == Life::Open {
            wait(deadline).await?;
        }
        Ok(())
    }

    async fn put_out_of_memory(&self, id: SessionId, deadline: Instant) -> Result<(), Error> {
        loop {
            let Some(slot) = self.0.slot(id) else { return Ok(()) };
            let Some(handle) = slot else {
                // Somebody was warming it up before it was closed.
                wait(deadline).await?;
                continue;
            };
            let (reply, answer) = tokio::sync::oneshot::channel();
            let told = handle.mailbox.try_send(Box::new(Mail::Leave { reply }));
            // One that does not answer is ending by itself.
            if told.is_err() || answer.await == Ok(Leave::Busy) {
                wait(deadline).await?;
                continue;
            }
            handle.ended().await;
        }
    }
}

async fn wait(deadline: Instant) -> Result<(), Error> {
    if Instant::now() < deadline {
        tokio::time::sleep(LOOK_EVERY).await;
        return Ok(());
    }
    Err(Refusal::new("session_busy", "something of this session still runs", "try again later").into())
}

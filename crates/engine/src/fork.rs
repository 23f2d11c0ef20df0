//! A session that begins where another one stood: its log up to an event, copied, with the files that this speaks of.

use std::collections::HashSet;

use tenure_core::{
    command::{Refusal, digest_of},
    event::{Actor, SessionForked},
    ids::SessionId,
    session,
};
use tenure_store::{CreateKey, Limit};

use crate::{
    Engine, Error,
    copy::{Begun, Copy},
    named::Files,
};

/// What a fork is to be.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct NewFork {
    /// The last event to be copied; the present one, where it is not said.
    pub seq: Option<u64>,
    pub title: Option<String>,
    pub labels: Vec<String>,
    pub model: Option<String>,
    pub workspace_path: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forked {
    pub session_id: SessionId,
    /// The last event that was copied.
    pub seq: u64,
    /// Files that events name and that were gone, or changed on the disk.
    pub missing: Vec<String>,
}

impl Engine {
    /// Makes a session out of what another one was at some event. The same key gives the same fork.
    pub async fn fork(
        &self,
        from: SessionId,
        new: NewFork,
        key: Option<String>,
        actor: Actor,
    ) -> Result<Forked, Error> {
        let store = self.0.parts.store.clone();
        let head = store.head(from).await?.seq;
        let seq = new.seq.unwrap_or(head);
        if !(1..=head).contains(&seq) {
            let message = format!("there is no event {seq} in this session");
            let hint = "events are numbered from 1 to the session's seq";
            return Err(Refusal::new("unknown_seq", message, hint).into());
        }
        let mut moment = self.0.parts.clock.moment();
        let mut id = moment.session_id();
        if let Some(key) = key {
            let (endpoint, digest) = (format!("fork {from}"), digest_of(&new));
            id = self.keep_key(CreateKey { endpoint, key, digest, session_id: id, at: moment.at }).await?;
        }
        let mut copy = match Copy::begin(&*store, id).await? {
            Begun::Now(copy) => copy,
            Begun::Before => {
                let origin = self.session(id).await?.forked_from;
                let missing = self.missing(id).await?;
                return Ok(Forked { session_id: id, seq: origin.map_or(seq, |origin| origin.seq), missing });
            }
        };
        let mut after = 0;
        while after < seq {
            let page = store.read(from, after, Limit::default()).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            copy.take(&page, from, seq).await?;
        }
        let named: Vec<_> = copy.blobs().iter().map(|(name, told)| (name.clone(), told.digest.clone())).collect();
        let mut missing = Vec::new();
        for (name, digest) in named {
            match self.sound(from, &name, digest.as_deref()).await {
                Ok(sound) => copy.put_blob(&name, sound.bytes).await?,
                // One that the disk has changed is as good as none.
                Err(Error::Refused(_)) => missing.push(name),
                Err(error) => return Err(error),
            }
        }
        // One that was deleted meanwhile may have given a part of its files.
        store.head(from).await?;
        let secrets = &self.0.parts.secrets;
        let clean = |text: String| secrets.redact(&text).into_owned();
        let forked = SessionForked {
            from,
            at_seq: seq,
            title: new.title.map(clean),
            model: new.model,
            workspace_path: new.workspace_path,
            labels: new.labels.into_iter().map(clean).collect(),
        };
        let decision = session::fork(copy.state()?, forked, actor, &mut moment);
        let events = decision.events.clone();
        copy.append(decision).await?;
        copy.commit().await?;
        events.iter().for_each(|event| self.0.happened(event));
        self.welcome(id).await?;
        Ok(Forked { session_id: id, seq, missing })
    }

    /// The files that events of a session name and that it does not have.
    async fn missing(&self, session: SessionId) -> Result<Vec<String>, Error> {
        let store = &*self.0.parts.store;
        let mut there = store.blob_list(session, "artifacts").await?;
        there.extend(store.blob_list(session, "attachments").await?);
        let there: HashSet<String> = there.into_iter().map(|blob| blob.name).collect();
        let missing = |files: &Files| files.keys().filter(|name| !there.contains(*name)).cloned().collect();
        self.0.named.ask(store, session, missing).await
    }
}

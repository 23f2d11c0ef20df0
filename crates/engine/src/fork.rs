//! A session that begins where another one stood: its log up to an event, copied, with the files that this speaks of.

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forked {
    pub session_id: SessionId,
    /// The last event that was copied.
    pub seq: u64,
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
                return Ok(Forked { session_id: id, seq: origin.map_or(seq, |origin| origin.seq) });
            }
        };
        let mut after = 0;
        while after < seq {
            let page = store.read(from, after, Limit::default()).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            copy.take(&page, seq).await?;
        }
        let names: Vec<String> = copy.blobs().keys().cloned().collect();
        for name in names {
            match store.blob_get(from, &name).await? {
                Some(bytes) => copy.put_blob(&name, bytes).await?,
                None => tracing::warn!("{name} of {from} is not there; its fork {id} lacks it too"),
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
        Ok(Forked { session_id: id, seq })
    }
}

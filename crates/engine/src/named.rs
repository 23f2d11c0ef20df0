//! What a session's events say of the files beside its log, so that none of them is handed out changed. It is made from
//! the log when it is first asked for, and kept for the sessions that were asked for last.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use tenure_core::ids::SessionId;
use tenure_store::{Limit, Store};

use crate::{Error, hub::lock};

/// Sessions that are remembered.
const SESSIONS_MAX: usize = 16;
/// Files of all of them together; a session with more is read anew each time.
const FILES_MAX: usize = 50_000;
/// Where files lie: an event that holds neither of these names none.
const FOLDERS: [&str; 2] = ["artifacts/", "attachments/"];

/// The files that events name, with their digest where that is told; the last event that names one counts.
pub(crate) type Files = BTreeMap<String, Option<String>>;

#[derive(Default)]
pub(crate) struct Named(Mutex<VecDeque<Known>>);

struct Known {
    session: SessionId,
    /// The last event that was looked at.
    seq: u64,
    files: Files,
}

impl Named {
    /// Asks something of the files that this session's events name by now.
    pub async fn ask<T>(
        &self,
        store: &dyn Store,
        session: SessionId,
        ask: impl FnOnce(&Files) -> T,
    ) -> Result<T, Error> {
        let head = store.head(session).await?.seq;
        // Whoever asks meanwhile reads the log too.
        let known = self.take(session).filter(|known| known.seq <= head);
        let mut known = known.unwrap_or(Known { session, seq: 0, files: Files::new() });
        while known.seq < head {
            let page = store.read(session, known.seq, Limit::default()).await?;
            let Some(last) = page.last() else { break };
            known.seq = last.seq;
            for stored in page.iter().filter(|stored| may_name(&stored.json)) {
                // What this version cannot read names nothing that it could know.
                let Ok(event) = stored.parse() else { continue };
                let named = event.body.blobs().map(|blob| (blob.name.to_owned(), blob.digest.map(str::to_owned)));
                known.files.extend(named);
            }
        }
        let answer = ask(&known.files);
        self.put(known);
        Ok(answer)
    }

    /// The session is gone; another one may come under its id.
    pub fn forget(&self, session: SessionId) {
        drop(self.take(session));
    }

    fn take(&self, session: SessionId) -> Option<Known> {
        let mut all = lock(&self.0);
        let at = all.iter().position(|known| known.session == session)?;
        all.remove(at)
    }

    fn put(&self, known: Known) {
        let mut all = lock(&self.0);
        all.retain(|other| other.session != known.session);
        all.push_back(known);
        while all.len() > SESSIONS_MAX || all.iter().map(|known| known.files.len()).sum::<usize>() > FILES_MAX {
            all.pop_front();
        }
    }
}

fn may_name(json: &[u8]) -> bool {
    std::str::from_utf8(json).is_ok_and(|text| FOLDERS.iter().any(|folder| text.contains(folder)))
}

//! Compares a store that came back with the book, and enters there what is shown now: it may not be taken back later.

use tenure_core::{
    event::Event,
    ids::{SessionId, TurnId},
    time::Timestamp,
};
use tenure_store::{Error, Limit, Remains, SpoolPage, Store};

use super::{
    book::Open,
    life::{Cut, Life},
};
use crate::sample::*;

/// Whether the disk may fail while the store is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    None,
    Expected,
}

/// Looks at everything; twice where a disk that refuses may refuse the first time only.
pub async fn look(life: &mut Life, cut: Cut, disk: &Remains, trouble: Trouble) {
    let rounds = if trouble == Trouble::Expected { 2 } else { 1 };
    for _ in 0..rounds {
        let mut look = Look { life, cut, disk, trouble };
        let listed_first = look.life.dice.one_in(2);
        look.marks().await;
        look.keys().await;
        if listed_first {
            look.life.store.list(None, 1).await.ok();
        }
        for at in 0..look.life.book.sessions.len() {
            look.session(at).await;
        }
        look.listing().await;
    }
}

/// Every event of a session that is far smaller than a page.
pub async fn read_at_once(store: &dyn Store, session: SessionId) -> Vec<Event> {
    let page = store.read(session, 0, Limit { events: usize::MAX, bytes: usize::MAX }).await.unwrap();
    page.iter().map(|stored| stored.parse().unwrap()).collect()
}

struct Look<'a> {
    life: &'a mut Life,
    cut: Cut,
    disk: &'a Remains,
    trouble: Trouble,
}

impl Look<'_> {
    /// The answer, or nothing where the disk may fail.
    fn answer<T>(&self, answer: Result<T, Error>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                let disk = matches!(error, Error::Disk { .. });
                assert!(disk && self.trouble == Trouble::Expected, "the store did not come back whole: {error}");
                None
            }
        }
    }

    async fn marks(&mut self) {
        let Some(open) = self.answer(self.life.store.open_sessions().await) else { return };
        for page in &self.life.book.sessions {
            assert!(page.open == Open::Maybe || open.contains(&page.id), "the mark of {} is gone", page.id);
        }
        let known = |id| self.life.book.sessions.iter().any(|page| page.id == id);
        assert!(open.iter().all(|id| known(*id)), "a mark that nobody made");
    }

    async fn keys(&mut self) {
        let now = Timestamp::from_ms(START_MS + 100);
        for key in self.life.book.keys.clone() {
            let found = self.life.store.key_get(&key.endpoint, &key.key, now).await;
            let Some(found) = self.answer(found) else { return };
            assert_eq!(found.as_ref(), Some(&key), "an acknowledged key is gone");
        }
        for maybe in self.life.book.keys_maybe.clone() {
            let Some(found) = self.answer(self.life.store.key_get(&maybe.endpoint, &maybe.key, now).await) else {
                return;
            };
            let Some(found) = found else { continue };
            assert!(self.life.book.keys_maybe.contains(&found) || self.life.book.keys.contains(&found), "{found:?}");
            // It was shown, so it counts from now on.
            self.life.book.keys_maybe.retain(|maybe| maybe.key != found.key);
            self.life.book.keys.push(found);
        }
    }

    async fn session(&mut self, at: usize) {
        let id = self.life.book.sessions[at].id;
        let log = format!("sessions/{id}/events.ndjson");
        let before = self.disk.file(&log).unwrap_or_default();
        let head = match self.life.store.head(id).await {
            Err(Error::NoSession(_)) => {
                assert!(self.life.book.sessions[at].events.is_empty(), "session {id} is gone");
                self.life.book.sessions[at].maybe.clear();
                self.cut_bytes(at, &log, &before);
                return;
            }
            head => match self.answer(head) {
                Some(head) => head,
                None => return,
            },
        };
        self.cut_bytes(at, &log, &before);
        let Some(claimed) = self.answer(self.life.store.claim(id).await) else { return };
        assert!(claimed.0 > self.life.book.epoch || self.life.book.epoch == 0, "epoch {} is used twice", claimed.0);
        let found = read_at_once(&*self.life.store, id).await;
        assert_eq!(head.seq, found.len() as u64);
        let page = &mut self.life.book.sessions[at];
        assert!(found.starts_with(&page.events), "{id}: {} events of {} are there", found.len(), page.seq());
        let more = found[page.events.len()..].to_vec();
        assert!(more.is_empty() || page.maybe.contains(&more), "{id}: a part, or what nobody appended");
        if !more.is_empty() {
            page.extend(more);
        }
        self.snapshot(at).await;
        self.blobs(at).await;
        let turns: Vec<_> = self.life.book.sessions[at].spools.keys().copied().collect();
        for turn in turns {
            self.spool(at, turn).await;
        }
    }

    /// What the opening cut from the log is kept aside, and people are told.
    fn cut_bytes(&self, at: usize, log: &str, before: &[u8]) {
        let after = self.disk.file(log).unwrap_or_default();
        let id = self.life.book.sessions[at].id;
        assert!(before.starts_with(&after), "the opening of {id} wrote to the log");
        if after.len() == before.len() {
            return;
        }
        let cut = format!("sessions/{id}/cut-{}-", after.len());
        let kept: Vec<_> = self.disk.files().into_iter().filter(|name| name.starts_with(&cut)).collect();
        let whole = kept.iter().any(|name| self.disk.file(name).unwrap() == before[after.len()..]);
        assert!(whole, "{} bytes were cut from {id} and not kept", before.len() - after.len());
        let notices = self.life.store.notices();
        assert!(notices.iter().any(|notice| notice.contains("kept in") && notice.contains(&cut)), "{notices:?}");
    }

    async fn snapshot(&mut self, at: usize) {
        let page = &self.life.book.sessions[at];
        let Some(found) = self.answer(self.life.store.snapshot_get(page.id).await) else { return };
        let Some(found) = found else { return };
        assert!(page.decision_ends.contains(&found.seq), "a snapshot at {}", found.seq);
        assert_eq!(found, page.snapshot(found.seq), "a snapshot of something else");
    }

    async fn blobs(&mut self, at: usize) {
        let page = &self.life.book.sessions[at];
        for (name, blob) in &page.blobs {
            let Some(found) = self.answer(self.life.store.blob_get(page.id, name).await) else { return };
            // What was never acknowledged may be there in any state; a name that has a whole blob keeps a whole one.
            let fits = found == blob.known || blob.maybe.iter().any(|maybe| found.as_ref() == Some(maybe));
            assert!(fits || (blob.known.is_none() && found.is_none()), "{name} of {}: {found:?}", page.id);
        }
    }

    async fn spool(&mut self, at: usize, turn: TurnId) {
        let id = self.life.book.sessions[at].id;
        let Some(found) = self.answer(self.life.store.spool_read(id, turn, 0, 1 << 20).await) else { return };
        let records = match found {
            SpoolPage::Records(records) => records,
            SpoolPage::Gone => vec![],
        };
        let cut = self.cut;
        let page = &mut self.life.book.sessions[at];
        let spool = page.spools.get_mut(&turn).unwrap();
        // Cutting back a refused batch is not synced: a power cut may bring it back, or a mix with what came after it.
        spool.broken |= spool.refused && cut == Cut::Power;
        if spool.broken {
            return;
        }
        let whole = records.len() >= spool.records.len();
        let (known, more) = records.split_at(spool.records.len().min(records.len()));
        let fits = spool.records.starts_with(known)
            && (more.is_empty() || spool.maybe.iter().any(|maybe| maybe.starts_with(more)));
        assert!(fits, "{turn} of {id} shows what was not spooled");
        assert!(whole || cut == Cut::Power, "{turn} of {id} has lost {} of {}", records.len(), spool.records.len());
        // What was lost may leave a gap behind it; only where nothing was lost it goes on without one.
        spool.broken = cut == Cut::Power && (!whole || !spool.maybe.is_empty());
        spool.records = records;
        spool.maybe.clear();
    }

    async fn listing(&mut self) {
        let Some(rows) = self.answer(self.life.store.list(None, 100).await) else { return };
        let mut listed: Vec<_> = rows.iter().map(|row| row.id).collect();
        listed.reverse();
        // A create that nobody answered may be listed as long as nobody has opened it.
        let undecided = |id| self.life.book.sessions.iter().any(|page| page.id == id && !page.maybe.is_empty());
        listed.retain(|id| !undecided(*id));
        let pages = self.life.book.sessions.iter().filter(|page| !page.events.is_empty() && page.maybe.is_empty());
        assert_eq!(listed, pages.map(|page| page.id).collect::<Vec<_>>(), "the listing");
        for row in rows {
            let page = self.life.book.sessions.iter().find(|page| page.id == row.id).unwrap();
            // The listing is a cache without a sum: a power cut may mix two rows of a session, but not two sessions.
            let Some(first) = page.events.first() else { continue };
            assert_eq!((row.created_at, &*row.workspace_path), (first.ts, "/tmp/work"), "a row of something else");
        }
    }
}

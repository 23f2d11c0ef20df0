//! The single operations of a life, and how each of their answers is entered in the book.

use bytes::Bytes;
use tenure_core::{delta::Delta, event::Event, time::Timestamp};
use tenure_store::{CreateKey, Error, Row, SpoolPage, SpoolRecord, Store};

use super::{book::Open, check::read_at_once, life::Life};
use crate::sample::*;

const SESSIONS_MAX: usize = 4;
const TURNS: u64 = 2;

impl Life {
    /// Does one thing, chosen by chance.
    pub async fn operate(&mut self) {
        let made: Vec<usize> =
            (0..self.book.sessions.len()).filter(|at| !self.book.sessions[*at].events.is_empty()).collect();
        if made.is_empty() || (self.book.sessions.len() < SESSIONS_MAX && self.dice.one_in(8)) {
            return self.create().await;
        }
        let at = *self.dice.pick(&made);
        match self.dice.below(16) {
            0..=5 => self.append(at).await,
            6..=8 => self.spool(at).await,
            9 => self.close_spool(at).await,
            10 => self.snapshot(at).await,
            11 => self.key().await,
            12 => self.blob(at).await,
            13 => self.row(at).await,
            14 => self.settle(at).await,
            _ => self.turn_record(at).await,
        }
    }

    /// An error is only right when the power is gone or the disk was told to refuse.
    fn excused(&self, error: &Error) {
        let expected = self.is_stopped() || self.refusing;
        assert!(expected && matches!(error, Error::Disk { .. }), "an undisturbed store refused: {error}");
    }

    async fn create(&mut self) {
        if self.dice.one_in(2) {
            self.key().await;
        }
        // A create that failed is tried again under its id.
        let failed = self.book.sessions.iter().position(|page| page.events.is_empty());
        let at = failed.unwrap_or_else(|| self.book.new_session());
        let page = &self.book.sessions[at];
        let letter = self.dice.number();
        let mut decision = vec![created(page.id)];
        for seq in 2..2 + self.dice.below(3) {
            decision.push(message(page.id, seq, &format!("{letter} first")));
        }
        match self.store.create(page.id, &decision).await {
            Ok((epoch, head)) => {
                assert_eq!(head.seq, decision.len() as u64);
                self.acknowledge_decision(at, decision, epoch.0);
            }
            Err(error) => self.refused(at, decision, &error).await,
        }
    }

    async fn append(&mut self, at: usize) {
        let (count, length) = (1 + self.dice.below(5), *self.dice.pick(&[0, 3, 40, 300, 700, 2000]));
        let page = &self.book.sessions[at];
        let decision = page.decision(count, length, self.dice.number());
        let epoch = match self.store.claim(page.id).await {
            Ok(epoch) => epoch,
            Err(error) => return self.excused(&error),
        };
        match self.store.append(page.id, epoch, page.seq(), &decision).await {
            Ok(head) => {
                assert_eq!(head.seq, page.seq() + count);
                self.acknowledge_decision(at, decision, epoch.0);
            }
            Err(error) => self.refused(at, decision, &error).await,
        }
    }

    fn acknowledge_decision(&mut self, at: usize, decision: Vec<Event>, epoch: u64) {
        let page = &mut self.book.sessions[at];
        let is_made = !page.events.is_empty();
        page.extend(decision);
        // One that was only made has nothing to come back to.
        if is_made {
            page.open = Open::Yes;
        }
        self.book.epoch = self.book.epoch.max(epoch);
        self.book.acknowledged += 1;
    }

    /// A decision was refused: nothing of it may be seen, and it may come back only if it could not be cut back.
    async fn refused(&mut self, at: usize, decision: Vec<Event>, error: &Error) {
        self.excused(error);
        let stays = self.store.notices().iter().any(|notice| notice.contains("until it can be cut back"));
        let page = &mut self.book.sessions[at];
        // Other refusals come before the log is touched: what stands uncut in it from before is still there.
        let written = matches!(error, Error::Disk { what, .. } if what.starts_with("events of"));
        if self.store.disk().is_stopped() || stays {
            page.maybe.push(decision);
        } else if written {
            page.maybe.clear();
        }
        let page = &self.book.sessions[at];
        match self.store.head(page.id).await {
            Ok(head) => {
                assert_eq!(head.seq, page.seq(), "a refused decision counts");
                assert_eq!(read_at_once(&*self.store, page.id).await, page.events, "a refused decision is shown");
            }
            Err(Error::NoSession(_)) => assert!(page.events.is_empty()),
            Err(error) => self.excused(&error),
        }
    }

    async fn spool(&mut self, at: usize) {
        let turn = turn(1 + self.dice.below(TURNS));
        let deltas: Vec<_> = (0..1 + self.dice.below(4))
            .map(|offset| {
                delta(offset, &format!("{} ö{}", self.dice.number(), "y".repeat(self.dice.below(400) as usize)))
            })
            .collect();
        let page = &mut self.book.sessions[at];
        let spool = page.spools.entry(turn).or_default();
        match self.store.spool_append(page.id, turn, &deltas).await {
            Ok(ends) => {
                let first = ends[0] - delta_bytes(&deltas[0], turn);
                let records: Vec<_> = ends
                    .iter()
                    .zip(&deltas)
                    .map(|(pos, delta)| SpoolRecord { pos: *pos, delta: delta.clone() })
                    .collect();
                let read = self.store.spool_read(page.id, turn, first, 1 << 20).await.unwrap();
                assert_eq!(read, SpoolPage::Records(records.clone()), "what was just spooled is not read");
                if !spool.broken {
                    assert_eq!(first, spool.records.last().map_or(0, |record| record.pos), "the spool has a gap");
                    spool.records.extend(records);
                    spool.maybe.clear();
                }
                self.book.acknowledged += 1;
            }
            Err(error) => {
                let mut pos = spool.records.last().map_or(0, |record| record.pos);
                let ended = |delta: Delta| {
                    pos += delta_bytes(&delta, turn);
                    SpoolRecord { pos, delta }
                };
                spool.refused |= !self.store.disk().is_stopped();
                spool.maybe.push(deltas.into_iter().map(ended).collect());
                self.excused(&error);
            }
        }
    }

    /// The turn settles; its spool may be swept.
    async fn close_spool(&mut self, at: usize) {
        let turn = turn(1 + self.dice.below(TURNS));
        let page = &mut self.book.sessions[at];
        self.store.spool_close(page.id, turn).await.unwrap();
        if self.dice.one_in(3) {
            // Every file of this disk is older than that, so all closed spools may go.
            for page in &mut self.book.sessions {
                page.spools.values_mut().for_each(|spool| spool.broken = true);
            }
            if let Err(error) = self.store.sweep(Timestamp::from_ms(2)).await {
                self.excused(&error);
            }
        }
    }

    async fn snapshot(&mut self, at: usize) {
        let page = &self.book.sessions[at];
        let seq = *self.dice.pick(&page.decision_ends);
        if let Err(error) = self.store.snapshot_put(page.id, page.snapshot(seq)).await {
            return self.excused(&error);
        }
        assert_eq!(self.store.snapshot_get(page.id).await.unwrap(), Some(page.snapshot(seq)));
    }

    async fn key(&mut self) {
        let number = self.dice.below(20);
        let length = self.dice.below(300) as usize;
        let key = CreateKey {
            endpoint: "create".into(),
            key: format!("key {number} {}", "k".repeat(length)),
            digest: self.dice.number().to_string(),
            session_id: session(number),
            at: Timestamp::from_ms(START_MS + number),
        };
        let known = self.book.keys.iter().find(|known| known.key == key.key).cloned();
        match self.store.key_put(key.clone()).await {
            Ok(first) => {
                assert_eq!(first, known.clone().unwrap_or(first.clone()), "a key changed its meaning");
                let maybe = self.book.keys_maybe.contains(&first);
                assert!(known.is_some() || first == key || maybe, "a key that nobody put: {first:?}");
                self.book.keys_maybe.retain(|maybe| maybe.key != first.key);
                if known.is_none() {
                    self.book.keys.push(first);
                    self.book.acknowledged += 1;
                }
            }
            Err(error) => {
                if known.is_none() {
                    self.book.keys_maybe.push(key);
                }
                self.excused(&error);
            }
        }
    }

    async fn blob(&mut self, at: usize) {
        let name = self.dice.pick(&["a", "artifacts/turn_1/x", "artifacts/turn_2/x", "attachments/ä.png"]).to_string();
        let bytes = Bytes::from(format!("{} {}", self.dice.number(), "z".repeat(self.dice.below(1500) as usize)));
        let page = &mut self.book.sessions[at];
        let blob = page.blobs.entry(name.clone()).or_default();
        match self.store.blob_put(page.id, &name, bytes.clone()).await {
            Ok(()) => {
                blob.known = Some(bytes);
                blob.maybe.clear();
                self.book.acknowledged += 1;
            }
            Err(error) => {
                blob.maybe.push(bytes);
                self.excused(&error);
            }
        }
    }

    async fn row(&mut self, at: usize) {
        let page = &mut self.book.sessions[at];
        let row = Row {
            id: page.id,
            created_at: page.events[0].ts,
            updated_at: Timestamp::from_ms(START_MS + self.dice.below(1000)),
            status: "active".into(),
            workspace_path: "/tmp/work".into(),
            title: Some(format!("title {}", self.dice.number()).into()),
            last_turn_id: None,
            role: None,
            labels: Box::default(),
            spent: Default::default(),
        };
        if let Err(error) = self.store.row_put(row).await {
            self.excused(&error);
        }
    }

    async fn settle(&mut self, at: usize) {
        let page = &mut self.book.sessions[at];
        page.open = Open::Maybe;
        if let Err(error) = self.store.mark_settled(page.id).await {
            self.excused(&error);
        }
    }

    /// A projection: nothing is promised of it but that it troubles nobody.
    async fn turn_record(&mut self, at: usize) {
        let page = &self.book.sessions[at];
        let record = Bytes::from(format!(r#"{{"n":{}}}"#, self.dice.number()));
        if let Err(error) = self.store.turn_put(page.id, turn(1), record).await {
            self.excused(&error);
        }
    }
}

//! Crashes at every instant: the disk stops after each single change, and what is left is compared with what was acknowledged.

use std::sync::Arc;

use bytes::Bytes;
use tenure_core::{event::Event, time::Timestamp};
use tenure_store::{CreateKey, Error, Fault, FaultyStore, Harm, Point, Reason, Snapshot, SpoolPage, Store};

use crate::sample::*;

mod book;
mod check;
mod dice;
mod life;
mod lives;
mod work;

/// Seeds tried for each instant; a failure names its instant and seed.
const SEEDS: u64 = 12;

/// What a life was told to be done.
#[derive(Default)]
struct Acknowledged {
    decisions: Vec<Vec<Event>>,
    /// The decision whose answer never came.
    under_way: Vec<Event>,
    key: Option<CreateKey>,
    blob: bool,
    settling: bool,
}

fn key() -> CreateKey {
    let (endpoint, key, digest) = ("create".into(), "k".into(), "d".into());
    CreateKey { endpoint, key, digest, session_id: session(1), at: Timestamp::from_ms(START_MS) }
}

/// A small life of one session; ends at the first failure.
async fn live(store: &FaultyStore, done: &mut Acknowledged) -> Result<(), Error> {
    let id = session(1);
    done.key = Some(store.key_put(key()).await?);
    done.under_way = vec![created(id), message(id, 2, "first")];
    let (epoch, mut head) = store.create(id, &done.under_way.clone()).await?;
    done.decisions.push(std::mem::take(&mut done.under_way));
    store.snapshot_put(id, Snapshot { seq: 2, state: r#"{"n":2}"#.into() }).await?;
    for length in [1, 3, 2] {
        done.under_way = messages(id, head.seq + 1, head.seq + length);
        head = store.append(id, epoch, head.seq, &done.under_way.clone()).await?;
        done.decisions.push(std::mem::take(&mut done.under_way));
        store.spool_append(id, turn(1), &[delta(0, "a"), delta(1, "b")]).await?;
        store.snapshot_put(id, Snapshot { seq: head.seq, state: r#"{"n":9}"#.into() }).await?;
    }
    store.blob_put(id, "artifacts/turn/x", Bytes::from_static(b"blob")).await?;
    done.blob = true;
    done.settling = true;
    store.mark_settled(id).await
}

async fn check(store: &FaultyStore, done: &Acknowledged) {
    let id = session(1);
    let acknowledged: Vec<Event> = done.decisions.concat();
    match store.head(id).await {
        Err(Error::NoSession(_)) => assert!(acknowledged.is_empty()),
        head => {
            let found = read_all(store, id).await;
            assert_eq!(head.unwrap().seq, found.len() as u64);
            let with_last = [&acknowledged[..], &done.under_way].concat();
            assert!(found == acknowledged || found == with_last, "{} events", found.len());
        }
    }
    // One that was only made has nothing to come back to.
    if done.decisions.len() > 1 && !done.settling {
        assert_eq!(store.open_sessions().await.unwrap(), [id]);
    }
    if done.key.is_some() {
        assert_eq!(store.key_get("create", "k", Timestamp::from_ms(START_MS)).await.unwrap(), done.key);
    }
    if done.blob {
        assert_eq!(store.blob_get(id, "artifacts/turn/x").await.unwrap().as_deref(), Some(&b"blob"[..]));
    }
    goes_on(store).await;
}

/// Whatever happened, the session can be made or written again, and its snapshot fits or is not there.
async fn goes_on(store: &FaultyStore) {
    let id = session(1);
    let Ok(head) = store.head(id).await else {
        store.create(id, &[created(id)]).await.unwrap();
        return;
    };
    let snapshot = store.snapshot_get(id).await.unwrap();
    assert!(snapshot.is_none_or(|snapshot| snapshot.seq <= head.seq));
    let epoch = store.claim(id).await.unwrap();
    let next = messages(id, head.seq + 1, head.seq + 2);
    store.append(id, epoch, head.seq, &next).await.unwrap();
    assert_eq!(read_all(store, id).await[usize::try_from(head.seq).unwrap()..], next);
}

async fn instants() -> u64 {
    let store = FaultyStore::new();
    let before = store.changes();
    live(&store, &mut Acknowledged::default()).await.unwrap();
    store.changes() - before
}

async fn stopped(instant: u64) -> (Arc<FaultyStore>, Acknowledged) {
    let store = FaultyStore::new();
    store.stop_after(instant);
    let mut done = Acknowledged::default();
    let _ = live(&store, &mut done).await;
    (store, done)
}

#[tokio::test]
async fn a_power_cut_at_any_instant_takes_back_nothing_acknowledged() {
    for instant in 0..=instants().await {
        for seed in 0..SEEDS {
            eprintln!("instant {instant}, seed {seed}");
            let (store, done) = stopped(instant).await;
            check(&store.after_power_cut(seed).unwrap(), &done).await;
        }
    }
}

#[tokio::test]
async fn a_kill_at_any_instant_takes_back_nothing_acknowledged() {
    for instant in 0..=instants().await {
        eprintln!("instant {instant}");
        let (store, done) = stopped(instant).await;
        check(&store.after_kill().unwrap(), &done).await;
    }
}

/// What a killed daemon wrote without syncing is safe before the next one shows it.
#[tokio::test]
async fn what_is_read_after_a_kill_survives_a_power_cut() {
    let id = session(1);
    for instant in 0..=instants().await {
        let (store, _) = stopped(instant).await;
        let killed = store.after_kill().unwrap();
        if killed.head(id).await.is_err() {
            continue;
        }
        let shown = read_all(&*killed, id).await;
        // Settling before anybody looks must not lose it either.
        let settled = store.after_kill().unwrap();
        settled.mark_settled(id).await.unwrap();
        for seed in 0..SEEDS {
            eprintln!("instant {instant}, seed {seed}");
            assert_eq!(read_all(&*killed.after_power_cut(seed).unwrap(), id).await, shown);
            let again = settled.after_kill().unwrap();
            assert_eq!(read_all(&*again, id).await, shown);
            assert_eq!(read_all(&*again.after_power_cut(seed).unwrap(), id).await, shown);
        }
    }
}

#[tokio::test]
async fn a_failed_append_is_never_seen_and_can_be_done_again() {
    let id = session(1);
    for point in [Point::LogWrite, Point::LogSync] {
        for harm in [Harm::Nothing, Harm::Half, Harm::All] {
            for reason in [Reason::NoSpace, Reason::Io] {
                let store = FaultyStore::new();
                let (epoch, head) = store.create(id, &[created(id)]).await.unwrap();
                let next = messages(id, 2, 4);
                let tail = store.tail(id);
                store.plan(Fault { reason, ..Fault::next(point).with(harm) });
                let refused = store.append(id, epoch, 1, &next).await;
                assert!(matches!(refused, Err(Error::Disk { .. })), "{refused:?}");
                assert!(!tail.has_changed().unwrap());
                assert_eq!(store.head(id).await.unwrap(), head);
                assert_eq!(read_all(&*store, id).await, [created(id)]);
                for seed in 0..SEEDS {
                    assert_eq!(read_all(&*store.after_power_cut(seed).unwrap(), id).await, [created(id)]);
                }
                store.append(id, epoch, 1, &next).await.unwrap();
                assert!(tail.has_changed().unwrap());
                let all = [&[created(id)], &next[..]].concat();
                assert_eq!(read_all(&*store, id).await, all);
                for seed in 0..SEEDS {
                    assert_eq!(read_all(&*store.after_power_cut(seed).unwrap(), id).await, all);
                }
            }
        }
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_cut_back_stays_closed_until_it_can() {
    let id = session(1);
    let store = FaultyStore::new();
    let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
    let next = messages(id, 2, 3);
    store.plan(Fault::next(Point::LogSync).with(Harm::Nothing));
    store.plan(Fault::next(Point::LogCut).times(3));
    for _ in 0..3 {
        assert!(matches!(store.append(id, epoch, 1, &next).await, Err(Error::Disk { .. })));
        assert_eq!(read_all(&*store, id).await, [created(id)]);
    }
    assert!(!store.notices().is_empty());
    store.append(id, epoch, 1, &next).await.unwrap();
    for seed in 0..SEEDS {
        let left = store.after_power_cut(seed).unwrap();
        assert_eq!(read_all(&*left, id).await, [&[created(id)], &next[..]].concat());
    }
}

/// Without its mark a log is taken for synced, so a settled one has nothing behind its end.
#[tokio::test]
async fn a_session_settles_only_when_its_log_is_cut_back() {
    let id = session(1);
    for cut_fails in [1, 2] {
        let store = FaultyStore::new();
        let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
        store.plan(Fault::next(Point::LogSync));
        store.plan(Fault::next(Point::LogCut).times(cut_fails));
        assert!(store.append(id, epoch, 1, &messages(id, 2, 3)).await.is_err());
        let settled = store.mark_settled(id).await;
        assert_eq!(settled.is_ok(), cut_fails == 1, "{settled:?}");
        assert_eq!(store.open_sessions().await.unwrap().is_empty(), settled.is_ok());
        let killed = store.after_kill().unwrap();
        let shown = read_all(&*killed, id).await;
        assert!(settled.is_err() || shown == [created(id)], "a refused decision is shown");
        for seed in 0..SEEDS {
            assert_eq!(read_all(&*killed.after_power_cut(seed).unwrap(), id).await, shown, "seed {seed}");
        }
    }
}

#[tokio::test]
async fn a_create_that_fails_leaves_no_session_and_can_be_done_again() {
    let id = session(1);
    for point in [Point::LogWrite, Point::LogSync, Point::FolderSync] {
        for after in 0..3 {
            let store = FaultyStore::new();
            // The first life's own syncs are done with another session.
            store.create(session(2), &[created(session(2))]).await.unwrap();
            store.plan(Fault::next(point).with(Harm::Half).after(after));
            let first = store.create(id, &[created(id), message(id, 2, "x")]).await;
            if first.is_err() {
                assert!(matches!(store.head(id).await, Err(Error::NoSession(_))));
                assert!(matches!(store.claim(id).await, Err(Error::NoSession(_))));
                let (_, head) = store.create(id, &[created(id)]).await.unwrap();
                assert_eq!(head.seq, 1);
            }
            for seed in 0..SEEDS {
                let found = read_all(&*store.after_power_cut(seed).unwrap(), id).await;
                assert_eq!(found.len(), if first.is_ok() { 2 } else { 1 });
            }
        }
    }
}

#[tokio::test]
async fn a_failed_spool_write_is_cut_back() {
    let (id, turn) = (session(1), turn(1));
    for harm in [Harm::Nothing, Harm::Half, Harm::All] {
        let store = FaultyStore::new();
        store.create(id, &[created(id)]).await.unwrap();
        let first = store.spool_append(id, turn, &[delta(0, "a")]).await.unwrap();
        store.plan(Fault::next(Point::SpoolWrite).with(harm));
        store.plan(Fault::next(Point::SpoolCut));
        let more = [delta(1, "b"), delta(2, "c"), delta(3, "d")];
        assert!(matches!(store.spool_append(id, turn, &more).await, Err(Error::Disk { .. })));
        assert_eq!(store.spool_read(id, turn, first[0], 1000).await.unwrap(), SpoolPage::Records(vec![]));
        let ends = store.spool_append(id, turn, &more[..1]).await.unwrap();
        let SpoolPage::Records(records) = store.spool_read(id, turn, 0, 1000).await.unwrap() else { panic!() };
        assert_eq!(records.iter().map(|record| record.pos).collect::<Vec<_>>(), [first, ends].concat());
        assert_eq!(records[1].delta, more[0]);
    }
}

#[tokio::test]
async fn the_epoch_of_an_earlier_life_is_refused() {
    let id = session(1);
    let store = FaultyStore::new();
    let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
    let refused = store.after_kill().unwrap().append(id, epoch, 1, &[message(id, 2, "x")]).await;
    assert!(matches!(refused, Err(Error::Fenced { ours: 1, theirs: 2 })), "{refused:?}");
}

/// A sync that failed is not made good by one that succeeds: the operating system takes the bytes for written.
#[tokio::test]
async fn what_is_read_after_a_failed_sync_survives_a_power_cut() {
    let id = session(1);
    for instant in 0..=instants().await {
        let (store, _) = stopped(instant).await;
        let killed = store.after_kill().unwrap();
        for point in [Point::LogSync, Point::Other] {
            killed.plan(Fault::next(point).with(Harm::Half).times(2));
        }
        let (mut shown, mut found) = (Err(Error::NoSession(id)), None);
        for _ in 0..5 {
            shown = killed.head(id).await;
            found = killed.key_get("create", "k", Timestamp::from_ms(START_MS)).await.unwrap_or(found);
        }
        let Ok(head) = shown else { continue };
        for seed in 0..SEEDS {
            let left = killed.after_power_cut(seed).unwrap();
            assert_eq!(left.head(id).await.unwrap(), head, "instant {instant}, seed {seed}");
            assert_eq!(left.key_get("create", "k", Timestamp::from_ms(START_MS)).await.unwrap(), found);
        }
    }
}

/// A life that was killed before its first sync leaves folders whose names are not safe.
#[tokio::test]
async fn folders_of_a_killed_life_are_made_safe_by_the_next() {
    let id = session(1);
    let second = FaultyStore::new().after_kill().unwrap();
    second.create(id, &[created(id)]).await.unwrap();
    for instant in 0..8 {
        let blob = second.after_kill().unwrap();
        blob.stop_after(instant);
        let _ = blob.blob_put(id, "artifacts/turn/x", Bytes::from_static(b"blob")).await;
        let third = blob.after_kill().unwrap();
        third.blob_put(id, "artifacts/turn/x", Bytes::from_static(b"blob")).await.unwrap();
        for seed in 0..SEEDS {
            let left = third.after_power_cut(seed).unwrap();
            assert_eq!(read_all(&*left, id).await, [created(id)], "seed {seed}");
            let found = left.blob_get(id, "artifacts/turn/x").await.unwrap();
            assert_eq!(found.as_deref(), Some(&b"blob"[..]), "instant {instant}, seed {seed}");
        }
    }
}

/// A row must not speak of a session that never came to be, or that a power cut takes back.
#[tokio::test]
async fn only_sessions_that_exist_are_listed() {
    let id = session(1);
    let first = [vec![created(id)], messages(id, 2, 4)].concat();
    for instant in 0..40 {
        let store = FaultyStore::new();
        store.stop_after(instant);
        let _ = store.create(id, &first).await;
        let killed = store.after_kill().unwrap();
        killed.list(None, 10).await.unwrap();
        for seed in 0..SEEDS {
            for left in [store.after_power_cut(seed).unwrap(), killed.after_power_cut(seed).unwrap()] {
                let listed = left.list(None, 10).await.unwrap();
                assert_eq!(listed.len(), usize::from(left.head(id).await.is_ok()), "instant {instant}, seed {seed}");
            }
        }
    }
}

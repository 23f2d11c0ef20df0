//! Bytes that changed on the disk: the session they are in becomes read-only, and no other is touched.

use std::{
    fs,
    path::{Path, PathBuf},
};

use proptest::prelude::*;
use tenure_core::event::Event;
use tenure_store::{Durability, Error, FileStore, Limit, Options, Snapshot, Store};

use crate::sample::*;

fn log_path(folder: &Path, n: u64) -> PathBuf {
    folder.join("sessions").join(session(n).to_string()).join("events.ndjson")
}

/// Two sessions of three decisions: (3 events), (1), (2); gives where each decision ends.
async fn write(folder: &Path) -> [usize; 3] {
    let store = open_unsynced(folder);
    let mut ends = [0; 3];
    for n in [1, 2] {
        let id = session(n);
        let first = [vec![created(id)], messages(id, 2, 3)].concat();
        let (epoch, head) = store.create(id, &first).await.unwrap();
        let second = store.append(id, epoch, 3, &messages(id, 4, 4)).await.unwrap();
        let third = store.append(id, epoch, 4, &messages(id, 5, 6)).await.unwrap();
        ends = [head, second, third].map(|head| head.bytes as usize);
    }
    ends
}

fn all(n: u64) -> Vec<Event> {
    [vec![created(session(n))], messages(session(n), 2, 6)].concat()
}

#[tokio::test]
async fn any_byte_that_changed_is_noticed() {
    let folder = fast_folder();
    let ends = write(folder.path()).await;
    let path = log_path(folder.path(), 1);
    let good = fs::read(&path).unwrap();
    let id = session(1);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).unwrap();
        let store = open_unsynced(folder.path());
        let before = match ends.iter().position(|end| at < *end).unwrap() {
            0 => 0,
            1 => 3,
            _ => 4,
        };
        // Valid lines follow, or one bit makes it whole again: no crash leaves that. Nothing is cut, nothing is written, and
        // all before it can be read.
        assert!(matches!(store.claim(id).await, Err(Error::Damaged { seq, .. }) if seq == before), "byte {at}");
        assert_eq!(store.head(id).await.unwrap().seq, before);
        assert_eq!(read_all(&*store, id).await, all(1)[..before as usize]);
        assert!(fs::read(&path).unwrap() == bad, "byte {at}");
        assert_eq!(store.notices().len(), 1);
        assert_eq!(read_all(&*store, session(2)).await, all(2));
    }
}

/// A last decision of three lines, of which one is long, and bytes in it that one bit makes a line end.
#[tokio::test]
async fn any_bit_of_a_long_last_decision_is_noticed() {
    let folder = fast_folder();
    let id = session(1);
    let long = "J*K\u{8a}".repeat(5000);
    let decision = [message(id, 2, "J first"), message(id, 3, &long), message(id, 4, "J last *")];
    let path = log_path(folder.path(), 1);
    let end = {
        let store = open_unsynced(folder.path());
        let (epoch, head) = store.create(id, &[created(id)]).await.unwrap();
        store.append(id, epoch, 1, &decision).await.unwrap();
        head.bytes as usize
    };
    let good = fs::read(&path).unwrap();
    let line_ends: Vec<usize> = (end..good.len()).filter(|at| good[*at] == b'\n').collect();
    let is_edge = |at: usize| at < end + 60 || line_ends.iter().any(|line_end| at.abs_diff(*line_end) < 60);
    for at in (end..good.len()).filter(|at| is_edge(*at) || at % 211 == 0) {
        let to_line_end = (0..8).find(|bit| good[at] ^ (1 << bit) == b'\n');
        for bit in [Some(at % 8), to_line_end].into_iter().flatten() {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            fs::write(&path, &bad).unwrap();
            let store = open_unsynced(folder.path());
            assert!(matches!(store.claim(id).await, Err(Error::Damaged { seq: 1, .. })), "byte {at}, bit {bit}");
            assert!(fs::read(&path).unwrap() == bad, "byte {at}, bit {bit}");
        }
    }
}

/// A line that stands whole from its first byte to its last is no torn one, however much of it changed.
#[tokio::test]
async fn garbage_within_the_last_line_is_not_cut() {
    let folder = fast_folder();
    write(folder.path()).await;
    let path = log_path(folder.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() - 120;
    bytes[middle..middle + 9].copy_from_slice(b"#garbage#");
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(open_unsynced(folder.path()).claim(session(1)).await, Err(Error::Damaged { seq: 4, .. })));
    assert!(fs::read(&path).unwrap() == bytes);
}

/// More than a bit at the end looks like a write that a crash cut, unless the snapshot knows that it was whole.
#[tokio::test]
async fn an_end_that_the_snapshot_knows_is_not_cut() {
    for (durability, is_damage) in [(Durability::Power, true), (Durability::Process, false)] {
        let folder = fast_folder();
        let ends = write(folder.path()).await;
        let id = session(1);
        open_unsynced(folder.path()).snapshot_put(id, Snapshot { seq: 6, state: "{}".into() }).await.unwrap();
        let path = log_path(folder.path(), 1);
        let good = fs::read(&path).unwrap();
        for bad in [good[..ends[1]].to_vec(), good[..good.len() - 40].to_vec()] {
            fs::write(&path, &bad).unwrap();
            let store = FileStore::open(folder.path(), Options { durability, ..Options::default() }).unwrap();
            let claimed = store.claim(id).await;
            assert_eq!(matches!(claimed, Err(Error::Damaged { seq: 4, .. })), is_damage, "{durability:?} {claimed:?}");
            assert_eq!(read_all(&*store, id).await, all(1)[..4]);
            assert_eq!(fs::read(&path).unwrap() == bad, is_damage || bad.len() == ends[1]);
        }
    }
}

#[tokio::test]
async fn a_damaged_session_refuses_writes_and_the_others_go_on() {
    let folder = fast_folder();
    write(folder.path()).await;
    let path = log_path(folder.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[30] ^= 4;
    fs::write(&path, bytes).unwrap();
    let store = open_unsynced(folder.path());
    let other = store.claim(session(2)).await.unwrap();
    for _ in 0..2 {
        let refused = store.append(session(1), other, 6, &messages(session(1), 7, 7)).await;
        assert!(matches!(refused, Err(Error::Damaged { session: id, seq: 0, .. }) if id == session(1)), "{refused:?}");
    }
    assert!(matches!(store.create(session(1), &[created(session(1))]).await, Err(Error::Exists(_))));
    store.append(session(2), other, 6, &messages(session(2), 7, 8)).await.unwrap();
    let listed: Vec<_> = store.list(None, 10).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(listed, [session(2)]);
}

/// A snapshot lets the opening start behind the damage; reading finds it all the same.
#[tokio::test]
async fn damage_before_a_snapshot_is_found_when_it_is_read() {
    let folder = fast_folder();
    let ends = write(folder.path()).await;
    let id = session(1);
    open_unsynced(folder.path()).snapshot_put(id, Snapshot { seq: 6, state: "{}".into() }).await.unwrap();
    let path = log_path(folder.path(), 1);
    let good = fs::read(&path).unwrap();
    for at in 0..ends[1] {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).unwrap();
        let store = open_unsynced(folder.path());
        let epoch = store.claim(id).await.unwrap();
        // What lies behind it can be read as long as nobody has met it, and is never wrong.
        let last = store.read(id, 5, Limit::default()).await.unwrap();
        assert!(last.iter().all(|event| event.parse().unwrap() == all(1)[5]), "byte {at}");
        let found = read_all(&*store, id).await;
        assert!(found.len() < 4 && found == all(1)[..found.len()], "byte {at}");
        let refused = store.append(id, epoch, 6, &messages(id, 7, 7)).await;
        assert!(matches!(refused, Err(Error::Damaged { .. })), "byte {at}");
        assert!(store.snapshot_get(id).await.unwrap().is_none());
        assert!(fs::read(&path).unwrap() == bad, "byte {at}");
    }
}

#[tokio::test]
async fn a_line_of_another_format_is_not_cut() {
    let folder = fast_folder();
    write(folder.path()).await;
    let path = log_path(folder.path(), 1);
    let text = fs::read_to_string(&path).unwrap().replace("\"v\":1,\"more\":1", "\"v\":2,\"more\":1");
    fs::write(&path, &text).unwrap();
    let store = open_unsynced(folder.path());
    assert!(matches!(store.claim(session(1)).await, Err(Error::Damaged { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
}

/// One thing that may have happened to a log's bytes.
#[derive(Debug, Clone)]
enum Mutation {
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Overwrite(usize, Vec<u8>),
    /// A piece of the log stands there twice.
    Repeat(usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let place = || 0..4000usize;
    let bytes = || proptest::collection::vec(any::<u8>(), 1..80);
    prop_oneof![
        place().prop_map(Mutation::Cut),
        (place(), bytes()).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (place(), 1..400usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (place(), bytes()).prop_map(|(at, bytes)| Mutation::Overwrite(at, bytes)),
        (place(), 1..2000usize).prop_map(|(at, length)| Mutation::Repeat(at, length)),
    ]
}

fn mutated(mut log: Vec<u8>, mutations: &[Mutation]) -> Vec<u8> {
    for mutation in mutations {
        let at = |place: usize| place.min(log.len());
        let (range, bytes) = match mutation {
            Mutation::Cut(from) => (at(*from)..log.len(), vec![]),
            Mutation::Insert(from, bytes) => (at(*from)..at(*from), bytes.clone()),
            Mutation::Remove(from, length) => (at(*from)..at(from + length), vec![]),
            Mutation::Overwrite(from, bytes) => (at(*from)..at(from + bytes.len()), bytes.clone()),
            Mutation::Repeat(from, length) => (at(*from)..at(*from), log[at(*from)..at(from + length)].to_vec()),
        };
        log.splice(range, bytes);
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happened to the bytes: what is read is a part of what was written, in whole decisions, and either the
    /// log can be written again or it was left as it is.
    #[test]
    fn no_change_of_bytes_ever_shows_what_was_not_written(mutations in proptest::collection::vec(mutation(), 1..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(survives(&mutations));
    }
}

async fn survives(mutations: &[Mutation]) {
    let folder = fast_folder();
    write(folder.path()).await;
    let (id, path) = (session(1), log_path(folder.path(), 1));
    let changed = mutated(fs::read(&path).unwrap(), mutations);
    fs::write(&path, &changed).unwrap();
    let store = open_unsynced(folder.path());
    let found = match store.head(id).await {
        Err(Error::NoSession(_)) => vec![],
        _ => read_all(&*store, id).await,
    };
    assert!([0, 3, 4, 6].contains(&found.len()) && found == all(1)[..found.len()]);
    match store.claim(id).await {
        Ok(epoch) => {
            let next = messages(id, found.len() as u64 + 1, found.len() as u64 + 1);
            store.append(id, epoch, found.len() as u64, &next).await.unwrap();
        }
        Err(Error::Damaged { .. }) => assert!(fs::read(&path).unwrap() == changed),
        Err(error) => assert!(matches!(error, Error::NoSession(_)), "{error}"),
    }
    assert_eq!(read_all(&*store, session(2)).await, all(2));
}

//! Sessions that are put in place as a whole: all of one is there or nothing, whatever is cut, and lines come through byte for byte.

use std::sync::Arc;

use bytes::Bytes;
use tenure_core::event::Event;
use tenure_store::{Error, FaultyStore, Limit, LogReader, LogWriter, MemoryStore, Store, StoredEvent};

use crate::sample::*;

/// Seeds tried for each instant.
const SEEDS: u64 = 8;

#[tokio::test]
async fn file() {
    let folder = tempfile::tempdir().unwrap();
    contract(open(folder.path())).await;
}

#[tokio::test]
async fn a_stage_that_is_given_up_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let (id, beside) = (session(110), session(111));
    for id in [id, beside] {
        let mut stage = store.stage(id).await.unwrap();
        stage.append(&[created(id)]).await.unwrap();
        for name in ["artifacts/t/a.txt", "artifacts/t/u/b.txt", "attachments/c.txt"] {
            stage.blob_put(name, Bytes::from_static(b"a")).await.unwrap();
        }
        let path = folder.path().join("sessions").join(id.to_string());
        if id == beside {
            std::fs::write(path.join("artifacts/mine.txt"), "not of this stage").unwrap();
        }
        drop(stage);
        assert_eq!(path.exists(), id == beside);
        assert!(!path.join("artifacts/t").exists() && !path.join("attachments").exists());
    }
}

#[tokio::test]
async fn memory() {
    contract(MemoryStore::new()).await;
}

#[tokio::test]
async fn faulty() {
    contract(FaultyStore::new()).await;
}

async fn contract(store: Arc<dyn Store>) {
    nothing_is_seen_before_the_end(&*store).await;
    what_is_there_stays(&*store).await;
    lines_go_from_one_log_to_another(&*store).await;
    lines_that_do_not_follow_are_no_log(&*store).await;
    blobs_are_listed_by_folder(&*store).await;
}

async fn nothing_is_seen_before_the_end(store: &dyn Store) {
    let id = session(101);
    let mut stage = store.stage(id).await.unwrap();
    stage.append(&[created(id)]).await.unwrap();
    stage.blob_put("artifacts/t/a.txt", Bytes::from_static(b"a")).await.unwrap();
    assert!(matches!(store.head(id).await, Err(Error::NoSession(_))));
    assert!(!store.open_sessions().await.unwrap().contains(&id));
    let head = stage.append(&messages(id, 2, 4)).await.unwrap();
    assert_eq!(head.seq, 4);
    assert_eq!(stage.commit().await.unwrap(), head);
    assert_eq!(store.head(id).await.unwrap(), head);
    assert_eq!(read_all(store, id).await.len(), 4);
    assert_eq!(store.blob_get(id, "artifacts/t/a.txt").await.unwrap().as_deref(), Some(&b"a"[..]));
    assert!(store.open_sessions().await.unwrap().contains(&id));
    let epoch = store.claim(id).await.unwrap();
    store.append(id, epoch, 4, &[message(id, 5, "goes on")]).await.unwrap();

    let dropped = session(102);
    let mut stage = store.stage(dropped).await.unwrap();
    stage.append(&[created(dropped)]).await.unwrap();
    drop(stage);
    assert!(matches!(store.head(dropped).await, Err(Error::NoSession(_))));
    let mut again = store.stage(dropped).await.unwrap();
    again.append(&[created(dropped)]).await.unwrap();
    again.commit().await.unwrap();
    let empty = store.stage(session(103)).await.unwrap();
    assert!(matches!(empty.commit().await, Err(Error::NoLog(_))), "a session begins with an event");
}

async fn what_is_there_stays(store: &dyn Store) {
    let id = session(104);
    store.create(id, &[created(id)]).await.unwrap();
    assert!(matches!(store.stage(id).await.map(drop), Err(Error::Exists(there)) if there == id));
    let late = session(105);
    let mut stage = store.stage(late).await.unwrap();
    stage.append(&[created(late), message(late, 2, "staged")]).await.unwrap();
    store.create(late, &[created(late)]).await.unwrap();
    assert!(matches!(stage.commit().await, Err(Error::Exists(_))));
    assert_eq!(read_all(store, late).await.len(), 1);
}

/// The lines of a session's log.
async fn lines_of(store: &dyn Store, id: tenure_core::ids::SessionId) -> (Vec<u8>, String) {
    let (mut writer, mut lines) = (LogWriter::new(), Vec::new());
    for event in store.read(id, 0, Limit { events: 1000, bytes: 1 << 30 }).await.unwrap() {
        writer.push(&event, &mut lines);
    }
    assert_eq!(writer.bytes(), lines.len() as u64);
    (lines, writer.sum())
}

async fn lines_go_from_one_log_to_another(store: &dyn Store) {
    let id = session(106);
    let (epoch, _) = store.create(id, &[created(id), message(id, 2, "ä")]).await.unwrap();
    store.append(id, epoch, 2, &messages(id, 3, 6)).await.unwrap();
    store.append(id, epoch, 6, &[message(id, 7, "\u{2028}\n")]).await.unwrap();
    let (lines, sum) = lines_of(store, id).await;
    let mut reader = LogReader::new();
    let events = reader.take(&lines).unwrap();
    assert!(reader.is_whole() && reader.sum() == sum && events.len() == 7);
    assert_eq!(events.iter().map(|event| event.more).collect::<Vec<_>>(), [1, 0, 3, 2, 1, 0, 0]);
    // Elsewhere, in pieces that do not fit its decisions.
    let other = MemoryStore::new();
    let mut stage = other.stage(id).await.unwrap();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        stage.append_lines(Bytes::copy_from_slice(line)).await.unwrap();
    }
    stage.commit().await.unwrap();
    assert_eq!(lines_of(&*other, id).await.0, lines);
    assert_eq!(other.head(id).await.unwrap(), store.head(id).await.unwrap());
}

async fn lines_that_do_not_follow_are_no_log(store: &dyn Store) {
    let id = session(107);
    store.create(id, &[created(id), message(id, 2, "two"), message(id, 3, "three")]).await.unwrap();
    let (lines, _) = lines_of(store, id).await;
    let ends: Vec<usize> = lines.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
    let mut flipped = lines.clone();
    flipped[ends[0] + 40] ^= 1;
    let bad: [&[u8]; 6] = [b"", b"\n", b"{}\n", &lines[..ends[2] - 1], &lines[ends[0]..], &flipped];
    for (index, bad) in bad.into_iter().enumerate() {
        let mut stage = store.stage(session(108)).await.unwrap();
        let refused = stage.append_lines(Bytes::copy_from_slice(bad)).await;
        assert!(matches!(refused, Err(Error::NoLog(_))), "{index}");
    }
    let mut cut = store.stage(session(108)).await.unwrap();
    cut.append_lines(Bytes::copy_from_slice(&lines[..ends[1]])).await.unwrap();
    assert!(matches!(cut.commit().await, Err(Error::NoLog(_))), "it ends inside a decision");
    assert!(matches!(store.head(session(108)).await, Err(Error::NoSession(_))));
}

async fn blobs_are_listed_by_folder(store: &dyn Store) {
    let id = session(109);
    assert!(matches!(store.blob_list(id, "artifacts").await, Err(Error::NoSession(_))));
    store.create(id, &[created(id)]).await.unwrap();
    assert_eq!(store.blob_list(id, "artifacts").await.unwrap(), []);
    for name in ["artifacts/t2/b", "artifacts/t1/a", "artifacts/t1/z", "attachments/c"] {
        store.blob_put(id, name, Bytes::copy_from_slice(name.as_bytes())).await.unwrap();
    }
    let listed = store.blob_list(id, "artifacts").await.unwrap();
    let names: Vec<&str> = listed.iter().map(|blob| blob.name.as_str()).collect();
    assert_eq!(names, ["artifacts/t1/a", "artifacts/t1/z", "artifacts/t2/b"]);
    assert!(listed.iter().all(|blob| blob.bytes == blob.name.len() as u64));
    for bad in ["", "..", "/etc", "artifacts/../..", "logs"] {
        assert!(store.blob_list(id, bad).await.is_err(), "{bad:?}");
    }
}

/// A staged session; ends at the first failure.
async fn stage_all(store: &FaultyStore, events: &[Event]) -> Result<(), Error> {
    let id = session(1);
    let mut stage = store.stage(id).await?;
    let (first, rest) = events.split_at(2);
    stage.append(first).await?;
    stage.blob_put("artifacts/t/x", Bytes::from_static(b"blob")).await?;
    stage.append(rest).await?;
    stage.commit().await.map(drop)
}

#[tokio::test]
async fn a_cut_at_any_instant_leaves_all_or_nothing() {
    let id = session(1);
    let events = [vec![created(id)], messages(id, 2, 9)].concat();
    let whole = FaultyStore::new();
    let before = whole.changes();
    stage_all(&whole, &events).await.unwrap();
    let instants = whole.changes() - before;
    assert!(instants > 10);
    for instant in 0..=instants {
        let store = FaultyStore::new();
        store.stop_after(instant);
        let told = stage_all(&store, &events).await.is_ok();
        let left = (0..SEEDS).map(|seed| store.after_power_cut(seed)).chain([store.after_kill()]);
        for (seed, left) in left.enumerate() {
            let left = left.unwrap();
            let found = match left.head(id).await {
                Ok(_) => read_all(&*left, id).await,
                Err(Error::NoSession(_)) => Vec::new(),
                Err(error) => panic!("instant {instant}, seed {seed}: {error}"),
            };
            assert!(found == events || found.is_empty() && !told, "instant {instant}, seed {seed}: {}", found.len());
            if !found.is_empty() {
                let blob = left.blob_get(id, "artifacts/t/x").await.unwrap();
                assert_eq!(blob.as_deref(), Some(&b"blob"[..]), "instant {instant}, seed {seed}");
                assert_eq!(left.open_sessions().await.unwrap(), [id], "instant {instant}, seed {seed}");
            }
            // And it can be tried again.
            if found.is_empty() {
                stage_all(&left, &events).await.unwrap();
                assert_eq!(read_all(&*left, id).await, events, "instant {instant}, seed {seed}");
            }
        }
    }
}

/// What a reader gives is what a writer takes.
#[test]
fn writer_and_reader_agree() {
    let id = session(3);
    let (mut writer, mut lines) = (LogWriter::new(), Vec::new());
    for event in messages(id, 1, 5) {
        let json = Bytes::from(serde_json::to_vec(&event).unwrap());
        writer.push(&StoredEvent { seq: event.seq, json, more: 5 - event.seq }, &mut lines);
    }
    let mut reader = LogReader::new();
    assert_eq!(reader.take(&lines).unwrap().len(), 5);
    assert!(reader.is_whole());
    assert_eq!(reader.sum(), writer.sum());
}

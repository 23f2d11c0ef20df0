//! Deleting a session: all of it is gone or all of it is there, whatever is cut, and its id can be used again.

use std::{fs, sync::Arc};

use bytes::Bytes;
use tenure_store::{Error, Fault, FaultyStore, Harm, MemoryStore, Point, Row, Snapshot, SpoolPage, Store, upkeep};

use crate::sample::*;

/// Seeds tried for each instant.
const SEEDS: u64 = 12;

#[tokio::test]
async fn file() {
    let folder = tempfile::tempdir().unwrap();
    contract(open(folder.path())).await;
    assert_eq!(fs::read_dir(folder.path().join("trash")).unwrap().count(), 0, "nothing is left of it");
    // The listing says the same to the next life.
    let listed: Vec<_> = open(folder.path()).list(None, 10).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(listed, [session(2), session(1)]);
}

#[tokio::test]
async fn memory() {
    contract(MemoryStore::new()).await;
}

#[tokio::test]
async fn faulty() {
    contract(FaultyStore::new()).await;
}

/// A session with a file of every kind.
async fn write(store: &dyn Store, n: u64) {
    let id = session(n);
    let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
    store.append(id, epoch, 1, &messages(id, 2, 4)).await.unwrap();
    store.spool_append(id, turn(n), &[delta(0, "shown")]).await.unwrap();
    store.snapshot_put(id, Snapshot { seq: 4, state: "{}".into() }).await.unwrap();
    store.turn_put(id, turn(n), Bytes::from_static(b"{\"a\":1}")).await.unwrap();
    store.blob_put(id, "artifacts/t/x", Bytes::from_static(b"blob")).await.unwrap();
    store.row_put(row(n, "active")).await.unwrap();
}

async fn contract(store: Arc<dyn Store>) {
    let (id, other) = (session(1), session(2));
    assert!(matches!(store.purge(id).await, Err(Error::NoSession(_))));
    write(&*store, 1).await;
    write(&*store, 2).await;
    let epoch = store.claim(id).await.unwrap();
    store.purge(id).await.unwrap();
    is_gone(&*store).await;
    // A writer that still holds it cannot write where nobody reads.
    assert!(matches!(store.append(id, epoch, 4, &messages(id, 5, 5)).await, Err(Error::NoSession(_))));
    assert!(matches!(store.spool_append(id, turn(1), &[delta(5, "more")]).await, Err(Error::NoSession(_))));
    assert!(matches!(store.blob_put(id, "artifacts/x", Bytes::new()).await, Err(Error::NoSession(_))));
    assert!(matches!(store.purge(id).await, Err(Error::NoSession(_))));
    assert_eq!(read_all(&*store, other).await.len(), 4);
    assert_eq!(store.open_sessions().await.unwrap(), [other]);
    // Another one under the same id has nothing of the first.
    let mut stage = store.stage(id).await.unwrap();
    stage.append(&[created(id), message(id, 2, "again")]).await.unwrap();
    stage.commit().await.unwrap();
    assert_eq!(read_all(&*store, id).await, [created(id), message(id, 2, "again")]);
    assert!(store.snapshot_get(id).await.unwrap().is_none());
    assert!(store.turn_get(id, turn(1)).await.unwrap().is_none());
    assert!(store.blob_list(id, "artifacts").await.unwrap().is_empty());
    let epoch = store.claim(id).await.unwrap();
    store.append(id, epoch, 2, &messages(id, 3, 3)).await.unwrap();
    store.row_put(Row { title: Some("again".into()), ..row(1, "active") }).await.unwrap();
    let titles: Vec<_> = store.list(None, 10).await.unwrap().into_iter().map(|row| (row.id, row.title)).collect();
    assert_eq!(titles, [(other, None), (id, Some("again".into()))]);
}

async fn is_gone(store: &dyn Store) {
    let id = session(1);
    assert!(matches!(store.head(id).await, Err(Error::NoSession(_))));
    assert!(matches!(store.claim(id).await, Err(Error::NoSession(_))));
    assert!(!store.open_sessions().await.unwrap().contains(&id));
    assert!(store.list(None, 10).await.unwrap().iter().all(|row| row.id != id));
    assert_eq!(store.blob_get(id, "artifacts/t/x").await.unwrap(), None);
    assert_eq!(store.spool_read(id, turn(1), 0, 1000).await.unwrap(), SpoolPage::Records(vec![]));
}

async fn is_whole(store: &dyn Store) {
    let id = session(1);
    assert_eq!(read_all(store, id).await, [vec![created(id)], messages(id, 2, 4)].concat());
    assert_eq!(store.blob_get(id, "artifacts/t/x").await.unwrap().as_deref(), Some(&b"blob"[..]));
    assert!(store.open_sessions().await.unwrap().contains(&id), "a start-up still looks at it");
    assert!(store.list(None, 10).await.unwrap().iter().any(|row| row.id == id));
}

#[tokio::test]
async fn a_cut_at_any_instant_leaves_all_or_nothing() {
    let whole = FaultyStore::new();
    write(&*whole, 1).await;
    write(&*whole, 2).await;
    let before = whole.changes();
    whole.purge(session(1)).await.unwrap();
    let instants = whole.changes() - before;
    assert!(instants > 10);
    let (mut kept, mut lost) = (0, 0);
    for instant in 0..=instants {
        let store = FaultyStore::new();
        write(&*store, 1).await;
        write(&*store, 2).await;
        store.stop_after(instant);
        let told = store.purge(session(1)).await.is_ok();
        let left = (0..SEEDS).map(|seed| store.after_power_cut(seed)).chain([store.after_kill()]);
        for (seed, left) in left.enumerate() {
            let left = left.unwrap();
            match left.head(session(1)).await {
                Ok(_) => {
                    assert!(!told, "instant {instant}, seed {seed}: it came back");
                    is_whole(&*left).await;
                    kept += 1;
                }
                Err(_) => {
                    is_gone(&*left).await;
                    let names = left.disk().files();
                    assert!(!names.iter().any(|name| name.starts_with("trash/")), "{instant} {seed}: {names:?}");
                    lost += 1;
                }
            }
            assert_eq!(read_all(&*left, session(2)).await.len(), 4, "instant {instant}, seed {seed}");
            // And it can be tried again, or made anew.
            match left.purge(session(1)).await {
                Ok(()) | Err(Error::NoSession(_)) => {}
                Err(error) => panic!("instant {instant}, seed {seed}: {error}"),
            }
            is_gone(&*left).await;
            write(&*left, 1).await;
            is_whole(&*left).await;
        }
    }
    assert!(kept > 10 && lost > 10, "{kept} {lost}");
}

#[tokio::test]
async fn a_disk_that_refuses_leaves_the_session_as_it_was() {
    for point in [Point::Make, Point::Rename, Point::FolderSync] {
        let store = FaultyStore::new();
        write(&*store, 1).await;
        store.plan(Fault::next(point).with(Harm::Nothing));
        assert!(store.purge(session(1)).await.is_err(), "{point:?}");
        is_whole(&*store).await;
        let epoch = store.claim(session(1)).await.unwrap();
        store.append(session(1), epoch, 4, &messages(session(1), 5, 5)).await.unwrap();
        store.purge(session(1)).await.unwrap();
        is_gone(&*store).await;
    }
}

/// What cannot be deleted now is deleted by the next start.
#[tokio::test]
async fn what_stays_in_the_trash_is_deleted_by_the_next_start() {
    let store = FaultyStore::new();
    write(&*store, 1).await;
    store.plan(Fault::next(Point::Remove).after(2).times(100));
    store.purge(session(1)).await.unwrap();
    is_gone(&*store).await;
    assert!(store.notices().iter().any(|notice| notice.contains("could not be deleted yet")));
    assert!(store.disk().files().iter().any(|name| name.starts_with("trash/")));
    let next = store.after_kill().unwrap();
    assert!(!next.disk().files().iter().any(|name| name.starts_with("trash/")));
    is_gone(&*next).await;
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_in_the_folder_is_not_followed() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(outside.path().join("kept"), "x").unwrap();
    let store = open(folder.path());
    write(&*store, 1).await;
    let beside = folder.path().join("sessions").join(session(1).to_string()).join("artifacts/link");
    std::os::unix::fs::symlink(outside.path(), beside).unwrap();
    store.purge(session(1)).await.unwrap();
    assert!(outside.path().join("kept").exists());
    assert_eq!(fs::read_dir(folder.path().join("trash")).unwrap().count(), 0);
}

/// A kill between the rename and the line in the listing, and another one in the middle of an import of the same id.
#[tokio::test]
async fn a_deletion_that_was_cut_leaves_no_row_for_whoever_comes_next() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    write(&*store, 1).await;
    let row = store.list(None, 9).await.unwrap();
    drop(store);
    assert_eq!(row.len(), 1);
    let name = session(1).to_string();
    fs::create_dir_all(folder.path().join("trash")).unwrap();
    fs::rename(folder.path().join("sessions").join(&name), folder.path().join("trash").join(&name)).unwrap();
    drop(open(folder.path()));
    assert!(!folder.path().join("trash").join(&name).exists());
    fs::create_dir_all(folder.path().join("sessions").join(&name).join("artifacts")).unwrap();
    assert_eq!(open(folder.path()).list(None, 9).await.unwrap(), []);
}

/// A link in the place of the trash leads to what is nothing of ours.
#[tokio::test]
async fn a_link_in_place_of_the_trash_is_not_followed() {
    let folder = fast_folder();
    let elsewhere = fast_folder();
    fs::write(elsewhere.path().join("precious"), "x").unwrap();
    write(&*open_unsynced(folder.path()), 1).await;
    std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("trash")).unwrap();
    let store = open_unsynced(folder.path());
    assert!(store.notices().iter().any(|notice| notice.contains("the trash could not be emptied")));
    let refused = store.purge(session(1)).await;
    assert!(matches!(refused, Err(Error::Disk { .. })), "{refused:?}");
    assert_eq!(read_all(&*store, session(1)).await.len(), 4, "it is all there");
    drop(store);
    let options = upkeep::GcOptions {
        now: tenure_core::time::Timestamp::from_ms(START_MS),
        older_than: std::time::Duration::ZERO,
        sessions_ended_before: None,
    };
    let gc = upkeep::gc(folder.path(), &options, &mut |_, _| {}).unwrap();
    assert!(gc.problems.iter().any(|problem| problem.starts_with("trash: ")), "{gc:?}");
    let found = upkeep::check(folder.path(), &upkeep::CheckOptions::default(), &mut |_, _| {}).unwrap();
    assert!(found.findings.iter().any(|finding| finding.path == "trash"), "{:?}", found.findings);
    let left: Vec<_> = fs::read_dir(elsewhere.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["precious"]);
}

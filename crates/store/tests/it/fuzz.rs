//! The store's readers on files that went wrong: never a panic, never what was not written, never less than what is whole.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tenure_core::{event::Event, time::Timestamp};
use tenure_fuzzkit::target;
use tenure_store::{CreateKey, Error, FileStore, Row, SpoolPage, Store};
use tokio::runtime::Runtime;

use crate::sample::*;

mod reference;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

/// A data folder with one session whose files are the fuzzed ones.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { folder: fast_folder() }
    }

    fn data(&self) -> &Path {
        self.folder.path()
    }

    fn session(&self) -> PathBuf {
        self.data().join("sessions").join(session(1).to_string())
    }

    /// Starts anew with this file in it.
    fn put(&self, path: &Path, content: &[u8]) {
        let _ = fs::remove_dir_all(self.session());
        for folder in [&self.session(), &self.session().join("logs")] {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(path, content).unwrap();
    }

    fn open(&self) -> std::sync::Arc<FileStore> {
        open_unsynced(self.data())
    }

    /// The bytes kept aside.
    fn cut(&self) -> Vec<Vec<u8>> {
        let files = fs::read_dir(self.session()).unwrap().map(|entry| entry.unwrap());
        let cut = files.filter(|file| file.file_name().to_str().unwrap().starts_with("cut-"));
        cut.map(|file| fs::read(file.path()).unwrap()).collect()
    }
}

#[test]
fn log() {
    let (place, runtime) = (Place::new(), runtime());
    target!("log").cases(300).run_with(|input, dice| {
        // A sum that fits lets the bytes before it through to what comes after the sum.
        let content = if dice.one_in(3) { reference::summed_again(input) } else { input.to_vec() };
        runtime.block_on(log_is_read(&place, &content));
    });
}

async fn log_is_read(place: &Place, content: &[u8]) {
    let path = place.session().join("events.ndjson");
    place.put(&path, content);
    let store = place.open();
    let whole = reference::whole_decisions(content);
    let id = session(1);
    let seq = match store.head(id).await {
        Ok(head) => head.seq,
        Err(error) => {
            assert!(matches!(error, Error::NoSession(_)), "{error}");
            0
        }
    };
    assert_eq!(seq, whole.lines.len() as u64, "a valid beginning is lost, or more was taken than is valid");
    let mut found = Vec::new();
    while let Ok(page) = store.read(id, found.len() as u64, tenure_store::Limit { events: 2, bytes: 1 << 20 }).await {
        if page.is_empty() {
            break;
        }
        for stored in page {
            // What it says may be nonsense; reading it must not be one.
            let _ = stored.parse();
            found.push(stored.json.to_vec());
        }
    }
    assert_eq!(found, whole.lines);
    let after = fs::read(&path).unwrap();
    match store.claim(id).await {
        Err(Error::Damaged { .. }) => assert!(after == content, "a damaged log was changed"),
        _ if whole.end == content.len() => assert!(after == content && place.cut().is_empty()),
        _ => {
            assert!(after == content[..whole.end], "the tail is not cut");
            assert!(place.cut() == [&content[whole.end..]], "the tail is not kept");
            assert_eq!(store.notices().len(), 1);
        }
    }
}

#[test]
fn spool() {
    let (place, runtime) = (Place::new(), runtime());
    target!("spool").cases(300).run(|input| runtime.block_on(spool_is_read(&place, input)));
}

async fn spool_is_read(place: &Place, content: &[u8]) {
    let (id, turn) = (session(1), turn(1));
    let path = place.session().join("logs").join(format!("{turn}.log"));
    place.put(&path, content);
    let store = place.open();
    let whole = reference::records(content, turn);
    let SpoolPage::Records(found) = store.spool_read(id, turn, 0, usize::MAX).await.unwrap_or(SpoolPage::Gone) else {
        assert!(whole.is_empty(), "records are lost");
        return;
    };
    let ends: Vec<u64> = found.iter().map(|record| record.pos).collect();
    assert_eq!(ends, whole, "the records up to the first bad one are shown, and no others");
    // From every place in the file, a page is the rest of the same records, or the place is none.
    let some = (0..content.len().min(2000) as u64).step_by(97);
    for pos in some.chain(ends.iter().take(20).flat_map(|end| [end - 1, *end, end + 1])) {
        match store.spool_read(id, turn, pos, 100).await.unwrap() {
            SpoolPage::Gone => assert!(pos != 0 && !ends.contains(&pos) || found.last().is_none_or(|r| r.pos == pos)),
            SpoolPage::Records(page) => {
                let rest: Vec<_> = found.iter().filter(|record| record.pos > pos).cloned().collect();
                let known = ends.contains(&pos) || pos == 0;
                assert!(!known || rest.starts_with(&page), "another record after {pos}");
            }
        }
    }
    let next = delta(7, "next");
    let end = store.spool_append(id, turn, std::slice::from_ref(&next)).await.unwrap()[0];
    let before = end - delta_bytes(&next, turn);
    let SpoolPage::Records(page) = store.spool_read(id, turn, before, 1000).await.unwrap() else { panic!("gone") };
    assert_eq!(page.last().map(|record| (&record.delta, record.pos)), Some((&next, end)));
}

#[test]
fn keys() {
    let (place, runtime) = (Place::new(), runtime());
    target!("keys").cases(300).run(|input| runtime.block_on(keys_are_read(&place, input)));
}

async fn keys_are_read(place: &Place, content: &[u8]) {
    let path = place.data().join("keys.ndjson");
    place.put(&path, content);
    let now = Timestamp::from_ms(START_MS + 1000);
    let expected = reference::fresh_keys(content, now);
    let store = place.open();
    for key in &expected {
        assert_eq!(store.key_get(&key.endpoint, &key.key, now).await.unwrap().as_ref(), Some(key));
    }
    assert_eq!(store.key_get("create", "a key that nobody put", now).await.unwrap(), None);
    let (endpoint, digest) = ("create".to_owned(), "d".to_owned());
    let new = CreateKey { endpoint, key: "new".into(), digest, session_id: session(2), at: now };
    let put = store.key_put(new.clone()).await.unwrap();
    drop(store);
    let store = place.open();
    assert_eq!(store.key_get("create", "new", now).await.unwrap(), Some(put));
    for key in &expected {
        assert_eq!(store.key_get(&key.endpoint, &key.key, now).await.unwrap().as_ref(), Some(key), "lost by a put");
    }
}

#[test]
fn snapshot() {
    let (place, runtime) = (Place::new(), runtime());
    let log = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/log/three-decisions.ndjson")).unwrap();
    target!("snapshot").cases(300).run_with(|input, dice| {
        let content = if dice.one_in(2) { reference::snapshot_summed_again(input) } else { input.to_vec() };
        runtime.block_on(snapshot_is_read(&place, &log, &content));
    });
}

/// A snapshot is a cache: whatever is in it, the log comes back as it is, and can be written.
async fn snapshot_is_read(place: &Place, log: &[u8], content: &[u8]) {
    let id = session(1);
    place.put(&place.session().join("session.json"), content);
    let path = place.session().join("events.ndjson");
    fs::write(&path, log).unwrap();
    let store = place.open();
    let whole = reference::whole_decisions(log).lines.len() as u64;
    let found = store.snapshot_get(id).await.unwrap();
    if reference::is_forged(content, log) {
        // Somebody gave a wrong place a sum that fits. No accident does that, and who can do it can write the log too.
        let _ = store.read(id, 0, tenure_store::Limit::default()).await;
        return;
    }
    assert!(found.as_ref().is_none_or(|found| found.seq <= whole), "a snapshot ahead of the log");
    assert!(found.is_none_or(|found| reference::is_whole_snapshot(content, &found)), "a broken snapshot is believed");
    assert_eq!(store.head(id).await.unwrap().seq, whole);
    let events: Vec<Event> = read_all(&*store, id).await;
    assert_eq!(events.len() as u64, whole);
    let epoch = store.claim(id).await.unwrap();
    store.append(id, epoch, whole, &messages(id, whole + 1, whole + 1)).await.unwrap();
    assert!(fs::read(&path).unwrap().starts_with(log));
}

#[test]
fn listing() {
    let (place, runtime) = (Place::new(), runtime());
    let log = fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/log/three-decisions.ndjson")).unwrap();
    target!("listing").cases(300).run(|input| runtime.block_on(listing_is_read(&place, &log, input)));
}

async fn listing_is_read(place: &Place, log: &[u8], content: &[u8]) {
    place.put(&place.data().join("index.ndjson"), content);
    fs::write(place.session().join("events.ndjson"), log).unwrap();
    let store = place.open();
    let rows = store.list(None, 100).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.id).collect::<Vec<_>>(), [session(1)], "one session, one row");
    let title: String = "t".repeat(300);
    let row = Row { title: Some(title.into()), ..rows[0].clone() };
    store.row_put(row.clone()).await.unwrap();
    let shown = store.list(None, 100).await.unwrap();
    drop(store);
    assert_eq!(place.open().list(None, 100).await.unwrap(), shown, "a row that was put does not come back");
}

#[test]
fn lock() {
    let place = Place::new();
    target!("lock").cases(200).run(|input| {
        place.put(&place.data().join("lock"), input);
        let store = place.open();
        let epoch = runtime().block_on(store.create(session(1), &[created(session(1))])).unwrap().0;
        let before = reference::epoch(input);
        assert!(epoch.0 > before, "epoch {} after {before}", epoch.0);
        drop(store);
    });
}

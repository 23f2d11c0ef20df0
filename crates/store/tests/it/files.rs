//! What only the file store has: the folder, its lock, its caches, and things in it that should not be there.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
};

use bytes::Bytes;
use tenure_core::{event::SessionCompleted, time::Timestamp};
use tenure_store::{CreateKey, Error, FileStore, Limit, Options, Snapshot, SpoolPage, SpoolRecord, Store, SweepReport};

use crate::sample::*;

fn session_path(folder: &Path, n: u64, name: &str) -> PathBuf {
    folder.join("sessions").join(session(n).to_string()).join(name)
}

#[test]
fn a_lock_that_outlives_its_holder_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    drop(open(&data));
    let mut gone = std::process::Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    fs::write(data.join("lock"), format!("{{\"pid\":{},\"epoch\":7}}", gone.id())).unwrap();
    // As a child has it that the dead daemon was just starting.
    let held = fs::File::open(data.join("lock")).unwrap();
    held.lock().unwrap();
    let letting_go = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(200));
        drop(held);
    });
    assert!(FileStore::open(&data, Options::default()).is_ok());
    letting_go.join().unwrap();
}

/// Whatever somebody put in the place of a file or of a folder: nothing outside is read or written, and nobody waits.
#[tokio::test]
async fn links_and_pipes_are_no_files_of_ours() {
    let folder = tempfile::tempdir().unwrap();
    let (data, outside) = (folder.path().join("data"), folder.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("secret.txt"), "secret").unwrap();
    let store = open(&data);
    store.create(session(1), &[created(session(1))]).await.unwrap();
    store.blob_put(session(1), "artifacts/t/own.txt", Bytes::from_static(b"own")).await.unwrap();
    let place = |name: &str| session_path(&data, 1, name);
    std::os::unix::fs::symlink(outside.join("secret.txt"), place("artifacts/t/link.txt")).unwrap();
    std::os::unix::fs::symlink(&outside, place("artifacts/all")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(place("artifacts/t/pipe.txt")).status().unwrap();
    assert!(made.success());
    let read = async {
        for name in ["artifacts/t/link.txt", "artifacts/all/secret.txt", "artifacts/t/pipe.txt", "artifacts/t"] {
            assert_eq!(store.blob_get(session(1), name).await.unwrap(), None, "{name}");
        }
        let listed = store.blob_list(session(1), "artifacts").await.unwrap();
        assert_eq!(listed.iter().map(|blob| blob.name.as_str()).collect::<Vec<_>>(), ["artifacts/t/own.txt"]);
        let written = store.blob_put(session(1), "artifacts/all/new.txt", Bytes::from_static(b"x")).await;
        assert!(written.is_err() && !outside.join("new.txt").exists());
        // Nor is a log, if it is a link or a pipe.
        for (n, kind) in [(2, "link"), (3, "pipe")] {
            fs::create_dir(session_path(&data, n, "")).unwrap();
            let log = session_path(&data, n, "events.ndjson");
            match kind {
                "link" => std::os::unix::fs::symlink(session_path(&data, 1, "events.ndjson"), &log).unwrap(),
                _ => assert!(std::process::Command::new("mkfifo").arg(&log).status().unwrap().success()),
            }
            assert!(store.head(session(n)).await.is_err(), "{kind}");
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), read).await.expect("nobody waits for a pipe");
}

#[tokio::test]
async fn a_second_daemon_is_refused_by_name_and_the_epoch_counts_up() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("a/b");
    let store = open(&data);
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    let (epoch, _) = store.create(session(1), &[created(session(1))]).await.unwrap();
    assert_eq!(epoch.0, 1);
    let refused = FileStore::open(&data, Options::default()).err().unwrap();
    let pid = std::process::id();
    assert!(matches!(refused, Error::Locked { pid: found } if found == pid));
    assert!(refused.to_string().contains(&pid.to_string()));
    drop(store);
    // What a dead one left in the file, whole or torn, does not block, and the epoch goes on from it.
    for (left, epoch) in [("{\"pid\":1,\"epoch\":7}\ngarbage", 8), ("{\"pid\":12345678,\"epoch\":99}", 100), ("", 1)] {
        fs::write(data.join("lock"), left).unwrap();
        assert_eq!(open(&data).claim(session(1)).await.unwrap().0, epoch);
        let text = fs::read_to_string(data.join("lock")).unwrap();
        assert_eq!(text.trim_end_matches([' ', '\n']), format!("{{\"pid\":{pid},\"epoch\":{epoch}}}"));
        // Always the same length, so that length and content cannot come to the disk one without the other.
        assert_eq!((text.len(), text.lines().count()), (64, 1));
    }
}

#[tokio::test]
async fn the_log_is_the_wire_json_with_three_fields_more() {
    let folder = tempfile::tempdir().unwrap();
    let id = session(1);
    let events = [created(id), message(id, 2, "x")];
    open(folder.path()).create(id, &events).await.unwrap();
    let text = fs::read_to_string(session_path(folder.path(), 1, "events.ndjson")).unwrap();
    let mut before = vec![0; 16];
    for (line, (event, more)) in text.lines().zip(events.iter().zip([1, 0])) {
        let json = serde_json::to_string(event).unwrap();
        let covered = format!("{},\"v\":1,\"more\":{more}", &json[..json.len() - 1]);
        let sum = blake3::hash(&[&before, covered.as_bytes()].concat());
        assert_eq!(line, format!("{covered},\"sum\":\"{}\"}}", &sum.to_hex()[..32]));
        before = sum.as_bytes()[..16].to_vec();
    }
}

#[tokio::test]
async fn all_is_there_again_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let id = session(1);
    let key = |digest: &str| CreateKey {
        endpoint: "create".into(),
        key: "k".into(),
        digest: digest.into(),
        session_id: id,
        at: Timestamp::from_ms(START_MS),
    };
    let store = open(folder.path());
    store.key_put(key("d")).await.unwrap();
    let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
    store.append(id, epoch, 1, &messages(id, 2, 6)).await.unwrap();
    store.snapshot_put(id, Snapshot { seq: 6, state: r#"{"x":1}"#.into() }).await.unwrap();
    store.spool_append(id, turn(1), &[delta(0, "a")]).await.unwrap();
    store.turn_put(id, turn(1), "{}".into()).await.unwrap();
    store.blob_put(id, "artifacts/x", "blob".into()).await.unwrap();
    store.row_put(row(1, "active")).await.unwrap();
    drop(store);
    let store = open(folder.path());
    assert_eq!(store.open_sessions().await.unwrap(), [id]);
    assert!(matches!(store.append(id, epoch, 6, &messages(id, 7, 7)).await, Err(Error::Fenced { .. })));
    assert_eq!(read_all(&*store, id).await, [vec![created(id)], messages(id, 2, 6)].concat());
    assert_eq!(store.snapshot_get(id).await.unwrap().unwrap().seq, 6);
    assert_eq!(store.turn_get(id, turn(1)).await.unwrap(), Some("{}".into()));
    assert_eq!(store.blob_get(id, "artifacts/x").await.unwrap(), Some("blob".into()));
    assert_eq!(store.list(None, 9).await.unwrap(), [row(1, "active")]);
    assert_eq!(store.key_put(key("another")).await.unwrap(), key("d"));
    assert_eq!(store.key_get("create", "other", Timestamp::from_ms(START_MS)).await.unwrap(), None);
    assert!(store.notices().is_empty());
}

#[tokio::test]
async fn a_torn_spool_is_read_up_to_its_last_record_and_cut_by_the_next_append() {
    let folder = fast_folder();
    let (id, turn) = (session(1), turn(1));
    let store = open_unsynced(folder.path());
    store.create(id, &[created(id)]).await.unwrap();
    let deltas = [delta(0, "one"), delta(3, "zwö")];
    let ends = store.spool_append(id, turn, &deltas).await.unwrap();
    drop(store);
    let path = session_path(folder.path(), 1, &format!("logs/{turn}.log"));
    let whole = fs::read(&path).unwrap();
    let record = |n: usize| SpoolRecord { pos: ends[n], delta: deltas[n].clone() };
    for cut in 0..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let left = usize::from(cut as u64 >= ends[0]);
        let store = open_unsynced(folder.path());
        let read = async |pos| store.spool_read(id, turn, pos, 1000).await.unwrap();
        assert_eq!(read(0).await, SpoolPage::Records((0..left).map(record).collect()), "cut at {cut}");
        assert_eq!(read(ends[1]).await, SpoolPage::Gone);
        let again = store.spool_append(id, turn, &deltas[left..]).await.unwrap();
        assert_eq!(again, ends[left..]);
        assert!(fs::read(&path).unwrap() == whole, "cut at {cut}");
    }
    // A record that is no record ends what can be read.
    let mut bad = whole.clone();
    bad[ends[0] as usize + 3] = 0;
    fs::write(&path, bad).unwrap();
    let store = open_unsynced(folder.path());
    assert_eq!(store.spool_read(id, turn, 0, 1000).await.unwrap(), SpoolPage::Records(vec![record(0)]));
    assert_eq!(store.spool_read(id, turn, ends[0], 1000).await.unwrap(), SpoolPage::Gone);
}

#[tokio::test]
async fn spools_of_pending_turns_are_not_swept_however_old() {
    let folder = tempfile::tempdir().unwrap();
    let id = session(1);
    let store = open(folder.path());
    store.create(id, &[created(id)]).await.unwrap();
    let end = store.spool_append(id, turn(1), &[delta(0, "waits for an approval")]).await.unwrap()[0];
    drop(store);
    // The next life has no handle open and remembers no closing.
    let store = open(folder.path());
    let far = Timestamp::from_ms(u64::MAX);
    assert_eq!(store.sweep(far).await.unwrap(), SweepReport { spools_deleted: 0 });
    assert_eq!(store.spool_read(id, turn(1), end, 10).await.unwrap(), SpoolPage::Records(vec![]));
    store.mark_settled(id).await.unwrap();
    assert_eq!(store.sweep(Timestamp::from_ms(0)).await.unwrap(), SweepReport { spools_deleted: 0 });
    assert_eq!(store.sweep(far).await.unwrap(), SweepReport { spools_deleted: 1 });
    assert_eq!(store.spool_read(id, turn(1), end, 10).await.unwrap(), SpoolPage::Gone);
}

#[tokio::test]
async fn a_sweep_of_many_sessions_goes_on_where_it_ended() {
    let folder = fast_folder();
    let store = open_unsynced(folder.path());
    for n in 0..2500 {
        let path = session_path(folder.path(), n, "logs");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join(format!("{}.log", turn(n))), "{}\n").unwrap();
    }
    let mut deleted = Vec::new();
    for _ in 0..4 {
        deleted.push(store.sweep(Timestamp::from_ms(u64::MAX)).await.unwrap().spools_deleted);
    }
    assert_eq!(deleted, [1024, 1024, 452, 0]);
}

#[tokio::test]
async fn any_damage_to_a_snapshot_makes_it_as_good_as_missing() {
    let folder = fast_folder();
    let id = session(1);
    let store = open_unsynced(folder.path());
    store.create(id, &[created(id), message(id, 2, "x")]).await.unwrap();
    let snapshot = Snapshot { seq: 2, state: r#"{"title":"ä"}"#.into() };
    store.snapshot_put(id, snapshot.clone()).await.unwrap();
    drop(store);
    let path = session_path(folder.path(), 1, "session.json");
    let good = fs::read(&path).unwrap();
    let parsed: serde_json::Value = serde_json::from_slice(&good).unwrap();
    assert_eq!((&parsed["seq"], &parsed["state"]["title"]), (&2.into(), &"ä".into()));
    for at in 0..good.len() {
        for bad in [[&good[..at], &[good[at] ^ 1], &good[at + 1..]].concat(), good[..at].to_vec()] {
            fs::write(&path, bad).unwrap();
            let store = open_unsynced(folder.path());
            assert_eq!(store.snapshot_get(id).await.unwrap(), None, "byte {at}");
            assert_eq!(store.head(id).await.unwrap().seq, 2);
            assert!(store.notices().is_empty());
        }
    }
    fs::write(&path, &good).unwrap();
    assert_eq!(open_unsynced(folder.path()).snapshot_get(id).await.unwrap(), Some(snapshot));
}

#[tokio::test]
async fn a_snapshot_of_another_log_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for (n, text) in [(1, "one"), (2, "two, and longer")] {
        let id = session(n);
        store.create(id, &[created(id), message(id, 2, text)]).await.unwrap();
        store.snapshot_put(id, Snapshot { seq: 2, state: "{}".into() }).await.unwrap();
    }
    drop(store);
    fs::copy(session_path(folder.path(), 2, "session.json"), session_path(folder.path(), 1, "session.json")).unwrap();
    let store = open(folder.path());
    assert_eq!(store.snapshot_get(session(1)).await.unwrap(), None);
    assert_eq!(read_all(&*store, session(1)).await.len(), 2);
}

#[tokio::test]
async fn a_listing_that_is_deleted_or_damaged_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    for n in 1..=3 {
        store.create(session(n), &[created(session(n))]).await.unwrap();
        store.row_put(row(n, "active")).await.unwrap();
    }
    let epoch = store.claim(session(2)).await.unwrap();
    let end = event(session(2), 2, SessionCompleted { reason: None });
    store.append(session(2), epoch, 1, &[end]).await.unwrap();
    drop(store);
    let index = folder.path().join("index.ndjson");
    let good = fs::read(&index).unwrap();
    fs::remove_file(&index).unwrap();
    let rebuilt = open(folder.path()).list(None, 9).await.unwrap();
    let found: Vec<_> = rebuilt.iter().map(|row| (row.id, &*row.status, row.title.as_deref())).collect();
    let expected = [(3, "active"), (2, "completed"), (1, "active")];
    assert_eq!(found, expected.map(|(n, status)| (session(n), status, Some("A title"))));
    assert_eq!(&*rebuilt[0].workspace_path, "/tmp/work");
    assert_eq!(rebuilt[1].updated_at, Timestamp::from_ms(START_MS + 2));
    // It is on disk again, too.
    assert_eq!(fs::read_to_string(&index).unwrap().lines().count(), 3);
    // Lines that are no rows are passed over, rows of sessions that are gone as well.
    let gone = serde_json::json!({
        "id": session(9), "updated_at": Timestamp::from_ms(9), "status": "active", "workspace_path": "/work",
    });
    let gone = gone.to_string();
    fs::write(&index, [&good[..], b"\0\0\n{}\n", gone.as_bytes(), b"\n", &good[..20]].concat()).unwrap();
    let store = open(folder.path());
    assert_eq!(store.list(None, 9).await.unwrap(), [row(3, "active"), row(2, "active"), row(1, "active")]);
    store.row_put(row(1, "failed")).await.unwrap();
    drop(store);
    assert_eq!(open(folder.path()).list(None, 9).await.unwrap()[2], row(1, "failed"));
}

#[tokio::test]
async fn the_listing_and_the_keys_do_not_grow_without_end() {
    let folder = fast_folder();
    let store = open_unsynced(folder.path());
    store.create(session(1), &[created(session(1))]).await.unwrap();
    for n in 0..3000 {
        store.row_put(row(1, if n % 2 == 0 { "active" } else { "waiting_approval" })).await.unwrap();
    }
    let lines = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap().lines().count();
    assert!(lines("index.ndjson") < 1100, "{}", lines("index.ndjson"));
    let day_ms = 24 * 60 * 60 * 1000;
    let is_first = async |store: &FileStore, n: u64, at: u64| {
        let (endpoint, digest) = ("create".to_owned(), String::new());
        let at = Timestamp::from_ms(at);
        let key = CreateKey { endpoint, key: n.to_string(), digest, session_id: session(1), at };
        store.key_put(key.clone()).await.unwrap() == key
    };
    for n in 0..200 {
        assert!(is_first(&store, n, START_MS).await);
    }
    drop(store);
    let mut keys = fs::OpenOptions::new().append(true).open(folder.path().join("keys.ndjson")).unwrap();
    keys.write_all(b"{\"endpoint\":\"torn").unwrap();
    let store = open_unsynced(folder.path());
    assert!(is_first(&store, 7, START_MS + day_ms).await);
    assert_eq!(lines("keys.ndjson"), 1);
    drop(store);
    assert!(!is_first(&open_unsynced(folder.path()), 7, START_MS + day_ms + 1).await);
}

#[tokio::test]
async fn strange_things_in_the_folder_stop_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let sessions = folder.path().join("sessions");
    let store = open(folder.path());
    store.create(session(1), &[created(session(1))]).await.unwrap();
    drop(store);
    // A folder where a log should be, names that are no text, files where folders should be, empty sessions.
    fs::create_dir_all(session_path(folder.path(), 2, "events.ndjson")).unwrap();
    fs::create_dir(sessions.join(OsStr::from_bytes(b"sess_\xff"))).unwrap();
    fs::write(folder.path().join("open").join(OsStr::from_bytes(b"\xfe")), "").unwrap();
    fs::write(folder.path().join("open/README"), "").unwrap();
    fs::write(sessions.join(session(3).to_string()), "a file").unwrap();
    fs::create_dir(sessions.join(session(4).to_string())).unwrap();
    fs::create_dir_all(session_path(folder.path(), 5, "logs").join("x.log")).unwrap();
    fs::create_dir_all(session_path(folder.path(), 5, "session.json")).unwrap();
    for n in 2..=5 {
        fs::write(folder.path().join("open").join(session(n).to_string()), "").unwrap();
    }
    let store = open(folder.path());
    let open_ones = store.open_sessions().await.unwrap();
    assert!(open_ones.contains(&session(1)) && !open_ones.contains(&session(4)));
    assert!(matches!(store.head(session(2)).await, Err(Error::Disk { .. })));
    assert!(matches!(store.create(session(2), &[created(session(2))]).await, Err(Error::Disk { .. })));
    assert!(matches!(store.head(session(3)).await, Err(Error::NoSession(_))));
    assert!(store.create(session(3), &[created(session(3))]).await.is_err());
    assert!(matches!(store.read(session(4), 0, Limit::default()).await, Err(Error::NoSession(_))));
    store.create(session(4), &[created(session(4))]).await.unwrap();
    store.create(session(5), &[created(session(5))]).await.unwrap();
    assert_eq!(store.snapshot_get(session(5)).await.unwrap(), None);
    let listed: Vec<_> = store.list(None, 9).await.unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(listed, [session(5), session(4), session(1)]);
    store.sweep(Timestamp::from_ms(u64::MAX)).await.unwrap();
    store.blob_put(session(1), "artifacts/x", Bytes::new()).await.unwrap();
    assert_eq!(read_all(&*store, session(1)).await, [created(session(1))]);
}

#[tokio::test]
async fn a_day_has_room_for_so_many_keys_and_the_next_day_for_as_many() {
    const LIMIT: usize = 200_000;
    let folder = tempfile::tempdir().unwrap();
    let key = |name: String, at: u64| CreateKey {
        endpoint: "create".into(),
        key: name,
        digest: "d".into(),
        session_id: session(1),
        at: Timestamp::from_ms(START_MS + at),
    };
    let lines = (1..LIMIT).map(|n| serde_json::to_string(&key(format!("k{n}"), 0)).unwrap() + "\n");
    fs::write(folder.path().join("keys.ndjson"), lines.collect::<String>()).unwrap();
    let store = open(folder.path());
    let last = key("last".into(), 1);
    assert_eq!(store.key_put(last.clone()).await.unwrap(), last);
    let refused = store.key_put(key("more".into(), 1)).await;
    assert!(matches!(refused, Err(Error::KeysFull { limit: LIMIT })), "{refused:?}");
    // One that is known is no new one.
    assert_eq!(store.key_put(last.clone()).await.unwrap(), last);
    let day = 24 * 60 * 60 * 1000;
    let next = key("more".into(), day);
    assert_eq!(store.key_put(next.clone()).await.unwrap(), next);
    // It was written anew without the old ones.
    assert!(fs::metadata(folder.path().join("keys.ndjson")).unwrap().len() < 1000);
}

/// What could not be read again is not taken: the limit of a line is exact, wherever the line lies.
#[tokio::test]
async fn a_key_that_is_too_long_is_refused_and_the_longest_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let key = |letter: &str, length: usize| CreateKey {
        endpoint: "create".into(),
        key: letter.repeat(length),
        digest: "d".into(),
        session_id: session(1),
        at: Timestamp::from_ms(START_MS),
    };
    let sum = r#","sum":"0123456789abcdef""#.len();
    let room = (64 << 10) - serde_json::to_vec(&key("k", 0)).unwrap().len() - sum;
    let store = open(folder.path());
    for letter in ["a", "b", "c"] {
        assert!(matches!(store.key_put(key(letter, room + 1)).await, Err(Error::Disk { .. })));
        store.key_put(key(letter, room)).await.unwrap();
    }
    drop(store);
    let store = open(folder.path());
    for letter in ["a", "b", "c"] {
        let found = store.key_get("create", &letter.repeat(room), Timestamp::from_ms(START_MS)).await.unwrap();
        assert_eq!(found, Some(key(letter, room)));
    }
}

/// What is written to a log that has no name any more would be answered and lost.
#[tokio::test]
async fn a_session_whose_folder_was_removed_takes_nothing() {
    let folder = fast_folder();
    let store = open_unsynced(folder.path());
    let id = session(1);
    let (epoch, head) = store.create(id, &[created(id)]).await.unwrap();
    let path = folder.path().join("sessions").join(id.to_string());
    let backup = fs::read(path.join("events.ndjson")).unwrap();
    fs::remove_dir_all(&path).unwrap();
    for _ in 0..2 {
        let refused = store.append(id, epoch, head.seq, &messages(id, 2, 2)).await;
        assert!(matches!(refused, Err(Error::NoSession(_))), "{refused:?}");
    }
    let told = format!("the log of {id} was removed or moved while it was in use: the session is gone");
    assert_eq!(store.notices(), [told]);
    assert!(matches!(store.head(id).await, Err(Error::NoSession(_))));
    // What is put back from a backup goes on.
    fs::create_dir(&path).unwrap();
    fs::write(path.join("events.ndjson"), backup).unwrap();
    store.append(id, epoch, head.seq, &messages(id, 2, 2)).await.unwrap();
    assert_eq!(read_all(&*store, id).await.len(), 2);
}

/// A folder that was moved takes what is written with it, to where nobody looks.
#[tokio::test]
async fn a_session_whose_folder_was_moved_takes_nothing_and_is_not_listed() {
    let folder = fast_folder();
    let store = open_unsynced(folder.path());
    let id = session(1);
    let (epoch, head) = store.create(id, &[created(id)]).await.unwrap();
    store.row_put(row(1, "active")).await.unwrap();
    let (place, elsewhere) = (session_path(folder.path(), 1, ""), folder.path().join("elsewhere"));
    fs::rename(&place, &elsewhere).unwrap();
    let refused = store.append(id, epoch, head.seq, &messages(id, 2, 2)).await;
    assert!(matches!(refused, Err(Error::NoSession(_))), "{refused:?}");
    assert_eq!(store.list(None, 9).await.unwrap(), []);
    assert!(store.has_row(id).await.unwrap(), "it is known to have been there");
    // Another folder in its place is another one.
    fs::create_dir(&place).unwrap();
    fs::copy(elsewhere.join("events.ndjson"), place.join("events.ndjson")).unwrap();
    assert_eq!(store.head(id).await.unwrap().seq, read_all(&*store, id).await.len() as u64);
}

/// What the listing knows of a session that is gone outlives a life, and the file's being written anew.
#[tokio::test]
async fn a_session_that_is_gone_is_still_known() {
    let folder = fast_folder();
    let store = open_unsynced(folder.path());
    for n in 1..=3 {
        store.create(session(n), &[created(session(n))]).await.unwrap();
        store.row_put(row(n, "active")).await.unwrap();
    }
    store.purge(session(3)).await.unwrap();
    drop(store);
    fs::remove_dir_all(session_path(folder.path(), 1, "")).unwrap();
    let store = open_unsynced(folder.path());
    assert!(store.has_row(session(1)).await.unwrap());
    assert!(!store.has_row(session(3)).await.unwrap(), "it was deleted");
    for n in 0..3000 {
        store.row_put(row(2, if n % 2 == 0 { "active" } else { "waiting_approval" })).await.unwrap();
    }
    let lines = fs::read_to_string(folder.path().join("index.ndjson")).unwrap().lines().count();
    assert!(lines < 1100, "{lines}");
    drop(store);
    let store = open_unsynced(folder.path());
    assert!(store.has_row(session(1)).await.unwrap());
    assert_eq!(store.list(None, 9).await.unwrap(), [row(2, "waiting_approval")]);
}

//! The file of the keys: what the disk changes in it is mended or kept, and what somebody takes away is made again.

use std::{fs, path::PathBuf};

use tempfile::TempDir;
use tenure_core::time::Timestamp;
use tenure_store::{
    Asked, CreateKey, Error, FileStore, Store,
    upkeep::{self, CheckOptions},
};

use crate::sample::*;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

fn key(name: &str, at: u64) -> CreateKey {
    CreateKey {
        endpoint: "create".into(),
        key: name.into(),
        digest: "d".repeat(16),
        session_id: session(at + 1),
        at: Timestamp::from_ms(START_MS + at),
    }
}

/// The first key of this name, whoever asks again later.
async fn first(store: &FileStore, name: &str, later: u64) -> CreateKey {
    store.key_put(key(name, later)).await.unwrap()
}

/// A folder with three keys, and the path and the bytes of their file.
async fn written() -> (TempDir, PathBuf, Vec<u8>) {
    let folder = fast_folder();
    let store = open_unsynced(folder.path());
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(first(&store, name, at as u64).await, key(name, at as u64));
    }
    drop(store);
    let path = folder.path().join("keys.ndjson");
    let bytes = fs::read(&path).unwrap();
    (folder, path, bytes)
}

fn is_clean(folder: &TempDir) -> bool {
    upkeep::check(folder.path(), &CheckOptions::default(), &mut |_, _| {}).unwrap().is_clean()
}

#[tokio::test]
async fn one_turned_bit_anywhere_is_mended_by_the_next_start() {
    let (folder, path, good) = written().await;
    let mut bits: Vec<usize> = (0..good.len() * 8).step_by(37).collect();
    let line_ends = good.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    bits.extend(line_ends.flat_map(|(at, _)| at * 8..at * 8 + 8));
    for bit in bits {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        fs::write(&path, bad).unwrap();
        let store = open_unsynced(folder.path());
        for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
            assert_eq!(first(&store, name, 9).await, key(name, at as u64), "bit {bit}");
        }
        assert!(store.notices().iter().any(|notice| notice.contains("mended")), "bit {bit}");
        assert!(fs::read(&path).unwrap() == good, "bit {bit}");
    }
}

/// What nothing mends is for a repair, which keeps it beside: no start and no writing anew takes it away.
#[tokio::test]
async fn a_line_that_nothing_mends_stays() {
    let (folder, path, good) = written().await;
    let mut bad = good.clone();
    let at = good.iter().position(|byte| *byte == b'\n').unwrap() + 40;
    bad[at..at + 9].copy_from_slice(b"#garbage#");
    let old: Vec<u8> = (0..200)
        .flat_map(|n| {
            let mut line = serde_json::to_vec(&key(&format!("old{n}"), 0)).unwrap();
            line.push(b'\n');
            line
        })
        .collect();
    let yesterday = String::from_utf8(old).unwrap();
    let long_ago = Timestamp::from_ms(START_MS - 2 * DAY_MS).to_string();
    let yesterday = yesterday.replace(&Timestamp::from_ms(START_MS).to_string(), &long_ago);
    fs::write(&path, [yesterday.as_bytes(), &bad].concat()).unwrap();
    let store = open_unsynced(folder.path());
    assert_eq!(first(&store, "a", 9).await, key("a", 0));
    assert_eq!(first(&store, "c", 9).await, key("c", 2));
    first(&store, "new", 9).await;
    drop(store);
    let now = fs::read(&path).unwrap();
    assert!(now.len() < bad.len() + 300, "it was written anew");
    assert!(now.windows(9).any(|bytes| bytes == b"#garbage#"), "{}", String::from_utf8_lossy(&now));
    assert!(!is_clean(&folder));
    let store = open_unsynced(folder.path());
    assert_eq!(first(&store, "new", 10).await, key("new", 9));
}

/// What a crash left of a line is cut, as in a log, and kept aside.
#[tokio::test]
async fn a_torn_end_is_kept_aside() {
    let (folder, path, good) = written().await;
    fs::write(&path, [&good[..], b"{\"endpoint\":\"create\",\"key\":\"to"].concat()).unwrap();
    let store = open_unsynced(folder.path());
    assert_eq!(first(&store, "b", 9).await, key("b", 1));
    assert!(fs::read(&path).unwrap() == good);
    let aside = fs::read_to_string(folder.path().join("damaged-1.keys.ndjson")).unwrap();
    assert_eq!(aside, "{\"endpoint\":\"create\",\"key\":\"to");
    assert!(store.notices().iter().any(|notice| notice.contains("kept in")));
    assert!(is_clean(&folder));
}

#[tokio::test]
async fn a_line_that_changes_while_it_is_in_use_is_read_all_the_same_or_told_as_a_read() {
    let (folder, path, good) = written().await;
    let store = open_unsynced(folder.path());
    assert_eq!(first(&store, "a", 9).await, key("a", 0));
    let mut bad = good.clone();
    bad[20] ^= 1;
    fs::write(&path, &bad).unwrap();
    assert_eq!(first(&store, "a", 9).await, key("a", 0));
    bad[21..24].copy_from_slice(b"###");
    fs::write(&path, &bad).unwrap();
    let refused = store.key_put(key("a", 9)).await;
    assert!(matches!(refused, Err(Error::Disk { asked: Asked::Read, .. })), "{refused:?}");
}

#[tokio::test]
async fn a_file_that_was_taken_away_is_made_again() {
    let take: [fn(&PathBuf); 2] =
        [|path| fs::remove_file(path).unwrap(), |path| fs::rename(path, path.with_extension("away")).unwrap()];
    for take in take {
        let (folder, path, _) = written().await;
        let store = open_unsynced(folder.path());
        assert_eq!(first(&store, "a", 9).await, key("a", 0));
        take(&path);
        assert_eq!(first(&store, "d", 3).await, key("d", 3));
        assert_eq!(first(&store, "e", 4).await, key("e", 4));
        assert!(store.notices().iter().any(|notice| notice.contains("made again")));
        drop(store);
        let store = open_unsynced(folder.path());
        for (at, name) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            assert_eq!(first(&store, name, 9).await, key(name, at as u64));
        }
        assert!(is_clean(&folder));
    }
}

/// Nothing is answered that the next life would not know, and nothing known is forgotten over it.
#[tokio::test]
async fn a_key_is_refused_where_its_file_cannot_be_made_again() {
    let (folder, path, _) = written().await;
    let store = open_unsynced(folder.path());
    assert_eq!(first(&store, "a", 9).await, key("a", 0));
    let away = path.with_extension("away");
    fs::rename(&path, &away).unwrap();
    fs::create_dir(&path).unwrap();
    for _ in 0..2 {
        assert!(matches!(store.key_put(key("d", 3)).await, Err(Error::Disk { .. })));
    }
    assert_eq!(first(&store, "b", 9).await, key("b", 1));
    fs::remove_dir(&path).unwrap();
    assert_eq!(first(&store, "d", 4).await, key("d", 4));
    assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 4);
}

#[tokio::test]
async fn the_newest_of_the_marks_of_a_deletion_counts() {
    let folder = fast_folder();
    let store = open_unsynced(folder.path());
    let at = |ms: u64| Timestamp::from_ms(START_MS + ms);
    let id = session(1);
    for ms in [0, DAY_MS - 1] {
        store.key_replace(CreateKey::purged(id, at(ms))).await.unwrap();
    }
    drop(store);
    let store = open_unsynced(folder.path());
    let found = async |ms| store.key_get(CreateKey::PURGED, &id.to_string(), at(ms)).await.unwrap();
    assert_eq!(found(DAY_MS + 1).await, Some(CreateKey::purged(id, at(DAY_MS - 1))));
    assert_eq!(found(2 * DAY_MS).await, None);
}

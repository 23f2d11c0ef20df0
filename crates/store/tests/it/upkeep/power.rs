//! A repair that is cut at any instant, by a kill or by the power, leaves a folder that the next repair mends.

use tenure_core::event::{Body, Event};
use tenure_store::{FaultyStore, Remains};

use super::*;

const SEEDS: u64 = 6;

/// A disk with a log that lost an event and has a turned bit, a damaged blob and a damaged key.
async fn rotten() -> Remains {
    let store = FaultyStore::new();
    write_to(&*store).await;
    let disk = store.disk();
    let log = of_session(1, "events.ndjson");
    let text = String::from_utf8(disk.file(&log).unwrap()).unwrap();
    disk.rot(&log, text.replacen("hello", "garbage garbage", 1).replacen("and then", "and tHen", 1).into_bytes());
    for name in [of_session(1, ATTACHMENT), "keys.ndjson".to_owned()] {
        let mut bytes = disk.file(&name).unwrap();
        bytes[40] ^= 8;
        disk.rot(&name, bytes);
    }
    disk.rot(&of_session(1, OLD), b"other".to_vec());
    // All that the daemon did is on the disk: a repair comes long after it.
    drop(store);
    disk.settled()
}

async fn is_mended(disk: &Remains, when: &str) {
    assert!(disk.check().unwrap().is_clean(), "{when}: {:?}", disk.check().unwrap().findings);
    let store = disk.open().unwrap();
    let events = read_all(&*store, session(1)).await;
    let lost: Vec<u64> =
        events.iter().filter(|event| matches!(event.body, Body::EventLost(_))).map(|event| event.seq).collect();
    assert_eq!(lost, [3], "{when}");
    let kept: Vec<&Event> = events.iter().take(8).filter(|event| event.seq != 3).collect();
    let whole = rich(1).concat();
    assert!(kept.into_iter().eq(whole.iter().filter(|event| event.seq != 3)), "{when}");
    assert_eq!(store.blob_get(session(1), ATTACHMENT).await.unwrap().as_deref(), Some(&blob(ATTACHMENT)[..]), "{when}");
    for key in ["key-1", "key-2"] {
        let found = store.key_get("create", key, Timestamp::from_ms(START_MS)).await.unwrap();
        assert!(found.is_some(), "{when}: {key}");
    }
    assert_eq!(read_all(&*store, session(2)).await, rich(2).concat(), "{when}");
}

#[tokio::test]
async fn a_cut_at_any_instant_is_mended_by_the_next_repair() {
    let whole = rotten().await;
    assert!(!whole.check().unwrap().is_clean());
    let before = whole.changes();
    whole.repair().unwrap();
    let instants = whole.changes() - before;
    assert!(instants > 20);
    is_mended(&whole, "in one go").await;
    for instant in 0..instants {
        let disk = rotten().await;
        disk.stop_after(instant);
        assert!(disk.repair().is_err(), "instant {instant}");
        let left = (0..SEEDS).map(|seed| disk.after_power_cut(seed)).chain([disk.after_kill()]);
        for (seed, left) in left.enumerate() {
            left.repair().unwrap();
            is_mended(&left, &format!("instant {instant}, seed {seed}")).await;
        }
    }
}

/// What a repair has told is on the disk.
#[tokio::test]
async fn what_was_repaired_survives_a_power_cut() {
    for seed in 0..30 {
        let disk = rotten().await;
        disk.repair().unwrap();
        let left = disk.after_power_cut(seed);
        // Removals of caches may come back; they are removed again.
        left.repair().unwrap();
        is_mended(&left, &format!("seed {seed}")).await;
    }
}

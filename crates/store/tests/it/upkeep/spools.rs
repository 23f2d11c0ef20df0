//! Deltas of settled turns: what differs from what the turn's record says of them is found, and costs nothing but them.

use tenure_store::SpoolPage;

use super::*;

const COSTS: &str = "only live deltas are lost, the log has the whole text";

fn spool() -> String {
    of_session(1, &format!("logs/{}.log", turn(1)))
}

/// A folder whose spool is changed, and the one finding that this gives.
async fn found_in(folder: &Path, bad: &[u8]) -> String {
    fs::write(folder.join(spool()), bad).unwrap();
    let found = check(folder);
    let [finding] = &found.findings[..] else { panic!("{:?}", found.findings) };
    assert_eq!((finding.path.as_str(), finding.level, finding.remedy), (&*spool(), Level::Damage, Remedy::Repair));
    finding.what.clone()
}

/// A power cut may take any end of a spool, since it is not synced, and leave the record.
#[tokio::test]
async fn a_lost_end_is_told_and_the_spool_removed() {
    let folder = fast_folder();
    write(folder.path()).await;
    let good = fs::read(folder.path().join(spool())).unwrap();
    for left in 0..good.len() {
        let what = found_in(folder.path(), &good[..left]).await;
        assert_eq!(what, format!("its end is lost: it has {left} of {} bytes; {COSTS}", good.len()));
        let done = repair(folder.path());
        let told: Vec<_> = done.actions.iter().map(|action| (action.path.clone(), action.what.clone())).collect();
        assert_eq!(told, [(spool(), format!("removed: {what}"))]);
        assert_eq!(done.left, []);
        assert_eq!(check(folder.path()).findings, [], "a spool that is gone is none");
    }
    let store = open_unsynced(folder.path());
    let end = good.len() as u64;
    assert_eq!(store.spool_read(session(1), turn(1), end, 99).await.unwrap(), SpoolPage::Gone, "a stream is reset");
}

#[tokio::test]
async fn other_bytes_are_told_and_the_spool_removed() {
    let folder = fast_folder();
    write(folder.path()).await;
    let good = fs::read(folder.path().join(spool())).unwrap();
    let other = String::from_utf8(good.clone()).unwrap().replacen("shown", "other", 1).into_bytes();
    for bad in [other, [&good[..], b"x"].concat(), [&good[..], &good[..]].concat()] {
        let what = found_in(folder.path(), &bad).await;
        assert_eq!(what, format!("its bytes are not those that were written; {COSTS}"));
        assert_eq!(repair(folder.path()).left, []);
        assert!(!folder.path().join(spool()).exists());
    }
}

/// Where the log is damaged too, the records that speak of spools go with its repair; the spools are looked at before.
#[tokio::test]
async fn a_spool_is_mended_although_its_record_goes() {
    let folder = fast_folder();
    write(folder.path()).await;
    let [log, spool] = [of_session(1, "events.ndjson"), spool()].map(|name| folder.path().join(name));
    let good = fs::read(&spool).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    fs::write(&spool, bad).unwrap();
    fs::write(&log, fs::read_to_string(&log).unwrap().replacen("hello", "garbage", 1)).unwrap();
    assert_eq!(repair(folder.path()).left, []);
    assert_eq!(fs::read(&spool).unwrap(), good);
}

/// Records of the time before say nothing of spools: only what is no delta any more is found, and cut.
#[tokio::test]
async fn a_record_that_says_nothing_of_its_spool_is_good() {
    let folder = fast_folder();
    write(folder.path()).await;
    let store = open_unsynced(folder.path());
    store.turn_put(session(1), turn(1), Bytes::from_static(b"{\"id\":\"x\",\"status\":\"failed\"}")).await.unwrap();
    drop(store);
    let path = folder.path().join(spool());
    let good = fs::read_to_string(&path).unwrap();
    let second = good.find('\n').unwrap() + 1;
    fs::write(&path, good.replacen("shown", "other", 1)).unwrap();
    assert_eq!(check(folder.path()).findings, []);
    let what = found_in(folder.path(), format!("{}#{}", &good[..second], &good[second + 1..]).as_bytes()).await;
    assert_eq!(what, format!("it is damaged from byte {second} on"));
    assert_eq!(repair(folder.path()).left, []);
    assert_eq!(fs::read_to_string(&path).unwrap(), good[..second]);
}

/// However the spool came to be what it is, its sum is that of its bytes.
#[tokio::test]
async fn the_sum_is_that_of_the_bytes_whoever_wrote_them() {
    let folder = fast_folder();
    let (id, deltas) = (session(1), [delta(0, "one"), delta(3, " two"), delta(7, " three")]);
    let path = folder.path().join(spool());
    let of_file = || {
        let content = fs::read(&path).unwrap();
        serde_json::json!([content.len(), blake3::hash(&content).to_hex()[..16]])
    };
    open_unsynced(folder.path()).create(id, &[created(id)]).await.unwrap();
    for torn in [None, Some(""), Some("{\"torn")] {
        let mut store = open_unsynced(folder.path());
        store.spool_append(id, turn(1), &deltas[..1]).await.unwrap();
        if let Some(torn) = torn {
            drop(store);
            fs::write(&path, fs::read_to_string(&path).unwrap() + torn).unwrap();
            store = open_unsynced(folder.path());
        }
        store.spool_append(id, turn(1), &deltas[1..]).await.unwrap();
        let sum = serde_json::to_value(store.spool_close(id, turn(1)).await.unwrap()).unwrap();
        assert_eq!(sum, of_file(), "{torn:?}");
        let again = serde_json::to_value(store.spool_close(id, turn(1)).await.unwrap()).unwrap();
        assert_eq!(again, sum, "read from the file");
        assert_eq!(store.spool_close(id, turn(2)).await.unwrap(), None);
        fs::remove_file(&path).unwrap();
    }
}

/// A write that failed in the middle is cut, and is in no sum.
#[tokio::test]
async fn the_sum_is_that_of_the_bytes_whatever_the_disk_refused() {
    use tenure_store::{Fault, FaultyStore, Harm, Point};
    for cut_fails in [0, 1, 2] {
        let store = FaultyStore::new();
        let id = session(1);
        store.create(id, &[created(id)]).await.unwrap();
        store.spool_append(id, turn(1), &[delta(0, "one")]).await.unwrap();
        store.plan(Fault::next(Point::SpoolWrite).with(Harm::Half));
        store.plan(Fault::next(Point::SpoolCut).times(cut_fails));
        store.spool_append(id, turn(1), &[delta(3, " two")]).await.unwrap_err();
        let sum = store.spool_close(id, turn(1)).await.unwrap();
        let content = store.disk().file(&spool()).unwrap();
        let of_file = serde_json::json!([content.len(), blake3::hash(&content).to_hex()[..16]]);
        assert_eq!(serde_json::to_value(&sum).unwrap(), of_file, "{cut_fails}");
    }
}

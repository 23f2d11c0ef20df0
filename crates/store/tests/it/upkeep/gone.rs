//! What is gone as a whole: sessions that only the listing knows, turns that only their row knows, files that are none.

use tenure_store::upkeep::Finding;

use super::*;

const LOST: &str =
    "the whole session is gone, and nobody deleted it: restore it from a backup, or let go of it with repair";

fn told(findings: &[Finding]) -> Vec<(&str, &str, Remedy)> {
    let damage = findings.iter().filter(|finding| finding.level == Level::Damage);
    damage.map(|finding| (finding.path.as_str(), finding.what.as_str(), finding.remedy)).collect()
}

#[tokio::test]
async fn a_session_that_only_the_listing_knows_is_damage() {
    let folder = fast_folder();
    write(folder.path()).await;
    let gone = format!("sessions/{}", session(1));
    fs::remove_dir_all(folder.path().join(&gone)).unwrap();
    let mark = folder.path().join("open").join(session(1).to_string());
    fs::write(&mark, "").unwrap();
    let found = check(folder.path());
    assert_eq!(told(&found.findings), [(&*gone, LOST, Remedy::Repair)]);
    let planned = upkeep::plan_repair(folder.path(), now(), &mut |_, _| {}).unwrap();
    assert_eq!(told(&check(folder.path()).findings).len(), 1, "a plan changes nothing");
    let done = repair(folder.path());
    assert_eq!(done, planned);
    let [action] = &done.actions[..] else { panic!("{done:?}") };
    assert_eq!((&*action.path, &*action.what), (&*gone, "the whole session is gone: taken out of the listing"));
    assert!(!mark.exists(), "nothing marks it any more");
    assert_eq!(check(folder.path()).findings, []);
    let store = open_unsynced(folder.path());
    let key = store.key_get(CreateKey::PURGED, &session(1).to_string(), now()).await.unwrap();
    assert_eq!(key, Some(CreateKey::purged(session(1), now())), "its key makes it no more");
    let listed = store.list(None, 9).await.unwrap();
    assert_eq!(listed.iter().map(|row| row.id).collect::<Vec<_>>(), [session(2)]);
}

/// Also where the listing is made again for another reason, it is said first what it knew.
#[tokio::test]
async fn a_lost_session_is_told_before_its_last_trace_goes() {
    let folder = fast_folder();
    write(folder.path()).await;
    fs::remove_dir_all(folder.path().join(of_session(1, ""))).unwrap();
    let log = folder.path().join(of_session(2, "events.ndjson"));
    fs::write(&log, fs::read_to_string(&log).unwrap().replacen("hello", "hallo, hello", 1)).unwrap();
    let done = repair(folder.path());
    assert!(done.actions.iter().any(|action| action.what.starts_with("the whole session is gone")), "{done:?}");
    assert_eq!(done.left, []);
}

/// A deletion is no loss, at whatever instant it is looked at, and whatever stops it.
#[tokio::test]
async fn a_deleted_session_is_not_lost() {
    let count = |disk: &tenure_store::Remains| {
        let found = disk.check().unwrap();
        found.findings.iter().filter(|finding| finding.what == LOST).count()
    };
    for instant in 0.. {
        let store = tenure_store::FaultyStore::new();
        write_to(&*store).await;
        // All that was done up to now is on the disk; the power is cut inside the deletion.
        let disk = store.disk();
        drop(store);
        let disk = disk.settled();
        let store = disk.open().unwrap();
        store.stop_after(instant);
        let purged = store.purge(session(1)).await;
        let whole = store.changes();
        drop(store);
        for left in (0..8).map(|seed| disk.after_power_cut(seed)).chain([disk.after_kill()]) {
            assert_eq!(count(&left), 0, "instant {instant}");
            drop(left.open().unwrap());
            assert_eq!(count(&left), 0, "instant {instant}, after a start");
            let later = left.after_power_cut(instant);
            assert_eq!(count(&later), 0, "instant {instant}, after a start and a power cut");
        }
        if purged.is_ok() && instant > 60 {
            assert!(whole > 10);
            break;
        }
    }
}

/// A listing with a damaged line tells nothing of what is gone: that line may have told of its deletion.
#[tokio::test]
async fn a_damaged_listing_calls_nothing_lost() {
    let folder = fast_folder();
    write(folder.path()).await;
    open_unsynced(folder.path()).purge(session(1)).await.unwrap();
    let path = folder.path().join("index.ndjson");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen("purged", "qurged", 1)).unwrap();
    let found = check(folder.path());
    assert_eq!(told(&found.findings).len(), 1, "{:?}", found.findings);
    assert_eq!(repair(folder.path()).left, []);
    assert_eq!(check(folder.path()).findings, []);
}

/// The log ends cleanly, and neither the snapshot nor a record knows more; the row does.
#[tokio::test]
async fn a_lost_end_is_told_by_the_row() {
    let folder = fast_folder();
    write(folder.path()).await;
    let store = open_unsynced(folder.path());
    let (log, id) = (folder.path().join(of_session(1, "events.ndjson")), session(1));
    let before = fs::read(&log).unwrap();
    let epoch = store.claim(id).await.unwrap();
    let started = TurnStarted { messages: vec![], retry_of: None, model: "scripted".into() };
    let started = Event { turn_id: Some(turn(5)), ..event(id, 9, started) };
    store.append(id, epoch, 8, &[started]).await.unwrap();
    let row = tenure_store::Row { last_turn_id: Some(turn(5)), status: "other".into(), ..row(1, "active") };
    store.row_put(row).await.unwrap();
    drop(store);
    assert!(check(folder.path()).is_clean());
    fs::write(&log, &before).unwrap();
    let what = "its end is lost: it held event 9, and ends after event 8";
    let path = of_session(1, "events.ndjson");
    assert_eq!(told(&check(folder.path()).findings), [(&*path, what, Remedy::Repair)]);
    let done = repair(folder.path());
    assert!(done.actions[0].what.contains("1 event lost"), "{done:?}");
    assert_eq!(done.left, []);
    let events = stored(folder.path(), id).await;
    assert!(matches!(events[8].parse().unwrap().body, Body::EventLost(_)));
    // What the row still says is no news: the log tells of the loss itself.
    assert!(check(folder.path()).is_clean());
}

/// A link, a pipe or a folder in the place of a file that events name.
#[tokio::test]
async fn what_is_no_file_in_the_place_of_a_blob_is_put_aside() {
    let make: [fn(&Path); 3] =
        [pipe, |path| std::os::unix::fs::symlink("/etc/hostname", path).unwrap(), |path| fs::create_dir(path).unwrap()];
    for make in make {
        let folder = fast_folder();
        write(folder.path()).await;
        let name = of_session(1, ATTACHMENT);
        let path = folder.path().join(&name);
        fs::remove_file(&path).unwrap();
        make(&path);
        let found = check(folder.path());
        assert_eq!(told(&found.findings), [(&*name, "it is no plain file", Remedy::Repair)]);
        assert_eq!(found.findings.len(), 1, "{:?}", found.findings);
        let done = repair(folder.path());
        let [action] = &done.actions[..] else { panic!("{done:?}") };
        assert_eq!(action.what, format!("put aside in damaged/{ATTACHMENT}: it is no plain file"));
        assert_eq!(done.left, []);
        assert!(folder.path().join(of_session(1, "damaged")).join(ATTACHMENT).symlink_metadata().is_ok());
        assert!(check(folder.path()).is_clean());
        assert_eq!(repair(folder.path()), Repair::default());
    }
}

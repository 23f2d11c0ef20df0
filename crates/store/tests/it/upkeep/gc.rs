//! What `gc` removes, and what it never touches.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    time::{Duration, SystemTime},
};

use proptest::prelude::*;
use tenure_core::event::{SessionCompleted, SessionUpdated};
use tenure_store::upkeep::{Gc, GcOptions};

use super::*;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn options(older_than: Duration, sessions_ended_before: Option<Duration>) -> GcOptions {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    GcOptions { now: Timestamp::from_ms(now.as_millis() as u64), older_than, sessions_ended_before }
}

fn gc(folder: &Path, options: &GcOptions) -> Gc {
    let planned = upkeep::plan_gc(folder, options, &mut |_, _| {}).unwrap();
    let before = all_files(folder);
    let again = upkeep::plan_gc(folder, options, &mut |_, _| {}).unwrap();
    assert_eq!((all_files(folder), again), (before, planned.clone()), "a plan changes nothing");
    let done = upkeep::gc(folder, options, &mut |_, _| {}).unwrap();
    assert_eq!(done, planned, "what was planned is what is done");
    done
}

fn all_files(folder: &Path) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in fs::read_dir(at).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => waiting.push(entry.path()),
                false => {
                    files.insert(entry.path().strip_prefix(folder).unwrap().to_str().unwrap().to_owned());
                }
            }
        }
    }
    files
}

fn age(path: &Path, age: Duration) {
    File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
}

/// Puts a file in place that has this age.
fn put(folder: &Path, name: &str, old: Duration) {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "0123456789").unwrap();
    age(&path, old);
}

#[tokio::test]
async fn what_nobody_needs_goes_and_nothing_else() {
    let folder = fast_folder();
    write(folder.path()).await;
    let whole = all_files(folder.path());
    let spool = of_session(1, &format!("logs/{}.log", turn(1)));
    age(&folder.path().join(&spool), 40 * DAY);
    let in_root = [".tmp-0".to_owned()];
    put(folder.path(), &in_root[0], 31 * DAY);
    let old = ["attachments/unnamed", "artifacts/t/unnamed.txt", ".tmp-log", "artifacts/t/.tmp-3"]
        .map(|name| of_session(1, name));
    let young = ["attachments/new", "artifacts/t/new.txt", ".tmp-7"].map(|name| of_session(1, name));
    let aside = ["cut-1-0.bin", "damaged-1.ndjson", "damaged/artifacts/x"].map(|name| of_session(1, name));
    old.iter().chain(&aside).for_each(|name| put(folder.path(), name, 31 * DAY));
    young.iter().for_each(|name| put(folder.path(), name, 29 * DAY));
    put(folder.path(), &format!("trash/{}/events.ndjson", session(9)), Duration::ZERO);
    let done = gc(folder.path(), &options(30 * DAY, None));
    let removed: BTreeSet<&str> = done.removed.iter().map(|removed| removed.path.as_str()).collect();
    let trash = format!("trash/{}", session(9));
    let expected: BTreeSet<&str> = old.iter().chain(&in_root).chain([&spool, &trash]).map(String::as_str).collect();
    assert_eq!(removed, expected);
    assert!(done.problems.is_empty() && done.bytes > 50, "{done:?}");
    let left = all_files(folder.path());
    assert!(whole.iter().filter(|name| **name != spool).chain(&young).chain(&aside).all(|name| left.contains(name)));
    assert_eq!(gc(folder.path(), &options(30 * DAY, None)), Gc::default(), "once is enough");
    assert!(check(folder.path()).is_clean());
}

#[tokio::test]
async fn a_damaged_session_is_left_alone() {
    let folder = fast_folder();
    write(folder.path()).await;
    put(folder.path(), &of_session(1, "artifacts/unnamed"), 90 * DAY);
    let path = folder.path().join(of_session(1, "events.ndjson"));
    let mut log = fs::read(&path).unwrap();
    log[40] ^= 1;
    fs::write(&path, log).unwrap();
    let done = gc(folder.path(), &options(Duration::ZERO, Some(Duration::ZERO)));
    assert!(done.removed.iter().all(|removed| removed.session_id != Some(session(1))), "{done:?}");
    assert_eq!(done.problems.len(), 1);
}

#[tokio::test]
async fn a_session_that_is_gone_is_not_listed_and_can_come_again() {
    let folder = fast_folder();
    let store = open_unsynced(folder.path());
    write_to(&*store).await;
    let epoch = store.claim(session(1)).await.unwrap();
    let ended = event(session(1), 9, SessionCompleted { reason: None });
    store.append(session(1), epoch, 8, &[ended]).await.unwrap();
    store.mark_settled(session(1)).await.unwrap();
    drop(store);
    let done = gc(folder.path(), &options(30 * DAY, Some(90 * DAY)));
    assert_eq!(done.removed.iter().filter_map(|removed| removed.session_id).collect::<Vec<_>>(), [session(1)]);
    assert!(check(folder.path()).is_clean());
    let store = open_unsynced(folder.path());
    let listed = || async { store.list(None, 9).await.unwrap().iter().map(|row| row.id).collect::<Vec<_>>() };
    assert_eq!(listed().await, [session(2)]);
    store.create(session(1), &[created(session(1))]).await.unwrap();
    assert_eq!(read_all(&*store, session(1)).await.len(), 1);
}

/// How one session of a random folder is.
#[derive(Debug, Clone)]
struct Random {
    ended: bool,
    /// Its turn is not over.
    open: bool,
    /// Its mark is still there.
    marked: bool,
    pinned: bool,
    /// Days since each was changed: spool, unnamed file, leftover.
    ages: [u64; 3],
}

fn random() -> impl Strategy<Value = Random> {
    // Not the very limit: the clock goes on while the test runs.
    let days = || (0..60u64).prop_map(|days| if days == LIMIT_DAYS { days + 1 } else { days });
    (any::<bool>(), any::<bool>(), any::<bool>(), [days(), days(), days()], any::<bool>())
        .prop_map(|(ended, open, pinned, ages, marked)| Random { ended: ended && !open, open, marked, pinned, ages })
}

const LIMIT_DAYS: u64 = 30;

async fn write_random(folder: &Path, sessions: &[Random]) {
    let store = open_unsynced(folder);
    for (random, n) in sessions.iter().zip(1..) {
        let id = session(n);
        let decisions = rich(n);
        let (epoch, mut head) = store.create(id, &decisions[0]).await.unwrap();
        let decisions = if random.open { &decisions[1..3] } else { &decisions[1..] };
        for name in [ATTACHMENT, ARTIFACT, OLD] {
            store.blob_put(id, name, blob(name).into()).await.unwrap();
        }
        for decision in decisions {
            head = store.append(id, epoch, head.seq, decision).await.unwrap();
        }
        let mut last = Vec::new();
        if random.pinned {
            let labels = Some(vec!["pinned".into()]);
            last.push(event(id, head.seq + 1, SessionUpdated { labels, ..SessionUpdated::default() }));
        }
        if random.ended {
            last.push(event(id, head.seq + 1 + last.len() as u64, SessionCompleted { reason: None }));
        }
        store.append(id, epoch, head.seq, &last).await.unwrap();
        store.spool_append(id, turn(n), &[delta(0, "shown")]).await.unwrap();
        if !random.marked {
            store.mark_settled(id).await.unwrap();
        }
    }
    drop(store);
    for (random, n) in sessions.iter().zip(1..) {
        age(&folder.join(of_session(n, &format!("logs/{}.log", turn(n)))), DAY * random.ages[0] as u32);
        put(folder, &of_session(n, "attachments/unnamed"), DAY * random.ages[1] as u32);
        put(folder, &of_session(n, "artifacts/.tmp-1"), DAY * random.ages[2] as u32);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Over any folder: exactly what is old and needed by nobody goes, and never anything open, pinned or young.
    #[test]
    fn what_is_open_pinned_or_young_stays(
        sessions in proptest::collection::vec(random(), 1..5),
        whole_sessions in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let folder = fast_folder();
            write_random(folder.path(), &sessions).await;
            let before = all_files(folder.path());
            // The events are of long ago.
            let ended_before = whole_sessions.then_some(DAY * 90);
            gc(folder.path(), &options(DAY * LIMIT_DAYS as u32, ended_before));
            let after = all_files(folder.path());
            for (random, n) in sessions.iter().zip(1..) {
                let base = of_session(n, "");
                let [before, after] = [&before, &after].map(|files| files.iter().filter(|name| name.starts_with(&base)).cloned().collect::<BTreeSet<_>>());
                if random.open || random.pinned {
                    prop_assert_eq!(&before, &after, "{:?} is not touched", random);
                    continue;
                }
                if whole_sessions && random.ended {
                    prop_assert!(after.is_empty(), "{:?}", random);
                    continue;
                }
                let spool = of_session(n, &format!("logs/{}.log", turn(n)));
                let old = |days: u64| days > LIMIT_DAYS;
                let gone = [
                    (spool, old(random.ages[0])),
                    (of_session(n, "attachments/unnamed"), old(random.ages[1])),
                    (of_session(n, "artifacts/.tmp-1"), old(random.ages[2])),
                ];
                let expected: BTreeSet<String> = gone.into_iter().filter(|(_, gone)| *gone).map(|(name, _)| name).collect();
                let removed: BTreeSet<String> = before.difference(&after).cloned().collect();
                prop_assert_eq!(removed, expected, "{:?}", random);
            }
            prop_assert!(check(folder.path()).is_clean());
            Ok(())
        })?;
    }
}

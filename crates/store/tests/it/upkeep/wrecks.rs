//! Damage of more than a bit: garbage, truncations, lines that are swapped, doubled or gone. All that is still valid is
//! kept with its bytes and its number.

use std::fs;

use proptest::prelude::*;
use tenure_core::event::{Body, Event};

use super::*;

fn log_path(folder: &Path) -> PathBuf {
    folder.join(of_session(1, "events.ndjson"))
}

fn jsons() -> Vec<Vec<u8>> {
    rich(1).concat().iter().map(|event| serde_json::to_vec(event).unwrap()).collect()
}

/// The last events of each decision, by number.
const ENDS: [usize; 5] = [1, 2, 5, 7, 8];

/// Repairs a changed log; gives its events afterwards. All that is promised of any repair is checked here.
async fn repaired(folder: &Path, good: &[u8], bad: &[u8]) -> Vec<Event> {
    fs::write(log_path(folder), bad).unwrap();
    let found = check(folder);
    assert!(!found.is_clean() || bad.is_empty() || is_prefix(good, bad), "a changed log is found");
    let done = repair(folder);
    if fs::read(log_path(folder)).unwrap().is_empty() {
        assert!(done.left.iter().all(|finding| finding.what.contains("its log is lost")), "{:?}", done.left);
        return vec![];
    }
    assert_eq!(done.left, []);
    assert!(check(folder).is_clean());
    // Where the line before is gone, nothing proves that a line is as it was, and the repair says so.
    let unproven = done.actions.iter().any(|action| action.what.contains("cannot be proven"));
    let events = stored(folder, session(1)).await;
    let jsons = jsons();
    // Each number has its event, or tells that it is lost; behind them stands at most the end of the session.
    for (stored, json) in events.iter().zip(&jsons) {
        let event = stored.parse().unwrap();
        let lost = matches!(event.body, Body::EventLost(_));
        assert!(lost || unproven || stored.json == *json || is_ending(&event), "event {} is another one", stored.seq);
    }
    let events: Vec<Event> = events.iter().map(|stored| stored.parse().unwrap()).collect();
    let any_lost = events.iter().any(|event| matches!(event.body, Body::EventLost(_)));
    assert_eq!(
        any_lost,
        matches!(&events.last().unwrap().body, Body::SessionFailed(failed) if failed.code == "log_damaged")
    );
    if found.findings.iter().any(|finding| finding.path.ends_with("events.ndjson")) {
        assert!(fs::read(folder.join(of_session(1, "damaged-1.ndjson"))).unwrap() == bad, "the old bytes are kept");
    }
    events
}

fn is_ending(event: &Event) -> bool {
    matches!(
        event.body,
        Body::SessionFailed(_) | Body::TurnFailed(_) | Body::TurnCanceled(_) | Body::ToolCallCompleted(_)
    )
}

fn is_prefix(good: &[u8], bad: &[u8]) -> bool {
    good.starts_with(bad)
}

/// The numbers of the lines that stand whole in these bytes.
fn intact(good: &[u8], bad: &[u8]) -> Vec<usize> {
    let lines: Vec<&[u8]> = bad.split(|byte| *byte == b'\n').collect();
    let all = good.strip_suffix(b"\n").unwrap().split(|byte| *byte == b'\n').enumerate();
    all.filter(|(_, line)| lines.contains(line)).map(|(at, _)| at + 1).collect()
}

/// All intact lines are kept, but those of a decision at the end that is not whole.
fn all_valid_are_kept(events: &[Event], valid: &[usize]) {
    let last = valid.last().copied().unwrap_or(0);
    let whole =
        if ENDS.contains(&last) { last } else { ENDS.iter().copied().filter(|end| *end < last).max().unwrap_or(0) };
    for seq in valid.iter().filter(|seq| **seq <= whole) {
        let kept = events.get(seq - 1).is_some_and(|event| !matches!(event.body, Body::EventLost(_)));
        assert!(kept, "event {seq} was valid and is lost; valid were {valid:?}");
    }
}

fn lost(events: &[Event]) -> Vec<u64> {
    events.iter().filter(|event| matches!(event.body, Body::EventLost(_))).map(|event| event.seq).collect()
}

async fn fresh() -> (tempfile::TempDir, Vec<u8>) {
    let folder = fast_folder();
    write(folder.path()).await;
    let good = fs::read(log_path(folder.path())).unwrap();
    (folder, good)
}

fn lines(good: &[u8]) -> Vec<Vec<u8>> {
    good.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
}

#[tokio::test]
async fn a_line_that_is_gone_is_lost_and_no_other() {
    for at in 0..7 {
        let (folder, good) = fresh().await;
        let mut lines = lines(&good);
        lines.remove(at);
        let events = repaired(folder.path(), &good, &lines.concat()).await;
        assert_eq!(lost(&events), [at as u64 + 1]);
        assert_eq!(fold(&events).status(), "failed");
    }
}

#[tokio::test]
async fn a_line_of_garbage_is_lost_and_no_other() {
    for at in 0..8 {
        let (folder, good) = fresh().await;
        let mut lines = lines(&good);
        let middle = lines[at].len() / 2;
        lines[at][middle..middle + 9].copy_from_slice(b"#garbage#");
        let events = repaired(folder.path(), &good, &lines.concat()).await;
        assert_eq!(lost(&events), [at as u64 + 1]);
    }
}

#[tokio::test]
async fn swapped_and_doubled_lines_find_their_place() {
    for at in 0..7 {
        let (folder, good) = fresh().await;
        let mut swapped = lines(&good);
        swapped.swap(at, at + 1);
        let events = repaired(folder.path(), &good, &swapped.concat()).await;
        assert_eq!((lost(&events), events.len()), (vec![], 8), "swapped {at}");
        let mut doubled = lines(&good);
        doubled.insert(at, doubled[at + 1].clone());
        fs::remove_file(folder.path().join(of_session(1, "damaged-1.ndjson"))).unwrap();
        let events = repaired(folder.path(), &good, &doubled.concat()).await;
        assert_eq!((lost(&events), events.len()), (vec![], 8), "doubled {at}");
    }
}

#[tokio::test]
async fn a_torn_tail_is_cut_as_the_daemon_does() {
    let (folder, good) = fresh().await;
    // It knows of more events than are left.
    fs::remove_file(folder.path().join(of_session(1, "session.json"))).unwrap();
    for end in (0..good.len()).step_by(23) {
        let _ = fs::remove_file(folder.path().join(of_session(1, "damaged-1.ndjson")));
        let events = repaired(folder.path(), &good, &good[..end]).await;
        let lines = good[..end].iter().filter(|byte| **byte == b'\n').count();
        // A last line that lacks only its end is whole: its sum says so.
        let lines = lines + usize::from(good[end] == b'\n');
        let whole = ENDS.iter().copied().filter(|last| *last <= lines).max().unwrap_or(0);
        assert!(events.len() == whole && lost(&events).is_empty(), "{end}: {} of {whole}", events.len());
    }
}

/// A snapshot and a turn's record know of events that were there: what is lost of the end is told by its numbers.
#[tokio::test]
async fn a_lost_end_is_told_by_its_numbers() {
    for (by_record, last) in [(false, 7), (true, 8)] {
        for (whole, torn) in [(1, 0), (2, 40), (5, 0), (5, 90), (6, 3)] {
            let (folder, good) = fresh().await;
            if by_record {
                fs::remove_file(folder.path().join(of_session(1, "session.json"))).unwrap();
                let record = Bytes::from_static(b"{\"id\":\"x\",\"seq\":8,\"status\":\"failed\"}");
                open_unsynced(folder.path()).turn_put(session(1), turn(1), record).await.unwrap();
            }
            let kept = lines(&good)[..whole].concat();
            let bad = &good[..kept.len() + torn];
            fs::write(log_path(folder.path()), bad).unwrap();
            let found = check(folder.path());
            let told = found.findings.iter().find(|finding| finding.path.ends_with("events.ndjson")).unwrap();
            assert!(told.what.contains(&format!("it held event {last}")), "{told:?}");
            assert_eq!((told.level, told.remedy), (Level::Damage, Remedy::Repair));
            let events = repaired(folder.path(), &good, bad).await;
            assert_eq!(lost(&events), (whole as u64 + 1..=last).collect::<Vec<_>>(), "{whole} {torn} {by_record}");
            assert_eq!(fold(&events).status(), "failed");
        }
    }
}

#[tokio::test]
async fn two_damaged_lines_are_both_mended() {
    let (folder, good) = fresh().await;
    let mut lines = lines(&good);
    lines[2][100] ^= 16;
    lines[3][50] ^= 1;
    lines[7][30] ^= 4;
    let events = repaired(folder.path(), &good, &lines.concat()).await;
    assert_eq!((lost(&events), events.len()), (vec![], 8));
    assert!(fs::read(log_path(folder.path())).unwrap() == good);
}

#[tokio::test]
async fn a_blob_that_cannot_be_mended_is_put_aside() {
    let (folder, _) = fresh().await;
    let base = folder.path().join("sessions").join(session(1).to_string());
    fs::write(base.join(ARTIFACT), "another text").unwrap();
    fs::remove_file(base.join(ATTACHMENT)).unwrap();
    assert_eq!(check(folder.path()).findings.len(), 2);
    let done = repair(folder.path());
    let told: Vec<&str> = done.actions.iter().map(|action| action.what.as_str()).collect();
    assert!(told[0].starts_with("put aside in damaged/artifacts/t/out.txt"), "{told:?}");
    assert!(told[1].starts_with("it is gone"), "{told:?}");
    assert_eq!(fs::read_to_string(base.join("damaged").join(ARTIFACT)).unwrap(), "another text");
    let found = check(folder.path());
    assert!(found.is_clean() && found.findings.len() == 2, "what is lost is still told: {:?}", found.findings);
    assert_eq!(repair(folder.path()).actions, [], "and once is enough");
}

#[tokio::test]
async fn a_log_of_another_version_is_left_alone() {
    let (folder, good) = fresh().await;
    // Valid by its sums, but of a type that is not known.
    let mut writer = tenure_store::LogWriter::new();
    let mut foreign = Vec::new();
    for (json, seq) in jsons().into_iter().zip(1..) {
        let json = String::from_utf8(json).unwrap().replace("turn_failed", "turn_sung");
        writer.push(&StoredEvent { seq, json: json.into(), more: 0 }, &mut foreign);
    }
    assert_ne!(foreign, good);
    fs::write(log_path(folder.path()), &foreign).unwrap();
    let found = check(folder.path());
    assert!(found.findings.iter().any(|found| found.remedy == Remedy::None && found.what.contains("turn_sung")));
    repair(folder.path());
    assert_eq!(fs::read(log_path(folder.path())).unwrap(), foreign);
}

/// One thing that may have happened to a log's bytes.
#[derive(Debug, Clone)]
enum Mutation {
    Cut(usize),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Overwrite(usize, Vec<u8>),
    Repeat(usize, usize),
    Swap(usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let place = || 0..3500usize;
    let bytes = || proptest::collection::vec(any::<u8>(), 1..300);
    prop_oneof![
        place().prop_map(Mutation::Cut),
        (place(), bytes()).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (place(), 1..700usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (place(), bytes()).prop_map(|(at, bytes)| Mutation::Overwrite(at, bytes)),
        (place(), 1..2000usize).prop_map(|(at, length)| Mutation::Repeat(at, length)),
        (0..8usize, 0..8usize).prop_map(|(a, b)| Mutation::Swap(a, b)),
    ]
}

fn mutated(mut log: Vec<u8>, mutation: &Mutation) -> Vec<u8> {
    let at = |place: usize| place.min(log.len());
    let (range, bytes) = match mutation {
        Mutation::Cut(from) => (at(*from)..log.len(), vec![]),
        Mutation::Insert(from, bytes) => (at(*from)..at(*from), bytes.clone()),
        Mutation::Remove(from, length) => (at(*from)..at(from + length), vec![]),
        Mutation::Overwrite(from, bytes) => (at(*from)..at(from + bytes.len()), bytes.clone()),
        Mutation::Repeat(from, length) => (at(*from)..at(*from), log[at(*from)..at(from + length)].to_vec()),
        Mutation::Swap(a, b) => {
            let mut lines = lines(&log);
            if lines.len() > *a.max(b) {
                lines.swap(*a, *b);
            }
            return lines.concat();
        }
    };
    log.splice(range, bytes);
    log
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happened: the check finds it, the repair keeps all that is valid, and leaves a folder that is clean.
    #[test]
    fn no_valid_event_is_lost(mutations in proptest::collection::vec(mutation(), 1..4)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (folder, good) = fresh().await;
            let bad = mutations.iter().fold(good.clone(), mutated);
            if bad == good {
                return;
            }
            let valid = intact(&good, &bad);
            let events = repaired(folder.path(), &good, &bad).await;
            all_valid_are_kept(&events, &valid);
        });
    }
}

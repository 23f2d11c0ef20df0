//! Check and repair over a folder with a file of every kind: every bit that changed is found, and mended.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use tenure_core::{
    event::*,
    ids::SessionId,
    message::Attachment,
    session::Session,
    time::Timestamp,
    tool::{Artifact, FileChange, Intent, Outcome, Runner, ToolKind, ToolResult},
};
use tenure_store::{
    CreateKey, Limit, Snapshot, Store, StoredEvent,
    upkeep::{self, Check, CheckOptions, Level, Remedy, Repair},
};

use crate::sample::*;

mod beside;
mod gc;
mod gone;
mod power;
mod spools;
mod wrecks;

/// Files with fewer bits than this are tried bit by bit.
const BITS_MAX: usize = 720;
/// Of the others so many are tried: to find, and to mend.
const FOUND: usize = 250;
const MENDED: usize = 25;

pub const ATTACHMENT: &str = "attachments/0a1b-a.png";
pub const ARTIFACT: &str = "artifacts/t/out.txt";
pub const OLD: &str = "artifacts/t/c-0.old";

pub fn now() -> Timestamp {
    Timestamp::from_ms(START_MS + 1_000_000)
}

/// What each blob of a rich session holds.
pub fn blob(name: &str) -> Vec<u8> {
    let length = if name == ARTIFACT { 3000 } else { 90 };
    (0..length).map(|at: usize| (at * 7 % 251) as u8).collect()
}

/// One session in five decisions, with a turn that is over and files of every kind.
pub fn rich(n: u64) -> Vec<Vec<Event>> {
    let id = session(n);
    let call = moment(7).call_id();
    let attachment = Attachment {
        r#ref: ATTACHMENT.into(),
        mime_type: "image/png".into(),
        bytes: 90,
        digest: blake3::hash(&blob(ATTACHMENT)).to_hex().to_string(),
    };
    let change = FileChange {
        path: "a".into(),
        before: Some(blake3::hash(&blob(OLD)).to_hex().to_string()),
        after: None,
        old_bytes: Some(OLD.into()),
        ..FileChange::default()
    };
    let started = ToolCallStarted {
        tool_call_id: call,
        name: "write_file".into(),
        kind: ToolKind::Write,
        input: serde_json::json!({"path": "a"}),
        runner: Runner::default(),
        origin: CallOrigin::Model,
        run: 1,
        intent: Intent { files: vec![change], folders: vec![] },
    };
    let result = ToolResult { artifacts: vec![Artifact::of(ARTIFACT, &blob(ARTIFACT))], ..ToolResult::ok("ä") };
    let completed = ToolCallCompleted {
        tool_call_id: call,
        name: "write_file".into(),
        origin: CallOrigin::Model,
        outcome: Outcome::Finished,
        result,
        duration_ms: 3,
    };
    let failed =
        TurnFailed { code: "auth".into(), message: "no".into(), spent: Default::default(), cost_micro_usd: None };
    let of_turn = |seq, body: Body| Event { turn_id: Some(turn(n)), ..event(id, seq, body) };
    vec![
        vec![created(id)],
        vec![event(id, 2, AttachmentAdded { attachment })],
        vec![
            message(id, 3, "hello"),
            of_turn(4, TurnStarted { messages: vec![], retry_of: None, model: "scripted".into() }.into()),
            of_turn(5, started.into()),
        ],
        vec![of_turn(6, completed.into()), of_turn(7, failed.into())],
        vec![message(id, 8, "and then")],
    ]
}

pub fn fold(events: &[Event]) -> Session {
    let mut state = Session::born(&events[0]).unwrap();
    events[1..].iter().for_each(|event| state.apply(event));
    state
}

/// A folder with a rich session, another one, keys, rows and records.
pub async fn write(folder: &Path) {
    let store = open_unsynced(folder);
    write_to(&*store).await;
}

pub async fn write_to(store: &dyn Store) {
    write_sessions(store, &[1, 2]).await;
}

async fn write_sessions(store: &dyn Store, sessions: &[u64]) {
    for n in sessions.iter().copied() {
        let id = session(n);
        let decisions = rich(n);
        let (epoch, mut head) = store.create(id, &decisions[0]).await.unwrap();
        for name in [ATTACHMENT, ARTIFACT, OLD] {
            store.blob_put(id, name, blob(name).into()).await.unwrap();
        }
        for decision in &decisions[1..] {
            head = store.append(id, epoch, head.seq, decision).await.unwrap();
        }
        let state = fold(&decisions[..4].concat());
        let state = Bytes::from(serde_json::to_vec(&state).unwrap());
        store.snapshot_put(id, Snapshot { seq: 7, state }).await.unwrap();
        store.spool_append(id, turn(n), &[delta(0, "shown"), delta(5, " and more")]).await.unwrap();
        let spool = store.spool_close(id, turn(n)).await.unwrap().unwrap();
        let record = serde_json::json!({"id": turn(n), "seq": 7, "status": "failed", "spool": spool});
        store.turn_put(id, turn(n), record.to_string().into()).await.unwrap();
        store.row_put(row(n, "active")).await.unwrap();
        let key = CreateKey {
            endpoint: "create".into(),
            key: format!("key-{n}"),
            digest: "d".repeat(16),
            session_id: id,
            at: Timestamp::from_ms(START_MS),
        };
        store.key_put(key).await.unwrap();
        store.mark_settled(id).await.unwrap();
    }
}

pub fn check(folder: &Path) -> Check {
    upkeep::check(folder, &CheckOptions::default(), &mut |_, _| {}).unwrap()
}

pub fn repair(folder: &Path) -> Repair {
    upkeep::repair(folder, now(), &mut |_, _| {}).unwrap()
}

pub fn of_session(n: u64, name: &str) -> String {
    format!("sessions/{}/{name}", session(n))
}

/// The files whose every bit is kept.
fn files() -> Vec<String> {
    let mut files = vec!["keys.ndjson".to_owned(), "index.ndjson".to_owned()];
    let turn = turn(1);
    let names = ["events.ndjson", "session.json", ATTACHMENT, ARTIFACT, OLD];
    files.extend(names.map(|name| of_session(1, name)));
    files.extend([format!("turns/{turn}.json"), format!("logs/{turn}.log")].map(|name| of_session(1, &name)));
    files
}

/// SplitMix64.
pub fn dice(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *seed;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

fn bits(bytes: usize, most: usize) -> Vec<usize> {
    let all = bytes * 8;
    if all <= BITS_MAX && most == FOUND {
        return (0..all).collect();
    }
    let mut seed = bytes as u64;
    // The last bits always: what ends a file is read in a way of its own.
    (all - 8..all).chain((0..most).map(|_| dice(&mut seed) as usize % all)).collect()
}

pub async fn stored(folder: &Path, id: SessionId) -> Vec<StoredEvent> {
    let store = open_unsynced(folder);
    let events = store.read(id, 0, Limit { events: 1000, bytes: 1 << 30 }).await.unwrap();
    assert!(store.claim(id).await.is_ok() && store.notices().is_empty());
    events
}

#[tokio::test]
async fn a_folder_as_it_should_be_is_clean() {
    let folder = fast_folder();
    write(folder.path()).await;
    let found = check(folder.path());
    assert_eq!(found.findings, []);
    assert_eq!((found.sessions, found.events), (2, 16));
    assert_eq!(repair(folder.path()), Repair::default());
    assert_eq!(check(folder.path()).findings, []);
    let one = CheckOptions { sessions: vec![session(2)], ..CheckOptions::default() };
    assert_eq!(upkeep::check(folder.path(), &one, &mut |_, _| {}).unwrap().events, 8);
    let none = CheckOptions { sessions: vec![session(3)], ..CheckOptions::default() };
    assert!(upkeep::check(folder.path(), &none, &mut |_, _| {}).is_err());
}

#[tokio::test]
async fn every_bit_that_changed_is_found() {
    let folder = fast_folder();
    write_sessions(&*open_unsynced(folder.path()), &[1]).await;
    for name in files() {
        let path = folder.path().join(&name);
        let good = fs::read(&path).unwrap();
        for bit in bits(good.len(), FOUND) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bad).unwrap();
            let found = check(folder.path());
            assert!(!found.is_clean(), "bit {bit} of {name}");
            let named = found.findings.iter().all(|finding| finding.path == name || finding.level == Level::Note);
            assert!(named, "bit {bit} of {name}: {:?}", found.findings);
            assert!(found.findings.iter().all(|finding| finding.remedy == Remedy::Repair), "bit {bit} of {name}");
        }
        fs::write(&path, &good).unwrap();
    }
    assert_eq!(check(folder.path()).findings, []);
}

#[tokio::test]
async fn every_bit_that_changed_is_mended() {
    let folder = fast_folder();
    write_sessions(&*open_unsynced(folder.path()), &[1]).await;
    let whole: Vec<(PathBuf, Vec<u8>)> = files()
        .iter()
        .map(|name| folder.path().join(name))
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    for (name, (path, good)) in files().into_iter().zip(&whole) {
        for bit in bits(good.len(), MENDED) {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(path, &bad).unwrap();
            let planned = upkeep::plan_repair(folder.path(), now(), &mut |_, _| {}).unwrap();
            assert!(fs::read(path).unwrap() == bad, "a plan changes nothing");
            let done = repair(folder.path());
            assert_eq!(done.left, [], "bit {bit} of {name}");
            assert_eq!(done.actions.first(), planned.actions.first(), "bit {bit} of {name}");
            assert!(check(folder.path()).is_clean(), "bit {bit} of {name}");
            // What is no cache has every byte that it had.
            let is_cache = name.contains("/turns/") || name.ends_with("session.json");
            if !is_cache && !name.ends_with("index.ndjson") {
                assert!(fs::read(path).unwrap() == *good, "bit {bit} of {name}");
            }
            for (path, good) in &whole {
                fs::write(path, good).unwrap();
            }
        }
    }
    let events = stored(folder.path(), session(1)).await;
    let json: Vec<_> = rich(1).concat().iter().map(|event| serde_json::to_vec(event).unwrap()).collect();
    assert!(events.iter().map(|event| &event.json[..]).eq(json.iter().map(Vec::as_slice)));
}

/// Files of the time before there were sums are read, and no damage.
#[tokio::test]
async fn files_without_sums_are_taken_as_they_are() {
    let folder = fast_folder();
    write(folder.path()).await;
    let turn_file = of_session(1, &format!("turns/{}.json", turn(1)));
    for name in ["keys.ndjson", "index.ndjson", &turn_file] {
        let path = folder.path().join(name);
        let text = fs::read_to_string(&path).unwrap();
        let without = |line: &str| match line.rfind(",\"sum\":") {
            Some(at) => format!("{}}}", &line[..at]),
            None => panic!("no sum: {line}"),
        };
        let end = if text.ends_with('\n') { "\n" } else { "" };
        fs::write(&path, text.lines().map(without).collect::<Vec<_>>().join("\n") + end).unwrap();
    }
    assert_eq!(check(folder.path()).findings, []);
    let store = open_unsynced(folder.path());
    assert!(store.key_get("create", "key-1", Timestamp::from_ms(START_MS)).await.unwrap().is_some());
    assert_eq!(store.list(None, 9).await.unwrap().len(), 2);
    let record = store.turn_get(session(1), turn(1)).await.unwrap().unwrap();
    assert_eq!(record, fs::read(folder.path().join(&turn_file)).unwrap());
    assert!(store.notices().is_empty());
}

/// A line of the keys whose sum does not fit is passed over, and people are told.
#[tokio::test]
async fn a_damaged_key_is_passed_over_with_a_notice() {
    let folder = fast_folder();
    write(folder.path()).await;
    let path = folder.path().join("keys.ndjson");
    fs::write(&path, fs::read_to_string(&path).unwrap().replacen("key-1", "key-7", 1)).unwrap();
    let store = open_unsynced(folder.path());
    let at = Timestamp::from_ms(START_MS);
    for (key, there) in [("key-7", false), ("key-1", false), ("key-2", true)] {
        assert_eq!(store.key_get("create", key, at).await.unwrap().is_some(), there, "{key}");
    }
    assert_eq!(store.notices(), ["1 lines of keys.ndjson are damaged and were passed over"]);
}

/// A repair waits for nobody: while the folder is in use it is refused.
#[tokio::test]
async fn only_a_check_runs_beside_a_daemon() {
    let folder = fast_folder();
    write(folder.path()).await;
    let store = open_unsynced(folder.path());
    assert!(matches!(upkeep::repair(folder.path(), now(), &mut |_, _| {}), Err(tenure_store::Error::Locked { .. })));
    let options = upkeep::GcOptions { now: now(), older_than: Duration::ZERO, sessions_ended_before: None };
    assert!(matches!(upkeep::gc(folder.path(), &options, &mut |_, _| {}), Err(tenure_store::Error::Locked { .. })));
    assert!(check(folder.path()).is_clean());
    drop(store);
    let nowhere = folder.path().join("nowhere");
    assert!(matches!(upkeep::repair(&nowhere, now(), &mut |_, _| {}), Err(tenure_store::Error::NoFolder(_))));
    assert!(!nowhere.exists(), "nothing is made where there is nothing");
}

/// A session without a log that once had one is damage, and nothing of it is removed.
#[tokio::test]
async fn a_lost_log_is_damage_and_what_is_left_stays() {
    for lose in [|path: &Path| fs::remove_file(path).unwrap(), |path: &Path| fs::write(path, "").unwrap()] {
        let folder = fast_folder();
        write(folder.path()).await;
        let log = folder.path().join(of_session(1, "events.ndjson"));
        lose(&log);
        let found = check(folder.path());
        let lost = |finding: &&tenure_store::upkeep::Finding| finding.what.contains("its log is lost");
        assert_eq!(found.findings.iter().filter(lost).count(), 1, "{:?}", found.findings);
        assert!(!found.is_clean());
        let plan = upkeep::plan_repair(folder.path(), now(), &mut |_, _| {}).unwrap();
        assert_eq!(plan.left.iter().filter(lost).count(), 1, "a plan tells what it cannot mend");
        repair(folder.path());
        assert!(folder.path().join(of_session(1, "session.json")).exists());
        let store = open_unsynced(folder.path());
        let head = store.head(session(1)).await;
        assert!(matches!(head, Err(tenure_store::Error::Damaged { seq: 0, .. })), "{head:?}");
        store.purge(session(1)).await.unwrap();
        assert!(!folder.path().join(of_session(1, "session.json")).exists(), "what is left can be put away");
        assert!(matches!(store.head(session(1)).await, Err(tenure_store::Error::NoSession(_))));
    }
}

/// One session that cannot be read does not keep the others from being mended.
#[tokio::test]
async fn a_log_that_is_no_file_stops_no_repair() {
    let folder = fast_folder();
    write(folder.path()).await;
    let odd = folder.path().join(of_session(1, "events.ndjson"));
    fs::remove_file(&odd).unwrap();
    fs::create_dir(&odd).unwrap();
    let other = folder.path().join(of_session(2, "events.ndjson"));
    let good = fs::read(&other).unwrap();
    let mut bad = good.clone();
    bad[40] ^= 1;
    fs::write(&other, bad).unwrap();
    let done = upkeep::repair(folder.path(), now(), &mut |_, _| {}).unwrap();
    assert_eq!(fs::read(&other).unwrap(), good);
    assert!(done.left.iter().any(|finding| finding.session_id == Some(session(1))), "{:?}", done.left);
}

/// A listing that is made again tells what the logs tell, with and without snapshots.
#[tokio::test]
async fn a_listing_made_again_is_as_it_was() {
    let folder = fast_folder();
    write(folder.path()).await;
    let rows = |store: std::sync::Arc<tenure_store::FileStore>| async move {
        let rows = store.list(None, 9).await.unwrap();
        rows.into_iter().map(|row| (row.id, row.title, row.labels, row.workspace_path)).collect::<Vec<_>>()
    };
    fs::remove_file(folder.path().join("index.ndjson")).unwrap();
    let with_snapshots = rows(open_unsynced(folder.path())).await;
    fs::remove_file(folder.path().join("index.ndjson")).unwrap();
    for number in [1, 2] {
        let _ = fs::remove_file(folder.path().join(of_session(number, "session.json")));
    }
    assert_eq!(rows(open_unsynced(folder.path())).await, with_snapshots);
}

/// Nobody waits for a pipe, and what is no file stops neither a check nor a repair.
#[tokio::test]
async fn what_is_no_file_is_told_and_put_aside() {
    for odd in ["keys.ndjson", "index.ndjson"] {
        for with_link in [false, true] {
            let folder = fast_folder();
            write(folder.path()).await;
            let path = folder.path().join(odd);
            fs::remove_file(&path).unwrap();
            match with_link {
                true => std::os::unix::fs::symlink("/etc/hostname", &path).unwrap(),
                false => pipe(&path),
            }
            let found = check(folder.path());
            let told: Vec<_> = found.findings.iter().map(|finding| (finding.path.as_str(), finding.remedy)).collect();
            assert_eq!(told, [(odd, Remedy::Repair)], "{:?}", found.findings);
            assert_eq!(found.sessions, 2, "the others are looked at");
            let plan = upkeep::plan_repair(folder.path(), now(), &mut |_, _| {}).unwrap();
            assert_eq!((plan.actions.len(), plan.left.len()), (1, 0), "{plan:?}");
            let done = repair(folder.path());
            assert_eq!((done.actions, done.left), (plan.actions, vec![]));
            assert!(folder.path().join(format!("damaged-1.{odd}")).symlink_metadata().is_ok());
            assert!(check(folder.path()).is_clean());
            let store = open_unsynced(folder.path());
            assert_eq!(store.list(None, 9).await.unwrap().len(), 2);
        }
    }
}

fn pipe(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
}

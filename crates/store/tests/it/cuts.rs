//! The log cut at every byte of its last decisions, as a crash may leave it: never a part of a decision comes back, and
//! nothing that was whole is lost.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tenure_core::event::Event;
use tenure_store::{Error, Snapshot, Store};

use crate::sample::*;

/// A log with decisions of several lengths: what was acknowledged, and its bytes.
struct Written {
    decisions: Vec<Vec<Event>>,
    /// Where each decision ends.
    ends: Vec<usize>,
    log: Vec<u8>,
}

impl Written {
    /// How many whole decisions the first `bytes` hold.
    fn whole(&self, bytes: usize) -> usize {
        self.ends.iter().filter(|end| **end <= bytes).count()
    }
}

fn log_path(folder: &Path) -> PathBuf {
    folder.join("sessions").join(session(1).to_string()).join("events.ndjson")
}

async fn write(folder: &Path, snapshot_after: Option<usize>) -> Written {
    let id = session(1);
    let store = open_unsynced(folder);
    let mut written = Written { decisions: vec![vec![created(id), message(id, 2, "x")]], ends: vec![], log: vec![] };
    let (epoch, mut head) = store.create(id, &written.decisions[0]).await.unwrap();
    written.ends.push(head.bytes as usize);
    for length in [1, 3, 1, 2] {
        let decision = messages(id, head.seq + 1, head.seq + length);
        head = store.append(id, epoch, head.seq, &decision).await.unwrap();
        written.decisions.push(decision);
        written.ends.push(head.bytes as usize);
        if snapshot_after == Some(written.ends.len()) {
            store.snapshot_put(id, Snapshot { seq: head.seq, state: "{}".into() }).await.unwrap();
        }
    }
    written.log = fs::read(log_path(folder)).unwrap();
    written
}

/// The bytes kept aside by now; they are taken away so that the next cut finds none.
fn take_cut_bytes(folder: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(log_path(folder).parent().unwrap()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_str().unwrap().starts_with("cut-") {
            found.push(fs::read(&path).unwrap());
            fs::remove_file(&path).unwrap();
        }
    }
    found
}

/// Opens the log as `content` left it, and expects the whole decisions of the first `good` bytes.
async fn check(folder: &Path, written: &Written, content: &[u8], good: usize) {
    let id = session(1);
    fs::write(log_path(folder), content).unwrap();
    let whole = written.whole(good);
    let end = if whole == 0 { 0 } else { written.ends[whole - 1] };
    let acknowledged: Vec<Event> = written.decisions[..whole].concat();
    let store = open_unsynced(folder);
    if whole == 0 {
        assert!(matches!(store.head(id).await, Err(Error::NoSession(_))));
        let (_, head) = store.create(id, &written.decisions[0]).await.unwrap();
        assert_eq!(head.seq, 2);
    } else {
        assert_eq!(store.head(id).await.unwrap().bytes, end as u64);
        assert_eq!(read_all(&*store, id).await, acknowledged);
        let epoch = store.claim(id).await.unwrap();
        let next = messages(id, acknowledged.len() as u64 + 1, acknowledged.len() as u64 + 2);
        store.append(id, epoch, acknowledged.len() as u64, &next).await.unwrap();
        assert_eq!(read_all(&*store, id).await, [acknowledged, next].concat());
    }
    let cut = take_cut_bytes(folder);
    let notices = store.notices();
    if end == content.len() {
        assert!(cut.is_empty() && notices.is_empty(), "{notices:?}");
    } else {
        assert!(cut == [&content[end..]]);
        assert!(notices.len() == 1 && notices[0].contains("cut"), "{notices:?}");
    }
}

#[tokio::test]
async fn a_log_cut_at_any_byte_comes_back_with_its_whole_decisions() {
    let folder = fast_folder();
    let written = write(folder.path(), None).await;
    // Every byte of the last decisions, and some of those before.
    for cut in (0..written.ends[1]).step_by(13).chain(written.ends[1]..=written.log.len()) {
        check(folder.path(), &written, &written.log[..cut], cut).await;
    }
}

#[tokio::test]
async fn a_snapshot_does_not_change_what_comes_back() {
    let folder = fast_folder();
    let written = write(folder.path(), Some(3)).await;
    let snapshot = log_path(folder.path()).with_file_name("session.json");
    let content = fs::read(&snapshot).unwrap();
    // From before the snapshot's own place on: it is then ahead of the log, and not believed.
    for cut in (written.ends[1]..=written.log.len()).step_by(3) {
        fs::write(&snapshot, &content).unwrap();
        check(folder.path(), &written, &written.log[..cut], cut).await;
        let found = open_unsynced(folder.path()).snapshot_get(session(1)).await.unwrap();
        assert_eq!(found.is_some(), cut >= written.ends[2], "cut at {cut}");
    }
}

#[tokio::test]
async fn zeros_and_garbage_after_the_last_decision_are_cut_too() {
    let folder = fast_folder();
    let written = write(folder.path(), None).await;
    for cut in (written.ends[3]..written.log.len()).step_by(7) {
        for filler in [vec![0; 5000], b"{\"seq\":\n\n\xff\n}".to_vec(), vec![b'x'; 200_000]] {
            let content = [&written.log[..cut], &filler].concat();
            check(folder.path(), &written, &content, cut).await;
        }
    }
}

/// Bytes of one write come to the disk in any order: a sector may be missing although later ones are there.
#[tokio::test]
async fn a_last_decision_with_a_hole_is_cut_like_a_torn_one() {
    let folder = fast_folder();
    let written = write(folder.path(), None).await;
    let last = written.ends[written.ends.len() - 2];
    for unit in [512, 4096] {
        let mut content = written.log.clone();
        let end = (last / unit + 1) * unit;
        assert!(unit == 4096 || end < content.len(), "the last decision ends behind its first sector");
        let end = end.min(content.len() - 1);
        content[last..end].fill(0);
        check(folder.path(), &written, &content, last).await;
    }
}

/// With a whole later decision behind it, a hole is damage: that one was written after a sync of the one with the hole.
#[tokio::test]
async fn a_hole_further_up_is_damage() {
    let folder = fast_folder();
    let written = write(folder.path(), None).await;
    let mut content = written.log.clone();
    let from = written.ends[0].next_multiple_of(512);
    assert!(from + 512 < written.ends[2]);
    content[from..from + 512].fill(0);
    fs::write(log_path(folder.path()), &content).unwrap();
    let store = open_unsynced(folder.path());
    assert!(matches!(store.claim(session(1)).await, Err(Error::Damaged { .. })));
    assert!(fs::read(log_path(folder.path())).unwrap() == content);
}

//! Many sessions and large logs: start-up reads none of them, and reading takes little memory whatever the size.

use std::fs;

use tenure_store::{Error, Limit, Snapshot, Store};

use crate::{refusing_disk::in_a_child, sample::*};

#[tokio::test]
async fn opening_ten_thousand_sessions_reads_no_log() {
    let folder = fast_folder();
    drop(open(folder.path()));
    for n in 0..10_000 {
        let path = folder.path().join("sessions").join(session(n).to_string());
        fs::create_dir(&path).unwrap();
        // Whoever reads it would cut it and say so.
        fs::write(path.join("events.ndjson"), "not a log").unwrap();
    }
    fs::write(folder.path().join("open").join(session(5).to_string()), "").unwrap();
    fs::write(folder.path().join("index.ndjson"), "not a listing").unwrap();
    let store = open(folder.path());
    assert_eq!(store.open_sessions().await.unwrap(), [session(5)]);
    store.create(session(20_000), &[created(session(20_000))]).await.unwrap();
    assert!(store.notices().is_empty());
    assert!(matches!(store.head(session(7)).await, Err(Error::NoSession(_))));
    assert_eq!(store.notices().len(), 1);
}

#[tokio::test]
async fn more_sessions_than_may_be_open_take_turns() {
    let folder = fast_folder();
    let store = open_unsynced(folder.path());
    let count = 600;
    for n in 0..count {
        let id = session(n);
        store.create(id, &[created(id)]).await.unwrap();
        store.spool_append(id, turn(n), &[delta(0, "a")]).await.unwrap();
    }
    let open_files = fs::read_dir("/proc/self/fd").unwrap();
    let of_the_store = open_files.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let of_the_store = of_the_store.filter(|path| path.starts_with(folder.path())).count();
    assert!(of_the_store <= 256 + 256 + 3, "{of_the_store} files are open");
    for n in 0..count {
        let id = session(n);
        let epoch = store.claim(id).await.unwrap();
        store.append(id, epoch, 1, &messages(id, 2, 3)).await.unwrap();
        assert_eq!(store.spool_append(id, turn(n), &[delta(1, "b")]).await.unwrap().len(), 1);
        assert_eq!(read_all(&*store, id).await.len(), 3);
    }
}

/// Runs in a process of its own, since it looks at the memory of the whole process.
#[test]
fn a_large_log_is_opened_and_paged_in_little_memory() {
    in_a_child("scale::a_large_log_is_opened_and_paged_in_little_memory", "exec \"$@\"", || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(page_through_a_large_log());
    });
}

async fn page_through_a_large_log() {
    const EVENTS: u64 = 1024;
    const TEXT_BYTES: usize = 64 << 10;
    let folder = tempfile::tempdir().unwrap();
    let id = session(1);
    let store = open_unsynced(folder.path());
    let (epoch, mut head) = store.create(id, &[created(id)]).await.unwrap();
    let text = "0123456789abcdef".repeat(TEXT_BYTES / 16);
    while head.seq < EVENTS {
        head = store.append(id, epoch, head.seq, &[message(id, head.seq + 1, &text)]).await.unwrap();
    }
    assert!(head.bytes >= (EVENTS - 1) * TEXT_BYTES as u64);
    drop(store);
    let before = peak_kib();
    let store = open_unsynced(folder.path());
    let limit = Limit { events: 1000, bytes: 1 << 20 };
    let mut after = 0;
    loop {
        let page = store.read(id, after, limit).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.iter().map(|event| event.json.len()).sum::<usize>() <= limit.bytes);
        assert!(page.iter().map(|event| event.seq).eq(after + 1..=last.seq));
        after = last.seq;
    }
    assert_eq!(after, EVENTS);
    // Any place is found, in any order, also in a log that was just opened.
    drop(store);
    let store = open_unsynced(folder.path());
    store.snapshot_put(id, Snapshot { seq: EVENTS, state: "{}".into() }).await.unwrap();
    for n in 0..300 {
        let after = n * 7919 % EVENTS;
        let page = store.read(id, after, Limit { events: 1, bytes: 1 }).await.unwrap();
        assert_eq!(page[0].parse().unwrap().seq, after + 1);
    }
    let grown = peak_kib() - before;
    assert!(grown < 16 << 10, "reading a log of {} MiB took {grown} KiB", head.bytes >> 20);
}

/// The most memory this process ever had.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

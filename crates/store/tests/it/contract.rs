//! What every version of the store keeps, run against each of them.

use std::sync::Arc;

use bytes::Bytes;
use tenure_core::{budget::Spent, time::Timestamp};
use tenure_store::{
    CreateKey, Epoch, Error, FaultyStore, Limit, MemoryStore, Row, Snapshot, SpoolPage, SpoolRecord, Store, SweepReport,
};

use crate::sample::*;

#[tokio::test]
async fn file() {
    let folder = tempfile::tempdir().unwrap();
    contract(open(folder.path())).await;
}

#[tokio::test]
async fn memory() {
    contract(MemoryStore::new()).await;
}

#[tokio::test]
async fn faulty() {
    contract(FaultyStore::new()).await;
}

async fn contract(store: Arc<dyn Store>) {
    a_missing_session_is_said_to_be_missing(&*store).await;
    a_log_is_made_once_and_read_back(&*store).await;
    an_append_is_refused_with_the_wrong_head_or_epoch(&*store).await;
    events_that_do_not_follow_are_refused_whole(&*store).await;
    reading_keeps_its_limits(&*store).await;
    followers_are_woken(&*store).await;
    the_inbox_gives_back_in_order(&*store).await;
    a_spool_gives_back_what_follows_a_position(&*store).await;
    only_closed_spools_are_swept_and_only_old_ones(&*store).await;
    snapshots_and_turn_records_are_replaced(&*store).await;
    the_first_of_two_equal_keys_counts(&*store).await;
    rows_are_listed_newest_first(&*store).await;
    open_sessions_are_those_not_settled(&*store).await;
    blobs_are_kept_under_plain_names_only(&*store).await;
    many_appends_at_once_go_one_after_the_other(store).await;
}

async fn a_missing_session_is_said_to_be_missing(store: &dyn Store) {
    let id = session(1);
    assert!(matches!(store.head(id).await, Err(Error::NoSession(missing)) if missing == id));
    assert!(matches!(store.read(id, 0, Limit::default()).await, Err(Error::NoSession(_))));
    assert!(matches!(store.claim(id).await, Err(Error::NoSession(_))));
    assert!(matches!(store.snapshot_get(id).await, Err(Error::NoSession(_))));
    assert!(matches!(store.snapshot_put(id, Snapshot { seq: 1, state: "{}".into() }).await, Err(Error::NoSession(_))));
    assert!(matches!(store.spool_append(id, turn(1), &[delta(0, "x")]).await, Err(Error::NoSession(_))));
    assert!(matches!(store.blob_put(id, "artifacts/x", Bytes::new()).await, Err(Error::NoSession(_))));
    assert_eq!(store.blob_get(id, "artifacts/x").await.unwrap(), None);
    assert_eq!(store.turn_get(id, turn(1)).await.unwrap(), None);
}

async fn a_log_is_made_once_and_read_back(store: &dyn Store) {
    let id = session(2);
    assert!(store.create(id, &[]).await.is_err());
    let mut all = vec![created(id), message(id, 2, "first")];
    let (epoch, head) = store.create(id, &all).await.unwrap();
    assert_eq!(head.seq, 2);
    assert!(matches!(store.create(id, &all).await, Err(Error::Exists(existing)) if existing == id));
    let more = messages(id, 3, 7);
    let grown = store.append(id, epoch, 2, &more).await.unwrap();
    assert!(grown.seq == 7 && grown.bytes > head.bytes);
    all.extend(more);
    assert_eq!(store.head(id).await.unwrap(), grown);
    assert_eq!(read_all(store, id).await, all);
    // What is passed on is byte for byte what the event's own JSON is.
    let stored = store.read(id, 2, Limit { events: 1, bytes: 1 << 20 }).await.unwrap();
    assert_eq!(stored[0].json, serde_json::to_vec(&all[2]).unwrap());
    store.renew(id, epoch).await.unwrap();
    store.release(id, epoch).await.unwrap();
}

async fn an_append_is_refused_with_the_wrong_head_or_epoch(store: &dyn Store) {
    let id = session(3);
    store.create(id, &[created(id)]).await.unwrap();
    let Epoch(epoch) = store.claim(id).await.unwrap();
    let event = [message(id, 2, "x")];
    for wrong in [epoch - 1, epoch + 1] {
        let refused = store.append(id, Epoch(wrong), 1, &event).await;
        assert!(matches!(refused, Err(Error::Fenced { ours, theirs }) if ours == wrong && theirs == epoch));
        assert!(matches!(store.renew(id, Epoch(wrong)).await, Err(Error::Fenced { .. })));
    }
    for wrong in [0, 2] {
        let refused = store.append(id, Epoch(epoch), wrong, &event).await;
        assert!(matches!(refused, Err(Error::Conflict { expected, found: 1 }) if expected == wrong));
    }
    assert_eq!(read_all(store, id).await, [created(id)]);
    store.append(id, Epoch(epoch), 1, &event).await.unwrap();
}

async fn events_that_do_not_follow_are_refused_whole(store: &dyn Store) {
    let (id, other) = (session(4), session(5));
    let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
    for wrong in [[message(id, 2, "a"), message(id, 4, "b")], [message(id, 2, "a"), message(other, 3, "b")]] {
        assert!(matches!(store.append(id, epoch, 1, &wrong).await, Err(Error::Other(_))));
    }
    assert_eq!(read_all(store, id).await, [created(id)]);
}

async fn reading_keeps_its_limits(store: &dyn Store) {
    let id = session(6);
    let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
    store.append(id, epoch, 1, &messages(id, 2, 40)).await.unwrap();
    let seqs = async |after, events, bytes| -> Vec<u64> {
        let page = store.read(id, after, Limit { events, bytes }).await.unwrap();
        page.iter().map(|event| event.seq).collect()
    };
    assert_eq!(seqs(0, 3, 1 << 20).await, [1, 2, 3]);
    assert_eq!(seqs(20, 2, 1 << 20).await, [21, 22]);
    assert_eq!(seqs(5, 2, 1 << 20).await, [6, 7]);
    assert_eq!(seqs(5, 100, 1).await, [6]);
    assert_eq!(seqs(5, 0, 0).await, [6]);
    assert_eq!(seqs(38, 100, 1 << 20).await, [39, 40]);
    assert!(seqs(40, 100, 1 << 20).await.is_empty());
    assert!(seqs(u64::MAX, 100, 1 << 20).await.is_empty());
    let two = store.read(id, 10, Limit { events: 2, bytes: 1 << 20 }).await.unwrap();
    let bytes = two[0].json.len() + two[1].json.len();
    assert_eq!(seqs(10, 100, bytes).await, [11, 12]);
    assert_eq!(seqs(10, 100, bytes - 1).await, [11]);
}

async fn followers_are_woken(store: &dyn Store) {
    let id = session(7);
    let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
    let mut tail = store.tail(id);
    assert!(!tail.has_changed().unwrap());
    store.append(id, epoch, 1, &[message(id, 2, "x")]).await.unwrap();
    assert!(tail.has_changed().unwrap());
    tail.mark_unchanged();
    store.spool_append(id, turn(7), &[delta(0, "x")]).await.unwrap();
    assert!(tail.has_changed().unwrap());
    drop(tail);
    store.append(id, epoch, 2, &[message(id, 3, "y")]).await.unwrap();
    assert!(!store.tail(id).has_changed().unwrap());
}

async fn the_inbox_gives_back_in_order(store: &dyn Store) {
    let id = session(8);
    let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
    store.inbox_put(id, "one".into()).await.unwrap();
    store.inbox_put(id, "two".into()).await.unwrap();
    assert!(matches!(store.inbox_take(id, Epoch(epoch.0 + 1)).await, Err(Error::Fenced { .. })));
    assert_eq!(store.inbox_take(id, epoch).await.unwrap(), ["one", "two"]);
    assert!(store.inbox_take(id, epoch).await.unwrap().is_empty());
}

async fn a_spool_gives_back_what_follows_a_position(store: &dyn Store) {
    let (id, turn) = (session(9), turn(9));
    store.create(id, &[created(id)]).await.unwrap();
    assert_eq!(store.spool_read(id, turn, 0, 1000).await.unwrap(), SpoolPage::Records(vec![]));
    assert_eq!(store.spool_read(id, turn, 5, 1000).await.unwrap(), SpoolPage::Gone);
    let deltas = [delta(0, "Hel"), delta(3, "lo, \n"), delta(8, "wörld")];
    let mut ends = store.spool_append(id, turn, &deltas[..2]).await.unwrap();
    ends.extend(store.spool_append(id, turn, &deltas[2..]).await.unwrap());
    let mut expected = 0;
    for (delta, end) in deltas.iter().zip(&ends) {
        expected += delta_bytes(delta, turn);
        assert_eq!(*end, expected);
    }
    let record = |n: usize| SpoolRecord { pos: ends[n], delta: deltas[n].clone() };
    let read = async |pos, bytes| store.spool_read(id, turn, pos, bytes).await.unwrap();
    assert_eq!(read(0, 10_000).await, SpoolPage::Records(vec![record(0), record(1), record(2)]));
    assert_eq!(read(0, 1).await, SpoolPage::Records(vec![record(0)]));
    assert_eq!(read(ends[0], 10_000).await, SpoolPage::Records(vec![record(1), record(2)]));
    assert_eq!(read(ends[2], 10_000).await, SpoolPage::Records(vec![]));
    for wrong in [1, ends[0] - 1, ends[0] + 1, ends[2] + 1, u64::MAX] {
        assert_eq!(read(wrong, 10_000).await, SpoolPage::Gone, "{wrong}");
    }
    let sum = store.spool_close(id, turn).await.unwrap().unwrap();
    let whole: Vec<u8> =
        deltas.iter().flat_map(|delta| [delta.to_line(turn).unwrap(), b"\n".to_vec()].concat()).collect();
    let digits = &blake3::hash(&whole).to_hex()[..16];
    assert_eq!(serde_json::to_value(&sum).unwrap(), serde_json::json!([ends[2], digits]));
    assert_eq!(store.spool_close(id, turn).await.unwrap().unwrap(), sum);
    assert_eq!(read(ends[1], 10_000).await, SpoolPage::Records(vec![record(2)]));
}

async fn only_closed_spools_are_swept_and_only_old_ones(store: &dyn Store) {
    let (id, closed, open) = (session(10), turn(10), turn(11));
    store.create(id, &[created(id)]).await.unwrap();
    store.spool_append(id, closed, &[delta(0, "closed")]).await.unwrap();
    let end = store.spool_append(id, open, &[delta(0, "open")]).await.unwrap()[0];
    store.spool_close(id, closed).await.unwrap();
    assert_eq!(store.sweep(Timestamp::from_ms(0)).await.unwrap(), SweepReport::default());
    store.sweep(Timestamp::from_ms(u64::MAX)).await.unwrap();
    assert_eq!(store.spool_read(id, closed, end, 1000).await.unwrap(), SpoolPage::Gone);
    assert_eq!(store.spool_read(id, open, end, 1000).await.unwrap(), SpoolPage::Records(vec![]));
}

async fn snapshots_and_turn_records_are_replaced(store: &dyn Store) {
    let id = session(12);
    let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
    assert_eq!(store.snapshot_get(id).await.unwrap(), None);
    let first = Snapshot { seq: 1, state: r#"{"a":"first"}"#.into() };
    store.snapshot_put(id, first.clone()).await.unwrap();
    assert_eq!(store.snapshot_get(id).await.unwrap(), Some(first.clone()));
    let ahead = store.snapshot_put(id, Snapshot { seq: 3, ..first.clone() }).await;
    assert!(matches!(ahead, Err(Error::Conflict { expected: 3, found: 1 })));
    store.append(id, epoch, 1, &messages(id, 2, 5)).await.unwrap();
    assert_eq!(store.snapshot_get(id).await.unwrap(), Some(first));
    // One at the head, one behind it, one in the middle of a decision.
    for seq in [5, 1, 3] {
        let next = Snapshot { seq, state: format!("{{\"a\":{seq}}}").into() };
        store.snapshot_put(id, next.clone()).await.unwrap();
        assert_eq!(store.snapshot_get(id).await.unwrap(), Some(next));
    }
    for record in ["{}", r#"{"status":"completed"}"#] {
        store.turn_put(id, turn(12), record.into()).await.unwrap();
        assert_eq!(store.turn_get(id, turn(12)).await.unwrap(), Some(record.into()));
    }
    assert_eq!(store.turn_get(id, turn(13)).await.unwrap(), None);
}

async fn the_first_of_two_equal_keys_counts(store: &dyn Store) {
    let day_ms = 24 * 60 * 60 * 1000;
    let key = |n: u64, at: u64| CreateKey {
        endpoint: "create".into(),
        key: "k".into(),
        digest: format!("d{n}"),
        session_id: session(n),
        at: Timestamp::from_ms(at),
    };
    let get = async |endpoint: &'static str, now| store.key_get(endpoint, "k", Timestamp::from_ms(now)).await.unwrap();
    assert_eq!(get("create", 5).await, None);
    assert_eq!(store.key_put(key(20, 1000)).await.unwrap(), key(20, 1000));
    assert_eq!(store.key_put(key(21, 2000)).await.unwrap(), key(20, 1000));
    assert_eq!(get("create", 2000).await, Some(key(20, 1000)));
    assert_eq!(get("fork", 2000).await, None);
    assert_eq!(get("create", 999 + day_ms).await, Some(key(20, 1000)));
    assert_eq!(get("create", 1000 + day_ms).await, None);
    assert_eq!(store.key_put(key(22, 1000 + day_ms)).await.unwrap(), key(22, 1000 + day_ms));
}

async fn rows_are_listed_newest_first(store: &dyn Store) {
    let mut rows = Vec::new();
    for n in 30..35 {
        let id = session(n);
        store.create(id, &[created(id)]).await.unwrap();
        let at = Timestamp::from_ms(START_MS + n);
        let row = Row {
            id,
            created_at: at,
            updated_at: at,
            status: "active".into(),
            workspace_path: "/tmp/work".into(),
            title: Some("t".repeat(200).into()),
            last_turn_id: Some(turn(n)),
            role: Some("reviewer".into()),
            labels: ["one".into(), "two".into()].into(),
            spent: Spent { steps: 3, micro_usd: 7, ..Spent::default() },
        };
        store.row_put(row.clone()).await.unwrap();
        rows.insert(0, Row { title: Some("t".repeat(80).into()), ..row });
    }
    let upper = Some(session(35));
    assert_eq!(store.list(upper, 3).await.unwrap(), rows[..3]);
    assert_eq!(store.list(Some(rows[2].id), 2).await.unwrap(), rows[3..]);
    let changed = Row { status: "completed".into(), title: None, ..rows[1].clone() };
    store.row_put(changed.clone()).await.unwrap();
    assert_eq!(store.list(upper, 2).await.unwrap(), [rows[0].clone(), changed]);
    assert_eq!(store.list(None, 1000).await.unwrap()[0], rows[0]);
}

async fn open_sessions_are_those_not_settled(store: &dyn Store) {
    let (left, settled) = (session(40), session(41));
    for id in [left, settled] {
        store.create(id, &[created(id)]).await.unwrap();
    }
    store.mark_settled(settled).await.unwrap();
    store.mark_settled(settled).await.unwrap();
    let open = store.open_sessions().await.unwrap();
    assert!(open.contains(&left) && !open.contains(&settled));
    let epoch = store.claim(settled).await.unwrap();
    assert!(!store.open_sessions().await.unwrap().contains(&settled));
    store.append(settled, epoch, 1, &[message(settled, 2, "again")]).await.unwrap();
    assert!(store.open_sessions().await.unwrap().contains(&settled));
}

async fn blobs_are_kept_under_plain_names_only(store: &dyn Store) {
    let id = session(50);
    store.create(id, &[created(id)]).await.unwrap();
    for name in ["artifacts/turn_1/a b.txt", "attachments/ü.png", "note"] {
        for bytes in [&b"\0\xff"[..], b"", b"second"] {
            store.blob_put(id, name, Bytes::from_static(bytes)).await.unwrap();
            assert_eq!(store.blob_get(id, name).await.unwrap().as_deref(), Some(bytes));
        }
    }
    assert_eq!(store.blob_get(id, "artifacts/none").await.unwrap(), None);
    for name in ["", "/x", "../x", "a/../../x", "a\0b", "events.ndjson", "session.json", "logs/x", "turns/x"] {
        assert!(matches!(store.blob_put(id, name, Bytes::new()).await, Err(Error::Other(_))), "{name:?}");
        assert!(matches!(store.blob_get(id, name).await, Err(Error::Other(_))), "{name:?}");
    }
    assert_eq!(read_all(store, id).await, [created(id)]);
}

async fn many_appends_at_once_go_one_after_the_other(store: Arc<dyn Store>) {
    let ids: Vec<_> = (60..80).map(session).collect();
    let mut tasks = Vec::new();
    for id in ids.clone() {
        let (epoch, _) = store.create(id, &[created(id)]).await.unwrap();
        // Several writers race for each number; exactly one wins it.
        for writer in 0..3 {
            let store = store.clone();
            tasks.push(tokio::spawn(async move {
                let mut wins = 0;
                for seq in 2..6 {
                    let event = message(id, seq, &format!("writer {writer}"));
                    match store.append(id, epoch, seq - 1, &[event]).await {
                        Ok(_) => wins += 1,
                        Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                (id, wins)
            }));
        }
    }
    let mut wins = std::collections::HashMap::new();
    for task in tasks {
        let (id, won) = task.await.unwrap();
        *wins.entry(id).or_insert(0) += won;
    }
    for id in ids {
        let events = read_all(&*store, id).await;
        assert!(events.iter().map(|event| event.seq).eq(1..=events.len() as u64));
        assert_eq!(events.len(), 1 + wins[&id]);
    }
}

//! Every cursor of every stream leads to exactly what follows it: in the past, while it happens, after a restart.

use serde_json::{Value, json};
use tenure_core::{cursor::Cursor, ids::SessionId, message::Delivery, time::Timestamp, tool::ToolKind};
use tenure_engine::{Error, StreamItem};
use tenure_store::FileStore;
use tenure_testkit::{Rig, RigSetup, TestTool, as_json, message};

/// Turns with tools, failed attempts, thinking and a failure.
fn eventful() -> RigSetup {
    let steps = json!([
        {"do": [{"thinking": "let me think", "chunk": 3, "pause_ms": 5}, {"text": "Looking around.", "chunk": 4, "pause_ms": 5},
                {"call": {"name": "look", "input": {"at": "a"}}, "chunk": 5, "pause_ms": 5},
                {"call": {"name": "look", "input": {"at": "b"}}}]},
        {"attempts": [{"do": [{"text": "Cut sh"}, {"drop": true}]},
                      {"do": [{"error": {"kind": "overloaded", "message": "busy", "retry_after_ms": 5}}]},
                      {"do": [{"text": "Third try.", "chunk": 2, "pause_ms": 5}]}]},
        {"do": [{"text": "Second turn.", "chunk": 3, "pause_ms": 5}]},
        {"cases": [{"seen": "fourth", "do": [{"text": "Fourth turn."}]},
                   {"do": [{"text": "Breaks "}, {"error": {"kind": "auth", "message": "no"}}]}]}
    ]);
    let look = TestTool::new("look", ToolKind::Read).showing(&["line 1\n", "line 2\n"]).shared();
    Rig::steps(steps).tool(&look)
}

async fn live_through(rig: &Rig) -> SessionId {
    let session = rig.create().await;
    for text in ["first", "second", "third", "fourth"] {
        rig.ask(session, text).await;
    }
    session
}

fn plain(items: &[StreamItem]) -> Vec<(String, Value)> {
    items.iter().map(|item| (item.cursor.to_string(), as_json(item))).collect()
}

#[tokio::test(start_paused = true)]
async fn every_cursor_of_the_past_gives_exactly_the_rest() {
    let rig = eventful().start().await;
    let session = live_through(&rig).await;
    let all = rig.sound(session).await;
    assert!(all.len() > 40, "{}", all.len());
    for (index, item) in all.iter().enumerate() {
        let rest = rig.items_after(session, item.cursor).await;
        assert_eq!(plain(&rest), plain(&all[index + 1..]), "after {}", item.cursor);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_live_is_what_the_past_tells_byte_for_byte() {
    let rig = eventful().start().await;
    let session = rig.create().await;
    let recorder = rig.record(session).await;
    for text in ["first", "second", "third", "fourth"] {
        rig.ask(session, text).await;
    }
    let past = rig.items(session).await;
    let live = recorder.up_to(past.last().unwrap().cursor).await;
    assert_eq!(past.len(), live.len());
    for (live, past) in live.iter().zip(&past) {
        assert_eq!((live.cursor, &live.wire_type, &live.json), (past.cursor, &past.wire_type, &past.json));
    }
}

#[tokio::test(start_paused = true)]
async fn every_cursor_works_in_the_middle_of_a_stream() {
    let steps = json!([
        {"do": [{"text": "Before.", "chunk": 2, "pause_ms": 5}]},
        {"do": [{"text": "Half a sentence", "chunk": 4, "pause_ms": 5}, {"keep_alive": true},
                {"text": " and its end.", "chunk": 4, "pause_ms": 5}]}
    ]);
    let rig = Rig::steps(steps).start().await;
    let session = rig.create().await;
    rig.ask(session, "first").await;
    let mut first = rig.watch(session, Cursor::START).await;
    let turn = rig.say(session, "second").await;
    rig.model_gate().reached(1).await;
    while !as_json(&first.next().await)["data"]["text"].as_str().unwrap_or_default().ends_with("nce") {}
    let so_far = rig.items(session).await;
    let mut watchers = vec![];
    for item in &so_far {
        watchers.push(rig.watch(session, item.cursor).await);
    }
    rig.model_gate().open();
    rig.settled(session, turn).await;
    let all = rig.sound(session).await;
    assert_eq!(plain(&all[..so_far.len()]), plain(&so_far));
    for (index, watcher) in watchers.iter_mut().enumerate() {
        let mut seen = vec![];
        while seen.len() + index + 1 < all.len() {
            seen.push(watcher.next().await);
        }
        assert_eq!(plain(&seen), plain(&all[index + 1..]), "after {}", so_far[index].cursor);
    }
}

#[tokio::test(start_paused = true)]
async fn every_cursor_works_across_a_restart() {
    let steps = json!([
        {"do": [{"text": "Before.", "chunk": 2, "pause_ms": 5}]},
        {"attempts": [{"do": [{"text": "Half a sentence", "chunk": 4, "pause_ms": 5}, {"keep_alive": true}]},
                      {"do": [{"text": "A whole one.", "chunk": 4, "pause_ms": 5}]}]}
    ]);
    let mut rig = Rig::steps(steps).start().await;
    let session = rig.create().await;
    rig.ask(session, "first").await;
    let turn = rig.say(session, "second").await;
    rig.model_gate().reached(1).await;
    let mut watcher = rig.watch(session, Cursor::START).await;
    while !as_json(&watcher.next().await)["data"]["text"].as_str().unwrap_or_default().ends_with("nce") {}
    let before = rig.items(session).await;
    rig.crash_and_restart().await;
    rig.settled(session, turn).await;
    let all = rig.sound(session).await;
    assert_eq!(plain(&all[..before.len()]), plain(&before));
    for (index, item) in before.iter().enumerate() {
        let rest = rig.items_after(session, item.cursor).await;
        assert_eq!(plain(&rest), plain(&all[index + 1..]), "after {}", item.cursor);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watcher_that_falls_far_behind_misses_nothing() {
    let long = "0123456789".repeat(100);
    let rig = Rig::steps(json!([{"do": [{"text": long, "chunk": 1, "pause_ms": 1}]}])).start().await;
    let session = rig.create().await;
    let mut watcher = rig.watch(session, Cursor::START).await;
    let turn = rig.say(session, "hi").await;
    // It has come to the present and is handed what is shown; then it falls behind.
    let mut seen = watcher.until("model_output_delta").await;
    seen.push(watcher.next().await);
    rig.settled(session, turn).await;
    let all = rig.sound(session).await;
    assert!(all.len() > 512, "{}", all.len());
    seen.extend(watcher.until("turn_completed").await);
    assert_eq!(plain(&seen), plain(&all));
}

#[tokio::test(start_paused = true)]
async fn items_too_large_to_hold_are_read_from_the_log() {
    let (huge, larger) = ("ä".repeat(20_000), "ö".repeat(300_000));
    let look = TestTool::new("look", ToolKind::Read).showing(&["a line\n"]).shared();
    let steps = json!([
        {"do": [{"text": larger, "chunk": 50_000, "pause_ms": 1}, {"call": {"name": "look", "input": {}}}]},
        {"do": [{"text": "And so on.", "chunk": 2, "pause_ms": 1}]}
    ]);
    let rig = Rig::steps(steps).tool(&look).start().await;
    let session = rig.create().await;
    let recorder = rig.record(session).await;
    rig.ask(session, &huge).await;
    let all = rig.sound(session).await;
    assert_eq!(plain(&recorder.up_to(all.last().unwrap().cursor).await), plain(&all));
    for (index, item) in all.iter().enumerate() {
        assert_eq!(plain(&rig.items_after(session, item.cursor).await), plain(&all[index + 1..]));
    }
}

#[tokio::test]
async fn clients_that_are_told_a_large_event_hold_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = FileStore::open(folder.path(), Default::default()).expect("a store");
    let steps = json!([{"do": [{"text": "ö".repeat(50_000)}]}]);
    let rig = Rig::steps(steps).store(store).start().await;
    let session = rig.create().await;
    rig.ask(session, "go on").await;
    let mut held: Vec<StreamItem> = Vec::new();
    for follow in [false, false, true, true] {
        let mut told = rig.engine.events(session, Cursor::default(), follow).await.expect("a stream");
        let reply = loop {
            let item = told.next().await.expect("there is more").expect("an item");
            if item.wire_type == "model_output_completed" {
                break item;
            }
        };
        held.push(reply);
    }
    assert!(held.iter().all(|item| item.json.as_ptr() == held[0].json.as_ptr()));
    assert_eq!(plain(&held[..1]), plain(&held[3..]));
}

#[tokio::test(start_paused = true)]
async fn a_cursor_that_leads_nowhere_resets_the_stream() {
    let rig = eventful().start().await;
    let session = live_through(&rig).await;
    let all = rig.items(session).await;
    let delta = all.iter().rfind(|item| item.cursor.pos > 0).unwrap().cursor;
    let head = all.last().unwrap().cursor.seq;
    let bogus = [
        (Cursor { seq: delta.seq, pos: delta.pos - 1 }, delta.seq),
        (Cursor { seq: delta.seq, pos: delta.pos + 100_000 }, delta.seq),
        // No turn is open after the first and after the last event.
        (Cursor { seq: 1, pos: 7 }, 1),
        (Cursor { seq: head, pos: 7 }, head),
    ];
    for (cursor, after) in bogus {
        let seen = rig.items_after(session, cursor).await;
        assert_eq!(seen[0].wire_type, "stream_reset", "{cursor}");
        assert_eq!((as_json(&seen[0])["data"]["after"].as_u64(), seen[0].cursor), (Some(after), Cursor::at(after)));
        assert_eq!(plain(&seen[1..]), plain(&rig.items_after(session, Cursor::at(after)).await), "{cursor}");
    }
    // What nobody can have seen is no place to go on from.
    for cursor in [Cursor::at(head + 1), Cursor { seq: u64::MAX, pos: u64::MAX }] {
        for follow in [true, false] {
            let refused = rig.engine.events(session, cursor, follow).await.err();
            assert!(matches!(&refused, Some(Error::Refused(refusal)) if refusal.code == "bad_cursor"), "{refused:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_spool_is_gone_the_numbered_events_carry_the_whole() {
    let rig = eventful().start().await;
    let session = live_through(&rig).await;
    let all = rig.items(session).await;
    rig.store().sweep(Timestamp::from_ms(u64::MAX)).await.unwrap();
    let numbered: Vec<StreamItem> = all.iter().filter(|item| item.cursor.pos == 0).cloned().collect();
    assert_eq!(plain(&rig.items(session).await), plain(&numbered));
    for item in all.iter().filter(|item| item.cursor.pos > 0) {
        let seen = rig.items_after(session, item.cursor).await;
        assert_eq!(seen[0].wire_type, "stream_reset");
        assert_eq!(plain(&seen[1..]), plain(&numbered[item.cursor.seq as usize..]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_the_daemon_stops_and_unknown_sessions_have_none() {
    let rig = eventful().start().await;
    let session = live_through(&rig).await;
    let all = rig.items(session).await;
    let watcher = rig.watch(session, Cursor::START).await;
    assert_eq!(rig.engine.subscribers(), 1);
    rig.crash().await;
    assert_eq!(plain(&watcher.rest().await), plain(&all));
    assert_eq!(rig.engine.subscribers(), 0);
    let nobody: SessionId = serde_json::from_value(json!("sess_00000000000000000000000000")).unwrap();
    assert!(rig.engine.events(nobody, Cursor::START, true).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn giving_up_on_an_item_loses_nothing() {
    let rig = eventful().start().await;
    let session = rig.create().await;
    let mut subscription = rig.engine.events(session, Cursor::START, true).await.unwrap();
    rig.command(session, message("first", Delivery::Queue)).await.unwrap();
    let mut seen = vec![];
    while seen.last().is_none_or(|item: &StreamItem| item.wire_type != "turn_completed") {
        // The stream is asked again and again and mostly not waited for.
        tokio::select! {
            biased;
            item = subscription.next() => seen.push(item.unwrap().unwrap()),
            () = tokio::time::sleep(std::time::Duration::from_millis(1)) => {}
        }
    }
    assert_eq!(plain(&seen), plain(&rig.items(session).await));
}

//! A disk that says no: nothing half done, nothing shown that is not written, nothing done twice, nobody else harmed.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tenure_core::{command::Command, cursor::Cursor, message::Delivery, tool::ToolKind};
use tenure_engine::{Error, RecordStatus};
use tenure_store::{Fault, FaultyStore, MemoryStore, Point, Store};
use tenure_testkit::{Rig, RigSetup, TestTool, UnwillingStore, as_json, message, trusting};

fn over(steps: serde_json::Value) -> (RigSetup, Arc<UnwillingStore>) {
    let store = UnwillingStore::over(MemoryStore::new());
    (Rig::steps(steps).store(store.clone()), store)
}

#[tokio::test(start_paused = true)]
async fn a_command_that_cannot_be_written_changes_nothing_and_works_afterwards() {
    let (setup, store) = over(json!([{"do": [{"text": "a"}]}]));
    let rig = setup.start().await;
    let session = rig.create().await;
    let before = rig.state(session).await;
    store.refuse_appends(session, 2);
    for _ in 0..2 {
        let refused = rig.keyed(session, "k", message("hi", Delivery::Queue)).await;
        assert!(matches!(refused, Err(Error::Store(tenure_store::Error::Disk { .. }))), "{refused:?}");
        assert_eq!(rig.state(session).await, before);
        assert_eq!(rig.types(session).await, ["session_created"]);
    }
    rig.keyed(session, "k", message("hi", Delivery::Queue)).await.unwrap();
    rig.until(session, "the turn is over", |state| state.turn.is_none()).await;
    // People are told, once for all that was refused.
    let told = |words: &str| rig.engine.notices().iter().filter(|notice| notice.contains(words)).count();
    assert_eq!((told("takes no commands"), told("takes commands again")), (1, 1), "{:?}", rig.engine.notices());
    assert_eq!(rig.sound(session).await.iter().filter(|item| item.wire_type == "message_added").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_written_is_held_and_recorded_once() {
    for times in [1, 5] {
        let act = TestTool::new("act", ToolKind::Exec).showing(&["out"]).shared();
        let (setup, store) =
            over(json!([{"do": [{"call": {"name": "act", "input": {}}}]}, {"do": [{"text": "done"}]}]));
        let rig = setup.tool(&act).start().await;
        let (session, other) = (rig.create_with(trusting).await, rig.create_with(trusting).await);
        store.refuse_decisions(session, "tool_call_completed", times);
        let turn = rig.say(session, "go").await;
        store.refused(times).await;
        let shown = rig.types(session).await;
        assert_eq!(shown.last(), Some(&"tool_call_started"), "what is not written is not shown");
        // While it is held nothing overtakes it, and others are not harmed.
        let command = rig.command(session, message("x", Delivery::Queue)).await;
        assert!(matches!(command, Err(Error::Store(tenure_store::Error::Disk { .. }))), "{command:?}");
        assert_eq!(rig.ask(other, "go").await.status, RecordStatus::Completed);
        assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
        assert_eq!(act.runs(), 2, "once in each session");
        rig.sound(session).await;
        let notices = rig.engine.notices();
        assert!(notices.iter().any(|notice| notice.contains("closed for writing")), "{notices:?}");
        assert!(notices.iter().any(|notice| notice.contains("open for writing again")), "{notices:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_cannot_be_written_is_held_and_its_tools_wait() {
    let look = TestTool::new("look", ToolKind::Read).shared();
    let (setup, store) = over(
        json!([{"do": [{"text": "Looking."}, {"call": {"name": "look", "input": {}}}]}, {"do": [{"text": "done"}]}]),
    );
    let rig = setup.tool(&look).start().await;
    let session = rig.create().await;
    store.refuse_decisions(session, "model_output_completed", 3);
    let turn = rig.say(session, "go").await;
    store.refused(3).await;
    assert_eq!(look.runs(), 0);
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(look.runs(), 1);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn deltas_that_cannot_be_written_are_held_and_not_shown() {
    let (setup, store) = over(json!([{"do": [{"text": "One two three.", "chunk": 4, "pause_ms": 10}]}]));
    let rig = setup.start().await;
    let session = rig.create().await;
    let mut watcher = rig.watch(session, Cursor::START).await;
    store.refuse_deltas(session, 4);
    let turn = rig.say(session, "go").await;
    store.refused(4).await;
    assert!(!rig.items(session).await.iter().any(|item| item.cursor.pos > 0));
    let live = watcher.until("turn_completed").await;
    rig.settled(session, turn).await;
    let all = rig.sound(session).await;
    assert_eq!(
        live.iter().map(|item| item.cursor).collect::<Vec<_>>(),
        all.iter().map(|item| item.cursor).collect::<Vec<_>>()
    );
    let text: String = all
        .iter()
        .filter(|item| item.cursor.pos > 0)
        .map(|item| as_json(item)["data"]["text"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(text, "One two three.");
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_that_cannot_be_written_keeps_its_text() {
    let steps = json!([{"attempts": [{"do": [{"text": "Half "}, {"drop": true}]}, {"do": [{"text": "well"}]}]}]);
    let (setup, store) = over(steps);
    let rig = setup.start().await;
    let session = rig.create().await;
    store.refuse_decisions(session, "model_attempt_failed", 3);
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Completed);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_canceled_turn_is_written_as_soon_as_the_disk_takes_it() {
    let (setup, store) = over(json!([{"do": [{"text": "Half "}, {"keep_alive": true}]}]));
    let rig = setup.start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    rig.watch(session, Cursor::START).await.until("model_output_delta").await;
    store.refuse_decisions(session, "model_attempt_failed", 3);
    rig.cancel(session).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_recovery_that_cannot_be_written_is_tried_again_and_commands_wait_for_it() {
    let store = UnwillingStore::over(MemoryStore::new());
    let steps = json!([{"attempts": [{"do": [{"text": "Half "}, {"keep_alive": true}]}, {"do": [{"text": "well"}]}]}]);
    let mut rig = Rig::steps(steps).store(store.clone()).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    rig.watch(session, Cursor::START).await.until("model_output_delta").await;
    rig.crash().await;
    store.refuse_appends(session, 1);
    rig.restart().await;
    store.refused(1).await;
    let early = rig.command(session, Command::Cancel { turn_id: None, reason: None }).await;
    assert!(matches!(early, Err(Error::Store(tenure_store::Error::Disk { .. }))), "{early:?}");
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_session_that_cannot_be_warmed_says_so_and_can_be_later() {
    let store = UnwillingStore::over(MemoryStore::new());
    let mut rig = Rig::steps(json!([{"do": [{"text": "a"}]}])).store(store.clone()).start().await;
    let session = rig.create().await;
    rig.crash().await;
    store.refuse_claims(session, 2);
    rig.restart().await;
    assert!(rig.engine.notices().iter().any(|notice| notice.contains("could not be recovered")));
    assert!(rig.command(session, message("x", Delivery::Queue)).await.is_err());
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_bug_beside_a_session_ends_its_task_and_nothing_else() {
    let (setup, store) = over(json!([{"do": [{"text": "a"}]}]));
    let rig = setup.start().await;
    let (session, other) = (rig.create().await, rig.create().await);
    let mut watcher = rig.watch(session, Cursor::START).await;
    store.panic_on_appends(session, 1);
    let broken = rig.command(session, message("x", Delivery::Queue)).await;
    assert!(matches!(broken, Err(Error::Bug(_))), "{broken:?}");
    assert_eq!(rig.ask(other, "go").await.status, RecordStatus::Completed);
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Completed);
    assert_eq!(watcher.until("turn_completed").await.len(), rig.sound(session).await.len());
    assert!(rig.engine.notices().iter().any(|notice| notice.contains("a fault of the daemon")));
}

#[tokio::test(start_paused = true)]
async fn another_writer_ends_this_one_s_right_and_the_next_command_begins_anew() {
    let store = MemoryStore::new();
    let rig = Rig::steps(json!([{"do": [{"text": "a"}]}])).store(store.clone()).start().await;
    let session = rig.create().await;
    store.claim(session).await.unwrap();
    let fenced = rig.command(session, message("x", Delivery::Queue)).await;
    assert!(matches!(fenced, Err(Error::Store(tenure_store::Error::Fenced { .. }))), "{fenced:?}");
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Completed);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn another_writer_in_the_middle_of_a_turn_stops_its_work() {
    let store = MemoryStore::new();
    let act = TestTool::new("act", ToolKind::Exec).gated().shared();
    let steps = json!([{"do": [{"call": {"name": "act", "input": {}}}]}, {"do": [{"text": "done"}]}]);
    let rig = Rig::steps(steps).tool(&act).store(store.clone()).start().await;
    let session = rig.create_with(trusting).await;
    let turn = rig.say(session, "go").await;
    act.gate().reached(1).await;
    store.claim(session).await.unwrap();
    act.gate().open();
    rig.until(session, "the turn rests", |state| state.turn.is_some()).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Whoever asks next takes over; the call's outcome is unknown.
    rig.command(session, Command::Resume { turn_id: turn }).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(act.runs(), 1);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn the_file_store_on_a_failing_disk_loses_and_repeats_nothing() {
    let points = [Point::LogWrite, Point::LogSync, Point::SpoolWrite];
    for point in points {
        for after in 0..8 {
            let act = TestTool::new("act", ToolKind::Exec).showing(&["out\n"]).shared();
            let store = FaultyStore::new();
            let steps = json!([
                {"do": [{"text": "Working on it.", "chunk": 5, "pause_ms": 10}, {"call": {"name": "act", "input": {}}}]},
                {"do": [{"text": "done"}]}
            ]);
            let rig = Rig::steps(steps).tool(&act).store(store.clone()).start().await;
            let session = rig.create_with(trusting).await;
            store.plan(Fault::next(point).after(after).times(3));
            let turn = loop {
                match rig.keyed(session, "k", message("go", Delivery::Queue)).await {
                    Ok(tenure_core::command::Answer::Message { turn_id: Some(turn), .. }) => break turn,
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            };
            let record = rig.settled(session, turn).await;
            assert_eq!(record.status, RecordStatus::Completed, "{point:?} after {after}");
            assert_eq!(act.runs(), 1, "{point:?} after {after}");
            rig.sound(session).await;
        }
    }
}

//! Many watchers, many sessions, and bugs that stay where they are.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tenure_core::{cursor::Cursor, tool::ToolKind};
use tenure_engine::{Error, RecordStatus};
use tenure_store::{FaultyStore, MemoryStore, Store};
use tenure_testkit::{Rig, TestTool, assert_sound, trusting};

#[tokio::test(start_paused = true)]
async fn a_thousand_watchers_all_see_all() {
    let text = "0123456789".repeat(40);
    let rig = Rig::steps(json!([{"do": [{"text": text, "chunk": 1, "pause_ms": 1}]}])).start().await;
    let session = rig.create().await;
    let mut watchers = vec![];
    for index in 0..1000u64 {
        let mut watcher = rig.watch(session, Cursor::START).await;
        watchers.push(tokio::spawn(async move {
            let mut items = vec![];
            loop {
                let item = watcher.next().await;
                let last = item.wire_type == "turn_completed";
                items.push(item);
                if last {
                    return items;
                }
                if index % 10 == 0 {
                    // A slow one.
                    tokio::time::sleep(Duration::from_millis(index / 100)).await;
                }
            }
        }));
    }
    assert_eq!(rig.engine.subscribers(), 1000);
    rig.ask(session, "go").await;
    let all = rig.sound(session).await;
    let cursors: Vec<Cursor> = all.iter().map(|item| item.cursor).collect();
    for watcher in watchers {
        let seen = watcher.await.unwrap();
        assert_eq!(seen.iter().map(|item| item.cursor).collect::<Vec<_>>(), cursors);
        assert_sound(&seen);
    }
    assert_eq!(rig.engine.subscribers(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_sessions_on_many_threads_each_keep_their_order() {
    let stores: [Arc<dyn Store>; 2] = [MemoryStore::new(), FaultyStore::new()];
    for store in stores {
        let look = TestTool::new("look", ToolKind::Read).showing(&["a", "b"]).shared();
        let call = json!({"call": {"name": "look", "input": {}}});
        let steps = json!([
            {"do": [{"text": "One two three", "chunk": 2, "pause_ms": 1}, call, call, call]},
            {"do": [{"text": "done", "chunk": 1, "pause_ms": 1}]}
        ]);
        let rig = Arc::new(Rig::steps(steps).tool(&look).store(store).start().await);
        let each = |_| {
            let rig = rig.clone();
            tokio::spawn(async move {
                let session = rig.create().await;
                let mut watcher = rig.watch(session, Cursor::START).await;
                let turn = rig.say(session, "go").await;
                let live = watcher.until("turn_completed").await;
                rig.settled(session, turn).await;
                assert_sound(&live);
                rig.sound(session).await;
            })
        };
        for session in (0..40).map(each).collect::<Vec<_>>() {
            tokio::time::timeout(Duration::from_secs(60), session).await.expect("all come to their end").unwrap();
        }
        assert_eq!(look.runs(), 120);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_ends_only_its_call() {
    let bad =
        TestTool::new("bad", ToolKind::Exec).doing(|_, _| async { panic!("a tool that breaks on purpose") }).shared();
    let fine = TestTool::new("fine", ToolKind::Exec).shared();
    let calls = json!([{"call": {"name": "bad", "input": {}}}, {"call": {"name": "fine", "input": {}}}]);
    let steps = json!([{"do": calls}, {"cases": [{"seen": "a fault of the daemon", "do": [{"text": "I see."}]}]}]);
    let rig = Rig::steps(steps).tool(&bad).tool(&fine).start().await;
    let session = rig.create_with(trusting).await;
    let record = rig.ask(session, "go").await;
    assert_eq!((record.status, fine.runs(), bad.runs()), (RecordStatus::Completed, 1, 1));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_work_but_not_for_ever_and_then_nothing_is_taken() {
    let act = TestTool::new("act", ToolKind::Exec).gated().stubborn().shared();
    let rig = Rig::steps(json!([{"do": [{"call": {"name": "act", "input": {}}}]}])).tool(&act).start().await;
    let session = rig.create_with(trusting).await;
    rig.say(session, "go").await;
    act.gate().reached(1).await;
    assert_eq!(rig.engine.open_turns(), 1);
    let before = rig.types(session).await;
    let began = tokio::time::Instant::now();
    rig.crash().await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(rig.types(session).await, before, "nothing is written about it");
    assert_eq!((rig.engine.open_turns(), act.runs()), (0, 1));
    assert!(matches!(rig.cancel(session).await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn more_commands_than_a_mailbox_holds_are_refused_at_once() {
    let rig = Rig::steps(json!([])).config(|config| config.mailbox_max = 4).start().await;
    let session = rig.create_with(|new| new.settings.auto_run = false).await;
    let commands = (0..20).map(|_| rig.command(session, tenure_testkit::message("x", Default::default())));
    let answers: Vec<_> = futures::future::join_all(commands).await;
    let refused = answers.iter().filter(|answer| matches!(answer, Err(Error::Overloaded))).count();
    let taken = answers.iter().filter(|answer| answer.is_ok()).count();
    assert!(refused > 0 && taken >= 4 && refused + taken == 20, "{taken} taken, {refused} refused");
    let messages = rig.types(session).await.iter().filter(|kind| **kind == "message_added").count();
    assert_eq!(messages, taken);
}

//! Idle sessions leave the memory and come back as they were; no command is lost on the way.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tenure_core::{
    command::Command,
    message::{Delivery, Part, Role},
    policy::Resume,
    tool::ToolKind,
};
use tenure_engine::RecordStatus;
use tenure_testkit::{Rig, RigSetup, TestTool, message};

fn short_lived(idle: Duration) -> RigSetup {
    let script = json!({"steps": [{"do": [{"text": "a"}]}], "after": "repeat"});
    Rig::script(script).config(move |config| config.idle_evict = idle)
}

fn append(text: String) -> Command {
    Command::SendMessage {
        role: Role::User,
        parts: vec![Part::text(text)],
        delivery: Delivery::Queue,
        auto_run: Some(false),
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_session_goes_out_of_memory_and_comes_back_from_its_snapshot() {
    let rig = short_lived(Duration::from_secs(5)).start().await;
    let session = rig.create().await;
    let first = rig.ask(session, "one").await;
    assert_eq!(rig.store().open_sessions().await.unwrap(), [session]);
    let warm = rig.state(session).await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(rig.store().open_sessions().await.unwrap(), [], "nothing is pending");
    let snapshot = rig.store().snapshot_get(session).await.unwrap().unwrap();
    assert_eq!(snapshot.seq, rig.store().head(session).await.unwrap().seq);
    assert_eq!(rig.state(session).await, warm);
    assert_eq!(rig.engine.turn(session, first.id, None).await.unwrap(), first);
    assert_eq!(rig.store().open_sessions().await.unwrap(), [], "looking does not warm it");
    assert_eq!(rig.ask(session, "two").await.status, RecordStatus::Completed);
    assert_eq!(rig.store().open_sessions().await.unwrap(), [session]);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_person_may_leave_the_memory_but_is_not_settled() {
    let act = TestTool::new("act", ToolKind::Exec).shared();
    let steps = json!([{"do": [{"call": {"name": "act", "input": {}}}]}, {"do": [{"text": "done"}]}]);
    let rig = Rig::steps(steps).tool(&act).config(|config| config.idle_evict = Duration::from_secs(5)).start().await;
    let session = rig.create_with(|new| new.policy.recovery.resume = Resume::Ask).await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.store().open_sessions().await.unwrap(), [session]);
    assert_eq!(rig.engine.open_turns(), 0, "it is not in memory");
    assert_eq!(rig.engine.turn(session, turn, None).await.unwrap().status, RecordStatus::WaitingApproval);
    rig.answer(session, call, tenure_core::command::Verdict::Approve).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_watcher_of_a_cold_session_sees_what_comes() {
    let rig = short_lived(Duration::from_secs(5)).start().await;
    let session = rig.create().await;
    rig.ask(session, "one").await;
    let head = rig.items(session).await.last().unwrap().cursor;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let mut watcher = rig.watch(session, head).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.say(session, "two").await;
    let seen = watcher.until("turn_completed").await;
    assert_eq!(seen.len(), rig.items_after(session, head).await.len());
    tokio::time::sleep(Duration::from_secs(60)).await;
    rig.say(session, "three").await;
    watcher.until("turn_completed").await;
}

#[tokio::test(start_paused = true)]
async fn no_command_is_lost_to_eviction() {
    let rig = short_lived(Duration::from_millis(1)).start().await;
    let session = rig.create().await;
    for number in 0..200u64 {
        tokio::time::sleep(Duration::from_micros(number * 37 % 2500)).await;
        rig.command(session, append(number.to_string())).await.unwrap();
    }
    rig.sound(session).await;
    let messages = rig.types(session).await.iter().filter(|kind| **kind == "message_added").count();
    assert_eq!(messages, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_command_is_lost_to_eviction_on_many_threads() {
    for idle in [Duration::ZERO, Duration::from_micros(200), Duration::from_millis(2)] {
        let rig = Arc::new(short_lived(idle).start().await);
        let session = rig.create().await;
        let senders: Vec<_> = (0..8)
            .map(|sender| {
                let rig = rig.clone();
                tokio::spawn(async move {
                    for number in 0..30u64 {
                        rig.command(session, append(format!("{sender} {number}"))).await.unwrap();
                        tokio::time::sleep(Duration::from_micros((number * 131) % 1500)).await;
                    }
                })
            })
            .collect();
        for sender in senders {
            tokio::time::timeout(Duration::from_secs(60), sender).await.expect("commands are answered").unwrap();
        }
        let messages = rig.types(session).await.iter().filter(|kind| **kind == "message_added").count();
        assert_eq!(messages, 8 * 30, "{idle:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_session_expires_and_old_spools_are_swept() {
    let rig = short_lived(Duration::from_secs(30)).start().await;
    let (old, waiting) = (rig.create().await, rig.create().await);
    rig.ask(old, "one").await;
    tokio::time::sleep(Duration::from_secs(6 * 24 * 3600)).await;
    rig.ask(waiting, "still here").await;
    assert_eq!(rig.state(old).await.status(), "active");
    tokio::time::sleep(Duration::from_secs(2 * 24 * 3600)).await;
    assert_eq!(rig.state(old).await.status(), "expired");
    assert_eq!(rig.state(waiting).await.status(), "active");
    let refused = rig.command(old, message("x", Delivery::Queue)).await;
    assert!(refused.is_err());
    rig.sound(old).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_log_gets_snapshots_on_the_way() {
    let rig = short_lived(Duration::from_secs(3600)).start().await;
    let session = rig.create().await;
    for _ in 0..4 {
        rig.command(session, append("x".repeat(30_000))).await.unwrap();
    }
    let seq = rig.store().snapshot_get(session).await.unwrap().unwrap().seq;
    assert!(seq >= 3, "{seq}");
    // A snapshot is a cache: without it the log alone gives the same state.
    let state = rig.state(session).await;
    let broken = tenure_store::Snapshot { seq, state: "{}".into() };
    rig.store().snapshot_put(session, broken).await.unwrap();
    rig.crash().await;
    assert_eq!(rig.state(session).await, state);
}

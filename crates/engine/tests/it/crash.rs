//! The daemon is stopped while a model answers, while a turn waits, while it is being canceled.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::{
    budget::Budgets,
    command::Command,
    cursor::Cursor,
    event::Body,
    model::FaultKind,
    policy::Resume,
    session::{AUTO_RESUMES_MAX, Phase, Session, TurnStatus},
    tool::ToolKind,
};
use tenure_engine::{Error, RecordStatus, TurnRecord, Wanted};
use tenure_store::MemoryStore;
use tenure_testkit::{Rig, RigSetup, TestTool, UnwillingStore, trusting};

/// The first attempt waits in mid-sentence, the second answers.
fn cut_once() -> RigSetup {
    Rig::steps(json!([{"attempts": [{"do": [{"text": "Half a sen"}, {"keep_alive": true}, {"text": "tence"}]},
                                    {"do": [{"text": "A whole one."}]}]}]))
}

fn interrupted(state: &Session) -> bool {
    state.turn.as_ref().is_some_and(|turn| turn.phase == Phase::Interrupted)
}

#[tokio::test(start_paused = true)]
async fn in_the_model_s_stream_the_attempt_is_closed_and_the_next_one_answers() {
    let mut rig = cut_once().start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    rig.watch(session, Cursor::START).await.until("model_output_delta").await;
    rig.crash_and_restart().await;
    let record = rig.settled(session, turn).await;
    assert_eq!((record.status, record.response.unwrap().text.as_str()), (RecordStatus::Completed, "A whole one."));
    let expected = [
        "session_created",
        "message_added",
        "turn_started",
        "model_attempt_failed",
        "turn_interrupted",
        "turn_resumed",
        "model_output_completed",
        "turn_completed",
    ];
    assert_eq!(rig.types(session).await, expected);
    let events = rig.events(session).await;
    let (Body::ModelAttemptFailed(cut), Body::ModelOutputCompleted(done)) = (&events[3].body, &events[6].body) else {
        panic!("{events:?}")
    };
    assert_eq!((cut.attempt, cut.reason.kind, cut.text.as_str()), (1, FaultKind::Interrupted, "Half a sen"));
    assert_eq!((done.attempt, done.text.as_str()), (2, "A whole one."));
    rig.sound(session).await;
    // The record on disk has followed.
    assert_eq!(rig.engine.turn(session, turn, None).await.unwrap().status, RecordStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn under_ask_it_waits_for_resume() {
    let mut rig = cut_once().start().await;
    let session = rig.create_with(|new| new.policy.recovery.resume = Resume::Ask).await;
    let turn = rig.say(session, "go").await;
    rig.model_gate().reached(1).await;
    rig.crash_and_restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Interrupted);
    // It stays so, also out of memory and after another restart.
    tokio::time::sleep(Duration::from_secs(120)).await;
    rig.crash_and_restart().await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(rig.engine.turn(session, turn, None).await.unwrap().status, RecordStatus::Interrupted);
    rig.command(session, Command::Resume { turn_id: turn }).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    let again = rig.command(session, Command::Resume { turn_id: turn }).await;
    assert!(matches!(again, Err(Error::Refused(refusal)) if refusal.code == "not_interrupted"));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn the_first_answers_after_a_crash_tell_of_it() {
    for of_one in [true, false] {
        let mut rig = cut_once().start().await;
        let session = rig.create_with(|new| new.policy.recovery.resume = Resume::Ask).await;
        rig.say(session, "go").await;
        rig.model_gate().reached(1).await;
        rig.crash().await;
        rig.start_again().await;
        assert!(!rig.engine.is_ready());
        if of_one {
            assert!(interrupted(&rig.engine.session(session).await.unwrap()));
        } else {
            let found = rig.engine.list(None, 10, &Wanted::default()).await.unwrap();
            assert_eq!(rig.engine.turns_of(&found.rows).await.unwrap(), [Some(TurnStatus::Interrupted)]);
        }
        assert!(rig.engine.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn it_goes_on_by_itself_at_most_three_times_without_progress() {
    let mut rig = Rig::steps(json!([{"do": [{"text": "x"}, {"keep_alive": true}, {"text": "y"}]}])).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    for round in 1..=AUTO_RESUMES_MAX as usize + 1 {
        rig.model_gate().reached(round).await;
        rig.crash_and_restart().await;
    }
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Interrupted);
    assert_eq!(rig.model_gate().count(), AUTO_RESUMES_MAX as usize + 1);
    let types = rig.types(session).await;
    assert_eq!(types.iter().filter(|kind| **kind == "turn_resumed").count(), AUTO_RESUMES_MAX as usize);
    rig.command(session, Command::Resume { turn_id: turn }).await.unwrap();
    rig.model_gate().open();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_message_takes_the_place_of_an_interrupted_turn() {
    let mut rig = cut_once().start().await;
    let session = rig.create_with(|new| new.policy.recovery.resume = Resume::Ask).await;
    let old = rig.say(session, "go").await;
    rig.model_gate().reached(1).await;
    let queued = rig.say(session, "queued").await;
    rig.crash_and_restart().await;
    rig.until(session, "it is interrupted", interrupted).await;
    rig.model_gate().open();
    let new = rig.say(session, "something else").await;
    let record = rig.settled(session, old).await;
    assert_eq!((record.status, record.error.unwrap().code.as_str()), (RecordStatus::Failed, "superseded"));
    for turn in [queued, new] {
        assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    }
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_a_new_turn_that_points_back() {
    let mut rig = cut_once().start().await;
    let session = rig.create_with(|new| new.policy.recovery.resume = Resume::Ask).await;
    let old = rig.say(session, "go").await;
    rig.model_gate().reached(1).await;
    rig.crash_and_restart().await;
    rig.model_gate().open();
    rig.until(session, "it is interrupted", interrupted).await;
    let Ok(tenure_core::command::Answer::Turn { turn_id }) =
        rig.command(session, Command::Retry { turn_id: old }).await
    else {
        panic!("no turn")
    };
    let record = rig.settled(session, turn_id).await;
    assert_eq!((record.status, record.retry_of), (RecordStatus::Completed, Some(old)));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_waits_for_its_budget_stays_as_it_is() {
    let look = TestTool::new("look", ToolKind::Read).shared();
    let steps = json!([{"do": [{"call": {"name": "look", "input": {}}}]}, {"do": [{"text": "done"}]}]);
    let mut rig = Rig::steps(steps).tool(&look).start().await;
    let session = rig.create_with(|new| new.budgets.max_steps = Some(1)).await;
    let turn = rig.say(session, "go").await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::WaitingBudget);
    let before = rig.types(session).await;
    rig.crash_and_restart().await;
    assert_eq!(rig.engine.turn(session, turn, None).await.unwrap().status, RecordStatus::WaitingBudget);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.types(session).await, before);
    rig.update(session, Budgets { max_steps: Some(2), ..Budgets::default() }).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(look.runs(), 1);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn while_a_tool_is_being_stopped_the_turn_is_canceled_afterwards() {
    let act = TestTool::new("act", ToolKind::Exec).gated().stubborn().shared();
    let steps = json!([{"do": [{"text": "Working."}, {"call": {"name": "act", "input": {}}}]}]);
    let mut rig = Rig::steps(steps).tool(&act).start().await;
    let session = rig.create_with(trusting).await;
    let turn = rig.say(session, "go").await;
    act.gate().reached(1).await;
    rig.cancel(session).await.unwrap();
    rig.crash_and_restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    assert_eq!(act.runs(), 1);
    let types = rig.types(session).await;
    assert!(!types.contains(&"turn_interrupted"), "{types:?}");
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn while_a_reply_is_being_stopped_its_text_is_kept_all_the_same() {
    let store = UnwillingStore::over(MemoryStore::new());
    let mut rig = cut_once().store(store.clone()).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    rig.watch(session, Cursor::START).await.until("model_output_delta").await;
    // The end of the turn cannot be written, and then the daemon dies.
    store.refuse_decisions(session, "model_attempt_failed", 1);
    rig.cancel(session).await.unwrap();
    store.refused(1).await;
    rig.crash_and_restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    let kept = rig.events(session).await.into_iter().find_map(|event| match event.body {
        Body::ModelAttemptFailed(failed) => Some(failed.text),
        _ => None,
    });
    assert_eq!(kept.as_deref(), Some("Half a sen"));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_was_left_behind_by_the_log_is_brought_up_to_it() {
    let act = TestTool::new("act", ToolKind::Exec).shared();
    let steps = json!([{"do": [{"call": {"name": "act", "input": {}}}]}, {"do": [{"text": "done"}]}]);
    let mut rig = Rig::steps(steps).tool(&act).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::WaitingApproval);
    let stale = rig.store().turn_get(session, turn).await.unwrap().unwrap();
    rig.answer(session, call, tenure_core::command::Verdict::Approve).await.unwrap();
    let record = rig.settled(session, turn).await;
    rig.crash().await;
    // The record is unsynced: a crash may leave the one from before.
    rig.store().turn_put(session, turn, stale).await.unwrap();
    rig.restart().await;
    // The sum of the deltas is of the record alone: the log does not hold it.
    let record = TurnRecord { spool: None, ..record };
    assert_eq!(rig.engine.turn(session, turn, None).await.unwrap(), record);
}

#[tokio::test(start_paused = true)]
async fn a_stop_at_any_instant_is_recovered_from() {
    let look = || TestTool::new("look", ToolKind::Read).showing(&["x"]).shared();
    let pause = json!({"pause_ms": 10});
    let steps: Value = json!([
        {"do": [{"thinking": "hm", "chunk": 1, "pause_ms": 10}, {"text": "One two", "chunk": 2, "pause_ms": 10}, pause,
                {"call": {"name": "look", "input": {}}, "chunk": 1, "pause_ms": 10}, {"call": {"name": "look", "input": {}}}]},
        {"attempts": [{"do": [pause, {"text": "oh"}, {"drop": true}]}, {"do": [{"text": "Three", "chunk": 2, "pause_ms": 10}]}]}
    ]);
    for after_ms in (0..900).step_by(7) {
        let tool = look();
        let mut rig = Rig::steps(steps.clone()).tool(&tool).start().await;
        let session = rig.create().await;
        let turn = rig.say(session, "go").await;
        tokio::time::sleep(Duration::from_millis(after_ms)).await;
        let before = rig.items(session).await;
        rig.crash_and_restart().await;
        assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed, "after {after_ms} ms");
        let all = rig.sound(session).await;
        for (before, after) in before.iter().zip(&all) {
            assert_eq!((before.cursor, &before.json), (after.cursor, &after.json), "after {after_ms} ms");
        }
    }
}

//! Cancelling, wherever the turn is; and ending a session.

use std::time::Duration;

use serde_json::json;
use tenure_core::{
    command::{Command, Verdict},
    cursor::Cursor,
    event::{Body, TurnCanceled},
    ids::SessionId,
    tool::{Outcome, ToolKind},
};
use tenure_engine::{Error, RecordStatus};
use tenure_testkit::{Rig, TestTool, trusting};

async fn canceled(rig: &Rig, session: SessionId) -> TurnCanceled {
    let events = rig.events(session).await;
    let found = events.into_iter().find_map(|event| match event.body {
        Body::TurnCanceled(canceled) => Some(*canceled),
        _ => None,
    });
    found.expect("the turn was canceled")
}

#[tokio::test(start_paused = true)]
async fn in_the_model_s_stream_the_text_shown_is_kept() {
    let steps = json!([{"do": [{"text": "Half a sen"}, {"keep_alive": true}, {"text": "tence"}]}]);
    let rig = Rig::steps(steps).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    rig.watch(session, Cursor::START).await.until("model_output_delta").await;
    let queued = rig.say(session, "next").await;
    rig.cancel(session).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    let kept = rig.events(session).await.into_iter().find_map(|event| match event.body {
        Body::ModelAttemptFailed(failed) => Some(failed.text),
        _ => None,
    });
    assert_eq!(kept.as_deref(), Some("Half a sen"));
    rig.model_gate().open();
    assert_eq!(rig.settled(session, queued).await.status, RecordStatus::Completed);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_was_canceled_in_the_instant_of_its_start_never_begins() {
    let act = TestTool::new("act", ToolKind::Exec).shared();
    let steps = json!([{"do": [{"call": {"name": "act", "input": {}}}]}, {"do": [{"text": "never"}]}]);
    let rig = Rig::steps(steps).tool(&act).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    let (approved, canceled) = tokio::join!(rig.answer(session, call, Verdict::Approve), rig.cancel(session));
    approved.unwrap();
    canceled.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    assert_eq!(act.runs(), 0, "whoever was told that the turn is being stopped may rely on it");
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn in_a_tool_the_turn_ends_when_the_tool_has_ended() {
    let act = TestTool::new("act", ToolKind::Exec).gated().stubborn().showing(&["working"]).shared();
    let steps = json!([{"do": [{"call": {"name": "act", "input": {}}}]}, {"do": [{"text": "never"}]}]);
    let rig = Rig::steps(steps).tool(&act).start().await;
    let session = rig.create_with(trusting).await;
    let turn = rig.say(session, "go").await;
    act.gate().reached(1).await;
    rig.cancel(session).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(rig.types(session).await.last(), Some(&"cancel_requested"), "the tool is still at work");
    assert_eq!(rig.engine.turn(session, turn, None).await.unwrap().status, RecordStatus::Running);
    act.gate().open();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    assert_eq!((act.runs(), canceled(&rig, session).await.left), (1, vec![]));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_does_not_end_is_named_and_what_it_says_later_belongs_nowhere() {
    let act = TestTool::new("act", ToolKind::Exec)
        .gated()
        .stubborn()
        .doing(|context, _| async move {
            context.output.write("too late".into()).await;
            tenure_core::tool::ToolResult::ok("too late")
        })
        .shared();
    let steps = json!([{"do": [{"call": {"name": "act", "input": {}}}]}, {"do": [{"text": "next"}, {"keep_alive": true}, {"text": "!"}]}]);
    let rig = Rig::steps(steps).tool(&act).start().await;
    let session = rig.create_with(trusting).await;
    let turn = rig.say(session, "go").await;
    act.gate().reached(1).await;
    rig.cancel(session).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    let left = canceled(&rig, session).await.left;
    assert!(left.len() == 1 && left[0].starts_with("act (call_"), "{left:?}");
    let recorder = rig.record(session).await;
    let next = rig.say(session, "next").await;
    rig.model_gate().reached(1).await;
    act.gate().open();
    tokio::time::sleep(Duration::from_secs(1)).await;
    rig.model_gate().open();
    assert_eq!(rig.settled(session, next).await.status, RecordStatus::Completed);
    let mut shown = rig.sound(session).await;
    let last = shown.last().unwrap().cursor;
    shown.extend(recorder.up_to(last).await);
    assert!(!shown.iter().any(|item| tenure_testkit::as_text(item).contains("too late")));
    // What is left of the first turn is no matter of a later one.
    let third = rig.say(session, "third").await;
    rig.settled(session, third).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_stopped_says_so() {
    let act = TestTool::new("act", ToolKind::Exec).gated().shared();
    let calls = json!([{"call": {"name": "act", "input": {}}}, {"call": {"name": "act", "input": {}}}]);
    let rig = Rig::steps(json!([{"do": calls}])).tool(&act).start().await;
    let session = rig.create_with(trusting).await;
    let turn = rig.say(session, "go").await;
    act.gate().reached(1).await;
    rig.cancel(session).await.unwrap();
    rig.settled(session, turn).await;
    let ends: Vec<Outcome> = rig
        .events(session)
        .await
        .into_iter()
        .filter_map(|event| match event.body {
            Body::ToolCallCompleted(done) => Some(done.outcome),
            _ => None,
        })
        .collect();
    assert_eq!((ends, act.runs()), (vec![Outcome::Canceled, Outcome::NotRun], 1));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_for_an_approval() {
    let act = TestTool::new("act", ToolKind::Exec).shared();
    let rig = Rig::steps(json!([{"do": [{"call": {"name": "act", "input": {}}}]}])).tool(&act).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    rig.cancel(session).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    let late = rig.answer(session, call, tenure_core::command::Verdict::Approve).await;
    assert!(matches!(late, Err(Error::Refused(_))));
    assert_eq!(act.runs(), 0);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn while_a_write_is_prepared() {
    let write = TestTool::new("write", ToolKind::Write).gated_in_prepare().shared();
    let rig = Rig::steps(json!([{"do": [{"call": {"name": "write", "input": {}}}]}])).tool(&write).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    write.prepare_gate().reached(1).await;
    rig.cancel(session).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    assert_eq!((write.runs(), canceled(&rig, session).await.left), (0, vec![]));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn while_it_waits_to_try_again() {
    let error = json!({"error": {"kind": "rate_limited", "message": "slow down", "retry_after_ms": 600_000}});
    let rig = Rig::steps(json!([{"attempts": [{"do": [error]}, {"do": [{"text": "never"}]}]}])).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    rig.until(session, "it waits", |state| state.turn.as_ref().is_some_and(|turn| turn.attempts.made == 1)).await;
    let began = tokio::time::Instant::now();
    rig.cancel(session).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    assert!(began.elapsed() < Duration::from_secs(1));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_ends_in_the_same_instant_is_closed_too() {
    let steps = json!([{"do": [{"text": "All of it."}, {"usage": {"input_tokens": 7, "output_tokens": 3}}, {"keep_alive": true}]}]);
    // Either may come first; whichever does, what was shown is completed or closed.
    for _ in 0..30 {
        let rig = Rig::steps(steps.clone()).start().await;
        let session = rig.create().await;
        let turn = rig.say(session, "go").await;
        rig.watch(session, Cursor::START).await.until("model_output_delta").await;
        rig.model_gate().open();
        let canceled = rig.cancel(session).await;
        let status = rig.settled(session, turn).await.status;
        assert!(status == if canceled.is_ok() { RecordStatus::Cancelled } else { RecordStatus::Completed });
        rig.sound(session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn cancelling_nothing_is_refused_and_twice_is_once() {
    let rig = Rig::steps(json!([{"do": [{"text": "x"}, {"keep_alive": true}]}])).start().await;
    let session = rig.create().await;
    let code = |error| match error {
        Err(Error::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(rig.cancel(session).await), "no_open_turn");
    let turn = rig.say(session, "go").await;
    rig.model_gate().reached(1).await;
    let (one, two) = tokio::join!(rig.cancel(session), rig.cancel(session));
    assert!(one.is_ok() || two.is_ok());
    rig.settled(session, turn).await;
    let types = rig.types(session).await;
    assert_eq!(types.iter().filter(|kind| **kind == "cancel_requested").count(), 1);
    let late = rig.command(session, Command::Cancel { turn_id: Some(turn), reason: None }).await;
    assert_eq!(code(late), "turn_settled");
}

#[tokio::test(start_paused = true)]
async fn ending_a_session_with_an_open_turn_cancels_all_of_it() {
    let act = TestTool::new("act", ToolKind::Exec).gated().shared();
    let rig = Rig::steps(json!([{"do": [{"call": {"name": "act", "input": {}}}]}])).tool(&act).start().await;
    let session = rig.create_with(trusting).await;
    let turn = rig.say(session, "go").await;
    act.gate().reached(1).await;
    let queued = rig.say(session, "never").await;
    rig.command(session, Command::End { reason: Some("enough".into()) }).await.unwrap();
    for turn in [turn, queued] {
        assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Cancelled);
    }
    assert_eq!(rig.types(session).await.last(), Some(&"session_canceled"));
    let late = rig.command(session, tenure_testkit::message("x", Default::default())).await;
    assert!(matches!(late, Err(Error::Refused(refusal)) if refusal.code == "session_ended"));
    assert_eq!(rig.state(session).await.status(), "canceled");
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn ending_a_session_without_a_turn_completes_it() {
    let rig = Rig::steps(json!([])).start().await;
    let session = rig.create().await;
    rig.command(session, Command::End { reason: None }).await.unwrap();
    assert_eq!(rig.types(session).await, ["session_created", "session_completed"]);
}

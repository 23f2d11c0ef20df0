//! Approvals wait in the state: they outlive restarts and are answered once.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tenure_core::{
    command::{Answer, Verdict},
    event::Body,
    policy::Scope,
    tool::ToolKind,
};
use tenure_engine::{Error, RecordStatus};
use tenure_testkit::{Rig, RigSetup, TestTool};

fn shell() -> Arc<TestTool> {
    TestTool::new("shell", ToolKind::Exec).shared()
}

/// Calls `shell` with these subjects, one a step, and ends.
fn calls(tool: &Arc<TestTool>, subjects: &[&str]) -> RigSetup {
    let call = |subject: &&str| json!({"do": [{"call": {"name": "shell", "input": {"subject": subject}}}]});
    let mut steps: Vec<Value> = subjects.iter().map(call).collect();
    steps.push(json!({"do": [{"text": "done"}]}));
    Rig::steps(steps.into()).tool(tool)
}

#[tokio::test(start_paused = true)]
async fn a_pending_approval_outlives_restarts_and_then_runs_once() {
    let tool = shell();
    let mut rig = calls(&tool, &["ls"]).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    let pending = rig.pending(session).await;
    let before = rig.types(session).await;
    for _ in 0..2 {
        rig.crash_and_restart().await;
        assert_eq!(rig.pending(session).await, pending);
    }
    assert_eq!(rig.types(session).await, before, "a turn that only waits stays as it is");
    assert_eq!(rig.engine.turn(session, turn, None).await.unwrap().status, RecordStatus::WaitingApproval);
    assert_eq!((rig.state(session).await.status(), tool.runs()), ("waiting_approval", 0));
    rig.answer(session, pending[0], Verdict::Approve).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(tool.runs(), 1);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn two_clients_at_once_get_one_answer_taken() {
    let tool = shell();
    let rig = calls(&tool, &["ls"]).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    let (yes, no) = tokio::join!(rig.answer(session, call, Verdict::Approve), rig.answer(session, call, Verdict::Deny));
    let (taken, refused) = if yes.is_ok() { (yes, no) } else { (no, yes) };
    let Ok(Answer::Approval { verdict, .. }) = taken else { panic!("{taken:?}") };
    let Err(Error::Refused(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.code, "already_answered");
    assert_eq!(refusal.detail["verdict"], serde_json::to_value(verdict).unwrap());
    rig.settled(session, turn).await;
    let again = rig.answer(session, call, Verdict::Approve).await;
    assert!(matches!(again, Err(Error::Refused(refusal)) if refusal.code == "already_answered"));
    let types = rig.types(session).await;
    let answers = types.iter().filter(|kind| matches!(**kind, "approval_granted" | "approval_denied")).count();
    assert_eq!((answers, tool.runs()), (1, usize::from(verdict == Verdict::Approve)));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_no_is_told_to_the_model() {
    let tool = shell();
    let rig = calls(&tool, &["rm"]).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    rig.answer(session, call, Verdict::Deny).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(tool.runs(), 0);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_the_session_holds_for_the_same_call_and_outlives_a_restart() {
    let tool = shell();
    let mut rig = calls(&tool, &["ls", "ls", "rm"]).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    rig.answer_for(session, call, Verdict::Approve, Scope::Session).await.unwrap();
    let third = rig.pending(session).await;
    assert_eq!((tool.runs(), third.len()), (2, 1), "the other command is asked for");
    rig.crash_and_restart().await;
    rig.answer(session, third[0], Verdict::Approve).await.unwrap();
    rig.settled(session, turn).await;
    // Another session does not inherit it.
    let other = rig.create().await;
    rig.say(other, "go").await;
    assert_eq!(rig.pending(other).await.len(), 1);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_for_always_reaches_new_sessions() {
    let tool = shell();
    let rig = calls(&tool, &["ls"]).start().await;
    let session = rig.create().await;
    rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    rig.answer_for(session, call, Verdict::Approve, Scope::Always).await.unwrap();
    let other = rig.create().await;
    assert_eq!(rig.ask(other, "go").await.status, RecordStatus::Completed);
    let types = rig.types(other).await;
    assert!(!types.contains(&"approval_requested"), "{types:?}");
    rig.until(session, "the first is done as well", |state| state.turn.is_none()).await;
    assert_eq!(tool.runs(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_request_expires_by_policy_also_across_a_restart() {
    let tool = shell();
    let mut rig = calls(&tool, &["ls"]).start().await;
    let session = rig.create_with(|new| new.policy.approval.expires_after_ms = Some(60_000)).await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    tokio::time::sleep(Duration::from_secs(30)).await;
    rig.crash_and_restart().await;
    assert_eq!(rig.pending(session).await, [call], "half of its time is left");
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(rig.pending(session).await, [call]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert!(rig.types(session).await.contains(&"approval_expired"));
    assert_eq!(tool.runs(), 0);
    let late = rig.answer(session, call, Verdict::Approve).await;
    assert!(matches!(late, Err(Error::Refused(refusal)) if refusal.code == "already_answered"));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_be_asked_the_call_is_denied() {
    let tool = shell();
    let rig = calls(&tool, &["ls"]).start().await;
    let session = rig.create_with(|new| new.policy.approval.attended = false).await;
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Completed);
    assert_eq!(tool.runs(), 0);
    let denied = rig.events(session).await.iter().any(|event| matches!(&event.body, Body::ApprovalDenied(_)));
    assert!(denied);
    rig.sound(session).await;
}

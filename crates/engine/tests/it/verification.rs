//! Verification after writes, as part of the turn.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use serde_json::json;
use tenure_core::{
    command::Verdict,
    event::Verification,
    tool::{ToolKind, ToolResult},
};
use tenure_engine::{NewSession, RecordStatus};
use tenure_testkit::{Rig, RigSetup, TestTool};

/// A `verify` that fails so many times and passes from then on.
fn verify(failures: usize) -> Arc<TestTool> {
    let runs = AtomicUsize::new(0);
    let judge = move |_, _| {
        let passes = runs.fetch_add(1, Ordering::SeqCst) >= failures;
        async move { if passes { ToolResult::ok("all well") } else { ToolResult::failed("2 tests failed") } }
    };
    TestTool::new("verify", ToolKind::Exec).doing(judge).shared()
}

/// Writes, and whenever verification fails writes again.
fn writing(verify: &Arc<TestTool>) -> RigSetup {
    let write = TestTool::new("write", ToolKind::Write).shared();
    let call = json!({"call": {"name": "write", "input": {}}});
    let script = json!({"steps": [{"do": [call]}, {"do": [{"text": "done"}]}], "after": "repeat"});
    Rig::script(script).tool(&write).tool(verify)
}

/// The person who made the session named the commands.
fn chosen(new: &mut NewSession) {
    new.policy.verify.commands = Some(vec!["make check".into()]);
}

#[tokio::test(start_paused = true)]
async fn it_passes() {
    let verify = verify(0);
    let rig = writing(&verify).start().await;
    let session = rig.create_with(chosen).await;
    let record = rig.ask(session, "go").await;
    assert_eq!((record.status, record.verification), (RecordStatus::Completed, Some(Verification::Passed)));
    assert_eq!(verify.runs(), 1);
    assert!(!rig.types(session).await.contains(&"approval_requested"), "commands of the maker run unasked");
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn it_fails_is_mended_and_passes() {
    let verify = verify(1);
    let rig = writing(&verify).start().await;
    let session = rig.create_with(chosen).await;
    let record = rig.ask(session, "go").await;
    assert_eq!((record.status, record.verification), (RecordStatus::Completed, Some(Verification::Passed)));
    assert_eq!(verify.runs(), 2);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn it_fails_too_often() {
    let verify = verify(usize::MAX);
    let rig = writing(&verify).start().await;
    let session = rig.create_with(chosen).await;
    let record = rig.ask(session, "go").await;
    assert_eq!((record.status, record.error.unwrap().code.as_str()), (RecordStatus::Failed, "verification_failed"));
    assert_eq!(verify.runs(), 3);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_to_verify_with_is_said() {
    let verify = verify(0);
    let rig = writing(&verify).start().await;
    let session = rig.create().await;
    assert_eq!(rig.ask(session, "go").await.verification, Some(Verification::Skipped));
    let off = rig.create_with(|new| new.policy.verify.auto_verify = false).await;
    assert_eq!(rig.ask(off, "go").await.verification, Some(Verification::NotNeeded));
    assert_eq!(verify.runs(), 0);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn commands_of_the_workspace_are_asked_for_once_per_session() {
    let verify = verify(0);
    let mut rig = writing(&verify).start().await;
    std::fs::write(rig.workspace().join("AGENTS.md"), "# Verify\n`make check`\n").unwrap();
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    rig.crash_and_restart().await;
    rig.answer(session, call, Verdict::Approve).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.verification, Some(Verification::Passed));
    let second = rig.ask(session, "again").await;
    assert_eq!((second.status, second.verification), (RecordStatus::Completed, Some(Verification::Passed)));
    assert_eq!(verify.runs(), 2);
    // Other text is asked for anew.
    std::fs::write(rig.workspace().join("AGENTS.md"), "# Verify\n`rm -rf /`\n").unwrap();
    rig.say(session, "third").await;
    let asked = rig.pending(session).await;
    rig.answer(session, asked[0], Verdict::Deny).await.unwrap();
    let state = rig.until(session, "the turn is over", |state| state.turn.is_none()).await;
    let record = rig.settled(session, state.last_turn_id.unwrap()).await;
    assert_eq!((record.status, record.verification), (RecordStatus::Completed, Some(Verification::Denied)));
    assert_eq!(verify.runs(), 2);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn commands_of_the_user_s_configuration_run_unasked() {
    let verify = verify(0);
    let rig = writing(&verify).config(|config| config.verify_commands = Some(vec!["mine".into()])).start().await;
    let session = rig.create().await;
    assert_eq!(rig.ask(session, "go").await.verification, Some(Verification::Passed));
    assert!(rig.types(session).await.contains(&"context_seeded"));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_be_asked_the_turn_says_that_it_was_not_verified() {
    let verify = verify(0);
    let rig = writing(&verify).start().await;
    std::fs::write(rig.workspace().join("Makefile"), "test:\n\ttrue\n").unwrap();
    let session = rig.create_with(|new| new.policy.approval.attended = false).await;
    assert_eq!(rig.ask(session, "go").await.verification, Some(Verification::Denied));
    assert_eq!(verify.runs(), 0);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_that_a_crash_cut_is_unknown_and_not_run_again_unasked() {
    let write = TestTool::new("write", ToolKind::Write).shared();
    let verify = TestTool::new("verify", ToolKind::Exec).gated().shared();
    let call = json!({"call": {"name": "write", "input": {}}});
    let script = json!({"steps": [{"do": [call]}, {"do": [{"text": "done"}]}, {"do": [{"text": "I see."}]}]});
    let mut rig = Rig::script(script).tool(&write).tool(&verify).start().await;
    let session = rig.create_with(chosen).await;
    let turn = rig.say(session, "go").await;
    verify.gate().reached(1).await;
    rig.crash_and_restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Interrupted);
    verify.gate().open();
    rig.command(session, tenure_core::command::Command::Resume { turn_id: turn }).await.unwrap();
    let record = rig.settled(session, turn).await;
    assert_eq!((record.status, record.verification), (RecordStatus::Completed, Some(Verification::Passed)));
    rig.sound(session).await;
}

//! The daemon is stopped while a tool is at work: what is run again, what never is, and how it is told.

use std::sync::Arc;

use serde_json::json;
use tenure_core::{
    command::{Command, Verdict},
    event::Body,
    ids::SessionId,
    policy::Resume,
    tool::{CallClass, Outcome, ToolKind},
};
use tenure_engine::{NewSession, RecordStatus};
use tenure_store::MemoryStore;
use tenure_testkit::{Rig, RigSetup, TestTool, UnwillingStore};

fn policy(resume: Resume) -> impl FnOnce(&mut NewSession) {
    move |new| {
        new.policy.approval.require_for_kinds.clear();
        new.policy.recovery.resume = resume;
    }
}

/// One call of this tool, then the end.
fn calling(tool: &Arc<TestTool>, name: &str) -> RigSetup {
    let call = json!({"call": {"name": name, "input": {}}});
    Rig::steps(json!([{"do": [call]}, {"do": [{"text": "done"}]}])).tool(tool)
}

async fn classes(rig: &Rig, session: SessionId) -> Vec<CallClass> {
    let events = rig.events(session).await;
    let cut = events.into_iter().filter_map(|event| match event.body {
        Body::TurnInterrupted(cut) => Some(cut.calls),
        _ => None,
    });
    cut.flatten().map(|call| call.class).collect()
}

async fn outcomes(rig: &Rig, session: SessionId) -> Vec<Outcome> {
    let events = rig.events(session).await;
    let ends = events.into_iter().filter_map(|event| match event.body {
        Body::ToolCallCompleted(done) => Some(done.outcome),
        _ => None,
    });
    ends.collect()
}

#[tokio::test(start_paused = true)]
async fn a_read_is_run_again() {
    let look = TestTool::new("look", ToolKind::Read).gated().showing(&["out"]).shared();
    let mut rig = calling(&look, "look").start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    look.gate().reached(1).await;
    rig.crash_and_restart().await;
    look.gate().reached(2).await;
    look.gate().open();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!((look.runs(), outcomes(&rig, session).await), (2, vec![Outcome::Finished]));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn an_exec_or_network_call_is_unknown_and_never_run_again() {
    for kind in [ToolKind::Exec, ToolKind::Network] {
        for resume in [Resume::Safe, Resume::Ask, Resume::Always] {
            let act = TestTool::new("act", kind).gated().shared();
            let mut rig = calling(&act, "act").start().await;
            let session = rig.create_with(policy(resume)).await;
            let turn = rig.say(session, "go").await;
            act.gate().reached(1).await;
            rig.crash_and_restart().await;
            act.gate().open();
            if resume != Resume::Always {
                assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Interrupted, "{resume:?}");
                rig.command(session, Command::Resume { turn_id: turn }).await.unwrap();
            }
            assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
            assert_eq!(act.runs(), 1);
            assert_eq!(classes(&rig, session).await, [CallClass::Unknown]);
            assert_eq!(outcomes(&rig, session).await, [Outcome::Unknown]);
            rig.sound(session).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_only_asked_for_is_run() {
    let (look, act) =
        (TestTool::new("look", ToolKind::Read).gated().shared(), TestTool::new("act", ToolKind::Exec).shared());
    let calls = json!([{"call": {"name": "look", "input": {}}}, {"call": {"name": "act", "input": {}}}]);
    let mut rig = Rig::steps(json!([{"do": calls}, {"do": [{"text": "done"}]}])).tool(&look).tool(&act).start().await;
    let session = rig.create_with(policy(Resume::Safe)).await;
    let turn = rig.say(session, "go").await;
    look.gate().reached(1).await;
    rig.crash_and_restart().await;
    look.gate().open();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!((look.runs(), act.runs()), (2, 1));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_result_that_was_recorded_is_used() {
    let (one, two) =
        (TestTool::new("one", ToolKind::Exec).shared(), TestTool::new("two", ToolKind::Read).gated().shared());
    let calls = json!([{"call": {"name": "one", "input": {}}}, {"call": {"name": "two", "input": {}}}]);
    let mut rig = Rig::steps(json!([{"do": calls}, {"do": [{"text": "done"}]}])).tool(&one).tool(&two).start().await;
    let session = rig.create_with(policy(Resume::Safe)).await;
    let turn = rig.say(session, "go").await;
    two.gate().reached(1).await;
    rig.crash_and_restart().await;
    two.gate().open();
    rig.settled(session, turn).await;
    assert_eq!((one.runs(), two.runs()), (1, 2));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_was_being_prepared_begins_anew() {
    let write = TestTool::new("write", ToolKind::Write).gated_in_prepare().shared();
    let mut rig = calling(&write, "write").start().await;
    let session = rig.create_with(policy(Resume::Safe)).await;
    let turn = rig.say(session, "go").await;
    write.prepare_gate().reached(1).await;
    rig.crash_and_restart().await;
    write.prepare_gate().reached(2).await;
    write.prepare_gate().open();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(write.runs(), 1);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_without_traces_is_unknown() {
    let write = TestTool::new("write", ToolKind::Write).gated().shared();
    let mut rig = calling(&write, "write").start().await;
    let session = rig.create_with(policy(Resume::Safe)).await;
    let turn = rig.say(session, "go").await;
    write.gate().reached(1).await;
    rig.crash_and_restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Interrupted);
    assert_eq!((write.runs(), classes(&rig, session).await), (1, vec![CallClass::Unknown]));
}

/// The real `write_file` has done its work, but its outcome could not be recorded when the daemon died.
async fn cut_write() -> (Rig, SessionId, tenure_core::ids::TurnId) {
    let store = UnwillingStore::over(MemoryStore::new());
    let call = json!({"call": {"name": "write_file", "input": {"path": "a.txt", "content": "new"}}});
    let steps = json!([{"do": [call]}, {"do": [{"text": "done"}]}]);
    let rig = Rig::steps(steps).real_tool("write_file").store(store.clone()).start().await;
    std::fs::write(rig.workspace().join("a.txt"), "old").unwrap();
    let session = rig.create_with(|new| new.policy.verify.auto_verify = false).await;
    store.refuse_decisions(session, "tool_call_completed", 1);
    let turn = rig.say(session, "go").await;
    store.refused(1).await;
    assert_eq!(std::fs::read_to_string(rig.workspace().join("a.txt")).unwrap(), "new");
    rig.crash().await;
    (rig, session, turn)
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_found_done_is_finished() {
    let (mut rig, session, turn) = cut_write().await;
    rig.restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(classes(&rig, session).await, [CallClass::Finished]);
    assert_eq!(outcomes(&rig, session).await, [Outcome::Finished]);
    let types = rig.types(session).await;
    assert_eq!(types.iter().filter(|kind| **kind == "tool_call_started").count(), 1);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_found_undone_is_run() {
    let (mut rig, session, turn) = cut_write().await;
    let file = rig.workspace().join("a.txt");
    std::fs::write(&file, "old").unwrap();
    rig.restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(classes(&rig, session).await, [CallClass::NotStarted]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "new");
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_file_is_neither_is_left_alone() {
    let (mut rig, session, turn) = cut_write().await;
    let file = rig.workspace().join("a.txt");
    std::fs::write(&file, "somebody else's").unwrap();
    rig.restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Interrupted);
    assert_eq!(classes(&rig, session).await, [CallClass::Unknown]);
    rig.command(session, Command::Resume { turn_id: turn }).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "somebody else's");
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn beside_a_pending_approval_a_cut_read_is_run_again() {
    let (look, act) =
        (TestTool::new("look", ToolKind::Read).gated().shared(), TestTool::new("act", ToolKind::Exec).shared());
    let calls = json!([{"call": {"name": "look", "input": {}}}, {"call": {"name": "act", "input": {}}}]);
    let mut rig = Rig::steps(json!([{"do": calls}, {"do": [{"text": "done"}]}])).tool(&look).tool(&act).start().await;
    let session = rig.create().await;
    let turn = rig.say(session, "go").await;
    look.gate().reached(1).await;
    let pending = rig.pending(session).await;
    rig.crash_and_restart().await;
    assert_eq!(rig.pending(session).await, pending);
    look.gate().reached(2).await;
    look.gate().open();
    rig.answer(session, pending[0], Verdict::Approve).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!((look.runs(), act.runs()), (2, 1));
    rig.sound(session).await;
}

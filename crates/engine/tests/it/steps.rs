//! The order of work: what is durable before what starts, what runs beside what.

use std::sync::Arc;

use serde_json::json;
use tenure_core::{
    event::Body,
    message::joined_text,
    tool::{ToolKind, ToolResult},
};
use tenure_engine::RecordStatus;
use tenure_store::{Limit, MemoryStore, Store};
use tenure_testkit::{Rig, TestTool, trusting};

#[tokio::test(start_paused = true)]
async fn reads_run_side_by_side_and_others_in_order() {
    let tool = |name: &str, kind| TestTool::new(name, kind).gated().shared();
    let (one, two) = (tool("one", ToolKind::Read), tool("two", ToolKind::Read));
    let (act, write) = (tool("act", ToolKind::Exec), tool("write", ToolKind::Write));
    let late = tool("late", ToolKind::Read);
    let call = |name: &str| json!({"call": {"name": name, "input": {}}});
    let steps = json!([{"do": [call("one"), call("two"), call("act"), call("write"), call("late")]}, {"do": [{"text": "done"}]}]);
    let rig = Rig::steps(steps).tool(&one).tool(&two).tool(&act).tool(&write).tool(&late).start().await;
    let session = rig.create_with(trusting).await;
    let turn = rig.say(session, "go").await;
    one.gate().reached(1).await;
    two.gate().reached(1).await;
    two.gate().open();
    rig.until(session, "the second read is done", |state| state.turn.as_ref().unwrap().calls[1].is_done()).await;
    assert_eq!((act.runs(), write.runs(), late.runs()), (0, 0, 0));
    one.gate().open();
    for (now, then) in [(&act, &write), (&write, &late)] {
        now.gate().reached(1).await;
        assert_eq!(then.runs(), 0);
        now.gate().open();
    }
    late.gate().open();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    rig.sound(session).await;
}

/// A tool that says what the log holds when it starts.
fn witness(name: &str, kind: ToolKind, store: &Arc<MemoryStore>) -> Arc<TestTool> {
    let store = store.clone();
    let look = move |context: tenure_tools::CallContext, _| {
        let store = store.clone();
        async move {
            let events = store.read(context.session_id, 0, Limit::default()).await.unwrap();
            let started = events.iter().filter_map(|stored| match stored.parse().unwrap().body {
                Body::ModelOutputCompleted(output) => Some(format!("reply {}", output.step)),
                Body::ToolCallStarted(started) if started.tool_call_id == context.call_id => Some("intent".into()),
                _ => None,
            });
            ToolResult::ok(started.collect::<Vec<_>>().join(", "))
        }
    };
    TestTool::new(name, kind).doing(look).shared()
}

#[tokio::test(start_paused = true)]
async fn the_reply_and_the_intent_are_in_the_log_before_a_tool_starts() {
    let store = MemoryStore::new();
    let tools = [
        witness("read", ToolKind::Read, &store),
        witness("write", ToolKind::Write, &store),
        witness("exec", ToolKind::Exec, &store),
    ];
    let call = |name: &str| json!({"call": {"name": name, "input": {}}});
    let steps = json!([{"do": [call("read"), call("write"), call("exec")]}, {"do": [{"text": "done"}]}]);
    let setup = tools.iter().fold(Rig::steps(steps).store(store.clone()), |setup, tool| setup.tool(tool));
    let rig = setup.start().await;
    let session = rig.create_with(trusting).await;
    rig.ask(session, "go").await;
    let mut results = vec![];
    for event in rig.events(session).await {
        if let Body::ToolCallCompleted(done) = event.body {
            results.push(joined_text(&done.result.parts));
        }
    }
    assert_eq!(results, ["reply 1, intent"; 3]);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_cannot_be_prepared_is_told_to_the_model() {
    let write = TestTool::new("write", ToolKind::Write).unprepared("there is no such place").shared();
    let steps = json!([
        {"do": [{"call": {"name": "write", "input": {}}}]},
        {"cases": [{"seen": "there is no such place", "do": [{"text": "I see."}]}]}
    ]);
    let rig = Rig::steps(steps).tool(&write).start().await;
    let session = rig.create().await;
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Completed);
    assert_eq!(write.runs(), 0);
    rig.sound(session).await;
}

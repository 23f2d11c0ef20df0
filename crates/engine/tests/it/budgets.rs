//! Budgets pause a turn and raising them lets it go on; where nobody is there, it ends.

use serde_json::{Value, json};
use tenure_core::{
    budget::{BudgetKind, Budgets},
    command::Verdict,
    event::Body,
    session::TurnStatus,
    tool::{Outcome, ToolKind},
};
use tenure_engine::{NewSession, RecordStatus};
use tenure_testkit::{Rig, RigSetup, TestTool, trusting};

/// Two steps; each takes a second, ten tokens and ten millionths of a dollar.
fn spending(price: Value) -> RigSetup {
    let look = TestTool::new("look", ToolKind::Read).shared();
    let usage = json!({"usage": {"input_tokens": 5, "output_tokens": 5}});
    let call = json!({"call": {"name": "look", "input": {}}});
    let steps = json!([
        {"do": [{"pause_ms": 1000}, call, call, usage]},
        {"do": [{"pause_ms": 1000}, {"text": "done"}, usage]}
    ]);
    Rig::script(json!({"steps": steps, "price": price})).tool(&look)
}

fn dollar() -> Value {
    json!({"input_per_mtok_usd": 1, "output_per_mtok_usd": 1})
}

fn limits() -> [(BudgetKind, Budgets, Budgets); 5] {
    let none = || Budgets {
        max_steps: None,
        max_tool_calls: None,
        max_duration_ms: None,
        max_tokens: None,
        max_micro_usd: None,
    };
    [
        (BudgetKind::Steps, Budgets { max_steps: Some(1), ..none() }, Budgets { max_steps: Some(2), ..none() }),
        (
            BudgetKind::ToolCalls,
            Budgets { max_tool_calls: Some(1), ..none() },
            Budgets { max_tool_calls: Some(2), ..none() },
        ),
        (
            BudgetKind::Duration,
            Budgets { max_duration_ms: Some(500), ..none() },
            Budgets { max_duration_ms: Some(5000), ..none() },
        ),
        (BudgetKind::Tokens, Budgets { max_tokens: Some(10), ..none() }, Budgets { max_tokens: Some(100), ..none() }),
        (BudgetKind::Money, Budgets { max_micro_usd: Some(10), ..none() }, Budgets { max_micro_usd: None, ..none() }),
    ]
}

async fn reached(rig: &Rig, session: tenure_core::ids::SessionId) -> Vec<BudgetKind> {
    let events = rig.events(session).await;
    let reached = events.into_iter().filter_map(|event| match event.body {
        Body::BudgetReached(reached) => Some(reached.reached.budget),
        _ => None,
    });
    reached.collect()
}

#[tokio::test(start_paused = true)]
async fn each_kind_pauses_the_turn_and_goes_on_when_raised() {
    for (kind, tight, wide) in limits() {
        let rig = spending(dollar()).start().await;
        let session = rig.create_with(|new| new.budgets = tight).await;
        let turn = rig.say(session, "go").await;
        assert_eq!(rig.settled(session, turn).await.status, RecordStatus::WaitingBudget, "{kind:?}");
        rig.update(session, wide).await.unwrap();
        assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed, "{kind:?}");
        assert_eq!(reached(&rig, session).await, [kind]);
        rig.sound(session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_raise_it_the_turn_expires_and_the_next_one_starts() {
    for (kind, tight, _) in limits() {
        let rig = spending(dollar()).start().await;
        let session = rig.create_with(|new| {
            new.budgets = tight;
            new.policy.approval.attended = false;
        });
        let session = session.await;
        let turn = rig.say(session, "go").await;
        let next = rig.say(session, "next").await;
        assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Expired, "{kind:?}");
        rig.settled(session, next).await;
        rig.sound(session).await;
    }
}

/// A reply that never ends, or a tool; then a reply that does.
fn lasting(tool: bool) -> (RigSetup, std::sync::Arc<TestTool>) {
    let act = TestTool::new("act", ToolKind::Exec).gated().shared();
    let first = match tool {
        true => json!({"do": [{"call": {"name": "act", "input": {}}}]}),
        false => json!({"attempts": [{"do": [{"text": "Half a sen"}, {"stall": true}]}, {"do": [{"text": "whole"}]}]}),
    };
    (Rig::steps(json!([first, {"do": [{"text": "whole"}]}])).tool(&act), act)
}

fn cut_time(attended: bool) -> impl FnOnce(&mut NewSession) {
    move |new| {
        trusting(new);
        new.budgets.max_duration_ms = Some(5_000);
        new.policy.approval.attended = attended;
    }
}

#[tokio::test(start_paused = true)]
async fn what_runs_is_stopped_when_the_time_is_up_and_goes_on_when_there_is_more() {
    for tool in [false, true] {
        let (setup, act) = lasting(tool);
        let rig = setup.start().await;
        let session = rig.create_with(cut_time(true)).await;
        let turn = rig.say(session, "go").await;
        let record = rig.settled(session, turn).await;
        assert_eq!((record.status, record.spent.active_ms), (RecordStatus::WaitingBudget, 5_000), "tool: {tool}");
        let ends = ["model_attempt_failed", "tool_call_completed"];
        assert_eq!(
            rig.types(session).await.iter().rev().take(2).rev().copied().collect::<Vec<_>>(),
            [ends[usize::from(tool)], "budget_reached"]
        );
        rig.update(
            session,
            Budgets { max_duration_ms: Some(10_000), ..rig.engine.session(session).await.unwrap().budgets.clone() },
        )
        .await
        .unwrap();
        let record = rig.settled(session, turn).await;
        assert_eq!((record.status, record.response.unwrap().text.as_str()), (RecordStatus::Completed, "whole"));
        assert_eq!(act.runs(), usize::from(tool), "it does not run again");
        rig.sound(session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_runs_is_stopped_in_time_while_a_person_is_asked_of_another() {
    let (act, delete) =
        (TestTool::new("act", ToolKind::Read).gated().shared(), TestTool::new("delete", ToolKind::Exec).shared());
    let calls = json!({"do": [{"call": {"name": "act", "input": {}}}, {"call": {"name": "delete", "input": {}}}]});
    let rig = Rig::steps(json!([calls, {"do": [{"text": "whole"}]}])).tool(&act).tool(&delete).start().await;
    let session = rig.create_with(|new| new.budgets.max_duration_ms = Some(5_000)).await;
    rig.say(session, "go").await;
    let pending = rig.pending(session).await;
    act.gate().reached(1).await;
    let state = rig
        .until(session, "the call has ended", |state| {
            state.turn.as_ref().is_some_and(|turn| turn.calls.iter().any(|call| call.is_done()))
        })
        .await;
    let turn = state.turn.as_ref().expect("it waits for the answer");
    assert_eq!((turn.spent.active_ms, turn.status()), (5_000, TurnStatus::WaitingApproval));
    // To wait for the answer takes none of its time.
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    rig.update(session, Budgets { max_duration_ms: Some(6_000), ..state.budgets.clone() }).await.unwrap();
    rig.answer(session, pending[0], Verdict::Approve).await.unwrap();
    assert_eq!(rig.settled(session, turn.id).await.status, RecordStatus::Completed);
    assert_eq!((act.runs(), delete.runs()), (1, 1));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn where_nobody_can_give_more_time_the_turn_expires_when_it_is_up() {
    for tool in [false, true] {
        let rig = lasting(tool).0.start().await;
        let session = rig.create_with(cut_time(false)).await;
        let turn = rig.say(session, "go").await;
        let record = rig.settled(session, turn).await;
        assert_eq!((record.status, record.spent.active_ms), (RecordStatus::Expired, 5_000), "tool: {tool}");
        rig.sound(session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_canceled_tells_how_long_it_ran() {
    let (setup, act) = lasting(true);
    let rig = setup.start().await;
    let session = rig.create_with(trusting).await;
    let turn = rig.say(session, "go").await;
    act.gate().reached(1).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    rig.cancel(session).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.spent.active_ms, 3_000);
    let took = rig.events(session).await.into_iter().find_map(|event| match event.body {
        Body::ToolCallCompleted(done) => Some((done.outcome, done.duration_ms)),
        _ => None,
    });
    assert_eq!(took, Some((Outcome::Canceled, 3_000)));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_price_never_trips_the_money_budget_and_is_never_a_zero() {
    let rig = spending(json!("unknown")).start().await;
    let session = rig.create_with(|new| new.budgets.max_micro_usd = Some(1)).await;
    let record = rig.ask(session, "go").await;
    assert_eq!((record.status, record.cost_micro_usd), (RecordStatus::Completed, None));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn failed_attempts_are_paid_for_as_well() {
    let usage = json!({"usage": {"input_tokens": 5, "output_tokens": 5}});
    let steps = json!([{"attempts": [{"do": [{"text": "x"}, usage, {"drop": true}]}, {"do": [{"text": "y"}, usage]}]}]);
    let rig = Rig::script(json!({"steps": steps, "price": dollar()})).start().await;
    let session = rig.create().await;
    let record = rig.ask(session, "go").await;
    // More may have been used before it broke.
    let (spent, cost) = (record.spent, record.cost_micro_usd);
    assert_eq!((spent.micro_usd, cost, spent.usage.output_tokens), (20, None, 10));
    rig.sound(session).await;
}

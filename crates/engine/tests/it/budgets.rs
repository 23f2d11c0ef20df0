//! Budgets pause a turn and raising them lets it go on; where nobody is there, it ends.

use serde_json::{Value, json};
use tenure_core::{
    budget::{BudgetKind, Budgets},
    event::Body,
    tool::ToolKind,
};
use tenure_engine::RecordStatus;
use tenure_testkit::{Rig, RigSetup, TestTool};

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

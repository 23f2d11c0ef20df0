//! What the models of a life say, and what the sessions of a life are like, as the dice will have it.

use serde_json::{Value, json};
use tenure_core::{
    budget::Budgets,
    policy::{PatchReview, Policy, Resume, Rule, RuleAction},
    session::Settings,
    tool::ToolKind,
};
use tenure_engine::NewSession;

use super::dice::Dice;

/// A folder that no machine has: nothing outside shapes a life.
const WORKSPACE: &str = "/nonexistent/workspace";

/// A script in the format of the scripted model.
pub fn script(dice: &mut Dice) -> Value {
    // Some steps ask for nothing, so that every turn has an end.
    let steps: Vec<Value> = [3, 2, 0, 3, 4, 0].map(|calls_max| step(dice, calls_max)).to_vec();
    let price = if dice.chance(50) {
        json!({"input_per_mtok_usd": 3, "output_per_mtok_usd": 15})
    } else {
        json!({"input_per_mtok_usd": 0, "output_per_mtok_usd": 0})
    };
    let patience = json!({"first_byte_ms": 500, "between_bytes_ms": 300});
    let mut script = json!({"steps": steps, "after": "repeat", "patience": patience, "price": price});
    // The tools alone take about 80 tokens, so the smallest of these is too small for anything.
    if let Some(window) = dice.pick(&[None, None, Some(60), Some(300), Some(500), Some(900), Some(2500)]) {
        script["window"] = json!(window);
    }
    if dice.chance(50) {
        script["summary"] = json!("They did this and that. ".repeat(1 + dice.roll(4) as usize));
    }
    script
}

fn step(dice: &mut Dice, calls_max: u64) -> Value {
    let mut entries = vec![];
    for _ in 0..dice.roll(3) {
        let mut failing = words(dice);
        failing.push(match dice.roll(6) {
            5 => json!({"error": {"kind": "context_overflow", "message": "too long"}}),
            0 => json!({"drop": true}),
            1 => json!({"stall": true}),
            2 => json!({"error": {"kind": "rate_limited", "message": "slow", "retry_after_ms": dice.roll(3000)}}),
            3 => json!({"error": {"kind": dice.pick(&["overloaded", "auth"]), "message": "no"}}),
            _ => json!({"error": {"kind": "server", "message": "no"}}),
        });
        entries.push(json!({ "do": failing }));
    }
    let mut whole = words(dice);
    for _ in 0..dice.roll(calls_max + 1) {
        whole.push(call(dice));
    }
    entries.push(json!({ "do": whole }));
    json!({ "attempts": entries })
}

fn words(dice: &mut Dice) -> Vec<Value> {
    let mut actions = vec![];
    for _ in 0..dice.roll(4) {
        actions.push(match dice.roll(60) {
            // Longer than a live watcher may fall behind.
            0 => json!({"text": "a long tale ".repeat(25), "chunk": 1, "pause_ms": 1}),
            1..=12 => json!({"thinking": "hm hm", "chunk": 2, "pause_ms": dice.roll(30)}),
            13..=24 => json!({"pause_ms": dice.roll(200)}),
            25..=36 => json!({"usage": {"input_tokens": 3, "output_tokens": 2}}),
            _ => json!({"text": "some words here ", "chunk": 1 + dice.roll(9), "pause_ms": dice.roll(30)}),
        });
    }
    actions
}

fn call(dice: &mut Dice) -> Value {
    let tool = dice.pick(&["look", "look", "act", "act", "write", "write", "slow", "fetch", "verify", "stuck", "none"]);
    let input = json!({"subject": dice.pick(&["a", "b"]), "ms": dice.pick(&[0, 5, 20, 50, 400])});
    match dice.roll(30) {
        0 => json!({"call": {"name": tool, "arguments": "{\"subject\": "}}),
        1 => json!({"call": {"name": tool, "input": input}, "chunk": 7, "pause_ms": 3}),
        _ => json!({"call": {"name": tool, "input": input}}),
    }
}

pub fn new_session(dice: &mut Dice, model: String) -> NewSession {
    let settings =
        Settings { workspace_path: WORKSPACE.into(), auto_run: dice.chance(85), model, ..Settings::default() };
    NewSession { settings, policy: policy(dice), budgets: budgets(dice) }
}

pub fn policy(dice: &mut Dice) -> Policy {
    let mut policy = Policy::default();
    policy.approval.attended = dice.chance(80);
    policy.approval.expires_after_ms = dice.pick(&[None, None, Some(2_000), Some(5_000), Some(2 * 60 * 60 * 1000)]);
    if dice.chance(20) {
        policy.approval.require_for_tools = vec![dice.pick(&["write", "look"]).into()];
    }
    if dice.chance(15) {
        policy.approval.require_for_kinds = dice.pick(&[vec![], vec![ToolKind::Exec], vec![ToolKind::Read]]);
    }
    for _ in 0..dice.roll(3) {
        policy.approval.rules.push(rule(dice));
    }
    policy.recovery.resume = dice.pick(&[Resume::Ask, Resume::Safe, Resume::Always]);
    policy.verify.auto_verify = dice.chance(70);
    policy.verify.commands = dice.pick(&[None, Some(vec![]), Some(vec!["check all".to_owned()])]);
    policy.verify.max_attempts = 1 + dice.roll(3) as u32;
    policy.patch_review = dice.pick(&[PatchReview::Off, PatchReview::Off, PatchReview::Request, PatchReview::Auto]);
    policy
}

fn rule(dice: &mut Dice) -> Rule {
    let tool = dice.pick(&["act", "look", "write", "fetch", "*"]).to_owned();
    let exact = dice.pick(&[None, Some("a".to_owned()), Some("b".to_owned())]);
    let action = dice.pick(&[RuleAction::Allow, RuleAction::Ask, RuleAction::Deny]);
    Rule { tool, exact, pattern: None, action }
}

fn budgets(dice: &mut Dice) -> Budgets {
    Budgets {
        max_steps: Some(2 + dice.roll(20)),
        max_tool_calls: dice.pick(&[None, Some(3), Some(50)]),
        max_duration_ms: dice.pick(&[None, Some(1500), Some(60 * 60 * 1000)]),
        max_tokens: dice.pick(&[None, None, Some(40)]),
        max_micro_usd: None,
    }
}

/// Higher limits than these.
pub fn raised(budgets: &Budgets) -> Budgets {
    let more = |limit: Option<u64>, by: u64| limit.map(|limit| limit + by);
    Budgets {
        max_steps: more(budgets.max_steps, 8),
        max_tool_calls: more(budgets.max_tool_calls, 20),
        max_duration_ms: more(budgets.max_duration_ms, 60 * 60 * 1000),
        max_tokens: more(budgets.max_tokens, 4000),
        max_micro_usd: budgets.max_micro_usd,
    }
}

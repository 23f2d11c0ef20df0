//! From the wire to the core: the same things under the core's types. What a request does not say keeps its present value.

use tenure_core::{
    budget::Budgets,
    command::Verdict,
    message::{Delivery, Part, Role},
    policy::{
        ApprovalPolicy, CompactionPolicy, PatchReview, Policy, RecoveryPolicy, Resume, Rule, RuleAction, Scope,
        VerifyPolicy,
    },
    session::Settings,
    tool::ToolKind,
};
use tenure_engine::NewSession;
use tenure_wire as wire;

/// Takes over what was said.
fn set<T>(place: &mut T, said: Option<T>) {
    if let Some(value) = said {
        *place = value;
    }
}

/// A session as asked for, over the daemon's own policy.
pub(crate) fn new_session(body: wire::CreateSession, base: Policy) -> NewSession {
    let wire::CreateSession {
        workspace_path,
        system_prompt,
        auto_run,
        title,
        role,
        model,
        mode,
        labels,
        budgets,
        policy,
        memory,
        preferences,
        idempotency_key: _,
    } = body;
    let settings = Settings {
        workspace_path,
        system_prompt,
        auto_run: auto_run.unwrap_or(true),
        title,
        role,
        model: model.unwrap_or_default(),
        mode,
        labels: labels.unwrap_or_default(),
        memory,
        preferences: preferences.map_or(serde_json::Value::Null, serde_json::Value::Object),
        parent: None,
    };
    NewSession {
        settings,
        policy: over_policy(base, policy.unwrap_or_default()),
        budgets: over_budgets(Budgets::default(), budgets.unwrap_or_default()),
    }
}

pub(crate) fn over_policy(mut policy: Policy, said: wire::Policy) -> Policy {
    let wire::Policy { approval, verify, patch_review, recovery, compaction } = said;
    over_approval(&mut policy.approval, approval.unwrap_or_default());
    over_verify(&mut policy.verify, verify.unwrap_or_default());
    over_recovery(&mut policy.recovery, recovery.unwrap_or_default());
    over_compaction(&mut policy.compaction, compaction.unwrap_or_default());
    set(&mut policy.patch_review, patch_review.map(core_patch_review));
    policy
}

fn over_approval(policy: &mut ApprovalPolicy, said: wire::ApprovalPolicy) {
    let wire::ApprovalPolicy { require_for_kinds, require_for_tools, rules, attended, expires_after_ms } = said;
    set(&mut policy.require_for_kinds, require_for_kinds.map(|kinds| kinds.into_iter().map(core_kind).collect()));
    set(&mut policy.require_for_tools, require_for_tools);
    set(&mut policy.rules, rules.map(|rules| rules.into_iter().map(core_rule).collect()));
    set(&mut policy.attended, attended);
    set(&mut policy.expires_after_ms, expires_after_ms);
}

fn over_verify(policy: &mut VerifyPolicy, said: wire::VerifyPolicy) {
    let wire::VerifyPolicy { auto_verify, commands, max_attempts, require_clean } = said;
    set(&mut policy.auto_verify, auto_verify);
    set(&mut policy.commands, commands);
    set(&mut policy.max_attempts, max_attempts);
    set(&mut policy.require_clean, require_clean);
}

fn over_recovery(policy: &mut RecoveryPolicy, said: wire::RecoveryPolicy) {
    let wire::RecoveryPolicy { resume } = said;
    set(&mut policy.resume, resume.map(core_resume));
}

fn over_compaction(policy: &mut CompactionPolicy, said: wire::CompactionPolicy) {
    let wire::CompactionPolicy { auto, from_percent, block_percent } = said;
    set(&mut policy.auto, auto);
    set(&mut policy.from_percent, from_percent);
    set(&mut policy.block_percent, block_percent);
}

pub(crate) fn over_budgets(mut budgets: Budgets, said: wire::Budgets) -> Budgets {
    let wire::Budgets { max_steps, max_tool_calls, max_duration_ms, max_tokens, max_micro_usd } = said;
    set(&mut budgets.max_steps, max_steps);
    set(&mut budgets.max_tool_calls, max_tool_calls);
    set(&mut budgets.max_duration_ms, max_duration_ms);
    set(&mut budgets.max_tokens, max_tokens);
    set(&mut budgets.max_micro_usd, max_micro_usd);
    budgets
}

fn core_rule(rule: wire::Rule) -> Rule {
    let wire::Rule { tool, pattern, exact, action } = rule;
    let action = match action {
        wire::RuleAction::Allow => RuleAction::Allow,
        wire::RuleAction::Ask => RuleAction::Ask,
        wire::RuleAction::Deny => RuleAction::Deny,
    };
    Rule { tool, pattern, exact, action }
}

fn core_kind(kind: wire::ToolKind) -> ToolKind {
    match kind {
        wire::ToolKind::Read => ToolKind::Read,
        wire::ToolKind::Write => ToolKind::Write,
        wire::ToolKind::Exec => ToolKind::Exec,
        wire::ToolKind::Network => ToolKind::Network,
    }
}

fn core_patch_review(review: wire::PatchReview) -> PatchReview {
    match review {
        wire::PatchReview::Off => PatchReview::Off,
        wire::PatchReview::Request => PatchReview::Request,
        wire::PatchReview::Auto => PatchReview::Auto,
    }
}

fn core_resume(resume: wire::Resume) -> Resume {
    match resume {
        wire::Resume::Ask => Resume::Ask,
        wire::Resume::Safe => Resume::Safe,
        wire::Resume::Always => Resume::Always,
    }
}

pub(crate) fn core_part(part: wire::Part) -> Part {
    match part {
        wire::Part::Text { text } => Part::Text { text },
        wire::Part::Image { r#ref, mime_type } => Part::Image { r#ref, mime_type },
        wire::Part::Audio { r#ref, mime_type } => Part::Audio { r#ref, mime_type },
        wire::Part::File { r#ref, mime_type } => Part::File { r#ref, mime_type },
    }
}

pub(crate) fn core_role(role: wire::Role) -> Role {
    match role {
        wire::Role::System => Role::System,
        wire::Role::User => Role::User,
        wire::Role::Assistant => Role::Assistant,
        wire::Role::Tool => Role::Tool,
    }
}

pub(crate) fn core_delivery(delivery: wire::Delivery) -> Delivery {
    match delivery {
        wire::Delivery::Queue => Delivery::Queue,
        wire::Delivery::Steer => Delivery::Steer,
    }
}

pub(crate) fn core_verdict(verdict: wire::Verdict) -> Verdict {
    match verdict {
        wire::Verdict::Approve => Verdict::Approve,
        wire::Verdict::Deny => Verdict::Deny,
    }
}

pub(crate) fn core_scope(scope: wire::Scope) -> Scope {
    match scope {
        wire::Scope::Once => Scope::Once,
        wire::Scope::Session => Scope::Session,
        wire::Scope::Always => Scope::Always,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn laid_over(said: Value) -> Value {
        let said: wire::Policy = serde_json::from_value(said).unwrap();
        serde_json::to_value(over_policy(Policy::default(), said)).unwrap()
    }

    #[test]
    fn a_policy_that_says_nothing_changes_nothing() {
        let default = serde_json::to_value(Policy::default()).unwrap();
        assert_eq!(laid_over(json!({})), default);
        assert_eq!(laid_over(default.clone()), default);
    }

    #[test]
    fn every_field_of_a_policy_arrives() {
        let all = json!({
            "approval": {
                "require_for_kinds": ["read", "write", "exec", "network"],
                "require_for_tools": ["shell"],
                "rules": [
                    {"tool": "shell", "pattern": "git *", "action": "allow"},
                    {"tool": "*", "action": "deny"},
                    {"tool": "verify", "exact": "make test", "action": "ask"},
                ],
                "attended": false,
                "expires_after_ms": 5,
            },
            "verify": {"auto_verify": false, "commands": ["make"], "max_attempts": 9, "require_clean": true},
            "patch_review": "request",
            "recovery": {"resume": "always"},
            "compaction": {"auto": false, "from_percent": 50, "block_percent": 60},
        });
        assert_eq!(laid_over(all.clone()), all);
    }

    #[test]
    fn a_part_of_a_policy_leaves_the_rest() {
        let mut present = Policy::default();
        present.approval.attended = false;
        present.verify.commands = Some(vec!["make".into()]);
        let said = serde_json::from_value(json!({"verify": {"commands": null}})).unwrap();
        let mut expected = present.clone();
        expected.verify.commands = None;
        assert_eq!(over_policy(present, said), expected);
    }

    #[test]
    fn every_budget_arrives_and_null_is_no_limit() {
        let all =
            json!({"max_steps": 1, "max_tool_calls": 2, "max_duration_ms": 3, "max_tokens": 4, "max_micro_usd": 5});
        let said: wire::Budgets = serde_json::from_value(all.clone()).unwrap();
        assert_eq!(serde_json::to_value(over_budgets(Budgets::default(), said)).unwrap(), all);
        let said: wire::Budgets = serde_json::from_value(json!({"max_steps": null})).unwrap();
        let expected = Budgets { max_steps: None, ..Budgets::default() };
        assert_eq!(over_budgets(Budgets::default(), said), expected);
    }

    #[test]
    fn a_bare_create_takes_the_defaults() {
        let body = wire::CreateSession { workspace_path: "/w".into(), ..Default::default() };
        let new = new_session(body, Policy::default());
        let expected = Settings { workspace_path: "/w".into(), auto_run: true, ..Settings::default() };
        assert_eq!((new.settings, new.policy, new.budgets), (expected, Policy::default(), Budgets::default()));
    }
}

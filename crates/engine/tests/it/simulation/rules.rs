//! What the approval policy of the specification says of a call. Written down once more, on purpose: the core is not asked.

use tenure_core::{
    policy::{Policy, RuleAction},
    tool::ToolKind,
};

/// A call as the log names it.
pub struct Asked<'a> {
    pub name: &'a str,
    pub kind: ToolKind,
    pub subject: &'a str,
}

/// Tools and subjects that people answered for the whole session.
#[derive(Debug, Default)]
pub struct Lasting {
    pub allowed: Vec<(String, String)>,
    pub forbidden: Vec<(String, String)>,
}

fn holds(list: &[(String, String)], call: &Asked<'_>) -> bool {
    list.iter().any(|(name, subject)| name == call.name && subject == call.subject)
}

/// A lasting no comes first, then the rules in order, then the kinds and tools that need a yes; a lasting yes answers what
/// would be asked. The user's own verification commands run unasked.
pub fn verdict(policy: &Policy, lasting: &Lasting, call: &Asked<'_>) -> RuleAction {
    if holds(&lasting.forbidden, call) {
        return RuleAction::Deny;
    }
    let mut said = None;
    for rule in &policy.approval.rules {
        let tool_fits = rule.tool == "*" || rule.tool == call.name;
        let subject_fits = rule.exact.is_none() || rule.exact.as_deref() == Some(call.subject);
        assert!(rule.pattern.is_none(), "lives know no patterns");
        if said.is_none() && tool_fits && subject_fits {
            said = Some(rule.action);
        }
    }
    let asks = policy.approval.require_for_kinds.contains(&call.kind)
        || policy.approval.require_for_tools.iter().any(|name| name == call.name);
    match said.unwrap_or(if asks { RuleAction::Ask } else { RuleAction::Allow }) {
        RuleAction::Ask if holds(&lasting.allowed, call) => RuleAction::Allow,
        RuleAction::Ask if call.name == "verify" && own_commands(policy) == Some(call.subject.to_owned()) => {
            RuleAction::Allow
        }
        said => said,
    }
}

fn own_commands(policy: &Policy) -> Option<String> {
    policy.verify.commands.as_ref().filter(|commands| !commands.is_empty()).map(|commands| commands.join("\n"))
}

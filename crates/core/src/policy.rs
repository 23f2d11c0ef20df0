//! What may happen without asking: approvals, verification, recovery. Pure rules over recorded facts.

use serde::{Deserialize, Serialize};

use crate::tool::ToolKind;

/// All rules of one session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    pub approval: ApprovalPolicy,
    pub verify: VerifyPolicy,
    pub patch_review: PatchReview,
    pub recovery: RecoveryPolicy,
    #[serde(skip_serializing_if = "CompactionPolicy::is_usual")]
    pub compaction: CompactionPolicy,
}

/// When the older part of a context is summarized.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct CompactionPolicy {
    /// Without being asked.
    pub auto: bool,
    /// It begins, beside the turn, when the context takes this share of the model's window.
    pub from_percent: u8,
    /// From this share on the turn waits for it; where it is the smaller one, as soon as it begins.
    pub block_percent: u8,
}

impl Default for CompactionPolicy {
    fn default() -> Self {
        Self { auto: true, from_percent: 80, block_percent: 95 }
    }
}

impl CompactionPolicy {
    fn is_usual(&self) -> bool {
        *self == Self::default()
    }

    pub fn is_sane(&self) -> bool {
        [self.from_percent, self.block_percent].iter().all(|percent| (1..=100).contains(percent))
    }
}

/// When a tool call needs a yes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalPolicy {
    pub require_for_kinds: Vec<ToolKind>,
    pub require_for_tools: Vec<String>,
    /// The first rule that matches decides; without one, the two lists above do.
    pub rules: Vec<Rule>,
    /// Whether a person can be asked. If not, what needs a yes is denied (fail closed) and a reached budget ends the turn.
    pub attended: bool,
    /// An unanswered request counts as denied after this long; by default never.
    pub expires_after_ms: Option<u64>,
}

impl Policy {
    /// For a session of which nobody knows what it was allowed: nothing but reading is done unasked.
    pub fn strictest() -> Self {
        let require_for_kinds = vec![ToolKind::Write, ToolKind::Exec, ToolKind::Network];
        let approval = ApprovalPolicy { require_for_kinds, ..ApprovalPolicy::default() };
        Self { approval, ..Self::default() }
    }
}

impl Default for ApprovalPolicy {
    fn default() -> Self {
        Self {
            require_for_kinds: vec![ToolKind::Exec, ToolKind::Network],
            require_for_tools: vec![],
            rules: vec![],
            attended: true,
            expires_after_ms: None,
        }
    }
}

/// One allow, ask or deny rule, such as `shell: git status*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// A tool's name, or `*`.
    pub tool: String,
    /// Matched against the call's subject; `*` stands for any text. Nothing matches everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Matched against the call's subject to the letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<String>,
    pub action: RuleAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum RuleAction {
    Allow,
    Ask,
    Deny,
}

impl ApprovalPolicy {
    /// What this policy says of a call.
    pub fn judge(&self, tool: &str, kind: ToolKind, subject: &str) -> RuleAction {
        let fits = |rule: &&Rule| {
            (rule.tool == "*" || rule.tool == tool)
                && rule.pattern.as_deref().is_none_or(|pattern| matches_pattern(pattern, subject))
                && rule.exact.as_deref().is_none_or(|exact| exact == subject)
        };
        if let Some(rule) = self.rules.iter().find(fits) {
            return rule.action;
        }
        let asks = self.require_for_kinds.contains(&kind) || self.require_for_tools.iter().any(|name| name == tool);
        if asks { RuleAction::Ask } else { RuleAction::Allow }
    }
}

/// A pattern in which `*` stands for any text, also none. A command that chains others never fits a pattern with `*`, so that `git status*` does not allow `git status; rm -rf x`.
pub fn matches_pattern(pattern: &str, subject: &str) -> bool {
    if !pattern.contains('*') {
        return pattern == subject;
    }
    let chains = subject.contains(['\n', ';', '&', '|', '`', '>', '<']) || subject.contains("$(");
    if chains && pattern != "*" {
        return false;
    }
    let mut pieces = pattern.split('*');
    let first = pieces.next().unwrap_or("");
    let Some(mut rest) = subject.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = pieces.collect();
    let last = pieces.pop().unwrap_or("");
    for piece in pieces {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// How far an answer reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This call alone.
    #[default]
    Once,
    /// The same call (tool and subject) for the rest of this session.
    Session,
    /// The same call in every session from now on.
    Always,
}

/// What follows a turn's writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct VerifyPolicy {
    pub auto_verify: bool,
    /// Commands the session's maker chose; they run unasked. Otherwise they are looked for in the user's config, AGENTS.md and the Makefile.
    pub commands: Option<Vec<String>>,
    /// How often verification may fail in one turn before the turn fails.
    pub max_attempts: u32,
    /// Verification also fails when the commands leave tracked files changed.
    pub require_clean: bool,
}

impl Default for VerifyPolicy {
    fn default() -> Self {
        Self { auto_verify: true, commands: None, max_attempts: 3, require_clean: false }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum PatchReview {
    #[default]
    Off,
    Request,
    Auto,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RecoveryPolicy {
    pub resume: Resume,
}

/// What happens with an interrupted turn when the daemon is back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Resume {
    /// It waits for `resume`.
    Ask,
    /// It goes on by itself when no call's outcome is unknown.
    #[default]
    Safe,
    /// It goes on by itself in any case.
    Always,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, subject, fits) in [
            ("git status*", "git status", true),
            ("git status*", "git status -sb", true),
            ("git status*", "git status; rm -rf /", false),
            ("git status*", "git status && make", false),
            ("git status*", "git status $(rm x)", false),
            ("git status*", "git statu", false),
            ("make test", "make test", true),
            ("make test", "make test2", false),
            ("*", "anything; at all", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "a1c2b", false),
            ("a*a", "a", false),
            ("*.md", "docs/x.md", true),
        ] {
            assert_eq!(matches_pattern(pattern, subject), fits, "{pattern} against {subject}");
        }
    }

    #[test]
    fn the_default_policy_asks_for_exec_and_network_only() {
        let policy = ApprovalPolicy::default();
        assert_eq!(policy.judge("read_file", ToolKind::Read, ""), RuleAction::Allow);
        assert_eq!(policy.judge("write_file", ToolKind::Write, ""), RuleAction::Allow);
        assert_eq!(policy.judge("shell", ToolKind::Exec, "ls"), RuleAction::Ask);
        assert_eq!(policy.judge("fetch_url", ToolKind::Network, ""), RuleAction::Ask);
    }

    #[test]
    fn the_first_rule_that_fits_decides() {
        let rule =
            |pattern: &str, action| Rule { tool: "shell".into(), pattern: Some(pattern.into()), exact: None, action };
        let policy = ApprovalPolicy {
            rules: vec![rule("git push*", RuleAction::Deny), rule("git *", RuleAction::Allow)],
            require_for_tools: vec!["write_file".into()],
            ..Default::default()
        };
        assert_eq!(policy.judge("shell", ToolKind::Exec, "git push origin"), RuleAction::Deny);
        assert_eq!(policy.judge("shell", ToolKind::Exec, "git log"), RuleAction::Allow);
        assert_eq!(policy.judge("shell", ToolKind::Exec, "ls"), RuleAction::Ask);
        assert_eq!(policy.judge("write_file", ToolKind::Write, "a"), RuleAction::Ask);
    }
}

//! What an agent may do when nobody can be asked.

use clap::ValueEnum;
use tenure_wire::{ApprovalPolicy, ToolKind, Verdict};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Permit {
    /// Only read: everything that would change something is denied
    Never,
    /// Write inside the workspace; commands and network are denied
    #[default]
    Writes,
    /// Everything, commands and network too
    All,
}

impl Permit {
    /// The policy of a new session: nobody is there to be asked, so what is not allowed is denied.
    pub fn policy(self) -> ApprovalPolicy {
        let asks = match self {
            Permit::Never => vec![ToolKind::Write, ToolKind::Exec, ToolKind::Network],
            Permit::Writes => vec![ToolKind::Exec, ToolKind::Network],
            Permit::All => vec![],
        };
        ApprovalPolicy { require_for_kinds: Some(asks), attended: Some(false), ..ApprovalPolicy::default() }
    }

    /// The answer to a call of a session that asks all the same, because somebody else made its policy.
    pub fn verdict(self, kind: &str) -> Verdict {
        match (self, kind) {
            (Permit::All, _) | (Permit::Writes, "write") => Verdict::Approve,
            _ => Verdict::Deny,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_allowed_is_denied() {
        use Verdict::{Approve, Deny};
        for (permit, write, exec) in
            [(Permit::Never, Deny, Deny), (Permit::Writes, Approve, Deny), (Permit::All, Approve, Approve)]
        {
            assert_eq!((permit.verdict("write"), permit.verdict("exec")), (write, exec));
            assert_eq!(permit.policy().attended, Some(false));
        }
    }
}

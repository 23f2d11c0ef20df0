//! What an agent may do, said up front.

use clap::ValueEnum;
use tenure_wire::{ApprovalPolicy, PatchReview, ToolKind, Verdict};

use crate::exit::Problem;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Permit {
    /// Nothing unasked: you are asked about every write, command and network call; needs a terminal
    Ask,
    /// Only read: everything that would change something is denied
    Never,
    /// Write inside the workspace; commands and network are denied
    #[default]
    Writes,
    /// Everything, commands and network too
    All,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Review {
    /// Nobody
    Off,
    /// You: each change is shown as a diff and waits for a yes
    Request,
    /// The model itself, in a step of its own: it approves the change or sends it back with a reason
    Auto,
}

impl Review {
    pub fn policy(self) -> PatchReview {
        match self {
            Review::Off => PatchReview::Off,
            Review::Request => PatchReview::Request,
            Review::Auto => PatchReview::Auto,
        }
    }
}

/// Who answers approvals.
#[derive(Debug, Clone, Copy)]
pub enum Answers {
    Person,
    Rule(Permit),
}

/// Whether somebody sits there who can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seated {
    Person,
    Nobody,
}

impl Answers {
    /// Who answers, by what was said up front and by who is there.
    pub fn of(approve: Option<Permit>, seated: Seated) -> Result<Self, Problem> {
        match (approve, seated) {
            (None | Some(Permit::Ask), Seated::Person) => Ok(Answers::Person),
            (Some(Permit::Ask), Seated::Nobody) => Err(Problem::usage(
                "--approve ask needs a terminal: there is nobody here who could be asked",
                "say what is allowed: --approve never, writes or all",
            )),
            (approve, _) => Ok(Answers::Rule(approve.unwrap_or_default())),
        }
    }
}

/// The policy of a new session; `None` leaves it to the daemon.
pub fn policy(approve: Option<Permit>, answers: Answers) -> Option<ApprovalPolicy> {
    match answers {
        Answers::Person => approve.map(Permit::policy),
        Answers::Rule(permit) => Some(permit.policy()),
    }
}

impl Permit {
    /// Where nobody is there to be asked, what is not allowed is denied.
    fn policy(self) -> ApprovalPolicy {
        let asks = match self {
            Permit::Ask | Permit::Never => vec![ToolKind::Write, ToolKind::Exec, ToolKind::Network],
            Permit::Writes => vec![ToolKind::Exec, ToolKind::Network],
            Permit::All => vec![],
        };
        let attended = Some(self == Permit::Ask);
        ApprovalPolicy { require_for_kinds: Some(asks), attended, ..ApprovalPolicy::default() }
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
    #[test]
    fn a_person_is_asked_unless_it_was_said_up_front() {
        let of = |approve, seated| Answers::of(approve, seated).ok().map(|answers| (answers, policy(approve, answers)));
        assert!(matches!(of(None, Seated::Person), Some((Answers::Person, None))));
        let every = vec![ToolKind::Write, ToolKind::Exec, ToolKind::Network];
        let Some((Answers::Person, Some(asking))) = of(Some(Permit::Ask), Seated::Person) else { panic!("asked") };
        assert_eq!((asking.require_for_kinds, asking.attended), (Some(every), Some(true)));
        assert!(of(Some(Permit::Ask), Seated::Nobody).is_none());
        assert!(matches!(of(None, Seated::Nobody), Some((Answers::Rule(Permit::Writes), Some(_)))));
        assert!(matches!(of(Some(Permit::All), Seated::Person), Some((Answers::Rule(Permit::All), Some(_)))));
    }
}

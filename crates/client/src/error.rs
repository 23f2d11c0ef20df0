//! What can go wrong between a client and a daemon, in words for people. It never holds a token.

use tenure_wire::Problem;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon understood and refused.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// Nothing answered, or the connection broke.
    #[error("the daemon at {address} cannot be reached: {why}")]
    Unreachable { address: String, why: String },
    /// What answered does not speak our protocol.
    #[error("{what} is not what a daemon of this version sends: {why}")]
    Strange { what: String, why: String },
}

impl Error {
    pub(crate) fn unreachable(address: impl Into<String>, error: &reqwest::Error) -> Self {
        Error::Unreachable { address: address.into(), why: innermost(error) }
    }

    /// Whether trying again may help.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Refused(problem) => matches!(problem.status, 429 | 502..=504),
            Error::Unreachable { .. } => true,
            Error::Strange { .. } => false,
        }
    }

    /// The stable code of a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Refused(problem) => Some(&problem.code),
            _ => None,
        }
    }

    /// What the asker can do about it, where somebody knows.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Refused(problem) => Some(problem.hint.as_str()).filter(|hint| !hint.is_empty()),
            _ => None,
        }
    }
}

/// The cause at the bottom, which is the one a person understands ("connection refused").
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

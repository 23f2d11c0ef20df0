//! What can go wrong between a client and a daemon, in words for people. It never holds a token.

use std::io;

use rustls::CertificateError;
use tenure_wire::Problem;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The daemon understood and refused.
    #[error("{}", .0.detail)]
    Refused(Box<Problem>),
    /// Nothing answered, or the connection broke.
    #[error("the daemon at {address} cannot be reached: {why}")]
    Unreachable { address: String, why: String },
    /// Something listens there, but not as we were told: trying again does not help.
    #[error("{address}: {fault}")]
    Unlike { address: String, fault: Fault },
    /// What answered does not speak our protocol.
    #[error("{what} is not what a daemon of this version sends: {why}")]
    Strange { what: String, why: String },
}

/// What is other than we were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    #[error("its certificate is not the one of the given fingerprint")]
    OtherCertificate,
    #[error("its certificate is signed by nobody who is trusted here")]
    UnknownIssuer,
    #[error("its certificate is for another name")]
    OtherName,
    #[error("the time of its certificate is over, or has not come")]
    OutOfDate,
    #[error("its certificate is not a good one")]
    BadCertificate,
    #[error("no TLS is spoken there")]
    NoTls,
    #[error("what is spoken there is not HTTP, but perhaps TLS")]
    NoHttp,
}

impl Error {
    pub(crate) fn unreachable(address: impl Into<String>, error: &reqwest::Error) -> Self {
        let address = address.into();
        match fault(error) {
            Some(fault) => Error::Unlike { address, fault },
            None => Error::Unreachable { address, why: innermost(error).to_string() },
        }
    }

    /// Whether trying again may help.
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Refused(problem) => matches!(problem.status, 429 | 502..=504),
            Error::Unreachable { .. } => true,
            Error::Unlike { .. } | Error::Strange { .. } => false,
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
fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause
}

/// How HTTP begins to tell that it was answered something else; it gives no other sign of that.
const NO_HTTP: &str = "invalid HTTP version";

fn fault(error: &reqwest::Error) -> Option<Fault> {
    match tls_error(error) {
        Some(rustls::Error::InvalidCertificate(why)) => Some(match why {
            CertificateError::ApplicationVerificationFailure => Fault::OtherCertificate,
            // An authority of the same name with another key.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Fault::UnknownIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Fault::OtherName,
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => Fault::OutOfDate,
            _ => Fault::BadCertificate,
        }),
        Some(rustls::Error::InvalidMessage(_)) => Some(Fault::NoTls),
        _ if innermost(error).to_string().starts_with(NO_HTTP) => Some(Fault::NoHttp),
        _ => None,
    }
}

/// What TLS says. It stands inside errors of reading and writing, which do not tell it as their source.
fn tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    let mut cause: &(dyn std::error::Error + 'static) = error;
    loop {
        if let Some(found) = cause.downcast_ref() {
            return Some(found);
        }
        cause = match cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inside) => inside,
            None => cause.source()?,
        };
    }
}

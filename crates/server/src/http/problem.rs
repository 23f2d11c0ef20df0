//! Refusals and failures as `application/problem+json`: a stable code, one plain sentence, a hint. Internals never show.

use std::time::Duration;

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use tenure_core::{command::Refusal, ids::SessionId};
use tenure_engine::Error;
use tenure_wire::{PROBLEM_JSON, Problem};

/// Longer sentences are cut: they may repeat what the client sent.
const DETAIL_CHARS_MAX: usize = 500;

/// The code of a refusal, beside the answer that tells it.
#[derive(Debug, Clone)]
pub(crate) struct RefusedFor(pub(crate) String);

/// The session that is not there, beside the answer that tells it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Absent(pub(crate) SessionId);

/// An answer that says no.
#[derive(Debug)]
pub(crate) struct Rejection(Box<Inner>);

#[derive(Debug)]
struct Inner {
    problem: Problem,
    headers: HeaderMap,
    absent: Option<Absent>,
}

impl Rejection {
    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>, hint: &str) -> Self {
        let mut detail: String = detail.into();
        if let Some((cut, _)) = detail.char_indices().nth(DETAIL_CHARS_MAX) {
            detail.truncate(cut);
            detail.push('…');
        }
        let problem = Problem {
            kind: "about:blank".into(),
            title: status.canonical_reason().unwrap_or("Error").into(),
            status: status.as_u16(),
            code: code.into(),
            detail,
            hint: hint.into(),
            info: Value::Null,
        };
        Self(Box::new(Inner { problem, headers: HeaderMap::new(), absent: None }))
    }

    pub(crate) fn bad_request(detail: impl Into<String>, hint: &str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail, hint)
    }

    pub(crate) fn header(mut self, name: HeaderName, value: &'static str) -> Self {
        self.0.headers.insert(name, HeaderValue::from_static(value));
        self
    }

    /// In whole seconds, and at least one.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        self.0.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        self
    }

    pub(crate) fn code(&self) -> &str {
        &self.0.problem.code
    }

    /// A whole HTTP answer, for a connection that gets no further.
    pub(crate) fn as_bytes(&self) -> Vec<u8> {
        let Inner { problem, headers, .. } = &*self.0;
        let body = serde_json::to_string(problem).unwrap_or_default();
        let mut head = format!("HTTP/1.1 {} {}\r\ncontent-type: {PROBLEM_JSON}\r\n", problem.status, problem.title);
        for (name, value) in headers {
            head += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
        }
        format!("{head}connection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }

    fn info(mut self, info: Value) -> Self {
        self.0.problem.info = info;
        self
    }

    #[cfg(test)]
    pub(crate) fn problem(&self) -> &Problem {
        &self.0.problem
    }
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let Inner { problem, headers, absent } = *self.0;
        let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Text and numbers alone: this cannot fail.
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = (status, headers, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        response.extensions_mut().insert(RefusedFor(problem.code));
        if let Some(absent) = absent {
            response.extensions_mut().insert(absent);
        }
        response
    }
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => refusal.into(),
            Error::NoSession(session) => unknown_session(session),
            Error::Overloaded => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "this session has more requests waiting than it takes",
                "try again in a second",
            )
            .header(header::RETRY_AFTER, "1"),
            Error::Closed => Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "shutting_down",
                "the daemon is stopping",
                "start it again and repeat the request with the same idempotency key",
            )
            .header(header::RETRY_AFTER, "1"),
            Error::Store(error) => from_store(error),
            Error::Bug(what) => internal(&what),
        }
    }
}

fn from_store(error: tenure_store::Error) -> Rejection {
    use tenure_store::{Asked, Error as Store};
    match error {
        Store::NoSession(session) => unknown_session(session),
        Store::Disk { asked, .. } => {
            tracing::error!("{error}");
            let (detail, hint) = match asked {
                Asked::Read => (
                    "the disk refused a read, so nothing was done",
                    "look at the daemon's log, then repeat the request",
                ),
                Asked::Write => (
                    "the disk refused a write, so nothing was done",
                    "free some space or look at the daemon's log, then repeat the request",
                ),
            };
            Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "disk_refused", detail, hint)
                .header(header::RETRY_AFTER, "5")
        }
        Store::KeysFull { .. } => Rejection::new(
            StatusCode::TOO_MANY_REQUESTS,
            "keys_full",
            error.to_string(),
            "repeat the request later, or without a key",
        )
        .header(header::RETRY_AFTER, "60"),
        Store::Damaged { session, seq, .. } => Rejection::new(
            StatusCode::CONFLICT,
            "session_damaged",
            format!("the log of {session} is damaged after event {seq}; the session can only be read up to it"),
            "read what is there, go on in a fork of it (`tenure session fork`), or mend it with `tenure store repair`",
        ),
        Store::Exists(_)
        | Store::NoLog(_)
        | Store::Fenced { .. }
        | Store::Conflict { .. }
        | Store::Locked { .. }
        | Store::NoFolder(_)
        | Store::Other(_) => internal(&error.to_string()),
    }
}

impl From<Refusal> for Rejection {
    fn from(refusal: Refusal) -> Self {
        let rejection = Self::new(status_of(refusal.code), refusal.code, refusal.message, refusal.hint);
        let rejection = match refusal.code {
            "queue_full" => rejection.header(header::RETRY_AFTER, "1"),
            _ => rejection,
        };
        rejection.info(refusal.detail)
    }
}

/// A refusal is about the session's state unless its code says otherwise.
fn status_of(code: &str) -> StatusCode {
    match code {
        "unknown_turn" | "unknown_call" => StatusCode::NOT_FOUND,
        "queue_full" => StatusCode::TOO_MANY_REQUESTS,
        "version_mismatch" => StatusCode::PRECONDITION_FAILED,
        "unknown_attachment" | "bad_role" | "empty_message" | "unsupported_policy" | "unsupported_part"
        | "budget_lowered" | "unknown_seq" | "bad_cursor" | "bad_archive" => StatusCode::BAD_REQUEST,
        "bad_schema" => StatusCode::BAD_REQUEST,
        "session_purged" => StatusCode::GONE,
        "archive_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::CONFLICT,
    }
}

pub(crate) fn unknown_session(session: SessionId) -> Rejection {
    let mut rejection = no_such_session(&session.to_string());
    rejection.0.absent = Some(Absent(session));
    rejection
}

pub(crate) fn no_such_session(name: &str) -> Rejection {
    Rejection::new(
        StatusCode::NOT_FOUND,
        "unknown_session",
        format!("there is no session {name}"),
        "list the sessions with GET /v1/sessions",
    )
}

pub(crate) fn no_such_turn(name: &str) -> Rejection {
    Rejection::new(
        StatusCode::NOT_FOUND,
        "unknown_turn",
        format!("there is no turn {name} in this session"),
        "look at the session's last_turn_id",
    )
}

pub(crate) fn unknown_path() -> Rejection {
    Rejection::new(
        StatusCode::NOT_FOUND,
        "unknown_path",
        "there is nothing at this path",
        "the API begins at /v1/sessions",
    )
}

pub(crate) fn wrong_method() -> Rejection {
    Rejection::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "wrong_method",
        "this path does not take that method",
        "the Allow header says which methods it takes",
    )
}

/// The cause goes to the daemon's log; it could name paths or worse.
pub(crate) fn internal(cause: &str) -> Rejection {
    tracing::error!("internal: {cause}");
    Rejection::new(
        StatusCode::INTERNAL_SERVER_ERROR,
        "internal",
        "something went wrong inside the daemon",
        "look at the daemon's log",
    )
}

#[cfg(test)]
mod tests {
    use tenure_store::Asked;

    use super::*;

    #[test]
    fn a_refused_read_is_not_called_a_write() {
        for (asked, word) in [(Asked::Read, "a read"), (Asked::Write, "a write")] {
            let error =
                tenure_store::Error::Disk { asked, what: "events of x".into(), why: "input/output error".into() };
            let detail = from_store(error).problem().detail.clone();
            assert_eq!(detail, format!("the disk refused {word}, so nothing was done"));
        }
    }

    #[test]
    fn refusals_keep_their_code_and_get_a_status() {
        for (code, status) in [
            ("unknown_turn", 404),
            ("unknown_call", 404),
            ("queue_full", 429),
            ("bad_role", 400),
            ("unsupported_policy", 400),
            ("budget_lowered", 400),
            ("version_mismatch", 412),
            ("session_ended", 409),
            ("already_answered", 409),
            ("key_reused", 409),
        ] {
            let rejection = Rejection::from(Refusal::new(code, "no", "so"));
            assert_eq!((rejection.problem().code.as_str(), rejection.problem().status), (code, status));
        }
    }

    #[test]
    fn too_many_keys_are_no_fault_of_the_daemon() {
        let rejection = Rejection::from(Error::Store(tenure_store::Error::KeysFull { limit: 3 }));
        assert_eq!((rejection.problem().code.as_str(), rejection.problem().status), ("keys_full", 429));
        assert!(rejection.problem().detail.contains("3 idempotency keys"));
    }

    #[test]
    fn a_cause_inside_does_not_show() {
        let rejection = Rejection::from(Error::Bug("/data/somebody/secret".into()));
        assert!(!serde_json::to_string(rejection.problem()).unwrap().contains("secret"));
    }

    #[test]
    fn long_sentences_are_cut_at_a_whole_character() {
        let rejection = Rejection::bad_request("ü".repeat(10_000), "");
        assert_eq!(rejection.problem().detail.chars().count(), DETAIL_CHARS_MAX + 1);
    }
}

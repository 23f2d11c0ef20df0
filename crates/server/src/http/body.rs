//! Reads a request's body as one JSON value of the expected shape, within its bounds. Nothing is done before all of it was read and understood.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::{Body, HttpBody as _},
    extract::{FromRequest, Request, rejection::JsonRejection},
    http::{HeaderMap, StatusCode, header},
};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Limited};
use serde::de::{DeserializeOwned, IgnoredAny};
use tokio::time::timeout;

use super::{App, key, problem::Rejection};
use crate::limits::Limits;

/// How long a body that is not wanted is read, at most.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(2);

/// A request body with an idempotency key in it.
pub(crate) trait Keyed: DeserializeOwned {
    /// What stands for a body that was left out, where it may be.
    fn left_out() -> Option<Self>;
    fn take_key(&mut self) -> Option<String>;
}

macro_rules! keyed {
    ($($name:ident $left_out:expr;)*) => {$(
        impl Keyed for tenure_wire::$name {
            fn left_out() -> Option<Self> {
                $left_out
            }

            fn take_key(&mut self) -> Option<String> {
                self.idempotency_key.take()
            }
        }
    )*};
}

keyed! {
    CreateSession None;
    SendMessage None;
    Approve None;
    Patch None;
    Fork Some(Self::default());
    Cancel Some(Self::default());
    Undo Some(Self::default());
    End Some(Self::default());
    EmptyCommand Some(Self::default());
    NewAttachment None;
}

/// A body and the key that came in it or in the header.
pub(crate) struct Sent<T> {
    pub(crate) body: T,
    pub(crate) key: Option<String>,
}

impl<T: Keyed> FromRequest<Arc<App>> for Sent<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Rejection> {
        sent(request, &app.limits, app.limits.body_bytes_max).await
    }
}

/// A body without a key, for what must not be done twice or told twice. One that is left out stands for an empty object.
pub(crate) struct Plain<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Plain<T> {
    type Rejection = Rejection;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Rejection> {
        let (parts, body) = request.into_parts();
        let bytes = read(&parts.headers, body, &app.limits, app.limits.body_bytes_max).await?;
        if parts.headers.contains_key(tenure_wire::IDEMPOTENCY_KEY) {
            return Err(Rejection::new(
                StatusCode::BAD_REQUEST,
                "bad_idempotency_key",
                "what this makes is told once, so that it cannot be repeated",
                "leave the key out",
            ));
        }
        parse(if bytes.is_empty() { b"{}" } else { &bytes }).map(Plain)
    }
}

/// A JSON body of at most so many bytes.
pub(crate) async fn sent<T: Keyed>(request: Request, limits: &Limits, bytes_max: usize) -> Result<Sent<T>, Rejection> {
    let (parts, body) = request.into_parts();
    let bytes = read(&parts.headers, body, limits, bytes_max).await?;
    let mut body = match T::left_out() {
        Some(left_out) if bytes.is_empty() => left_out,
        _ => parse(&bytes)?,
    };
    let key = key::one_of(&parts.headers, body.take_key())?;
    Ok(Sent { body, key })
}

async fn read(headers: &HeaderMap, body: Body, limits: &Limits, bytes_max: usize) -> Result<Bytes, Rejection> {
    if !body.is_end_stream() && !is_json(headers) {
        drain_body(headers, body, limits).await;
        return Err(Rejection::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "wrong_content_type",
            "the body is not said to be JSON",
            "send 'Content-Type: application/json'",
        ));
    }
    read_whole(headers, body, limits, bytes_max).await
}

/// A body of any kind, of at most so many bytes.
pub(crate) async fn read_whole(
    headers: &HeaderMap,
    body: Body,
    limits: &Limits,
    bytes_max: usize,
) -> Result<Bytes, Rejection> {
    let too_large = u64::try_from(bytes_max).is_ok_and(|max| body.size_hint().lower() > max);
    if too_large {
        drain_body(headers, body, limits).await;
        return Err(body_too_large(bytes_max));
    }
    match timeout(limits.body_read, collect(body, bytes_max)).await {
        Ok(Collected::All(bytes)) => Ok(bytes),
        Ok(Collected::TooLarge(rest)) => {
            drain_body(headers, rest, limits).await;
            Err(body_too_large(bytes_max))
        }
        Ok(Collected::Cut) => Err(Rejection::bad_request("the body ended before its end", "send the request again")),
        Err(_) => Err(body_timeout()),
    }
}

pub(crate) fn body_timeout() -> Rejection {
    let (detail, hint) = ("the body took too long to arrive", "send the request again");
    Rejection::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail, hint).header(header::CONNECTION, "close")
}

enum Collected {
    All(Bytes),
    /// With what is left of it.
    TooLarge(Body),
    Cut,
}

async fn collect(mut body: Body, bytes_max: usize) -> Collected {
    let mut all = BytesMut::new();
    loop {
        match body.frame().await {
            None => return Collected::All(all.freeze()),
            Some(Err(_)) => return Collected::Cut,
            Some(Ok(frame)) => {
                let Some(data) = frame.data_ref() else { continue };
                if all.len() + data.len() > bytes_max {
                    return Collected::TooLarge(body);
                }
                all.extend_from_slice(data);
            }
        }
    }
}

fn body_too_large(bytes_max: usize) -> Rejection {
    let detail = format!("the body is larger than {bytes_max} bytes");
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail, "send less in one request")
        .header(header::CONNECTION, "close")
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONTENT_TYPE).iter();
    let value = values.next().and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = value.split(';').next().unwrap_or("").trim();
    values.next().is_none() && essence.eq_ignore_ascii_case(tenure_wire::JSON)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Rejection> {
    // What is no JSON is told so, whatever stands in it.
    if let Err(error) = serde_json::from_slice::<IgnoredAny>(bytes) {
        return Err(bad_json(&error.to_string()));
    }
    match Json::from_bytes(bytes) {
        Ok(Json(value)) => Ok(value),
        Err(rejection) => Err(explain(&rejection)),
    }
}

/// The cause names the field, and the line and column.
fn explain(rejection: &JsonRejection) -> Rejection {
    let cause = innermost(rejection);
    match rejection {
        JsonRejection::JsonDataError(_) => Rejection::bad_request(
            format!("the body does not fit: {cause}"),
            "compare the body with the API's description",
        ),
        _ => bad_json(&cause),
    }
}

fn bad_json(cause: &str) -> Rejection {
    let detail = format!("the body is not JSON: {cause}");
    Rejection::new(StatusCode::BAD_REQUEST, "bad_json", detail, "send one JSON object")
}

/// axum wraps the reader's error in sentences of its own.
pub(crate) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let wrapped = error.source().and_then(|inner| inner.source().or(Some(inner)));
    wrapped.map_or_else(|| error.to_string(), ToString::to_string)
}

/// Reads and drops a body that is not wanted: to close on a client that still writes would hide the answer from it.
pub(crate) async fn drain(request: Request, limits: &Limits) {
    let (parts, body) = request.into_parts();
    drain_body(&parts.headers, body, limits).await;
}

pub(crate) async fn drain_body(headers: &HeaderMap, body: Body, limits: &Limits) {
    // A client that waits for a word before it sends its body is not given that word.
    if headers.contains_key(header::EXPECT) {
        return;
    }
    let mut rest = Limited::new(body, limits.drain_bytes_max);
    let all = async { while let Some(Ok(_)) = rest.frame().await {} };
    if timeout(DRAIN_TIME_MAX, all).await.is_err() {
        tracing::debug!("a body that is not wanted took too long");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem_of(body: &str) -> (String, String) {
        let rejection = parse::<tenure_wire::SendMessage>(body.as_bytes()).unwrap_err();
        (rejection.problem().code.clone(), rejection.problem().detail.clone())
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (body, code, said) in [
            ("{", "bad_json", "line 1 column 1"),
            ("{\"parts\":[]} x", "bad_json", "trailing characters at line 1 column 14"),
            ("", "bad_json", "EOF"),
            ("[]", "bad_request", "invalid type: sequence"),
            ("{}", "bad_request", "missing field `parts`"),
            (r#"{"parts":[],"colour":1}"#, "bad_request", "unknown field `colour`"),
            (r#"{"parts":"x"}"#, "bad_request", "parts: invalid type"),
            (r#"{"parts":[{"type":"text","text":5}]}"#, "bad_request", "parts[0]"),
            (r#"{"parts":[{"type":"video"}]}"#, "bad_request", "unknown variant `video`"),
            (r#"{"parts":[{"type":"text","text":"a","x":1}]}"#, "bad_request", "unknown field `x`"),
            (r#"{"parts":[],"auto_run":"yes"}"#, "bad_request", "auto_run: invalid type"),
            (r#"{"parts":[],"parts":[]}"#, "bad_request", "duplicate field `parts`"),
        ] {
            let (found, detail) = problem_of(body);
            assert_eq!(found, code, "{body}: {detail}");
            assert!(detail.contains(said), "{body}: {detail}");
        }
    }

    #[test]
    fn content_types() {
        for (value, fits) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("multipart/form-data; boundary=x", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(is_json(&headers), fits, "{value}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}

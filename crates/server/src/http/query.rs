//! What stands in a request's address and head: ids, parameters, `If-Match`. Parameters that are not known are refused.

use std::sync::Arc;

use axum::{
    extract::{FromRequestParts, Query, RawPathParams},
    http::{HeaderMap, StatusCode, header, request::Parts},
};
use serde::{Deserialize, de::DeserializeOwned};
use tenure_core::ids::{SessionId, TurnId};

use super::{
    App,
    body::innermost,
    problem::{self, Rejection},
};

/// A session named in the path: by its id, or by a label or a role.
pub(crate) struct InSession(pub(crate) SessionId);

/// A turn named in the path.
pub(crate) struct InTurn(pub(crate) SessionId, pub(crate) TurnId);

impl FromRequestParts<Arc<App>> for InSession {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Rejection> {
        Ok(InSession(session_of(&path(parts, app).await?, app).await?))
    }
}

impl FromRequestParts<Arc<App>> for InTurn {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Rejection> {
        let path = path(parts, app).await?;
        let session = session_of(&path, app).await?;
        let name = named(&path, "turn");
        Ok(InTurn(session, name.parse().map_err(|_| problem::no_such_turn(&shown(name)))?))
    }
}

/// A file of a session named in the path.
pub(crate) struct InFile(pub(crate) SessionId, pub(crate) String);

impl FromRequestParts<Arc<App>> for InFile {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Rejection> {
        let path = path(parts, app).await?;
        Ok(InFile(session_of(&path, app).await?, named(&path, "file").to_owned()))
    }
}

async fn path(parts: &mut Parts, app: &Arc<App>) -> Result<RawPathParams, Rejection> {
    RawPathParams::from_request_parts(parts, app).await.map_err(|_| problem::unknown_path())
}

pub(crate) fn named<'a>(path: &'a RawPathParams, name: &str) -> &'a str {
    path.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
}

async fn session_of(path: &RawPathParams, app: &App) -> Result<SessionId, Rejection> {
    let name = named(path, "session");
    match name.parse() {
        Ok(session) => Ok(session),
        Err(_) => app.engine.named(name).await?.ok_or_else(|| problem::no_such_session(&shown(name))),
    }
}

/// A foreign text as a sentence may repeat it.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().filter(|c| !c.is_control()).take(64).collect();
    format!("'{short}'")
}

/// The parameters of a request.
pub(crate) struct Params<T>(pub(crate) T);

/// For a path that takes no parameters.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Rejection> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Params(params)),
            Err(rejection) => Err(bad_query(format!("the parameters do not fit: {}", innermost(&rejection)))),
        }
    }
}

/// Which part of a list.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    /// How many entries to give at most.
    limit: Option<usize>,
    /// `next` of the page before.
    pub(crate) cursor: Option<String>,
}

impl Page {
    pub(crate) fn limit(&self) -> Result<usize, Rejection> {
        page_limit(self.limit)
    }
}

pub(crate) const PAGE_DEFAULT: usize = 50;
pub(crate) const PAGE_MAX: usize = 200;

/// How many entries a page of a list may have.
pub(crate) fn page_limit(limit: Option<usize>) -> Result<usize, Rejection> {
    match limit.unwrap_or(PAGE_DEFAULT) {
        limit @ 1..=PAGE_MAX => Ok(limit),
        limit => Err(bad_query(format!("limit is {limit}; it can be 1 to {PAGE_MAX}"))),
    }
}

pub(crate) fn bad_query(detail: impl Into<String>) -> Rejection {
    Rejection::new(StatusCode::BAD_REQUEST, "bad_query", detail, "compare the address with the API's description")
}

pub(crate) fn bad_cursor(detail: impl Into<String>) -> Rejection {
    Rejection::new(
        StatusCode::BAD_REQUEST,
        "bad_cursor",
        detail,
        "send the id of an event of this stream, or 'next' of a list, or leave it out to begin at the start",
    )
}

/// The version a client believes in: `"12"` or `12`; `*` stands for any.
pub(crate) fn if_match(headers: &HeaderMap) -> Result<Option<u64>, Rejection> {
    let mut values = headers.get_all(header::IF_MATCH).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().unwrap_or("").trim();
    if text == "*" && values.next().is_none() {
        return Ok(None);
    }
    let bare = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let plain = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
    match bare.parse() {
        Ok(seq) if plain && values.next().is_none() => Ok(Some(seq)),
        _ => Err(Rejection::new(
            StatusCode::BAD_REQUEST,
            "bad_if_match",
            "If-Match is not a version of a session",
            "send the ETag of GET /v1/sessions/{id}, such as \"12\"",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (text, expected) in [
            ("\"12\"", Ok(Some(12))),
            ("12", Ok(Some(12))),
            ("*", Ok(None)),
            ("", Err(())),
            ("\"12", Err(())),
            ("W/\"12\"", Err(())),
            ("+12", Err(())),
            ("\"1\", \"2\"", Err(())),
            ("99999999999999999999", Err(())),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_MATCH, text.parse().unwrap());
            assert_eq!(if_match(&headers).map_err(|_| ()), expected, "{text}");
        }
        assert_eq!(if_match(&HeaderMap::new()).map_err(|_| ()), Ok(None));
    }
}

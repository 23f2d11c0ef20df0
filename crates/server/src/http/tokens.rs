//! Tokens by name: list, add, revoke, rotate. A secret is in the answer that made it and in no other.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, RawPathParams, State},
    http::{StatusCode, header, request::Parts},
    response::Response,
};
use tenure_wire as wire;

use super::{
    App,
    body::Plain,
    json,
    problem::{Rejection, internal, unknown_path},
    query::{Nothing, Params, named, shown},
};
use crate::access::{NamedToken, OWNER, caller::Caller, tokens::Refused};

/// A token named in the path.
pub(crate) struct InToken(String);

impl FromRequestParts<Arc<App>> for InToken {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Rejection> {
        let path = RawPathParams::from_request_parts(parts, app).await.map_err(|_| unknown_path())?;
        Ok(Self(named(&path, "token").to_owned()))
    }
}

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    _: Params<Nothing>,
) -> Result<Response, Rejection> {
    caller.may_manage()?;
    let tokens = app.guard.tokens.list().iter().map(view).collect();
    Ok(json(StatusCode::OK, &wire::TokenList { tokens }))
}

pub(crate) async fn add(
    State(app): State<Arc<App>>,
    caller: Caller,
    _: Params<Nothing>,
    Plain(new): Plain<wire::NewToken>,
) -> Result<Response, Rejection> {
    caller.may_manage()?;
    let valid = new.expires_in_ms.map(Duration::from_millis);
    let name = new.name.clone();
    let adding = async move { app.guard.tokens.add(&name, valid).await };
    let (token, secret) = to_its_end(adding, &new.name).await?;
    tracing::info!("the token {} was made", token.name);
    Ok(made(StatusCode::CREATED, &token, secret))
}

pub(crate) async fn revoke(
    State(app): State<Arc<App>>,
    caller: Caller,
    InToken(name): InToken,
    _: Params<Nothing>,
) -> Result<Response, Rejection> {
    caller.may_manage()?;
    let gone = name.clone();
    to_its_end(async move { app.guard.tokens.revoke(&gone).await }, &name).await?;
    tracing::info!("the token {name} was revoked");
    Ok(json(StatusCode::OK, &wire::TokenRevoked { name }))
}

pub(crate) async fn rotate(
    State(app): State<Arc<App>>,
    caller: Caller,
    InToken(name): InToken,
    _: Params<Nothing>,
    Plain(how): Plain<wire::RotateToken>,
) -> Result<Response, Rejection> {
    caller.may_manage()?;
    let grace = how.grace_ms.filter(|ms| *ms > 0).map(Duration::from_millis);
    let rotated = name.clone();
    let rotating = async move { app.guard.tokens.rotate(&rotated, grace).await };
    let (token, secret) = to_its_end(rotating, &name).await?;
    tracing::info!("the token {name} was rotated");
    Ok(made(StatusCode::OK, &token, secret))
}

/// In a task of its own: a client that goes away in the middle must not leave one thing on disk and another in force.
async fn to_its_end<T: Send + 'static>(
    change: impl Future<Output = Result<T, Refused>> + Send + 'static,
    name: &str,
) -> Result<T, Rejection> {
    let done = tokio::spawn(change).await.map_err(|error| internal(&error.to_string()))?;
    done.map_err(|why| refused(why, name))
}

fn made(status: StatusCode, token: &NamedToken, secret: String) -> Response {
    json(status, &wire::TokenMade { token: secret, view: view(token) })
}

fn view(token: &NamedToken) -> wire::TokenView {
    wire::TokenView {
        name: token.name.clone(),
        created_at: token.created_at.to_string(),
        last4: token.last4.clone(),
        expires_at: token.expires_at.map(|at| at.to_string()),
        earlier_until: token.earlier.as_ref().map(|earlier| earlier.until.to_string()),
    }
}

fn refused(why: Refused, name: &str) -> Rejection {
    let name = shown(name);
    match why {
        Refused::BadName(why) => Rejection::new(StatusCode::BAD_REQUEST, "bad_token_name", why, "choose another name"),
        Refused::Exists => Rejection::new(
            StatusCode::CONFLICT,
            "token_exists",
            format!("there is a token {name} already"),
            "choose another name, or rotate that one",
        ),
        Refused::Unknown => Rejection::new(
            StatusCode::NOT_FOUND,
            "unknown_token",
            format!("there is no token {name}"),
            "list the tokens with GET /v1/tokens",
        ),
        Refused::Owner => Rejection::new(
            StatusCode::CONFLICT,
            "owner_token",
            format!("'{OWNER}' is the daemon's own token, which cannot be revoked"),
            "rotate it",
        ),
        Refused::NoSpare => Rejection::new(
            StatusCode::CONFLICT,
            "rotated_enough",
            "the daemon's own token was rotated as often as it can be in one life of the daemon",
            "restart the daemon (`tenure stop`), then rotate it again",
        ),
        Refused::TooMany => Rejection::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too_many_tokens",
            "there are as many tokens as there may be",
            "revoke one, or raise limits.tokens_max",
        ),
        Refused::NotKept(error) if error.kind() == std::io::ErrorKind::Other => internal(&error.to_string()),
        Refused::NotKept(error) => {
            tracing::error!("tokens cannot be kept: {error}");
            let (detail, hint) = ("the disk refused a write, so nothing was done", "look at the daemon's log");
            Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "disk_refused", detail, hint)
                .header(header::RETRY_AFTER, "5")
        }
    }
}

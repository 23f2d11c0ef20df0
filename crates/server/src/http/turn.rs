//! Turns: start one over what was appended, look at one and wait for it, retry and resume.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, http::StatusCode, response::Response};
use serde::Deserialize;
use tenure_core::command::Command;
use tenure_wire::{EmptyCommand, WAIT_MS_MAX};

use super::{
    App,
    body::Sent,
    command::run,
    json,
    problem::Rejection,
    query::{InSession, InTurn, Nothing, Params, bad_query},
    view,
};
use crate::access::{caller::Caller, unauthorized};

pub(crate) async fn start(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    Sent { key, .. }: Sent<EmptyCommand>,
) -> Result<Response, Rejection> {
    run(&app, &caller, session, Command::StartTurn, key).await
}

pub(crate) async fn retry(
    State(app): State<Arc<App>>,
    caller: Caller,
    InTurn(session, turn_id): InTurn,
    _: Params<Nothing>,
    Sent { key, .. }: Sent<EmptyCommand>,
) -> Result<Response, Rejection> {
    run(&app, &caller, session, Command::Retry { turn_id }, key).await
}

pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    caller: Caller,
    InTurn(session, turn_id): InTurn,
    _: Params<Nothing>,
    Sent { key, .. }: Sent<EmptyCommand>,
) -> Result<Response, Rejection> {
    run(&app, &caller, session, Command::Resume { turn_id }, key).await
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Wait {
    /// How long to wait for the turn to come to rest.
    wait_ms: Option<u64>,
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    caller: Caller,
    InTurn(session, turn): InTurn,
    Params(Wait { wait_ms }): Params<Wait>,
) -> Result<Response, Rejection> {
    if wait_ms.is_some_and(|ms| ms > WAIT_MS_MAX) {
        return Err(bad_query(format!("wait_ms can be {WAIT_MS_MAX} at most")));
    }
    let wait = wait_ms.map(Duration::from_millis);
    let record = tokio::select! {
        biased;
        record = app.engine.turn(session, turn, wait) => record?,
        // A stop does not wait for those who wait: they get what is known now.
        () = app.stop.cancelled() => app.engine.turn(session, turn, None).await?,
        () = caller.life.cancelled() => return Err(unauthorized()),
    };
    Ok(json(StatusCode::OK, &view::turn(session, record)))
}

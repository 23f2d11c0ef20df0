//! Commands to a session: each becomes one command of the core, and its answer one body of the wire.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use tenure_core::{
    command::{Answer, Command, Verdict},
    ids::{SessionId, TurnId},
    message::{Delivery, Role},
    policy::Scope,
};
use tenure_wire as wire;

use super::{
    App,
    body::Sent,
    convert, json,
    problem::{Rejection, internal},
    query::{InSession, Nothing, Params},
};
use crate::access::caller::Caller;

pub(crate) async fn send_message(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    Sent { body, key }: Sent<wire::SendMessage>,
) -> Result<Response, Rejection> {
    app.limits.text.parts(&body.parts)?;
    let command = Command::SendMessage {
        role: body.role.map_or(Role::User, convert::core_role),
        parts: body.parts.into_iter().map(convert::core_part).collect(),
        delivery: body.delivery.map_or(Delivery::Queue, convert::core_delivery),
        auto_run: body.auto_run,
    };
    run(&app, &caller, session, command, key).await
}

pub(crate) async fn approve(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    Sent { body, key }: Sent<wire::Approve>,
) -> Result<Response, Rejection> {
    app.limits.text.reason(body.reason.as_deref())?;
    let call = body.tool_call_id.parse().map_err(|error| bad_id("tool_call_id", &error))?;
    let command = Command::Answer {
        turn_id: turn_in_body(body.turn_id.as_deref())?,
        call,
        verdict: convert::core_verdict(body.action),
        scope: body.scope.map_or(Scope::Once, convert::core_scope),
        reason: body.reason,
    };
    run(&app, &caller, session, command, key).await
}

pub(crate) async fn cancel(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    Sent { body, key }: Sent<wire::Cancel>,
) -> Result<Response, Rejection> {
    app.limits.text.reason(body.reason.as_deref())?;
    let turn_id = turn_in_body(body.turn_id.as_deref())?;
    run(&app, &caller, session, Command::Cancel { turn_id, reason: body.reason }, key).await
}

pub(crate) async fn compact(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    Sent { key, .. }: Sent<wire::EmptyCommand>,
) -> Result<Response, Rejection> {
    run(&app, &caller, session, Command::Compact, key).await
}

pub(crate) async fn undo(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    Sent { body, key }: Sent<wire::Undo>,
) -> Result<Response, Rejection> {
    let turn_id = turn_in_body(body.turn_id.as_deref())?;
    run(&app, &caller, session, Command::Undo { turn_id }, key).await
}

pub(crate) async fn end(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    Sent { body, key }: Sent<wire::End>,
) -> Result<Response, Rejection> {
    app.limits.text.reason(body.reason.as_deref())?;
    run(&app, &caller, session, Command::End { reason: body.reason }, key).await
}

fn turn_in_body(name: Option<&str>) -> Result<Option<TurnId>, Rejection> {
    name.map(|name| name.parse().map_err(|error| bad_id("turn_id", &error))).transpose()
}

fn bad_id(field: &str, error: &tenure_core::ids::BadId) -> Rejection {
    Rejection::bad_request(format!("{field}: {error}"), "send an id as the API gave it")
}

/// Hands a command to the engine and shows its answer.
pub(crate) async fn run(
    app: &App,
    caller: &Caller,
    session: SessionId,
    command: Command,
    key: Option<String>,
) -> Result<Response, Rejection> {
    let answer = app.engine.command(session, command, key, caller.actor()).await?;
    Ok(match answer {
        Answer::Message { message_id, turn_id } => {
            let turn_id = turn_id.map(|turn| turn.to_string());
            json(StatusCode::ACCEPTED, &wire::MessageAccepted { message_id: message_id.to_string(), turn_id })
        }
        Answer::Turn { turn_id } => json(StatusCode::ACCEPTED, &wire::TurnStarted { turn_id: turn_id.to_string() }),
        Answer::Approval { tool_call_id, verdict, scope } => {
            let (action, scope) = (wire_verdict(verdict), wire_scope(scope));
            let tool_call_id = tool_call_id.to_string();
            json(StatusCode::OK, &wire::ApprovalAnswered { tool_call_id, action, scope })
        }
        Answer::Canceling { turn_id } => {
            let turn_id = turn_id.to_string();
            json(StatusCode::ACCEPTED, &wire::Canceling { turn_id, status: "canceling".into() })
        }
        Answer::Compacting { seq } => {
            json(StatusCode::ACCEPTED, &wire::Compacting { seq, status: "compacting".into() })
        }
        Answer::Undoing { turn_id, seq } => {
            let turn_id = turn_id.to_string();
            json(StatusCode::ACCEPTED, &wire::Undoing { turn_id, seq, status: "undoing".into() })
        }
        Answer::Ended { status } => json(StatusCode::ACCEPTED, &wire::Ended { status }),
        Answer::Attached { .. } | Answer::Updated { .. } => {
            return Err(internal("a command was answered as an update"));
        }
    })
}

fn wire_verdict(verdict: Verdict) -> wire::Verdict {
    match verdict {
        Verdict::Approve => wire::Verdict::Approve,
        Verdict::Deny => wire::Verdict::Deny,
    }
}

fn wire_scope(scope: Scope) -> wire::Scope {
    match scope {
        Scope::Once => wire::Scope::Once,
        Scope::Session => wire::Scope::Session,
        Scope::Always => wire::Scope::Always,
    }
}

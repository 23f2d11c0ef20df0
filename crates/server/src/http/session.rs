//! Sessions as a whole: create, list, show, update.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::{Deserialize, Serialize};
use tenure_core::{
    command::{Answer, Command, Update, digest_of},
    ids::SessionId,
    session::{Life, Session},
};
use tenure_engine::{Found, Wanted};
use tenure_wire::{CreateSession, Created, End, Ended, Patch, SessionList};

use super::{
    App,
    body::Sent,
    command::run,
    convert, json, models,
    problem::{Rejection, internal},
    query::{InSession, Nothing, Params, bad_cursor, if_match, page_limit},
    to_its_end, view,
};
use crate::access::caller::Caller;

pub(crate) async fn create(
    State(app): State<Arc<App>>,
    caller: Caller,
    _: Params<Nothing>,
    Sent { mut body, key }: Sent<CreateSession>,
) -> Result<Response, Rejection> {
    let said = key.map(|key| (key, digest_of(&body)));
    if let Some((key, digest)) = &said
        && let Some(session) = app.engine.created_before(key, digest).await?
    {
        return created(session, |session_id| Created { session_id });
    }
    check_create(&app, &body).await?;
    body.model = models::full_name(&app, body.model)?;
    let engine = app.engine.clone();
    let new = convert::new_session(body, app.about.policy.clone());
    let session = to_its_end(async move { engine.create_as_said(new, said, caller.actor()).await }).await?;
    created(session, |session_id| Created { session_id })
}

/// The answer to whoever made a session.
pub(crate) fn created<T: Serialize>(session: SessionId, body: impl FnOnce(String) -> T) -> Result<Response, Rejection> {
    let mut response = json(StatusCode::CREATED, &body(session.to_string()));
    set_header(&mut response, header::LOCATION, format!("/v1/sessions/{session}"))?;
    Ok(response)
}

async fn check_create(app: &App, body: &CreateSession) -> Result<(), Rejection> {
    let limits = &app.limits.text;
    limits.title(body.title.as_deref())?;
    body.role.as_deref().map_or(Ok(()), |role| limits.alias("role", role))?;
    limits.name("mode", body.mode.as_deref())?;
    limits.labels(body.labels.as_deref())?;
    limits.memory(body.memory.as_deref())?;
    limits.object("preferences", body.preferences.as_ref())?;
    limits.object("output_schema", body.output_schema.as_ref())?;
    limits.policy(body.policy.as_ref())?;
    limits.workspace(&body.workspace_path).await
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    /// How many entries to give at most.
    limit: Option<usize>,
    /// `next` of the page before.
    cursor: Option<String>,
    /// Only sessions that stand like this.
    status: Option<String>,
    /// Only sessions with this label.
    label: Option<String>,
    /// Only sessions of this role.
    role: Option<String>,
    /// Only sessions of this folder.
    workspace_path: Option<String>,
    /// A text that the title or a message holds as it stands, whatever its case.
    text: Option<String>,
}

pub(crate) async fn list(State(app): State<Arc<App>>, Params(page): Params<Page>) -> Result<Response, Rejection> {
    let limit = page_limit(page.limit)?;
    let before: Option<SessionId> = match page.cursor {
        None => None,
        Some(text) => Some(text.parse().map_err(|_| bad_cursor("cursor is not one that a list gave"))?),
    };
    let Page { status, label, role, workspace_path, text, .. } = page;
    let wanted = Wanted { status, label, role, workspace_path, text };
    app.limits.text.wanted(&wanted)?;
    let Found { rows, next } = app.engine.list(before, limit, &wanted).await?;
    let next = next.map(|session| session.to_string());
    let turns = app.engine.turns_of(&rows).await?;
    let sessions = rows.into_iter().zip(turns).map(|(row, turn)| view::row(row, turn)).collect();
    Ok(json(StatusCode::OK, &SessionList { sessions, next }))
}

pub(crate) async fn show(
    State(app): State<Arc<App>>,
    InSession(session): InSession,
    _: Params<Nothing>,
) -> Result<Response, Rejection> {
    shown(&app, &*app.engine.session(session).await?).await
}

async fn shown(app: &App, session: &Session) -> Result<Response, Rejection> {
    let damage = app.engine.damage(session).await?;
    let mut response = json(StatusCode::OK, &view::session(session, &damage));
    set_header(&mut response, header::ETAG, format!("\"{}\"", session.seq))?;
    Ok(response)
}

pub(crate) async fn update(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    headers: HeaderMap,
    Sent { body, key }: Sent<Patch>,
) -> Result<Response, Rejection> {
    let if_match = if_match(&headers)?;
    let limits = &app.limits.text;
    limits.title(body.title.as_deref())?;
    limits.labels(body.labels.as_deref())?;
    limits.policy(body.policy.as_ref())?;
    // What was taken once under this key gets its first answer, whatever has become of the folder or the model.
    let repeats = match &key {
        Some(key) => app.engine.session(session).await?.knows_key("update", key),
        None => false,
    };
    let mut model = body.model.clone();
    if !repeats {
        model = models::full_name(&app, model)?;
        if let Some(path) = &body.workspace_path {
            limits.workspace(path).await?;
        }
    }
    let place = app.update_place(session).await;
    let present = app.engine.session(session).await?;
    let said = Some(digest_of(&body));
    let command = Command::Update(Box::new(Update {
        title: body.title,
        policy: body.policy.map(|said| convert::over_policy(present.policy.clone(), said)),
        labels: body.labels,
        model,
        workspace_path: body.workspace_path,
        budgets: body.budgets.map(|said| convert::over_budgets(present.budgets.clone(), said)),
        if_match,
        said,
    }));
    let keyed = key.is_some();
    let answer = app.engine.command(session, command, key, caller.actor()).await?;
    drop(place);
    let state = match answer {
        // A repeated request gets the first answer, whatever came after it.
        Answer::Updated { seq } if keyed => app.engine.session_at(session, seq).await?,
        _ => app.engine.session(session).await?,
    };
    shown(&app, &state).await
}

/// What is to become of it.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Deletion {
    /// Not only ended, but deleted with all that belongs to it.
    purge: Option<bool>,
}

/// Ends the session, or deletes it. One that has ended already is told as it ended.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    Params(deletion): Params<Deletion>,
    Sent { body, key }: Sent<End>,
) -> Result<Response, Rejection> {
    app.limits.text.reason(body.reason.as_deref())?;
    if deletion.purge.unwrap_or(false) {
        let engine = app.engine.clone();
        to_its_end(async move { engine.purge(session, caller.actor()).await }).await?;
        return Ok(json(StatusCode::OK, &Ended { status: "purged".into() }));
    }
    let state = app.engine.session(session).await?;
    // One that ended under this very key gets its first answer again.
    if state.life == Life::Open || key.is_some() {
        match run(&app, &caller, session, Command::End { reason: body.reason }, key).await {
            Err(refused) if refused.code() == "session_ended" => {}
            answer => return answer,
        }
    }
    let state = app.engine.session(session).await?;
    Ok(json(StatusCode::OK, &Ended { status: state.status().into() }))
}

fn set_header(response: &mut Response, name: header::HeaderName, value: String) -> Result<(), Rejection> {
    let value = HeaderValue::try_from(value).map_err(|error| internal(&error.to_string()))?;
    response.headers_mut().insert(name, value);
    Ok(())
}

//! Copies of sessions: forks, and archives that go out and come in. An archive is never held in memory as a whole.

use std::{
    io::{self, Read},
    sync::Arc,
};

use axum::{
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::{Buf, Bytes};
use serde::Deserialize;
use tenure_core::session::Origin;
use tenure_engine::{Error, Imported, NewFork, NewImport};
use tenure_wire as wire;
use tokio::sync::{mpsc, oneshot};

use super::{
    App,
    body::{Sent, body_timeout, drain_body},
    key, models,
    pace::{Pace, TooSlow},
    problem::{Rejection, internal},
    query::{InSession, Nothing, Params},
    session::created,
    to_its_end, view,
};
use crate::access::caller::Caller;

const MISSING: HeaderName = HeaderName::from_static(wire::MISSING);
/// Pieces of an upload that may wait to be unpacked.
const PIECES_MAX: usize = 8;
/// What an archive may be said to be.
const ARCHIVE_TYPES: [&str; 3] = [wire::ARCHIVE, "application/x-gzip", "application/octet-stream"];

pub(crate) async fn fork(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    Sent { body, key }: Sent<wire::Fork>,
) -> Result<Response, Rejection> {
    let limits = &app.limits.text;
    limits.title(body.title.as_deref())?;
    limits.labels(body.labels.as_deref())?;
    if let Some(path) = &body.workspace_path {
        limits.workspace(path).await?;
    }
    let wire::Fork { seq, title, model, workspace_path, labels, .. } = body;
    let model = models::full_name(&app, model)?;
    let new = NewFork { seq, title, labels: labels.unwrap_or_default(), model, workspace_path };
    let engine = app.engine.clone();
    let forked = to_its_end(async move { engine.fork(session, new, key, caller.actor()).await }).await?;
    let forked_from = view::origin(Origin { session_id: session, seq: forked.seq });
    let missing = forked.missing;
    created(forked.session_id, |session_id| wire::Forked { session_id, forked_from, missing })
}

pub(crate) async fn export(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
) -> Result<Response, Rejection> {
    let export = app.engine.export(session).await?;
    let missing = wire::Missing::new(&export.manifest.missing).to_header();
    let pieces = futures::stream::unfold((export, caller.life), |(mut export, life)| async {
        let piece = tokio::select! {
            biased;
            () = life.cancelled() => Err(Error::Closed),
            piece = export.next() => piece?,
        };
        // The answer is under way: all that can be done about an error is to cut it off, so that it is not taken for whole.
        Some((piece.inspect_err(|error| tracing::warn!("an export was cut: {error}")), (export, life)))
    });
    let head = [
        (MISSING, missing),
        (header::CONTENT_TYPE, wire::ARCHIVE.to_owned()),
        (header::CONTENT_DISPOSITION, format!("attachment; filename=\"{session}.tar.gz\"")),
    ];
    Ok((StatusCode::OK, head, Body::from_stream(pieces)).into_response())
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct How {
    /// Give the session an id of its own.
    as_new: Option<bool>,
}

pub(crate) async fn import(
    State(app): State<Arc<App>>,
    caller: Caller,
    Params(how): Params<How>,
    request: Request,
) -> Result<Response, Rejection> {
    let (parts, body) = request.into_parts();
    let headers = parts.headers;
    let ready = key::one_of(&headers, None).and_then(|key| check_type(&headers).map(|()| key));
    let place = app.imports.clone().try_acquire_owned().map_err(|_| too_many());
    let (key, place) = match ready.and_then(|key| place.map(|place| (key, place))) {
        Ok(ready) => ready,
        Err(rejection) => {
            drain_body(&headers, body, &app.limits).await;
            return Err(rejection);
        }
    };
    let bytes_max = u64::try_from(app.limits.import_bytes_max).unwrap_or(u64::MAX);
    let new = NewImport { as_new: how.as_new.unwrap_or(false), bytes_max };
    let (pieces, arriving) = mpsc::channel(PIECES_MAX);
    let (engine, handle) = (app.engine.clone(), tokio::runtime::Handle::current());
    let (tell, imported) = oneshot::channel();
    // On a thread of its own: it waits for work that needs the pool's threads, and must not take them. It keeps its place
    // until it is done, also where whoever asked has gone.
    let importer = std::thread::Builder::new().name("import".into()).spawn(move || {
        let _place = place;
        let mut upload = Upload { arriving, piece: Bytes::new() };
        let _ = tell.send(engine.import(&mut upload, new, key, caller.actor(), &handle));
    });
    importer.map_err(|error| internal(&error.to_string()))?;
    let fed = feed(body, pieces, &app).await;
    let imported = imported.await.map_err(|error| internal(&error.to_string()))?;
    let (stalled, rest) = match fed {
        Fed::All => (false, None),
        Fed::Refused(rest) => (false, Some(rest)),
        Fed::Stalled => (true, None),
    };
    if let Some(rest) = rest {
        drain_body(&headers, rest, &app.limits).await;
    }
    let Imported { session_id, manifest } = match imported {
        Err(_) if stalled => return Err(body_timeout()),
        imported => imported?,
    };
    let seq = manifest.seq;
    let origin = (session_id != manifest.session_id).then_some(Origin { session_id: manifest.session_id, seq });
    let (forked_from, missing) = (origin.map(view::origin), manifest.missing);
    created(session_id, |session_id| wire::Imported { session_id, seq, forked_from, missing })
}

fn check_type(headers: &HeaderMap) -> Result<(), Rejection> {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    match ARCHIVE_TYPES.iter().any(|known| known.eq_ignore_ascii_case(said.trim())) {
        true => Ok(()),
        false => Err(Rejection::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "wrong_content_type",
            "the body is not said to be an exported session",
            "send the file of an export with 'Content-Type: application/gzip'",
        )),
    }
}

fn too_many() -> Rejection {
    let hint = "try again when one of them is done";
    Rejection::new(StatusCode::TOO_MANY_REQUESTS, "too_many_imports", "other imports are under way", hint)
        .header(header::RETRY_AFTER, "5")
}

enum Fed {
    /// The body was handed on to its end, or to where it was cut.
    All,
    /// Nobody wants the rest.
    Refused(Body),
    Stalled,
}

/// Hands an upload on as it comes.
async fn feed(mut body: Body, pieces: mpsc::Sender<io::Result<Bytes>>, app: &App) -> Fed {
    let mut left = app.limits.import_bytes_max;
    let mut pace = Pace::new(app.limits.body_read, app.limits.import_bytes_per_second_min);
    loop {
        let frame = match pace.frame(&mut body).await {
            Err(TooSlow) => {
                let _ = pieces.send(Err(io::ErrorKind::TimedOut.into())).await;
                return Fed::Stalled;
            }
            Ok(None) => return Fed::All,
            Ok(Some(frame)) => frame,
        };
        let piece = match frame.map(|frame| frame.into_data()) {
            Ok(Ok(data)) => match left.checked_sub(data.len()) {
                Some(rest) => {
                    left = rest;
                    Ok(data)
                }
                None => Err(io::Error::other("the file is larger than an import may be")),
            },
            // Not data.
            Ok(Err(_)) => continue,
            Err(_) => Err(io::ErrorKind::UnexpectedEof.into()),
        };
        let over = piece.is_err();
        if pieces.send(piece).await.is_err() || over {
            return Fed::Refused(body);
        }
    }
}

/// An upload as something to read from, on a thread that may wait.
struct Upload {
    arriving: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Upload {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.arriving.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let length = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}

//! Files for a session: uploaded as JSON with base64 or as a form, listed, and handed out so that no browser runs them.

use std::sync::Arc;

use axum::{
    extract::{FromRequest, Multipart, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use tenure_core::{command::Answer, message::Attachment};
use tenure_engine::NewFile;
use tenure_wire as wire;

use super::{
    App, body,
    file::{self, File},
    json, key,
    problem::{Rejection, internal},
    query::{InFile, InSession, Nothing, Params},
    view,
};
use crate::access::caller::Caller;

/// What a file of an unknown kind is.
const UNKNOWN_TYPE: &str = "application/octet-stream";
/// The field of a form that holds the file.
const FIELD: &str = "file";

pub(crate) async fn upload(
    State(app): State<Arc<App>>,
    caller: Caller,
    InSession(session): InSession,
    _: Params<Nothing>,
    request: Request,
) -> Result<Response, Rejection> {
    let (mut file, key) = match is_form(request.headers()) {
        true => from_form(&app, request).await?,
        false => from_json(&app, request).await?,
    };
    app.limits.text.name("name", Some(&file.name))?;
    // What stands behind it, such as the character set, is the file's own affair.
    file.mime_type = file.mime_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    check_type(&file.mime_type)?;
    let most = app.limits.attachment_bytes_max;
    if file.bytes.len() > most {
        return Err(too_large(most));
    }
    // In a task of its own: a client that goes away in the middle leaves no file that nobody names.
    let engine = app.engine.clone();
    let attaching = tokio::spawn(async move { engine.attach(session, file, key, caller.actor()).await });
    match attaching.await.map_err(|error| internal(&error.to_string()))?? {
        Answer::Attached { attachment } => Ok(json(StatusCode::CREATED, &view::attachment(&attachment))),
        _ => Err(internal("an attachment was answered as something else")),
    }
}

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    InSession(session): InSession,
    _: Params<Nothing>,
) -> Result<Response, Rejection> {
    let state = app.engine.session(session).await?;
    let attachments = state.attachments.iter().map(view::attachment).collect();
    Ok(json(StatusCode::OK, &wire::AttachmentList { attachments }))
}

pub(crate) async fn download(
    State(app): State<Arc<App>>,
    InFile(session, name): InFile,
    _: Params<Nothing>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let Some((Attachment { mime_type, digest, .. }, bytes)) = app.engine.attachment(session, &name).await? else {
        return Err(Rejection::new(
            StatusCode::NOT_FOUND,
            "unknown_attachment",
            "this session has no such attachment",
            "list the session's attachments",
        ));
    };
    Ok(file::answer(&headers, File { name: &name, mime_type: &mime_type, digest: &digest, bytes }))
}

fn is_form(headers: &HeaderMap) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.split(';').next().unwrap_or("").trim().eq_ignore_ascii_case("multipart/form-data")
}

async fn from_json(app: &App, request: Request) -> Result<(NewFile, Option<String>), Rejection> {
    // Base64 makes four bytes of three.
    let most = app.limits.attachment_bytes_max.saturating_mul(4) / 3 + app.limits.body_bytes_max;
    let body::Sent { body, key } = body::sent::<wire::NewAttachment>(request, &app.limits, most).await?;
    let bytes = STANDARD.decode(body.data.as_bytes()).map_err(|error| {
        Rejection::bad_request(format!("data is not base64: {error}"), "use the standard alphabet, with padding")
    })?;
    let mime_type = body.mime_type.unwrap_or_else(|| UNKNOWN_TYPE.into());
    Ok((NewFile { name: body.name, mime_type, bytes: Bytes::from(bytes) }, key))
}

async fn from_form(app: &App, request: Request) -> Result<(NewFile, Option<String>), Rejection> {
    let key = key::one_of(request.headers(), None)?;
    let most = app.limits.attachment_bytes_max + app.limits.body_bytes_max;
    let (parts, body) = request.into_parts();
    let whole = body::read_whole(&parts.headers, body, &app.limits, most).await?;
    let request = Request::from_parts(parts, axum::body::Body::from(whole));
    let bad = |error: &dyn std::fmt::Display| {
        Rejection::bad_request(format!("the form cannot be read: {error}"), "send multipart/form-data with one 'file'")
    };
    let mut form = Multipart::from_request(request, &()).await.map_err(|error| bad(&error))?;
    let mut file = None;
    while let Some(field) = form.next_field().await.map_err(|error| bad(&error))? {
        if field.name() != Some(FIELD) || file.is_some() {
            let detail = "the form holds something beside one field named 'file'";
            return Err(Rejection::bad_request(detail, "send the file alone"));
        }
        let name = field.file_name().unwrap_or(FIELD).to_owned();
        let mime_type = field.content_type().unwrap_or(UNKNOWN_TYPE).to_owned();
        let bytes = field.bytes().await.map_err(|error| bad(&error))?;
        file = Some(NewFile { name, mime_type, bytes });
    }
    let missing = || Rejection::bad_request("the form holds no field named 'file'", "send the file under that name");
    Ok((file.ok_or_else(missing)?, key))
}

fn too_large(most: usize) -> Rejection {
    let detail = format!("the file is larger than {most} bytes");
    Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, "attachment_too_large", detail, "send a smaller file")
}

/// A type and a subtype, in plain characters: it is sent back in a header.
fn check_type(mime_type: &str) -> Result<(), Rejection> {
    let plain = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&^_.+-".contains(&byte);
        (1..=64).contains(&part.len()) && part.bytes().all(allowed)
    };
    match mime_type.split_once('/') {
        Some((kind, subtype)) if plain(kind) && plain(subtype) => Ok(()),
        _ => Err(Rejection::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "bad_mime_type",
            "the file's type is none",
            "send one such as image/png or text/plain",
        )),
    }
}

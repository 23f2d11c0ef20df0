//! Files that tools left behind: listed, and handed out whole or in part.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use tenure_core::ids::TurnId;
use tenure_engine::Sound;
use tenure_wire::{ArtifactList, ArtifactView};

use super::{
    App,
    file::{self, File},
    json,
    problem::Rejection,
    query::{InFile, InSession, Nothing, Page, Params, bad_cursor},
};

const FOLDER: &str = "artifacts/";
/// How much of a file is looked at to tell whether it is text.
const LOOKED_AT_BYTES: usize = 8 * 1024;

pub(crate) async fn list(
    State(app): State<Arc<App>>,
    InSession(session): InSession,
    Params(page): Params<Page>,
) -> Result<Response, Rejection> {
    let limit = page.limit()?;
    if page.cursor.as_deref().is_some_and(|cursor| !cursor.starts_with(FOLDER)) {
        return Err(bad_cursor("cursor is not one that a list gave"));
    }
    let blobs = app.engine.artifacts(session).await?;
    let mut rest = blobs.into_iter().filter(|blob| page.cursor.as_ref().is_none_or(|cursor| blob.name > *cursor));
    let artifacts: Vec<ArtifactView> = rest
        .by_ref()
        .take(limit)
        .map(|blob| ArtifactView { turn_id: turn_of(&blob.name), r#ref: blob.name, bytes: blob.bytes })
        .collect();
    let next = rest.next().and_then(|_| artifacts.last().map(|last| last.r#ref.clone()));
    Ok(json(StatusCode::OK, &ArtifactList { artifacts, next }))
}

/// The turn in which it was made, which its folder is called after.
fn turn_of(name: &str) -> Option<String> {
    let turn: TurnId = name.strip_prefix(FOLDER)?.split('/').next()?.parse().ok()?;
    Some(turn.to_string())
}

pub(crate) async fn download(
    State(app): State<Arc<App>>,
    InFile(session, name): InFile,
    _: Params<Nothing>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let Some(Sound { bytes, digest }) = app.engine.artifact(session, &format!("{FOLDER}{name}")).await? else {
        return Err(Rejection::new(
            StatusCode::NOT_FOUND,
            "unknown_artifact",
            "this session has no such artifact",
            "list the session's artifacts",
        ));
    };
    let is_text = std::str::from_utf8(&bytes[..bytes.len().min(LOOKED_AT_BYTES)])
        .map_or_else(|error| error.error_len().is_none(), |_| true);
    let mime_type = if is_text { "text/plain; charset=utf-8" } else { "application/octet-stream" };
    // The store's own names are plain; what is not is replaced.
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    let last: String = name.rsplit('/').next().unwrap_or_default().chars().map(plain).collect();
    Ok(file::answer(&headers, File { name: &last, mime_type, digest: &digest, bytes }))
}

//! Makes a row from a session's own files when the listing has none. A guess where it must be: the engine puts a true
//! row as soon as the session is used.

use std::{io, sync::Arc};

use serde::Deserialize;
use tenure_core::{
    budget::Spent,
    event::{Body, Event},
    ids::{SessionId, TurnId},
    time::Timestamp,
};

use crate::{
    Row,
    disk::{DiskFile, Open},
    file::{
        folder::{Folder, is_missing},
        lines::{Lines, Next},
        snapshot,
    },
    line::{LINE_BYTES_MAX, Line, Place},
};

/// How far back from its end a log is searched for its last line.
const TAIL_BYTES: u64 = 64 << 10;

/// What is taken from a snapshot's state, as far as it is there.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Sketch {
    updated_at: Option<Timestamp>,
    settings: SketchSettings,
    last_turn_id: Option<TurnId>,
    total: Spent,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SketchSettings {
    title: Option<String>,
    labels: Option<Vec<Arc<str>>>,
}

/// The row of a session with at least one readable event.
pub(crate) fn row(folder: &Folder, session: SessionId) -> Option<Row> {
    let file = folder.disk.open(&folder.layout.log(session), Open::Read).ok()?;
    let first = first_event(&*file)?;
    let last = last_event(&*file);
    let sketch: Sketch =
        snapshot::read(folder, session).and_then(|found| serde_json::from_slice(&found.state).ok()).unwrap_or_default();
    let settings = match &first.body {
        Body::SessionCreated(created) => Some(&created.settings),
        _ => None,
    };
    let labels =
        || settings.into_iter().flat_map(|settings| &settings.labels).map(|label| label.as_str().into()).collect();
    Some(Row {
        id: session,
        created_at: first.ts,
        updated_at: last.as_ref().map(|event| event.ts).max(sketch.updated_at).unwrap_or(first.ts),
        status: last.as_ref().map_or("active", |event| status_after(&event.body)).into(),
        workspace_path: settings.map_or("", |settings| &settings.workspace_path).into(),
        title: sketch.settings.title.or_else(|| settings?.title.clone()).map(Into::into),
        last_turn_id: last.and_then(|event| event.turn_id).or(sketch.last_turn_id),
        role: settings.and_then(|settings| settings.role.as_deref()).map(Into::into),
        labels: sketch.settings.labels.map_or_else(labels, Vec::into_boxed_slice),
        spent: sketch.total,
    })
}

/// Makes sure that a session which an earlier life left open is on the disk: a row must not outlive its session.
pub(crate) fn make_safe(folder: &Folder, session: SessionId) -> io::Result<()> {
    let layout = &folder.layout;
    match folder.disk.stat(&layout.open_mark(session)) {
        Err(error) if is_missing(&error) => return Ok(()),
        stat => stat?,
    };
    folder.disk.open(&layout.log(session), Open::Existing)?.sync()?;
    folder.disk.sync_dir(&layout.session(session))?;
    folder.disk.sync_dir(&layout.sessions())
}

/// The last event of an ended session says how it ended; nothing comes after it.
fn status_after(body: &Body) -> &'static str {
    match body {
        Body::SessionCompleted(_) => "completed",
        Body::SessionFailed(_) => "failed",
        Body::SessionCanceled(_) => "canceled",
        Body::SessionExpired(_) => "expired",
        Body::ApprovalRequested(_) => "waiting_approval",
        _ => "active",
    }
}

/// The first event, if its decision is whole: else the session never came to be.
fn first_event(file: &dyn DiskFile) -> Option<Event> {
    let mut lines = Lines::new(file, 0, file.len().ok()?, LINE_BYTES_MAX);
    let (mut place, mut event) = (Place::START, None);
    loop {
        let Next::Line { bytes, .. } = lines.next().ok()? else { return None };
        let line = Line::parse(bytes)?;
        place = line.follow(&place).ok()?;
        let first = event.take().or_else(|| event_of(bytes))?;
        if line.more == 0 {
            return Some(first);
        }
        event = Some(first);
    }
}

fn last_event(file: &dyn DiskFile) -> Option<Event> {
    let len = file.len().ok()?;
    let start = len.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(len - start).ok()?];
    let read = file.read_full_at(&mut tail, start).ok()?;
    let whole = &tail[..tail[..read].iter().rposition(|byte| *byte == b'\n')?];
    let from = whole.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    event_of(&whole[from..])
}

fn event_of(bytes: &[u8]) -> Option<Event> {
    Event::from_json(std::str::from_utf8(bytes).ok()?).ok()
}

//! Makes a row from a session's own files when the listing has none: from its snapshot and what the log tells since, or
//! from the whole log.

use std::io;

use tenure_core::{event::Event, ids::SessionId, session::Session};

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

/// The row of a session with at least one readable event.
pub(crate) fn row(folder: &Folder, session: SessionId) -> Option<Row> {
    let file = folder.disk.open(&folder.layout.log(session), Open::Read).ok()?;
    let state = state(folder, &*file, session)?;
    let settings = &state.settings;
    Some(Row {
        id: session,
        created_at: state.created_at,
        updated_at: state.updated_at,
        status: state.status().into(),
        workspace_path: settings.workspace_path.as_str().into(),
        title: settings.title.as_deref().map(Into::into),
        last_turn_id: state.last_turn_id,
        role: settings.role.as_deref().map(Into::into),
        labels: settings.labels.iter().map(|label| label.as_str().into()).collect(),
        spent: state.total,
    })
}

/// What the log folds to, as far as it can be read.
fn state(folder: &Folder, file: &dyn DiskFile, session: SessionId) -> Option<Session> {
    let found = snapshot::read(folder, session);
    let known = found.and_then(|found| Some((serde_json::from_slice::<Session>(&found.state).ok()?, found.place)));
    let (mut state, mut place) = known.map_or((None, Place::START), |(state, place)| (Some(state), place));
    let mut lines = Lines::new(file, place.offset, file.len().ok()?, LINE_BYTES_MAX);
    // A decision counts when all of it is there.
    let mut decision: Vec<Event> = Vec::new();
    while let Ok(Next::Line { bytes, .. }) = lines.next() {
        let Some(line) = Line::parse(bytes) else { break };
        let Ok(next) = line.follow(&place) else { break };
        place = next;
        let Some(event) = event_of(bytes) else { break };
        decision.push(event);
        if line.more > 0 {
            continue;
        }
        for event in decision.drain(..) {
            match &mut state {
                Some(state) => state.apply(&event),
                None => state = Session::born(&event),
            }
        }
    }
    state
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

fn event_of(bytes: &[u8]) -> Option<Event> {
    Event::from_json(std::str::from_utf8(bytes).ok()?).ok()
}

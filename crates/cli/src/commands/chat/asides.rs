//! Commands that do not touch a turn: they are obeyed at the prompt and while a turn is open.

use tenure_client::Client;
use tenure_wire::{Patch, SessionFilter};

use super::super::{session, sessions};
use crate::{hint, lookup, terminal};

/// How many sessions are listed.
const SESSIONS_SHOWN: usize = 10;

pub async fn show(client: &Client, id: &str) -> anyhow::Result<()> {
    let view = client.session(id).await?;
    let last = session::last_turn(client, &view).await?;
    let mut lines = session::described(&view, last.as_ref(), terminal::stderr_look());
    lines.extend(session::next_attempt(client, &view, terminal::stderr_look()).await?);
    lines.iter().for_each(|line| terminal::note(&format!("{}\n", hint::in_chat(line, id))));
    Ok(())
}

pub async fn list(client: &Client) -> anyhow::Result<()> {
    let rows = lookup::sessions(client, SESSIONS_SHOWN, &SessionFilter::default()).await?;
    let lines = sessions::listed(&rows, terminal::stderr_look());
    lines.iter().for_each(|line| terminal::note(&format!("{line}\n")));
    Ok(())
}

pub async fn entitle(client: &Client, id: &str, title: String) -> anyhow::Result<()> {
    client.patch(id, None, &Patch { title: Some(title), ..Patch::default() }).await?;
    Ok(())
}

/// Waits for what becomes of it: that takes an instant.
pub async fn undo(client: &Client, id: &str) -> anyhow::Result<()> {
    let done = session::undone(client, id, None).await?;
    let lines = done.as_ref().map_or_else(Vec::new, |done| session::undone_lines(&done.data));
    lines.iter().for_each(|line| terminal::note(&format!("{line}\n")));
    Ok(())
}

//! Which sessions are what somebody looks for: by what the listing knows of them, and by a text of their conversations,
//! which is looked for in the logs.

use tenure_core::{
    budget::Spent,
    event::{Body, Event},
    ids::SessionId,
    message::joined_text,
};
use tenure_store::{Row, Store};

use crate::{Error, Messages, history};

/// Rows that are looked at in one piece.
const PAGE: usize = 256;
/// Messages that are read in one piece.
const MESSAGES: usize = 64;
/// How much of conversations is read for one answer. What is not looked at by then is left for the next page.
const SEARCHED_BYTES_MAX: usize = 64 << 20;

/// What is looked for; what is not said does not matter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    pub status: Option<String>,
    pub label: Option<String>,
    pub role: Option<String>,
    pub workspace_path: Option<String>,
    /// A text that the title or a message holds as it stands, whatever its case.
    pub text: Option<String>,
}

/// One page of what was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub rows: Vec<Row>,
    /// Where to go on: sessions before this one have not been looked at.
    pub next: Option<SessionId>,
}

impl Wanted {
    /// As far as the listing can tell.
    fn fits(&self, row: &Row) -> bool {
        let is =
            |wanted: &Option<String>, found: Option<&str>| wanted.as_deref().is_none_or(|text| found == Some(text));
        is(&self.status, Some(&row.status))
            && is(&self.role, row.role.as_deref())
            && is(&self.workspace_path, Some(&row.workspace_path))
            && self.label.as_deref().is_none_or(|label| row.labels.iter().any(|known| &**known == label))
    }
}

/// The session that goes by this name.
pub(crate) async fn named(store: &dyn Store, name: &str) -> Result<Option<SessionId>, Error> {
    let (mut labelled, mut of_role, mut before) = (None, None, None);
    loop {
        let page = store.list(before, PAGE).await?;
        let is_last = page.len() < PAGE;
        for row in page {
            before = Some(row.id);
            let is_open = matches!(&*row.status, "active" | "waiting_approval");
            if row.labels.iter().any(|label| &**label == name) {
                if is_open {
                    return Ok(Some(row.id));
                }
                labelled = labelled.or(before);
            }
            if is_open && row.role.as_deref() == Some(name) {
                of_role = of_role.or(before);
            }
        }
        if is_last {
            return Ok(labelled.or(of_role));
        }
    }
}

pub(crate) async fn list(
    store: &dyn Store,
    mut before: Option<SessionId>,
    limit: usize,
    wanted: &Wanted,
) -> Result<Found, Error> {
    let text = wanted.text.as_deref().map(str::to_lowercase);
    let (mut rows, mut searched) = (Vec::new(), 0);
    // One more than asked for tells whether there is a next page.
    let page_len = if *wanted == Wanted::default() { limit + 1 } else { PAGE };
    loop {
        let page = store.list(before, page_len).await?;
        let is_last = page.len() < page_len;
        for row in page {
            if rows.len() == limit || searched > SEARCHED_BYTES_MAX {
                return Ok(Found { rows, next: before });
            }
            before = Some(row.id);
            if !wanted.fits(&row) {
                continue;
            }
            let found = match &text {
                None => true,
                Some(text) => holds(store, &row, text, &mut searched).await?,
            };
            if found {
                rows.push(row);
            }
        }
        if is_last {
            return Ok(Found { rows, next: None });
        }
    }
}

pub(crate) async fn usage(store: &dyn Store, wanted: &Wanted) -> Result<(Spent, usize), Error> {
    let (mut total, mut sessions, mut before) = (Spent::default(), 0, None);
    loop {
        let page = store.list(before, PAGE).await?;
        for row in page.iter().filter(|row| wanted.fits(row)) {
            total.add(&row.spent);
            sessions += 1;
        }
        match page.last() {
            Some(last) if page.len() == PAGE => before = Some(last.id),
            _ => return Ok((total, sessions)),
        }
    }
}

/// Whether the title or a message holds the text, which is in small letters.
async fn holds(store: &dyn Store, row: &Row, text: &str, searched: &mut usize) -> Result<bool, Error> {
    if row.title.as_deref().is_some_and(|title| title.to_lowercase().contains(text)) {
        return Ok(true);
    }
    let mut after = 0;
    loop {
        // A session that cannot be read, or was removed meanwhile, holds nothing.
        let found = history::messages(store, row.id, after, MESSAGES, history::SAID).await;
        let Ok(Messages { events, more, read_bytes, .. }) = found else { return Ok(false) };
        *searched += read_bytes;
        if events.iter().any(|event| text_of(event).to_lowercase().contains(text)) {
            return Ok(true);
        }
        match events.last() {
            Some(last) if more => after = last.seq,
            _ => return Ok(false),
        }
    }
}

/// What a person would read of a message. What tools printed is not searched: it is long and not said by anybody.
fn text_of(event: &Event) -> String {
    match &event.body {
        Body::MessageAdded(added) => joined_text(&added.parts),
        Body::ModelOutputCompleted(output) => output.text.clone(),
        _ => String::new(),
    }
}

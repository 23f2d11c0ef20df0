//! Finds what people mean by the beginning of an id.

use tenure_client::Client;
use tenure_wire::{SessionFilter, SessionRow};

use crate::exit::Problem;

/// Shorter beginnings of an id are not taken: they would fit too much, by chance tomorrow if not today.
pub const PREFIX_CHARS_MIN: usize = 8;
/// What a session id has: its prefix and a ULID.
const ID_CHARS: usize = ID_BEGINS.len() + 26;
/// The largest page the daemon gives.
pub const PAGE_MAX: usize = 200;
/// How many candidates are named.
const NAMED_MAX: usize = 5;

/// What every session id begins with.
const ID_BEGINS: &str = "sess_";

/// The session's whole id. A whole one is not looked up; what does not look like an id is a label or a role.
pub async fn session(client: &Client, given: &str) -> anyhow::Result<String> {
    if given.trim().is_empty() {
        return Err(Problem::usage("the session's name is empty", "`tenure sessions --all` lists them").into());
    }
    if given.chars().count() >= ID_CHARS {
        return Ok(given.to_owned());
    }
    if !given.starts_with(ID_BEGINS) {
        return match client.session(given).await {
            Ok(view) => Ok(view.id),
            Err(refused) if refused.code() == Some("unknown_session") => {
                let message = format!("no session has the label or the role '{given}'");
                let hint = "`tenure sessions --all` lists them; an id begins with sess_";
                Err(Problem::refused("unknown_session", message, hint).into())
            }
            Err(error) => Err(error.into()),
        };
    }
    if given.chars().count() < PREFIX_CHARS_MIN {
        let message = format!("'{given}' is too short for the beginning of a session's id");
        return Err(Problem::usage(
            message,
            format!("give at least {PREFIX_CHARS_MIN} characters of it; `tenure sessions` lists them"),
        )
        .into());
    }
    let rows = sessions(client, usize::MAX, &SessionFilter::default()).await?;
    let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    let none = || {
        let message = format!("no session begins with '{given}'");
        Problem::refused("unknown_session", message, "`tenure sessions --all` lists them")
    };
    Ok(only(&ids, given, "session")?.ok_or_else(none)?.to_owned())
}

/// Sessions that are what is wanted, newest first, as many as may be.
pub async fn sessions(
    client: &Client,
    most: usize,
    wanted: &SessionFilter,
) -> Result<Vec<SessionRow>, tenure_client::Error> {
    sessions_that(client, most, wanted, |_| true).await
}

/// The same, of those that fit.
pub async fn sessions_that(
    client: &Client,
    most: usize,
    wanted: &SessionFilter,
    fits: impl Fn(&SessionRow) -> bool,
) -> Result<Vec<SessionRow>, tenure_client::Error> {
    let (mut rows, mut cursor) = (vec![], None);
    while rows.len() < most {
        let page = client.list((most - rows.len()).min(PAGE_MAX), cursor.as_deref(), wanted).await?;
        rows.extend(page.sessions.into_iter().filter(&fits));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    Ok(rows)
}

/// The one id that begins so, if there is one.
pub fn only<'a>(ids: &[&'a str], beginning: &str, what: &str) -> Result<Option<&'a str>, Problem> {
    let fits: Vec<&str> = ids.iter().copied().filter(|id| id.starts_with(beginning)).collect();
    match fits[..] {
        [] => Ok(None),
        [id] => Ok(Some(id)),
        _ => {
            let named = fits.iter().take(NAMED_MAX).copied().collect::<Vec<_>>().join(", ");
            let more = if fits.len() > NAMED_MAX { ", …" } else { "" };
            let message = format!("'{beginning}' fits {} {what}s: {named}{more}", fits.len());
            Err(Problem::usage(message, "give more of the id"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_must_fit_one() {
        let ids = ["sess_01AAA", "sess_01AAB", "sess_01B"];
        assert_eq!(only(&ids, "sess_01B", "session").unwrap(), Some("sess_01B"));
        let problem = only(&ids, "sess_01A", "session").unwrap_err();
        assert_eq!(problem.to_string(), "'sess_01A' fits 2 sessions: sess_01AAA, sess_01AAB");
        assert_eq!(only(&ids, "sess_02", "session").unwrap(), None);
    }
}

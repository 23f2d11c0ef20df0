//! What `ask` and `chat` share: how a session begins, and how a message gets there exactly once.

use std::path::Path;

use tenure_client::Client;
use tenure_wire::{ApprovalPolicy, Budgets, CreateSession, MessageAccepted, Part, PatchReview, Policy, SendMessage};
use tokio::signal::unix::Signal;

use crate::{
    daemon::{Way, insist},
    data,
    exit::Problem,
    follow::{CanceledBy, Files},
    limits, terminal,
};

/// Longer texts are refused before they are sent.
pub const TEXT_BYTES_MAX: usize = 512 * 1024;
/// How much of the text becomes the title of a new session.
const TITLE_CHARS_MAX: usize = 60;

/// What a new session is to be.
pub struct NewTalk<'a> {
    /// As `workspace` gives it.
    pub workspace: &'a str,
    pub model: Option<String>,
    /// When it asks, where that is not left to the daemon.
    pub approval: Option<ApprovalPolicy>,
    /// What the answers have to fit.
    pub output_schema: Option<serde_json::Map<String, serde_json::Value>>,
    /// What its turns may use, where that is not left to the daemon.
    pub budgets: Option<Budgets>,
    /// Who looks at changes before they are made.
    pub review: Option<PatchReview>,
}

/// Whether a message got there.
pub enum Sent {
    Taken {
        turn: String,
        message: String,
        /// Ctrl-C was pressed on the way: the turn is to be canceled.
        interrupted: Option<CanceledBy>,
    },
    /// The person did not want to wait for it.
    Left,
}

/// The folder as the daemon is told it. What is on this disk says nothing about a daemon elsewhere.
pub fn workspace(given: &Path, files: Files) -> Result<String, Problem> {
    let hint = "name an existing folder with --workspace DIR";
    let fault = |error| Problem::usage(format!("the workspace {}: {error}", given.display()), hint);
    let path = match files {
        Files::Here => given.canonicalize().map_err(fault)?,
        Files::Elsewhere if given == Path::new(".") => std::env::current_dir().map_err(fault)?,
        Files::Elsewhere => given.to_owned(),
    };
    if files == Files::Elsewhere && !path.is_absolute() {
        let message =
            format!("the workspace {} is of the daemon's machine, so its path must be absolute", given.display());
        return Err(Problem::usage(message, "name the whole path with --workspace DIR"));
    }
    if files == Files::Here && !path.is_dir() {
        return Err(Problem::usage(format!("the workspace {} is not a folder", given.display()), hint));
    }
    let utf8 = || Problem::usage("the workspace's path is not UTF-8", "rename the folder");
    path.into_os_string().into_string().map_err(|_| utf8())
}

/// Makes a session for this first text.
pub async fn begin(client: &Client, way: &Way, new: &NewTalk<'_>, text: &str) -> anyhow::Result<String> {
    let create = CreateSession {
        workspace_path: new.workspace.to_owned(),
        model: new.model.clone(),
        output_schema: new.output_schema.clone(),
        budgets: new.budgets.clone(),
        title: Some(title_of(text)),
        policy: Some(Policy { approval: new.approval.clone(), patch_review: new.review, ..Policy::default() }),
        ..CreateSession::default()
    };
    let keyed = client.with_key(data::random_hex()?);
    let session = insist(&keyed, way, || keyed.create(&create)).await?.session_id;
    if limits::limits_money(new.budgets.as_ref()) {
        limits::tell_unpriced(client, &client.session(&session).await?).await?;
    }
    Ok(session)
}

/// Sends a message that starts a turn. With a key of its own it may be said again when the daemon goes away before it
/// answers.
pub async fn send(
    client: &Client,
    way: &Way,
    session: &str,
    parts: Vec<Part>,
    interrupts: &mut Signal,
) -> anyhow::Result<Sent> {
    let message = SendMessage { parts, auto_run: Some(true), ..SendMessage::default() };
    let keyed = client.with_key(data::random_hex()?);
    let mut interrupted = None;
    let mut sending = std::pin::pin!(insist(&keyed, way, || keyed.send(session, &message)));
    let accepted = loop {
        tokio::select! {
            accepted = &mut sending => break accepted?,
            // The turn is canceled as soon as it is known; whoever does not want to wait for that leaves.
            _ = interrupts.recv() => match interrupted {
                None => interrupted = Some(CanceledBy::Interrupt),
                Some(_) => {
                    terminal::tell("Left; whether the message was taken is not known: `tenure sessions` shows what is there.");
                    return Ok(Sent::Left);
                }
            },
        }
    };
    let MessageAccepted { message_id: message, turn_id } = accepted;
    let no_turn = || Problem::failed("no_turn", "the daemon took the message but started no turn", "");
    Ok(Sent::Taken { turn: turn_id.ok_or_else(no_turn)?, message, interrupted })
}

/// A text that is not too long.
pub fn checked(text: String) -> Result<String, Problem> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(text);
    }
    let message = format!("the text is longer than {TEXT_BYTES_MAX} bytes");
    Err(Problem::usage(message, "put it in a file of the workspace and ask about that"))
}

/// The beginning of the first line that says something. A title holds no control characters; the text may.
fn title_of(text: &str) -> String {
    let plain = text.replace(|c: char| c.is_control() && c != '\n', " ");
    let line = plain.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("-");
    match line.chars().count() <= TITLE_CHARS_MAX {
        true => line.to_owned(),
        false => line.chars().take(TITLE_CHARS_MAX - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_elsewhere_is_not_looked_for_here() {
        let of = |given: &str, files| workspace(Path::new(given), files).map_err(|problem| problem.to_string());
        assert_eq!(of("/no/such/folder", Files::Elsewhere), Ok("/no/such/folder".into()));
        assert!(of("folder", Files::Elsewhere).unwrap_err().contains("folder is of the daemon's machine"));
        assert!(of("/no/such/folder", Files::Here).unwrap_err().contains("/no/such/folder"));
        assert!(Path::new(&of(".", Files::Elsewhere).unwrap()).is_absolute());
    }

    #[test]
    fn a_title_is_the_first_line_cut() {
        assert_eq!(title_of("\n  hello \nworld"), "hello");
        assert_eq!(title_of("\x1b[1mbold\tand\x07\r\nmore"), "[1mbold and");
        assert_eq!(title_of("\x01\n"), "-");
        assert_eq!(title_of(&"ä".repeat(100)).chars().count(), TITLE_CHARS_MAX);
    }
}

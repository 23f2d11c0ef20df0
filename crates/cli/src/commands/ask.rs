//! `tenure ask`: one message, and everything until its turn is settled.

mod follow;
mod permit;

use std::{io::Read as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;
use tenure_client::{Client, Until};
use tenure_wire::{CreateSession, Part, Policy, SendMessage};
use tokio::signal::unix::{SignalKind, signal};

use super::Context;
use crate::{
    daemon, data,
    exit::{Exit, Problem},
    lookup,
    terminal::{self, Output},
};
use follow::{Answers, CanceledBy, Follow};
use permit::Permit;

/// Longer texts are refused before they are sent.
const TEXT_BYTES_MAX: usize = 512 * 1024;
/// How much of the text becomes the title of a new session.
const TITLE_CHARS_MAX: usize = 60;

const EXAMPLES: &str = "\
Examples:
    tenure ask \"what does this project do?\"
    tenure ask --approve all \"make the tests pass\"
    git diff | tenure ask -
    tenure ask --session sess_01K9 \"and now the docs\"
    tenure ask --json \"hello\" | tail -1 | jq -r .text

The answer goes to stdout, all else to stderr. With --json every event of the turn is one line on
stdout, and the last line is {\"type\":\"result\",\"session_id\",\"turn_id\",\"status\",\"text\",…}.
Ctrl-C cancels the turn; a second one leaves it as it is.";

/// Send a message to an agent and follow its turn to the end
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::CODES))]
pub struct Arguments {
    /// What to say; `-` reads it from stdin
    text: String,
    /// The folder the agent works in, for a new session
    #[arg(long, default_value = ".", value_name = "DIR", conflicts_with = "session")]
    workspace: PathBuf,
    /// The model, for a new session
    #[arg(long, conflicts_with = "session")]
    model: Option<String>,
    /// Go on with this session instead of making a new one
    #[arg(long)]
    session: Option<String>,
    /// What the agent may do unasked; without it you are asked on a terminal, and elsewhere `writes` holds
    #[arg(long, value_enum)]
    approve: Option<Permit>,
    /// Cancel the turn after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let text = text_of(&arguments.text)?;
    let person = context.output == Output::Text && arguments.approve.is_none() && terminal::is_interactive();
    let answers = if person { Answers::Person } else { Answers::Rule(arguments.approve.unwrap_or_default()) };
    let client = daemon::connect(context).await?;
    let (session, seq) = match &arguments.session {
        Some(given) => known_session(&client, given).await?,
        None => new_session(context, arguments, &client, &text, &answers).await?,
    };
    let stream = client.events(&session, Until::Forever).after(seq.to_string());
    let find = daemon::finder(context);
    let message = SendMessage { parts: vec![Part::text(text)], auto_run: Some(true), ..SendMessage::default() };
    // With a key of its own the message may be sent again when the daemon goes away before it answers.
    let keyed = client.with_key(data::random_hex()?);
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut interrupted = None;
    let accepted = {
        let mut sending = std::pin::pin!(daemon::insist(&keyed, &find, || keyed.send(&session, &message)));
        loop {
            tokio::select! {
                accepted = &mut sending => break accepted?,
                // The turn is canceled as soon as it is known; whoever does not want to wait for that leaves.
                _ = interrupts.recv() => match interrupted {
                    None => interrupted = Some(CanceledBy::Interrupt),
                    Some(_) => return Ok(follow::left()),
                },
            }
        }
    };
    let no_turn = || Problem::failed("no_turn", "the daemon took the message but started no turn", "");
    let turn = accepted.turn_id.ok_or_else(no_turn)?;
    let deadline = arguments.timeout.map(Duration::from_secs);
    let follow = Follow::new(context.output, client, find.clone(), session, turn, answers);
    follow.until_rest(stream.finding(find), deadline, interrupts, interrupted).await
}

fn text_of(given: &str) -> anyhow::Result<String> {
    let text = match given {
        "-" => {
            let mut text = String::new();
            let limited = std::io::stdin().lock().take(TEXT_BYTES_MAX as u64 + 1).read_to_string(&mut text);
            match limited {
                Err(error) if error.kind() == std::io::ErrorKind::InvalidData => {
                    return Err(Problem::usage("the text from stdin is not UTF-8", "send plain text").into());
                }
                read => read.context("cannot read the text from stdin")?,
            };
            text
        }
        given => given.to_owned(),
    };
    if text.trim().is_empty() {
        return Err(Problem::usage("there is nothing to say", "give a text, or - to read it from stdin").into());
    }
    if text.len() > TEXT_BYTES_MAX {
        let message = format!("the text is longer than {TEXT_BYTES_MAX} bytes");
        return Err(Problem::usage(message, "put it in a file of the workspace and ask about that").into());
    }
    Ok(text)
}

async fn known_session(client: &Client, given: &str) -> anyhow::Result<(String, u64)> {
    let session = lookup::session(client, given).await?;
    let view = client.session(&session).await?;
    if let Some(turn) = &view.turn {
        terminal::note(&match turn.status.as_str() {
            "interrupted" => "An interrupted turn is open there; this one takes its place.\n".to_owned(),
            status => format!("A turn is open there ({status}); this one comes after it.\n"),
        });
    }
    Ok((session, view.seq))
}

async fn new_session(
    context: &Context,
    arguments: &Arguments,
    client: &Client,
    text: &str,
    answers: &Answers,
) -> anyhow::Result<(String, u64)> {
    let folder = &arguments.workspace;
    let hint = "name an existing folder with --workspace DIR";
    let no_folder = |error| Problem::usage(format!("the workspace {}: {error}", folder.display()), hint);
    let workspace = folder.canonicalize().map_err(no_folder)?;
    if !workspace.is_dir() {
        return Err(Problem::usage(format!("the workspace {} is not a folder", folder.display()), hint).into());
    }
    let utf8 = || Problem::usage("the workspace's path is not UTF-8", "rename the folder");
    let approval = match answers {
        Answers::Person => None,
        Answers::Rule(permit) => Some(permit.policy()),
    };
    let create = CreateSession {
        workspace_path: workspace.to_str().ok_or_else(utf8)?.to_owned(),
        model: arguments.model.clone(),
        title: Some(title_of(text)),
        policy: Some(Policy { approval, ..Policy::default() }),
        ..CreateSession::default()
    };
    let (keyed, find) = (client.with_key(data::random_hex()?), daemon::finder(context));
    Ok((daemon::insist(&keyed, &find, || keyed.create(&create)).await?.session_id, 0))
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
    fn a_title_is_the_first_line_cut() {
        assert_eq!(title_of("\n  hello \nworld"), "hello");
        assert_eq!(title_of("\x1b[1mbold\tand\x07\r\nmore"), "[1mbold and");
        assert_eq!(title_of("\x01\n"), "-");
        assert_eq!(title_of(&"ä".repeat(100)).chars().count(), TITLE_CHARS_MAX);
    }

    #[test]
    fn there_must_be_something_to_say() {
        assert!(text_of("  \n").is_err());
        assert!(text_of(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
        assert_eq!(text_of("hi").unwrap(), "hi");
    }
}

//! `tenure ask`: one message, and everything until its turn is settled.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use serde_json::{Map, Value};
use tenure_client::{Client, Until};
use tenure_wire::{Part, SessionView};
use tokio::signal::unix::{SignalKind, signal};

use super::{Context, models};
use crate::{
    attach,
    count::within,
    daemon::{self, Way},
    exit::{Exit, Problem},
    follow::{Follow, Followed, Frame, Seat},
    limits::{self, Limits},
    lookup,
    permit::{self, Answers, Permit, Review, Seated},
    piped,
    standby::while_starting,
    talk::{self, NewTalk, Sent, TEXT_BYTES_MAX},
    terminal::{self, Lines, Output},
};

const EXAMPLES: &str = "\
Examples:
    tenure ask \"what does this project do?\"
    tenure ask --approve all \"make the tests pass\"
    git diff | tenure ask \"what is wrong here?\"
    tenure ask - < question.txt
    tenure ask --model small --attach plan.png \"what is wrong here?\"
    tenure ask --session sess_01K9 \"and now the docs\"
    tenure ask --max-cost 0.50 --max-time 10m \"find the slow test\"
    tenure ask --json \"hello\" | tail -1 | jq -r .text

Stdin that is a file or a pipe is read beside a text and follows it behind a
blank line; a pipe that stays silent for 3 s is passed over, and that is told.
The answer goes to stdout, all else to stderr; with --schema the last text
alone is the answer. Behind a pipe a text is printed once it is whole, so that
nothing of an attempt that was cut gets there. With --json every event of the
turn is one line on stdout, and the last line is
{\"type\":\"result\",\"session_id\",\"turn_id\",\"status\",\"text\",\"stop_reason\",…},
with \"error\":{\"code\",\"message\"} where the turn failed. An answer that the
model cut at its output limit, refused or left empty completes its turn and
exits with 0: a line on stderr and stop_reason (max_tokens, refusal) tell it.
Ctrl-C cancels the turn; a second one leaves it as it is.";

/// Send a message to an agent and follow its turn to the end
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{}", crate::exit::CODES))]
pub struct Arguments {
    /// What to say; `-` reads it from stdin. What is piped in beside a text follows it
    text: String,
    /// The folder the agent works in, for a new session; with --url its whole path on the daemon's machine
    #[arg(long, default_value = ".", value_name = "DIR", conflicts_with = "session")]
    workspace: PathBuf,
    /// The model, for a new session
    #[arg(long, conflicts_with = "session")]
    model: Option<String>,
    /// Go on with this session instead of making a new one
    #[arg(long)]
    session: Option<String>,
    /// A file that goes along: an image, a PDF, audio or text, or `-` for stdin; may be given again
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// A file with a JSON Schema that the answer has to fit, for a new session
    #[arg(long, value_name = "FILE", conflicts_with = "session")]
    schema: Option<PathBuf>,
    /// What the agent may do, said up front. Without it, it may write inside the workspace; about commands and network
    /// you are asked on a terminal, and elsewhere they are denied
    #[arg(long, value_enum)]
    approve: Option<Permit>,
    /// Who looks at changes of files before they are made, for a new session
    #[arg(long, value_enum, value_name = "WHO", conflicts_with = "session")]
    review: Option<Review>,
    /// Cancel the turn after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = within(1..=u64::MAX))]
    timeout: Option<u64>,
    #[command(flatten)]
    limits: Limits,
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let text = text_of(&arguments.text, &arguments.attach)?;
    let budgets = arguments.limits.of_new(arguments.session.is_some())?;
    let attached = attach::read(&arguments.attach)?;
    let output_schema = arguments.schema.as_deref().map(schema_of).transpose()?;
    let frame = if output_schema.is_some() { Frame::Final } else { Frame::Once };
    let is_seated = context.output == Output::Text && terminal::is_interactive();
    let answers = Answers::of(arguments.approve, if is_seated { Seated::Person } else { Seated::Nobody })?;
    let client = daemon::connect(context).await?;
    let way = Way::restarting(context);
    let (session, seq) = match &arguments.session {
        Some(given) => {
            let (session, view) = known_session(&client, given).await?;
            models::tell_before(context, Some(&view.model));
            (session, view.seq)
        }
        None => {
            let workspace = talk::workspace(&arguments.workspace, context.files())?;
            let approval = permit::policy(arguments.approve, answers);
            let model = arguments.model.clone();
            models::tell_before(context, model.as_deref());
            let review = arguments.review.map(Review::policy);
            let new = NewTalk { workspace: &workspace, model, approval, output_schema, budgets, review };
            (while_starting(context, talk::begin(&client, &way, &new, &text)).await?, 0)
        }
    };
    let mut stream = client.events(&session, Until::Forever).after(seq.to_string()).finding(way.find.clone());
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut parts = vec![Part::text(text)];
    parts.extend(while_starting(context, attach::parts(&client, &way, &session, attached)).await?);
    let sending = talk::send(&client, &way, &session, parts, &mut interrupts);
    let sent = while_starting(context, sending).await?;
    let Sent::Taken { turn, interrupted, message } = sent else { return Ok(Exit::Interrupted) };
    let deadline = arguments.timeout.map(Duration::from_secs);
    let mut lines = match answers {
        Answers::Person => Some(Lines::of_terminal()?),
        Answers::Rule(_) => {
            terminal::end_in_order(None)?;
            None
        }
    };
    let (lines, own) = (lines.as_mut(), &mut vec![message]);
    let seat = Seat { context, client, way, session, answers, frame, lines, own };
    Ok(match Follow::new(seat, turn).until_rest(&mut stream, deadline, &mut interrupts, interrupted).await? {
        Followed::Rested(exit) => exit,
        Followed::Left(exit) => exit,
    })
}

/// What is said: a text, what was piped in, or both.
fn text_of(given: &str, attached: &[PathBuf]) -> anyhow::Result<String> {
    let readers = attached.iter().filter(|path| *path == Path::new(attach::STDIN)).count();
    let text = match (given, readers) {
        (attach::STDIN, 0) => piped::text(TEXT_BYTES_MAX)?,
        (given, 0) if !given.trim().is_empty() => with_piped(given, piped::beside(TEXT_BYTES_MAX)?),
        (given, 0 | 1) if given != attach::STDIN => given.to_owned(),
        _ => return Err(Problem::usage("stdin can be read once", "leave one - out").into()),
    };
    if text.trim().is_empty() {
        return Err(Problem::usage("there is nothing to say", "give a text, or - to read it from stdin").into());
    }
    Ok(talk::checked(text)?)
}

/// The text, a blank line, and what was piped in.
fn with_piped(text: &str, piped: Option<String>) -> String {
    piped.map_or_else(|| text.to_owned(), |piped| format!("{text}\n\n{piped}"))
}

fn schema_of(path: &Path) -> anyhow::Result<Map<String, Value>> {
    let bad = |why: String| Problem::usage(format!("{}: {why}", path.display()), "name a file with a JSON Schema");
    let text = std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?;
    Ok(serde_json::from_str(&text).map_err(|error| bad(format!("is no JSON object: {error}")))?)
}

async fn known_session(client: &Client, given: &str) -> anyhow::Result<(String, SessionView)> {
    let session = lookup::session(client, given).await?;
    let view = client.session(&session).await?;
    if let Some((found, command)) = limits::used_up(&view) {
        let message = format!("its open turn waits, for it has used up its budget: {found}");
        let hint = format!("`tenure {command}` lets it go on; `tenure cancel {session}` gives it up");
        return Err(Problem::refused("waiting_budget", message, hint).into());
    }
    if let Some(turn) = &view.turn {
        terminal::note(&match turn.status.as_str() {
            "interrupted" => "An interrupted turn is open there; this one takes its place.\n".to_owned(),
            status => format!("A turn is open there ({status}); this one comes after it.\n"),
        });
    }
    Ok((session, view))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_must_be_something_to_say() {
        let of = |text: &str| text_of(text, &["-".into()]);
        assert!(of("  \n").is_err() && of("-").is_err());
        assert!(of(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
        assert_eq!(of("hi").unwrap(), "hi");
        assert!(text_of("hi", &["-".into(), "-".into()]).is_err());
    }
}

//! `tenure session`: one session, its events, its end.

use clap::{Args, Subcommand};
use serde_json::json;
use tenure_client::{
    Client, Until,
    print::{Detail, Printer, money, span, subject, tamed},
};
use tenure_wire::{End, Event, SessionView};
use tokio::signal::unix::{SignalKind, signal};

use super::Context;
use crate::{
    daemon,
    exit::{Exit, Problem},
    lookup, terminal,
};

/// Look at one session, follow its events, resume or end it
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What it is and what it waits for
    Show {
        /// The session, by its id or the beginning of it
        session: String,
    },
    /// Its events, oldest first
    #[command(after_help = "Examples:\n    tenure session events sess_01K9 --follow\n    \
                            tenure session events sess_01K9 --after 42 --json")]
    Events {
        /// The session, by its id or the beginning of it
        session: String,
        /// Go on with what comes, until Ctrl-C or the session's end
        #[arg(long)]
        follow: bool,
        /// Begin after this cursor, such as 42 or 42.1830
        #[arg(long, value_name = "CURSOR", value_parser = cursor)]
        after: Option<String>,
    },
    /// Let its interrupted turn go on
    Resume {
        /// The session, by its id or the beginning of it
        session: String,
    },
    /// End it; its log stays
    End {
        /// The session, by its id or the beginning of it
        session: String,
        /// Why; the log keeps it
        #[arg(long)]
        reason: Option<String>,
    },
}

fn cursor(given: &str) -> Result<String, String> {
    let cursor: tenure_core::cursor::Cursor = given.parse().map_err(|error| format!("{error}"))?;
    Ok(cursor.to_string())
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let client = daemon::connect(&context.data).await?;
    match &arguments.command {
        Command::Show { session } => show(context, &client, session).await,
        Command::Events { session, follow, after } => {
            let until = if *follow { Until::Forever } else { Until::Present };
            events(context, &client, session, until, after.as_deref()).await
        }
        Command::Resume { session } => resume(context, &client, session).await,
        Command::End { session, reason } => end(context, &client, session, reason.clone()).await,
    }
}

async fn show(context: &Context, client: &Client, given: &str) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let view = client.session(&session).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&view)?,
        terminal::Output::Text => described(&view).iter().try_for_each(|line| terminal::print_line(line))?,
    }
    Ok(Exit::Ok)
}

fn described(view: &SessionView) -> Vec<String> {
    let mut lines = vec![];
    let mut row = |name: &str, value: &str| lines.push(format!("{name:<10}  {}", tamed(&value.replace('\n', "⏎"))));
    row("session", &view.id);
    if let Some(title) = &view.title {
        row("title", title);
    }
    row("status", &view.status);
    row("workspace", &view.workspace_path);
    row("model", &view.model);
    row("created", &view.created_at);
    row("updated", &view.updated_at);
    row("events", &view.seq.to_string());
    let usage = &view.usage;
    row("tokens", &format!("{} in, {} out", usage.input_tokens, usage.output_tokens));
    row("cost", &money(view.cost_micro_usd));
    if let Some(turn) = &view.turn {
        let active = span(turn.spent.active_ms);
        row("turn", &format!("{}  {}, step {}, active for {active}", turn.id, turn.status, turn.step));
    }
    for queued in &view.queue {
        row("queued", queued);
    }
    for approval in &view.approvals {
        let about = subject(&json!({"input": approval.input, "subject": approval.subject}));
        row("waits", &format!("{}  {}: {about}", approval.tool_call_id, approval.name));
    }
    lines
}

async fn events(
    context: &Context,
    client: &Client,
    given: &str,
    until: Until,
    after: Option<&str>,
) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let mut stream = client.events(&session, until).finding(daemon::finder(&context.data));
    if let Some(cursor) = after {
        stream = stream.after(cursor);
    }
    let mut printer = Printer::new(terminal::stdout_look(), Detail::Log);
    let (mut missed, mut interrupts) = (stream.missed(), signal(SignalKind::interrupt())?);
    loop {
        let item = tokio::select! {
            item = stream.next() => item,
            _ = daemon::tell_missed(&mut missed) => continue,
            _ = interrupts.recv() => return Ok(Exit::Interrupted),
        };
        let Some(item) = item else { break };
        let item = item?;
        match context.output {
            terminal::Output::Json => terminal::print_line(&item.json)?,
            terminal::Output::Text => terminal::write_all(&printer.event(&serde_json::from_str::<Event>(&item.json)?))?,
        }
        if is_last(&item.kind) {
            break;
        }
    }
    terminal::write_all(&printer.finish())?;
    Ok(Exit::Ok)
}

/// After these a session has no more events.
fn is_last(kind: &str) -> bool {
    matches!(kind, "session_completed" | "session_canceled" | "session_failed" | "session_expired")
}

async fn resume(context: &Context, client: &Client, given: &str) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let nothing = || Problem::usage("this session has no open turn", "only an interrupted turn can be resumed");
    let turn = client.session(&session).await?.turn.ok_or_else(nothing)?;
    let resumed = client.resume(&session, &turn.id).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&resumed)?,
        terminal::Output::Text => terminal::print_line(&format!("{} goes on.", resumed.turn_id))?,
    }
    Ok(Exit::Ok)
}

async fn end(context: &Context, client: &Client, given: &str, reason: Option<String>) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let ended = client.end(&session, &End { reason, ..End::default() }).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&json!({"session_id": session, "status": ended.status}))?,
        terminal::Output::Text => terminal::print_line(&format!("{session} is {}.", ended.status))?,
    }
    Ok(Exit::Ok)
}

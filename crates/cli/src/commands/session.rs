//! `tenure session`: one session, its conversation, its events, its name, its copies, its end.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use tenure_client::{
    Client, Until,
    print::{Detail, Look, Printer, Tone, paid, span, subject, tamed, tokens_in},
};
use tenure_wire::{End, Event, LOG_DAMAGED, Message, Part, Patch, Role, SessionView, TurnStarted, TurnView};
use tokio::signal::unix::{SignalKind, signal};

mod copies;
mod gaps;
mod undo;

use self::gaps::Gaps;
pub(super) use self::undo::{undone, undone_lines};
use super::{Context, sessions::stands};
use crate::{
    count::{counted, within},
    daemon::{self, Way},
    exit::{Exit, Problem},
    limits::{self, Limits},
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
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
    },
    /// Its events, oldest first
    #[command(after_help = "Examples:\n    tenure session events sess_01K9 --follow\n    \
                            tenure session events sess_01K9 --after 42 --json")]
    Events {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
        /// Go on with what comes, until Ctrl-C or the session's end
        #[arg(long)]
        follow: bool,
        /// Begin after this cursor, such as 42 or 42.1830
        #[arg(long, value_name = "CURSOR", value_parser = cursor)]
        after: Option<String>,
    },
    /// Its conversation, oldest first
    Messages {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
    },
    /// Give it another title
    Rename {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
        /// What it is called from now on, on one line
        title: String,
    },
    /// Give it another folder, model or other labels, or raise its limits; while a turn is open, labels and limits
    #[command(after_help = "A turn that has used up its limit goes on when that is raised. Limits are never\n\
                            lowered.\n\nExamples:\n    tenure session change sess_01K9 --workspace .\n    \
                            tenure session change sess_01K9 --label squad-a --label nightly\n    \
                            tenure session change sess_01K9 --max-cost 2.50 --max-steps none")]
    Change {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
        /// The folder it works in
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// The model of its turns to come
        #[arg(long)]
        model: Option<String>,
        /// All labels it has from now on
        #[arg(long = "label", value_name = "LABEL", conflicts_with = "no_labels")]
        labels: Vec<String>,
        /// Take all labels away
        #[arg(long)]
        no_labels: bool,
        #[command(flatten)]
        limits: Limits,
    },
    /// Summarize the older part of what its model is shown; the log keeps everything
    Compact {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
    },
    /// Take back what a turn did to files: all of it, or nothing where one was changed since
    #[command(after_help = "Without --turn it is the last turn that can still be taken back. What commands\n\
                            did is not; files that changed while the turn ran are named.\n\nExamples:\n    \
                            tenure session undo sess_01K9\n    tenure session undo sess_01K9 --turn turn_01K9...")]
    Undo {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
        /// The turn, by its id
        #[arg(long, value_name = "TURN")]
        turn: Option<String>,
    },
    /// Let its interrupted turn go on
    Resume {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
    },
    /// Run its last turn again, which failed, expired, was canceled or interrupted
    Retry {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
    },
    /// Make a session of its own that begins where this one stood
    #[command(after_help = "An open turn of it waits in the fork until you resume it or send something\n\
                            else; no call that had begun there runs again. What came after the\n\
                            event is not part of the fork: going on, it does its own work.\n\nExamples:\n    tenure session fork sess_01K9\n    \
                            tenure session fork sess_01K9 --at 42 --workspace ../other")]
    Fork {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
        /// The last event to share [default: the present one]
        #[arg(long, value_name = "SEQ", value_parser = within(1..=u64::MAX))]
        at: Option<u64>,
        /// What it is called [default: as the session]
        #[arg(long)]
        title: Option<String>,
        /// The folder it works in [default: the same]
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
        /// The model of its turns [default: the same]
        #[arg(long)]
        model: Option<String>,
        /// Labels it gets; those of the session stay there
        #[arg(long = "label", value_name = "LABEL")]
        labels: Vec<String>,
    },
    /// Write all of it to one file: events, attachments, artifacts, settings
    #[command(after_help = "Examples:\n    tenure session export sess_01K9\n    \
                            tenure session export sess_01K9 -o - | ssh other tenure session import -")]
    Export {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
        /// Where to; - is standard output [default: its id and .tar.gz]
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Write over a file that is there
        #[arg(long)]
        force: bool,
    },
    /// Take in a session that was exported, under the same id
    #[command(after_help = "Examples:\n    tenure session import sess_01K9.tar.gz\n    \
                            tenure session import sess_01K9.tar.gz --as-new --workspace .")]
    Import {
        /// The file; - is standard input
        file: PathBuf,
        /// Under an id of its own, as a fork
        #[arg(long)]
        as_new: bool,
        /// The folder it works in from now on [default: the path it had where it comes from]
        #[arg(long, value_name = "DIR")]
        workspace: Option<PathBuf>,
    },
    /// Remove all of it, for ever; an open one is ended first
    Purge {
        /// The session, by its id, the beginning of it, a label or a role
        session: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// End it; its log stays
    End {
        /// The session, by its id, the beginning of it, a label or a role
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
    let client = daemon::connect(context).await?;
    match &arguments.command {
        Command::Show { session } => show(context, &client, session).await,
        Command::Events { session, follow, after } => {
            let until = if *follow { Until::Forever } else { Until::Present };
            events(context, &client, session, until, after.as_deref()).await
        }
        Command::Messages { session } => messages(context, &client, session).await,
        Command::Rename { session, title } => rename(context, &client, session, title).await,
        Command::Change { session, workspace, model, labels, no_labels, limits } => {
            let workspace_path = workspace.as_deref().map(copies::folder).transpose()?;
            let labels = (*no_labels || !labels.is_empty()).then(|| labels.clone());
            let (model, budgets) = (model.clone(), limits.budgets());
            let patch = Patch { workspace_path, model, labels, budgets, ..Patch::default() };
            change(context, &client, session, &patch).await
        }
        Command::Compact { session } => compact(context, &client, session).await,
        Command::Undo { session, turn } => undo::run(context, &client, session, turn.clone()).await,
        Command::Resume { session } => resume(context, &client, session).await,
        Command::Retry { session } => retry(context, &client, session).await,
        Command::Fork { session, at, title, workspace, model, labels } => {
            let (workspace, labels) = (workspace.as_deref(), labels.clone());
            let fork = copies::wanted(*at, title.clone(), workspace, model.clone(), labels)?;
            copies::fork(context, &client, session, &fork).await
        }
        Command::Export { session, output, force } => {
            copies::export(context, &client, session, output.as_deref(), *force).await
        }
        Command::Import { file, as_new, workspace } => {
            copies::import(context, &client, file, *as_new, workspace.as_deref()).await
        }
        Command::Purge { session, yes } => copies::purge(context, &client, session, *yes).await,
        Command::End { session, reason } => end(context, &client, session, reason.clone()).await,
    }
}

async fn show(context: &Context, client: &Client, given: &str) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let view = client.session(&session).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&view)?,
        terminal::Output::Text => {
            let last = last_turn(client, &view).await?;
            let mut lines = described(&view, last.as_ref(), terminal::stdout_look());
            lines.extend(next_attempt(client, &view, terminal::stdout_look()).await?);
            lines.iter().try_for_each(|line| terminal::print_line(line))?
        }
    }
    Ok(Exit::Ok)
}

/// The turn that ended last, where none is open.
pub(super) async fn last_turn(client: &Client, view: &SessionView) -> anyhow::Result<Option<TurnView>> {
    match (&view.turn, &view.last_turn_id) {
        (None, Some(turn)) => match client.turn(&view.id, turn, Duration::ZERO).await {
            // A fork or a damaged log may not have it.
            Err(error) if error.code().is_some() => Ok(None),
            turn => Ok(Some(turn?)),
        },
        _ => Ok(None),
    }
}

/// What the vendor said where the open turn waits to ask it again, and when it does; a row, if so.
pub(super) async fn next_attempt(client: &Client, view: &SessionView, look: Look) -> anyhow::Result<Option<String>> {
    if view.turn.is_none() {
        return Ok(None);
    }
    let before = view.seq.saturating_sub(1);
    let mut stream = client.events(&view.id, Until::Present).after(before.to_string());
    let mut found = None;
    while let Some(item) = stream.next().await {
        let event: Event = serde_json::from_str(&item?.json)?;
        if event.pos.is_none() {
            found = Some(event).filter(|event| event.wire_type == "model_attempt_failed");
        }
    }
    let Some((event, at)) = found.as_ref().and_then(|event| Some((event, event.data["retry_at"].as_str()?))) else {
        return Ok(None);
    };
    let (kind, message) = (&event.data["reason"]["kind"], &event.data["reason"]["message"]);
    let of = |value: &Value| tamed(&value.as_str().unwrap_or_default().replace('\n', "⏎"));
    let told = format!("the model did not answer ({}): {}; it is asked again at {at}", of(kind), of(message));
    Ok(Some(format!("{:<NAMES$}{}", "waits", look.folded_behind(NAMES, &told))))
}

/// How a turn ended badly, in words; `None` for one that was completed.
fn bad_end(turn: &TurnView) -> Option<String> {
    match (turn.status.as_str(), &turn.error) {
        ("completed", _) => None,
        (status, Some(error)) => Some(format!("{}: {} ({})", spelt(status), error.message, error.code)),
        (status, None) if turn.is_settled() => Some(spelt(status).to_owned()),
        _ => None,
    }
}

/// A status as it is written everywhere else than in a turn's record.
fn spelt(status: &str) -> &str {
    if status == "cancelled" { "canceled" } else { status }
}

/// How much room the names of what is shown take.
const NAMES: usize = 12;

pub(super) fn described(view: &SessionView, last: Option<&TurnView>, look: Look) -> Vec<String> {
    let mut lines = vec![];
    let mut row = |name: &str, value: &str| {
        let value = look.folded_behind(NAMES, &tamed(&value.replace('\n', "⏎")));
        lines.push(format!("{name:<NAMES$}{value}"));
    };
    row("session", &view.id);
    if let Some(title) = &view.title {
        row("title", title);
    }
    let turn_status = view.turn.as_ref().map(|turn| turn.status.as_str());
    row("status", stands(&view.status, turn_status));
    if !view.labels.is_empty() {
        row("labels", &view.labels.join(", "));
    }
    row("workspace", &view.workspace_path);
    row("model", &view.model);
    if let Some(origin) = &view.forked_from {
        row("forked", &format!("from {} at event {}", origin.session_id, origin.seq));
    }
    row("created", &view.created_at);
    row("updated", &view.updated_at);
    row("events", &view.seq.to_string());
    let usage = &view.usage;
    let input = tokens_in(usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens);
    row("tokens", &format!("{input}, {} out", usage.output_tokens));
    // What lost events tell of cost is lost too.
    let cost = view.cost_micro_usd.filter(|_| view.damage.is_empty());
    row("cost", &paid(cost, view.spent.micro_usd));
    if let Some(limits) = limits::shown(view, last) {
        row("limits", &limits);
    }
    if let Some(turn) = &view.turn {
        let active = span(turn.spent.active_ms);
        row("turn", &format!("{}  {}, step {}, active for {active}", turn.id, turn.status, turn.step));
        for call in &turn.unknown_calls {
            let about = subject(&json!({ "input": call.input }));
            row("unknown", &format!("{}  {}: {about}", call.id, call.name));
            row("", "A crash cut this call. It is not run again: look whether it did its work.");
        }
    }
    if let Some((found, _)) = limits::used_up(view) {
        row("waits", &format!("its budget is used up: {found}"));
    }
    let ended = last.and_then(bad_end);
    if let Some(how) = &ended {
        row("last turn", how);
    }
    for queued in &view.queue {
        row("queued", queued);
    }
    for damage in &view.damage {
        row("damage", &gaps::sentence(damage));
        row("", &damage.hint);
    }
    for approval in &view.approvals {
        let about = subject(&json!({"input": approval.input, "subject": approval.subject}));
        row("waits", &format!("{}  {}: {about}", approval.tool_call_id, approval.name));
    }
    let raise = last.and_then(|last| limits::raise_first(view, last));
    for (command, what) in next_steps(view, ended.is_some(), raise) {
        row("next", &format!("tenure {command}"));
        row("", what);
    }
    lines
}

/// What a person can do where the session does not go on by itself: commands, and what they do.
fn next_steps(view: &SessionView, ended_badly: bool, raise: Option<String>) -> Vec<(String, &'static str)> {
    let of = |command: &str| format!("{command} {}", view.id);
    let status = view.turn.as_ref().map(|turn| turn.status.as_str());
    match (status, limits::used_up(view)) {
        (_, Some((_, command))) => {
            vec![(command, "raises it, and the turn goes on"), (of("cancel"), "gives the turn up")]
        }
        (Some("interrupted"), _) => vec![
            (of("session resume"), "lets the turn go on; the model is told what is unknown"),
            (of("cancel"), "gives the turn up"),
        ],
        (Some("waiting_approval"), _) => vec![(of("approve"), "says yes to what waits; `tenure deny` says no")],
        (None, _) if ended_badly && view.status == "active" => {
            let raise = raise.map(|command| (command, "raises the limit that it ended at; then"));
            raise.into_iter().chain([(of("session retry"), "runs that turn again")]).collect()
        }
        _ => vec![],
    }
}

async fn messages(context: &Context, client: &Client, given: &str) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let (mut all, mut gaps, mut cursor) = (vec![], Gaps::default(), None);
    loop {
        let page = client.messages(&session, cursor.as_deref()).await?;
        match context.output {
            terminal::Output::Json => all.extend(page.messages),
            terminal::Output::Text => {
                for message in &page.messages {
                    spoken(message, terminal::stdout_look()).iter().try_for_each(|line| terminal::print_line(line))?;
                }
            }
        }
        page.damage.into_iter().for_each(|damage| gaps.add(damage));
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    if context.output == terminal::Output::Json {
        terminal::print_json(&gaps.beside(json!({ "messages": all }))?)?;
    }
    gaps.told()
}

/// How much of what a tool printed is shown.
const TOOL_LINES_MAX: usize = 5;

pub(super) fn spoken(message: &Message, look: Look) -> Vec<String> {
    let who = match (message.role, &message.name) {
        (Role::System, _) => "system".to_owned(),
        (Role::User, _) => "you".to_owned(),
        (Role::Assistant, _) => "agent".to_owned(),
        (Role::Tool, name) => name.clone().unwrap_or_else(|| "tool".into()),
    };
    let who = if message.ok == Some(false) { format!("{who} failed") } else { who };
    let mut lines = vec![look.paint(Tone::Faint, &format!("{}  {}", tamed(&who), message.created_at))];
    for part in &message.parts {
        let text = match part {
            Part::Text { text } => tamed(text),
            Part::Image { r#ref, .. } | Part::Audio { r#ref, .. } | Part::File { r#ref, .. } => tamed(r#ref),
        };
        let most = if message.role == Role::Tool { TOOL_LINES_MAX } else { usize::MAX };
        lines.extend(text.lines().take(most).map(|line| format!("  {}", look.folded_behind(2, line))));
        let left = text.lines().count().saturating_sub(most);
        if left > 0 {
            lines.push(look.paint(Tone::Faint, &format!("  … {}", counted(left as u64, "more line"))));
        }
    }
    for call in &message.tool_calls {
        let about = subject(&json!({ "input": call.input }));
        lines.push(look.line(&format!("  → {}: {about}", tamed(&call.name)), 0));
    }
    lines.push(String::new());
    lines
}

async fn rename(context: &Context, client: &Client, given: &str, title: &str) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let patch = Patch { title: Some(title.to_owned()), ..Patch::default() };
    let view = client.patch(&session, None, &patch).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&view)?,
        terminal::Output::Text => {
            let title = view.title.unwrap_or_default();
            terminal::print_line(&format!("{session} is now called: {}", tamed(&title)))?;
        }
    }
    Ok(Exit::Ok)
}

async fn change(context: &Context, client: &Client, given: &str, patch: &Patch) -> anyhow::Result<Exit> {
    if *patch == Patch::default() {
        let hint = "name --workspace, --model, --label, --no-labels or a limit such as --max-cost";
        return Err(Problem::usage("nothing is to be changed", hint).into());
    }
    let session = lookup::session(client, given).await?;
    let view = client.patch(&session, None, patch).await?;
    if patch.model.is_some() || limits::limits_money(patch.budgets.as_ref()) {
        limits::tell_unpriced(client, &view).await?;
    }
    match context.output {
        terminal::Output::Json => terminal::print_json(&view)?,
        terminal::Output::Text => {
            let lines = described(&view, None, terminal::stdout_look());
            lines.iter().try_for_each(|line| terminal::print_line(line))?
        }
    }
    Ok(Exit::Ok)
}

async fn events(
    context: &Context,
    client: &Client,
    given: &str,
    until: Until,
    after: Option<&str>,
) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let way = Way::waiting(daemon::finder(context));
    let mut stream = client.events(&session, until).finding(way.find.clone());
    if let Some(cursor) = after {
        stream = stream.after(cursor);
    }
    let mut printer = Printer::new(terminal::stdout_look(), Detail::Log);
    let mut gaps = Gaps::default();
    let (mut missed, mut interrupts) = (stream.missed(), signal(SignalKind::interrupt())?);
    loop {
        let item = tokio::select! {
            item = stream.next() => item,
            _ = daemon::tell_missed(&mut missed, &way) => continue,
            _ = interrupts.recv() => return Ok(Exit::Interrupted),
        };
        let Some(item) = item else { break };
        let item = item?;
        let event: Event = serde_json::from_str(&item.json)?;
        gaps.note(&event)?;
        match context.output {
            terminal::Output::Json => terminal::print_line(&item.json)?,
            terminal::Output::Text => terminal::write_all(&printer.event(&event))?,
        }
        if is_last(&item.kind) {
            break;
        }
    }
    terminal::write_all(&printer.finish())?;
    gaps.told()
}

/// After these a session has no more events.
fn is_last(kind: &str) -> bool {
    kind == LOG_DAMAGED
        || matches!(kind, "session_completed" | "session_canceled" | "session_failed" | "session_expired")
}

/// Asks for it and waits for what becomes of it.
async fn compact(context: &Context, client: &Client, given: &str) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let begun = client.session(&session).await?.seq;
    client.compact(&session).await?;
    let way = Way::waiting(daemon::finder(context));
    let mut stream = client.events(&session, Until::Forever).finding(way.find.clone()).after(begun.to_string());
    let mut printer = Printer::new(terminal::stdout_look(), Detail::Story);
    let mut interrupts = signal(SignalKind::interrupt())?;
    loop {
        let item = tokio::select! {
            item = stream.next() => item,
            _ = interrupts.recv() => return Ok(Exit::Interrupted),
        };
        let Some(item) = item else { return Ok(Exit::Failed) };
        let item = item?;
        let event: Event = serde_json::from_str(&item.json)?;
        let done = match item.kind.as_str() {
            "context_compacted" => Some(Exit::Ok),
            "compaction_failed" if event.data["retry_at"].is_null() => Some(Exit::Failed),
            "compaction_started" | "compaction_failed" => None,
            kind if is_last(kind) => return Ok(Exit::Failed),
            _ => continue,
        };
        match (context.output, done) {
            (terminal::Output::Json, Some(_)) => terminal::print_line(&item.json)?,
            (terminal::Output::Json, None) => {}
            (terminal::Output::Text, _) => terminal::write_all(&printer.event(&event))?,
        }
        if let Some(exit) = done {
            return Ok(exit);
        }
    }
}

async fn resume(context: &Context, client: &Client, given: &str) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let view = client.session(&session).await?;
    let Some(turn) = view.turn else {
        return Err(match view.status.as_str() {
            "active" => {
                let hint = format!("`tenure ask --session {session} TEXT` starts another turn");
                Problem::refused("no_open_turn", "this session has no open turn that could go on", hint)
            }
            status => {
                let hint = format!("`tenure session fork {session}` makes one that goes on from there");
                Problem::refused("session_ended", format!("this session has ended: {status}"), hint)
            }
        }
        .into());
    };
    let resumed = client.resume(&session, &turn.id).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&resumed)?,
        terminal::Output::Text => terminal::print_line(&format!("{} goes on.", resumed.turn_id))?,
    }
    Ok(Exit::Ok)
}

async fn retry(context: &Context, client: &Client, given: &str) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let retried = again(client, &session).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&retried)?,
        terminal::Output::Text => {
            terminal::print_line(&format!("{} runs it again.", retried.turn_id))?;
            terminal::tell(&format!("To follow it: tenure chat --session {session}"));
        }
    }
    Ok(Exit::Ok)
}

/// Runs the last turn again.
pub(super) async fn again(client: &Client, session: &str) -> anyhow::Result<TurnStarted> {
    let view = client.session(session).await?;
    let turn = view.turn.map(|open| open.id).or(view.last_turn_id);
    let none = || Problem::refused("no_turn", "this session has had no turn", "send it a message");
    Ok(client.retry(session, &turn.ok_or_else(none)?).await?)
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

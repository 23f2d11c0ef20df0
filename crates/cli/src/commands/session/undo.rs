//! `tenure session undo`: takes back what a turn did to files, and tells what was put back and what was not.

use serde_json::Value;
use tenure_client::{Client, Until, print::tamed};
use tenure_wire::{Event, Undo};
use tokio::signal::unix::{SignalKind, signal};

use super::super::Context;
use crate::{exit::Exit, lookup, terminal};

pub async fn run(context: &Context, client: &Client, given: &str, turn: Option<String>) -> anyhow::Result<Exit> {
    let session = lookup::session(client, given).await?;
    let mut interrupts = signal(SignalKind::interrupt())?;
    let done = tokio::select! {
        done = undone(client, &session, turn) => done?,
        _ = interrupts.recv() => return Ok(Exit::Interrupted),
    };
    let Some(done) = done else { return Ok(Exit::Failed) };
    match context.output {
        terminal::Output::Json => terminal::print_json(&done.data)?,
        terminal::Output::Text => undone_lines(&done.data).iter().try_for_each(|line| terminal::print_line(line))?,
    }
    Ok(if done.data["outcome"] == "restored" { Exit::Ok } else { Exit::Failed })
}

/// Asks for it and waits for what becomes of it; `None` where the log ends before that.
pub async fn undone(client: &Client, session: &str, turn_id: Option<String>) -> anyhow::Result<Option<Event>> {
    let undoing = client.undo(session, &Undo { turn_id, ..Undo::default() }).await?;
    let mut stream = client.events(session, Until::Forever).after(undoing.seq.to_string());
    while let Some(item) = stream.next().await {
        let item = item?;
        if item.kind == "workspace_restored" {
            return Ok(Some(serde_json::from_str(&item.json)?));
        }
        if super::is_last(&item.kind) {
            return Ok(None);
        }
    }
    Ok(None)
}

/// What became of it, file by file.
pub fn undone_lines(data: &Value) -> Vec<String> {
    let turn = data["turn_id"].as_str().unwrap_or_default();
    let mut lines = match data["outcome"].as_str() {
        Some("restored") => vec![format!("The changes of {turn} were taken back.")],
        Some("refused") => vec![format!("Nothing was taken back of {turn}, and no file was touched.")],
        _ => vec![format!("It is not known how much of {turn} was taken back: look at these files.")],
    };
    let all = |field: &str| data[field].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| tamed(&value.as_str().unwrap_or_default().replace('\n', "⏎"));
    lines.extend(all("restored").iter().map(|path| format!("  restored  {}", text(path))));
    lines.extend(all("refused").iter().map(|file| format!("  {}: {}", text(&file["path"]), text(&file["why"]))));
    if !all("not_undone").is_empty() {
        lines.push("These changed while the turn ran, by a command or by somebody else, and were left:".into());
        lines.extend(all("not_undone").iter().map(|path| format!("  left      {}", text(path))));
    }
    if data["more_not_undone"] == true {
        lines.push("  and perhaps more".into());
    }
    for call in all("unknown") {
        let paths: Vec<String> = call["paths"].as_array().into_iter().flatten().map(text).collect();
        let name = text(&call["name"]);
        lines.push(format!("Whether this {name} call of the turn took effect is not known: {}", paths.join(", ")));
    }
    lines
}

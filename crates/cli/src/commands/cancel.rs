//! `tenure cancel`: stops a session's open turn.

use clap::Args;
use tenure_wire::Cancel;

use super::Context;
use crate::{daemon, exit::Exit, lookup, terminal};

/// Cancel a session's open turn
#[derive(Debug, Args)]
#[command(after_help = "Example:\n    tenure cancel sess_01K9 --reason \"wrong folder\"")]
pub struct Arguments {
    /// The session, by its id, the beginning of it, a label or a role
    session: String,
    /// Why; the log keeps it
    #[arg(long)]
    reason: Option<String>,
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let client = daemon::connect(context).await?;
    let session = lookup::session(&client, &arguments.session).await?;
    let cancel = Cancel { reason: arguments.reason.clone(), ..Cancel::default() };
    let canceling = client.cancel(&session, &cancel).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&canceling)?,
        terminal::Output::Text => terminal::print_line(&format!("{} is being canceled.", canceling.turn_id))?,
    }
    Ok(Exit::Ok)
}

//! `tenure open`: a link that lets one browser in, once.

use std::process::{Command, Stdio};

use clap::Args;

use super::Context;
use crate::{daemon, exit::Exit, terminal};

/// Print a link that logs a browser in, and open it where there is a display
#[derive(Debug, Args)]
#[command(after_help = "The link works once, within a minute.\n\nExamples:\n    tenure open\n    tenure open --print")]
pub struct Arguments {
    /// Print the link and open nothing
    #[arg(long)]
    print: bool,
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let client = daemon::connect(context).await?;
    let login = client.login().await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&login)?,
        terminal::Output::Text => terminal::print_line(&login.url)?,
    }
    let display =
        ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()));
    if display && !arguments.print && context.output == terminal::Output::Text {
        let opened = Command::new("xdg-open").arg(&login.url).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        if opened.is_err() {
            terminal::note("No browser could be opened: use the link.\n");
        }
    }
    Ok(Exit::Ok)
}

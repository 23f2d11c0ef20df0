//! `tenure tools`: what agents can be given in a folder, where it comes from, and whether they are asked about it.

use std::path::PathBuf;

use clap::Args;
use tenure_client::print::{Look, Tone, columns, tamed};
use tenure_wire::ToolList;

use super::Context;
use crate::{daemon, exit::Exit, talk, terminal};

const EXAMPLES: &str = "\
Examples:
    tenure tools                       those of this folder
    tenure tools --workspace ~/project
    tenure tools --json | jq -r '.tools[].name'

Tools of MCP servers come from [mcp_servers.NAME] in config.toml and from the
folder's .mcp.json, those of plugins from its .agents/tools. What a folder
names is not started before somebody has said yes to it. See docs/plugins.md.";

/// List the tools that agents can be given, and where they come from
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    /// The folder that agents would act in [default: this one]
    #[arg(long, value_name = "DIR", default_value = ".", hide_default_value = true)]
    workspace: PathBuf,
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let workspace = talk::workspace(&arguments.workspace, context.files())?;
    let list = daemon::connect(context).await?.tools(&workspace).await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&list)?,
        terminal::Output::Text => {
            told(&list, terminal::stdout_look()).iter().try_for_each(|line| terminal::print_line(line))?;
        }
    }
    Ok(Exit::Ok)
}

/// The table, and what to do about what is missing.
fn told(list: &ToolList, look: Look) -> Vec<String> {
    let width = list.tools.iter().map(|tool| columns(&tamed(&tool.name))).max().unwrap_or(0);
    let line = |tool: &tenure_wire::ToolView| {
        let (name, asked) = (tamed(&tool.name), if tool.requires_approval { "asks" } else { "" });
        let space = " ".repeat(width - columns(&name));
        format!("{}{space}  {:<7}  {asked:<4}  {}", look.paint(Tone::Name, &name), tool.kind, tamed(&tool.source))
    };
    let mut lines: Vec<String> = list.tools.iter().map(line).collect();
    let mut notes = vec![];
    for source in &list.sources {
        let how = match (source.state.as_str(), &source.problem) {
            (_, Some(problem)) => format!("cannot be used: {problem}"),
            ("unapproved", _) => "named by this folder and not approved: an agent that wants it asks first".into(),
            ("unlisted", _) => "not started yet: its tools are known with the first message".into(),
            _ => continue,
        };
        notes.push(format!("{}: {how}", source.name));
    }
    notes.extend(list.problems.iter().cloned());
    if !notes.is_empty() {
        lines.push(String::new());
    }
    lines.extend(notes.iter().map(|note| look.paint(Tone::Faint, &tamed(note))));
    lines
}

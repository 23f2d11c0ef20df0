//! `tenure token`: tokens by name, for programs and people who should be told apart and can be shut out one by one.

use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use tenure_client::Client;
use tenure_core::time::Timestamp;
use tenure_wire::{NewToken, RotateToken, TokenMade, TokenView};

use super::Context;
use crate::{
    daemon,
    exit::{Exit, Problem},
    span, terminal,
};

const EXAMPLES: &str = "\
Examples:
    tenure token add ci --expires 90d    its secret is shown once
    tenure token list
    tenure token rotate ci --grace 1h    a new secret; the old one for 1 h more
    tenure token revoke ci               at once: what it has open is cut
    tenure token rotate                  the daemon's own token, in its file";

/// The name under which the daemon knows its own token.
const OWN: &str = "owner";

/// Make, list, rotate and revoke tokens
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token; its secret is shown this once
    Add {
        /// Small letters, digits, '.', '_' and '-': it stands in every event that it causes
        name: String,
        /// How long it is taken, such as 12h or 90d [default: for ever]
        #[arg(long, value_name = "TIME", value_parser = span::parse)]
        expires: Option<span::Millis>,
    },
    /// All tokens but the daemon's own
    List,
    /// Shut a token out; its open streams are cut
    Revoke {
        /// Which one; `tenure token list` names them
        name: String,
    },
    /// Give a token a new secret; without a name, the daemon's own
    Rotate {
        /// Which one [default: the daemon's own]
        name: Option<String>,
        /// How long the secret of before is still taken, such as 10m [default: not at all]
        #[arg(long, value_name = "TIME", value_parser = span::parse)]
        grace: Option<span::Millis>,
    },
}

pub async fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let client = daemon::connect(context).await?;
    match &arguments.command {
        Command::Add { name, expires } => {
            let new = NewToken { name: name.clone(), expires_in_ms: expires.map(|span::Millis(ms)| ms) };
            made(context, &client.add_token(&new).await?)?;
        }
        Command::List => list(context, &client).await?,
        Command::Revoke { name } => {
            let revoked = client.revoke_token(name).await?;
            match context.output {
                terminal::Output::Json => terminal::print_json(&revoked)?,
                terminal::Output::Text => terminal::print_line(&format!("{} is not taken any more.", revoked.name))?,
            }
        }
        Command::Rotate { name, grace } => {
            let how = RotateToken { grace_ms: grace.map(|span::Millis(ms)| ms) };
            match name.as_deref() {
                Some(name) if is_over_of(&client, name).await? => return Err(over(name).into()),
                Some(name) => made(context, &client.rotate_token(name, &how).await?)?,
                None => rotated_own(context, &client.rotate_token(OWN, &how).await?)?,
            }
        }
    }
    Ok(Exit::Ok)
}

/// The secret alone on stdout, so that a script can take it.
fn made(context: &Context, made: &TokenMade) -> anyhow::Result<()> {
    match context.output {
        terminal::Output::Json => terminal::print_json(made)?,
        terminal::Output::Text => {
            terminal::note(&format!("{}\nIts secret, shown this once:\n", line(&made.view)));
            terminal::print_line(&made.token)?;
        }
    }
    Ok(())
}

/// Whoever is on the daemon's machine finds it in its file, and whoever is not has just got it.
fn rotated_own(context: &Context, made: &TokenMade) -> anyhow::Result<()> {
    match (context.output, context.remote.is_some()) {
        (terminal::Output::Json, true) => terminal::print_json(made)?,
        (terminal::Output::Json, false) => terminal::print_json(&made.view)?,
        (terminal::Output::Text, true) => self::made(context, made)?,
        (terminal::Output::Text, false) => {
            terminal::print_line("The daemon has a new token, in its file and in force.")?;
        }
    }
    Ok(())
}

async fn list(context: &Context, client: &Client) -> anyhow::Result<()> {
    let list = client.tokens().await?;
    match context.output {
        terminal::Output::Json => terminal::print_json(&list)?,
        terminal::Output::Text if list.tokens.is_empty() => {
            terminal::print_line("There are no tokens but the daemon's own.")?;
        }
        terminal::Output::Text => {
            for token in &list.tokens {
                terminal::print_line(&line(token))?;
            }
        }
    }
    Ok(())
}

async fn is_over_of(client: &Client, name: &str) -> anyhow::Result<bool> {
    let tokens = client.tokens().await?.tokens;
    Ok(tokens.iter().any(|token| token.name == name && token.expires_at.as_deref().is_some_and(is_past)))
}

/// A new secret would be as worthless as the old one.
fn over(name: &str) -> Problem {
    let hint = format!("`tenure token revoke {name}`, then `tenure token add {name}` makes it anew");
    Problem::refused(
        "token_expired",
        format!("the token '{name}' has expired; a new secret would not change that"),
        hint,
    )
}

/// By this machine's clock.
fn is_past(at: &str) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_millis());
    serde_json::from_value::<Timestamp>(at.into()).is_ok_and(|at| u128::from(at.ms()) <= now)
}

/// To the minute.
fn short(at: &str) -> String {
    at.get(..16).map_or_else(|| at.to_owned(), |minute| format!("{minute}Z"))
}

fn line(token: &TokenView) -> String {
    let ends = token.expires_at.as_deref().map_or(String::new(), |at| match is_past(at) {
        true => format!("  EXPIRED {}", short(at)),
        false => format!("  until {}", short(at)),
    });
    let earlier = token.earlier_until.as_deref().filter(|at| !is_past(at));
    let earlier = earlier.map_or(String::new(), |at| format!("  the one before until {}", short(at)));
    format!("{:<20}  …{}  made {}{ends}{earlier}", token.name, token.last4, short(&token.created_at))
}

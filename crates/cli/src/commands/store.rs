//! `tenure store`: looks after the data folder itself, without a daemon: check it, repair it, remove what nobody needs.

use std::{
    io::IsTerminal as _,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;
use tenure_client::print::{Tone, tamed};
use tenure_core::{ids::SessionId, time::Timestamp};
use tenure_store::{
    Error,
    upkeep::{self, CheckOptions, Finding, GcOptions, Level, Remedy},
};

mod beside;

use super::Context;
use crate::{
    count::counted,
    data::{self, Need},
    exit::{Exit, Problem},
    span,
    terminal::{self, Output},
};

/// How long a file that a daemon is writing just now is given to come to its end.
const PATIENCE: Duration = Duration::from_secs(1);

/// Check the data folder, repair it, remove what nobody needs
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n    tenure store check\n    tenure store repair --dry-run\n    \
                        tenure store gc --older-than 7d --sessions-ended-before 90d")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read everything and tell what is damaged; changes nothing, and may run beside a daemon
    #[command(after_help = "Exits with 5 if anything is damaged. Notes do not count: they tell of what a\n\
                            crash or an upload left, which harms nobody.\n\nExamples:\n    tenure store check\n    \
                            tenure store check sess_01K9 --json | jq '.findings[]'")]
    Check {
        /// Only these sessions, by their ids or the beginnings of them
        sessions: Vec<String>,
    },
    /// Mend what can be mended; not while a daemon runs
    #[command(after_help = "A changed bit is put right where a sum or a digest tells which. Else every\n\
                            valid event is kept under its number, event_lost stands for each that is\n\
                            gone, and the session ends as failed. What was damaged is kept beside it.\n\nExits with 5 if damage is left, or found with --dry-run.\n\n\
                            Examples:\n    tenure store repair --dry-run\n    tenure store repair")]
    Repair {
        /// Only tell what would be done
        #[arg(long)]
        dry_run: bool,
    },
    /// Remove what nobody needs; not while a daemon runs
    #[command(after_help = "Never touched: sessions that are open or have the label `pinned`, damaged\n\
                            ones, and whatever is younger than its limit.\n\nExamples:\n    tenure store gc --dry-run\n    \
                            tenure store gc --older-than 7d --sessions-ended-before 90d")]
    Gc {
        /// Only tell what would be removed
        #[arg(long)]
        dry_run: bool,
        /// Old deltas, leftovers and files that no event names, from this age on: 90s, 15m, 12h, 30d, 8w
        #[arg(long, value_name = "AGE", default_value = "30d", value_parser = age)]
        older_than: Duration,
        /// Whole sessions that ended longer ago than this; none, if it is not said
        #[arg(long, value_name = "AGE", value_parser = age)]
        sessions_ended_before: Option<Duration>,
    },
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<Exit> {
    let need = match &arguments.command {
        Command::Repair { dry_run: false } | Command::Gc { dry_run: false, .. } => Need::Write,
        _ => Need::Read,
    };
    data::allowed(&context.data, need)?;
    match &arguments.command {
        Command::Check { sessions } => check(context, sessions),
        Command::Repair { dry_run } => repair(context, *dry_run),
        Command::Gc { dry_run, older_than, sessions_ended_before } => {
            let (older_than, sessions_ended_before) = (*older_than, *sessions_ended_before);
            gc(context, *dry_run, &GcOptions { now: now(), older_than, sessions_ended_before })
        }
    }
}

fn check(context: &Context, given: &[String]) -> anyhow::Result<Exit> {
    let sessions = given.iter().map(|given| session(context, given)).collect::<anyhow::Result<_>>()?;
    let options = CheckOptions { sessions, patience: PATIENCE };
    let bar = Bar::new(context.output);
    let mut check = upkeep::check(&context.data, &options, &mut |done, all| bar.at(done, all)).map_err(problem)?;
    drop(bar);
    if given.is_empty() {
        check.findings.extend(beside::findings(&context.data));
    }
    match context.output {
        Output::Json => {
            let mut told = json!(check);
            told["clean"] = check.is_clean().into();
            terminal::print_json(&told)?;
        }
        Output::Text => {
            check.findings.iter().try_for_each(show)?;
            let damaged = check.findings.iter().filter(|finding| finding.level == Level::Damage).count();
            let seen = format!(
                "{}, {}, {}, {}",
                counted(check.sessions, "session"),
                counted(check.events, "event"),
                counted(check.files, "file"),
                size(check.bytes)
            );
            let verdict = match damaged {
                0 => "nothing is damaged".to_owned(),
                count => format!("{count} damaged; see `tenure store repair --dry-run`"),
            };
            terminal::print_line(&format!("{seen}: {verdict}."))?;
        }
    }
    Ok(if check.is_clean() { Exit::Ok } else { Exit::Damaged })
}

fn repair(context: &Context, dry_run: bool) -> anyhow::Result<Exit> {
    let bar = Bar::new(context.output);
    let work = if dry_run { upkeep::plan_repair } else { upkeep::repair };
    let mut repair = work(&context.data, now(), &mut |done, all| bar.at(done, all)).map_err(problem)?;
    drop(bar);
    repair.actions.extend(beside::repair(&context.data, dry_run)?);
    // A plan leaves what it would mend, which is told already.
    repair.left.extend(beside::findings(&context.data).filter(|finding| finding.remedy == Remedy::None));
    match context.output {
        Output::Json => {
            let mut told = json!(repair);
            told["dry_run"] = dry_run.into();
            terminal::print_json(&told)?;
        }
        Output::Text => {
            for action in &repair.actions {
                terminal::print_line(&format!("{}: {}", tamed(&action.path), tamed(&action.what)))?;
            }
            repair.left.iter().try_for_each(show)?;
            let said = match (repair.actions.len() as u64, dry_run) {
                (0, _) if repair.left.is_empty() => "Nothing is to be mended.".to_owned(),
                (0, _) => "Nothing of this can be mended here.".to_owned(),
                (count, true) => format!("{} would be mended.", counted(count, "thing")),
                (1, false) => "1 thing was mended.".to_owned(),
                (count, false) => format!("{} were mended.", counted(count, "thing")),
            };
            terminal::print_line(&said)?;
        }
    }
    let is_damaged = !repair.left.is_empty() || dry_run && !repair.actions.is_empty();
    Ok(if is_damaged { Exit::Damaged } else { Exit::Ok })
}

fn gc(context: &Context, dry_run: bool, options: &GcOptions) -> anyhow::Result<Exit> {
    let bar = Bar::new(context.output);
    let work = if dry_run { upkeep::plan_gc } else { upkeep::gc };
    let gc = work(&context.data, options, &mut |done, all| bar.at(done, all)).map_err(problem)?;
    drop(bar);
    match context.output {
        Output::Json => {
            let mut told = json!(gc);
            told["dry_run"] = dry_run.into();
            terminal::print_json(&told)?;
        }
        Output::Text => {
            for removed in &gc.removed {
                let line = format!("{} ({}): {}", tamed(&removed.path), size(removed.bytes), removed.what);
                terminal::print_line(&line)?;
            }
            for problem in &gc.problems {
                terminal::note(&format!("{}\n", tamed(problem)));
            }
            let count = gc.removed.len() as u64;
            let verb = match (dry_run, count) {
                (true, _) => "would be removed",
                (false, 1) => "was removed",
                (false, _) => "were removed",
            };
            terminal::print_line(&format!("{} {verb}: {}.", counted(count, "thing"), counted(gc.bytes, "byte")))?;
        }
    }
    Ok(if gc.problems.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn show(finding: &Finding) -> std::io::Result<()> {
    let look = terminal::stdout_look();
    let (tone, level) = match finding.level {
        Level::Damage => (Tone::Bad, "damage"),
        Level::Note => (Tone::Faint, "note  "),
    };
    let remedy = match finding.remedy {
        Remedy::Repair => " (repair)",
        Remedy::Gc => " (gc)",
        Remedy::None => "",
    };
    let line = format!("{}  {}: {}", look.paint(tone, level), tamed(&finding.path), tamed(&finding.what));
    terminal::print_line(&format!("{line}{}", look.paint(Tone::Faint, remedy)))
}

/// A session by its id or the beginning of it; no daemon is asked.
fn session(context: &Context, given: &str) -> anyhow::Result<SessionId> {
    if let Ok(session) = given.parse() {
        return Ok(session);
    }
    let mut found = upkeep::sessions(&context.data).map_err(problem)?;
    found.retain(|session| session.to_string().starts_with(given));
    match found[..] {
        [session] => Ok(session),
        [] => Err(unknown(format!("there is no session {given}"))),
        _ => Err(Problem::usage(format!("{given} fits {} sessions", found.len()), "give more of its id").into()),
    }
}

fn unknown(message: String) -> anyhow::Error {
    Problem::refused("unknown_session", message, "list them with `tenure sessions --all`").into()
}

fn problem(error: Error) -> anyhow::Error {
    match error {
        Error::Locked { .. } => {
            Problem::failed("locked", error.to_string(), "end the daemon with `tenure stop` first").into()
        }
        Error::NoFolder(_) => Problem::usage(error.to_string(), "say where it is with --data DIR").into(),
        Error::NoSession(_) => unknown(error.to_string()),
        Error::Disk { .. } => Problem::failed("disk_refused", error.to_string(), data::REFUSED).into(),
        other => Problem::failed("store", other.to_string(), "`tenure doctor` looks for what is wrong").into(),
    }
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_ms(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// An age as people write it: `90s`, `15m`, `12h`, `30d`, `8w`.
fn age(given: &str) -> Result<Duration, String> {
    let wrong = || format!("'{given}' is no age: write 90s, 15m, 12h, 30d or 8w");
    span::read(given).map(Duration::from_millis).ok_or_else(wrong)
}

fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// Shows how far the work is, to people who look on.
struct Bar(ProgressBar);

impl Bar {
    fn new(output: Output) -> Self {
        let shown = output == Output::Text && std::io::stderr().is_terminal();
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let style = ProgressStyle::with_template("{bar:30} {pos} of {len} sessions, {eta} left");
        let bar = ProgressBar::with_draw_target(None, target);
        Self(match style {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        })
    }

    fn at(&self, done: u64, all: u64) {
        self.0.set_length(all);
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read_as_people_write_them() {
        for (given, seconds) in
            [("0s", 0), ("90s", 90), ("15m", 900), ("12h", 43_200), ("30d", 2_592_000), ("1w", 604_800)]
        {
            assert_eq!(age(given), Ok(Duration::from_secs(seconds)), "{given}");
        }
        for bad in ["", "d", "30", "-1d", "1.5h", "1y", "999999999999999999d", "ä"] {
            assert!(age(bad).is_err(), "{bad}");
        }
    }
}

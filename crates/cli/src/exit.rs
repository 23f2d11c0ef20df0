//! How the program ends: documented exit codes, and errors as people and programs read them.

use std::{borrow::Cow, io, process::ExitCode};

use clap::{
    CommandFactory as _,
    error::{ContextKind, ContextValue},
};
use serde_json::json;
use tenure_client::{Error, Fault, print::Tone};

use crate::{
    args::Cli,
    hint::{self, Place},
    terminal::{self, Output},
};

/// Shown in `--help`; scripts rely on it.
pub const CODES: &str = "\
Exit codes:
    0  it went well
    1  the turn failed, was canceled, expired, was interrupted or waits at its
       budget; or a check or a start failed
    2  the command line or the configuration is wrong
    3  the daemon cannot be reached or started
    4  the daemon refused the request, or what it names is not there; the
       message names the code
    5  the data folder is damaged: found by `store check`, or left by
       `store repair`; or the session that was read is, and not all of it could
       be shown
  130  interrupted with Ctrl-C";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    Failed = 1,
    Usage = 2,
    NoDaemon = 3,
    Refused = 4,
    Damaged = 5,
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit as u8)
    }
}

/// A problem of ours that knows its exit code and what to do about it.
#[derive(Debug)]
pub struct Problem {
    exit: Exit,
    code: Cow<'static, str>,
    message: String,
    hint: String,
}

impl Problem {
    /// The command line or the configuration is wrong.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, code: "usage".into(), message: message.into(), hint: hint.into() }
    }

    /// What to do about it.
    pub fn hint(&self) -> &str {
        &self.hint
    }

    /// No daemon can be reached or started.
    pub fn no_daemon(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::NoDaemon, code: "no_daemon".into(), message: message.into(), hint: hint.into() }
    }

    /// The daemon does not have what is meant, or it is not so that this can be done: as if it had been asked.
    pub fn refused(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Refused, code: code.into(), message: message.into(), hint: hint.into() }
    }

    /// Not all of what was asked for is there any more.
    pub fn damaged(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Damaged, code: "session_damaged".into(), message: message.into(), hint: hint.into() }
    }

    /// Something of this program did not come to a good end.
    pub fn failed(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, code: code.into(), message: message.into(), hint: hint.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// Tells what is wrong with the command line, to programs as JSON; help and the version are told as ever.
pub fn misused(mut error: clap::Error) -> ExitCode {
    name_only_what_is_needed(&mut error);
    suggest_command(&mut error);
    let for_programs = std::env::args_os().any(|argument| argument == "--json");
    if error.use_stderr() && for_programs {
        let text = error.to_string();
        // What is wrong, then a blank line, then perhaps a tip.
        let mut parts = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
        let message = parts.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
        let tip = parts.find_map(|part| part.strip_prefix("tip: ").map(str::to_owned));
        let hint = tip.unwrap_or_else(|| "look at it without --json, or at --help".into());
        eprintln!("{}", json!({"error": {"code": "usage", "message": message, "hint": hint}}));
        return Exit::Usage.into();
    }
    error.exit()
}

/// Two letters of a short word that changed places are too many for what compares words elsewhere.
fn suggest_command(error: &mut clap::Error) {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidSubcommand) else { return };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return;
    }
    let letters = |word: &str| {
        let mut all: Vec<char> = word.chars().collect();
        all.sort_unstable();
        all
    };
    let (wanted, command) = (letters(typed), Cli::command());
    let similar = command.get_subcommands().map(clap::Command::get_name).find(|name| letters(name) == wanted);
    if let Some(similar) = similar.map(str::to_owned) {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![similar]));
    }
}

/// An option that the environment gave would stand in the usage as if it had to be typed.
fn name_only_what_is_needed(error: &mut clap::Error) {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return };
    let usage = usage.to_string();
    let mut command = Cli::command();
    command.build();
    let mut meant = &mut command;
    for word in usage.split_whitespace().skip(2) {
        if meant.find_subcommand(word).is_none() {
            break;
        }
        let Some(below) = meant.find_subcommand_mut(word) else { return };
        meant = below;
    }
    let plain = meant.render_usage();
    error.insert(ContextKind::Usage, ContextValue::StyledStr(plain));
}

/// Tells the error on stderr and gives its exit code.
pub fn report(error: &anyhow::Error, output: Output) -> Exit {
    report_as(error, output, |hint| hint)
}

/// The same inside a chat with this session.
pub fn report_in_chat(error: &anyhow::Error, output: Output, session: &str) -> Exit {
    report_as(error, output, |hint| hint::in_chat(&hint, session))
}

fn report_as(error: &anyhow::Error, output: Output, told: impl Fn(String) -> String) -> Exit {
    // Whoever read our output has enough of it, as `head` does.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return Exit::Ok;
    }
    let (exit, code, hint) = classed(error);
    let (hint, message) = (told(hint), format!("{error:#}"));
    match output {
        Output::Json => {
            let body = json!({"error": {"code": code, "message": message, "hint": hint}});
            eprintln!("{body}");
        }
        Output::Text => {
            let look = terminal::stderr_look();
            // People see from the message that it is about their command line.
            let code = if exit == Exit::Usage { String::new() } else { format!(" ({code})") };
            let (first, rest) = message.split_at(message.find('\n').unwrap_or(message.len()));
            let shown = |head: &str, tone: Tone, text: &str| {
                let text = look.folded(&format!("{head} {text}"));
                eprintln!("{}{}", look.paint(tone, head), text.strip_prefix(head).unwrap_or(&text));
            };
            shown("error:", Tone::Bad, &format!("{first}{code}{rest}"));
            if !hint.is_empty() {
                shown("hint:", Tone::Good, &hint);
            }
        }
    }
    exit
}

/// Whether a conversation can go on after it: the daemon or we refused one request.
pub fn is_passing(error: &anyhow::Error) -> bool {
    let ours = |problem: &Problem| matches!(problem.exit, Exit::Usage | Exit::Refused);
    matches!(error.downcast_ref(), Some(Error::Refused(_))) || error.downcast_ref().is_some_and(ours)
}

/// The same error, with what to do about it where the daemon is not of this machine's data folder.
pub fn of_elsewhere(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<Error>() {
        Some(known) => {
            let (exit, code, hint) = of_client(known, Place::Elsewhere);
            Problem { exit, code: code.into(), message: format!("{error:#}"), hint }.into()
        }
        None => error,
    }
}

/// The code of an error, as programs are told it.
pub fn code(error: &anyhow::Error) -> String {
    classed(error).1
}

fn classed(error: &anyhow::Error) -> (Exit, String, String) {
    if let Some(problem) = error.downcast_ref::<Problem>() {
        return (problem.exit, problem.code.clone().into_owned(), problem.hint.clone());
    }
    if let Some(known) = error.downcast_ref::<Error>() {
        return of_client(known, Place::Here);
    }
    let system = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
    let (code, hint) = hint::of_system(system.map_or(io::ErrorKind::Other, io::Error::kind));
    (Exit::Failed, code.into(), hint.into())
}

fn of_client(error: &Error, place: Place) -> (Exit, String, String) {
    match error {
        Error::Refused(problem) => {
            (Exit::Refused, problem.code.clone(), hint::of_refusal(&problem.code, &problem.hint, place))
        }
        Error::Unreachable { .. } | Error::Strange { .. } => {
            (Exit::NoDaemon, "unreachable".into(), hint::of_silence(place).into())
        }
        Error::Unlike { fault, .. } => {
            let code = match fault {
                Fault::NoTls => "no_tls",
                Fault::NoHttp => "no_http",
                _ => "bad_certificate",
            };
            (Exit::NoDaemon, code.into(), hint::of_fault(*fault).into())
        }
    }
}

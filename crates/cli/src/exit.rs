//! How the program ends: documented exit codes, and errors as people and programs read them.

use std::{io, process::ExitCode};

use serde_json::json;

use crate::terminal::{self, Output};
use tenure_client::print::Tone;

/// Shown in `--help`; scripts rely on it.
pub const CODES: &str = "\
Exit codes:
    0  it went well
    1  the turn failed, was canceled, expired or was interrupted; or a check or start failed
    2  the command line or the configuration is wrong
    3  the daemon cannot be reached or started
    4  the daemon refused the request; the message names the code
    5  the data folder is damaged: found by `store check`, or left by `store repair`;
       or the session that was read is, and not all of it could be shown
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
    code: &'static str,
    message: String,
    hint: String,
}

impl Problem {
    /// The command line or the configuration is wrong.
    pub fn usage(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Usage, code: "usage", message: message.into(), hint: hint.into() }
    }

    /// No daemon can be reached or started.
    pub fn no_daemon(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::NoDaemon, code: "no_daemon", message: message.into(), hint: hint.into() }
    }

    /// Not all of what was asked for is there any more.
    pub fn damaged(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Damaged, code: "session_damaged", message: message.into(), hint: hint.into() }
    }

    /// Something of this program did not come to a good end.
    pub fn failed(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { exit: Exit::Failed, code, message: message.into(), hint: hint.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

/// Tells what is wrong with the command line, to programs as JSON; help and the version are told as ever.
pub fn misused(error: &clap::Error) -> ExitCode {
    let for_programs = std::env::args_os().any(|argument| argument == "--json");
    if error.use_stderr() && for_programs {
        let text = error.to_string();
        let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
        let hint = "look at it without --json, or at --help";
        eprintln!("{}", json!({"error": {"code": "usage", "message": message, "hint": hint}}));
        return Exit::Usage.into();
    }
    error.exit()
}

/// Tells the error on stderr and gives its exit code.
pub fn report(error: &anyhow::Error, output: Output) -> Exit {
    // Whoever read our output has enough of it, as `head` does.
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        return Exit::Ok;
    }
    let (exit, code, hint) = classed(error);
    let message = format!("{error:#}");
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
            eprintln!("{} {first}{}{rest}", look.paint(Tone::Bad, "error:"), look.paint(Tone::Faint, &code));
            if !hint.is_empty() {
                eprintln!("{} {hint}", look.paint(Tone::Good, "hint:"));
            }
        }
    }
    exit
}

/// Whether a conversation can go on after it: the daemon or we refused one request.
pub fn is_passing(error: &anyhow::Error) -> bool {
    let refused = matches!(error.downcast_ref(), Some(tenure_client::Error::Refused(_)));
    refused || error.downcast_ref::<Problem>().is_some_and(|problem| problem.exit == Exit::Usage)
}

fn classed(error: &anyhow::Error) -> (Exit, String, String) {
    use tenure_client::Error;
    if let Some(problem) = error.downcast_ref::<Problem>() {
        return (problem.exit, problem.code.to_owned(), problem.hint.clone());
    }
    match error.downcast_ref::<Error>() {
        Some(refused @ Error::Refused(_)) if refused.code() == Some("unauthorized") => {
            let hint = "the token file of the data folder changed behind the daemon's back: end that daemon, then try again; \
                        for a daemon on another machine, give one of its tokens";
            (Exit::Refused, "unauthorized".into(), hint.into())
        }
        Some(refused @ Error::Refused(_)) => {
            let (code, hint) = (refused.code().unwrap_or_default(), refused.hint().unwrap_or_default());
            (Exit::Refused, code.to_owned(), hint.to_owned())
        }
        Some(Error::Unreachable { .. } | Error::Strange { .. }) => (
            Exit::NoDaemon,
            "unreachable".into(),
            "`tenure sessions` finds or starts one; daemon.log in the data folder may say what happened".into(),
        ),
        None => (Exit::Failed, "failed".into(), String::new()),
    }
}

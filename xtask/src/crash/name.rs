//! Names for instants: system call, class of file, phase of the work, last number in the log. A name means the same instant in every run; the order of a run's calls does not.

use std::{fmt, path::Path};

use serde_json::Value;

use super::tracer::Object;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// First, so that a list of names tells the story in its order.
    pub seq: u64,
    pub phase: &'static str,
    pub class: &'static str,
    pub call: &'static str,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {} · {} · seq {}", self.call, self.class, self.phase, self.seq)
    }
}

/// The folders of one run, by which files are told apart.
#[derive(Debug, Clone)]
pub struct Grounds<'a> {
    pub data: &'a Path,
    pub workspace: &'a Path,
    /// The session that only looks on.
    pub bystander: &'a str,
}

impl Grounds<'_> {
    pub fn class(&self, object: &Object) -> &'static str {
        let path = match object {
            Object::Socket => return "socket",
            Object::Pipe => return "pipe to a tool",
            Object::File(path) => path,
        };
        if path.starts_with(self.workspace) {
            return "workspace";
        }
        let Ok(path) = path.strip_prefix(self.data) else {
            return if path.extension().is_some_and(|end| end == "out") { "own messages" } else { "elsewhere" };
        };
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        match parts[..] {
            [] => "data folder",
            ["sessions"] => "sessions folder",
            ["sessions", id, ..] if id == self.bystander => "bystander",
            ["sessions", _] => "session folder",
            ["sessions", _, ref below @ ..] => session_class(below),
            ["open", ..] => "open mark",
            ["processes", ..] => "process ledger",
            [file] => folder_class(file),
            _ => "other file",
        }
    }

    /// Whether this is a file of the session under trial.
    pub fn is_in_session(&self, object: &Object) -> bool {
        let Object::File(path) = object else { return false };
        let below = path.strip_prefix(self.data.join("sessions"));
        below.is_ok_and(|below| below.iter().next().is_some_and(|id| id != self.bystander))
    }
}

fn session_class(below: &[&str]) -> &'static str {
    match below {
        ["events.ndjson"] => "log",
        ["logs", ..] => "spool",
        ["turns", ..] => "turn record",
        ["artifacts", ..] => "artifact",
        [file] if file.starts_with("session.json") || file.starts_with(".tmp-") => "snapshot",
        _ => "other file of the session",
    }
}

fn folder_class(file: &str) -> &'static str {
    let known = [
        ("keys", "keys"),
        ("index", "listing"),
        ("daemon", "daemon note"),
        ("token", "token"),
        ("lock", "lock"),
        ("always", "standing answers"),
    ];
    known.iter().find(|(start, _)| file.starts_with(start)).map_or("other file", |(_, class)| class)
}

/// How far the log of the session under trial has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub seq: u64,
    pub phase: &'static str,
}

impl Progress {
    pub const START: Progress = Progress { seq: 0, phase: "start" };

    /// After these lines of the log.
    pub fn after(self, lines: &[u8]) -> Progress {
        let events = lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        events.fold(self, |progress, event| Progress {
            seq: event["seq"].as_u64().unwrap_or(progress.seq),
            phase: phase(&event).unwrap_or(progress.phase),
        })
    }
}

/// The phase that an event begins; `None`: the one before goes on.
fn phase(event: &Value) -> Option<&'static str> {
    let tool = event["data"]["name"].as_str().unwrap_or_default();
    Some(match event["type"].as_str()? {
        "session_created" => "creation",
        "message_added" => "message",
        "turn_started" | "turn_resumed" | "tool_call_completed" => "model",
        "tool_call_started" => match tool {
            "read_file" => "read tool",
            "write_file" | "apply_patch" => "write tool",
            "verify" => "verification",
            _ => "exec tool",
        },
        "approval_requested" => "approval",
        "verification_started" => "verification",
        "turn_interrupted" => "interruption",
        "compaction_started" => "compaction",
        "turn_completed" | "turn_failed" | "turn_canceled" | "context_compacted" => "settled",
        "cancel_requested" => "cancel",
        "session_completed" => "end",
        _ => return None,
    })
}

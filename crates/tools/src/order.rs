//! What the daemon and a supervisor say to each other: one order, perhaps a stop, one report, each a JSON line. The
//! order is the gate: until it comes, the supervisor does not even know what to start.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

/// From the daemon, once the supervisor's pid is recorded. The command inherits the supervisor's environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// Tried first where it is not empty: what `command`, a shell, would only run. If it cannot be started, the shell is
    /// left to say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) without_shell: Vec<String>,
    /// Where it runs.
    pub(crate) folder: PathBuf,
    /// What marks its processes as those of this call.
    pub(crate) call_id: String,
    pub(crate) timeout_ms: u64,
    pub(crate) namespaces: bool,
    /// Variables beside those that it inherits.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) environment: BTreeMap<String, String>,
    /// Without them it has nothing to read, and prints where it complains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) streams: Option<Streams>,
}

/// Ends of pipes that the supervisor inherits, by their numbers: what the command reads from and prints to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Streams {
    pub(crate) input: i32,
    pub(crate) output: i32,
}

/// The line that ends the command and everything it started.
pub(crate) const STOP: &str = "stop\n";
/// A line of either direction longer than this is a bug.
pub(crate) const LINE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// From the supervisor, when everything it started is gone or was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) exit: Exit,
    /// What did not end, by name and pid.
    #[serde(default)]
    pub(crate) left: Vec<String>,
    /// Whether the command ran in its own pid namespace.
    #[serde(default)]
    pub(crate) namespaced: bool,
}

/// How the command came to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Exit {
    Code(i32),
    Signal(i32),
    TimedOut,
    Stopped,
    /// It never ran, or what became of it is not known.
    Failed(String),
}

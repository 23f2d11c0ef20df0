//! Acts on a workspace: the registry, the built-in tools and the processes they start. It never decides whether a call may run.

mod apply_patch;
mod change;
mod changed_meanwhile;
mod classify;
mod command;
mod config;
mod diagram;
mod edit_file;
mod encoding;
mod fetch_url;
pub mod foreign;
mod git_state;
mod git_status;
mod ledger;
mod nearest;
mod order;
mod output;
mod patch;
mod picture;
mod plain;
mod process;
mod program;
mod read_file;
mod registry;
mod replace;
mod repo_map;
mod repo_tree;
mod restore;
mod search;
mod seed;
mod service;
mod shell;
mod sources;
mod substitution;
mod supervisor;
mod surroundings;
mod sweep;
mod tool;
mod verify;
mod verify_plan;
mod walk;
mod workspace;
mod write_file;

pub use changed_meanwhile::{Meanwhile, changed_meanwhile};
pub use classify::classify;
pub use config::ToolsConfig;
pub use diagram::{DRAW_ARG, draw};
pub use fetch_url::{BadNetwork, Network, PrivateAddresses};
pub use registry::{BadTool, Registry, check_schema, check_text};
pub use restore::Restore;
pub use seed::find_context;
pub use supervisor::{SUPERVISE_ARG, supervise};
pub use surroundings::Surroundings;
pub use sweep::sweep_leftovers;
pub use tool::{Blobs, CallContext, Invoked, OutputSink, Tool};
pub use verify_plan::find_verify_plan;

use std::time::Duration;

/// How long a stopped command gets to go away by itself before it is killed.
pub const STOP_GRACE: Duration = Duration::from_millis(500);
/// How long ending a call's processes may take before they are named as left.
pub const STOP_LIMIT: Duration = Duration::from_secs(10);
/// What the model is shown of one result; the rest goes to an artifact.
pub const OUTPUT_BYTES_MAX: usize = 32 * 1024;
/// What is kept and shown of one command's output; what comes after is counted and dropped.
pub const OUTPUT_KEPT_MAX: usize = 16 * 1024 * 1024;
/// Larger files are not changed by the write tools: old and new bytes are held in memory.
pub const FILE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The longest time a command may ask for.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 60);
/// In the environment of every process a tool starts: which data folder's daemon started it.
pub const MARK_VARIABLE: &str = "TENURE_MARK";
/// In the environment of every process a tool starts: for which call.
pub const CALL_VARIABLE: &str = "TENURE_CALL";

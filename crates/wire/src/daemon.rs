//! `daemon.json`: how local clients find the daemon of a data folder.

use serde::{Deserialize, Serialize};

/// Written by the daemon once it listens, and removed when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonInfo {
    pub pid: u32,
    /// When that process began, as the operating system counts it (on Linux: clock ticks after boot). A pid alone may belong to another process by now.
    pub start_time: u64,
    /// Host and port, such as `127.0.0.1:8787`.
    pub address: String,
    pub version: String,
    /// Where it speaks TLS: SHA-256 of its certificate, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

//! `[mcp_servers.NAME]` of the configuration: what is said there, what is wrong with it, and what it comes to.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use serde::Deserialize;
use serde_json::{Value, json};
use tenure_tools::{
    ToolsConfig,
    foreign::{
        CALL_TIMEOUT, Foreign, ForeignConfig, ForeignKind, Origin, START_TIMEOUT, Server, Trust, Way, check_name,
    },
};

use crate::config::{Config, Millis};

/// Where approvals, lists of tools and plugins are kept, in the data folder.
const FOLDER: &str = "foreign";

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct McpServer {
    /// the program that is the server; it speaks on its standard streams. Texts may name variables of the daemon's environment as `${VARIABLE}` or `${VARIABLE:-otherwise}`
    pub command: Option<String>,
    /// its arguments
    pub args: Vec<String>,
    /// a variable that it gets beside the scrubbed environment of all tools
    pub env: BTreeMap<String, Veiled>,
    /// the address of a server that is reached over streamable HTTP, in place of `command`
    pub url: Option<String>,
    /// a header of every request to it; never written or shown
    pub headers: BTreeMap<String, Veiled>,
    /// only these of its tools, by its own names
    pub tools: Option<Vec<String>>,
    /// not these of its tools
    pub exclude_tools: Vec<String>,
    /// what all its tools count as: `"read"` runs unasked, `"exec"` and `"network"` are asked about. Without it: `exec` for a program, `network` for an address
    pub kind: Option<Kind>,
    /// believe the server where it calls a tool read-only: such a tool runs unasked
    pub trust: bool,
    /// how long it may take to be ready
    pub start_timeout_ms: Option<Millis>,
    /// how long one call may take
    pub call_timeout_ms: Option<Millis>,
    /// `false` leaves it out
    pub enabled: Option<bool>,
}

/// A text that may be secret: not to be seen in a debug print.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Veiled(pub String);

impl std::fmt::Debug for Veiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hidden")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Read,
    Exec,
    Network,
}

impl From<Kind> for ForeignKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Read => Self::Read,
            Kind::Exec => Self::Exec,
            Kind::Network => Self::Network,
        }
    }
}

/// What of this is no server, and where it stands.
pub fn mistake(config: &Config) -> Option<(Vec<&str>, String)> {
    let told = |(name, server): (&'_ String, &McpServer)| {
        let why = check_name(name).err().or_else(|| match (&server.command, &server.url) {
            (Some(command), None) if !command.is_empty() => None,
            (None, Some(url)) if ["http://", "https://", "${"].iter().any(|begin| url.starts_with(begin)) => None,
            (None, Some(_)) => Some("its url begins with http:// or https://".to_owned()),
            _ => Some("it needs a command or a url, and not both".to_owned()),
        })?;
        Some(format!("the MCP server `{name}`: {why}"))
    };
    config.mcp_servers.iter().find_map(|entry| Some((vec!["mcp_servers", entry.0.as_str()], told(entry)?)))
}

/// The servers that are switched on.
pub fn servers(config: &Config) -> Vec<Server> {
    let on = config.mcp_servers.iter().filter(|(_, server)| server.enabled != Some(false));
    on.filter_map(|(name, server)| of(name, server)).collect()
}

fn of(name: &str, said: &McpServer) -> Option<Server> {
    let open = |named: &BTreeMap<String, Veiled>| {
        named.iter().map(|(name, Veiled(value))| (name.clone(), value.clone())).collect::<BTreeMap<_, _>>()
    };
    let way = match (&said.command, &said.url) {
        (Some(command), _) => Way::Stdio { command: command.clone(), args: said.args.clone(), env: open(&said.env) },
        (None, url) => Way::Http { url: url.clone()?, headers: open(&said.headers) },
    };
    Some(Server {
        tools: said.tools.clone(),
        exclude_tools: said.exclude_tools.clone(),
        kind: said.kind.map(Into::into),
        trust: if said.trust { Trust::Annotations } else { Trust::No },
        start_timeout: said.start_timeout_ms.map_or(START_TIMEOUT, |Millis(time)| time),
        call_timeout: said.call_timeout_ms.map_or(CALL_TIMEOUT, |Millis(time)| time),
        ..Server::new(name, Origin::User, way)
    })
}

/// What the file says of servers, without what may be secret.
pub fn shown(config: &Config) -> Value {
    let one = |server: &McpServer| {
        json!({
            "command": server.command,
            "args": server.args,
            "env": server.env.keys().collect::<Vec<_>>(),
            "url": server.url,
            "headers": server.headers.keys().collect::<Vec<_>>(),
            "enabled": server.enabled.unwrap_or(true),
        })
    };
    config
        .mcp_servers
        .iter()
        .map(|(name, server)| (name.clone(), one(server)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Foreign tools of a data folder, with these servers of the user's. Nothing is started.
pub fn tools(data: &Path, servers: Vec<Server>, tools: &ToolsConfig) -> Arc<Foreign> {
    Foreign::new(ForeignConfig::new(servers, data.join(FOLDER)), tools)
}

/// What servers are given that must never be written or shown.
pub fn secrets(servers: &[Server]) -> Vec<(String, String)> {
    let variables = ForeignConfig::new(vec![], "").variables;
    servers.iter().flat_map(|server| server.secrets(&variables)).collect()
}

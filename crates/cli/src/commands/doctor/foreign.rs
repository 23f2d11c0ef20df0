//! MCP servers of the configuration: each is started and asked for its tools, then ended.

use std::path::Path;

use tenure_tools::ToolsConfig;

use super::{Check, ok, wrong};
use crate::{commands::serve, config, foreign};

/// None where none is configured.
pub async fn checks(data: &Path) -> Vec<Check> {
    let Ok(config) = config::read(data) else { return vec![] };
    let servers = foreign::servers(&config);
    if servers.is_empty() {
        return vec![];
    }
    // Away from the records of a daemon that may be running.
    let (Ok(away), Ok(supervisor)) = (tempfile::tempdir(), serve::supervisor()) else { return vec![] };
    let tools = ToolsConfig::new(supervisor, away.path().join("processes"), away.path().to_string_lossy());
    let checked = foreign::tools(away.path(), servers, &tools);
    let folder = std::env::current_dir().unwrap_or_else(|_| away.path().to_owned());
    let found = checked.check(&folder).await;
    checked.shutdown().await;
    let told = |(name, found): (String, Result<usize, String>)| {
        let name = format!("mcp {name}");
        match found {
            Ok(count) => ok(name, format!("{count} tools")),
            Err(why) => wrong(name, why, "mend [mcp_servers] in config.toml, or switch it off with enabled = false"),
        }
    };
    found.into_iter().map(told).collect()
}

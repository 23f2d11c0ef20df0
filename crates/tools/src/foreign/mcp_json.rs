//! Reads a workspace's `.mcp.json`, in the form that other agent programs know. What is in it is somebody else's word:
//! it is read within bounds, never followed out of the workspace, and nothing of it is started here.

use std::{collections::BTreeMap, io::Read as _};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::server::{Origin, Server, Way};
use crate::workspace::Workspace;

pub(crate) const FILE: &str = ".mcp.json";
const BYTES_MAX: usize = 256 * 1024;
/// Servers that one workspace may name.
const SERVERS_MAX: usize = 32;
/// How long a server's name may be; it is part of every name of its tools.
pub(crate) const NAME_BYTES_MAX: usize = 32;

/// What a file named, and what in it could not be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) servers: Vec<Server>,
    pub(crate) problems: Vec<String>,
}

/// Other programs put more into an entry; that is passed over.
#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    r#type: Option<String>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    disabled: bool,
}

/// The servers that a workspace names; none where it has no such file.
pub(crate) fn read(workspace: &Workspace) -> Read {
    let opened = workspace.inside(FILE).and_then(|path| workspace.open_file(&path));
    let file = match opened {
        Ok(Some(file)) => file,
        Ok(None) => return Read::default(),
        Err(why) => return Read { servers: vec![], problems: vec![format!("{FILE}: {why}")] },
    };
    let mut text = vec![];
    if let Err(error) = file.take(BYTES_MAX as u64 + 1).read_to_end(&mut text) {
        return Read { servers: vec![], problems: vec![format!("{FILE}: {error}")] };
    }
    parse(&text)
}

/// The servers of such a file's text, in the order of their names.
pub(crate) fn parse(text: &[u8]) -> Read {
    let refused = |why: String| Read { servers: vec![], problems: vec![format!("{FILE}: {why}")] };
    if text.len() > BYTES_MAX {
        return refused(format!("it is longer than {BYTES_MAX} bytes"));
    }
    let mut file: Map<String, Value> = match serde_json::from_slice(text) {
        Ok(file) => file,
        Err(error) => return refused(error.to_string()),
    };
    let servers = match file.remove("mcpServers") {
        None => Map::new(),
        Some(Value::Object(servers)) => servers,
        Some(_) => return refused("mcpServers is no object".into()),
    };
    // In the order of names, however they were written.
    let servers: BTreeMap<String, Value> = servers.into_iter().collect();
    let mut read = Read::default();
    if servers.len() > SERVERS_MAX {
        read.problems.push(format!("{FILE}: only the first {SERVERS_MAX} servers are taken"));
    }
    for (name, entry) in servers.into_iter().take(SERVERS_MAX) {
        match server(&name, entry) {
            Ok(server) => read.servers.extend(server),
            Err(why) => read.problems.push(format!("{FILE}: the server {name:?}: {why}")),
        }
    }
    read
}

/// `None`: it is switched off.
fn server(name: &str, entry: Value) -> Result<Option<Server>, String> {
    check_name(name)?;
    let entry: Entry = serde_json::from_value(entry).map_err(|error| error.to_string())?;
    let way = match (entry.command, entry.url, entry.r#type.as_deref()) {
        _ if entry.disabled => return Ok(None),
        (_, _, Some("sse")) => {
            return Err("the old SSE transport is not spoken here; use its streamable HTTP address".into());
        }
        (Some(command), None, _) if !command.is_empty() => Way::Stdio { command, args: entry.args, env: entry.env },
        (None, Some(url), _) if url.starts_with("http://") || url.starts_with("https://") => {
            Way::Http { url, headers: entry.headers }
        }
        (None, Some(_), _) => return Err("its url begins with http:// or https://".into()),
        _ => return Err("it needs a command or a url, and not both".into()),
    };
    if let Way::Stdio { command, args, env } = &way {
        let all = std::iter::once(command).chain(args).chain(env.keys()).chain(env.values());
        if all.into_iter().any(|text| text.contains('\0'))
            || env.keys().any(|name| name.is_empty() || name.contains('='))
        {
            return Err("a command, its arguments and variables hold no zero bytes, and names of variables no =".into());
        }
    }
    Ok(Some(Server::new(name, Origin::Workspace, way)))
}

/// Whether something may be called so: it becomes a part of tools' names.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits) && !name.contains("__") {
        true => Ok(()),
        false => Err(format!("a name has up to {NAME_BYTES_MAX} letters, digits, - and single _")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_both_kinds_are_read_and_bad_ones_named() {
        let text = r#"{"mcpServers": {
            "b": {"type": "http", "url": "https://x.example/mcp", "headers": {"Authorization": "Bearer ${T}"}},
            "a": {"command": "npx", "args": ["-y", "pkg"], "env": {"K": "v"}, "autoApprove": ["x"]},
            "off": {"command": "x", "disabled": true},
            "both": {"command": "x", "url": "http://x"}, "none": {}, "old": {"type": "sse", "url": "http://x"},
            "a__b": {"command": "x"}, "bad": {"command": 5}, "ftp": {"url": "ftp://x"}, "zero": {"command": "a\u0000"}
        }, "other": 1}"#;
        let read = parse(text.as_bytes());
        let names: Vec<&str> = read.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(
            read.servers[0].way,
            Way::Stdio {
                command: "npx".into(),
                args: vec!["-y".into(), "pkg".into()],
                env: BTreeMap::from([("K".into(), "v".into())])
            }
        );
        assert_eq!(read.problems.len(), 7, "{:?}", read.problems);
    }

    #[test]
    fn what_is_no_such_file_is_a_problem_and_nothing_else() {
        for text in ["", "[]", "{", "{\"mcpServers\": []}", "\u{0}"] {
            let read = parse(text.as_bytes());
            assert_eq!((read.servers.len(), read.problems.len()), (0, 1), "{text:?}");
        }
        assert_eq!(parse(b"{}"), Read::default());
        assert_eq!(parse(&vec![b' '; BYTES_MAX + 1]).problems.len(), 1);
    }
}

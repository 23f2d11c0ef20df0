//! What an MCP server is to this program: how it is reached, what of it is wanted, and how far it is believed. It starts
//! nothing.

use std::{collections::BTreeMap, time::Duration};

use tenure_core::{
    redact::{Secrets, is_secret_name},
    tool::ToolKind,
};

/// How long a server gets to be ready, unless the user says otherwise. Some are downloaded first.
pub const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long one call may take, unless the user says otherwise.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// An MCP server as somebody named it. Texts may name variables of the environment: `${NAME}` or `${NAME:-otherwise}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    pub name: String,
    pub origin: Origin,
    pub way: Way,
    /// Only these of its tools, by its own names; `None` means all.
    pub tools: Option<Vec<String>>,
    pub exclude_tools: Vec<String>,
    /// What all its tools count as.
    pub kind: Option<ForeignKind>,
    pub trust: Trust,
    pub start_timeout: Duration,
    pub call_timeout: Duration,
}

/// Who named it, and so whether it is started unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user's own configuration.
    User,
    /// The workspace's `.mcp.json`: a command that nobody has approved yet.
    Workspace,
}

/// How it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    Stdio { command: String, args: Vec<String>, env: BTreeMap<String, String> },
    Http { url: String, headers: BTreeMap<String, String> },
}

/// Whether what a server says of its own tools is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    No,
    /// A tool that it calls read-only is one.
    Annotations,
}

/// What foreign tools can count as. Not `write`: those calls are prepared file by file, which no server can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForeignKind {
    Read,
    Exec,
    Network,
}

impl From<ForeignKind> for ToolKind {
    fn from(kind: ForeignKind) -> Self {
        match kind {
            ForeignKind::Read => ToolKind::Read,
            ForeignKind::Exec => ToolKind::Exec,
            ForeignKind::Network => ToolKind::Network,
        }
    }
}

impl Server {
    /// With the usual limits, and nothing believed.
    pub fn new(name: impl Into<String>, origin: Origin, way: Way) -> Self {
        Self {
            name: name.into(),
            origin,
            way,
            tools: None,
            exclude_tools: vec![],
            kind: None,
            trust: Trust::No,
            start_timeout: START_TIMEOUT,
            call_timeout: CALL_TIMEOUT,
        }
    }

    pub(crate) fn source(&self) -> String {
        format!("mcp:{}", self.name)
    }

    /// What its tools count as where nothing better is known: what starts a program is `exec`, what goes out `network`.
    pub(crate) fn usual_kind(&self) -> ToolKind {
        match (self.kind, &self.way) {
            (Some(kind), _) => kind.into(),
            (None, Way::Stdio { .. }) => ToolKind::Exec,
            (None, Way::Http { .. }) => ToolKind::Network,
        }
    }

    /// What one of its tools counts as.
    pub(crate) fn kind_of(&self, read_only: bool) -> ToolKind {
        match self.kind {
            None if read_only && self.trust == Trust::Annotations => ToolKind::Read,
            _ => self.usual_kind(),
        }
    }

    pub(crate) fn wants(&self, tool: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == tool);
        self.tools.as_deref().is_none_or(named) && !named(&self.exclude_tools)
    }

    /// Tells what it is from all others: the same command in two places of the configuration is the same server.
    pub(crate) fn identity(&self) -> String {
        blake3::hash(format!("{:?}", self.way).as_bytes()).to_hex().to_string()
    }

    /// What a person is asked about: the exact command or address, what it is given, and a digest of the values that are
    /// not shown because they may be secret.
    pub(crate) fn text(&self) -> String {
        let (first, named, what) = match &self.way {
            Way::Stdio { command, args, env } => (
                std::iter::once(command).chain(args).map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
                env,
                "env",
            ),
            Way::Http { url, headers } => (url.clone(), headers, "headers"),
        };
        if named.is_empty() {
            return first;
        }
        // A value that only names a variable shows which.
        let entry = |(name, value): (&String, &String)| match value.contains("${") {
            true => format!("{name}={value}"),
            false => name.clone(),
        };
        let entries: Vec<String> = named.iter().map(entry).collect();
        let digest = blake3::hash(format!("{named:?}").as_bytes()).to_hex();
        format!("{first}\n{what}: {} ({})", entries.join(", "), &digest[..16])
    }

    /// The way with every variable put in.
    pub(crate) fn resolved(&self, variables: &BTreeMap<String, String>) -> Result<Way, String> {
        let put_in = |text: &String| expand(text, variables).map_err(|why| format!("{}: {why}", self.name));
        let all = |named: &BTreeMap<String, String>| {
            named.iter().map(|(name, value)| Ok((name.clone(), put_in(value)?))).collect::<Result<_, String>>()
        };
        Ok(match &self.way {
            Way::Stdio { command, args, env } => Way::Stdio {
                command: put_in(command)?,
                args: args.iter().map(put_in).collect::<Result<_, _>>()?,
                env: all(env)?,
            },
            Way::Http { url, headers } => Way::Http { url: put_in(url)?, headers: all(headers)? },
        })
    }

    /// What it is given and nobody else may see: all headers, and variables whose names look secret or whose values come
    /// from elsewhere.
    pub fn secrets(&self, variables: &BTreeMap<String, String>) -> Vec<(String, String)> {
        let is_header = matches!(self.way, Way::Http { .. });
        let (Way::Stdio { env: named, .. } | Way::Http { headers: named, .. }) = &self.way;
        let secret = named.iter().filter(|(name, value)| is_header || is_secret_name(name) || value.contains("${"));
        secret
            .filter_map(|(name, value)| {
                let value = expand(value, variables).ok()?;
                // `Bearer …`: the word before it is no secret, and the rest may show up alone.
                let value = value.rsplit_once(' ').map_or(value.clone(), |(_, last)| last.to_owned());
                Some((format!("mcp.{}.{name}", self.name), value))
            })
            .collect()
    }

    pub(crate) fn known_secrets(&self, variables: &BTreeMap<String, String>) -> Secrets {
        Secrets::new(self.secrets(variables))
    }
}

fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+:,./=-${}".contains(&byte);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Puts variables in: `${NAME}`, or `${NAME:-otherwise}` for one that may be missing.
pub(crate) fn expand(text: &str, variables: &BTreeMap<String, String>) -> Result<String, String> {
    let mut whole = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (inside, behind) = after.split_once('}').ok_or("a ${ without its }")?;
        let (name, otherwise) = match inside.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (inside, None),
        };
        let value = variables.get(name).map(String::as_str).or(otherwise);
        whole.push_str(before);
        whole.push_str(value.ok_or_else(|| format!("the environment has no variable {name}"))?);
        rest = behind;
    }
    whole.push_str(rest);
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stdio(args: &[&str], env: &[(&str, &str)]) -> Server {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let way = Way::Stdio { command: "npx".into(), args, env: env.iter().map(owned).collect() };
        Server::new("docs", Origin::Workspace, way)
    }

    #[test]
    fn variables_are_put_in() {
        let variables = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expected) in [
            ("plain $A {A}", Ok("plain $A {A}")),
            ("${A}${A}-", Ok("11-")),
            ("${B:-two}/${A:-x}", Ok("two/1")),
            ("${B:-}", Ok("")),
            ("${B}", Err("the environment has no variable B")),
            ("${A", Err("a ${ without its }")),
        ] {
            assert_eq!(expand(text, &variables), expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn what_is_asked_about_shows_all_but_values_and_changes_with_them() {
        let server = stdio(&["-y", "a b"], &[("KEY", "hush"), ("USER", "${USER}")]);
        let text = server.text();
        assert!(text.starts_with("npx -y 'a b'\nenv: KEY, USER=${USER} ("), "{text}");
        assert!(!text.contains("hush"));
        assert_ne!(text, stdio(&["-y", "a b"], &[("KEY", "other"), ("USER", "${USER}")]).text());
        assert_eq!(stdio(&["x"], &[]).text(), "npx x");
    }

    #[test]
    fn only_the_users_word_makes_a_tool_a_read() {
        let mut server = stdio(&[], &[]);
        assert_eq!(server.kind_of(true), ToolKind::Exec);
        server.trust = Trust::Annotations;
        assert_eq!((server.kind_of(true), server.kind_of(false)), (ToolKind::Read, ToolKind::Exec));
        server.kind = Some(ForeignKind::Network);
        assert_eq!(server.kind_of(true), ToolKind::Network);
        server.way = Way::Http { url: "http://x".into(), headers: BTreeMap::new() };
        server.kind = None;
        assert_eq!((server.kind_of(true), server.kind_of(false)), (ToolKind::Read, ToolKind::Network));
    }

    #[test]
    fn headers_and_keys_are_secrets() {
        let variables = BTreeMap::from([("T".to_owned(), "tok-12345678".to_owned())]);
        let headers = BTreeMap::from([("Authorization".to_owned(), "Bearer ${T}".to_owned())]);
        let server = Server::new("web", Origin::User, Way::Http { url: "http://x".into(), headers });
        assert_eq!(server.secrets(&variables), [("mcp.web.Authorization".to_owned(), "tok-12345678".to_owned())]);
        let server = stdio(&[], &[("API_KEY", "k-123456789"), ("LEVEL", "debug-all"), ("X", "${T}")]);
        let names: Vec<String> = server.secrets(&variables).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["mcp.docs.API_KEY", "mcp.docs.X"]);
    }
}

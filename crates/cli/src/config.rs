//! `config.toml` of the data folder. What is misspelt or out of range is refused with file and line, never passed over.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use tenure_core::{policy::Resume, redact::SECRET_BYTES_MIN};

use crate::exit::Problem;

/// Shown by `tenure serve --help`.
pub const HELP: &str = r#"Configuration: config.toml in the data folder. Flags win over the environment
(TENURE_LISTEN, TENURE_DEFAULT_MODEL, TENURE_DURABILITY), which wins over the file.
All keys and their defaults:

    listen = "127.0.0.1:8787"
    default_model = "scripted"
    durability = "power"            # or "process": survives kill -9, not a power cut
    verify_commands = ["make test"] # run unasked after writes [default: as the workspace says, asked]
    idle_evict_ms = 30000           # idle sessions leave the memory after this long
    secret_variables = []           # environment variables kept secret beside those named ...KEY, ...TOKEN and the like

    [log]                           # where to, if not to stderr; it begins anew before it grows too large
    file = "/path/to/daemon.log"
    bytes_max = 4194304
    keep = 3                        # how many old ones stay, as daemon.log.1 and so on

    [recovery]
    resume = "safe"                 # or "ask", "always": what becomes of a turn that a crash cut

    [secrets]                       # values that are never written or shown: NAME = "value", 8 bytes or more

    [limits]
    connections_max = 4096
    body_bytes_max = 1048576
    attachment_bytes_max = 10485760
    mailbox_max = 256               # commands that may wait for one session
    stop_grace_ms = 5000            # what requests under way get when the daemon stops"#;

pub const FILE: &str = "config.toml";

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub listen: Option<SocketAddr>,
    pub default_model: Option<String>,
    pub durability: Option<Durability>,
    pub verify_commands: Option<Vec<String>>,
    #[serde(rename = "idle_evict_ms", deserialize_with = "millis")]
    pub idle_evict: Option<Duration>,
    pub secret_variables: Vec<String>,
    pub secrets: BTreeMap<String, Hidden>,
    pub log: Log,
    pub recovery: Recovery,
    pub limits: Limits,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    pub file: Option<PathBuf>,
    pub bytes_max: Option<Positive>,
    pub keep: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Recovery {
    pub resume: Option<Resume>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    pub connections_max: Option<Positive>,
    pub body_bytes_max: Option<Positive>,
    pub attachment_bytes_max: Option<Positive>,
    pub mailbox_max: Option<Positive>,
    #[serde(rename = "stop_grace_ms", deserialize_with = "millis")]
    pub stop_grace: Option<Duration>,
}

/// What an acknowledged event survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A power cut
    Power,
    /// kill -9, but not a power cut
    Process,
}

/// A value that is not to be seen, not even in a debug print.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Hidden(pub String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hidden")
    }
}

impl TryFrom<String> for Hidden {
    type Error = String;

    fn try_from(value: String) -> Result<Self, String> {
        match value.len() >= SECRET_BYTES_MIN {
            true => Ok(Self(value)),
            false => {
                Err(format!("a secret has at least {SECRET_BYTES_MIN} bytes: shorter ones are too common in texts"))
            }
        }
    }
}

/// A bound of nothing would refuse everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "usize")]
pub struct Positive(pub usize);

impl TryFrom<usize> for Positive {
    type Error = &'static str;

    fn try_from(value: usize) -> Result<Self, Self::Error> {
        if value == 0 { Err("expected a number above 0") } else { Ok(Positive(value)) }
    }
}

fn millis<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    u64::deserialize(from).map(Duration::from_millis).map(Some)
}

/// Reads the folder's configuration; none at all is fine.
pub fn read(data: &Path) -> anyhow::Result<Config> {
    let path = data.join(FILE);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(parse(&path, &text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Config::default()),
        Err(error) => {
            Err(Problem::usage(format!("cannot read {}: {error}", path.display()), "mend or remove it").into())
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Config, Problem> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
        let what = error.message().trim().replace('\n', " ");
        Problem::usage(format!("{}:{line}: {what}", path.display()), "`tenure serve --help` lists all keys")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Config, String> {
        parse(Path::new("/d/config.toml"), text).map_err(|problem| problem.to_string())
    }

    #[test]
    fn what_the_help_shows_is_accepted() {
        let sample: String = HELP
            .lines()
            .skip_while(|line| !line.contains("listen ="))
            .fold(String::new(), |all, line| all + line.trim_start() + "\n");
        let config = parsed(&sample).unwrap();
        assert_eq!(config.listen, Some("127.0.0.1:8787".parse().unwrap()));
        assert_eq!(config.durability, Some(Durability::Power));
        assert_eq!(config.idle_evict, Some(Duration::from_secs(30)));
        assert_eq!(config.recovery.resume, Some(Resume::Safe));
        assert_eq!(config.limits.connections_max, Some(Positive(4096)));
        assert_eq!(config.verify_commands, Some(vec!["make test".into()]));
    }

    #[test]
    fn mistakes_are_named_with_file_and_line() {
        for (text, place, what) in [
            ("listen = 5", "/d/config.toml:1: ", "socket address"),
            ("listen = \"here\"", "/d/config.toml:1: ", "socket address"),
            ("\n\nlisten_ = \"127.0.0.1:1\"", "/d/config.toml:3: ", "unknown field `listen_`"),
            ("[limits]\nbody_bytes_max = 0", "/d/config.toml:2: ", "above 0"),
            ("[limits]\n\nbody = 1", "/d/config.toml:3: ", "unknown field `body`"),
            ("[secrets]\nDOOR = \"short\"", "/d/config.toml:2: ", "at least 8 bytes"),
            ("durability = \"disk\"", "/d/config.toml:1: ", "unknown variant `disk`"),
            ("idle_evict_ms = -1", "/d/config.toml:1: ", "-1"),
            ("x = ", "/d/config.toml:1: ", ""),
        ] {
            let message = parsed(text).unwrap_err();
            assert!(message.starts_with(place) && message.contains(what), "{text}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}

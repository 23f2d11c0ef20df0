//! `config.toml` of the data folder. What is misspelt or out of range is refused with file and line, never passed over.

#[cfg(test)]
mod reference;

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;
use serde_json::Value;
use tenure_core::{
    bundle::{BUNDLE_TOKENS_MAX, BundlePlan},
    policy::Resume,
    redact::SECRET_BYTES_MIN,
};
use tenure_engine::EngineConfig;
use tenure_models::catalog::{CatalogConfig, ModelConfig, ProviderConfig};
use tenure_tools::{BadNetwork, PrivateAddresses};

use crate::{
    address, data,
    exit::Problem,
    foreign::{self, McpServer},
    hint, models,
};

/// Shown by `tenure serve --help`. Lines with `#` before a key show what may be said where nothing is said by default.
pub const HELP: &str = r#"Configuration: config.toml in the data folder. Flags win over the
environment (TENURE_LISTEN, TENURE_DEFAULT_MODEL, TENURE_DURABILITY), which
wins over the file. All keys; those without a # before them show their
defaults, the others are examples:

    listen = "127.0.0.1:8787"
    #default_model = "anthropic/claude-opus-5-5"  # or whose key is there
    durability = "power"       # "process" survives kill -9, no power cut
    #verify_commands = ["make test"]  # run unasked after writes
    idle_evict_ms = 30000      # idle sessions leave the memory
    secret_variables = []      # beside those named ...KEY, ...TOKEN etc.

    [log]                      # to stderr, unless a file is named
    #file = "/path/to/daemon.log"
    bytes_max = 4194304        # then it begins anew
    keep = 3                   # old ones: daemon.log.1 and so on

    [context]                  # what a first turn is told of its workspace
    git = true                 # branch, head, changed files
    map_tokens = 2000          # the most important symbols; 0 for none
    chunk_tokens = 4000        # pieces of files that fit the task
    wait_ms = 2000             # what takes longer is left out

    [recovery]                 # of a turn that a crash cut
    resume = "safe"            # or "ask", "always"

    [secrets]                  # never written or shown; 8 bytes or more
    #NAME = "the secret itself"

    #[providers.box]           # beside those built in: `tenure models`
    #base_url = "http://127.0.0.1:9000/v1"
    #key_variable = "BOX_KEY"  # the environment holds the key

    #[models."box/some-model"] # what is known of a model
    #window = 32768
    #tool_mode = "schema"      # its own tool calls do not work

    #[aliases]                 # names of your own for models
    #small = "box/some-model"

    [tools]
    fetch_private = false      # true, or ["127.0.0.1", "10.0.0.0/8"]

    #[mcp_servers.docs]        # tools of an MCP server: mcp__docs__...
    #command = "npx"           # or url = "https://..." with headers
    #args = ["-y", "some-mcp-server"]
    #env = { DOCS_KEY = "${DOCS_KEY}" }

    [remote]
    allow = false              # other addresses; needs TLS or a proxy
    names = []                 # host names, beside those of loopback
    #behind_proxy = "name.example"    # it speaks TLS for the daemon

    [tls]
    on = false                 # makes a certificate, unless one is given:
    #cert = "/path/cert.pem"
    #key = "/path/key.pem"

    [limits]
    connections_max = 4096
    connections_per_address_max = 3072
    streams_max = 2048         # event streams at one time
    body_bytes_max = 1048576
    attachment_bytes_max = 10485760
    import_bytes_max = 1073741824
    import_bytes_per_second_min = 4096
    imports_max = 2
    header_bytes_max = 32768
    headers_max = 64
    header_read_ms = 10000     # for the head of a request
    body_read_ms = 30000
    idle_ms = 75000            # a connection without a request
    write_stall_ms = 60000     # a client that takes nothing
    requests_per_second_max = 20000   # of one token, over time
    requests_burst_max = 20000        # of one token, at once
    failures_per_minute_max = 120     # of one address, told each
    tokens_max = 128
    logins_max = 64            # browsers that are logged in
    login_ms = 43200000        # how long one stays so
    mailbox_max = 256          # commands that wait for one session
    stop_grace_ms = 5000       # for requests when the daemon stops"#;

pub const FILE: &str = "config.toml";

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// where `tenure serve` listens; a loopback address, port 0 takes any free one. A daemon that a command starts in the background always takes a free port
    #[serde(deserialize_with = "address::read")]
    #[cfg_attr(test, schemars(with = "String"))]
    pub listen: Option<SocketAddr>,
    /// the model of sessions that name none, as `provider/model` or an alias. Without it: the alias `default`, which is a model of the first of Anthropic, OpenAI and Google whose key is there; without any key `scripted`, which says what it is and echoes
    pub default_model: Option<String>,
    /// what an acknowledged event survives: `"power"` a power cut, `"process"` only `kill -9`
    pub durability: Option<Durability>,
    /// commands that verify a workspace after writes; they run unasked. A session's own come first; where neither are given, those of `AGENTS.md` or `make test` are taken, and asked about
    pub verify_commands: Option<Vec<String>>,
    /// an idle session leaves the memory after this long; nothing is lost
    #[serde(rename = "idle_evict_ms", deserialize_with = "millis")]
    #[cfg_attr(test, schemars(with = "u64"))]
    pub idle_evict: Option<Duration>,
    /// names of environment variables whose values are kept secret, beside those whose names look secret (`…KEY`, `…TOKEN`, `…SECRET`, `…PASSWORD` and the like); tools do not get them in their environment
    pub secret_variables: Vec<String>,
    /// a value of at least 8 bytes that is never written or shown: `${secret:NAME}` stands for it
    pub secrets: BTreeMap<String, Hidden>,
    /// where models come from: those built in, changed, and others; see [models.md](models.md)
    pub providers: BTreeMap<String, ProviderConfig>,
    /// what is known of a model, named `provider/model`; it goes over what is built in
    pub models: BTreeMap<String, ModelConfig>,
    /// another name for a model, which works wherever one is named. `small`, `default` and `premium` are there where a vendor's key is
    pub aliases: BTreeMap<String, String>,
    /// an MCP server whose tools every session is offered, named `mcp__NAME__tool`; see [plugins.md](plugins.md)
    pub mcp_servers: BTreeMap<String, McpServer>,
    pub log: Log,
    pub context: Context,
    pub recovery: Recovery,
    pub tools: Tools,
    pub remote: Remote,
    pub tls: Tls,
    pub limits: Limits,
}

impl Config {
    /// What it says of models.
    pub fn catalog(&self) -> CatalogConfig {
        CatalogConfig { providers: self.providers.clone(), models: self.models.clone(), aliases: self.aliases.clone() }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// where the log goes instead of stderr; it begins anew before it grows too large, and on SIGHUP
    pub file: Option<PathBuf>,
    /// bytes of the log before it is put aside as `….1`
    pub bytes_max: Option<Positive>,
    /// how many that were put aside are kept
    pub keep: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Context {
    /// whether a session's first turn is told the workspace's branch, head and changed files
    pub git: Option<bool>,
    /// tokens of the map of the sources that it is told; 0 for none. A session sets its own with `preferences.context`
    pub map_tokens: Option<usize>,
    /// tokens of the pieces of files that fit its task; 0 for none
    pub chunk_tokens: Option<usize>,
    /// how long gathering them may take; what is not ready by then is left out, and said so
    pub wait_ms: Option<u64>,
}

impl Context {
    /// Puts what the file says over the defaults.
    pub fn lay_over(&self, plan: &mut BundlePlan) {
        plan.git = self.git.unwrap_or(plan.git);
        plan.map_tokens = self.map_tokens.unwrap_or(plan.map_tokens).min(BUNDLE_TOKENS_MAX);
        plan.chunk_tokens = self.chunk_tokens.unwrap_or(plan.chunk_tokens).min(BUNDLE_TOKENS_MAX);
        plan.wait_ms = self.wait_ms.unwrap_or(plan.wait_ms).min(BUNDLE_WAIT_MS_MAX);
    }
}

/// A turn does not wait longer for what it can also ask for.
const BUNDLE_WAIT_MS_MAX: u64 = 60_000;

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Recovery {
    /// what becomes of a turn that a crash cut, for new sessions: `"ask"` it waits for `tenure session resume`; `"safe"` it goes on unless a call's outcome is unknown; `"always"` it goes on
    #[cfg_attr(test, schemars(with = "String"))]
    pub resume: Option<Resume>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    /// whether `fetch_url` may speak to addresses that are not public (this machine, private networks): `true` for all of them, or a list of addresses and networks such as `["127.0.0.1", "10.0.0.0/8"]`
    #[cfg_attr(test, schemars(with = "bool"))]
    pub fetch_private: FetchPrivate,
}

/// What `fetch_url` may reach that is not public.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "FetchPrivateForm")]
pub struct FetchPrivate(pub PrivateAddresses);

impl FetchPrivate {
    pub fn shown(&self) -> Value {
        match &self.0 {
            PrivateAddresses::Refused => false.into(),
            PrivateAddresses::Allowed => true.into(),
            PrivateAddresses::Only(networks) => networks.iter().map(ToString::to_string).collect(),
        }
    }
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected true, false or a list of addresses and networks")]
enum FetchPrivateForm {
    All(bool),
    Only(Vec<String>),
}

impl TryFrom<FetchPrivateForm> for FetchPrivate {
    type Error = BadNetwork;

    fn try_from(form: FetchPrivateForm) -> Result<Self, BadNetwork> {
        Ok(Self(match form {
            FetchPrivateForm::All(false) => PrivateAddresses::Refused,
            FetchPrivateForm::All(true) => PrivateAddresses::Allowed,
            FetchPrivateForm::Only(networks) => {
                PrivateAddresses::Only(networks.iter().map(|network| network.parse()).collect::<Result<_, _>>()?)
            }
        }))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Remote {
    /// whether `listen` may be an address that others can reach; needs `tls` or `remote.behind_proxy`, see [security.md](security.md)
    pub allow: bool,
    /// host names under which the daemon may be reached, beside those of loopback
    pub names: Vec<String>,
    /// the host name of a proxy that speaks TLS for the daemon
    pub behind_proxy: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// speak TLS, with a certificate of the daemon's own making unless the next two are given
    pub on: bool,
    /// PEM file of a certificate with its chain
    pub cert: Option<PathBuf>,
    /// PEM file of its key
    pub key: Option<PathBuf>,
}

/// One row for each limit: its key, what it may be, and where it holds.
macro_rules! limits {
    ($($(#[$doc:meta])* $key:ident: $kind:ident => $($place:ident).+;)*) => {
        #[derive(Debug, Clone, Default, PartialEq, Deserialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(default, deny_unknown_fields)]
        pub struct Limits {
            $($(#[$doc])* pub $key: Option<$kind>,)*
        }

        impl Limits {
            /// Puts what the file says over the defaults.
            pub fn lay_over(self, server: &mut tenure_server::Limits, engine: &mut EngineConfig) {
                let places = Places { server, engine };
                $(if let Some(said) = self.$key {
                    places.$($place).+ = said.0;
                })*
            }

            /// Every limit by its name in the file, and what it comes to.
            pub fn shown(server: &mut tenure_server::Limits, engine: &mut EngineConfig) -> Vec<(&'static str, Value)> {
                let places = Places { server, engine };
                vec![$((concat!("limits.", stringify!($key)), $kind(places.$($place).+).shown()),)*]
            }
        }
    };
}

struct Places<'a> {
    server: &'a mut tenure_server::Limits,
    engine: &'a mut EngineConfig,
}

limits! {
    /// connections at one time; one more is answered `too_many_connections` and closed
    connections_max: Positive => server.connections_max;
    /// the same for one address, or one IPv6 network (/64)
    connections_per_address_max: Positive => server.connections_per_address_max;
    /// event streams at one time; one more gets 429 `too_many_streams`
    streams_max: Positive => server.streams_max;
    /// bytes of a request's body; more gets 413
    body_bytes_max: Positive => server.body_bytes_max;
    /// bytes of one attachment
    attachment_bytes_max: Positive => server.attachment_bytes_max;
    /// bytes of an imported session, packed and unpacked
    import_bytes_max: Positive => server.import_bytes_max;
    /// an import that comes slower than this gets 408 `body_timeout` when `body_read_ms` are used up; pauses within that time are fine
    import_bytes_per_second_min: Positive => server.import_bytes_per_second_min;
    /// imports at one time; one more gets 429 `too_many_imports`
    imports_max: Positive => server.imports_max;
    /// bytes of a request's head; more gets 431 `head_too_large`
    header_bytes_max: Positive => server.header_bytes_max;
    /// headers of a request; more gets the same
    headers_max: Few => server.headers_max;
    /// from the first byte of a request to the end of its head, then 408 `head_timeout`; also for the TLS handshake
    header_read_ms: Millis => server.header_read;
    /// for a request's body, then 408 `body_timeout`; an import may take longer, see `limits.import_bytes_per_second_min`
    body_read_ms: Millis => server.body_read;
    /// a connection without a request is closed after this long
    idle_ms: Millis => server.idle;
    /// a client that takes nothing of what is sent to it is cut
    write_stall_ms: Millis => server.write_stall;
    /// requests of one token, over time; more gets 429 `too_fast` with `Retry-After`. The default is above what one machine answers: lower it where others hold tokens
    requests_per_second_max: Positive => server.requests_per_second_max;
    /// the same at once, after a pause
    requests_burst_max: Positive => server.requests_burst_max;
    /// requests of one address without a valid token that are told so each; then 429 `too_many_failures`. Valid ones are never held up by it
    failures_per_minute_max: Positive => server.failures_per_minute_max;
    /// named tokens
    tokens_max: Positive => server.tokens_max;
    /// browsers that are logged in; one more pushes out the oldest
    logins_max: Positive => server.logins_max;
    /// how long a browser stays logged in
    login_ms: Millis => server.login_time;
    /// commands that may wait for one session; one more is refused
    mailbox_max: Positive => engine.mailbox_max;
    /// what requests under way get when the daemon stops
    stop_grace_ms: Grace => server.stop_grace;
}

/// What an acknowledged event survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// A power cut
    Power,
    /// kill -9, but not a power cut
    Process,
}

/// A value that is not to be seen, not even in a debug print.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "usize")]
pub struct Positive(pub usize);

impl TryFrom<usize> for Positive {
    type Error = &'static str;

    fn try_from(value: usize) -> Result<Self, Self::Error> {
        match value {
            0 => Err("expected a number above 0"),
            // What is counted is also held room for somewhere.
            _ if value > NUMBER_MAX => Err(TOO_LARGE),
            _ => Ok(Positive(value)),
        }
    }
}

/// The largest number that a limit may be.
const NUMBER_MAX: usize = 1 << 40;
const TOO_LARGE: &str = "expected a number up to 1099511627776";

/// A count that is small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "usize")]
pub struct Few(pub usize);

impl TryFrom<usize> for Few {
    type Error = &'static str;

    fn try_from(value: usize) -> Result<Self, Self::Error> {
        if (1..=10_000).contains(&value) { Ok(Few(value)) } else { Err("expected a number from 1 to 10000") }
    }
}

impl Few {
    fn shown(self) -> Value {
        self.0.into()
    }
}

/// A wait of nothing would cut everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "u64")]
pub struct Millis(pub Duration);

impl TryFrom<u64> for Millis {
    type Error = &'static str;

    fn try_from(ms: u64) -> Result<Self, Self::Error> {
        match Grace::try_from(ms)? {
            Grace(Duration::ZERO) => Err("expected a number above 0"),
            Grace(time) => Ok(Millis(time)),
        }
    }
}

/// A wait that may be nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "u64")]
pub struct Grace(pub Duration);

impl TryFrom<u64> for Grace {
    type Error = &'static str;

    fn try_from(ms: u64) -> Result<Self, Self::Error> {
        match ms > NUMBER_MAX as u64 {
            true => Err(TOO_LARGE),
            false => Ok(Grace(Duration::from_millis(ms))),
        }
    }
}

impl Positive {
    fn shown(self) -> Value {
        self.0.into()
    }
}

impl Millis {
    fn shown(self) -> Value {
        shown_ms(self.0)
    }
}

impl Grace {
    fn shown(self) -> Value {
        shown_ms(self.0)
    }
}

pub fn shown_ms(time: Duration) -> Value {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).into()
}

fn millis<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    Grace::deserialize(from).map(|Grace(time)| Some(time))
}

/// The most that a file of settings can come to.
const BYTES_MAX: u64 = 16 << 20;

/// Reads the folder's configuration; none at all is fine.
pub fn read(folder: &Path) -> anyhow::Result<Config> {
    let path = folder.join(FILE);
    let read = data::read_plain(&path, BYTES_MAX);
    let text = read.and_then(|bytes| bytes.map(String::from_utf8).transpose().map_err(io::Error::other));
    match text {
        Ok(Some(text)) => Ok(parse(&path, &text)?),
        Ok(None) => Ok(Config::default()),
        Err(error) => {
            let hint = match error.kind() {
                io::ErrorKind::PermissionDenied => hint::of_system(error.kind()).1,
                _ => "mend or remove it",
            };
            Err(Problem::usage(format!("cannot read {}: {error}", path.display()), hint).into())
        }
    }
}

fn parse(path: &Path, text: &str) -> Result<Config, Problem> {
    let mistake = |at: usize, what: &str| {
        let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
        let what = what.trim().replace('\n', " ");
        Problem::usage(format!("{}:{line}: {what}", path.display()), "`tenure serve --help` lists all keys")
    };
    let config: Config =
        toml::from_str(text).map_err(|error| mistake(error.span().map_or(0, |span| span.start), error.message()))?;
    match models::mistake(&config).or_else(|| foreign::mistake(&config)) {
        Some((keys, what)) => Err(mistake(place(text, &keys), &what)),
        None => Ok(config),
    }
}

/// Where a key stands in the text; the beginning, where it does not.
fn place(text: &str, keys: &[&str]) -> usize {
    let Ok(document) = toml::de::DeTable::parse(text) else { return 0 };
    let (mut table, mut at) = (Some(document.get_ref()), 0);
    for key in keys {
        let Some((found, value)) = table.and_then(|table| table.iter().find(|(name, _)| name.get_ref() == key)) else {
            break;
        };
        (table, at) = (value.get_ref().as_table(), found.span().start);
    }
    at
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::{
        args::{Cli, Command},
        commands::serve,
    };

    fn parsed(text: &str) -> Result<Config, String> {
        parse(Path::new("/d/config.toml"), text).map_err(|problem| problem.to_string())
    }

    /// The sample of the help; with its examples, or as it is.
    fn sample(with_examples: bool) -> String {
        let keys = HELP.lines().skip_while(|line| !line.contains("listen =")).map(str::trim_start);
        let line = |line: &str| if with_examples { line.trim_start_matches('#').to_owned() } else { line.to_owned() };
        keys.fold(String::new(), |all, key| all + &line(key) + "\n")
    }

    #[test]
    fn what_the_help_shows_is_accepted() {
        let config = parsed(&sample(true)).unwrap();
        assert_eq!(config.listen, Some("127.0.0.1:8787".parse().unwrap()));
        assert_eq!(config.tls.cert, Some("/path/cert.pem".into()));
        assert_eq!(config.verify_commands, Some(vec!["make test".into()]));
        assert_eq!(config.secrets.len(), 1);
        assert_eq!(config.aliases["small"], "box/some-model");
        assert_eq!(config.models["box/some-model"].window, Some(32_768));
    }

    #[test]
    fn what_the_help_calls_defaults_are_the_defaults() {
        let Command::Serve(bare) = Cli::try_parse_from(["tenure", "serve"]).unwrap().command else { unreachable!() };
        let shown = |config| serve::shown(&bare, config, &|_| None).unwrap();
        assert_eq!(shown(parsed(&sample(false)).unwrap()), shown(Config::default()));
        // Every key is there, and every one that has a default says it.
        for (name, default) in shown(Config::default()) {
            let key = name.rsplit_once('.').map_or(name, |(_, key)| key);
            let is_said = |text: &str| text.lines().any(|line| line.starts_with(&format!("{key} = ")));
            // What a user names, and what depends on keys, has no default of its own.
            let is_table = ["secrets", "providers", "models", "aliases", "mcp_servers"].contains(&name);
            let has_default = !default.is_null() && !is_table && name != "default_model";
            assert!(is_table || is_said(&sample(true)), "{name} is missing");
            assert_eq!(is_said(&sample(false)), has_default, "{name} = {default}");
        }
    }

    /// What is counted is held room for, and what is waited for is added to clocks.
    #[test]
    fn huge_limits_are_refused() {
        for limit in ["imports_max", "streams_max", "mailbox_max", "import_bytes_max", "idle_ms", "stop_grace_ms"] {
            for value in [(1_u64 << 40) + 1, i64::MAX as u64] {
                let message = parsed(&format!("[limits]\n{limit} = {value}")).unwrap_err();
                assert!(message.contains("expected a number up to"), "{limit}: {message}");
            }
            parsed(&format!("[limits]\n{limit} = {}", 1_u64 << 40)).unwrap();
        }
        assert!(parsed("[limits]\nheaders_max = 10001").is_err());
        assert!(parsed("idle_evict_ms = 9000000000000000").is_err());
    }

    #[test]
    fn mistakes_are_named_with_file_and_line() {
        for (text, place, what) in [
            ("listen = 5", "/d/config.toml:1: ", "expected a string"),
            ("listen = \"here\"", "/d/config.toml:1: ", "socket address"),
            ("\n\nlisten_ = \"127.0.0.1:1\"", "/d/config.toml:3: ", "unknown field `listen_`"),
            ("[limits]\nbody_bytes_max = 0", "/d/config.toml:2: ", "above 0"),
            ("[limits]\nidle_ms = 0", "/d/config.toml:2: ", "above 0"),
            ("[tls]\non = 1", "/d/config.toml:2: ", "boolean"),
            ("[remote]\nhost = \"x\"", "/d/config.toml:2: ", "unknown field `host`"),
            ("[limits]\n\nbody = 1", "/d/config.toml:3: ", "unknown field `body`"),
            ("[secrets]\nDOOR = \"short\"", "/d/config.toml:2: ", "at least 8 bytes"),
            ("durability = \"disk\"", "/d/config.toml:1: ", "unknown variant `disk`"),
            ("idle_evict_ms = -1", "/d/config.toml:1: ", "-1"),
            ("x = ", "/d/config.toml:1: ", ""),
            ("[providers.openai]\nurl = \"x\"", "/d/config.toml:2: ", "unknown field `url`"),
            ("[providers.openai]\nwire = \"soap\"", "/d/config.toml:2: ", "unknown variant `soap`"),
            ("\n[providers.box]\nkey = \"x\"", "/d/config.toml:2: ", "base_url is missing"),
            ("[providers.box]\nbase_url = \"http://x\"\nproxy = \"x\"", "/d/config.toml:1: ", "a proxy is an address"),
            ("[providers]\nopenai.base_url = \"ftp://x\"", "/d/config.toml:2: ", "begins with http"),
            ("[providers.\"a b\"]\nbase_url = \"http://x\"", "/d/config.toml:1: ", "letters, digits"),
            ("[models.\"openai/x\"]\nwindow = -1", "/d/config.toml:2: ", "-1"),
            ("[models.\"nobody/x\"]\nwindow = 1", "/d/config.toml:1: ", "the provider has to exist"),
            ("[models]\n\n\"openai/x\".prices = { input = -1, output = 1 }", "/d/config.toml:3: ", "a price is"),
            (
                "[models.\"openai/x\"]\nprices = { input = 1, output = 1, cache_raed = 1 }",
                "/d/config.toml:2: ",
                "unknown field `cache_raed`",
            ),
            ("[aliases]\nsmall = \"ollama/x\"\nbig = \"gpt\"", "/d/config.toml:3: ", "`gpt` is no model"),
            ("[aliases]\n\"a/b\" = \"ollama/x\"", "/d/config.toml:2: ", "without a /"),
            ("[mcp_servers.a]\nurl = \"x\"", "/d/config.toml:1: ", "begins with http"),
            ("\n[mcp_servers.a]\nargs = []", "/d/config.toml:2: ", "needs a command or a url"),
            ("[mcp_servers.a__b]\ncommand = \"x\"", "/d/config.toml:1: ", "letters, digits"),
            ("[mcp_servers.a]\ncommand = \"x\"\nkind = \"write\"", "/d/config.toml:3: ", "unknown variant `write`"),
            ("durability = \"power\"\ndefault_model = \"gpt\"", "/d/config.toml:2: ", "no model named `gpt`"),
        ] {
            let message = parsed(text).unwrap_err();
            assert!(message.starts_with(place) && message.contains(what), "{text}: {message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}

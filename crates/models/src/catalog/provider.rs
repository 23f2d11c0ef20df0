//! Where models come from: the vendors that are built in, and those of the user's config.

use std::{collections::BTreeMap, sync::Arc};

use reqwest::header::{HeaderName, HeaderValue};
use serde::Deserialize;
use tenure_core::{
    model::Fault,
    redact::{Secrets, is_secret_name},
};

use super::Mistake;
use crate::{
    Patience,
    entry::PartKind,
    vendor::{Endpoint, Wire, is_http_proxy},
};

/// What a user says of a provider; what is left out is as it was.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ProviderConfig {
    /// the format it speaks: `"anthropic"`, `"chat"` (OpenAI Chat Completions and what imitates it), `"responses"` (OpenAI) or `"gemini"`
    pub wire: Option<Wire>,
    /// where it is reached
    pub base_url: Option<String>,
    /// the key itself; better is the environment
    pub key: Option<String>,
    /// the environment variable that holds the key
    pub key_variable: Option<String>,
    /// headers that are sent with every request
    pub headers: BTreeMap<String, String>,
    /// an HTTP proxy on the way to it; without it those of the environment hold
    pub proxy: Option<String>,
}

/// Keys and headers are not to be seen, not even in a debug print.
impl std::fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProviderConfig")
            .field("wire", &self.wire)
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}

/// A provider as it is built in.
struct BuiltIn {
    name: &'static str,
    wire: Wire,
    base_url: &'static str,
    /// What is put behind an address that a variable gives.
    version: &'static str,
    url_variable: Option<&'static str>,
    /// The port of an address that a variable gives as a bare host; only such a variable may.
    bare_port: Option<u16>,
    key_variables: &'static [&'static str],
    takes: &'static [PartKind],
    aliases: &'static [(&'static str, &'static str)],
}

const ALL_PARTS: &[PartKind] = &[PartKind::Image, PartKind::Audio, PartKind::File];
const SEEN_PARTS: &[PartKind] = &[PartKind::Image, PartKind::File];

/// The order decides whose models stand for `default` and the like.
const BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        name: "anthropic",
        wire: Wire::Anthropic,
        base_url: "https://api.anthropic.com",
        version: "",
        url_variable: Some("ANTHROPIC_BASE_URL"),
        bare_port: None,
        key_variables: &["ANTHROPIC_API_KEY"],
        takes: SEEN_PARTS,
        aliases: super::known::ANTHROPIC_ALIASES,
    },
    BuiltIn {
        name: "openai",
        wire: Wire::Responses,
        base_url: OPENAI_URL,
        version: "",
        url_variable: Some("OPENAI_BASE_URL"),
        bare_port: None,
        key_variables: &["OPENAI_API_KEY"],
        takes: SEEN_PARTS,
        aliases: super::known::OPENAI_ALIASES,
    },
    BuiltIn {
        name: "google",
        wire: Wire::Gemini,
        base_url: "https://generativelanguage.googleapis.com/v1beta",
        version: "/v1beta",
        url_variable: Some("GOOGLE_GEMINI_BASE_URL"),
        bare_port: None,
        key_variables: &["GEMINI_API_KEY", "GOOGLE_API_KEY"],
        takes: ALL_PARTS,
        aliases: super::known::GOOGLE_ALIASES,
    },
    BuiltIn {
        name: "openrouter",
        wire: Wire::Chat,
        base_url: "https://openrouter.ai/api/v1",
        version: "",
        url_variable: None,
        bare_port: None,
        key_variables: &["OPENROUTER_API_KEY"],
        takes: SEEN_PARTS,
        aliases: &[],
    },
    BuiltIn {
        name: "ollama",
        wire: Wire::Chat,
        base_url: "http://127.0.0.1:11434/v1",
        version: "/v1",
        url_variable: Some("OLLAMA_HOST"),
        bare_port: Some(11434),
        key_variables: &[],
        takes: &[PartKind::Image],
        aliases: &[],
    },
    BuiltIn {
        name: "llamacpp",
        wire: Wire::Chat,
        base_url: "http://127.0.0.1:8080/v1",
        version: "",
        url_variable: None,
        bare_port: None,
        key_variables: &[],
        takes: &[PartKind::Image],
        aliases: &[],
    },
    BuiltIn {
        name: "vllm",
        wire: Wire::Chat,
        base_url: "http://127.0.0.1:8000/v1",
        version: "",
        url_variable: None,
        bare_port: None,
        key_variables: &[],
        takes: &[PartKind::Image],
        aliases: &[],
    },
];

const OPENAI_URL: &str = "https://api.openai.com/v1";

/// Where models come from.
#[derive(Debug, Clone)]
pub struct Provider {
    wire: Wire,
    endpoint: Arc<Endpoint>,
    /// At its built-in address a vendor lets nobody in without a key; and who names a variable for it means it.
    needs_key: bool,
    takes: Vec<PartKind>,
    aliases: &'static [(&'static str, &'static str)],
}

/// All providers, by name.
pub(super) fn all(
    mut said: BTreeMap<String, ProviderConfig>,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, Provider>, Mistake> {
    let mut all = BTreeMap::new();
    for built_in in BUILT_IN {
        let config = said.remove(built_in.name).unwrap_or_default();
        all.insert(built_in.name.to_owned(), built_in.provider(config, variable)?);
    }
    for (name, config) in said {
        let provider = own(&name, config, variable)?;
        all.insert(name, provider);
    }
    Ok(all)
}

/// The names of those that are built in, the first choice first.
pub(super) fn built_in() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|one| one.name)
}

/// Whether a provider is a server that runs models itself: built in, and not a vendor, who wants a key.
pub fn runs_models(name: &str) -> bool {
    BUILT_IN.iter().any(|one| one.name == name && one.key_variables.is_empty())
}

impl BuiltIn {
    fn provider(
        &self,
        config: ProviderConfig,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Provider, Mistake> {
        let from_variable = self.url_variable.and_then(|name| Some((name, set(variable, name)?)));
        let wire = config.wire.unwrap_or(self.wire);
        let place = |said_by| Place { provider: self.name, said_by, wire };
        let (url_variable, base_url) = match (config.base_url.as_deref(), from_variable) {
            (Some(said), _) => (None, place("base_url").checked(said)?),
            (None, Some((name, given))) => {
                let bare = place(name).bare(&given)?;
                (Some(name), place(name).checked(&self.with_version(bare))?)
            }
            (None, None) => (None, self.base_url.to_owned()),
        };
        let moved = base_url.trim_end_matches('/') != self.base_url;
        // Who imitates OpenAI seldom knows more than Chat Completions.
        let wire = if self.base_url == OPENAI_URL && moved { Wire::Chat } else { self.wire };
        let key_variable =
            config.key_variable.clone().or_else(|| self.key_variables.first().map(|name| (*name).to_owned()));
        let says_variable = config.key_variable.is_some();
        let variables: Vec<&str> = match config.key_variable.as_deref() {
            Some(name) => vec![name],
            None => self.key_variables.to_vec(),
        };
        let (key, key_from) = key_of(config.key.as_deref(), &variables, variable);
        let endpoint = Endpoint {
            provider: self.name.to_owned(),
            base_url,
            url_variable: url_variable.filter(|_| moved),
            key,
            key_variable,
            key_from,
            headers: sendable(self.name, config.headers)?,
            proxy: usable(self.name, config.proxy)?,
        };
        Ok(Provider {
            wire: config.wire.unwrap_or(wire),
            endpoint: Arc::new(endpoint),
            needs_key: says_variable || (!self.key_variables.is_empty() && !moved),
            takes: self.takes.to_vec(),
            aliases: self.aliases,
        })
    }

    /// The address that a variable gives, in full.
    fn with_version(&self, given: &str) -> String {
        let url = self.bare_port.map_or_else(|| given.to_owned(), |port| with_scheme(given, port));
        match url.ends_with(self.version) {
            true => url,
            false => format!("{url}{}", self.version),
        }
    }
}

/// A provider that the config alone knows.
fn own(name: &str, config: ProviderConfig, variable: &impl Fn(&str) -> Option<String>) -> Result<Provider, Mistake> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(Mistake::of("providers", name, "a provider's name is made of letters, digits, - and _"));
    }
    let Some(base_url) = &config.base_url else {
        let what = "base_url is missing, and this provider is not one of those built in";
        return Err(Mistake::of("providers", name, what));
    };
    let needs_key = config.key_variable.is_some();
    let wire = config.wire.unwrap_or(Wire::Chat);
    let variables: Vec<&str> = config.key_variable.as_deref().into_iter().collect();
    let (key, key_from) = key_of(config.key.as_deref(), &variables, variable);
    let endpoint = Endpoint {
        provider: name.to_owned(),
        base_url: Place { provider: name, said_by: "base_url", wire }.checked(base_url)?,
        url_variable: None,
        key,
        key_variable: config.key_variable,
        key_from,
        headers: sendable(name, config.headers)?,
        proxy: usable(name, config.proxy)?,
    };
    let (takes, endpoint) = (ALL_PARTS.to_vec(), Arc::new(endpoint));
    Ok(Provider { wire, needs_key, endpoint, takes, aliases: &[] })
}

impl Provider {
    pub fn name(&self) -> &str {
        &self.endpoint.provider
    }

    pub fn wire(&self) -> Wire {
        self.wire
    }

    pub fn endpoint(&self) -> Arc<Endpoint> {
        self.endpoint.clone()
    }

    /// The variable that its key is looked for in.
    pub fn key_variable(&self) -> Option<&str> {
        self.endpoint.key_variable.as_deref()
    }

    /// The variable that gave its address, where that is not the built-in one.
    pub fn url_variable(&self) -> Option<&'static str> {
        self.endpoint.url_variable
    }

    pub fn has_key(&self) -> bool {
        self.endpoint.key.is_some()
    }

    /// What it lacks to be asked at all.
    pub fn missing(&self) -> Option<String> {
        if self.has_key() || !self.needs_key {
            return None;
        }
        let (name, variable) = (self.name(), self.endpoint.key_variable.as_deref().unwrap_or("its key"));
        Some(format!(
            "there is no key for {name}: set {variable} for the daemon, or `key` under [providers.{name}] in config.toml"
        ))
    }

    /// Whether it runs on this machine.
    pub fn is_local(&self) -> bool {
        self.endpoint.is_local()
    }

    /// Whether it is known to cost nothing. Any other server, and one that wants a key, may be a way to vendors that cost.
    pub fn is_free(&self) -> bool {
        runs_models(self.name()) && self.is_local() && !self.has_key()
    }

    /// The proxy on the way to it, as people may see it, and where it is named.
    pub fn proxy(&self, variable: impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
        self.endpoint.proxy(variable)
    }

    /// What is wrong with the proxy that these variables name for it.
    pub fn proxy_problem(&self, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
        self.endpoint.proxy_problem(variable)
    }

    /// Whether it can be asked what it has, in the way of OpenAI.
    pub fn lists(&self) -> bool {
        matches!(self.wire, Wire::Chat | Wire::Responses)
    }

    /// What must never be shown of it, by name.
    pub fn secrets(&self) -> Vec<(String, String)> {
        let Endpoint { key, headers, base_url, proxy, .. } = &*self.endpoint;
        let name = self.name().to_ascii_uppercase();
        let key = key.iter().filter(|key| !is_placeholder(key));
        let mut all: Vec<(String, String)> = key.map(|key| (format!("{name}_KEY"), key.clone())).collect();
        for (header, value) in headers.iter().filter(|(header, _)| is_secret_header(header)) {
            // Behind the word for its kind, as in `Bearer …`, stands the secret itself.
            let alone = value.split_once(' ').map_or(value.as_str(), |(_, rest)| rest);
            all.push((format!("{name}_{}", header.to_ascii_uppercase()), alone.to_owned()));
        }
        let passwords = [("URL", Some(base_url)), ("PROXY", proxy.as_ref())];
        let password = |url: &String| reqwest::Url::parse(url).ok()?.password().map(str::to_owned);
        all.extend(passwords.into_iter().filter_map(|(of, url)| Some((format!("{name}_{of}"), password(url?)?))));
        all
    }

    /// A fault without what is secret: a vendor may repeat it.
    pub fn tamed(&self, mut fault: Fault) -> Fault {
        fault.message = Secrets::with_keys([], self.secrets()).redact(&fault.message).into_owned();
        fault
    }

    pub(super) fn is_openai(&self) -> bool {
        self.endpoint.base_url.trim_end_matches('/') == OPENAI_URL
    }

    pub(super) fn patience(&self) -> Patience {
        if self.is_local() { crate::entry::LOCAL_PATIENCE } else { Patience::default() }
    }

    pub(super) fn takes(&self) -> Vec<PartKind> {
        self.takes.clone()
    }

    pub(super) fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        self.aliases
    }
}

/// What people give a server that wants no key, but something in its place. To blot such a word out would spoil texts.
fn is_placeholder(key: &str) -> bool {
    const WORDS: [&str; 10] = ["none", "null", "empty", "dummy", "fake", "test", "local", "ollama", "unused", "nokey"];
    WORDS.iter().any(|word| key.eq_ignore_ascii_case(word))
}

fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    is_secret_name(&name) || name.contains("auth") || name.contains("cookie")
}

/// The key, and the variable that gave it where the config does not.
fn key_of(
    said: Option<&str>,
    variables: &[&str],
    variable: &impl Fn(&str) -> Option<String>,
) -> (Option<String>, Option<String>) {
    let found = || variables.iter().find_map(|name| Some((set(variable, name)?, (*name).to_owned())));
    match said {
        Some(key) => (Some(trimmed(key)), None),
        None => found().unzip(),
    }
}

/// An empty variable is as good as none.
fn set(variable: &impl Fn(&str) -> Option<String>, name: &str) -> Option<String> {
    variable(name).map(|value| trimmed(&value)).filter(|value| !value.is_empty())
}

/// `OLLAMA_HOST` may be a bare host, with or without a port, and the address that a server listens on.
fn with_scheme(url: &str, port: u16) -> String {
    if url.contains("://") {
        return url.to_owned();
    }
    let usual = port.to_string();
    let (host, port) = url.rsplit_once(':').unwrap_or((url, &usual));
    let host = if host.is_empty() || host == "0.0.0.0" { "127.0.0.1" } else { host };
    format!("http://{host}:{port}")
}

/// Blanks and line ends come along when a key is copied; none has them.
fn trimmed(key: &str) -> String {
    key.trim().to_owned()
}

fn sendable(provider: &str, headers: BTreeMap<String, String>) -> Result<Vec<(String, String)>, Mistake> {
    // These say where a request goes and how long it is.
    let ours = |name: &str| {
        ["connection", "content-length", "content-type", "host", "transfer-encoding"]
            .iter()
            .any(|own| name.eq_ignore_ascii_case(own))
    };
    for (name, value) in &headers {
        let is_sendable = HeaderName::try_from(name.as_str()).is_ok() && HeaderValue::from_str(value).is_ok();
        let why = match () {
            () if ours(name) => "is set by tenure itself",
            () if !is_sendable => "cannot be sent",
            () => continue,
        };
        return Err(Mistake::of("providers", provider, format!("the header `{name}` {why}")));
    }
    Ok(headers.into_iter().collect())
}

fn usable(provider: &str, proxy: Option<String>) -> Result<Option<String>, Mistake> {
    match proxy {
        // Its password must not be shown.
        Some(proxy) if !(proxy.contains("://") && is_http_proxy(&proxy)) => {
            Err(Mistake::of("providers", provider, "a proxy is an address like http://127.0.0.1:3128"))
        }
        proxy => Ok(proxy),
    }
}

/// Where a provider's address was said, to tell mistakes in it.
struct Place<'a> {
    provider: &'a str,
    /// A key of the config or a variable.
    said_by: &'a str,
    wire: Wire,
}

/// What requests put behind an address; people copy it along.
const METHODS: [(&str, Wire); 3] =
    [("/chat/completions", Wire::Chat), ("/responses", Wire::Responses), ("/messages", Wire::Anthropic)];

impl Place<'_> {
    fn checked(&self, url: &str) -> Result<String, Mistake> {
        let parsed = reqwest::Url::parse(url).map_err(|error| self.bad(url, &error.to_string()))?;
        match parsed.scheme() {
            "http" | "https" if parsed.has_host() => {
                let bare = self.bare(url)?;
                // The others' addresses end with a version; here it is part of the path.
                let bare = if self.wire == Wire::Anthropic { bare.strip_suffix("/v1").unwrap_or(bare) } else { bare };
                Ok(bare.to_owned())
            }
            _ => Err(self.bad(url, "an address begins with http:// or https://")),
        }
    }

    /// The address without what requests put behind it.
    fn bare<'u>(&self, url: &'u str) -> Result<&'u str, Mistake> {
        let url = url.trim().trim_end_matches('/');
        let Some((end, of)) = METHODS.iter().find(|(end, _)| url.ends_with(end)) else { return Ok(url) };
        // Both of OpenAI's formats have one address.
        if (*of == Wire::Anthropic) != (self.wire == Wire::Anthropic) {
            let wire = if *of == Wire::Anthropic { "anthropic" } else { "chat" };
            return Err(self.bad(url, &format!("{end} belongs to `wire = \"{wire}\"`, and is left out of an address")));
        }
        Ok(url[..url.len() - end.len()].trim_end_matches('/'))
    }

    fn bad(&self, url: &str, why: &str) -> Mistake {
        Mistake::of("providers", self.provider, format!("{} {url}: {why}", self.said_by))
    }
}

//! One HTTP client for all vendors, made when the first one is asked: its certificates take time and memory to load.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, TryStreamExt};
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{
    Client, RequestBuilder, Response,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use tenure_core::model::{Fault, FaultKind};

use super::{Wire, fault, stream::Chunks};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// What is read of an answer that is an error.
const ERROR_BYTES_MAX: usize = 64 * 1024;
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// Where a vendor is reached, and how it knows us.
#[derive(Clone)]
pub struct Endpoint {
    /// `anthropic`, `openai` or whatever the user's config calls it.
    pub provider: String,
    pub base_url: String,
    /// The variable that gave the address, where it is not the built-in one.
    pub url_variable: Option<&'static str>,
    pub key: Option<String>,
    /// Where the key is looked for, to tell people who have none.
    pub key_variable: Option<String>,
    /// The variable that gave the key; `None` where the config did.
    pub key_from: Option<String>,
    /// Sent with every request, from the user's config.
    pub headers: Vec<(String, String)>,
    /// `None` takes the one of the environment.
    pub proxy: Option<String>,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("provider", &self.provider)
            .field("base_url", &self.base_url)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    pub(super) fn key_hint(&self) -> String {
        let provider = &self.provider;
        match (&self.key, self.key_variable.as_deref()) {
            (None, None) => format!("there is no key: set `key` under [providers.{provider}] in config.toml"),
            (None, Some(variable)) => {
                format!("there is no key: set {variable} for the daemon, or `key` under [providers.{provider}]")
            }
            (Some(_), variable) => match (&self.key_from, variable) {
                (Some(from), _) => format!("the key is the one of {from} in the daemon's environment"),
                (None, Some(variable)) => {
                    format!(
                        "the key is the one under [providers.{provider}] in config.toml, which goes before {variable}"
                    )
                }
                (None, None) => format!("the key is the one under [providers.{provider}] in config.toml"),
            },
        }
    }

    /// Asks whether the address is right, where something answered at it that is no such vendor.
    pub(super) fn doubt(&self, wire: Wire) -> String {
        let said = match self.url_variable {
            Some(variable) => variable.to_owned(),
            None => format!("`base_url` under [providers.{}]", self.provider),
        };
        let usual = match wire {
            Wire::Anthropic => None,
            Wire::Chat | Wire::Responses => Some("v1"),
            Wire::Gemini => Some("v1beta"),
        };
        let shown = self.shown_url();
        let has_version = |url: &str| {
            let last = url.rsplit('/').next().unwrap_or_default();
            last.strip_prefix('v').is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()))
        };
        match usual.filter(|_| !has_version(&shown)) {
            Some(version) => format!("is {said} right? Such an address mostly ends in /{version}: {shown}/{version}"),
            None => format!("is {said} right?"),
        }
    }

    /// How the address is changed, to tell people whose server is not there.
    pub(super) fn address_hint(&self) -> String {
        let provider = &self.provider;
        match self.url_variable {
            Some(variable) => format!("the address is that of {variable} in the daemon's environment"),
            None => format!("another address is set with `base_url` under [providers.{provider}] in config.toml"),
        }
    }

    /// The proxy on the way to it, as people may see it, and where it is named.
    pub(crate) fn proxy(&self, variable: impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
        match Way::to(self) {
            Way::Straight => None,
            Way::Proxy(proxy) => {
                Some((shown_url(&proxy), format!("`proxy` under [providers.{}] in config.toml", self.provider)))
            }
            Way::Environment => {
                let (name, proxy) = proxy_of_environment(&self.base_url, variable)?;
                Some((shown_url(&proxy), format!("{name} in the daemon's environment")))
            }
        }
    }

    /// What is wrong with the proxy that the environment names for it. A request must not go out beside it unnoticed.
    pub(crate) fn proxy_problem(&self, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
        let Way::Environment = Way::to(self) else { return None };
        let (name, proxy) = proxy_of_environment(&self.base_url, variable)?;
        if is_http_proxy(&proxy) {
            return None;
        }
        // Its password must not be shown.
        let what = match proxy.to_ascii_lowercase().starts_with("socks") {
            true => "names a SOCKS proxy, and only HTTP proxies are supported",
            false => "is no address of a proxy, like http://127.0.0.1:3128",
        };
        let provider = &self.provider;
        Some(format!(
            "{name} in the daemon's environment {what}: mend it, put {} into NO_PROXY, or set `proxy` under \
             [providers.{provider}] in config.toml",
            self.host(),
        ))
    }

    fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base_url.trim_end_matches('/'))
    }

    /// The host, for people: an address may hold a password.
    pub fn host(&self) -> String {
        let url = reqwest::Url::parse(&self.base_url).ok();
        let host = url.as_ref().and_then(|url| Some((url.host_str()?, url.port())));
        match host {
            Some((host, Some(port))) => format!("{host}:{port}"),
            Some((host, None)) => host.to_owned(),
            None => self.base_url.clone(),
        }
    }

    /// The address without what may be secret in it.
    pub fn shown_url(&self) -> String {
        shown_url(&self.base_url)
    }

    /// Whether it runs on this machine: it takes its time to load a model, and needs no proxy.
    pub fn is_local(&self) -> bool {
        let host = self.host();
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host.as_str(),
        };
        name == "localhost" || name.starts_with("127.") || name == "[::1]"
    }

    /// Whether nothing lies between us and a server on this machine.
    pub(super) fn is_next_door(&self) -> bool {
        self.is_local() && self.proxy.is_none()
    }

    fn headers(&self, wire: Wire) -> Result<HeaderMap, Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if wire == Wire::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static(ANTHROPIC_VERSION));
        }
        if let Some(key) = &self.key {
            let (name, value) = match wire {
                Wire::Anthropic => ("x-api-key", key.clone()),
                Wire::Gemini => ("x-goog-api-key", key.clone()),
                Wire::Chat | Wire::Responses => ("authorization", format!("Bearer {key}")),
            };
            let mut value = HeaderValue::from_str(&value).map_err(|_| {
                Fault::new(FaultKind::Auth, format!("the key of {} holds a byte that no key may hold", self.provider))
            })?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        for (name, value) in &self.headers {
            let unusable = || {
                Fault::new(
                    FaultKind::BadRequest,
                    format!("the header `{name}` of [providers.{}] cannot be sent", self.provider),
                )
            };
            let header = HeaderName::try_from(name.as_str()).map_err(|_| unusable())?;
            headers.insert(header, HeaderValue::from_str(value).map_err(|_| unusable())?);
        }
        Ok(headers)
    }
}

/// An address without what may be secret in it.
pub fn shown_url(base_url: &str) -> String {
    let Ok(mut url) = reqwest::Url::parse(base_url) else { return base_url.to_owned() };
    // Both only fail for addresses without a host, which are refused when a config is read.
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.set_query(None);
    url.to_string().trim_end_matches('/').to_owned()
}

/// The variable that names a proxy for this address, and what it names: by the rules that requests follow.
fn proxy_of_environment(url: &str, variable: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let first = |names: [&'static str; 2]| names.into_iter().find_map(|name| Some((name, variable(name)?)));
    let is_set = |proxy: &(&str, String)| !proxy.1.trim().is_empty();
    let own = match url.starts_with("https:") {
        true => first(["HTTPS_PROXY", "https_proxy"]),
        false => first(["HTTP_PROXY", "http_proxy"]),
    };
    let named = own.filter(is_set).or_else(|| first(["ALL_PROXY", "all_proxy"]).filter(is_set))?;
    let (_, no) = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    // Whether it is gone by at all does not hang on whether it can be used.
    let matcher = Matcher::builder().all("http://proxy.invalid").no(no).build();
    url.parse().is_ok_and(|url| matcher.intercept(&url).is_some()).then_some(named)
}

/// Whether this is the address of a proxy that can be gone by: a variable may leave `http://` out.
pub(crate) fn is_http_proxy(proxy: &str) -> bool {
    let url = match proxy.contains("://") {
        true => reqwest::Url::parse(proxy),
        false => reqwest::Url::parse(&format!("http://{proxy}")),
    };
    url.is_ok_and(|url| url.has_host() && ["http", "https"].contains(&url.scheme()))
}

/// The HTTP clients, one for each way out.
#[derive(Debug, Clone, Default)]
pub struct Transport {
    clients: Arc<Mutex<HashMap<Way, Client>>>,
}

/// The way to a vendor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Way {
    /// A proxy of the environment has no business between us and loopback.
    Straight,
    Environment,
    Proxy(String),
}

impl Way {
    fn to(endpoint: &Endpoint) -> Self {
        match &endpoint.proxy {
            Some(proxy) => Way::Proxy(proxy.clone()),
            None if endpoint.is_local() => Way::Straight,
            None => Way::Environment,
        }
    }
}

impl Transport {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a request and gives the bytes of its answer, or the fault that it tells.
    pub(super) async fn post(
        &self,
        endpoint: &Endpoint,
        wire: Wire,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Chunks, Fault> {
        let request = self.client(endpoint)?.post(endpoint.url(path)).headers(endpoint.headers(wire)?).body(body);
        let response = send(request, endpoint, wire).await?;
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.is_empty() && !kind.starts_with("text/event-stream") {
            let kind = kind.to_owned();
            let body = limited(response).await.unwrap_or_default();
            return Err(fault::of_body(&kind, &body, endpoint));
        }
        let endpoint = endpoint.clone();
        Ok(response.bytes_stream().map_err(move |error| fault::of_connection(&error, &endpoint)).boxed())
    }

    /// Asks for a small JSON answer.
    pub async fn get_json(&self, endpoint: &Endpoint, wire: Wire, path: &str) -> Result<serde_json::Value, Fault> {
        let request = self.client(endpoint)?.get(endpoint.url(path)).headers(endpoint.headers(wire)?);
        json(request, endpoint, wire).await
    }

    /// Sends a request whose answer is small and comes in one piece.
    pub async fn post_json(
        &self,
        endpoint: &Endpoint,
        wire: Wire,
        path: &str,
        body: &serde_json::Value,
    ) -> Result<serde_json::Value, Fault> {
        let request = self.client(endpoint)?.post(endpoint.url(path)).headers(endpoint.headers(wire)?);
        json(request.body(body.to_string()), endpoint, wire).await
    }

    fn client(&self, endpoint: &Endpoint) -> Result<Client, Fault> {
        if let Some(problem) = endpoint.proxy_problem(|name| std::env::var(name).ok()) {
            return Err(Fault::new(FaultKind::BadRequest, problem));
        }
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let way = Way::to(endpoint);
        if let Some(client) = clients.get(&way) {
            return Ok(client.clone());
        }
        let client = make(&way)?;
        clients.insert(way, client.clone());
        Ok(client)
    }
}

fn make(way: &Way) -> Result<Client, Fault> {
    // Another part of the program may have chosen already; then that choice holds.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let unusable =
        |error: reqwest::Error| Fault::new(FaultKind::BadRequest, format!("no HTTP client can be made: {error}"));
    let mut builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        // A key must not follow a redirection to elsewhere.
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")));
    match way {
        Way::Environment => {}
        Way::Straight => builder = builder.no_proxy(),
        Way::Proxy(proxy) => builder = builder.no_proxy().proxy(reqwest::Proxy::all(proxy).map_err(unusable)?),
    }
    builder.build().map_err(unusable)
}

async fn json(request: RequestBuilder, endpoint: &Endpoint, wire: Wire) -> Result<serde_json::Value, Fault> {
    let response = send(request, endpoint, wire).await?;
    let body = limited(response).await.map_err(|error| fault::of_connection(&error, endpoint))?;
    serde_json::from_slice(&body)
        .map_err(|error| Fault::new(FaultKind::Malformed, format!("{}: {error}", endpoint.host())))
}

async fn send(request: RequestBuilder, endpoint: &Endpoint, wire: Wire) -> Result<Response, Fault> {
    let response = request.send().await.map_err(|error| fault::of_connection(&error, endpoint))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (status, headers, url) = (response.status(), response.headers().clone(), response.url().clone());
    let body = limited(response).await.unwrap_or_default();
    Err(fault::of_status(status, &headers, &body, &fault::Sent { url, endpoint, wire }))
}

/// The first bytes of an answer.
async fn limited(response: Response) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        body.extend_from_slice(&chunk?);
        if body.len() > ERROR_BYTES_MAX {
            body.truncate(ERROR_BYTES_MAX);
            break;
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(base_url: &str) -> Endpoint {
        Endpoint {
            provider: "box".into(),
            base_url: base_url.into(),
            url_variable: None,
            key: None,
            key_variable: None,
            key_from: None,
            headers: vec![],
            proxy: None,
        }
    }

    #[test]
    fn a_proxy_of_the_environment_that_cannot_be_used_is_told_and_never_passed_by() {
        let problem = |name: &str, value: &str, url: &str| {
            endpoint(url).proxy_problem(|asked| (asked == name).then(|| value.to_owned()))
        };
        let far = "http://models.example/v1";
        for (name, value, told) in [
            ("HTTP_PROXY", "garbage::::", "HTTP_PROXY in the daemon's environment is no address of a proxy"),
            ("http_proxy", "ftp://me:secret@x", "http_proxy in the daemon's environment is no address of a proxy"),
            ("ALL_PROXY", "socks5://me:secret@x:1080", "ALL_PROXY in the daemon's environment names a SOCKS proxy"),
        ] {
            let problem = problem(name, value, far).unwrap_or_else(|| panic!("{value} was taken"));
            assert!(problem.starts_with(told) && !problem.contains("secret"), "{problem}");
        }
        for (name, value, url) in [
            ("HTTP_PROXY", "http://proxy.example:3128", far),
            ("HTTP_PROXY", "proxy.example:3128", far),
            ("HTTP_PROXY", "", far),
            // It is for another kind of address.
            ("HTTPS_PROXY", "garbage::::", far),
            ("ALL_PROXY", "socks5://x:1080", "http://127.0.0.1:1/v1"),
        ] {
            assert_eq!(problem(name, value, url), None, "{name}={value} {url}");
        }
        let near = [("ALL_PROXY", "socks5://x:1080"), ("NO_PROXY", "models.example")];
        let variable = |asked: &str| near.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned());
        assert_eq!(endpoint(far).proxy_problem(variable), None);
    }

    #[test]
    fn the_proxy_of_the_environment_is_found_as_requests_find_it() {
        let set = [
            ("https_proxy", "http://user:secret@one.example:1"),
            ("ALL_PROXY", "http://two.example:2"),
            ("no_proxy", "near.example, 10.0.0.0/8"),
        ];
        let variable = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let one = Some(("http://one.example:1".into(), "https_proxy in the daemon's environment".into()));
        let two = Some(("http://two.example:2".into(), "ALL_PROXY in the daemon's environment".into()));
        for (url, expected) in [
            ("https://models.example/v1", one),
            ("http://models.example/v1", two),
            ("https://a.near.example", None),
            ("https://10.1.2.3/v1", None),
            ("https://localhost/v1", None),
        ] {
            assert_eq!(endpoint(url).proxy(variable), expected, "{url}");
        }
        assert_eq!(endpoint("https://models.example").proxy(|_| None), None);
    }
}

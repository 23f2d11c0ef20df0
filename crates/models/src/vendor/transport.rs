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
            (Some(_), None) => format!("the key is the one under [providers.{provider}] in config.toml"),
            (Some(_), Some(variable)) => format!("the key is the one of {variable} or of [providers.{provider}]"),
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
    pub(super) fn proxy(&self, variable: impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
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

    /// Whether it runs on this machine: it costs nothing, takes its time to load a model, and needs no proxy.
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
    let value = |of: &Option<(&str, String)>| of.as_ref().map(|(_, value)| value.clone()).unwrap_or_default();
    let own = match url.starts_with("https:") {
        true => first(["HTTPS_PROXY", "https_proxy"]),
        false => first(["HTTP_PROXY", "http_proxy"]),
    };
    let (all, no) = (first(["ALL_PROXY", "all_proxy"]), first(["NO_PROXY", "no_proxy"]));
    let goes_by = |proxy: &Option<(&str, String)>| {
        let matcher = Matcher::builder().all(value(proxy)).no(value(&no)).build();
        url.parse().is_ok_and(|url| matcher.intercept(&url).is_some())
    };
    [own, all].into_iter().find(goes_by).flatten()
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
        let response = send(request, endpoint).await?;
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
        json(request, endpoint).await
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
        json(request.body(body.to_string()), endpoint).await
    }

    fn client(&self, endpoint: &Endpoint) -> Result<Client, Fault> {
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

async fn json(request: RequestBuilder, endpoint: &Endpoint) -> Result<serde_json::Value, Fault> {
    let response = send(request, endpoint).await?;
    let body = limited(response).await.map_err(|error| fault::of_connection(&error, endpoint))?;
    serde_json::from_slice(&body)
        .map_err(|error| Fault::new(FaultKind::Malformed, format!("{}: {error}", endpoint.host())))
}

async fn send(request: RequestBuilder, endpoint: &Endpoint) -> Result<Response, Fault> {
    let response = request.send().await.map_err(|error| fault::of_connection(&error, endpoint))?;
    if response.status().is_success() {
        return Ok(response);
    }
    let (status, headers) = (response.status(), response.headers().clone());
    let body = limited(response).await.unwrap_or_default();
    Err(fault::of_status(status, &headers, &body))
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

    #[test]
    fn the_proxy_of_the_environment_is_found_as_requests_find_it() {
        let set = [
            ("https_proxy", "http://user:secret@one.example:1"),
            ("ALL_PROXY", "http://two.example:2"),
            ("no_proxy", "near.example, 10.0.0.0/8"),
        ];
        let variable = |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let endpoint = |base_url: &str| Endpoint {
            provider: "box".into(),
            base_url: base_url.into(),
            url_variable: None,
            key: None,
            key_variable: None,
            headers: vec![],
            proxy: None,
        };
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

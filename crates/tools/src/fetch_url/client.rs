//! One GET: names resolved, addresses checked and then connected to as they were checked, redirections followed a few
//! times and each checked anew. It knows nothing of how a text is shown.

use std::{
    error::Error,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
};

use reqwest::{
    Response, StatusCode, Url,
    dns::{Addrs, Name, Resolve, Resolving},
    header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION},
    redirect::Policy,
};

use super::{
    FETCH_BYTES_MAX, FETCH_TIME_MAX, REDIRECTS_MAX,
    address::{PrivateAddresses, plain},
    page,
};

const WANTED: &str = "text/html, text/markdown, text/plain, application/json, application/xhtml+xml, */*;q=0.5";
/// A NUL byte this early marks what is no text.
const PROBE_BYTES: usize = 8 * 1024;

pub(super) struct Client {
    private: Arc<PrivateAddresses>,
    /// Made when it is first needed: its certificates take memory.
    inner: OnceLock<Result<reqwest::Client, String>>,
}

/// An answer, as far as it was read.
pub(super) struct Fetched {
    /// The last of the addresses.
    pub(super) url: Url,
    pub(super) status: StatusCode,
    pub(super) kind: String,
    charset: Option<String>,
    pub(super) body: Vec<u8>,
    pub(super) is_cut: bool,
}

impl Client {
    pub(super) fn new(private: PrivateAddresses) -> Self {
        Self { private: Arc::new(private), inner: OnceLock::new() }
    }

    pub(super) async fn fetch(&self, text: &str) -> Result<Fetched, String> {
        let mut url = Url::parse(text).map_err(|error| format!("'{text}' is no URL: {error}"))?;
        for _ in 0..=REDIRECTS_MAX {
            let response = self.get(&url).await?;
            match next(&url, &response)? {
                Some(further) => url = further,
                None => return read(url, response).await,
            }
        }
        Err(format!("it was redirected more than {REDIRECTS_MAX} times, last to {url}"))
    }

    async fn get(&self, url: &Url) -> Result<Response, String> {
        self.check(url)?;
        let client = self.inner.get_or_init(|| make(&self.private)).clone()?;
        let response = client.get(url.clone()).send().await.map_err(|error| told(url, &error))?;
        // The resolver has let no other through; this holds whatever the client does with its answer.
        match response.remote_addr() {
            Some(peer) if !self.private.may_reach(peer.ip()) => Err(refused(url, peer.ip())),
            _ => Ok(response),
        }
    }

    /// What can be said of a URL before anything is sent.
    fn check(&self, url: &Url) -> Result<(), String> {
        if !["http", "https"].contains(&url.scheme()) {
            return Err(format!("{url}: only http and https are fetched"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("a URL with a name or password in it is not fetched; leave them out".into());
        }
        let host = url.host_str().unwrap_or_default();
        // A name goes through the resolver, an address does not.
        match host.trim_start_matches('[').trim_end_matches(']').parse() {
            Ok(address) if !self.private.may_reach(address) => Err(refused(url, address)),
            _ => Ok(()),
        }
    }
}

fn make(private: &Arc<PrivateAddresses>) -> Result<reqwest::Client, String> {
    // Another part of the program may have chosen already; then that choice holds.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let headers = HeaderMap::from_iter([(ACCEPT, reqwest::header::HeaderValue::from_static(WANTED))]);
    reqwest::Client::builder()
        .user_agent(concat!("tenure/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .referer(false)
        .redirect(Policy::none())
        // Behind a proxy nobody here knows which address is spoken to.
        .no_proxy()
        .connect_timeout(FETCH_TIME_MAX)
        // A connection that is kept would be one that nobody has checked for this call.
        .pool_max_idle_per_host(0)
        .dns_resolver(Arc::new(Checked(Arc::clone(private))))
        .build()
        .map_err(|error| format!("no HTTP client can be made: {error}"))
}

/// Resolves a name and lets through only what may be reached. What it gives back is what is connected to: the name is
/// not asked for again, so it cannot change its mind.
struct Checked(Arc<PrivateAddresses>);

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let private = Arc::clone(&self.0);
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let (open, shut): (Vec<_>, Vec<_>) = found.into_iter().partition(|found| private.may_reach(found.ip()));
            match shut.first() {
                Some(shut) if open.is_empty() => Err(Shut(shut.ip()).into()),
                _ => Ok(Box::new(open.into_iter()) as Addrs),
            }
        })
    }
}

/// A name that resolves to nothing that may be reached.
#[derive(Debug, thiserror::Error)]
#[error("{0} may not be reached")]
struct Shut(IpAddr);

fn refused(url: &Url, address: IpAddr) -> String {
    let (host, address) = (url.host_str().unwrap_or_default(), plain(address));
    let leads = if host.contains(&address.to_string()) { String::new() } else { format!(" ({host})") };
    format!(
        "{address}{leads} is not a public address and is not fetched from; the user can allow it with fetch_private \
         under [tools] in config.toml"
    )
}

/// What went wrong, from the innermost cause.
fn told(url: &Url, error: &reqwest::Error) -> String {
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        if let Some(shut) = inner.downcast_ref::<Shut>() {
            return refused(url, shut.0);
        }
        cause = inner;
    }
    let host = url.host_str().unwrap_or_default();
    let proxy = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];
    let behind = proxy.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let hint = if behind { "; fetch_url goes by no proxy, since it could not tell what is behind one" } else { "" };
    format!("{host} could not be reached: {cause}{hint}")
}

/// Where it goes on, if it does.
fn next(url: &Url, response: &Response) -> Result<Option<Url>, String> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = header(response, LOCATION) else { return Ok(None) };
    url.join(&location)
        .map(Some)
        .map_err(|error| format!("it was redirected to '{location}', which is no URL: {error}"))
}

fn header(response: &Response, name: HeaderName) -> Option<String> {
    response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

async fn read(url: Url, mut response: Response) -> Result<Fetched, String> {
    let content_type = header(&response, CONTENT_TYPE).unwrap_or_default();
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if !kind.is_empty() && !is_text(&kind) {
        let size = response.content_length().map_or("of unknown size".to_owned(), |bytes| format!("of {bytes} bytes"));
        return Err(format!("{url} is {kind} {size}; only text can be fetched"));
    }
    if let Some(coding) = header(&response, CONTENT_ENCODING).filter(|coding| !coding.eq_ignore_ascii_case("identity"))
    {
        return Err(format!("{url} came packed as {coding}, which was not asked for"));
    }
    let charset = content_type.split(';').skip(1).find_map(|part| {
        let (name, value) = part.split_once('=')?;
        name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_owned())
    });
    let (status, mut body, mut is_cut) = (response.status(), vec![], false);
    while let Some(chunk) = response.chunk().await.map_err(|error| told(&url, &error))? {
        let room = FETCH_BYTES_MAX - body.len();
        body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if chunk.len() > room {
            is_cut = true;
            break;
        }
    }
    let kind = if kind.is_empty() { sniffed(&url, &body)?.to_owned() } else { kind };
    Ok(Fetched { url, status, kind, charset, body, is_cut })
}

fn is_text(kind: &str) -> bool {
    let named = ["application/json", "application/xml", "application/javascript", "application/ecmascript"];
    let more = ["application/x-javascript", "application/yaml", "application/x-yaml", "application/toml"];
    let plain = ["application/x-ndjson", "application/jsonl", "application/x-sh", "application/sql", "image/svg+xml"];
    kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || [&named[..], &more, &plain].concat().contains(&kind)
}

/// Some servers do not say what they send.
fn sniffed(url: &Url, body: &[u8]) -> Result<&'static str, String> {
    let head = &body[..body.len().min(PROBE_BYTES)];
    if head.contains(&0) {
        return Err(format!("{url} is {} bytes of no known type; only text can be fetched", body.len()));
    }
    let start = String::from_utf8_lossy(head).trim_start().to_ascii_lowercase();
    let is_page = start.starts_with("<!doctype html") || start.starts_with("<html");
    Ok(if is_page { "text/html" } else { "text/plain" })
}

impl Fetched {
    pub(super) fn text(&self) -> Result<String, String> {
        let is_page = ["text/html", "application/xhtml+xml"].contains(&self.kind.as_str());
        let named = self.charset.clone().or_else(|| is_page.then(|| page::charset(&self.body)).flatten());
        let encoding = match &named {
            None => encoding_rs::UTF_8,
            Some(label) => encoding_rs::Encoding::for_label(label.as_bytes())
                .ok_or_else(|| format!("{} is written in '{label}', which is not known here", self.url))?,
        };
        let (text, ..) = encoding.decode(&self.body);
        Ok(match is_page {
            true => page::readable(&text, &self.url),
            false => text.into_owned(),
        })
    }
}

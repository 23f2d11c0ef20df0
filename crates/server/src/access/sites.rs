//! Against pages of other sites that reach for the daemon: which names it goes by, and which pages are its own.

use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};

use crate::http::problem::Rejection;

/// Names under which a browser may rightly reach a loopback address.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// What is spoken on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

/// How the daemon is called from outside.
pub(crate) struct Sites {
    /// Accepted beside the names of loopback, without a port.
    pub(crate) names: Vec<String>,
    /// The name of a proxy that speaks TLS for the daemon.
    pub(crate) proxy: Option<String>,
    pub(crate) scheme: Scheme,
    /// The port that is really listened on.
    pub(crate) port: u16,
}

/// Where a request says that it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) host: String,
    pub(crate) scheme: Scheme,
    pub(crate) is_own_page: bool,
}

impl Sites {
    /// Comes before everything else, also before the token.
    pub(crate) fn check(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Site, Rejection> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok()).unwrap_or("");
        let only = hosts.next().is_none();
        // A request line may carry a whole address; then both count.
        let in_line = uri.authority().is_none_or(|authority| self.is_known_host(authority.as_str()));
        if !only || !in_line || !self.is_known_host(host) {
            return Err(bad_host());
        }
        let mut origins = headers.get_all(header::ORIGIN).iter().peekable();
        let said = origins.peek().is_some();
        let own = origins.all(|origin| origin.to_str().is_ok_and(|origin| self.is_own_origin(origin, host)));
        let fetched = fetched(method, headers);
        if !own || fetched == Fetched::Elsewhere {
            return Err(bad_origin());
        }
        let is_own_page = said || fetched == Fetched::OwnPage;
        Ok(Site { host: host.to_owned(), scheme: self.scheme_of(host), is_own_page })
    }

    fn is_proxy(&self, name: &str) -> bool {
        self.proxy.as_ref().is_some_and(|proxy| proxy.eq_ignore_ascii_case(name))
    }

    /// What a browser that uses this name speaks.
    fn scheme_of(&self, host: &str) -> Scheme {
        match split_port(host) {
            Some((name, _)) if self.is_proxy(name) => Scheme::Https,
            _ => self.scheme,
        }
    }

    fn is_known_host(&self, host: &str) -> bool {
        let Some((name, _)) = split_port(host) else { return false };
        let mut known = LOOPBACK.into_iter().chain(self.names.iter().map(String::as_str));
        known.any(|known| known.eq_ignore_ascii_case(name)) || self.is_proxy(name)
    }

    fn is_own_origin(&self, origin: &str, host: &str) -> bool {
        let (scheme, rest) = match (origin.strip_prefix("http://"), origin.strip_prefix("https://")) {
            (Some(rest), _) => (Scheme::Http, rest),
            (_, Some(rest)) => (Scheme::Https, rest),
            _ => return false,
        };
        let default = if scheme == Scheme::Http { 80 } else { 443 };
        let Some((name, port)) = split_port(rest) else { return false };
        let port = port.unwrap_or(default);
        if LOOPBACK.into_iter().any(|known| known.eq_ignore_ascii_case(name)) {
            return scheme == self.scheme && port == self.port;
        }
        // Any other name must be the one that was asked for.
        let asked = split_port(host).is_some_and(|(asked, asked_port)| {
            asked.eq_ignore_ascii_case(name) && asked_port.unwrap_or(default) == port
        });
        asked && self.is_known_host(rest) && scheme == self.scheme_of(rest)
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Fetched {
    /// No browser says anything about it, or a person typed the address.
    Unsaid,
    OwnPage,
    /// A page of another origin opens the daemon in a window, which changes nothing and shows that page nothing.
    Opened,
    Elsewhere,
}

/// What a browser says about where a request began. Pages cannot change it.
fn fetched(method: &Method, headers: &HeaderMap) -> Fetched {
    let is = |name: &HeaderName, value: &str| headers.get(name).is_some_and(|said| said.as_bytes() == value.as_bytes());
    match headers.get(SEC_FETCH_SITE).map(|site| site.as_bytes()) {
        None | Some(b"none") => Fetched::Unsaid,
        Some(b"same-origin") => Fetched::OwnPage,
        Some(_) => {
            let opens = is(&SEC_FETCH_MODE, "navigate") && is(&SEC_FETCH_DEST, "document");
            if opens && method == Method::GET { Fetched::Opened } else { Fetched::Elsewhere }
        }
    }
}

fn bad_host() -> Rejection {
    Rejection::new(
        StatusCode::MISDIRECTED_REQUEST,
        "bad_host",
        "the Host header does not name this daemon",
        "use 127.0.0.1 or localhost in the address, or a name that the daemon was started with",
    )
}

pub(crate) fn bad_origin() -> Rejection {
    Rejection::new(
        StatusCode::FORBIDDEN,
        "bad_origin",
        "requests from pages of another origin are refused",
        "call the API from a page that this daemon serves, or from a program",
    )
}

/// Name and port of `name`, `name:port`, `[v6]` or `[v6]:port`.
pub(crate) fn split_port(host: &str) -> Option<(&str, Option<u16>)> {
    let name_ends = if host.starts_with('[') { host.find(']')? + 1 } else { host.find(':').unwrap_or(host.len()) };
    let (name, rest) = host.split_at(name_ends);
    match rest.strip_prefix(':') {
        None if rest.is_empty() => Some((name, None)),
        None => None,
        Some(port) if !port.is_empty() && port.bytes().all(|digit| digit.is_ascii_digit()) => {
            Some((name, Some(port.parse().ok()?)))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> Sites {
        let names = vec!["tenure.example".into()];
        Sites { names, proxy: Some("proxy.example".into()), scheme: Scheme::Http, port: 8787 }
    }

    fn tls() -> Sites {
        Sites { scheme: Scheme::Https, ..plain() }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn check(sites: &Sites, method: Method, uri: &'static str, pairs: &[(&'static str, &str)]) -> Option<Site> {
        sites.check(&method, &Uri::from_static(uri), &headers(pairs)).ok()
    }

    #[test]
    fn hosts() {
        for (host, fits) in [
            ("127.0.0.1:8787", true),
            ("127.0.0.1", true),
            ("LOCALHOST:1", true),
            ("[::1]:8787", true),
            ("[::1]", true),
            ("tenure.example:443", true),
            ("Proxy.example", true),
            ("evil.example", false),
            ("localhost.evil.example:8787", false),
            ("127.0.0.1.evil.example", false),
            ("127.0.0.1:", false),
            ("127.0.0.1:x", false),
            ("127.0.0.1:99999", false),
            ("[::1]x", false),
            ("[::1", false),
            ("::1", false),
            ("user@localhost", false),
            ("", false),
        ] {
            assert_eq!(check(&plain(), Method::GET, "/", &[("host", host)]).is_some(), fits, "{host}");
        }
    }

    #[test]
    fn a_host_must_be_said_once_and_the_request_line_must_agree() {
        let fits = |uri, pairs: &[(&'static str, &str)]| check(&plain(), Method::GET, uri, pairs).is_some();
        assert!(!fits("/", &[]));
        assert!(!fits("/", &[("host", "localhost"), ("host", "localhost")]));
        assert!(!fits("http://evil.example/", &[("host", "localhost")]));
        assert!(fits("http://localhost:8787/", &[("host", "localhost")]));
    }

    #[test]
    fn origins() {
        for (host, origin, plainly, over_tls) in [
            ("localhost", "http://127.0.0.1:8787", true, false),
            ("localhost", "http://localhost:8787", true, false),
            ("localhost", "https://localhost:8787", false, true),
            ("localhost", "http://[::1]:8787", true, false),
            ("localhost", "http://localhost:8788", false, false),
            ("localhost", "http://localhost", false, false),
            ("localhost", "http://evil.example:8787", false, false),
            ("localhost", "http://tenure.example:8787", false, false),
            ("tenure.example:8787", "http://tenure.example:8787", true, false),
            ("tenure.example:8787", "https://tenure.example:8787", false, true),
            ("tenure.example:8787", "https://tenure.example", false, false),
            ("proxy.example", "https://proxy.example", true, true),
            ("proxy.example:443", "https://PROXY.example", true, true),
            ("proxy.example", "http://proxy.example", false, false),
            ("proxy.example", "https://tenure.example", false, false),
            ("localhost", "null", false, false),
            ("localhost", "", false, false),
        ] {
            let pairs = [("host", host), ("origin", origin)];
            for (sites, fits) in [(plain(), plainly), (tls(), over_tls)] {
                let found = check(&sites, Method::POST, "/", &pairs);
                assert_eq!(found.is_some_and(|site| site.is_own_page), fits, "{host} {origin} {:?}", sites.scheme);
            }
        }
    }

    #[test]
    fn what_browsers_say_about_themselves() {
        let navigates = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let frames = [("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
        for (site, mode, method, own) in [
            ("same-origin", &[][..], Method::POST, Some(true)),
            ("none", &navigates[..], Method::GET, Some(false)),
            ("cross-site", &[], Method::GET, None),
            ("same-site", &[], Method::GET, None),
            ("same-site", &navigates, Method::GET, Some(false)),
            ("cross-site", &navigates, Method::GET, Some(false)),
            ("cross-site", &navigates, Method::POST, None),
            ("cross-site", &frames, Method::GET, None),
            ("nonsense", &[], Method::GET, None),
        ] {
            let pairs: Vec<_> = [("host", "localhost"), ("sec-fetch-site", site)].iter().chain(mode).copied().collect();
            let found = check(&plain(), method.clone(), "/", &pairs).map(|site| site.is_own_page);
            assert_eq!(found, own, "{site} {method} {mode:?}");
        }
    }
}

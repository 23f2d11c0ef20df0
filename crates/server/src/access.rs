//! Who may speak to the daemon: the token, and the checks against pages of other sites that reach for loopback.

use std::hint::black_box;

use axum::http::{HeaderMap, StatusCode, Uri, header};

use crate::http::problem::Rejection;

/// Names under which a browser may rightly reach a loopback address.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

/// What the daemon accepts.
#[derive(Clone)]
pub struct Access {
    /// What a client sends as `Authorization: Bearer …`. An empty token lets nobody in.
    pub token: String,
    /// Host names accepted beside those of loopback, without a port, such as that of a named proxy.
    pub allowed_hosts: Vec<String>,
}

impl Access {
    pub fn new(token: impl Into<String>) -> Self {
        Self { token: token.into(), allowed_hosts: Vec::new() }
    }

    pub(crate) fn guard(self, port: u16) -> Guard {
        Guard { access: self, port }
    }
}

/// `Access` at the port that is really listened on.
pub(crate) struct Guard {
    access: Access,
    port: u16,
}

impl Guard {
    /// Against DNS rebinding and cross-site requests. It comes before everything else, also before the token.
    pub(crate) fn check_site(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Rejection> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts.next().and_then(|host| host.to_str().ok());
        let only = hosts.next().is_none();
        // A request line may carry a whole address; then both count.
        let in_line = uri.authority().is_none_or(|authority| self.is_known_host(authority.as_str()));
        if !only || !in_line || !host.is_some_and(|host| self.is_known_host(host)) {
            return Err(Rejection::new(
                StatusCode::MISDIRECTED_REQUEST,
                "bad_host",
                "the Host header does not name this daemon",
                "use 127.0.0.1 or localhost in the address",
            ));
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        if origins.all(|origin| origin.to_str().is_ok_and(|origin| self.is_own_origin(origin))) {
            return Ok(());
        }
        Err(Rejection::new(
            StatusCode::FORBIDDEN,
            "bad_origin",
            "requests from pages of another origin are refused",
            "call the API from a page that this daemon serves, or from a program",
        ))
    }

    pub(crate) fn check_token(&self, headers: &HeaderMap) -> Result<(), Rejection> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let sent = values.next().and_then(|value| bearer(value.as_bytes()));
        let only = values.next().is_none();
        let known = !self.access.token.is_empty();
        if only && known && sent.is_some_and(|sent| same(sent, self.access.token.as_bytes())) {
            return Ok(());
        }
        Err(Rejection::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "this request carries no valid token",
            "send 'Authorization: Bearer <token>' with the content of the file 'token' in the data folder",
        )
        .header(header::WWW_AUTHENTICATE, "Bearer"))
    }

    fn is_known_host(&self, host: &str) -> bool {
        let Some((name, _)) = split_port(host) else { return false };
        let mut allowed = LOOPBACK.into_iter().chain(self.access.allowed_hosts.iter().map(String::as_str));
        allowed.any(|known| known.eq_ignore_ascii_case(name))
    }

    fn is_own_origin(&self, origin: &str) -> bool {
        let Some((name, port)) = origin.strip_prefix("http://").and_then(split_port) else { return false };
        port.unwrap_or(80) == self.port && LOOPBACK.into_iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Name and port of `name`, `name:port`, `[v6]` or `[v6]:port`.
fn split_port(host: &str) -> Option<(&str, Option<u16>)> {
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

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Compares in a time that depends on the length alone, so that a token cannot be guessed byte by byte.
fn same(sent: &[u8], token: &[u8]) -> bool {
    if sent.len() != token.len() {
        return false;
    }
    let differing = sent.iter().zip(token).fold(0_u8, |bits, (a, b)| black_box(bits | (a ^ b)));
    differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Access { token: "secret".into(), allowed_hosts: vec!["tenure.example".into()] }.guard(8787)
    }

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        headers
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
            let result = guard().check_site(&Uri::from_static("/"), &headers(&[(header::HOST, host)]));
            assert_eq!(result.is_ok(), fits, "{host}");
        }
    }

    #[test]
    fn a_host_must_be_said_once_and_the_request_line_must_agree() {
        let check = |uri: &'static str, pairs: &[(header::HeaderName, &str)]| {
            guard().check_site(&Uri::from_static(uri), &headers(pairs)).is_ok()
        };
        let local = (header::HOST, "localhost");
        assert!(!check("/", &[]));
        assert!(!check("/", &[local.clone(), local.clone()]));
        assert!(!check("http://evil.example/", std::slice::from_ref(&local)));
        assert!(check("http://localhost:8787/", &[local]));
    }

    #[test]
    fn origins() {
        for (origin, fits) in [
            ("http://127.0.0.1:8787", true),
            ("http://localhost:8787", true),
            ("http://[::1]:8787", true),
            ("http://localhost:8788", false),
            ("http://localhost", false),
            ("https://localhost:8787", false),
            ("http://evil.example:8787", false),
            ("http://tenure.example:8787", false),
            ("null", false),
            ("", false),
        ] {
            let pairs = [(header::HOST, "localhost"), (header::ORIGIN, origin)];
            assert_eq!(guard().check_site(&Uri::from_static("/"), &headers(&pairs)).is_ok(), fits, "{origin}");
        }
    }

    #[test]
    fn tokens() {
        for (value, fits) in [
            ("Bearer secret", true),
            ("bearer secret", true),
            ("Bearer  secret ", true),
            ("Bearer secre", false),
            ("Bearer secret2", false),
            ("Bearer ", false),
            ("Bearer", false),
            ("Basic secret", false),
            ("secret", false),
        ] {
            let sent = headers(&[(header::AUTHORIZATION, value)]);
            assert_eq!(guard().check_token(&sent).is_ok(), fits, "{value}");
        }
        assert!(guard().check_token(&HeaderMap::new()).is_err());
        let twice = headers(&[(header::AUTHORIZATION, "Bearer secret"), (header::AUTHORIZATION, "Bearer x")]);
        assert!(guard().check_token(&twice).is_err());
    }

    #[test]
    fn an_empty_token_lets_nobody_in() {
        let guard = Access::new("").guard(1);
        assert!(guard.check_token(&headers(&[(header::AUTHORIZATION, "Bearer ")])).is_err());
        assert!(guard.check_token(&HeaderMap::new()).is_err());
    }
}

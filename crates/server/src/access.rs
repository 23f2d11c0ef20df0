//! Who may speak to the daemon: tokens, browsers that came by a link, and the checks against pages of other sites.

pub(crate) mod caller;
pub(crate) mod logins;
pub(crate) mod rates;
pub(crate) mod sites;
pub(crate) mod tokens;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use tokens::{
    Earlier, Forgetful, Keeper, Kept, MEND_BYTES_MAX, NamedToken, OWNER, mend_bit, mend_tokens, random_hex,
    read_tokens, sum_of,
};

use crate::{http::problem::Rejection, limits::Limits, tls::Tls};
use caller::Caller;
use logins::Logins;
use rates::{Failures, Rate};
use sites::{Scheme, Site, Sites, bad_origin};
use tokens::{Known, Tokens};

/// A clock may be set; nothing that ends at a time of day is waited for longer than this without a look.
const LOOK_MAX: Duration = Duration::from_secs(60);

/// What the daemon accepts.
#[derive(Clone)]
pub struct Access {
    /// What a client sends as `Authorization: Bearer …`. An empty token lets nobody in.
    pub token: String,
    /// Tokens to come when this one is rotated: whoever keeps secrets out of texts knows them already.
    pub spare: Vec<String>,
    pub kept: Kept,
    pub keeper: Arc<dyn Keeper>,
    /// Host names accepted beside those of loopback, without a port.
    pub allowed_hosts: Vec<String>,
    /// The host name of a proxy that speaks TLS for the daemon.
    pub proxy: Option<String>,
    /// Without it the daemon speaks plainly.
    pub tls: Option<Tls>,
}

impl Access {
    pub fn new(token: impl Into<String>) -> Self {
        Self {
            token: token.into(),
            spare: vec![],
            kept: Kept::default(),
            keeper: Arc::new(Forgetful),
            allowed_hosts: vec![],
            proxy: None,
            tls: None,
        }
    }

    pub(crate) fn guard(self, port: u16, limits: &Limits, stop: CancellationToken) -> Guard {
        let scheme = if self.tls.is_some() { Scheme::Https } else { Scheme::Http };
        Guard {
            proxied: self.proxy.is_some(),
            sites: Sites { names: self.allowed_hosts, proxy: self.proxy, scheme, port },
            tokens: Tokens::new(&self.token, self.spare, self.kept, self.keeper, limits.tokens_max, stop),
            logins: Logins::new(limits.logins_max, limits.login_time),
            failures: Failures::new(Rate::per_minute(limits.failures_per_minute_max)),
            rate: Rate::per_second(limits.requests_per_second_max, limits.requests_burst_max),
            cookie: format!("tenure_{port}"),
        }
    }
}

/// `Access` at work.
pub(crate) struct Guard {
    pub(crate) tokens: Tokens,
    pub(crate) logins: Logins,
    /// Whether a proxy tells where requests come from.
    pub(crate) proxied: bool,
    sites: Sites,
    failures: Failures,
    rate: Rate,
    /// Browsers do not tell ports apart, so that two daemons need two names.
    cookie: String,
}

impl Guard {
    pub(crate) fn check_site(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<Site, Rejection> {
        self.sites.check(method, uri, headers)
    }

    /// Who asks, and whether that is not too often.
    pub(crate) fn check_caller(
        &self,
        method: &Method,
        headers: &HeaderMap,
        site: &Site,
        address: IpAddr,
    ) -> Result<Caller, Rejection> {
        let caller = match self.caller(headers) {
            Ok(caller) => caller,
            Err(rejection) => return Err(self.failed(rejection, address)),
        };
        // Browsers send a cookie along whoever asks them to.
        let changes = !matches!(*method, Method::GET | Method::HEAD);
        if caller.via == caller::Via::Cookie && changes && !site.is_own_page {
            return Err(bad_origin());
        }
        match caller.bucket.take(self.rate, Instant::now()) {
            Ok(()) => Ok(caller),
            Err(wait) => Err(too_fast(wait)),
        }
    }

    /// The refusal of a request that showed nothing valid. One who shows something valid is let in however many fail
    /// beside it: on one machine all have the same address.
    pub(crate) fn failed(&self, rejection: Rejection, address: IpAddr) -> Rejection {
        match self.failures.note(address, Instant::now()) {
            Ok(()) => rejection,
            Err(wait) => Rejection::new(
                StatusCode::TOO_MANY_REQUESTS,
                "too_many_failures",
                "too many requests from this address carried no valid token",
                "wait, then send a valid one",
            )
            .retry_after(wait)
            .header(header::CONNECTION, "close"),
        }
    }

    /// A header counts before a cookie, and alone where it is there.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Caller, Rejection> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let Some(first) = values.next() else {
            let cookies = headers.get_all(header::COOKIE).iter().map(|value| value.as_bytes());
            let cookie = logins::cookie_named(cookies, &self.cookie);
            return cookie.and_then(|cookie| self.logins.find(cookie, Instant::now())).ok_or_else(unauthorized);
        };
        let only = values.next().is_none();
        match bearer(first.as_bytes()).filter(|_| only).map(|secret| self.tokens.find(secret, tokens::now())) {
            Some(Known::Valid(caller)) => Ok(caller),
            Some(Known::Expired) => Err(Rejection::new(
                StatusCode::UNAUTHORIZED,
                "token_expired",
                "this token's time is over",
                "make a new one with `tenure token add`",
            )
            .header(header::WWW_AUTHENTICATE, "Bearer")),
            Some(Known::Unknown) | None => Err(unauthorized()),
        }
    }

    /// The header that gives a browser its cookie, or takes it away.
    pub(crate) fn set_cookie(&self, site: &Site, value: Option<&str>) -> String {
        let age = value.map_or(0, |_| self.logins.visit_time().as_secs());
        let secure = if site.scheme == Scheme::Https { "; Secure" } else { "" };
        let value = value.unwrap_or("");
        format!("{}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}", self.cookie)
    }

    /// Ends what hangs on tokens and cookies when their time is over, until the daemon stops.
    pub(crate) async fn end_expired(&self, stop: CancellationToken) {
        loop {
            let now = tokens::now();
            let token_ends = self.tokens.end_expired(now).map(|at| at.since(now));
            let visit_ends = self.logins.end_expired(Instant::now()).map(|at| at.duration_since(Instant::now()));
            let next = [token_ends, visit_ends].into_iter().flatten().min();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.tokens.changed.notified() => {}
                // A moment later, so that what ends now has ended then.
                () = sleep_or_wait(next.map(|wait| (wait + Duration::from_millis(1)).min(LOOK_MAX))) => {}
            }
        }
    }
}

async fn sleep_or_wait(time: Option<Duration>) {
    match time {
        Some(time) => sleep(time).await,
        None => std::future::pending().await,
    }
}

pub(crate) fn unauthorized() -> Rejection {
    Rejection::new(
        StatusCode::UNAUTHORIZED,
        "unauthorized",
        "this request carries no valid token",
        "send 'Authorization: Bearer <token>' with the content of the file 'token' in the data folder",
    )
    .header(header::WWW_AUTHENTICATE, "Bearer")
}

fn too_fast(wait: Duration) -> Rejection {
    let (detail, hint) = ("this token sends more requests than it may", "send them more slowly");
    Rejection::new(StatusCode::TOO_MANY_REQUESTS, "too_fast", detail, hint).retry_after(wait)
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guard() -> Guard {
        Access::new("secret").guard(8787, &Limits::default(), CancellationToken::new())
    }

    fn headers(pairs: &[(header::HeaderName, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        headers
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
            assert_eq!(guard().caller(&sent).is_ok(), fits, "{value}");
        }
        assert!(guard().caller(&HeaderMap::new()).is_err());
        let twice = headers(&[(header::AUTHORIZATION, "Bearer secret"), (header::AUTHORIZATION, "Bearer x")]);
        assert!(guard().caller(&twice).is_err());
    }

    #[test]
    fn a_bad_header_is_not_mended_by_a_good_cookie() {
        let guard = guard();
        let by =
            guard.caller(&headers(&[(header::AUTHORIZATION, "Bearer secret")])).unwrap_or_else(|_| panic!("valid"));
        let code = guard.logins.link(&by, Instant::now()).unwrap();
        let cookie = guard.logins.exchange(&code, Instant::now()).unwrap().unwrap();
        let cookie = format!("tenure_8787={cookie}");
        assert!(guard.caller(&headers(&[(header::COOKIE, &cookie)])).is_ok());
        let both = headers(&[(header::COOKIE, &cookie), (header::AUTHORIZATION, "Bearer x")]);
        assert!(guard.caller(&both).is_err());
    }

    #[test]
    fn a_cookie_changes_nothing_unless_a_page_of_ours_asks() {
        let guard = guard();
        let by =
            guard.caller(&headers(&[(header::AUTHORIZATION, "Bearer secret")])).unwrap_or_else(|_| panic!("valid"));
        let code = guard.logins.link(&by, Instant::now()).unwrap();
        let cookie = guard.logins.exchange(&code, Instant::now()).unwrap().unwrap();
        let sent = headers(&[(header::COOKIE, &format!("tenure_8787={cookie}"))]);
        let address = "127.0.0.1".parse().unwrap();
        for (method, is_own_page, fits) in
            [(Method::GET, false, true), (Method::POST, false, false), (Method::POST, true, true)]
        {
            let site = Site { host: "localhost".into(), scheme: Scheme::Http, is_own_page };
            assert_eq!(guard.check_caller(&method, &sent, &site, address).is_ok(), fits, "{method} {is_own_page}");
        }
    }
}

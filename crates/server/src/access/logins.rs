//! Browsers: a link that works once, and the cookie it is exchanged for. Both live in memory alone, as hashes, and end with the daemon.

use std::{
    io,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::{
    caller::{Caller, Via},
    tokens::{Hash, random_hex},
};

/// How long a link works.
pub(crate) const LINK_TIME: Duration = Duration::from_secs(60);
/// Links that were not used yet; one more pushes out the oldest.
const LINKS_MAX: usize = 32;

struct Link {
    code: Hash,
    caller: Caller,
    until: Instant,
}

struct Visit {
    cookie: Hash,
    caller: Caller,
    until: Instant,
}

impl Visit {
    fn is_over(&self, now: Instant) -> bool {
        self.until <= now || self.caller.life.is_cancelled()
    }
}

pub(crate) struct Logins {
    visits_max: usize,
    visit_time: Duration,
    links: Mutex<Vec<Link>>,
    /// The oldest first.
    visits: Mutex<Vec<Visit>>,
}

impl Logins {
    pub(crate) fn new(visits_max: usize, visit_time: Duration) -> Self {
        Self { visits_max, visit_time, links: Mutex::default(), visits: Mutex::default() }
    }

    pub(crate) fn visit_time(&self) -> Duration {
        self.visit_time
    }

    /// A code for a browser that comes in this one's name.
    pub(crate) fn link(&self, caller: &Caller, now: Instant) -> io::Result<String> {
        let code = random_hex()?;
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| link.until > now);
        if links.len() >= LINKS_MAX {
            links.remove(0);
        }
        links.push(Link { code: Hash::of(code.as_bytes()), caller: caller.clone(), until: now + LINK_TIME });
        Ok(code)
    }

    /// The cookie for a code, which is worth nothing from then on. `None` if it was worth nothing before.
    pub(crate) fn exchange(&self, code: &str, now: Instant) -> io::Result<Option<String>> {
        let (hash, mut found) = (Hash::of(code.as_bytes()), None);
        {
            let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
            links.retain(|link| link.until > now && !link.caller.life.is_cancelled());
            for (at, link) in links.iter().enumerate() {
                if link.code == hash {
                    found = Some(at);
                }
            }
            match found.map(|at| links.remove(at)) {
                None => Ok(None),
                Some(link) => self.begin(&link.caller, now).map(Some),
            }
        }
    }

    fn begin(&self, caller: &Caller, now: Instant) -> io::Result<String> {
        let cookie = random_hex()?;
        let mut visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        visits.retain(|visit| !visit.is_over(now));
        if visits.len() >= self.visits_max {
            visits.remove(0).caller.life.cancel();
        }
        // It ends when the secret ends whose link it came by.
        let caller = Caller { via: Via::Cookie, life: caller.life.child_token(), ..caller.clone() };
        visits.push(Visit { cookie: Hash::of(cookie.as_bytes()), caller, until: now + self.visit_time });
        Ok(cookie)
    }

    pub(crate) fn find(&self, cookie: &str, now: Instant) -> Option<Caller> {
        let hash = Hash::of(cookie.as_bytes());
        let visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for visit in visits.iter() {
            if visit.cookie == hash && !visit.is_over(now) {
                found = Some(visit.caller.clone());
            }
        }
        found
    }

    /// Ends a visit, and the streams it has open.
    pub(crate) fn end(&self, life: &CancellationToken) {
        life.cancel();
        self.end_expired(Instant::now());
    }

    /// Ends visits whose time is over, and says when the next one's is.
    pub(crate) fn end_expired(&self, now: Instant) -> Option<Instant> {
        let mut visits = self.visits.lock().unwrap_or_else(PoisonError::into_inner);
        visits.iter().filter(|visit| visit.is_over(now)).for_each(|visit| visit.caller.life.cancel());
        visits.retain(|visit| !visit.is_over(now));
        visits.iter().map(|visit| visit.until).min()
    }
}

/// The value of a cookie of this name, if it stands there once.
pub(crate) fn cookie_named<'a>(headers: impl Iterator<Item = &'a [u8]>, name: &str) -> Option<&'a str> {
    let mut found = None;
    for header in headers {
        for pair in header.split(|byte| *byte == b';') {
            let Ok(pair) = std::str::from_utf8(pair.trim_ascii()) else { continue };
            let Some((_, value)) = pair.split_once('=').filter(|(known, _)| *known == name) else { continue };
            // Two of them may come from two sites; neither is believed.
            if found.replace(value).is_some() {
                return None;
            }
        }
    }
    found.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn caller() -> Caller {
        Caller { name: "ci".into(), via: Via::Token, life: CancellationToken::new(), bucket: Arc::default() }
    }

    fn logins() -> Logins {
        Logins::new(2, Duration::from_secs(100))
    }

    #[test]
    fn a_link_works_once_and_not_for_long() {
        let (logins, now) = (logins(), Instant::now());
        let code = logins.link(&caller(), now).unwrap();
        assert_eq!(logins.exchange("another", now).unwrap(), None);
        let cookie = logins.exchange(&code, now).unwrap().unwrap();
        assert_eq!(logins.exchange(&code, now).unwrap(), None);
        let found = logins.find(&cookie, now).unwrap();
        assert_eq!((&*found.name, found.via), ("ci", Via::Cookie));
        let code = logins.link(&caller(), now).unwrap();
        assert_eq!(logins.exchange(&code, now + LINK_TIME).unwrap(), None);
    }

    #[test]
    fn a_visit_ends_with_its_time_its_token_and_its_wish() {
        let (logins, now, by) = (logins(), Instant::now(), caller());
        let enter = |by: &Caller| logins.exchange(&logins.link(by, now).unwrap(), now).unwrap().unwrap();
        let first = enter(&by);
        assert!(logins.find(&first, now + Duration::from_secs(99)).is_some());
        assert!(logins.find(&first, now + Duration::from_secs(100)).is_none());
        by.life.cancel();
        assert!(logins.find(&first, now).is_none());
        let second = enter(&caller());
        logins.end(&logins.find(&second, now).unwrap().life);
        assert!(logins.find(&second, now).is_none());
    }

    #[test]
    fn one_visit_too_many_ends_the_oldest() {
        let (logins, now) = (logins(), Instant::now());
        let enter = || logins.exchange(&logins.link(&caller(), now).unwrap(), now).unwrap().unwrap();
        let cookies = [enter(), enter()];
        let oldest = logins.find(&cookies[0], now).unwrap();
        let third = enter();
        assert!(oldest.life.is_cancelled());
        assert!(logins.find(&cookies[0], now).is_none());
        assert!(logins.find(&cookies[1], now).is_some() && logins.find(&third, now).is_some());
    }

    #[test]
    fn unused_links_take_bounded_room() {
        let (logins, now) = (logins(), Instant::now());
        let first = logins.link(&caller(), now).unwrap();
        let codes: Vec<_> = (0..LINKS_MAX).map(|_| logins.link(&caller(), now).unwrap()).collect();
        assert_eq!(logins.exchange(&first, now).unwrap(), None);
        assert!(logins.exchange(&codes[0], now).unwrap().is_some());
    }

    #[test]
    fn cookies() {
        for (sent, expected) in [
            (&["tenure_1=abc"][..], Some("abc")),
            (&["a=b; tenure_1=abc;c=d"], Some("abc")),
            (&["a=b", "tenure_1=abc"], Some("abc")),
            (&["tenure_1=a=b"], Some("a=b")),
            (&["tenure_1=abc; tenure_1=def"], None),
            (&["tenure_1=abc", "tenure_1=abc"], None),
            (&["tenure_1="], None),
            (&["tenure_12=abc"], None),
            (&["xtenure_1=abc"], None),
            (&["tenure_1"], None),
            (&[""], None),
            (&[], None),
        ] {
            assert_eq!(cookie_named(sent.iter().map(|text| text.as_bytes()), "tenure_1"), expected, "{sent:?}");
        }
    }
}

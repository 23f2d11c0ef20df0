//! How a browser gets in and out: a link that works once, the cookie it is exchanged for, and a plain page that says who one is.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use tenure_wire as wire;

use super::{
    App,
    body::Plain,
    json,
    problem::{Rejection, internal, wrong_method},
    query::{Nothing, Params},
};
use crate::{
    access::{
        caller::{Caller, Via},
        logins::LINK_TIME,
        sites::{Scheme, Site},
    },
    listen::Peer,
};

/// A page may show what we send, post to us, and nothing else.
const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

pub(crate) async fn link(
    State(app): State<Arc<App>>,
    caller: Caller,
    Extension(site): Extension<Site>,
    _: Params<Nothing>,
    Plain(wire::NewLogin {}): Plain<wire::NewLogin>,
) -> Result<Response, Rejection> {
    if caller.via == Via::Cookie {
        let (detail, hint) = ("a browser cannot let another one in", "use a token, or `tenure open`");
        return Err(Rejection::new(StatusCode::FORBIDDEN, "not_allowed", detail, hint));
    }
    let code = app.guard.logins.link(&caller, Instant::now()).map_err(|error| internal(&error.to_string()))?;
    let scheme = match site.scheme {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    let url = format!("{scheme}://{}/login?code={code}", site.host);
    let expires_in_ms = u64::try_from(LINK_TIME.as_millis()).unwrap_or(u64::MAX);
    Ok(json(StatusCode::CREATED, &wire::Login { url, expires_in_ms }))
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Code {
    /// As the link holds it.
    code: String,
}

/// A browser that only looks ahead must not use a link up.
pub(crate) async fn no_look_ahead() -> Rejection {
    wrong_method()
}

pub(crate) async fn login(
    State(app): State<Arc<App>>,
    Extension(site): Extension<Site>,
    Extension(Peer(peer)): Extension<Peer>,
    Params(Code { code }): Params<Code>,
    headers: HeaderMap,
) -> Result<Response, Rejection> {
    let exchanged = app.guard.logins.exchange(&code, Instant::now()).map_err(|error| internal(&error.to_string()))?;
    let Some(cookie) = exchanged else {
        let (detail, hint) = ("this link was used, or its time is over", "make a new one with `tenure open`");
        let rejection = Rejection::new(StatusCode::FORBIDDEN, "bad_login", detail, hint);
        let rejection = app.guard.failed(rejection, peer);
        return if rejection.code() == "bad_login" && wants_page(&headers) {
            Ok(turned_away(rejection))
        } else {
            Err(rejection)
        };
    };
    app.guard.tokens.changed.notify_one();
    to_the_page(app.guard.set_cookie(&site, Some(&cookie)))
}

pub(crate) async fn logout(
    State(app): State<Arc<App>>,
    caller: Caller,
    Extension(site): Extension<Site>,
    _: Params<Nothing>,
) -> Result<Response, Rejection> {
    if caller.via == Via::Cookie {
        app.guard.logins.end(&caller.life);
    }
    to_the_page(app.guard.set_cookie(&site, None))
}

fn to_the_page(set_cookie: String) -> Result<Response, Rejection> {
    let cookie = HeaderValue::try_from(set_cookie).map_err(|error| internal(&error.to_string()))?;
    let place = HeaderValue::from_static("/");
    Ok((StatusCode::SEE_OTHER, [(header::LOCATION, place), (header::SET_COOKIE, cookie)]).into_response())
}

/// Whether whoever asks shows pages.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut kinds = accepted.flat_map(|value| value.split(',')).map(|kind| kind.split(';').next().unwrap_or_default());
    kinds.any(|kind| kind.trim().eq_ignore_ascii_case("text/html"))
}

/// The same refusal for the eyes of a person, counted as ever.
fn turned_away(rejection: Rejection) -> Response {
    let mut refused = rejection.into_response();
    let page = shown(
        "<p>This link does not work any more: it was used already, or its minute is over.</p>\
         <p>On the daemon's machine, <code>tenure open</code> makes a new one.</p>",
    );
    for (name, value) in page.headers() {
        refused.headers_mut().insert(name, value.clone());
    }
    *refused.body_mut() = page.into_body();
    refused
}

pub(crate) async fn page(caller: Option<Extension<Caller>>, _: Params<Nothing>) -> Response {
    let who = match caller {
        // A name has letters, digits and dots alone.
        Some(Extension(caller)) => format!(
            "<p>You are <b>{}</b>.</p><form method=\"post\" action=\"/logout\"><button>Log out</button></form>",
            caller.name
        ),
        None => "<p>You are not logged in. <code>tenure open</code> on its machine gives you a link.</p>".to_owned(),
    };
    shown(&format!("<p>The daemon runs.</p>{who}"))
}

/// A small page with this in it.
fn shown(what: &str) -> Response {
    let page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>Tenure</title>\
         <style>:root{{color-scheme:light dark}}\
         body{{font:1rem/1.5 sans-serif;margin:3rem auto;max-width:40rem;padding:0 1rem}}</style>\
         <h1>Tenure {}</h1>{what}\
         <p><a href=\"/docs\">The API and how to use it</a></p></html>\n",
        env!("CARGO_PKG_VERSION")
    );
    let head: [(HeaderName, &str); 2] =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, PAGE_POLICY)];
    (StatusCode::OK, head, page).into_response()
}

//! Browsers: links that work once, cookies, and what those may do.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};
use tenure_server::{Access, Limits};
use tokio::time::timeout;

use crate::rig::{Daemon, Got, PATIENCE, TOKEN, headers, only};

/// What a browser gets for a new link: the whole header, and the pair it sends back.
async fn logged_in(daemon: &Daemon) -> (String, String) {
    let got = daemon.send(daemon.bare("GET", &path_of(&link(daemon).await))).await;
    assert_eq!((got.status, got.header("location")), (303, "/"), "{got:?}");
    let set = got.header("set-cookie").to_owned();
    let pair = set.split(';').next().unwrap().to_owned();
    (set, pair)
}

async fn link(daemon: &Daemon) -> String {
    let made = daemon.post("/v1/logins", json!({})).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["expires_in_ms"], 60_000);
    made.body["url"].as_str().unwrap().to_owned()
}

fn path_of(url: &str) -> String {
    url[url.find("/login").unwrap()..].to_owned()
}

async fn by_cookie(daemon: &Daemon, pair: &str, method: &str, path: &str, more: &[(&str, &str)], body: Value) -> Got {
    let request = daemon.bare(method, path).header("cookie", pair).headers(headers(more));
    daemon.send(if body.is_null() { request } else { request.json(&body) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_lets_one_browser_in_once() {
    let daemon = Daemon::start().await;
    let url = link(&daemon).await;
    assert!(url.starts_with(&daemon.url("/login?code=")), "{url}");
    // Something that looks ahead uses nothing up.
    daemon.send(daemon.bare("HEAD", &path_of(&url))).await;
    let got = daemon.send(daemon.bare("GET", &path_of(&url))).await;
    let cookie = got.header("set-cookie").to_owned();
    let name = format!("tenure_{}=", daemon.address.port());
    assert!(cookie.starts_with(&name), "{cookie}");
    for part in ["; HttpOnly", "; SameSite=Strict", "; Path=/", "; Max-Age=43200"] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    assert!(!cookie.contains("Secure"), "{cookie}");
    daemon.send(daemon.bare("GET", &path_of(&url))).await.refused(403, "bad_login");
    daemon.send(daemon.bare("GET", "/login?code=x")).await.refused(403, "bad_login");
    daemon.send(daemon.bare("GET", "/login")).await.refused(400, "bad_query");
    // People get a page that says what to do; it counts as the others do.
    let asks = daemon.bare("GET", &path_of(&url)).header("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let got = daemon.send(asks).await;
    assert_eq!((got.status, got.header("content-type")), (403, "text/html; charset=utf-8"), "{got:?}");
    let page = got.body.as_str().unwrap();
    assert!(page.contains("<code>tenure open</code>") && page.contains("name=\"viewport\""), "{got:?}");
    assert_eq!(daemon.refusals("bad_login").await, 3);
    daemon.send(daemon.bare("POST", "/v1/logins")).await.refused(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_who_one_is() {
    let daemon = Daemon::start().await;
    let stranger = daemon.send(daemon.bare("GET", "/")).await;
    assert!(stranger.body.as_str().unwrap().contains("not logged in"), "{stranger:?}");
    assert!(stranger.body.as_str().unwrap().contains("<a href=\"/docs\">"), "{stranger:?}");
    assert!(stranger.header("content-security-policy").contains("frame-ancestors 'none'"));
    assert_eq!(stranger.header("x-frame-options"), "DENY");
    let (_, pair) = logged_in(&daemon).await;
    let known = by_cookie(&daemon, &pair, "GET", "/", &[], Value::Null).await;
    assert!(known.body.as_str().unwrap().contains("<b>owner</b>"), "{known:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_reads_and_changes_only_for_a_page_of_our_own() {
    let daemon = Daemon::start().await;
    let (_, pair) = logged_in(&daemon).await;
    assert_eq!(by_cookie(&daemon, &pair, "GET", "/v1/sessions", &[], Value::Null).await.status, 200);
    let body = daemon.create_body(json!({}));
    let own = format!("http://{}", daemon.address);
    for more in [
        &[][..],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("origin", "http://evil.example")],
        &[("origin", "null")],
        &[("origin", &own), ("sec-fetch-site", "cross-site")],
    ] {
        by_cookie(&daemon, &pair, "POST", "/v1/sessions", more, body.clone()).await.refused(403, "bad_origin");
    }
    assert_eq!(daemon.get("/v1/sessions").await.ok()["sessions"], json!([]));
    assert_eq!(daemon.refusals("bad_origin").await, 7);
    for more in [&[("origin", &*own)][..], &[("sec-fetch-site", "same-origin")]] {
        let made = by_cookie(&daemon, &pair, "POST", "/v1/sessions", more, body.clone()).await.ok();
        let events = daemon.events(made["session_id"].as_str().unwrap()).await;
        let actor = json!({ "kind": "user", "id": "owner", "surface": "page" });
        assert_eq!(only(&events, "session_created")["actor"], actor);
    }
    // It lets nobody else in.
    let own_page = [("sec-fetch-site", "same-origin")];
    by_cookie(&daemon, &pair, "POST", "/v1/logins", &own_page, json!({})).await.refused(403, "not_allowed");
    by_cookie(&daemon, &pair, "GET", "/v1/tokens", &own_page, Value::Null).await.refused(403, "not_allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn logging_out_ends_the_cookie_and_its_streams() {
    let daemon = Daemon::start().await;
    let (_, pair) = logged_in(&daemon).await;
    let (_, other) = logged_in(&daemon).await;
    let streaming = daemon.bare("GET", "/v1/events").header("cookie", &pair).send().await.unwrap();
    assert_eq!(streaming.status(), 200);
    by_cookie(&daemon, &pair, "POST", "/logout", &[], Value::Null).await.refused(403, "bad_origin");
    let out = by_cookie(&daemon, &pair, "POST", "/logout", &[("sec-fetch-site", "same-origin")], Value::Null).await;
    assert_eq!((out.status, out.header("location")), (303, "/"));
    assert!(out.header("set-cookie").contains("Max-Age=0"), "{out:?}");
    let mut bytes = streaming.bytes_stream();
    timeout(PATIENCE, async { while let Some(Ok(_)) = bytes.next().await {} }).await.expect("it is cut");
    by_cookie(&daemon, &pair, "GET", "/v1/sessions", &[], Value::Null).await.refused(401, "unauthorized");
    assert_eq!(by_cookie(&daemon, &other, "GET", "/v1/sessions", &[], Value::Null).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_ends_with_its_time_and_with_the_token_of_its_link() {
    let limits = Limits { login_time: Duration::from_millis(600), ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let (_, pair) = logged_in(&daemon).await;
    let streaming = daemon.bare("GET", "/v1/events").header("cookie", &pair).send().await.unwrap();
    let mut bytes = streaming.bytes_stream();
    timeout(PATIENCE, async { while let Some(Ok(_)) = bytes.next().await {} }).await.expect("its time is over");
    by_cookie(&daemon, &pair, "GET", "/v1/sessions", &[], Value::Null).await.refused(401, "unauthorized");

    let daemon = Daemon::start().await;
    let secret = daemon.post("/v1/tokens", json!({ "name": "phone" })).await.ok()["token"].clone();
    let request = daemon.bare("POST", "/v1/logins").bearer_auth(secret.as_str().unwrap());
    let url = daemon.send(request.json(&json!({}))).await.ok()["url"].as_str().unwrap().to_owned();
    let got = daemon.send(daemon.bare("GET", &path_of(&url))).await;
    let pair = got.header("set-cookie").split(';').next().unwrap().to_owned();
    let known = by_cookie(&daemon, &pair, "GET", "/", &[], Value::Null).await;
    assert!(known.body.as_str().unwrap().contains("<b>phone</b>"), "{known:?}");
    daemon.send(daemon.request("DELETE", "/v1/tokens/phone")).await.ok();
    by_cookie(&daemon, &pair, "GET", "/v1/sessions", &[], Value::Null).await.refused(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_room_for_so_many_browsers() {
    let limits = Limits { logins_max: 2, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let mut pairs = vec![];
    for _ in 0..3 {
        pairs.push(logged_in(&daemon).await.1);
    }
    let mut statuses = vec![];
    for pair in &pairs {
        statuses.push(by_cookie(&daemon, pair, "GET", "/v1/sessions", &[], Value::Null).await.status);
    }
    assert_eq!(statuses, [401, 200, 200]);
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_links_and_cookies_are_for_its_name() {
    let access = Access { proxy: Some("tenure.example".into()), ..Access::new(TOKEN) };
    let daemon = Daemon::with(Limits::default(), access).await;
    let host = [("host", "tenure.example")];
    let made = daemon.send(daemon.request("POST", "/v1/logins").headers(headers(&host)).json(&json!({}))).await.ok();
    let url = made["url"].as_str().unwrap();
    assert!(url.starts_with("https://tenure.example/login?code="), "{url}");
    let got = daemon.send(daemon.bare("GET", &path_of(url)).headers(headers(&host))).await;
    let cookie = got.header("set-cookie");
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    let pair = cookie.split(';').next().unwrap();
    let body = daemon.create_body(json!({}));
    let own = [host[0], ("origin", "https://tenure.example")];
    assert_eq!(by_cookie(&daemon, pair, "POST", "/v1/sessions", &own, body.clone()).await.status, 201);
    for origin in ["http://tenure.example", "https://evil.example", "http://127.0.0.1"] {
        let foreign = [host[0], ("origin", origin)];
        by_cookie(&daemon, pair, "POST", "/v1/sessions", &foreign, body.clone()).await.refused(403, "bad_origin");
    }
    daemon.send(daemon.request("GET", "/v1/sessions").header("host", "other.example")).await.refused(421, "bad_host");
}

//! Who gets in.

use serde_json::json;

use crate::rig::{Daemon, TOKEN, client, headers};

#[tokio::test(flavor = "multi_thread")]
async fn everything_but_health_and_the_description_needs_the_token() {
    let daemon = Daemon::start().await;
    let http = client();
    for path in ["/healthz", "/readyz", "/openapi.json", "/docs"] {
        assert_eq!(daemon.send(http.get(daemon.url(path))).await.status, 200, "{path}");
    }
    let session = daemon.create(json!({})).await;
    for path in [
        "/v1/sessions".to_owned(),
        format!("/v1/sessions/{session}"),
        format!("/v1/sessions/{session}/events"),
        "/nowhere".to_owned(),
        "/healthz/".to_owned(),
    ] {
        let got = daemon.send(http.get(daemon.url(&path))).await;
        got.refused(401, "unauthorized");
        assert_eq!(got.header("www-authenticate"), "Bearer");
        daemon.send(http.get(daemon.url(&path)).bearer_auth("another")).await.refused(401, "unauthorized");
    }
    let body = daemon.create_body(json!({}));
    daemon.send(http.post(daemon.url("/v1/sessions")).json(&body)).await.refused(401, "unauthorized");
    // One who has no token learns it also after sending much.
    let much = http.post(daemon.url("/v1/sessions")).body("x".repeat(4 << 20));
    daemon.send(much).await.refused(401, "unauthorized");
    assert_eq!(daemon.get("/v1/sessions").await.ok()["sessions"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_host_is_refused_before_the_token_is_looked_at() {
    let daemon = Daemon::start().await;
    for host in ["evil.example", "evil.example:8787", "127.0.0.1.evil.example", "localhost@evil.example"] {
        for path in ["/healthz", "/v1/sessions"] {
            let request = daemon.request("GET", path).headers(headers(&[("host", host)]));
            daemon.send(request).await.refused(421, "bad_host");
        }
    }
    let port = daemon.address.port();
    for host in [format!("localhost:{port}"), format!("[::1]:{port}"), "127.0.0.1".into(), "LocalHost".into()] {
        let request = daemon.request("GET", "/v1/sessions").headers(headers(&[("host", host.as_str())]));
        assert_eq!(daemon.send(request).await.status, 200, "{host}");
    }
    let answer = daemon.raw(b"GET /healthz HTTP/1.1\r\nconnection: close\r\n\r\n").await;
    assert!(answer.contains("bad_host"), "{answer}");
    let answer = daemon.raw(b"GET /healthz HTTP/1.0\r\n\r\n").await;
    assert!(answer.contains("bad_host"), "{answer}");
    let line = b"GET http://evil.example/healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = daemon.raw(line).await;
    assert!(answer.contains("bad_host"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_is_refused() {
    let daemon = Daemon::start().await;
    let port = daemon.address.port();
    for origin in ["https://evil.example", "null", "http://localhost", &format!("http://localhost:{}", port ^ 1)] {
        let request = daemon.request("GET", "/v1/sessions").headers(headers(&[("origin", origin)]));
        daemon.send(request).await.refused(403, "bad_origin");
    }
    for origin in [format!("http://127.0.0.1:{port}"), format!("http://localhost:{port}")] {
        let request = daemon.request("GET", "/v1/sessions").headers(headers(&[("origin", origin.as_str())]));
        let got = daemon.send(request).await;
        assert_eq!(got.status, 200, "{origin}");
        assert_eq!(got.header("access-control-allow-origin"), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_readiness_say_what_they_should() {
    let daemon = Daemon::start().await;
    let health = daemon.get("/healthz").await.ok();
    assert_eq!(health, json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION") }));
    let ready = daemon.get("/readyz").await;
    assert_eq!(ready.body, json!({ "status": "ready", "durability": "memory", "notices": [] }));
    assert_eq!(ready.header("cache-control"), "no-store");
    let head = daemon.send(daemon.request("HEAD", "/healthz")).await;
    assert_eq!((head.status, head.body), (200, json!("")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_never_shows_in_a_log() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "system_prompt": format!("the token is {TOKEN}") })).await;
    let turn = daemon.say(&session, &format!("it is {TOKEN}")).await;
    daemon.rested(&session, &turn).await;
    let events = daemon.events(&session).await;
    assert!(!serde_json::to_string(&events).unwrap().contains(TOKEN), "{events:?}");
}

//! The API's description as a client gets it.

use serde_json::Value;

use crate::rig::{Daemon, headers};

#[tokio::test(flavor = "multi_thread")]
async fn the_document_is_served_and_need_not_be_sent_twice() {
    let daemon = Daemon::start().await;
    let got = daemon.get("/openapi.json").await;
    assert_eq!((got.status, got.header("content-type")), (200, "application/json"));
    assert_eq!(got.header("cache-control"), "no-cache");
    assert_eq!(got.body["openapi"], "3.1.0");
    let committed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let committed: Value = serde_json::from_str(&std::fs::read_to_string(committed).unwrap()).unwrap();
    assert_eq!(got.body, committed);
    let tag = got.header("etag").to_owned();
    let again = daemon.request("GET", "/openapi.json").headers(headers(&[("if-none-match", &tag)]));
    let again = daemon.send(again).await;
    assert_eq!((again.status, again.header("etag"), &again.body), (304, &*tag, &Value::from("")));
    let other = daemon.request("GET", "/openapi.json").headers(headers(&[("if-none-match", "\"other\"")]));
    assert_eq!(daemon.send(other).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_lets_in_nothing_from_elsewhere() {
    let daemon = Daemon::start().await;
    let got = daemon.get("/docs").await;
    assert_eq!((got.status, got.header("content-type")), (200, "text/html; charset=utf-8"));
    let policy = got.header("content-security-policy").to_owned();
    assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"), "{policy}");
    let Value::String(page) = got.body else { panic!("no page") };
    for needle in ["src=", "@import", " url(", " style=", " onclick="] {
        assert!(!page.contains(needle), "{needle}");
    }
}

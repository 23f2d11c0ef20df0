//! Tokens by name: made, used, rotated, revoked and gone; and what hangs on them.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use serde_json::{Value, json};
use tenure_server::{Access, Keeper, Limits, read_tokens};
use tokio::time::timeout;

use crate::rig::{Daemon, Got, PATIENCE, TOKEN, only};

/// A token, and its secret.
async fn add(daemon: &Daemon, body: Value) -> (String, Value) {
    let got = daemon.post("/v1/tokens", body).await;
    assert_eq!(got.status, 201, "{got:?}");
    (got.body["token"].as_str().unwrap().to_owned(), got.body)
}

async fn with(daemon: &Daemon, token: &str, method: &str, path: &str, body: Value) -> Got {
    let request = daemon.bare(method, path).bearer_auth(token);
    daemon.send(if body.is_null() { request } else { request.json(&body) }).await
}

async fn delete(daemon: &Daemon, name: &str) -> Got {
    daemon.send(daemon.request("DELETE", &format!("/v1/tokens/{name}"))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_made_shown_once_listed_and_revoked() {
    let daemon = Daemon::start().await;
    let (secret, made) = add(&daemon, json!({ "name": "ci" })).await;
    assert!(secret.starts_with("tenure_") && secret.len() == 7 + 64, "{made}");
    assert_eq!((&made["name"], made["last4"].as_str().unwrap()), (&json!("ci"), &secret[secret.len() - 4..]));
    let listed = daemon.get("/v1/tokens").await.ok();
    assert_eq!(listed["tokens"].as_array().unwrap().len(), 1);
    assert_eq!(listed["tokens"][0]["last4"], made["last4"]);
    assert!(!listed.to_string().contains(&secret), "{listed}");
    assert_eq!(with(&daemon, &secret, "GET", "/v1/sessions", Value::Null).await.status, 200);
    assert_eq!(delete(&daemon, "ci").await.ok(), json!({ "name": "ci" }));
    with(&daemon, &secret, "GET", "/v1/sessions", Value::Null).await.refused(401, "unauthorized");
    assert_eq!(daemon.get("/v1/tokens").await.ok()["tokens"], json!([]));
    delete(&daemon, "ci").await.refused(404, "unknown_token");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_daemons_own_token_manages_tokens() {
    let daemon = Daemon::start().await;
    let (secret, _) = add(&daemon, json!({ "name": "ci" })).await;
    for (method, path, body) in [
        ("GET", "/v1/tokens", Value::Null),
        ("POST", "/v1/tokens", json!({ "name": "other" })),
        ("DELETE", "/v1/tokens/ci", Value::Null),
        ("POST", "/v1/tokens/ci/rotate", json!({})),
        ("POST", "/v1/tokens/owner/rotate", json!({})),
    ] {
        with(&daemon, &secret, method, path, body).await.refused(403, "not_allowed");
    }
    assert_eq!(daemon.get("/v1/tokens").await.ok()["tokens"].as_array().unwrap().len(), 1);
    assert_eq!(daemon.refusals("not_allowed").await, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_about_tokens_are_told_what_is_wrong() {
    let limits = Limits { tokens_max: 2, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    add(&daemon, json!({ "name": "a" })).await;
    add(&daemon, json!({ "name": "b" })).await;
    for (body, status, code) in [
        (json!({ "name": "c" }), 429, "too_many_tokens"),
        (json!({ "name": "a" }), 409, "token_exists"),
        (json!({ "name": "owner" }), 400, "bad_token_name"),
        (json!({ "name": "Ü" }), 400, "bad_token_name"),
        (json!({ "name": "" }), 400, "bad_token_name"),
        (json!({}), 400, "bad_request"),
        (json!(["x"]), 400, "bad_request"),
        (json!({ "name": "x", "expires_in_ms": -1 }), 400, "bad_request"),
        (json!({ "name": "x", "scope": "all" }), 400, "bad_request"),
    ] {
        daemon.post("/v1/tokens", body).await.refused(status, code);
    }
    daemon.post_with_key("/v1/tokens", "k", json!({ "name": "x" })).await.refused(400, "bad_idempotency_key");
    delete(&daemon, "owner").await.refused(409, "owner_token");
    daemon.post("/v1/tokens/nobody/rotate", json!({})).await.refused(404, "unknown_token");
    daemon.post("/v1/tokens/a/rotate", json!({ "grace": 1 })).await.refused(400, "bad_request");
    daemon.send(daemon.request("GET", "/v1/tokens/a")).await.refused(405, "wrong_method");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_token_is_told_so_and_its_stream_is_cut() {
    let daemon = Daemon::start().await;
    let (secret, made) = add(&daemon, json!({ "name": "brief", "expires_in_ms": 700 })).await;
    assert!(made["expires_at"].is_string());
    let streaming = daemon.bare("GET", "/v1/events").bearer_auth(&secret).send().await.unwrap();
    assert_eq!(streaming.status(), 200);
    let mut bytes = streaming.bytes_stream();
    let over = async { while let Some(Ok(_)) = bytes.next().await {} };
    timeout(PATIENCE, over).await.expect("the stream ends with its token");
    with(&daemon, &secret, "GET", "/v1/sessions", Value::Null).await.refused(401, "token_expired");
    assert_eq!(daemon.refusals("token_expired").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_revoked_token_has_open_is_cut_and_nothing_else() {
    let daemon = Daemon::start().await;
    let (secret, _) = add(&daemon, json!({ "name": "ci" })).await;
    let session = daemon.scripted(json!([{ "do": [{ "pause_ms": 60000 }, { "text": "late" }] }]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    let path = format!("/v1/sessions/{session}/events");
    let streams: Vec<_> = futures::future::join_all(
        [&*path, "/v1/events"].map(|path| daemon.bare("GET", path).bearer_auth(&secret).send()),
    )
    .await;
    let own = daemon.request("GET", &path).send().await.unwrap();
    let waiting = {
        let path = format!("/v1/sessions/{session}/turns/{turn}?wait_ms=60000");
        let request = daemon.bare("GET", &path).bearer_auth(&secret);
        tokio::spawn(request.send())
    };
    // The wait has begun when it shows in no list; there is nothing to see of it but that it goes on.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    delete(&daemon, "ci").await.ok();
    for stream in streams {
        let mut bytes = stream.unwrap().bytes_stream();
        timeout(PATIENCE, async { while let Some(Ok(_)) = bytes.next().await {} }).await.expect("it is cut");
    }
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap().unwrap().status(), 401);
    let mut bytes = own.bytes_stream();
    while let Ok(Some(Ok(_))) = timeout(Duration::from_millis(100), bytes.next()).await {}
    let still = timeout(Duration::from_millis(200), bytes.next()).await;
    assert!(still.is_err(), "another token's stream goes on: {still:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_secret_is_over_at_once_or_after_its_grace() {
    let daemon = Daemon::start().await;
    let (first, _) = add(&daemon, json!({ "name": "ci" })).await;
    let rotate = async |body: Value| {
        let got = daemon.post("/v1/tokens/ci/rotate", body).await.ok();
        got["token"].as_str().unwrap().to_owned()
    };
    let second = rotate(json!({})).await;
    assert_ne!(first, second);
    let status = async |token: &str| with(&daemon, token, "GET", "/v1/sessions", Value::Null).await.status;
    assert_eq!((status(&first).await, status(&second).await), (401, 200));
    let third = rotate(json!({ "grace_ms": 700 })).await;
    assert_eq!((status(&second).await, status(&third).await), (200, 200));
    let streaming = daemon.bare("GET", "/v1/events").bearer_auth(&second).send().await.unwrap();
    let mut bytes = streaming.bytes_stream();
    timeout(PATIENCE, async { while let Some(Ok(_)) = bytes.next().await {} }).await.expect("it ends with the grace");
    assert_eq!((status(&second).await, status(&third).await), (401, 200));
}

/// Remembers what it was given.
#[derive(Default)]
struct Kept {
    named: Mutex<Vec<u8>>,
    own: Mutex<String>,
    broken: Mutex<bool>,
    /// How long each write takes.
    slow: Duration,
}

impl Keeper for Kept {
    fn keep_named(&self, json: &[u8]) -> io::Result<()> {
        if *self.broken.lock().unwrap() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *self.named.lock().unwrap() = json.to_vec();
        Ok(())
    }

    fn keep_own(&self, token: &str) -> io::Result<()> {
        std::thread::sleep(self.slow);
        *self.own.lock().unwrap() = token.to_owned();
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_daemons_own_token_is_rotated_in_its_file_and_in_force() {
    let kept = Arc::new(Kept::default());
    let spare = vec!["another-spare-token-for-tests".to_owned(), "a-spare-token-for-tests".to_owned()];
    let access = Access { keeper: kept.clone(), spare, ..Access::new(TOKEN) };
    let daemon = Daemon::with(Limits::default(), access).await;
    let made = daemon.post("/v1/tokens/owner/rotate", json!({ "grace_ms": 60_000 })).await.ok();
    let token = made["token"].as_str().unwrap().to_owned();
    assert_eq!((&*token, &**kept.own.lock().unwrap()), ("a-spare-token-for-tests", &*token));
    assert_eq!(daemon.get("/v1/tokens").await.status, 200, "the old one has its grace");
    let again = with(&daemon, &token, "POST", "/v1/tokens/owner/rotate", json!({})).await.ok();
    assert_eq!(with(&daemon, &token, "GET", "/v1/sessions", Value::Null).await.status, 401);
    daemon.get("/v1/tokens").await.refused(401, "unauthorized");
    let now = again["token"].as_str().unwrap();
    assert_eq!(with(&daemon, now, "GET", "/v1/tokens", Value::Null).await.status, 200);
    // A secret that nobody blots out is none for this.
    with(&daemon, now, "POST", "/v1/tokens/owner/rotate", json!({})).await.refused(409, "rotated_enough");
    assert_eq!(with(&daemon, now, "GET", "/v1/tokens", Value::Null).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_grace_of_the_daemons_own_token_outlives_a_restart() {
    const SECOND: &str = "a-second-token-for-tests";
    let keeper = Arc::new(Kept::default());
    let access = Access { keeper: keeper.clone(), spare: vec![SECOND.into()], ..Access::new(TOKEN) };
    let daemon = Daemon::with(Limits::default(), access).await;
    daemon.post("/v1/tokens/owner/rotate", json!({ "grace_ms": 60_000 })).await.ok();
    let kept = |keeper: &Kept| read_tokens(&keeper.named.lock().unwrap()).unwrap();
    drop(daemon);
    let spare = vec!["a-third-token-for-tests".to_owned()];
    let access = Access { keeper: keeper.clone(), kept: kept(&keeper), spare, ..Access::new(SECOND) };
    let daemon = Daemon::with(Limits::default(), access).await;
    assert_eq!(daemon.get("/v1/tokens").await.ok()["tokens"], json!([]), "the old one has its grace");
    // Without one, none of those before is kept.
    with(&daemon, SECOND, "POST", "/v1/tokens/owner/rotate", json!({})).await.ok();
    daemon.get("/v1/tokens").await.refused(401, "unauthorized");
    assert_eq!(kept(&keeper).owner_earlier, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_leaves_no_token_half_rotated() {
    let kept = Arc::new(Kept { slow: Duration::from_millis(400), ..Kept::default() });
    let spare = vec!["a-spare-token-for-tests".to_owned()];
    let access = Access { keeper: kept.clone(), spare, ..Access::new(TOKEN) };
    let daemon = Daemon::with(Limits::default(), access).await;
    let request =
        daemon.request("POST", "/v1/tokens/owner/rotate").json(&json!({})).timeout(Duration::from_millis(100));
    assert!(request.send().await.is_err(), "it did not wait");
    let written = async {
        while kept.own.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let token = kept.own.lock().unwrap().clone();
        while with(&daemon, &token, "GET", "/v1/tokens", Value::Null).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, written).await.expect("what is in the file is in force");
    daemon.get("/v1/tokens").await.refused(401, "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_kept_as_hashes_and_hold_in_the_next_life() {
    let kept = Arc::new(Kept::default());
    let access = Access { keeper: kept.clone(), ..Access::new(TOKEN) };
    let daemon = Daemon::with(Limits::default(), access).await;
    let (secret, _) = add(&daemon, json!({ "name": "ci" })).await;
    let (gone, _) = add(&daemon, json!({ "name": "gone" })).await;
    delete(&daemon, "gone").await.ok();
    let file = String::from_utf8(kept.named.lock().unwrap().clone()).unwrap();
    assert!(!file.contains(&secret) && !file.contains(&secret[7..]), "{file}");
    drop(daemon);
    let kept = read_tokens(file.as_bytes()).unwrap();
    let daemon = Daemon::with(Limits::default(), Access { kept, ..Access::new(TOKEN) }).await;
    assert_eq!(with(&daemon, &secret, "GET", "/v1/sessions", Value::Null).await.status, 200);
    assert_eq!(with(&daemon, &gone, "GET", "/v1/sessions", Value::Null).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_kept_is_not_done() {
    let kept = Arc::new(Kept::default());
    let access = Access { keeper: kept.clone(), ..Access::new(TOKEN) };
    let daemon = Daemon::with(Limits::default(), access).await;
    let (secret, _) = add(&daemon, json!({ "name": "ci" })).await;
    *kept.broken.lock().unwrap() = true;
    daemon.post("/v1/tokens", json!({ "name": "other" })).await.refused(503, "disk_refused");
    delete(&daemon, "ci").await.refused(503, "disk_refused");
    daemon.post("/v1/tokens/ci/rotate", json!({})).await.refused(503, "disk_refused");
    assert_eq!(with(&daemon, &secret, "GET", "/v1/sessions", Value::Null).await.status, 200);
    assert_eq!(daemon.get("/v1/tokens").await.ok()["tokens"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_tells_whose_token_did_it() {
    let daemon = Daemon::start().await;
    let (secret, _) = add(&daemon, json!({ "name": "ci" })).await;
    let created = with(&daemon, &secret, "POST", "/v1/sessions", daemon.create_body(json!({}))).await.ok();
    let session = created["session_id"].as_str().unwrap();
    let said = json!({ "parts": [{ "type": "text", "text": "hi" }] });
    let turn = with(&daemon, &secret, "POST", &format!("/v1/sessions/{session}/messages"), said).await.ok();
    daemon.rested(session, turn["turn_id"].as_str().unwrap()).await;
    daemon.post(&format!("/v1/sessions/{session}/end"), json!({})).await.ok();
    let events = daemon.events(session).await;
    for (wire_type, who) in [("session_created", "ci"), ("message_added", "ci"), ("session_completed", "owner")] {
        assert_eq!(only(&events, wire_type)["actor"]["id"], who, "{wire_type}");
    }
}

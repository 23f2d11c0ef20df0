//! Bad input, row by row: a clear refusal, a daemon that goes on, and logs in which nothing was begun.

use serde_json::{Value, json};
use tenure_server::Limits;

use crate::rig::{Daemon, TOKEN, headers, text_step};

const NO_SESSION: &str = "sess_00000000000000000000000000";
const NO_TURN: &str = "turn_00000000000000000000000000";
const NO_CALL: &str = "call_00000000000000000000000000";

struct Row {
    method: &'static str,
    /// `{s}` stands for a session with a settled turn `{t}`, `{e}` for one that has ended.
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: Option<String>,
    status: u16,
    code: &'static str,
    /// What the sentence must name.
    says: &'static str,
}

const JSON: &[(&str, &str)] = &[("content-type", "application/json")];

/// Arrays inside each other.
fn nested(levels: usize) -> serde_json::Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

fn get(path: &'static str, status: u16, code: &'static str, says: &'static str) -> Row {
    Row { method: "GET", path, headers: &[], body: None, status, code, says }
}

fn post(path: &'static str, body: impl ToString, status: u16, code: &'static str, says: &'static str) -> Row {
    Row { method: "POST", path, headers: JSON, body: Some(body.to_string()), status, code, says }
}

fn with(row: Row, headers: &'static [(&'static str, &'static str)]) -> Row {
    Row { headers, ..row }
}

fn patch(body: impl ToString, status: u16, code: &'static str, says: &'static str) -> Row {
    Row { method: "PATCH", ..post("/v1/sessions/{s}", body, status, code, says) }
}

fn text(text: &str) -> Value {
    json!({ "parts": [{ "type": "text", "text": text }] })
}

/// A create that would be right but for `field`.
fn create(field: &str, value: Value, code: &'static str, says: &'static str) -> Row {
    let mut body = json!({ "workspace_path": env!("CARGO_MANIFEST_DIR") });
    body[field] = value;
    post("/v1/sessions", body, 400, code, says)
}

fn paths_and_methods() -> Vec<Row> {
    vec![
        get("/v1", 404, "unknown_path", "path"),
        get("/v1/sessions/", 404, "unknown_path", "path"),
        get("/v1/sessions/{s}/", 404, "unknown_path", "path"),
        get("/v2/sessions", 404, "unknown_path", "path"),
        get("/v1/sessions/{s}/nothing", 404, "unknown_path", "path"),
        get("/v1/sessions/%ff%fe", 404, "unknown_path", "path"),
        Row { method: "PUT", ..get("/v1/sessions", 405, "wrong_method", "method") },
        Row { method: "DELETE", ..get("/v1/sessions", 405, "wrong_method", "method") },
        Row { method: "DELETE", ..get("/v1/sessions/{s}?purge=maybe", 400, "bad_query", "purge") },
        Row { method: "POST", ..get("/v1/sessions/{s}/events", 405, "wrong_method", "method") },
        Row { method: "BREW", ..get("/healthz", 405, "wrong_method", "method") },
        get("/v1/sessions/{s}/cancel", 405, "wrong_method", "method"),
        get("/v1/sessions?limit=0", 400, "bad_query", "limit"),
        get("/v1/sessions?limit=201", 400, "bad_query", "limit"),
        get("/v1/sessions?limit=-1", 400, "bad_query", "limit"),
        get("/v1/sessions?limit=many", 400, "bad_query", "limit"),
        get("/v1/sessions?limit=", 400, "bad_query", "limit"),
        get("/v1/sessions?limit=1&limit=2", 400, "bad_query", "limit"),
        get("/v1/sessions?colour=red", 400, "bad_query", "colour"),
        get("/v1/sessions?cursor=42", 400, "bad_cursor", "cursor"),
        get("/v1/sessions?cursor=../../etc", 400, "bad_cursor", "cursor"),
        get("/v1/sessions/{s}?verbose=1", 400, "bad_query", "verbose"),
        get("/healthz?x=1", 400, "bad_query", "x"),
        get("/v1/sessions/{s}/events?after=-1", 400, "bad_cursor", "-1"),
        get("/v1/sessions/{s}/events?after=x", 400, "bad_cursor", "x"),
        get("/v1/sessions/{s}/events?after=1.2.3", 400, "bad_cursor", "1.2.3"),
        get("/v1/sessions/{s}/events?follow=perhaps", 400, "bad_query", "follow"),
        with(get("/v1/sessions/{s}/events", 400, "bad_cursor", "old"), &[("last-event-id", "old")]),
        get("/v1/sessions/{s}/turns/{t}?wait_ms=60001", 400, "bad_query", "wait_ms"),
        get("/v1/sessions/{s}/turns/{t}?wait_ms=long", 400, "bad_query", "wait_ms"),
    ]
}

fn unknown_ids() -> Vec<Row> {
    vec![
        get("/v1/sessions/nobody", 404, "unknown_session", "nobody"),
        get("/v1/sessions/sess_x", 404, "unknown_session", "sess_x"),
        get("/v1/sessions/sess_..%2f..%2fetc%2fpasswd", 404, "unknown_session", "passwd"),
        get("/v1/sessions/sess_00000000000000000000000000", 404, "unknown_session", NO_SESSION),
        get("/v1/sessions/sess_00000000000000000000000000/events", 404, "unknown_session", NO_SESSION),
        get("/v1/sessions/nobody/turns/{t}", 404, "unknown_session", "nobody"),
        get("/v1/sessions/{s}/turns/nothing", 404, "unknown_turn", "nothing"),
        get("/v1/sessions/{s}/turns/turn_00000000000000000000000000", 404, "unknown_turn", NO_TURN),
        post("/v1/sessions/nobody/messages", text("hi"), 404, "unknown_session", "nobody"),
        post("/v1/sessions/sess_00000000000000000000000000/messages", text("hi"), 404, "unknown_session", NO_SESSION),
        post("/v1/sessions/sess_00000000000000000000000000/cancel", "{}", 404, "unknown_session", NO_SESSION),
        post("/v1/sessions/sess_00000000000000000000000000/end", "{}", 404, "unknown_session", NO_SESSION),
        post("/v1/sessions/sess_00000000000000000000000000/compact", "", 404, "unknown_session", NO_SESSION),
        post("/v1/sessions/{s}/turns/turn_00000000000000000000000000/retry", "", 404, "unknown_turn", NO_TURN),
        post("/v1/sessions/{s}/turns/turn_00000000000000000000000000/resume", "", 404, "unknown_turn", NO_TURN),
        post(
            "/v1/sessions/{s}/approve",
            json!({ "tool_call_id": NO_CALL, "action": "approve" }),
            404,
            "unknown_call",
            NO_CALL,
        ),
        post(
            "/v1/sessions/{s}/approve",
            json!({ "tool_call_id": "x", "action": "deny" }),
            400,
            "bad_request",
            "tool_call_id",
        ),
        post("/v1/sessions/{s}/cancel", json!({ "turn_id": NO_TURN }), 404, "unknown_turn", NO_TURN),
        post("/v1/sessions/{s}/cancel", json!({ "turn_id": "x" }), 400, "bad_request", "turn_id"),
    ]
}

fn bodies() -> Vec<Row> {
    let messages = "/v1/sessions/{s}/messages";
    vec![
        post("/v1/sessions", "", 400, "bad_json", "JSON"),
        post("/v1/sessions", "{", 400, "bad_json", "line 1 column"),
        post("/v1/sessions", "{\n  \"workspace_path\": nope\n}", 400, "bad_json", "line 2 column"),
        post("/v1/sessions", "{}{}", 400, "bad_json", "line 1 column 3"),
        post("/v1/sessions", "[".repeat(100_000), 400, "bad_json", "line 1 column 100000"),
        post("/v1/sessions", format!("{}{}", "[".repeat(9000), "]".repeat(9000)), 400, "bad_request", "sequence"),
        post(
            "/v1/sessions",
            format!(r#"{{"preferences":{{"a":{}{}}}}}"#, "[".repeat(9000), "]".repeat(9000)),
            400,
            "bad_json",
            "recursion",
        ),
        post("/v1/sessions", "null", 400, "bad_request", "null"),
        post("/v1/sessions", "[\"/tmp\"]", 400, "bad_request", "sequence"),
        post("/v1/sessions", "{}", 400, "bad_request", "workspace_path"),
        with(post("/v1/sessions", "{}", 415, "wrong_content_type", "JSON"), &[("content-type", "text/plain")]),
        with(post("/v1/sessions", "{}", 415, "wrong_content_type", "JSON"), &[]),
        with(
            post("/v1/sessions", "workspace_path=/tmp", 415, "wrong_content_type", "JSON"),
            &[("content-type", "application/x-www-form-urlencoded")],
        ),
        post("/v1/sessions", format!("\"{}\"", "x".repeat(2 << 20)), 413, "body_too_large", "1048576"),
        create("workspace_path", json!("relative"), "bad_workspace", "absolute"),
        create("workspace_path", json!("/no/such/folder"), "bad_workspace", "/no/such/folder"),
        create(
            "workspace_path",
            json!(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")),
            "bad_workspace",
            "not a folder",
        ),
        create("workspace_path", json!("/tmp\0"), "bad_workspace", "workspace_path"),
        create("workspace_path", json!(5), "bad_request", "workspace_path"),
        create("colour", json!("red"), "bad_request", "colour"),
        create("auto_run", json!("yes"), "bad_request", "auto_run"),
        create("title", json!("x".repeat(201)), "bad_request", "title"),
        create("title", json!("  "), "bad_request", "title"),
        create("title", json!("a\u{1b}[2J"), "bad_request", "title"),
        create("labels", json!("red"), "bad_request", "labels"),
        create("labels", json!(vec!["x"; 33]), "bad_request", "labels"),
        create("labels", json!([""]), "bad_request", "label"),
        create("model", json!(""), "bad_request", "model"),
        create("preferences", json!([1]), "bad_request", "preferences"),
        create("preferences", json!({ "a": nested(70) }), "bad_request", "preferences"),
        create("budgets", json!({ "max_steps": -1 }), "bad_request", "budgets.max_steps"),
        create("budgets", json!({ "max_step": 1 }), "bad_request", "max_step"),
        create("budgets", json!([1, 2, 3, 4, 5]), "bad_request", "budgets"),
        create("policy", json!({ "aproval": {} }), "bad_request", "aproval"),
        create("policy", json!({ "approval": { "require_for_kinds": ["fly"] } }), "bad_request", "fly"),
        create("policy", json!({ "approval": { "rules": [{ "tool": "shell" }] } }), "bad_request", "action"),
        create("policy", json!({ "patch_review": "sometimes" }), "bad_request", "sometimes"),
        create("idempotency_key", json!(""), "bad_idempotency_key", "key"),
        create("idempotency_key", json!("x".repeat(256)), "bad_idempotency_key", "255"),
        create("idempotency_key", json!("schlüssel"), "bad_idempotency_key", "ASCII"),
        post(messages, "{}", 400, "bad_request", "parts"),
        post(messages, json!({ "parts": [] }), 400, "empty_message", "text"),
        post(messages, text(" \n "), 400, "empty_message", "text"),
        post(messages, json!({ "parts": "hi" }), 400, "bad_request", "parts"),
        post(messages, json!({ "parts": [{ "type": "text" }] }), 400, "bad_request", "text"),
        post(messages, json!({ "parts": [{ "text": "hi" }] }), 400, "bad_request", "type"),
        post(messages, json!({ "parts": [["text", "hi"]] }), 400, "bad_request", "parts[0]"),
        post(messages, json!({ "parts": [{ "type": "video", "ref": "x" }] }), 400, "bad_request", "video"),
        post(
            messages,
            json!({ "parts": [{ "type": "image", "ref": "attachments/a.png", "mime_type": "image/png" }] }),
            400,
            "unsupported_part",
            "image",
        ),
        post(
            messages,
            json!({ "parts": vec![json!({ "type": "text", "text": "x" }); 65] }),
            400,
            "bad_request",
            "parts",
        ),
        post(messages, json!({ "role": "assistant", "parts": text("hi")["parts"] }), 400, "bad_role", "role"),
        post(messages, json!({ "role": "king", "parts": text("hi")["parts"] }), 400, "bad_request", "king"),
        post(messages, json!({ "delivery": "pigeon", "parts": text("hi")["parts"] }), 400, "bad_request", "pigeon"),
        with(
            post(
                messages,
                json!({ "parts": text("hi")["parts"], "idempotency_key": "a" }),
                400,
                "bad_idempotency_key",
                "different",
            ),
            &[("content-type", "application/json"), ("idempotency-key", "b")],
        ),
        post(messages, r#"{"parts":[{"type":"text","text":"\ud800"}]}"#, 400, "bad_json", "line 1"),
        post("/v1/sessions/{s}/approve", json!({ "tool_call_id": NO_CALL }), 400, "bad_request", "action"),
        post(
            "/v1/sessions/{s}/approve",
            json!({ "tool_call_id": NO_CALL, "action": "maybe" }),
            400,
            "bad_request",
            "maybe",
        ),
        post(
            "/v1/sessions/{s}/approve",
            json!({ "tool_call_id": NO_CALL, "action": "approve", "scope": "ever" }),
            400,
            "bad_request",
            "ever",
        ),
        post("/v1/sessions/{s}/end", json!({ "reason": "x".repeat(2001) }), 400, "bad_request", "reason"),
        post("/v1/sessions/{s}/turns", json!({ "turn": 1 }), 400, "bad_request", "turn"),
    ]
}

fn wrong_states() -> Vec<Row> {
    vec![
        post("/v1/sessions/{s}/cancel", "", 409, "no_open_turn", "no turn"),
        post("/v1/sessions/{s}/turns", "", 409, "nothing_to_send", "message"),
        post("/v1/sessions/{s}/turns/{t}/retry", "", 409, "turn_completed", "completed"),
        post("/v1/sessions/{s}/turns/{t}/resume", "", 409, "not_interrupted", "interrupted"),
        post("/v1/sessions/{e}/messages", text("hi"), 409, "session_ended", "completed"),
        post("/v1/sessions/{e}/end", "", 409, "session_ended", "completed"),
        Row { path: "/v1/sessions/{e}", ..patch(json!({ "title": "x" }), 409, "session_ended", "completed") },
        patch(json!({ "budgets": { "max_steps": 1 } }), 400, "budget_lowered", "200 steps"),
        patch(json!({ "budgets": { "max_tokens": 1 } }), 400, "budget_lowered", "no limit on tokens"),
        patch(json!({ "workspace_path": "relative" }), 400, "bad_workspace", "absolute"),
        patch(json!({ "model": 5 }), 400, "bad_request", "model"),
        patch(json!({ "title": "" }), 400, "bad_request", "title"),
        patch("", 400, "bad_json", "JSON"),
        with(
            patch(json!({ "title": "x" }), 400, "bad_if_match", "If-Match"),
            &[("content-type", "application/json"), ("if-match", "W/\"3\"")],
        ),
        with(
            patch(json!({ "title": "x" }), 412, "version_mismatch", "event"),
            &[("content-type", "application/json"), ("if-match", "\"1\"")],
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_bad_input_gets_a_clear_refusal_and_changes_nothing() {
    let daemon = Daemon::start().await;
    let session = daemon.scripted(json!([text_step("hello")]), json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let ended = daemon.create(json!({})).await;
    daemon.post(&format!("/v1/sessions/{ended}/end"), json!({})).await.ok();
    let before = all_logs(&daemon).await;

    let rows = [paths_and_methods(), unknown_ids(), bodies(), wrong_states()];
    let mut tried = 0;
    for row in rows.iter().flatten() {
        let path = row.path.replace("{s}", &session).replace("{t}", &turn).replace("{e}", &ended);
        let mut request = daemon.request(row.method, &path).headers(headers(row.headers));
        if let Some(body) = &row.body {
            request = request.body(body.clone());
        }
        let got = daemon.send(request).await;
        let shown = row.body.as_deref().unwrap_or("").chars().take(120).collect::<String>();
        let place = format!("{} {path} {shown}\n{}", row.method, got.body);
        assert_eq!((got.status, got.code()), (row.status, row.code), "{place}");
        assert!(got.body["detail"].as_str().unwrap().contains(row.says), "{} is not named: {place}", row.says);
        got.refused(row.status, row.code);
        if row.status == 405 {
            assert!(!got.header("allow").is_empty(), "{place}");
        }
        tried += 1;
    }
    assert!(tried >= 100, "{tried}");
    daemon.is_well().await;
    assert_eq!(all_logs(&daemon).await, before);
}

/// Every session there is, with all its events.
async fn all_logs(daemon: &Daemon) -> Vec<(String, Vec<Value>)> {
    let list = daemon.get("/v1/sessions?limit=200").await.ok();
    let mut logs = Vec::new();
    for row in list["sessions"].as_array().unwrap() {
        let id = row["id"].as_str().unwrap().to_owned();
        logs.push((id.clone(), daemon.events(&id).await));
    }
    logs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_without_a_said_length_is_bounded_too() {
    let limits = Limits { body_bytes_max: 1000, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let head = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n",
        daemon.address,
        crate::rig::TOKEN
    );
    let mut request = format!("{head}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..100 {
        request.extend_from_slice(b"64\r\n");
        request.extend_from_slice(&[b' '; 100]);
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    let answer = daemon.raw(&request).await;
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("body_too_large"), "{answer}");
    // One that waits to be asked for its body is told at once.
    let answer = daemon.raw(format!("{head}expect: 100-continue\r\ncontent-length: 5000\r\n\r\n").as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    daemon.is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_never_comes_is_given_up() {
    let limits = Limits { body_read: std::time::Duration::from_millis(100), ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let request = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        daemon.address,
        crate::rig::TOKEN
    );
    let answer = daemon.raw(request.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
    daemon.is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_http_is_disconnected() {
    let daemon = Daemon::start().await;
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..],
        b"HELO example\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    ] {
        let answer = daemon.raw(garbage).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let long = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(200_000));
    let answer = daemon.raw(long.as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    let many = (0..500).map(|n| format!("x{n}: y\r\n")).collect::<String>();
    let answer = daemon.raw(format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{many}\r\n").as_bytes()).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    daemon.is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_in_another_coding_is_not_taken_for_plain() {
    let daemon = Daemon::start().await;
    let body = daemon.create_body(json!({})).to_string();
    for (coding, status) in [("gzip, chunked", "501"), ("x-what,CHUNKED", "501"), ("Chunked", "201")] {
        let request = format!(
            "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
             content-type: application/json\r\ntransfer-encoding: {coding}\r\nconnection: close\r\n\r\n\
             {:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        );
        let answer = daemon.raw(request.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{coding}: {answer}");
        assert_eq!(answer.contains("\"code\":\"unsupported_coding\""), status == "501", "{coding}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_behind_the_last_message_is_refused() {
    let daemon = Daemon::start().await;
    let session = daemon.scripted(json!([text_step("x")]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    daemon.rested(&session, &turn).await;
    let seq = daemon.session(&session).await["seq"].as_u64().unwrap();
    let path = format!("/v1/sessions/{session}/messages?cursor=");
    assert_eq!(daemon.get(&format!("{path}{seq}")).await.ok()["messages"], json!([]));
    for cursor in [format!("{}", seq + 1), "9999999999999999999".into(), u64::MAX.to_string(), "9".repeat(40)] {
        daemon.get(&format!("{path}{cursor}")).await.refused(400, "bad_cursor");
    }
}

//! What S1 and the API promise and later issues bring. Each gap is probed against a live daemon: this fails when one closes and the list was not told, and when one is listed that is none.

use std::{future::Future, pin::Pin};

use serde_json::{Value, json};

use crate::rig::{Daemon, call_step, of_type, text_step};

/// Whether the gap is still open.
type Probe = for<'a> fn(&'a Daemon, &'a str) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>>;

macro_rules! gaps {
    ($($name:literal => $probe:expr;)*) => {
        const KNOWN_GAPS: &[(&str, Probe)] = &[$(($name, |daemon, session| Box::pin($probe(daemon, session))),)*];
    };
}

gaps! {
    "streams: GET /events/{id}" => |d, s: &str| path_is_unknown(d, format!("/events/{s}"));
    "roles: /v1/roles" => |d, _| path_is_unknown(d, "/v1/roles".into());
    "roles: /v1/projects" => |d, _| path_is_unknown(d, "/v1/projects".into());
    "roles: /v1/tasks" => |d, _| path_is_unknown(d, "/v1/tasks".into());
    "roles: /v1/pool" => |d, _| path_is_unknown(d, "/v1/pool".into());
    "runs: /v1/runs" => |d, _| path_is_unknown(d, "/v1/runs".into());
    "websocket: /ws" => |d, _| path_is_unknown(d, "/ws".into());
    "mcp: /mcp" => |d, _| path_is_unknown(d, "/mcp".into());
}

async fn path_is_unknown(daemon: &Daemon, path: String) -> bool {
    daemon.get(&path).await.code() == "unknown_path"
}

async fn post_is_unknown(daemon: &Daemon, session: &str, path: &str) -> bool {
    daemon.post(&format!("/v1/sessions/{session}{path}"), json!({})).await.code() == "unknown_path"
}

/// The text of the first result that a call to this tool gets.
async fn tool_is_unknown(daemon: &Daemon, name: &str) -> bool {
    let events = played(daemon, json!([call_step(name, json!({})), text_step("over")])).await;
    let completed = of_type(&events, "tool_call_completed");
    let text = completed.first().map(|event| event["data"]["parts"].to_string()).unwrap_or_default();
    text.contains("no tool named")
}

async fn played(daemon: &Daemon, steps: Value) -> Vec<Value> {
    let policy = json!({ "policy": { "approval": { "require_for_kinds": [] } } });
    let session = daemon.scripted(steps, policy).await;
    let turn = daemon.say(&session, "go").await;
    daemon.rested(&session, &turn).await;
    daemon.events(&session).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_known_gap_is_still_one() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let mut closed = Vec::new();
    for (name, is_open) in KNOWN_GAPS {
        if !is_open(&daemon, &session).await {
            closed.push(*name);
        }
    }
    assert_eq!(
        closed,
        Vec::<&str>::new(),
        "these are no gaps any more: take them off the list and add a test for each"
    );
}

/// The other direction: what is not on the list is there. S1's endpoints, and the tools that exist.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_a_gap_is_there() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.rested(&session, &turn).await;
    for (method, path) in [
        ("POST", "/v1/sessions".to_owned()),
        ("GET", "/v1/sessions".to_owned()),
        ("GET", format!("/v1/sessions/{session}")),
        ("PATCH", format!("/v1/sessions/{session}")),
        ("POST", format!("/v1/sessions/{session}/messages")),
        ("GET", format!("/v1/sessions/{session}/events?follow=false")),
        ("POST", format!("/v1/sessions/{session}/approve")),
        ("POST", format!("/v1/sessions/{session}/cancel")),
        ("POST", format!("/v1/sessions/{session}/turns")),
        ("GET", format!("/v1/sessions/{session}/turns/{turn}")),
        ("POST", format!("/v1/sessions/{session}/turns/{turn}/retry")),
        ("POST", format!("/v1/sessions/{session}/turns/{turn}/resume")),
        ("POST", format!("/v1/sessions/{session}/compact")),
        ("POST", format!("/v1/sessions/{session}/end")),
        ("GET", "/".to_owned()),
        ("POST", "/v1/logins".to_owned()),
        ("GET", "/login?code=x".to_owned()),
        ("POST", "/logout".to_owned()),
        ("GET", "/v1/tokens".to_owned()),
        ("POST", "/v1/tokens".to_owned()),
        ("DELETE", "/v1/tokens/nobody".to_owned()),
        ("POST", "/v1/tokens/nobody/rotate".to_owned()),
        ("GET", "/v1/models".to_owned()),
        ("GET", "/v1/tools".to_owned()),
        ("GET", "/healthz".to_owned()),
        ("GET", "/readyz".to_owned()),
    ] {
        let got = daemon.send(daemon.request(method, &path)).await;
        assert!(!["unknown_path", "wrong_method"].contains(&got.code()), "{method} {path}: {got:?}");
    }
    let reading = ["repo_tree", "repo_map", "read_file", "search", "git_status"];
    let others = ["write_file", "edit_file", "apply_patch", "shell", "verify", "diagram", "fetch_url"];
    for tool in reading.into_iter().chain(others) {
        assert!(!tool_is_unknown(&daemon, tool).await, "{tool}");
    }
}

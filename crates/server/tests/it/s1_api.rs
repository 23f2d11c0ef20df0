//! S1's API, sentence by sentence. What later issues bring stands in `gaps`.

use serde_json::json;

use crate::rig::{Daemon, call_step, in_order, of_type, only, text_step, types};

/// "Create a session and optionally prime it with a system prompt."
#[tokio::test(flavor = "multi_thread")]
async fn create_a_session_and_optionally_prime_it() {
    let daemon = Daemon::start().await;
    let path = daemon.workspace();
    let full = json!({ "workspace_path": path, "system_prompt": "Optional system instructions", "auto_run": true });
    let got = daemon.post("/v1/sessions", full).await;
    assert_eq!(got.status, 201);
    let primed = got.body["session_id"].as_str().unwrap();
    assert_eq!(daemon.session(primed).await["system_prompt"], "Optional system instructions");
    let bare = daemon.create(json!({})).await;
    let view = daemon.session(&bare).await;
    assert_eq!((&view["system_prompt"], &view["auto_run"]), (&json!(null), &json!(true)));
}

/// "List sessions (most recent first)."
#[tokio::test(flavor = "multi_thread")]
async fn list_sessions_most_recent_first() {
    let daemon = Daemon::start().await;
    let first = daemon.create(json!({})).await;
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    let second = daemon.create(json!({ "title": "the second" })).await;
    let list = daemon.get("/v1/sessions").await.ok();
    let ids: Vec<&str> = list["sessions"].as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    assert_eq!(ids, [second, first]);
    let row = &list["sessions"][0];
    assert_eq!((&row["title"], &row["status"]), (&json!("the second"), &json!("active")));
    assert_eq!(row["workspace_path"], json!(daemon.workspace()));
}

/// "Fetch session metadata and latest state."
#[tokio::test(flavor = "multi_thread")]
async fn fetch_session_metadata_and_latest_state() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    assert_eq!(daemon.session(&session).await["last_turn_id"], json!(null));
    let turn = daemon.say(&session, "hi").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let view = daemon.session(&session).await;
    assert_eq!((&view["id"], &view["last_turn_id"]), (&json!(session), &json!(turn)));
    assert_eq!(view["seq"].as_u64().unwrap(), daemon.events(&session).await.last().unwrap()["seq"].as_u64().unwrap());
}

/// "Append a message and optionally trigger a turn."
#[tokio::test(flavor = "multi_thread")]
async fn append_a_message_and_optionally_trigger_a_turn() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let path = format!("/v1/sessions/{session}/messages");
    let quiet = json!({ "role": "user", "parts": [{ "type": "text", "text": "only noted" }], "auto_run": false });
    let got = daemon.post(&path, quiet).await;
    assert_eq!(got.status, 202);
    let message = got.body["message_id"].as_str().unwrap();
    assert_eq!(got.body, json!({ "message_id": message }));
    assert!(message.starts_with("msg_"));
    assert_eq!(types(&daemon.events(&session).await), ["session_created", "message_added"]);
    // The next one that triggers takes it along.
    let got = daemon
        .post(&path, json!({ "role": "user", "parts": [{ "type": "text", "text": "now" }], "auto_run": true }))
        .await;
    let turn = got.body["turn_id"].as_str().unwrap();
    assert!(turn.starts_with("turn_"));
    assert_eq!(got.body, json!({ "message_id": got.body["message_id"], "turn_id": turn }));
    daemon.completed(&daemon.rested(&session, turn).await);
    let events = daemon.events(&session).await;
    let taken = only(&events, "turn_started")["data"]["messages"].as_array().unwrap();
    assert_eq!((&taken[0]["id"], &taken[1]["id"]), (&json!(message), &got.body["message_id"]));
}

/// `auto_run` of the session holds where a message says nothing; `POST …/turns` starts what was only appended.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_without_auto_run_waits_to_be_started() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "auto_run": false })).await;
    let body = json!({ "role": "system", "parts": [{ "type": "text", "text": "be kind" }] });
    let got = daemon.post(&format!("/v1/sessions/{session}/messages"), body).await.ok();
    assert_eq!(got.get("turn_id"), None);
    let got = daemon.send(daemon.request("POST", &format!("/v1/sessions/{session}/turns"))).await;
    assert_eq!(got.status, 202);
    let turn = got.body["turn_id"].as_str().unwrap();
    assert_eq!(got.body, json!({ "turn_id": turn }));
    daemon.completed(&daemon.rested(&session, turn).await);
}

/// "SSE stream of session events (history + live)." The details are in `streams`.
#[tokio::test(flavor = "multi_thread")]
async fn sse_stream_of_session_events_history_and_live() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let mut stream = daemon.request("GET", &format!("/v1/sessions/{session}/events")).send().await.unwrap();
    let mut seen = String::new();
    let mut said = false;
    while !seen.contains("event: turn_completed\n") {
        seen.push_str(std::str::from_utf8(&stream.chunk().await.unwrap().unwrap()).unwrap());
        if !said && seen.contains("event: session_created\n") {
            said = true;
            daemon.say(&session, "hi").await;
        }
    }
    assert!(seen.starts_with("id: 1\nevent: session_created\ndata: {"), "{seen}");
}

/// "Approve or deny a gated tool call."
#[tokio::test(flavor = "multi_thread")]
async fn approve_or_deny_a_gated_tool_call() {
    let daemon = Daemon::start().await;
    for (action, event) in [("approve", "approval_granted"), ("deny", "approval_denied")] {
        let steps = json!([call_step("shell", json!({ "command": "true" })), text_step("over")]);
        let session = daemon.scripted(steps, json!({})).await;
        let turn = daemon.say(&session, "go").await;
        let call = daemon.approval(&session).await["tool_call_id"].clone();
        let body = json!({ "turn_id": turn, "tool_call_id": call, "action": action, "reason": "ok" });
        let got = daemon.post(&format!("/v1/sessions/{session}/approve"), body).await;
        assert_eq!((got.status, &got.body), (200, &json!({ "tool_call_id": call, "action": action, "scope": "once" })));
        daemon.completed(&daemon.rested(&session, &turn).await);
        let events = daemon.events(&session).await;
        let answered = only(&events, event);
        assert_eq!((&answered["data"]["tool_call_id"], &answered["data"]["reason"]), (&call, &json!("ok")));
    }
}

/// "Cancel an active session turn."
#[tokio::test(flavor = "multi_thread")]
async fn cancel_an_active_session_turn() {
    let daemon = Daemon::start().await;
    let session = daemon.scripted(json!([{ "do": [{ "text": "and so " }, { "stall": true }] }]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    // The body may be left out.
    let got = daemon.send(daemon.request("POST", &format!("/v1/sessions/{session}/cancel"))).await;
    assert_eq!((got.status, &got.body), (202, &json!({ "turn_id": turn, "status": "canceling" })));
    assert_eq!(daemon.rested(&session, &turn).await["status"], "cancelled");
    in_order(&daemon.events(&session).await, &["turn_started", "cancel_requested", "turn_canceled"]);
    assert_eq!(daemon.session(&session).await["status"], "active");
}

/// "Retry a failed turn using the same message context."
#[tokio::test(flavor = "multi_thread")]
async fn retry_a_failed_turn_using_the_same_message_context() {
    let daemon = Daemon::start().await;
    let failing = json!({ "do": [{ "error": { "kind": "auth", "message": "no key" } }] });
    let session = daemon.scripted(json!([failing]), json!({})).await;
    let turn = daemon.say(&session, "try").await;
    let record = daemon.rested(&session, &turn).await;
    assert_eq!((&record["status"], &record["error"]["code"]), (&json!("failed"), &json!("auth")));
    let got = daemon.post(&format!("/v1/sessions/{session}/turns/{turn}/retry"), json!({})).await;
    assert_eq!(got.status, 202);
    let second = got.body["turn_id"].as_str().unwrap();
    assert_ne!(second, turn);
    let record = daemon.rested(&session, second).await;
    assert_eq!(record["retry_of"], json!(turn));
    let events = daemon.events(&session).await;
    let started = of_type(&events, "turn_started");
    assert_eq!(started[0]["data"]["messages"], started[1]["data"]["messages"]);
    assert_eq!(of_type(&events, "message_added").len(), 1);
}

//! S1's five acceptance tests, by name.

use std::{fs, sync::Arc};

use serde_json::{Value, json};

use crate::rig::{Daemon, call_step, in_order, of_type, only, text_step};

/// "`POST /v1/sessions` returns a session id and creates `session.json`."
#[tokio::test(flavor = "multi_thread")]
async fn acceptance_post_sessions_returns_an_id_and_creates_session_json() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let got = daemon.post("/v1/sessions", daemon.create_body(json!({}))).await;
    assert_eq!(got.status, 201);
    let id = got.body["session_id"].as_str().unwrap().to_owned();
    assert_eq!(got.body, json!({ "session_id": id }));
    assert!(id.starts_with("sess_"), "{id}");
    assert_eq!(got.header("location"), format!("/v1/sessions/{id}"));
    let text = fs::read_to_string(daemon.data().join("sessions").join(&id).join("session.json")).unwrap();
    let snapshot: Value = serde_json::from_str(&text).unwrap();
    assert!(snapshot.to_string().contains(&id), "{snapshot}");
}

/// "`POST /v1/sessions/{id}/messages` emits `message_added` and `turn_started`."
#[tokio::test(flavor = "multi_thread")]
async fn acceptance_post_messages_emits_message_added_and_turn_started() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let body =
        json!({ "role": "user", "parts": [{ "type": "text", "text": "Please update the README." }], "auto_run": true });
    let accepted = daemon.post(&format!("/v1/sessions/{session}/messages"), body).await.ok();
    daemon.completed(&daemon.rested(&session, accepted["turn_id"].as_str().unwrap()).await);
    let events = daemon.events(&session).await;
    in_order(&events, &["session_created", "message_added", "turn_started"]);
    let added = only(&events, "message_added");
    assert_eq!(added["data"]["message_id"], accepted["message_id"]);
    assert_eq!(added["data"]["parts"], json!([{ "type": "text", "text": "Please update the README." }]));
    assert_eq!(only(&events, "turn_started")["turn_id"], accepted["turn_id"]);
}

/// "Tool calls emit `tool_call_started` and `tool_call_completed` events."
#[tokio::test(flavor = "multi_thread")]
async fn acceptance_tool_calls_emit_tool_call_started_and_tool_call_completed() {
    let daemon = Daemon::start().await;
    fs::write(daemon.workspace().join("a.txt"), "what is in it\n").unwrap();
    let steps = json!([call_step("read_file", json!({ "path": "a.txt" })), text_step("read")]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "read a.txt").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let events = daemon.events(&session).await;
    in_order(&events, &["tool_call_started", "tool_call_completed", "model_output_completed", "turn_completed"]);
    let (started, completed) = (only(&events, "tool_call_started"), only(&events, "tool_call_completed"));
    assert_eq!(started["data"]["name"], "read_file");
    assert_eq!(started["data"]["input"], json!({ "path": "a.txt" }));
    assert_eq!(completed["data"]["tool_call_id"], started["data"]["tool_call_id"]);
    assert_eq!(completed["data"]["ok"], true);
    assert!(completed["data"]["parts"][0]["text"].as_str().unwrap().contains("what is in it"));
}

/// "Approvals gate tool execution when policy requires it."
#[tokio::test(flavor = "multi_thread")]
async fn acceptance_approvals_gate_tool_execution_when_policy_requires_it() {
    let daemon = Daemon::start().await;
    let steps = json!([
        call_step("shell", json!({ "command": "touch allowed" })),
        call_step("shell", json!({ "command": "touch denied" })),
        text_step("done"),
    ]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "go").await;
    for (file, action) in [("allowed", "approve"), ("denied", "deny")] {
        let approval = daemon.approval(&session).await;
        assert_eq!(approval["subject"], format!("touch {file}"));
        assert_eq!(daemon.session(&session).await["status"], "waiting_approval");
        assert!(!daemon.workspace().join(file).exists(), "it ran before it was allowed");
        let body =
            json!({ "turn_id": turn, "tool_call_id": approval["tool_call_id"], "action": action, "reason": "ok" });
        daemon.post(&format!("/v1/sessions/{session}/approve"), body).await.ok();
        if action == "approve" {
            crate::s1_loop::until_file(&daemon.workspace().join(file)).await;
        }
    }
    daemon.completed(&daemon.rested(&session, &turn).await);
    assert!(daemon.workspace().join("allowed").exists());
    assert!(!daemon.workspace().join("denied").exists());
    let events = daemon.events(&session).await;
    in_order(&events, &["approval_requested", "approval_granted", "tool_call_started", "tool_call_completed"]);
    in_order(&events, &["approval_granted", "approval_requested", "approval_denied", "turn_completed"]);
    assert_eq!(of_type(&events, "tool_call_started").len(), 1);
}

/// "Verification runs after a write and emits events for command results."
#[tokio::test(flavor = "multi_thread")]
async fn acceptance_verification_runs_after_a_write_and_emits_events_for_command_results() {
    let daemon = Daemon::start().await;
    let steps = json!([call_step("write_file", json!({ "path": "a.txt", "content": "x" })), text_step("written")]);
    let policy = json!({ "policy": { "verify": { "commands": ["cat a.txt"] } } });
    let session = daemon.scripted(steps, policy).await;
    let turn = daemon.say(&session, "write a.txt").await;
    let record = daemon.rested(&session, &turn).await;
    daemon.completed(&record);
    assert_eq!(record["verification"], "passed");
    let events = daemon.events(&session).await;
    let by_policy = |wire_type| {
        let found = of_type(&events, wire_type);
        found.into_iter().filter(|event| event["data"]["origin"] == "verify_policy").cloned().collect::<Vec<_>>()
    };
    let (started, completed) = (by_policy("tool_call_started"), by_policy("tool_call_completed"));
    assert_eq!((started.len(), completed.len()), (1, 1));
    assert_eq!(started[0]["data"]["name"], "verify");
    assert_eq!((&completed[0]["data"]["name"], &completed[0]["data"]["ok"]), (&json!("verify"), &json!(true)));
    assert!(completed[0]["data"]["parts"][0]["text"].as_str().unwrap().contains("cat a.txt"), "{}", completed[0]);
    assert_eq!(only(&events, "turn_completed")["data"]["verification"], "passed");
}

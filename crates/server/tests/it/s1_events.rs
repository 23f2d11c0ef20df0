//! S1's event schema: the envelope, the fourteen types, and what each carries.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tenure_core::event::Body;

use crate::rig::{Daemon, call_step, of_type, only, text_step, types};

const S1_TYPES: [&str; 14] = [
    "session_created",
    "message_added",
    "turn_started",
    "model_output_delta",
    "model_output_completed",
    "tool_call_started",
    "tool_call_completed",
    "approval_requested",
    "approval_granted",
    "approval_denied",
    "turn_completed",
    "session_completed",
    "session_failed",
    "session_canceled",
];

/// One session that approves once, denies once and completes; and one that is canceled.
async fn two_lives(daemon: &Daemon) -> Vec<Value> {
    let steps = json!([
        call_step("shell", json!({ "command": "echo one" })),
        call_step("shell", json!({ "command": "echo two" })),
        text_step("all done"),
    ]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "go").await;
    let first = daemon.approval(&session).await;
    let answer = async |approval: &Value, action: &str| {
        let body = json!({ "tool_call_id": approval["tool_call_id"], "action": action, "reason": "because" });
        daemon.post(&format!("/v1/sessions/{session}/approve"), body).await.ok();
    };
    answer(&first, "approve").await;
    let second = loop {
        let approval = daemon.approval(&session).await;
        if approval["tool_call_id"] != first["tool_call_id"] {
            break approval;
        }
    };
    answer(&second, "deny").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    daemon.post(&format!("/v1/sessions/{session}/end"), json!({})).await.ok();
    let mut events = daemon.events(&session).await;
    let other = daemon.scripted(json!([call_step("shell", json!({ "command": "true" }))]), json!({})).await;
    let turn = daemon.say(&other, "go").await;
    daemon.approval(&other).await;
    daemon.post(&format!("/v1/sessions/{other}/end"), json!({})).await.ok();
    daemon.rested(&other, &turn).await;
    events.extend(daemon.events(&other).await);
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn the_minimum_set_of_types_is_shown() {
    let daemon = Daemon::start().await;
    let events = two_lives(&daemon).await;
    let seen: BTreeSet<&str> = types(&events).into_iter().collect();
    let missing: Vec<&str> = S1_TYPES.into_iter().filter(|wire_type| !seen.contains(wire_type)).collect();
    // Only a damaged log or a lost backend ends a session that way.
    assert_eq!(missing, ["session_failed"]);
    assert!(Body::WIRE_TYPES.contains(&"session_failed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_has_s1s_envelope() {
    let daemon = Daemon::start().await;
    let events = two_lives(&daemon).await;
    let mut before = 0;
    for event in &events {
        assert!(event["ts"].as_str().unwrap().ends_with('Z'), "{event}");
        assert!(event["session_id"].as_str().unwrap().starts_with("sess_"), "{event}");
        assert!(event["type"].is_string() && event["data"].is_object(), "{event}");
        let wire_type = event["type"].as_str().unwrap();
        if wire_type.starts_with("turn_") || wire_type.starts_with("model_") || wire_type.starts_with("tool_") {
            assert!(event["turn_id"].as_str().unwrap().starts_with("turn_"), "{event}");
        }
        let seq = event["seq"].as_u64().unwrap();
        match event.get("pos") {
            // Numbered without a gap; the second life begins at 1 again.
            None => {
                assert!(seq == before + 1 || seq == 1, "{seq} after {before}");
                before = seq;
            }
            Some(_) => assert_eq!(seq, before),
        }
    }
}

/// "`model_output_delta` streams assistant text": joined, they are the text that was completed.
#[tokio::test(flavor = "multi_thread")]
async fn deltas_joined_are_the_completed_text() {
    let daemon = Daemon::start().await;
    let said = "Grüße: one, two, three – and a tail 🦀 that is cut anywhere.";
    let session = daemon.scripted(json!([{ "do": [{ "text": said, "chunk": 3 }] }]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let events = daemon.events(&session).await;
    let completed = &only(&events, "model_output_completed")["data"];
    let deltas = of_type(&events, "model_output_delta");
    let joined: String = deltas.iter().map(|delta| delta["data"]["text"].as_str().unwrap()).collect();
    assert_eq!((joined.as_str(), &completed["text"]), (said, &json!(said)));
    let same =
        |delta: &&Value| delta["data"]["attempt"] == completed["attempt"] && delta["data"]["step"] == completed["step"];
    assert!(deltas.iter().all(same));
}

/// "`tool_call_*` events include tool name, call id, and input/output."
#[tokio::test(flavor = "multi_thread")]
async fn tool_call_events_include_name_id_input_and_output() {
    let daemon = Daemon::start().await;
    let events = two_lives(&daemon).await;
    let started = only(&events, "tool_call_started");
    assert_eq!(
        (&started["data"]["name"], &started["data"]["input"]),
        (&json!("shell"), &json!({ "command": "echo one" }))
    );
    assert_eq!(started["data"]["runner"], "local");
    for completed in of_type(&events, "tool_call_completed") {
        assert_eq!(completed["data"]["name"], "shell");
        assert!(completed["data"]["tool_call_id"].is_string() && completed["data"]["parts"].is_array(), "{completed}");
        assert!(completed["data"]["ok"].is_boolean() && completed["data"]["outcome"].is_string(), "{completed}");
    }
}

/// "`approval_*` events include tool name, call id, and optional reason."
#[tokio::test(flavor = "multi_thread")]
async fn approval_events_include_name_id_and_reason() {
    let daemon = Daemon::start().await;
    let events = two_lives(&daemon).await;
    for wire_type in ["approval_requested", "approval_granted", "approval_denied"] {
        let found = of_type(&events, wire_type);
        assert!(!found.is_empty());
        for event in found {
            assert_eq!(event["data"]["name"], "shell");
            assert!(event["data"]["tool_call_id"].as_str().unwrap().starts_with("call_"));
            assert!(wire_type == "approval_requested" || event["data"]["reason"] == "because", "{event}");
        }
    }
}

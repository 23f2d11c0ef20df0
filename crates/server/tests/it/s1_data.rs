//! S1's data model: files, session, message, tool call and result, and the policies' defaults.

use std::{fs, sync::Arc};

use serde_json::{Value, json};

use crate::rig::{Daemon, call_step, only, text_step};

/// "sessions/<session_id>/ session.json events.ndjson … artifacts/<turn_id>/": plain files that people can read.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_a_folder_of_plain_files() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let steps = json!([call_step("shell", json!({ "command": "seq 1 20000" })), text_step("counted")]);
    let policy = json!({ "policy": { "approval": { "require_for_kinds": [] } } });
    let session = daemon.scripted(steps, policy).await;
    let turn = daemon.say(&session, "count").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let folder = daemon.data().join("sessions").join(&session);
    assert!(folder.join("session.json").is_file());
    let log = fs::read_to_string(folder.join("events.ndjson")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    // One line of the log is one wire event: same seq, type and data.
    let told = daemon.events(&session).await;
    let numbered: Vec<&Value> = told.iter().filter(|event| event.get("pos").is_none()).collect();
    assert_eq!(lines.len(), numbered.len());
    for (line, event) in lines.iter().zip(numbered) {
        for field in ["seq", "ts", "session_id", "turn_id", "type", "actor", "data"] {
            assert_eq!(line[field], event[field], "{field} of {line}");
        }
    }
    let artifacts: Vec<_> = fs::read_dir(folder.join("artifacts").join(&turn)).unwrap().collect();
    assert!(!artifacts.is_empty(), "the whole of a long output is kept");
    let name = only(&told, "tool_call_completed")["data"]["artifacts"][0]["ref"].as_str().unwrap().to_owned();
    assert!(fs::read_to_string(folder.join(&name)).unwrap().contains("\n19999\n"), "{name}");
    daemon.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_s1s_fields() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "system_prompt": "..." })).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.rested(&session, &turn).await;
    let view = daemon.session(&session).await;
    for field in ["id", "created_at", "updated_at", "status", "workspace_path", "system_prompt", "last_turn_id"] {
        assert!(view[field].is_string(), "{field} of {view}");
    }
    for field in ["created_at", "updated_at"] {
        let time = view[field].as_str().unwrap();
        assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    }
}

/// "active|waiting_approval|failed|completed|canceled": a failed turn leaves the session active.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_s1s_statuses() {
    let daemon = Daemon::start().await;
    let status = async |session: &str| daemon.session(session).await["status"].clone();
    let failing = json!([{ "do": [{ "error": { "kind": "auth", "message": "no" } }] }]);
    let session = daemon.scripted(failing, json!({})).await;
    assert_eq!(status(&session).await, "active");
    let turn = daemon.say(&session, "hi").await;
    assert_eq!(daemon.rested(&session, &turn).await["status"], "failed");
    assert_eq!(status(&session).await, "active");
    daemon.post(&format!("/v1/sessions/{session}/end"), json!({})).await.ok();
    assert_eq!(status(&session).await, "completed");
    let session = daemon.scripted(json!([call_step("shell", json!({ "command": "true" }))]), json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.approval(&session).await;
    assert_eq!(status(&session).await, "waiting_approval");
    daemon.post(&format!("/v1/sessions/{session}/end"), json!({})).await.ok();
    daemon.rested(&session, &turn).await;
    assert_eq!(status(&session).await, "canceled");
    let rows = daemon.get("/v1/sessions").await.ok();
    let statuses: Vec<&Value> = rows["sessions"].as_array().unwrap().iter().map(|row| &row["status"]).collect();
    assert_eq!(statuses, [&json!("canceled"), &json!("completed")]);
}

/// A message has an id, a role, parts and a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_has_s1s_fields() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    for role in ["user", "system"] {
        let body = json!({ "role": role, "parts": [{ "type": "text", "text": "..." }], "auto_run": false });
        daemon.post(&format!("/v1/sessions/{session}/messages"), body).await.ok();
    }
    let events = daemon.events(&session).await;
    for (event, role) in events[1..].iter().zip(["user", "system"]) {
        assert!(event["data"]["message_id"].as_str().unwrap().starts_with("msg_"));
        assert_eq!((&event["data"]["role"], event["ts"].is_string()), (&json!(role), true));
        assert_eq!(event["data"]["parts"], json!([{ "type": "text", "text": "..." }]));
    }
}

/// A call has id, name and input; its result the same id, `ok` and parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_tool_call_and_its_result_have_s1s_fields() {
    let daemon = Daemon::start().await;
    let steps = json!([call_step("shell", json!({ "command": "echo ok; exit 3" })), text_step("over")]);
    let session = daemon.scripted(steps, json!({ "policy": { "approval": { "require_for_kinds": [] } } })).await;
    let turn = daemon.say(&session, "go").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let events = daemon.events(&session).await;
    let (started, completed) = (only(&events, "tool_call_started"), only(&events, "tool_call_completed"));
    let id = started["data"]["tool_call_id"].as_str().unwrap();
    assert!(id.starts_with("call_"));
    assert_eq!((&started["data"]["name"], &started["data"]["kind"]), (&json!("shell"), &json!("exec")));
    assert_eq!(started["data"]["input"], json!({ "command": "echo ok; exit 3" }));
    assert_eq!(completed["data"]["tool_call_id"], id);
    // A command that fails is a result, not an error of the turn.
    assert_eq!(completed["data"]["ok"], false);
    assert_eq!(completed["data"]["parts"][0]["type"], "text");
    assert!(completed["data"]["parts"][0]["text"].as_str().unwrap().contains("ok"));
}

/// "AutoVerify = true", "PatchReviewPolicy.Mode = off", approval gates for exec.
#[tokio::test(flavor = "multi_thread")]
async fn the_policies_have_s1s_defaults() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let policy = &daemon.session(&session).await["policy"];
    assert_eq!(policy["verify"]["auto_verify"], true);
    assert_eq!(policy["verify"]["commands"], json!(null));
    assert_eq!(policy["verify"]["require_clean"], false);
    assert_eq!(policy["patch_review"], "off");
    assert_eq!(policy["approval"]["require_for_kinds"], json!(["exec", "network"]));
    assert_eq!(policy["approval"]["require_for_tools"], json!([]));
}

//! Commands: their answers, their keys, and two clients at the same moment.

use serde_json::{Value, json};

use crate::rig::{Daemon, call_step, of_type, only, text_step};

fn text(text: &str) -> Value {
    json!({ "parts": [{ "type": "text", "text": text }] })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_makes_one_message_and_one_turn() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let path = format!("/v1/sessions/{session}/messages");
    let at_once = (0..8).map(|_| daemon.post_with_key(&path, "key", text("hi")));
    let answers = futures::future::join_all(at_once).await;
    assert!(answers.iter().all(|got| got.status == 202 && got.body == answers[0].body), "{answers:?}");
    let turn = answers[0].body["turn_id"].as_str().unwrap();
    daemon.completed(&daemon.rested(&session, turn).await);
    assert_eq!(daemon.post_with_key(&path, "key", text("hi")).await.body, answers[0].body);
    daemon.post_with_key(&path, "key", text("another")).await.refused(409, "key_reused");
    // A key belongs to its endpoint.
    let end = daemon.post_with_key(&format!("/v1/sessions/{session}/end"), "key", json!({})).await;
    assert_eq!((end.status, &end.body), (202, &json!({ "status": "completed" })));
    let events = daemon.events(&session).await;
    assert_eq!((of_type(&events, "message_added").len(), of_type(&events, "turn_started").len()), (1, 1));
    // Also when the session has ended since.
    assert_eq!(daemon.post_with_key(&path, "key", text("hi")).await.body, answers[0].body);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_answered_exactly_once() {
    let daemon = Daemon::start().await;
    let steps = json!([call_step("shell", json!({ "command": "echo x >> ran" })), text_step("over")]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "go").await;
    let call = daemon.approval(&session).await["tool_call_id"].clone();
    let path = format!("/v1/sessions/{session}/approve");
    let answer = |action: &str| daemon.post(&path, json!({ "tool_call_id": call, "action": action }));
    let (yes, no) = tokio::join!(answer("approve"), answer("deny"));
    let (won, lost) = if yes.status == 200 { (&yes, &no) } else { (&no, &yes) };
    assert_eq!(won.status, 200, "{won:?}");
    lost.refused(409, "already_answered");
    assert_eq!(lost.body["info"]["verdict"], won.body["action"]);
    daemon.completed(&daemon.rested(&session, &turn).await);
    let events = daemon.events(&session).await;
    let answers = of_type(&events, "approval_granted").len() + of_type(&events, "approval_denied").len();
    assert_eq!(answers, 1);
    let ran = std::fs::read_to_string(daemon.workspace().join("ran")).unwrap_or_default();
    assert_eq!(ran, if yes.status == 200 { "x\n" } else { "" });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_says_when_to_try_again() {
    let daemon = Daemon::start().await;
    let gate = daemon.files.path().join("gate");
    let session = daemon.scripted(json!([{ "do": [{ "wait_for": gate }] }]), json!({})).await;
    let path = format!("/v1/sessions/{session}/messages");
    for _ in 0..33 {
        assert_eq!(daemon.post(&path, text("hi")).await.status, 202);
    }
    let over = daemon.post(&path, text("one too many")).await;
    over.refused(429, "queue_full");
    assert_eq!(over.header("retry-after"), "1");
    assert_eq!(daemon.session(&session).await["queue"].as_array().unwrap().len(), 32);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_steering_message_enters_the_turn_under_way() {
    let daemon = Daemon::start().await;
    let steps = json!([
        call_step("shell", json!({ "command": "true" })),
        { "cases": [{ "seen": "mind the gap", "do": [{ "text": "minded" }] }, { "do": [{ "text": "not seen" }] }] },
    ]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "go").await;
    let approval = daemon.approval(&session).await;
    let mut steer = text("mind the gap");
    steer["delivery"] = json!("steer");
    let steered = daemon.post(&format!("/v1/sessions/{session}/messages"), steer).await.ok();
    assert_eq!(steered["turn_id"], json!(turn));
    let answer = json!({ "tool_call_id": approval["tool_call_id"], "action": "deny" });
    daemon.post(&format!("/v1/sessions/{session}/approve"), answer).await.ok();
    let record = daemon.rested(&session, &turn).await;
    assert_eq!(record["response"]["text"], "minded", "{record}");
    let events = daemon.events(&session).await;
    assert_eq!(only(&events, "message_delivered")["data"]["message_id"], steered["message_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ended_with_a_turn_open_is_canceled() {
    let daemon = Daemon::start().await;
    let session = daemon.scripted(json!([call_step("shell", json!({ "command": "true" }))]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    daemon.approval(&session).await;
    let got = daemon.post(&format!("/v1/sessions/{session}/end"), json!({ "reason": "enough" })).await;
    assert_eq!((got.status, &got.body), (202, &json!({ "status": "canceled" })));
    assert_eq!(daemon.rested(&session, &turn).await["status"], "cancelled");
    let events = daemon.events(&session).await;
    assert_eq!(only(&events, "session_canceled")["data"], json!({ "reason": "enough" }));
    assert_eq!(daemon.session(&session).await["status"], "canceled");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_did_it_is_in_every_event() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let events = daemon.events(&session).await;
    for wire_type in ["session_created", "message_added", "turn_started"] {
        assert_eq!(
            only(&events, wire_type)["actor"],
            json!({ "kind": "user", "id": "owner", "surface": "http" }),
            "{wire_type}"
        );
    }
    assert_eq!(only(&events, "model_output_completed")["actor"]["kind"], "agent");
}

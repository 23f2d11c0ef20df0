//! Sessions as a whole: what is shown, listed, updated, and made once.

use serde_json::{Value, json};
use tenure_wire as wire;

use crate::rig::{Daemon, call_step, only, text_step, types};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_shows_all_it_was_created_with() {
    let daemon = Daemon::start().await;
    let said = json!({
        "system_prompt": "be brief", "auto_run": false, "title": "A title", "role": "reviewer", "mode": "plan",
        "labels": ["squad-a", "x"], "memory": "project", "preferences": { "tone": "dry" },
        "budgets": { "max_steps": 7, "max_tokens": null },
        "policy": { "approval": { "attended": false }, "recovery": { "resume": "ask" } },
    });
    let session = daemon.create(said.clone()).await;
    let got = daemon.get(&format!("/v1/sessions/{session}")).await;
    assert_eq!(got.header("etag"), "\"1\"");
    let view = got.ok();
    for field in ["system_prompt", "auto_run", "title", "role", "mode", "labels", "memory", "preferences"] {
        assert_eq!(view[field], said[field], "{field}");
    }
    assert_eq!(view["workspace_path"], json!(daemon.workspace()));
    assert_eq!((&view["status"], &view["seq"], &view["turn"]), (&json!("active"), &json!(1), &Value::Null));
    assert_eq!((&view["queue"], &view["approvals"]), (&json!([]), &json!([])));
    assert_eq!((&view["model"], &view["cost_micro_usd"]), (&json!("scripted"), &json!(0)));
    let budgets = json!({ "max_steps": 7, "max_tool_calls": 500, "max_duration_ms": 7_200_000, "max_tokens": null, "max_micro_usd": null });
    assert_eq!(view["budgets"], budgets);
    assert_eq!(view["policy"]["approval"]["attended"], false);
    assert_eq!(view["policy"]["approval"]["require_for_kinds"], json!(["exec", "network"]));
    assert_eq!(view["policy"]["recovery"]["resume"], "ask");
    // The type that clients read it with fits.
    let typed: wire::SessionView = serde_json::from_value(view.clone()).unwrap();
    assert_eq!(serde_json::to_value(typed).unwrap(), view);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_under_way_shows_and_its_record_fits_the_clients_type() {
    let daemon = Daemon::start().await;
    let steps = json!([call_step("shell", json!({ "command": "true" })), text_step("over")]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "go").await;
    let queued = daemon.say(&session, "and then").await;
    let approval = daemon.approval(&session).await;
    let view = daemon.session(&session).await;
    // What an open turn has used is used, whether or not it ends.
    assert_eq!((&view["spent"]["steps"], &view["spent"]), (&json!(1), &view["turn"]["spent"]));
    assert!(view["usage"]["input_tokens"].as_u64().unwrap() > 0, "{view}");
    assert_eq!(view["turn"]["id"], json!(turn));
    assert_eq!(view["turn"]["status"], "waiting_approval");
    assert_eq!((&view["queue"], &view["last_turn_id"]), (&json!([queued]), &view["last_turn_id"]));
    assert_eq!(approval["turn_id"], json!(turn));
    for (field, value) in [("name", "shell"), ("kind", "exec"), ("subject", "true"), ("origin", "model")] {
        assert_eq!(approval[field], value);
    }
    assert_eq!(approval["input"], json!({ "command": "true" }));
    let record = daemon.rested(&session, &turn).await;
    assert_eq!(record["status"], "waiting_approval");
    let pending = daemon.get(&format!("/v1/sessions/{session}/turns/{queued}")).await.ok();
    assert_eq!(pending["status"], "pending");
    for record in [record, pending] {
        let typed: wire::TurnView = serde_json::from_value(record.clone()).unwrap();
        assert_eq!((typed.id.as_str(), typed.session_id.as_str()), (record["id"].as_str().unwrap(), session.as_str()));
    }
    let answer = json!({ "tool_call_id": approval["tool_call_id"], "action": "approve", "scope": "session" });
    let got = daemon.post(&format!("/v1/sessions/{session}/approve"), answer).await;
    let expected = json!({ "tool_call_id": approval["tool_call_id"], "action": "approve", "scope": "session" });
    assert_eq!((got.status, &got.body), (200, &expected));
    let record = daemon.rested(&session, &turn).await;
    daemon.completed(&record);
    assert_eq!(record["response"]["text"], "over");
    daemon.completed(&daemon.rested(&session, &queued).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_is_paged_newest_first_without_gap_or_double() {
    let daemon = Daemon::start().await;
    let empty = daemon.get("/v1/sessions").await.ok();
    assert_eq!(empty, json!({ "sessions": [], "next": null }));
    let mut made = Vec::new();
    for n in 0..5 {
        made.push(daemon.create(json!({ "title": format!("number {n}") })).await);
        // Ids of the same millisecond have no order between them.
        tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    }
    made.reverse();
    let mut found = Vec::new();
    let mut path = "/v1/sessions?limit=2".to_owned();
    loop {
        let page = daemon.get(&path).await.ok();
        let rows: Vec<wire::SessionRow> = serde_json::from_value(page["sessions"].clone()).unwrap();
        assert!(rows.len() <= 2);
        found.extend(rows.into_iter().map(|row| row.id));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/v1/sessions?limit=2&cursor={next}");
    }
    assert_eq!(found, made);
    // A page that ends exactly at the end names no next one.
    assert_eq!(daemon.get("/v1/sessions?limit=5").await.ok()["next"], Value::Null);
}

async fn patch(daemon: &Daemon, session: &str, if_match: Option<&str>, body: Value) -> crate::rig::Got {
    let mut request = daemon.request("PATCH", &format!("/v1/sessions/{session}")).json(&body);
    if let Some(version) = if_match {
        request = request.header("if-match", version);
    }
    daemon.send(request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_changes_what_it_names_and_nothing_else() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "policy": { "approval": { "attended": false } } })).await;
    let got = patch(&daemon, &session, Some("\"1\""), json!({ "title": "new", "labels": ["a"] })).await;
    assert_eq!((got.status, got.header("etag")), (200, "\"2\""));
    assert_eq!((&got.body["title"], &got.body["labels"], &got.body["seq"]), (&json!("new"), &json!(["a"]), &json!(2)));
    // Part of a policy leaves the rest of it as it is.
    let got = patch(&daemon, &session, Some("2"), json!({ "policy": { "verify": { "auto_verify": false } } })).await;
    let policy = &got.body["policy"];
    assert_eq!((&policy["verify"]["auto_verify"], &policy["approval"]["attended"]), (&json!(false), &json!(false)));
    let got = patch(&daemon, &session, None, json!({ "budgets": { "max_steps": 300 } })).await;
    assert_eq!((&got.body["budgets"]["max_steps"], &got.body["budgets"]["max_tool_calls"]), (&json!(300), &json!(500)));
    let got = patch(&daemon, &session, Some("*"), json!({ "budgets": { "max_steps": null } })).await;
    assert_eq!(got.body["budgets"]["max_steps"], Value::Null);
    patch(&daemon, &session, Some("\"2\""), json!({ "title": "late" })).await.refused(412, "version_mismatch");
    let view = daemon.session(&session).await;
    assert_eq!((&view["title"], &view["seq"]), (&json!("new"), &json!(5)));
    let nothing = patch(&daemon, &session, None, json!({})).await.ok();
    assert_eq!(nothing, view);
    let expected = ["session_created", "session_updated", "session_updated", "budget_raised", "budget_raised"];
    assert_eq!(types(&daemon.events(&session).await), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn updates_of_different_parts_of_a_policy_at_the_same_time_both_hold() {
    let daemon = Daemon::start().await;
    for _ in 0..10 {
        let session = daemon.create(json!({})).await;
        let one = patch(&daemon, &session, None, json!({ "policy": { "approval": { "attended": false } } }));
        let other = patch(&daemon, &session, None, json!({ "policy": { "verify": { "auto_verify": false } } }));
        let (one, other) = tokio::join!(one, other);
        assert_eq!((one.status, other.status), (200, 200));
        let policy = &daemon.session(&session).await["policy"];
        assert_eq!((&policy["approval"]["attended"], &policy["verify"]["auto_verify"]), (&json!(false), &json!(false)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_one_update() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let body = json!({ "title": "new", "policy": { "approval": { "attended": false } }, "idempotency_key": "k" });
    let first = patch(&daemon, &session, Some("\"1\""), body.clone()).await;
    assert_eq!((first.status, first.header("etag")), (200, "\"2\""));
    // The first answer, whatever became of it since.
    for title in ["new", "newer", "newest"] {
        let got = patch(&daemon, &session, Some("\"1\""), body.clone()).await;
        assert_eq!((got.status, got.header("etag"), &got.body), (200, "\"2\"", &first.body));
        if title != "new" {
            assert_eq!(patch(&daemon, &session, None, json!({ "title": title })).await.ok()["title"], title);
        }
    }
    let other = json!({ "title": "other", "idempotency_key": "k" });
    patch(&daemon, &session, None, other).await.refused(409, "key_reused");
    let events = daemon.events(&session).await;
    assert_eq!(types(&events), ["session_created", "session_updated", "session_updated", "session_updated"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_turn_goes_on_when_its_budget_is_raised() {
    let daemon = Daemon::start().await;
    let steps = json!([call_step("read_file", json!({ "path": "missing" })), text_step("over")]);
    let session = daemon.scripted(steps, json!({ "budgets": { "max_steps": 1 } })).await;
    let turn = daemon.say(&session, "go").await;
    assert_eq!(daemon.rested(&session, &turn).await["status"], "waiting_budget");
    patch(&daemon, &session, None, json!({ "budgets": { "max_steps": 5 } })).await.ok();
    daemon.completed(&daemon.rested(&session, &turn).await);
    let events = daemon.events(&session).await;
    assert_eq!(only(&events, "budget_reached")["data"]["reached"], json!({ "budget": "steps", "limit": 1, "used": 1 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_key_makes_one_session() {
    let daemon = Daemon::start().await;
    let body = daemon.create_body(json!({ "title": "once" }));
    let first = daemon.post_with_key("/v1/sessions", "key-1", body.clone()).await;
    let again = daemon.post_with_key("/v1/sessions", "key-1", body.clone()).await;
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.body, again.body);
    assert_eq!(first.header("location"), again.header("location"));
    // In the body it is the same key.
    let in_body = daemon.create_body(json!({ "title": "once", "idempotency_key": "key-1" }));
    assert_eq!(daemon.post("/v1/sessions", in_body).await.body, first.body);
    let other = daemon.create_body(json!({ "title": "other" }));
    daemon.post_with_key("/v1/sessions", "key-1", other).await.refused(409, "key_reused");
    let at_once = (0..8).map(|_| daemon.post_with_key("/v1/sessions", "key-2", body.clone()));
    let answers = futures::future::join_all(at_once).await;
    assert!(answers.iter().all(|got| got.status == 201 && got.body == answers[0].body), "{answers:?}");
    assert_eq!(daemon.get("/v1/sessions").await.ok()["sessions"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_gets_its_first_answer_when_the_folder_is_gone() {
    let daemon = Daemon::start().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let body = json!({ "workspace_path": path });
    let first = daemon.post_with_key("/v1/sessions", "key", body.clone()).await;
    let session = first.body["session_id"].as_str().unwrap().to_owned();
    let moves = || {
        let request = daemon.request("PATCH", &format!("/v1/sessions/{session}")).header("idempotency-key", "move");
        daemon.send(request.json(&json!({ "workspace_path": path, "title": "moved" })))
    };
    let moved = moves().await;
    assert_eq!((first.status, moved.status), (201, 200));
    drop(folder);
    let again = daemon.post_with_key("/v1/sessions", "key", body.clone()).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    let again = moves().await;
    assert_eq!((again.status, &again.body), (200, &moved.body));
    daemon.post_with_key("/v1/sessions", "another", body).await.refused(400, "bad_workspace");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_successes_keep_a_create_key() {
    let daemon = Daemon::start().await;
    let refused = daemon.create_body(json!({ "policy": { "compaction": { "from_percent": 0 } } }));
    daemon.post_with_key("/v1/sessions", "key", refused).await.refused(400, "unsupported_policy");
    let right = daemon.create_body(json!({}));
    assert_eq!(daemon.post_with_key("/v1/sessions", "key", right).await.status, 201);
}

//! S1's agent loop, step by step.

use std::{fs, path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::rig::{Daemon, PATIENCE, call_step, in_order, of_type, only, text_step};

pub async fn until_file(path: &Path) {
    let look = async {
        while !path.exists() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("{} does not come", path.display()));
}

/// 1. "Load session + AGENTS.md …": what was read is an event before the model is called.
#[tokio::test(flavor = "multi_thread")]
async fn step_1_agents_md_is_loaded_and_recorded() {
    let daemon = Daemon::start().await;
    fs::write(daemon.workspace().join("AGENTS.md"), "Speak plainly.\n").unwrap();
    let session = daemon.create(json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let events = daemon.events(&session).await;
    in_order(&events, &["turn_started", "context_seeded", "model_output_completed"]);
    let files = &only(&events, "context_seeded")["data"]["files"];
    assert_eq!(*files, json!([{ "path": "AGENTS.md", "text": "Speak plainly.\n" }]));
}

/// 2. "Resolve model via ai-kit registry + policy."
#[tokio::test(flavor = "multi_thread")]
async fn step_2_the_model_is_resolved_by_its_name() {
    let daemon = Daemon::start().await;
    let nobody = daemon.create_body(json!({ "model": "nobody/has-this" }));
    daemon.post("/v1/sessions", nobody).await.refused(400, "unknown_model");
    let session = daemon.create(json!({ "model": "scripted:/no/such/script.json" })).await;
    let turn = daemon.say(&session, "hi").await;
    let record = daemon.rested(&session, &turn).await;
    assert_eq!((&record["status"], &record["error"]["code"]), (&json!("failed"), &json!("unknown_model")), "{record}");
    let session = daemon.create(json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    let record = daemon.rested(&session, &turn).await;
    assert_eq!((&record["status"], &record["model"]), (&json!("completed"), &json!("scripted")));
}

/// 3. "Stream": text is shown while the model still speaks.
#[tokio::test(flavor = "multi_thread")]
async fn step_3_the_model_streams() {
    let daemon = Daemon::start().await;
    let gate = daemon.files.path().join("gate");
    let steps = json!([{ "do": [{ "text": "first " }, { "wait_for": gate }, { "text": "second" }] }]);
    let session = daemon.scripted(steps, json!({})).await;
    let mut stream = daemon.request("GET", &format!("/v1/sessions/{session}/events")).send().await.unwrap();
    let turn = daemon.say(&session, "go").await;
    let mut seen = String::new();
    while !seen.contains("\"first \"") {
        seen.push_str(
            std::str::from_utf8(&timeout(PATIENCE, stream.chunk()).await.unwrap().unwrap().unwrap()).unwrap(),
        );
    }
    assert!(!seen.contains("model_output_completed"));
    let record = daemon.get(&format!("/v1/sessions/{session}/turns/{turn}")).await.ok();
    assert_eq!(record["status"], "streaming");
    fs::write(gate, "").unwrap();
    let record = daemon.rested(&session, &turn).await;
    assert_eq!(record["response"]["text"], "first second");
}

/// 4. "When a tool call arrives, check policy and request approval if needed."
#[tokio::test(flavor = "multi_thread")]
async fn step_4_policy_decides_what_needs_a_yes() {
    let daemon = Daemon::start().await;
    fs::write(daemon.workspace().join("a"), "").unwrap();
    let policy = |approval: Value| json!({ "policy": { "approval": approval, "verify": { "auto_verify": false } } });
    let read = call_step("read_file", json!({ "path": "a" }));
    let write = call_step("write_file", json!({ "path": "b", "content": "" }));
    let shell = call_step("shell", json!({ "command": "git status" }));
    for (call, approval, asks) in [
        (&read, json!({}), false),
        (&write, json!({}), false),
        (&shell, json!({}), true),
        (&read, json!({ "require_for_kinds": ["read"] }), true),
        (&write, json!({ "require_for_tools": ["write_file"] }), true),
        (&shell, json!({ "require_for_kinds": [] }), false),
        (&shell, json!({ "rules": [{ "tool": "shell", "pattern": "git status*", "action": "allow" }] }), false),
        (&read, json!({ "rules": [{ "tool": "*", "action": "ask" }] }), true),
    ] {
        let session = daemon.scripted(json!([call, text_step("over")]), policy(approval.clone())).await;
        let turn = daemon.say(&session, "go").await;
        let expected = if asks { "waiting_approval" } else { "completed" };
        assert_eq!(daemon.rested(&session, &turn).await["status"], expected, "{call} under {approval}");
    }
    // A rule can also say no, and one who cannot be asked says no too.
    for approval in [json!({ "rules": [{ "tool": "shell", "action": "deny" }] }), json!({ "attended": false })] {
        let session = daemon.scripted(json!([shell, text_step("over")]), policy(approval)).await;
        let turn = daemon.say(&session, "go").await;
        daemon.completed(&daemon.rested(&session, &turn).await);
        let events = daemon.events(&session).await;
        assert_eq!(only(&events, "tool_call_completed")["data"]["outcome"], "not_run");
    }
}

/// 5. and 6. "Execute tool … and stream back tool results as `tool` messages. Repeat until …"
#[tokio::test(flavor = "multi_thread")]
async fn steps_5_and_6_results_go_back_to_the_model_until_it_is_done() {
    let daemon = Daemon::start().await;
    fs::write(daemon.workspace().join("a"), "the answer is in b\n").unwrap();
    fs::write(daemon.workspace().join("b"), "it is 42\n").unwrap();
    let steps = json!([
        call_step("read_file", json!({ "path": "a" })),
        { "cases": [{ "seen": "is in b", "do": [{ "call": { "name": "read_file", "input": { "path": "b" } } }] }] },
        { "cases": [{ "seen": "it is 42", "do": [{ "text": "42" }] }, { "do": [{ "text": "lost" }] }] },
    ]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "find it").await;
    let record = daemon.rested(&session, &turn).await;
    daemon.completed(&record);
    assert_eq!(record["response"]["text"], "42");
    assert_eq!((&record["spent"]["steps"], &record["spent"]["tool_calls"]), (&json!(3), &json!(2)));
}

/// What a running command prints is shown while it runs.
#[tokio::test(flavor = "multi_thread")]
async fn step_5_output_of_a_running_tool_is_streamed() {
    let daemon = Daemon::start().await;
    let steps = json!([
        call_step("shell", json!({ "command": "echo begun; while [ ! -e go ]; do sleep 0.02; done" })),
        text_step("over")
    ]);
    let session = daemon.scripted(steps, json!({ "policy": { "approval": { "require_for_kinds": [] } } })).await;
    let mut stream = daemon.request("GET", &format!("/v1/sessions/{session}/events")).send().await.unwrap();
    let turn = daemon.say(&session, "go").await;
    let mut seen = String::new();
    while !seen.contains("event: tool_output_delta") {
        seen.push_str(
            std::str::from_utf8(&timeout(PATIENCE, stream.chunk()).await.unwrap().unwrap().unwrap()).unwrap(),
        );
    }
    assert!(!seen.contains("tool_call_completed"));
    fs::write(daemon.workspace().join("go"), "").unwrap();
    daemon.completed(&daemon.rested(&session, &turn).await);
}

/// 7. "If the workspace changed and AutoVerify is enabled, run verification commands and, on failure, loop with failure context."
#[tokio::test(flavor = "multi_thread")]
async fn step_7_a_failed_verification_goes_back_to_the_model() {
    let daemon = Daemon::start().await;
    let write =
        |content: &str| json!({ "call": { "name": "write_file", "input": { "path": "a", "content": content } } });
    let steps = json!([
        { "do": [write("wrong")] },
        text_step("I think it is done."),
        { "cases": [{ "seen": "expected right", "do": [write("right")] }, { "do": [{ "text": "not told" }] }] },
        text_step("Mended."),
    ]);
    let command = "grep -qx right a || { echo expected right; exit 1; }";
    let session = daemon.scripted(steps, json!({ "policy": { "verify": { "commands": [command] } } })).await;
    let turn = daemon.say(&session, "make it right").await;
    let record = daemon.rested(&session, &turn).await;
    daemon.completed(&record);
    assert_eq!((&record["verification"], &record["response"]["text"]), (&json!("passed"), &json!("Mended.")));
    let events = daemon.events(&session).await;
    let verified =
        of_type(&events, "tool_call_completed").into_iter().filter(|event| event["data"]["name"] == "verify");
    let outcomes: Vec<&Value> = verified.map(|event| &event["data"]["ok"]).collect();
    assert_eq!(outcomes, [&json!(false), &json!(true)]);
}

/// The workspace's own command (`make test`) is found, and asked for before it runs.
#[tokio::test(flavor = "multi_thread")]
async fn step_7_commands_of_the_workspace_are_asked_for_once() {
    let daemon = Daemon::start().await;
    fs::write(daemon.workspace().join("Makefile"), "test:\n\t@true\n").unwrap();
    let steps = json!([call_step("write_file", json!({ "path": "a", "content": "x" })), text_step("written")]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "write").await;
    let approval = daemon.approval(&session).await;
    assert_eq!((&approval["name"], &approval["origin"]), (&json!("verify"), &json!("verify_policy")));
    assert_eq!(approval["subject"], "make test");
    let answer = json!({ "tool_call_id": approval["tool_call_id"], "action": "deny" });
    daemon.post(&format!("/v1/sessions/{session}/approve"), answer).await.ok();
    let record = daemon.rested(&session, &turn).await;
    daemon.completed(&record);
    assert_eq!(record["verification"], "denied");
}

/// With the policy off, or with nothing written, nothing is verified; with nothing to verify with, the turn says so.
#[tokio::test(flavor = "multi_thread")]
async fn step_7_verification_is_left_out_where_it_should_be() {
    let daemon = Daemon::start().await;
    let write = call_step("write_file", json!({ "path": "a", "content": "x" }));
    let read = call_step("read_file", json!({ "path": "a" }));
    for (call, verify, expected) in [
        (&write, json!({ "auto_verify": false, "commands": ["false"] }), "not_needed"),
        (&read, json!({ "commands": ["false"] }), "not_needed"),
        (&write, json!({}), "skipped"),
    ] {
        let policy = json!({ "policy": { "verify": verify } });
        let session = daemon.scripted(json!([call, text_step("over")]), policy).await;
        let turn = daemon.say(&session, "go").await;
        let record = daemon.rested(&session, &turn).await;
        assert_eq!((&record["status"], &record["verification"]), (&json!("completed"), &json!(expected)));
    }
}

/// 8. "Persist events, artifacts, and final session state": another daemon on the same folder tells the same.
#[tokio::test(flavor = "multi_thread")]
async fn step_8_everything_is_there_after_a_restart() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let steps = json!([call_step("read_file", json!({ "path": "missing" })), { "do": [{ "text": "told in pieces", "chunk": 4 }] }]);
    let session = daemon.scripted(steps, json!({ "title": "kept" })).await;
    let message = json!({ "parts": [{ "type": "text", "text": "go" }] });
    let path = format!("/v1/sessions/{session}/messages");
    let accepted = daemon.post_with_key(&path, "once", message.clone()).await.ok();
    let turn = accepted["turn_id"].as_str().unwrap();
    let record = daemon.rested(&session, turn).await;
    daemon.completed(&record);
    let (view, events) = (daemon.session(&session).await, daemon.events(&session).await);
    let list = listed(&daemon).await;
    let files = daemon.end().await;

    let daemon = Daemon::on_disk(files).await;
    assert_eq!(daemon.session(&session).await, view);
    assert_eq!(daemon.events(&session).await, events);
    assert_eq!(listed(&daemon).await, list);
    assert_eq!(daemon.get(&format!("/v1/sessions/{session}/turns/{turn}")).await.ok(), record);
    // The same key gets the first answer, and no second message is made.
    assert_eq!(daemon.post_with_key(&path, "once", message).await.ok(), accepted);
    assert_eq!(daemon.events(&session).await, events);
    daemon.end().await;
}

/// The list is a cache: its `updated_at` follows status, title and last turn, and only then the rest.
async fn listed(daemon: &Daemon) -> Value {
    let mut list = daemon.get("/v1/sessions").await.ok();
    for row in list["sessions"].as_array_mut().unwrap() {
        row.as_object_mut().unwrap().remove("updated_at").unwrap();
    }
    list
}

/// A pending approval is still pending after a restart.
#[tokio::test(flavor = "multi_thread")]
async fn step_8_a_pending_approval_outlives_the_daemon() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let steps = json!([call_step("shell", json!({ "command": "echo x >> ran" })), text_step("over")]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "go").await;
    let approval = daemon.approval(&session).await;
    let files = daemon.end().await;

    let daemon = Daemon::on_disk(files).await;
    assert_eq!(daemon.approval(&session).await, approval);
    let answer = json!({ "turn_id": turn, "tool_call_id": approval["tool_call_id"], "action": "approve" });
    daemon.post(&format!("/v1/sessions/{session}/approve"), answer).await.ok();
    daemon.completed(&daemon.rested(&session, &turn).await);
    assert_eq!(fs::read_to_string(daemon.workspace().join("ran")).unwrap(), "x\n");
    daemon.end().await;
}

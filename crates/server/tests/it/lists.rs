//! What is asked of many things at once: sessions by filter and by word, messages page by page, tools, usage, metrics.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_wire as wire;

use crate::rig::{Daemon, call_step, text_step, types};

/// The ids of a list, following its pages.
async fn listed(daemon: &Daemon, query: &str) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let at = cursor.map(|cursor| format!("&cursor={cursor}")).unwrap_or_default();
        let page = daemon.get(&format!("/v1/sessions?{query}{at}")).await.ok();
        let typed: wire::SessionList = serde_json::from_value(page).unwrap();
        ids.extend(typed.sessions.into_iter().map(|row| row.id));
        cursor = typed.next;
        if cursor.is_none() {
            return ids;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_found_by_what_is_known_of_them() {
    let daemon = Daemon::start().await;
    let a = daemon.create(json!({ "labels": ["red", "blue"], "role": "reviewer", "title": "Mend the door" })).await;
    let b = daemon.create(json!({ "labels": ["blue"], "role": "writer" })).await;
    let c = daemon.create(json!({})).await;
    daemon.post(&format!("/v1/sessions/{b}/end"), json!({})).await.ok();
    for (query, expected) in [
        ("limit=1", vec![&c, &b, &a]),
        ("label=blue", vec![&b, &a]),
        ("label=blue&limit=1", vec![&b, &a]),
        ("label=blu", vec![]),
        ("role=reviewer", vec![&a]),
        ("status=completed", vec![&b]),
        ("status=active", vec![&c, &a]),
        ("status=active&label=blue", vec![&a]),
        ("status=failed", vec![]),
        ("text=THE%20Door", vec![&a]),
        ("workspace_path=/nowhere", vec![]),
    ] {
        assert_eq!(listed(&daemon, query).await.iter().collect::<Vec<_>>(), expected, "{query}");
    }
    let row = &daemon.get("/v1/sessions?role=reviewer").await.ok()["sessions"][0];
    assert_eq!((&row["labels"], &row["role"]), (&json!(["red", "blue"]), &json!("reviewer")));
    // A change of labels shows at once.
    let patched =
        daemon.send(daemon.request("PATCH", &format!("/v1/sessions/{c}")).json(&json!({ "labels": ["red"] })));
    patched.await.ok();
    assert_eq!(listed(&daemon, "label=red").await, [c, a]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_found_by_words_of_their_conversation_also_after_a_restart() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let said = daemon.scripted(json!([text_step("Certainly.")]), json!({})).await;
    let answered = daemon.scripted(json!([text_step("Look at the Zeppelin, \"friend\".")]), json!({})).await;
    let printed = json!([call_step("shell", json!({ "command": "echo zep; echo pelin" })), text_step("over")]);
    let free = json!({ "policy": { "approval": { "require_for_kinds": [] } } });
    let printed = daemon.scripted(printed, free).await;
    for (session, text) in [(&said, "Where is my zeppelin?"), (&answered, "hm"), (&printed, "go")] {
        let turn = daemon.say(session, text).await;
        daemon.completed(&daemon.rested(session, &turn).await);
    }
    let both = vec![answered.clone(), said.clone()];
    assert_eq!(listed(&daemon, "text=zeppelin").await, both);
    assert_eq!(listed(&daemon, "text=zeppelin&limit=1").await, both);
    assert_eq!(listed(&daemon, "text=%22friend%22").await, [answered]);
    assert_eq!(listed(&daemon, "text=pelin%22%7D").await, Vec::<String>::new());
    let again = Daemon::on_disk(daemon.end().await).await;
    assert_eq!(listed(&again, "text=zeppelin").await, both);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_is_read_page_by_page() {
    let daemon = Daemon::start().await;
    let steps = json!([call_step("read_file", json!({ "path": "notes.txt" })), text_step("Two lines.")]);
    std::fs::write(daemon.workspace().join("notes.txt"), "one\ntwo\n").unwrap();
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "Read it.").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let (mut messages, mut cursor) = (Vec::<wire::Message>::new(), String::new());
    loop {
        let page = daemon.get(&format!("/v1/sessions/{session}/messages?limit=1{cursor}")).await.ok();
        let page: wire::MessageList = serde_json::from_value(page).unwrap();
        assert_eq!(page.messages.len(), 1);
        messages.extend(page.messages);
        let Some(next) = page.next else { break };
        cursor = format!("&cursor={next}");
    }
    let roles: Vec<_> = messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [wire::Role::User, wire::Role::Assistant, wire::Role::Tool, wire::Role::Assistant]);
    assert_eq!(messages[0].parts, [wire::Part::text("Read it.")]);
    assert_eq!(messages[1].tool_calls[0].name, "read_file");
    assert_eq!(messages[1].tool_calls[0].input, json!({ "path": "notes.txt" }));
    assert_eq!((messages[2].name.as_deref(), messages[2].ok), (Some("read_file"), Some(true)));
    assert_eq!(messages[2].id, messages[1].tool_calls[0].id);
    assert_eq!(messages[3].parts, [wire::Part::text("Two lines.")]);
    assert!(messages.iter().all(|message| message.turn_id.as_deref() == Some(&turn)));
    let whole = daemon.get(&format!("/v1/sessions/{session}/messages")).await.ok();
    assert_eq!(whole["messages"], json!(messages));
    for (query, code) in
        [("limit=0", "bad_query"), ("limit=201", "bad_query"), ("cursor=x", "bad_cursor"), ("x=1", "bad_query")]
    {
        daemon.get(&format!("/v1/sessions/{session}/messages?{query}")).await.refused(400, code);
    }
    daemon.get("/v1/sessions/sess_01J00000000000000000000000/messages").await.refused(404, "unknown_session");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_long_messages_ends_early_and_says_so() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({ "auto_run": false })).await;
    for _ in 0..9 {
        let body = json!({ "parts": [{ "type": "text", "text": "x".repeat(1_000_000) }] });
        assert_eq!(daemon.post(&format!("/v1/sessions/{session}/messages"), body).await.status, 202);
    }
    let first = daemon.get(&format!("/v1/sessions/{session}/messages?limit=200")).await.ok();
    let count = |page: &Value| page["messages"].as_array().unwrap().len();
    assert!((1..9).contains(&count(&first)), "{} messages", count(&first));
    let next = first["next"].as_str().unwrap();
    let second = daemon.get(&format!("/v1/sessions/{session}/messages?limit=200&cursor={next}")).await.ok();
    assert_eq!((count(&first) + count(&second), &second["next"]), (9, &Value::Null));
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_are_named_with_what_they_take() {
    let daemon = Daemon::start().await;
    let list: wire::ToolList = serde_json::from_value(daemon.get("/v1/tools").await.ok()).unwrap();
    let asked = |name: &str| list.tools.iter().find(|tool| tool.name == name).unwrap().requires_approval;
    assert!(asked("shell") && !asked("read_file") && !asked("write_file"));
    assert!(asked("fetch_url") && asked("diagram") && !asked("git_status") && !asked("search") && !asked("repo_tree"));
    let shell = list.tools.iter().find(|tool| tool.name == "shell").unwrap();
    assert_eq!((shell.kind.as_str(), &shell.input_schema["required"]), ("exec", &json!(["command"])));
}

#[tokio::test(flavor = "multi_thread")]
async fn usage_is_the_sum_of_all_sessions_also_after_a_restart() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let model = json!([{ "do": [{ "text": "over" }, { "usage": { "input_tokens": 10, "output_tokens": 4 } }] }]);
    for label in ["a", "b"] {
        let session = daemon.scripted(model.clone(), json!({ "labels": [label] })).await;
        let turn = daemon.say(&session, "go").await;
        daemon.completed(&daemon.rested(&session, &turn).await);
    }
    let expect = |view: Value, sessions: usize| {
        let view: wire::UsageView = serde_json::from_value(view).unwrap();
        assert_eq!((view.sessions, view.spent.steps), (sessions, sessions as u64));
        assert_eq!(view.spent.usage.input_tokens, 10 * sessions as u64);
        assert_eq!(view.spent.usage.output_tokens, 4 * sessions as u64);
        assert_eq!(view.cost_micro_usd, Some(0));
    };
    expect(daemon.get("/v1/usage").await.ok(), 2);
    expect(daemon.get("/v1/usage?label=a").await.ok(), 1);
    daemon.get("/v1/usage?status=odd").await.refused(400, "bad_query");
    let again = Daemon::on_disk(daemon.end().await).await;
    expect(again.get("/v1/usage").await.ok(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_happened() {
    let daemon = Daemon::start().await;
    let session = daemon.scripted(json!([text_step("Hello.")]), json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    daemon.get("/v1/nothing").await.refused(404, "unknown_path");
    let got = daemon.get("/metrics").await;
    assert_eq!((got.status, got.header("content-type")), (200, "text/plain; version=0.0.4; charset=utf-8"));
    let Value::String(page) = got.body else { panic!("metrics are text") };
    for line in [
        "tenure_ready 1",
        "tenure_events_total{type=\"session_created\"} 1",
        "tenure_events_total{type=\"turn_completed\"} 1",
        "tenure_events_total{type=\"turn_failed\"} 0",
        "tenure_sessions_warm 1",
        "tenure_turns_open 0",
        "tenure_http_responses_total{code=\"201\"} 1",
        "tenure_http_responses_total{code=\"404\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    let deltas: u64 = page.lines().find_map(|line| line.strip_prefix("tenure_deltas_total ")).unwrap().parse().unwrap();
    assert!(deltas > 0);
    for name in ["process_resident_memory_bytes", "process_open_fds", "process_threads"] {
        assert!(page.contains(&format!("\n{name} ")), "{name}");
    }
    // Every value has a head, and every head stands once.
    let heads: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    let unique: std::collections::BTreeSet<&&str> = heads.iter().collect();
    assert_eq!(unique.len(), heads.len());
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(heads.contains(&name), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_some_types_has_these_alone_and_goes_on_where_it_was() {
    let daemon = Daemon::start().await;
    let session = daemon.scripted(json!([text_step("Hello.")]), json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let read = async |query: &str| {
        let path = format!("/v1/sessions/{session}/events?follow=false&{query}");
        let request = daemon.request("GET", &path).header("accept", "application/x-ndjson");
        let text = request.send().await.unwrap().text().await.unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let some = read("types=turn_started,%20turn_completed").await;
    assert_eq!(types(&some), ["turn_started", "turn_completed"]);
    let after = some[0]["seq"].as_u64().unwrap();
    assert_eq!(types(&read(&format!("types=turn_started,turn_completed&after={after}")).await), ["turn_completed"]);
    let deltas = read("types=model_output_delta").await;
    assert!(!deltas.is_empty() && deltas.iter().all(|delta| delta["type"] == "model_output_delta"));
    for bad in ["turn_begun", "", "turn_started,,x"] {
        daemon.get(&format!("/v1/sessions/{session}/events?follow=false&types={bad}")).await.refused(400, "bad_query");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delete_ends_a_session_once() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let delete = async || daemon.send(daemon.request("DELETE", &format!("/v1/sessions/{session}"))).await;
    let got = delete().await;
    assert_eq!((got.status, &got.body["status"]), (202, &json!("completed")));
    let got = delete().await;
    assert_eq!((got.status, &got.body["status"]), (200, &json!("completed")));
    let events = daemon.events(&session).await;
    assert_eq!(types(&events).iter().filter(|kind| **kind == "session_completed").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keyed_delete_gets_its_first_answer_again() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let path = format!("/v1/sessions/{session}");
    let delete = async |key| daemon.send(daemon.request("DELETE", &path).header("idempotency-key", key)).await;
    let (first, again) = (delete("k").await, delete("k").await);
    assert_eq!((first.status, &first.body["status"]), (202, &json!("completed")));
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    let other = delete("another").await;
    assert_eq!((other.status, &other.body["status"]), (200, &json!("completed")));
}

/// The events of a stream that is read to its end: the cursor and the envelope of each.
async fn feed(daemon: &Daemon, query: &str) -> Vec<(String, Value)> {
    let request = daemon.request("GET", &format!("/v1/events?follow=false{query}"));
    let text = request.send().await.unwrap().text().await.unwrap();
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(name)).expect("a whole event").to_owned();
        line.strip_prefix(": ").unwrap().to_owned()
    };
    let blocks = text.split("\n\n").filter(|block| !block.is_empty());
    blocks.map(|block| (field(block, "id"), serde_json::from_str(&field(block, "data")).unwrap())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn all_sessions_are_followed_at_the_level_of_their_status() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    assert_eq!(feed(&daemon, "").await, []);
    // Somebody who watches is told at once.
    let request = daemon.request("GET", "/v1/events").header("accept", "application/x-ndjson");
    let mut live = request.send().await.unwrap();
    let Value::String(page) = daemon.get("/metrics").await.body else { panic!("metrics are text") };
    assert!(page.contains("\ntenure_subscribers 1\n"), "who watches all sessions is a client too");
    let first = daemon.scripted(json!([text_step("Hello.")]), json!({})).await;
    let second = daemon.scripted(json!([text_step("Hello.")]), json!({})).await;
    for session in [&first, &second] {
        let turn = daemon.say(session, "hi").await;
        daemon.completed(&daemon.rested(session, &turn).await);
    }
    let mut told = String::new();
    while told.lines().count() < 6 {
        let chunk = tokio::time::timeout(std::time::Duration::from_secs(20), live.chunk()).await.unwrap().unwrap();
        told.push_str(std::str::from_utf8(&chunk.expect("the stream goes on")).unwrap());
    }
    let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for session in [&first, &second] {
        let own: Vec<Value> = told.iter().filter(|event| event["session_id"] == json!(session)).cloned().collect();
        assert_eq!(types(&own), ["session_created", "turn_started", "turn_completed"]);
        // It is the event of the log, word by word.
        let all = daemon.events(session).await;
        assert!(own.iter().all(|event| all.contains(event)));
    }
    // A watcher that comes back goes on where it was.
    let begin = feed(&daemon, "&after=0-0").await;
    assert_eq!(begin.len(), 1);
    assert_eq!(begin[0].1["type"], "stream_reset");
    let place = begin[0].0.clone();
    assert_eq!(feed(&daemon, &format!("&after={place}")).await, []);
    let third = daemon.create(json!({})).await;
    daemon.post(&format!("/v1/sessions/{third}/end"), json!({})).await.ok();
    let more = feed(&daemon, &format!("&after={place}")).await;
    let events: Vec<Value> = more.iter().map(|(_, event)| event.clone()).collect();
    assert_eq!(types(&events), ["session_created", "session_completed"]);
    let rest = feed(&daemon, &format!("&after={}", more[0].0)).await;
    assert_eq!(rest, more[1..]);
    let some = feed(&daemon, &format!("&after={place}&types=session_completed")).await;
    assert_eq!(some, more[1..]);
    for bad in ["after=x", "after=1-", "types=odd", "x=1"] {
        assert_eq!(daemon.get(&format!("/v1/events?{bad}")).await.status, 400, "{bad}");
    }
    // Another life of the daemon says that something may be missing.
    let again = Daemon::on_disk(daemon.end().await).await;
    let after = feed(&again, &format!("&after={place}")).await;
    assert_eq!((after.len(), &after[0].1["type"]), (1, &json!("stream_reset")));
}

//! A session whose log is damaged tells so, wherever it is read: what is missing, from where, why, and what to do.

use std::{path::PathBuf, sync::Arc};

use serde_json::{Value, json};

use crate::rig::{Daemon, of_type, text_step, types};

/// A session of two turns whose log has a bad line in the second one, in a daemon that has just started.
async fn damaged() -> (Daemon, String, usize) {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = daemon.scripted(json!([text_step("one"), text_step("two")]), json!({ "title": "Good" })).await;
    for text in ["first words", "second words"] {
        let turn = daemon.say(&session, text).await;
        daemon.completed(&daemon.rested(&session, &turn).await);
    }
    let log = log_of(&daemon, &session);
    let files = daemon.end().await;
    let text = std::fs::read_to_string(&log).unwrap();
    let good = text.lines().position(|line| line.contains("second words")).unwrap();
    std::fs::write(&log, text.replacen("second words", "second wards", 1)).unwrap();
    std::fs::remove_file(log.with_file_name("session.json")).unwrap();
    (Daemon::on_disk(files).await, session, good)
}

fn log_of(daemon: &Daemon, session: &str) -> PathBuf {
    daemon.data().join("sessions").join(session).join("events.ndjson")
}

/// What is said of a log that cannot be read further.
#[track_caller]
fn tells(damage: &Value, from_seq: usize) {
    assert_eq!((&damage["kind"], &damage["from_seq"]), (&json!("unreadable"), &json!(from_seq)), "{damage}");
    assert!(damage["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{damage}");
    let hint = damage["hint"].as_str().unwrap();
    assert!(hint.contains("tenure session fork") && hint.contains("tenure store repair"), "{hint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_read_it_tells() {
    let (daemon, session, good) = damaged().await;
    let view = daemon.session(&session).await;
    assert_eq!((&view["status"], &view["seq"]), (&json!("failed"), &json!(good)));
    tells(&view["damage"][0], good + 1);
    // The messages before it, and what comes behind the last of them.
    let path = format!("/v1/sessions/{session}/messages");
    let page = daemon.get(&path).await.ok();
    assert_eq!((page["messages"].as_array().unwrap().len(), &page["next"]), (2, &Value::Null));
    tells(&page["damage"][0], good + 1);
    let first = daemon.get(&format!("{path}?limit=1")).await.ok();
    assert!(first.get("damage").is_none(), "there is more to read first: {first}");
    // The stream ends with a word of its own, whatever was asked for, whether or not it is followed.
    for query in ["follow=false", "follow=true", "follow=false&types=turn_started", "follow=false&after=2"] {
        let request = daemon.request("GET", &format!("/v1/sessions/{session}/events?{query}"));
        let response = request.header("accept", "application/x-ndjson").send().await.unwrap();
        let text = response.text().await.unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((&last["type"], &last["seq"]), (&json!("log_damaged"), &json!(good)), "{query}: {text}");
        tells(&last["data"], good + 1);
    }
    let events = daemon.events(&session).await;
    assert_eq!(of_type(&events, "log_damaged").len(), 1, "{:?}", types(&events));
    // Whoever wants to go on behind it is refused, and shown the way.
    let message = json!({ "parts": [{ "type": "text", "text": "more" }] });
    let refused = daemon.post(&path, message).await;
    refused.refused(409, "session_damaged");
    assert!(refused.body["hint"].as_str().unwrap().contains("tenure session fork"), "{refused:?}");
    for after in [good, good + 1] {
        daemon.get(&format!("/v1/sessions/{session}/events?after={after}")).await.refused(409, "session_damaged");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_goes_on_from_the_last_good_event() {
    let (daemon, session, good) = damaged().await;
    let fork = daemon.post(&format!("/v1/sessions/{session}/fork"), json!({})).await.ok();
    assert_eq!(fork["forked_from"]["seq"], json!(good));
    let copy = fork["session_id"].as_str().unwrap();
    let view = daemon.session(copy).await;
    assert!(view.get("damage").is_none(), "{view}");
    let turn = daemon.say(copy, "and now?").await;
    daemon.completed(&daemon.rested(copy, &turn).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_behind_the_end_is_refused() {
    let daemon = Daemon::start().await;
    let session = daemon.scripted(json!([text_step("x")]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    daemon.rested(&session, &turn).await;
    let seq = daemon.session(&session).await["seq"].as_u64().unwrap();
    let path = format!("/v1/sessions/{session}/events?follow=false");
    assert_eq!(daemon.get(&format!("{path}&after={seq}")).await.status, 200);
    for after in [format!("{}", seq + 1), format!("{}.7", seq + 1), format!("{}", u64::MAX)] {
        let got = daemon.get(&format!("{path}&after={after}")).await;
        got.refused(400, "bad_cursor");
        assert!(got.body["detail"].as_str().unwrap().contains(&format!("its last one is {seq}")), "{got:?}");
        let by_header = daemon.request("GET", &path).header("last-event-id", after);
        daemon.send(by_header).await.refused(400, "bad_cursor");
    }
}

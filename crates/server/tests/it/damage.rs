//! A session whose log is damaged tells so, wherever it is read: what is missing, from where, why, and what to do.

use std::{path::PathBuf, sync::Arc};

use serde_json::{Value, json};

use crate::{
    copies::full_session,
    rig::{Daemon, of_type, text_step, types},
};

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
    assert_eq!(daemon.get("/v1/sessions").await.ok()["sessions"][0]["status"], "failed", "as it is shown alone");
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

/// The files of a session that people can ask for.
async fn files(daemon: &Daemon, session: &str) -> Vec<String> {
    let mut names = Vec::new();
    for kind in ["attachments", "artifacts"] {
        let list = daemon.get(&format!("/v1/sessions/{session}/{kind}")).await.ok();
        names.extend(list[kind].as_array().unwrap().iter().map(|file| file["ref"].as_str().unwrap().to_owned()));
    }
    names
}

/// A file that is not what was kept is not handed out: not whole, not in part, not as known, and to no fork.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changed_on_the_disk_is_not_handed_out() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = full_session(&daemon).await;
    let names = files(&daemon, &session).await;
    assert_eq!(names.len(), 2, "{names:?}");
    let folder = daemon.data().join("sessions").join(&session);
    for name in &names {
        let path = format!("/v1/sessions/{session}/{name}");
        let good = std::fs::read(folder.join(name)).unwrap();
        let whole = daemon.get(&path).await;
        assert_eq!(whole.status, 200, "{whole:?}");
        let mut bad = good.clone();
        bad[good.len() / 2] ^= 4;
        let shorter = good[..good.len() - 1].to_vec();
        for bad in [Some(bad), Some(shorter), None] {
            match bad {
                Some(bad) => std::fs::write(folder.join(name), bad).unwrap(),
                None => std::fs::remove_file(folder.join(name)).unwrap(),
            }
            for (header, value) in [
                ("x-nothing", ""),
                ("range", "bytes=0-1"),
                ("if-none-match", "*"),
                ("if-none-match", whole.header("etag")),
            ] {
                let got = daemon.send(daemon.request("GET", &path).header(header, value)).await;
                got.refused(409, "file_damaged");
                assert!(got.body["hint"].as_str().unwrap().contains("tenure store repair"), "{got:?}");
            }
        }
    }
    let forked = daemon.post_with_key(&format!("/v1/sessions/{session}/fork"), "k", json!({})).await.ok();
    let mut missing = names.clone();
    missing.sort_unstable();
    assert_eq!(forked["missing"], json!(missing));
    let again = daemon.post_with_key(&format!("/v1/sessions/{session}/fork"), "k", json!({})).await.ok();
    assert_eq!(again, forked, "a repeated request gets the first answer");
    let fork = forked["session_id"].as_str().unwrap();
    for name in &names {
        daemon.get(&format!("/v1/sessions/{fork}/{name}")).await.refused(409, "file_damaged");
    }
    let notices = daemon.engine.notices();
    for name in &names {
        assert_eq!(notices.iter().filter(|notice| notice.contains(name) && notice.contains(&session)).count(), 2);
    }
    // Whoever has the file still gives it again, and it is what it was.
    let file = json!({ "name": "notes.txt", "mime_type": "text/plain", "data": "aGVsbG8K" });
    daemon.post(&format!("/v1/sessions/{session}/attachments"), file).await.ok();
    assert_eq!(daemon.get(&format!("/v1/sessions/{session}/{}", names[0])).await.ok(), json!("hello\n"));
}

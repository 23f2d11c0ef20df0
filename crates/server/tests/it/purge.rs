//! `DELETE …?purge=true`: a session and all that belongs to it is gone for good.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    copies::{export, import},
    rig::{Daemon, Got, text_step},
};

async fn purge(daemon: &Daemon, session: &str) -> Got {
    daemon.send(daemon.request("DELETE", &format!("/v1/sessions/{session}?purge=true"))).await
}

async fn rows(daemon: &Daemon) -> Vec<Value> {
    daemon.get("/v1/sessions").await.ok()["sessions"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_at_work_is_ended_and_deleted_and_others_go_on() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let steps = json!([{ "do": [{ "text": "begun" }, { "stall": true }] }]);
    let session = daemon.scripted(steps, json!({ "title": "find me" })).await;
    let other = daemon.scripted(json!([text_step("here")]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    daemon.get(&format!("/v1/sessions/{session}/turns/{turn}")).await.ok();
    let archive = daemon.get(&format!("/v1/sessions/{other}/export")).await;
    assert_eq!(archive.status, 200);
    assert_eq!(purge(&daemon, &session).await.ok(), json!({ "status": "purged" }));
    for path in ["", "/events?follow=false", "/messages", "/artifacts"] {
        daemon.get(&format!("/v1/sessions/{session}{path}")).await.refused(410, "session_purged");
    }
    let said = json!({ "parts": [{ "type": "text", "text": "hello?" }] });
    daemon.post(&format!("/v1/sessions/{session}/messages"), said).await.refused(410, "session_purged");
    purge(&daemon, &session).await.refused(410, "session_purged");
    assert_eq!(rows(&daemon).await.iter().map(|row| row["id"].clone()).collect::<Vec<_>>(), [json!(other)]);
    assert!(!daemon.data().join("sessions").join(&session).exists());
    assert_eq!(std::fs::read_dir(daemon.data().join("trash")).unwrap().count(), 0);
    let turn = daemon.say(&other, "go on").await;
    assert_eq!(daemon.rested(&other, &turn).await["response"]["text"], "here");
    let daemon = Daemon::on_disk(daemon.end().await).await;
    assert_eq!(rows(&daemon).await.len(), 1, "also after a restart");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_delete_it_one_has_done_it() {
    let daemon = Daemon::start().await;
    let session = daemon.scripted(json!([text_step("x")]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    daemon.rested(&session, &turn).await;
    // Others talk to it meanwhile.
    let said = json!({ "parts": [{ "type": "text", "text": "and?" }] });
    let path = format!("/v1/sessions/{session}/messages");
    let talking = futures::future::join_all((0..10).map(|_| daemon.post(&path, said.clone())));
    let deleting = futures::future::join_all((0..10).map(|_| purge(&daemon, &session)));
    let (told, deleted) = tokio::join!(talking, deleting);
    assert!(told.iter().all(|got| matches!(got.status, 202 | 409 | 410)), "{told:?}");
    let done = deleted.iter().filter(|got| got.status == 200).count();
    assert!(done >= 1 && deleted.iter().all(|got| matches!(got.status, 200 | 410)), "{deleted:?}");
    daemon.get(&format!("/v1/sessions/{session}")).await.refused(410, "session_purged");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_follows_it_is_let_go() {
    let daemon = Daemon::start().await;
    let session = daemon.scripted(json!([text_step("x")]), json!({})).await;
    let mut followed = daemon.request("GET", &format!("/v1/sessions/{session}/events")).send().await.unwrap();
    assert!(followed.chunk().await.unwrap().is_some(), "the first event comes");
    purge(&daemon, &session).await.ok();
    // It is cut, not ended: a client that comes back is told that there is no such session.
    let rest = async { while let Ok(Some(_)) = followed.chunk().await {} };
    tokio::time::timeout(std::time::Duration::from_secs(60), rest).await.expect("it is cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_damaged_can_be_deleted_too() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = daemon.scripted(json!([text_step("x")]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    daemon.rested(&session, &turn).await;
    let log = daemon.data().join("sessions").join(&session).join("events.ndjson");
    let files = daemon.end().await;
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[40] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    std::fs::remove_file(log.with_file_name("session.json")).unwrap();
    let daemon = Daemon::on_disk(files).await;
    daemon.get(&format!("/v1/sessions/{session}")).await.refused(409, "session_damaged");
    purge(&daemon, &session).await.ok();
    daemon.get(&format!("/v1/sessions/{session}")).await.refused(410, "session_purged");
    assert!(!log.exists());
}

/// Whatever is said to it again is answered alike, as long as it is known that it was there.
#[tokio::test(flavor = "multi_thread")]
async fn requests_with_keys_are_told_as_others_are() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = daemon.scripted(json!([text_step("x")]), json!({})).await;
    let path = format!("/v1/sessions/{session}");
    let (messages, said) = (format!("{path}/messages"), json!({ "parts": [{ "type": "text", "text": "go" }] }));
    daemon.post_with_key(&messages, "m", said.clone()).await.ok();
    let delete = || daemon.send(daemon.request("DELETE", &format!("{path}?purge=true")).header("idempotency-key", "d"));
    delete().await.ok();
    for _ in 0..2 {
        delete().await.refused(410, "session_purged");
        daemon.post_with_key(&messages, "m", said.clone()).await.refused(410, "session_purged");
        daemon.post_with_key(&messages, "other", said.clone()).await.refused(410, "session_purged");
        daemon.get(&format!("{path}/events")).await.refused(410, "session_purged");
    }
    daemon.get("/v1/sessions/sess_01J00000000000000000000000").await.refused(404, "unknown_session");
}

/// Whoever repeats the request that made it is told that it is gone; nothing empty comes in its place.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_deleted_session_does_not_make_it_anew() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let body = daemon.create_body(json!({ "title": "once" }));
    let origin = daemon.create(json!({})).await;
    let fork = format!("/v1/sessions/{origin}/fork");
    let made = [("/v1/sessions", body), (fork.as_str(), json!({}))];
    for (path, body) in &made {
        let first = daemon.post_with_key(path, "k", body.clone()).await.ok();
        assert_eq!(daemon.post_with_key(path, "k", body.clone()).await.ok(), first);
        purge(&daemon, first["session_id"].as_str().unwrap()).await.ok();
    }
    let files = daemon.end().await;
    let daemon = Daemon::on_disk(files).await;
    for (path, body) in &made {
        daemon.post_with_key(path, "k", body.clone()).await.refused(410, "session_purged");
        daemon.post_with_key(path, "k", json!({ "title": "other", "workspace_path": daemon.workspace() })).await;
        daemon.post_with_key(path, "another", body.clone()).await.ok();
    }
    assert_eq!(rows(&daemon).await.len(), 3);
}

/// One that is gone from the disk though nobody deleted it: its key tells of the loss, and makes nothing empty of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_lost_session_does_not_make_it_anew() {
    for stopped in [false, true] {
        let mut daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
        let body = daemon.create_body(json!({ "title": "precious" }));
        let origin = daemon.create(json!({})).await;
        let fork = format!("/v1/sessions/{origin}/fork");
        let made = [("/v1/sessions", body), (fork.as_str(), json!({}))];
        let mut ids = Vec::new();
        for (path, body) in &made {
            let first = daemon.post_with_key(path, "k", body.clone()).await.ok();
            ids.push(first["session_id"].as_str().unwrap().to_owned());
        }
        let places: Vec<_> = ids.iter().map(|id| daemon.data().join("sessions").join(id)).collect();
        match stopped {
            true => {
                let files = daemon.end().await;
                places.iter().for_each(|place| std::fs::remove_dir_all(place).unwrap());
                daemon = Daemon::on_disk(files).await;
            }
            false => places.iter().for_each(|place| std::fs::remove_dir_all(place).unwrap()),
        }
        for (path, body) in &made {
            for _ in 0..2 {
                daemon.post_with_key(path, "k", body.clone()).await.refused(409, "session_damaged");
            }
            daemon.post_with_key(path, "another", body.clone()).await.ok();
        }
        assert!(places.iter().all(|place| !place.exists()), "nothing came in its place");
        assert_eq!(rows(&daemon).await.len(), 3, "what is gone is not listed");
    }
}

/// `store gc` of an ended session is a deletion like another.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_a_session_that_was_cleaned_up_does_not_make_it_anew() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let body = daemon.create_body(json!({ "title": "once" }));
    let made = daemon.post_with_key("/v1/sessions", "k", body.clone()).await.ok();
    let path = format!("/v1/sessions/{}", made["session_id"].as_str().unwrap());
    daemon.send(daemon.request("DELETE", &path)).await.ok();
    let data = daemon.data();
    let files = daemon.end().await;
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    let options = tenure_store::upkeep::GcOptions {
        now: tenure_core::time::Timestamp::from_ms(now + 1000),
        older_than: std::time::Duration::from_secs(1000),
        sessions_ended_before: Some(std::time::Duration::ZERO),
    };
    let gc = tenure_store::upkeep::gc(&data, &options, &mut |_, _| {}).unwrap();
    assert_eq!(gc.removed.len(), 1, "{gc:?}");
    let daemon = Daemon::on_disk(files).await;
    daemon.post_with_key("/v1/sessions", "k", body).await.refused(410, "session_purged");
    daemon.get(&path).await.refused(410, "session_purged");
}

/// An archive brings back what was deleted, with a key as without one; a key of before does not.
#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_session_comes_back_from_an_archive() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = daemon.create(json!({ "title": "back" })).await;
    let archive = export(&daemon, &session).await;
    let keyed = |key: &str| {
        let request = daemon.request("POST", "/v1/sessions/import").header("idempotency-key", key);
        daemon.send(request.header("content-type", "application/gzip").body(archive.clone()))
    };
    purge(&daemon, &session).await.ok();
    assert_eq!(keyed("first").await.status, 201);
    assert_eq!(keyed("first").await.status, 201, "the same answer again");
    purge(&daemon, &session).await.ok();
    keyed("first").await.refused(410, "session_purged");
    import(&daemon, archive.clone(), "").await.ok();
    purge(&daemon, &session).await.ok();
    assert_eq!(keyed("second").await.status, 201);
    daemon.get(&format!("/v1/sessions/{session}")).await.ok();
}

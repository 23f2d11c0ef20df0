//! Copies of sessions over HTTP: forks, and archives that go out and come in.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    imports::unpacked,
    rig::{Daemon, Got, call_step, of_type, only, text_step, types},
};

/// Long enough that the whole of it becomes an artifact.
const LONG_OUTPUT: &str = "seq 1 20000";

/// A session with a message, an attachment, a write, a command with a long output, and an answer.
pub async fn full_session(daemon: &Daemon) -> String {
    let steps = json!([
        call_step("write_file", json!({ "path": "a.txt", "content": "new\n" })),
        call_step("shell", json!({ "command": LONG_OUTPUT })),
        text_step("all done"),
        text_step("and again"),
    ]);
    std::fs::write(daemon.workspace().join("a.txt"), "old\n").unwrap();
    let policy = json!({ "approval": { "require_for_kinds": [] }, "verify": { "auto_verify": false } });
    let session = daemon.scripted(steps, json!({ "policy": policy, "labels": ["first"], "title": "One" })).await;
    let file = json!({ "name": "notes.txt", "mime_type": "text/plain", "data": "aGVsbG8K" });
    daemon.post(&format!("/v1/sessions/{session}/attachments"), file).await.ok();
    let turn = daemon.say(&session, "go").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    session
}

async fn fork(daemon: &Daemon, session: &str, body: Value) -> Got {
    daemon.post(&format!("/v1/sessions/{session}/fork"), body).await
}

/// Numbered events as they were sent, without the session's id.
pub async fn numbered(daemon: &Daemon, session: &str) -> Vec<Value> {
    let mut events = daemon.events(session).await;
    events.retain(|event| event.get("pos").is_none());
    for event in &mut events {
        assert_eq!(event["session_id"].as_str(), Some(session));
        event.as_object_mut().unwrap().remove("session_id");
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_shares_the_past_and_goes_its_own_way() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = full_session(&daemon).await;
    let past = numbered(&daemon, &session).await;
    // The list of sessions, which sums are made of, comes a moment after the turn's end.
    let spent = daemon.session(&session).await["spent"].clone();
    while daemon.get("/v1/usage").await.ok()["spent"] != spent {}
    let got = fork(&daemon, &session, json!({ "title": "Two", "labels": ["second"] })).await;
    assert_eq!(got.status, 201, "{got:?}");
    let copy = got.body["session_id"].as_str().unwrap().to_owned();
    assert_eq!(got.header("location"), format!("/v1/sessions/{copy}"));
    assert_eq!(got.body["forked_from"], json!({ "session_id": session, "seq": past.len() }));
    let events = numbered(&daemon, &copy).await;
    assert_eq!(events[..past.len()], past[..]);
    assert_eq!(events.last().unwrap()["type"], "session_forked");
    let view = daemon.session(&copy).await;
    assert_eq!((&view["title"], &view["labels"]), (&json!("Two"), &json!(["second"])));
    assert_eq!(view["forked_from"], got.body["forked_from"]);
    // Nothing is counted twice, and the files came along.
    assert_eq!(daemon.get("/v1/usage").await.ok()["spent"], spent);
    let listed = |session: &str| format!("/v1/sessions/{session}/artifacts");
    assert_eq!(daemon.get(&listed(&copy)).await.ok(), daemon.get(&listed(&session)).await.ok());
    // Each goes on alone; the model of the fork sees the shared past.
    let turn = daemon.say(&copy, "and now?").await;
    let record = daemon.rested(&copy, &turn).await;
    assert_eq!(record["response"]["text"], "and again", "{record}");
    assert_eq!(numbered(&daemon, &session).await, past);
    // A fork outlives a restart and the session it came from.
    let again = Daemon::on_disk(daemon.end().await).await;
    assert_eq!(again.session(&copy).await["forked_from"]["seq"], past.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_can_be_forked_at_every_event() {
    let daemon = Daemon::start().await;
    let session = full_session(&daemon).await;
    let past = numbered(&daemon, &session).await;
    for seq in 1..=past.len() {
        let got = fork(&daemon, &session, json!({ "seq": seq })).await;
        let copy = got.ok()["session_id"].as_str().unwrap().to_owned();
        let events = numbered(&daemon, &copy).await;
        assert_eq!(events[..seq], past[..seq], "at {seq}");
        assert_eq!(events[seq]["type"], "session_forked");
        let view = daemon.session(&copy).await;
        assert_eq!((&view["status"], &view["queue"]), (&json!("active"), &json!([])), "at {seq}");
        assert!(view["turn"].is_null() || view["turn"]["status"] == "interrupted", "at {seq}: {view}");
        assert_eq!(view["spent"]["steps"], 0);
    }
    for bad in [json!(0), json!(past.len() + 1)] {
        fork(&daemon, &session, json!({ "seq": bad })).await.refused(400, "unknown_seq");
    }
    fork(&daemon, &session, json!({ "seq": -1 })).await.refused(400, "bad_request");
    fork(&daemon, &session, json!({ "workspace_path": "/no/such" })).await.refused(400, "bad_workspace");
    fork(&daemon, "sess_01JGFJJZ00041061050R3GG28A", json!({})).await.refused(404, "unknown_session");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_makes_one_fork() {
    let daemon = Daemon::start().await;
    let session = full_session(&daemon).await;
    let path = format!("/v1/sessions/{session}/fork");
    let all = futures::future::join_all((0..20).map(|_| daemon.post_with_key(&path, "k", json!({ "seq": 3 })))).await;
    let first = all[0].body["session_id"].clone();
    for got in &all {
        assert_eq!((got.status, &got.body["session_id"]), (201, &first), "{got:?}");
    }
    daemon.post_with_key(&path, "k", json!({ "seq": 4 })).await.refused(409, "key_reused");
    let list = daemon.get("/v1/sessions").await.ok();
    assert_eq!(list["sessions"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_asked_anew_in_a_fork() {
    let daemon = Daemon::start().await;
    let steps = json!([call_step("shell", json!({ "command": "echo ran >> ran.txt" })), text_step("done")]);
    let session = daemon.scripted(steps, json!({ "policy": { "verify": { "auto_verify": false } } })).await;
    let turn = daemon.say(&session, "go").await;
    let asked = daemon.approval(&session).await;
    let copy = fork(&daemon, &session, json!({})).await.ok()["session_id"].as_str().unwrap().to_owned();
    let view = daemon.session(&copy).await;
    assert_eq!((&view["approvals"], &view["turn"]["status"]), (&json!([]), &json!("interrupted")));
    let answer = json!({ "tool_call_id": asked["tool_call_id"], "action": "approve" });
    daemon.post(&format!("/v1/sessions/{copy}/approve"), answer.clone()).await.refused(409, "not_waiting");
    daemon.post(&format!("/v1/sessions/{copy}/turns/{turn}/resume"), json!({})).await.ok();
    daemon.approval(&copy).await;
    for one in [&session, &copy] {
        daemon.post(&format!("/v1/sessions/{one}/approve"), answer.clone()).await.ok();
        daemon.completed(&daemon.rested(one, &turn).await);
    }
    assert_eq!(std::fs::read_to_string(daemon.workspace().join("ran.txt")).unwrap(), "ran\nran\n");
}

pub async fn export(daemon: &Daemon, session: &str) -> Vec<u8> {
    export_without(daemon, session, &[]).await
}

/// An archive that lacks these files, and says so.
async fn export_without(daemon: &Daemon, session: &str, missing: &[&str]) -> Vec<u8> {
    let response = daemon.request("GET", &format!("/v1/sessions/{session}/export")).send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/gzip");
    assert!(response.headers()["content-disposition"].to_str().unwrap().contains(session));
    let told: Value = serde_json::from_slice(response.headers()["tenure-missing"].as_bytes()).unwrap();
    assert_eq!(told, json!({ "count": missing.len(), "names": missing }));
    response.bytes().await.unwrap().to_vec()
}

pub async fn import(daemon: &Daemon, archive: impl Into<Vec<u8>>, query: &str) -> Got {
    let request = daemon.request("POST", &format!("/v1/sessions/import{query}"));
    daemon.send(request.header("content-type", "application/gzip").body(archive.into())).await
}

/// The files of a session as they lie in the data folder, but for caches and streamed fragments.
fn files_of(daemon: &Daemon, session: &str) -> Vec<(String, Vec<u8>)> {
    let base = daemon.data().join("sessions").join(session);
    let mut found = vec![("events.ndjson".to_owned(), std::fs::read(base.join("events.ndjson")).unwrap())];
    let mut waiting = vec![base.join("artifacts"), base.join("attachments")];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => waiting.push(path),
                false => {
                    let name = path.strip_prefix(&base).unwrap().display().to_string();
                    found.push((name, std::fs::read(path).unwrap()));
                }
            }
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exported_session_is_the_same_elsewhere_byte_for_byte_and_goes_on_there() {
    let here = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let there = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = full_session(&here).await;
    let archive = export(&here, &session).await;
    let got = import(&there, archive.clone(), "").await;
    assert_eq!(got.status, 201, "{got:?}");
    assert_eq!(got.body["session_id"], json!(session));
    let files = files_of(&here, &session);
    assert!(files.iter().any(|(name, bytes)| name.starts_with("artifacts/") && bytes.len() > 50_000));
    assert!(files.iter().any(|(name, _)| name.ends_with(".old")), "bytes from before a write go along");
    assert!(files.iter().any(|(name, _)| name.starts_with("attachments/")));
    assert_eq!(files_of(&there, &session), files);
    assert_eq!(numbered(&there, &session).await, numbered(&here, &session).await);
    assert_eq!(there.session(&session).await["title"], "One");
    let list = there.get("/v1/sessions?label=first").await.ok();
    assert_eq!(list["sessions"][0]["id"], json!(session), "it is in the listing");
    // It goes on there, in a folder of that machine, also after a restart.
    let moved = json!({ "workspace_path": there.workspace() });
    there.send(there.request("PATCH", &format!("/v1/sessions/{session}")).json(&moved)).await.ok();
    let there = Daemon::on_disk(there.end().await).await;
    let turn = there.say(&session, "go on").await;
    assert_eq!(there.rested(&session, &turn).await["response"]["text"], "and again");
    // What is there is not written over; under an id of its own it is a fork.
    import(&there, archive.clone(), "").await.refused(409, "session_exists");
    let got = import(&there, archive.clone(), "?as_new=true").await;
    let copy = got.body["session_id"].as_str().unwrap().to_owned();
    assert_ne!(copy, session);
    let past = numbered(&here, &session).await;
    assert_eq!(got.body["forked_from"], json!({ "session_id": session, "seq": past.len() }));
    assert_eq!(numbered(&there, &copy).await[..past.len()], past[..]);
    // Again with one key is the same import.
    let keyed = |query: &str| {
        let request = there.request("POST", &format!("/v1/sessions/import{query}"));
        let request = request.header("idempotency-key", "one").header("content-type", "application/gzip");
        there.send(request.body(archive.clone()))
    };
    let (first, second) = (keyed("?as_new=true").await, keyed("?as_new=true").await);
    assert_eq!((first.status, &first.body["session_id"]), (201, &second.body["session_id"]), "{second:?}");
    keyed("").await.refused(409, "key_reused");
    // A key that made nothing of it does not make another's session its own, and what is refused keeps no key.
    let fresh = |archive: Vec<u8>, query: &str, key: &str| {
        let request = there.request("POST", &format!("/v1/sessions/import{query}"));
        let request = request.header("idempotency-key", key).header("content-type", "application/gzip");
        there.send(request.body(archive))
    };
    fresh(archive.clone(), "", "another").await.refused(409, "session_exists");
    fresh(archive.clone(), "", "another").await.refused(409, "session_exists");
    fresh(archive[..archive.len() / 2].to_vec(), "?as_new=true", "half").await.refused(400, "bad_archive");
    assert_eq!(fresh(archive.clone(), "?as_new=true", "half").await.status, 201);
    let both = tokio::join!(fresh(archive.clone(), "?as_new=true", "two"), fresh(archive, "?as_new=true", "two"));
    assert_eq!((both.0.status, &both.0.body["session_id"]), (201, &both.1.body["session_id"]), "{both:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_travels_and_a_running_turn_does_not() {
    let (here, there) = (Daemon::start().await, Daemon::start().await);
    let steps = json!([call_step("shell", json!({ "command": "sleep 30" })), text_step("done")]);
    let session = here.scripted(steps, json!({})).await;
    here.say(&session, "go").await;
    let asked = here.approval(&session).await;
    let archive = export(&here, &session).await;
    import(&there, archive, "").await.ok();
    assert_eq!(there.approval(&session).await["tool_call_id"], asked["tool_call_id"]);
    let answer = json!({ "tool_call_id": asked["tool_call_id"], "action": "deny" });
    there.post(&format!("/v1/sessions/{session}/approve"), answer).await.ok();
    let answer = json!({ "tool_call_id": asked["tool_call_id"], "action": "approve" });
    here.post(&format!("/v1/sessions/{session}/approve"), answer).await.ok();
    here.get(&format!("/v1/sessions/{session}/export")).await.refused(409, "turn_running");
    here.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.ok();
}

/// It would end by itself in both places, and the turn would go on in both.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_expires_does_not_travel_under_its_id() {
    let (here, there) = (Daemon::start().await, Daemon::start().await);
    let steps = json!([call_step("shell", json!({ "command": "true" })), text_step("done")]);
    let policy = json!({ "policy": { "approval": { "expires_after_ms": 600_000 } } });
    let session = here.scripted(steps, policy).await;
    here.say(&session, "go").await;
    here.approval(&session).await;
    let archive = export(&here, &session).await;
    import(&there, archive.clone(), "").await.refused(409, "turn_running");
    import(&there, archive, "?as_new=true").await.ok();
}

/// A file that the disk has changed is told to be missing: an archive with it could never be imported.
#[tokio::test(flavor = "multi_thread")]
async fn an_archive_holds_no_file_that_is_not_what_was_kept() {
    let here = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let there = Daemon::start().await;
    let session = full_session(&here).await;
    let folder = here.data().join("sessions").join(&session).join("attachments");
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let name = format!("attachments/{}", file.file_name().unwrap().to_str().unwrap());
    let archive = export_without(&here, &session, &[&name]).await;
    let manifest: Value = serde_json::from_slice(&unpacked(&archive)[0].1).unwrap();
    assert_eq!(manifest["missing"], json!([name]));
    import(&there, archive, "").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn artifacts_are_listed_and_handed_out_in_parts() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = full_session(&daemon).await;
    let events = daemon.events(&session).await;
    let list = daemon.get(&format!("/v1/sessions/{session}/artifacts")).await.ok();
    let listed = list["artifacts"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "bytes from before a write are not shown: {list}");
    let name = listed[0]["ref"].as_str().unwrap();
    assert_eq!(listed[0]["turn_id"], only(&events, "turn_started")["turn_id"]);
    let told = of_type(&events, "tool_call_completed")[1].to_string();
    assert!(told.contains(name), "the event names it so: {told}");
    let whole: String = (1..=20000).map(|n| format!("{n}\n")).collect();
    let path = format!("/v1/sessions/{session}/{name}");
    let got = daemon.get(&path).await;
    assert_eq!((got.status, got.body.as_str()), (200, Some(whole.as_str())));
    assert_eq!(listed[0]["bytes"], whole.len());
    assert_eq!(got.header("accept-ranges"), "bytes");
    assert_eq!(got.header("content-security-policy"), "sandbox; default-src 'none'");
    let etag = got.header("etag").to_owned();
    let with = |name: &'static str, value: String| daemon.send(daemon.request("GET", &path).header(name, value));
    let got = with("range", "bytes=2-5".into()).await;
    assert_eq!((got.status, got.body.as_str()), (206, Some("2\n3\n")));
    assert_eq!(got.header("content-range"), format!("bytes 2-5/{}", whole.len()));
    let got = with("range", "bytes=-6".into()).await;
    assert_eq!((got.status, &got.body), (206, &json!(20000)));
    let got = with("range", format!("bytes={}-", whole.len())).await;
    got.refused(416, "bad_range");
    assert_eq!(got.header("content-range"), format!("bytes */{}", whole.len()));
    for known in [etag.clone(), format!("W/{etag}")] {
        assert_eq!(with("if-none-match", known).await.status, 304);
    }
    for (if_range, status) in [(&*etag, 206), ("\"other\"", 200), ("*", 200), (&*format!("W/{etag}"), 200)] {
        let part = daemon.request("GET", &path).header("range", "bytes=0-1").header("if-range", if_range);
        assert_eq!(daemon.send(part).await.status, status, "{if_range}");
    }
    for bad in
        ["artifacts/x", "artifacts/../events.ndjson", "artifacts/%2e%2e/events.ndjson", "artifacts/%2fetc/passwd"]
    {
        let request = format!(
            "GET /v1/sessions/{session}/{bad} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: close\r\n\r\n",
            crate::rig::TOKEN
        );
        let got = daemon.raw(request.as_bytes());
        assert!(got.await.starts_with("HTTP/1.1 404"), "{bad}");
    }
    let old = files_of(&daemon, &session).into_iter().find(|(name, _)| name.ends_with(".old")).unwrap().0;
    daemon.get(&format!("/v1/sessions/{session}/{old}")).await.refused(404, "unknown_artifact");
    daemon.get(&format!("/v1/sessions/{session}/artifacts?cursor=x")).await.refused(400, "bad_cursor");
    assert!(types(&events).contains(&"turn_completed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_label_or_a_role_stands_for_a_session() {
    let daemon = Daemon::start().await;
    let old = daemon.create(json!({ "labels": ["squad-a"], "role": "reviewer" })).await;
    let new = daemon.create(json!({ "labels": ["squad-a", "x y"], "role": "reviewer" })).await;
    let id_of = async |name: &str| daemon.get(&format!("/v1/sessions/{name}")).await.body["id"].clone();
    assert_eq!(id_of("squad-a").await, json!(new));
    assert_eq!(id_of("reviewer").await, json!(new));
    assert_eq!(id_of("x%20y").await, json!(new));
    daemon.post("/v1/sessions/squad-a/end", json!({})).await.ok();
    assert_eq!(id_of("squad-a").await, json!(old), "an open one comes first");
    assert_eq!(id_of("reviewer").await, json!(old));
    daemon.post("/v1/sessions/squad-a/end", json!({})).await.ok();
    assert_eq!(id_of("squad-a").await, json!(new), "then the latest");
    daemon.get("/v1/sessions/reviewer").await.refused(404, "unknown_session");
    daemon.get("/v1/sessions/nobody").await.refused(404, "unknown_session");
    // What stands for something else in an address is no name for a session.
    for name in ["import", "sess_01JGFJJZ00041061050R3GG28A"] {
        for body in [json!({ "labels": ["fine", name] }), json!({ "role": name })] {
            let got = daemon.post("/v1/sessions", daemon.create_body(body)).await;
            got.refused(400, "bad_request");
            assert!(got.body["detail"].as_str().unwrap().contains(name), "{got:?}");
        }
        let labels = json!({ "labels": [name] });
        daemon
            .send(daemon.request("PATCH", &format!("/v1/sessions/{new}")).json(&labels))
            .await
            .refused(400, "bad_request");
        daemon.post(&format!("/v1/sessions/{new}/fork"), labels).await.refused(400, "bad_request");
    }
    let turn = daemon.post("/v1/sessions/nobody/messages", json!({ "parts": [{ "type": "text", "text": "x" }] })).await;
    turn.refused(404, "unknown_session");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_gets_another_model_and_folder_between_turns() {
    let daemon = Daemon::start().await;
    let first = daemon.script(json!([{ "do": [{ "call": { "name": "shell", "input": { "command": "true" } } }] }]));
    let session = daemon.create(json!({ "model": first })).await;
    let turn = daemon.say(&session, "go").await;
    daemon.approval(&session).await;
    let patch =
        async |body: Value| daemon.send(daemon.request("PATCH", &format!("/v1/sessions/{session}")).json(&body)).await;
    let second = daemon.script(json!([text_step("passed by"), text_step("other")]));
    patch(json!({ "model": second })).await.refused(409, "turn_open");
    daemon.post(&format!("/v1/sessions/{session}/cancel"), json!({})).await.ok();
    daemon.rested(&session, &turn).await;
    patch(json!({ "workspace_path": "relative" })).await.refused(400, "bad_workspace");
    let view = patch(json!({ "model": second, "workspace_path": daemon.files.path() })).await.ok();
    assert_eq!((&view["model"], &view["workspace_path"]), (&json!(second), &json!(daemon.files.path())));
    let turn = daemon.say(&session, "again").await;
    assert_eq!(daemon.rested(&session, &turn).await["response"]["text"], "other");
    let row = &daemon.get("/v1/sessions").await.ok()["sessions"][0];
    assert_eq!(row["workspace_path"], json!(daemon.files.path()));
}

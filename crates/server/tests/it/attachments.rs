//! Files for a session: uploaded both ways, named in messages, handed out harmlessly.

use std::{fs, sync::Arc};

use serde_json::{Value, json};
use tenure_wire as wire;

use crate::rig::{Daemon, Got, only, text_step};

/// `hello` and a line end.
const HELLO: &str = "aGVsbG8K";

async fn upload(daemon: &Daemon, session: &str, body: Value) -> Got {
    daemon.post(&format!("/v1/sessions/{session}/attachments"), body).await
}

async fn form(daemon: &Daemon, session: &str, boundary: &str, body: &[u8]) -> Got {
    let request = daemon.request("POST", &format!("/v1/sessions/{session}/attachments"));
    let request = request.header("content-type", format!("multipart/form-data; boundary={boundary}"));
    daemon.send(request.body(body.to_vec())).await
}

fn field(name: &str, file: &str, kind: &str, content: &[u8]) -> Vec<u8> {
    let head = format!(
        "--XX\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\nContent-Type: {kind}\r\n\r\n"
    );
    [head.as_bytes(), content, b"\r\n"].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_uploaded_both_ways_listed_and_handed_out() {
    let daemon = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = daemon.create(json!({})).await;
    let got = upload(&daemon, &session, json!({ "name": "notes.txt", "mime_type": "text/plain", "data": HELLO })).await;
    assert_eq!(got.status, 201, "{got:?}");
    let first: wire::AttachmentView = serde_json::from_value(got.body.clone()).unwrap();
    assert!(first.r#ref.starts_with("attachments/") && first.r#ref.ends_with("-notes.txt"), "{first:?}");
    assert_eq!((first.mime_type.as_str(), first.bytes), ("text/plain", 6));
    // The same bytes in a form are the same file.
    let body = [field("file", "notes.txt", "text/plain", b"hello\n"), b"--XX--\r\n".to_vec()].concat();
    let got = form(&daemon, &session, "XX", &body).await;
    assert_eq!((got.status, serde_json::from_value(got.body).unwrap()), (201, first.clone()));
    let body = [field("file", "page.html", "text/html", b"<script>"), b"--XX--\r\n".to_vec()].concat();
    let page: wire::AttachmentView = serde_json::from_value(form(&daemon, &session, "XX", &body).await.body).unwrap();
    let list = daemon.get(&format!("/v1/sessions/{session}/attachments")).await.ok();
    assert_eq!(list, json!({ "attachments": [first, page] }));
    let got = daemon.get(&format!("/v1/sessions/{session}/{}", page.r#ref)).await;
    assert_eq!((got.status, &got.body), (200, &json!("<script>")));
    for (name, value) in [
        ("content-type", "text/html"),
        ("x-content-type-options", "nosniff"),
        ("content-security-policy", "sandbox; default-src 'none'"),
    ] {
        assert_eq!(got.header(name), value);
    }
    assert!(got.header("content-disposition").starts_with("attachment; filename="));
    // It lies where the layout says, and one event tells of each.
    let path = daemon.data().join("sessions").join(&session).join(&first.r#ref);
    assert_eq!(fs::read(path).unwrap(), b"hello\n");
    let events = daemon.events(&session).await;
    assert_eq!(events.iter().filter(|event| event["type"] == "attachment_added").count(), 2);
    // All of it outlives the daemon.
    let again = Daemon::on_disk(daemon.end().await).await;
    assert_eq!(again.get(&format!("/v1/sessions/{session}/attachments")).await.ok(), list);
    assert_eq!(again.get(&format!("/v1/sessions/{session}/{}", first.r#ref)).await.body, json!("hello\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_is_taken_both_ways_and_a_repeated_upload_gets_its_first_answer() {
    let daemon = Daemon::start().await;
    let session = daemon.create(json!({})).await;
    let large = vec![b'x'; 5 << 20];
    let body = [field("file", "large.txt", "Text/Plain; charset=utf-8", &large), b"--XX--\r\n".to_vec()].concat();
    let got = form(&daemon, &session, "XX", &body).await;
    assert_eq!((got.status, &got.body["bytes"]), (201, &json!(5 << 20)), "{got:?}");
    assert_eq!(got.body["mime_type"], "text/plain");
    let path = format!("/v1/sessions/{session}/attachments");
    let body = json!({ "name": "b.txt", "mime_type": "text/plain", "data": "eHh4".repeat((5 << 20) / 3) });
    let first = daemon.post_with_key(&path, "k", body.clone()).await;
    assert_eq!(first.status, 201);
    let other = json!({ "name": "b.txt", "mime_type": "image/png", "data": body["data"] });
    daemon.post(&path, other).await.refused(409, "attachment_exists");
    daemon.post(&format!("/v1/sessions/{session}/end"), json!({})).await.ok();
    let again = daemon.post_with_key(&path, "k", body).await;
    assert_eq!((again.status, again.body), (201, first.body));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_may_name_an_attachment_that_is_there() {
    let daemon = Daemon::start().await;
    let path = daemon.script(json!([text_step("I see.")]));
    let file = path.strip_prefix("scripted:").unwrap();
    let mut script: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    script["takes"] = json!(["image"]);
    fs::write(file, script.to_string()).unwrap();
    let session = daemon.create(json!({ "model": path })).await;
    let body = json!({ "name": "a.png", "mime_type": "image/png", "data": HELLO });
    let given = upload(&daemon, &session, body).await.body;
    let part = |r#ref: &Value| json!({ "type": "image", "ref": r#ref, "mime_type": "image/png" });
    let send =
        async |part: Value| daemon.post(&format!("/v1/sessions/{session}/messages"), json!({ "parts": [part] })).await;
    send(part(&json!("attachments/other.png"))).await.refused(400, "unknown_attachment");
    let got = send(part(&given["ref"])).await;
    assert_eq!(got.status, 202, "{got:?}");
    let turn = got.body["turn_id"].as_str().unwrap();
    daemon.completed(&daemon.rested(&session, turn).await);
    let events = daemon.events(&session).await;
    assert_eq!(only(&events, "message_added")["data"]["parts"][0]["ref"], given["ref"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_files_and_names_are_refused_or_made_harmless() {
    let limits = tenure_server::Limits { attachment_bytes_max: 100, ..Default::default() };
    let daemon = Daemon::with_limits(limits).await;
    let session = daemon.create(json!({})).await;
    for (body, status, code) in [
        (json!({ "name": "a", "data": "%%%" }), 400, "bad_request"),
        (json!({ "name": "a" }), 400, "bad_request"),
        (json!({ "name": " ", "data": HELLO }), 400, "bad_request"),
        (json!({ "name": "a\nb", "data": HELLO }), 400, "bad_request"),
        (json!({ "name": "a", "data": HELLO, "x": 1 }), 400, "bad_request"),
        (json!({ "name": "a", "data": HELLO, "mime_type": "text" }), 415, "bad_mime_type"),
        (json!({ "name": "a", "data": HELLO, "mime_type": "text/plain\r\nx: y" }), 415, "bad_mime_type"),
        (json!({ "name": "a", "data": "YWFh".repeat(100) }), 413, "attachment_too_large"),
    ] {
        upload(&daemon, &session, body.clone()).await.refused(status, code);
    }
    for body in [
        b"--XX--\r\n".to_vec(),
        b"nonsense".to_vec(),
        [field("other", "a", "text/plain", b"x"), b"--XX--\r\n".to_vec()].concat(),
        [field("file", "a", "text/plain", b"x"), field("file", "b", "text/plain", b"x"), b"--XX--\r\n".to_vec()]
            .concat(),
        field("file", "a", "text/plain", b"cut"),
    ] {
        form(&daemon, &session, "XX", &body).await.refused(400, "bad_request");
    }
    form(&daemon, &session, "", b"x").await.refused(400, "bad_request");
    let large = [field("file", "a", "text/plain", &[b'x'; 101]), b"--XX--\r\n".to_vec()].concat();
    form(&daemon, &session, "XX", &large).await.refused(413, "attachment_too_large");
    for name in ["../../../etc/passwd", "/etc/passwd", "..\\..\\x", ".ssh", "a/../../b"] {
        let got = upload(&daemon, &session, json!({ "name": name, "data": HELLO })).await;
        let r#ref = got.body["ref"].as_str().unwrap().to_owned();
        assert!(!r#ref.contains("..") && r#ref.matches('/').count() == 1, "{name}: {ref}");
    }
    for path in ["..%2F..%2Ftoken", "%2e%2e%2fsession.json", "nothing", "."] {
        let got = daemon.get(&format!("/v1/sessions/{session}/attachments/{path}")).await;
        assert!(got.status == 404, "{path}: {got:?}");
    }
    let unknown = "sess_01J00000000000000000000000";
    upload(&daemon, unknown, json!({ "name": "a", "data": HELLO })).await.refused(404, "unknown_session");
    daemon.post(&format!("/v1/sessions/{session}/end"), json!({})).await.ok();
    upload(&daemon, &session, json!({ "name": "a", "data": HELLO })).await.refused(409, "session_ended");
    daemon.is_well().await;
}

//! Archives on their way in: slow ones, many at once, and what a refused one leaves behind.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tenure_server::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    copies::{export, full_session, import, packed, unpacked},
    rig::{Daemon, PATIENCE, TOKEN, call_step, text_step},
};

/// A session with one answer, and its archive.
async fn exported(daemon: &Daemon) -> (String, Vec<u8>) {
    let session = daemon.scripted(json!([text_step("done")]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let archive = export(daemon, &session).await;
    (session, archive)
}

/// An import that has sent its head and this much of its body.
async fn begun(daemon: &Daemon, length: usize, first: &[u8]) -> TcpStream {
    let mut socket = TcpStream::connect(daemon.address).await.unwrap();
    let head = format!(
        "POST /v1/sessions/import HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/gzip\r\ncontent-length: {length}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(first).await.unwrap();
    socket
}

/// The folders of sessions and marks that are there.
fn folders(daemon: &Daemon) -> Vec<String> {
    let names = |name: &str| std::fs::read_dir(daemon.data().join(name)).unwrap();
    let mut found: Vec<String> = ["sessions", "open"]
        .into_iter()
        .flat_map(names)
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drip_is_given_up_and_leaves_nothing() {
    let here = Daemon::start().await;
    let (session, archive) = exported(&here).await;
    let limits = Limits {
        imports_max: 1,
        body_read: Duration::from_millis(300),
        import_bytes_per_second_min: 1 << 20,
        ..Limits::default()
    };
    let there = Daemon::on_disk_with(Arc::new(tempfile::tempdir().unwrap()), limits).await;
    // So much that the manifest is read and the session's folder is made; then one byte at a time.
    let (much, rest) = archive.split_at(archive.len() - 40);
    let mut socket = begun(&there, archive.len(), much).await;
    let mut answer = Vec::new();
    let drip = async {
        for byte in rest {
            let _ = socket.write_all(&[*byte]).await;
            if timeout(Duration::from_millis(100), socket.read_to_end(&mut answer)).await.is_ok() {
                return;
            }
        }
    };
    timeout(PATIENCE, drip).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
    assert_eq!(folders(&there), [""; 0]);
    // Its place is free a moment later, and the same archive is taken when it comes as it should.
    let taken = async {
        loop {
            match import(&there, archive.clone(), "").await {
                busy if busy.status == 429 => tokio::time::sleep(Duration::from_millis(20)).await,
                got => return got,
            }
        }
    };
    assert_eq!(timeout(PATIENCE, taken).await.unwrap().ok()["session_id"], json!(session));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_upload_that_is_fast_enough_is_taken() {
    let here = Daemon::start().await;
    let (session, archive) = exported(&here).await;
    let grace = Duration::from_secs(2);
    let limits = Limits { body_read: grace, import_bytes_per_second_min: 50, ..Limits::default() };
    let there = Daemon::on_disk_with(Arc::new(tempfile::tempdir().unwrap()), limits).await;
    let mut socket = begun(&there, archive.len(), b"").await;
    // Longer than the grace as a whole.
    let pieces = 25;
    for piece in archive.chunks(archive.len().div_ceil(pieces)) {
        socket.write_all(piece).await.unwrap();
        tokio::time::sleep(grace / 20).await;
    }
    let mut answer = [0; 12];
    timeout(PATIENCE, socket.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 201");
    assert_eq!(there.session(&session).await["status"], "active");
}

/// With so few threads that imports which waited on them would be all there is.
#[test]
fn many_imports_at_once_do_not_lock_the_daemon_up() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        const PLACES: usize = 16;
        let here = Daemon::start().await;
        let (session, archive) = exported(&here).await;
        let limits = Limits { imports_max: PLACES, ..Limits::default() };
        let there = Daemon::on_disk_with(Arc::new(tempfile::tempdir().unwrap()), limits).await;
        let mut held = vec![];
        for _ in 0..PLACES {
            held.push(begun(&there, archive.len(), &archive[..10]).await);
        }
        // All places are taken: one more is told so, at once.
        let full = async {
            loop {
                let got = import(&there, vec![], "").await;
                match got.status {
                    400 => tokio::time::sleep(Duration::from_millis(10)).await,
                    _ => return got,
                }
            }
        };
        let got = timeout(PATIENCE, full).await.unwrap();
        got.refused(429, "too_many_imports");
        assert_eq!(got.header("retry-after"), "5");
        // Everything else goes on.
        there.is_well().await;
        let other = there.scripted(json!([text_step("x")]), json!({})).await;
        let turn = there.say(&other, "go").await;
        there.completed(&there.rested(&other, &turn).await);
        drop(held);
        let free = async {
            while import(&there, archive.clone(), "").await.status == 429 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, free).await.expect("their places are free again");
        assert_eq!(there.session(&session).await["status"], "active");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_may_follow_the_end() {
    use std::io::{Read, Write};
    let gzipped = |bytes: &[u8]| {
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(bytes).unwrap();
        gz.finish().unwrap()
    };
    let here = Daemon::start().await;
    let (session, archive) = exported(&here).await;
    let there = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&archive[..]).read_to_end(&mut plain).unwrap();
    for (what, bad) in [
        ("behind the packed file", [&archive[..], b"x"].concat()),
        ("another packed file", [&archive[..], &gzipped(b"x")].concat()),
        ("the same again", [&archive[..], &archive].concat()),
        ("behind the tar", gzipped(&[&plain[..], b"x"].concat())),
        ("behind empty blocks", gzipped(&[&plain[..], &[0; 4096], b"x"].concat())),
    ] {
        for query in ["", "?as_new=true"] {
            let got = import(&there, bad.clone(), query).await;
            assert_eq!((got.status, got.code()), (400, "bad_archive"), "{what}: {got:?}");
        }
        assert_eq!(folders(&there), [""; 0], "{what}");
    }
    // Programs that write tars fill up the last record with empty blocks.
    import(&there, gzipped(&[&plain[..], &[0; 8192]].concat()), "").await.ok();
    assert_eq!(there.session(&session).await["status"], "active");
}

/// The archive with another log in it.
fn with_log(archive: &[u8], log: &[u8]) -> Vec<u8> {
    let mut files = unpacked(archive);
    let (mut lines, mut writer) = (vec![], tenure_store::LogWriter::new());
    let events = tenure_store::LogReader::new().take(log).unwrap();
    events.iter().for_each(|event| writer.push(event, &mut lines));
    let mut manifest: Value = serde_json::from_slice(&files[0].1).unwrap();
    (manifest["seq"], manifest["log_bytes"]) = (json!(events.len()), json!(lines.len()));
    manifest["log_sum"] = json!(writer.sum());
    files[0].1 = manifest.to_string().into_bytes();
    files[1].1 = lines;
    packed(&files)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_in_the_queue_is_not_taken_twice() {
    let here = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let there = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let steps = json!([call_step("shell", json!({ "command": "true" })), text_step("done"), text_step("second")]);
    let session = here.scripted(steps, json!({})).await;
    here.say(&session, "go").await;
    here.approval(&session).await;
    let archive = export(&here, &session).await;
    here.say(&session, "and then this").await;
    here.get(&format!("/v1/sessions/{session}/export")).await.refused(409, "turn_running");
    let log = std::fs::read(here.data().join("sessions").join(&session).join("events.ndjson")).unwrap();
    let queued = with_log(&archive, &log);
    let got = import(&there, queued.clone(), "").await;
    got.refused(409, "turn_running");
    assert!(got.body["detail"].as_str().unwrap().contains("queue"), "{got:?}");
    assert_eq!(folders(&there), [""; 0]);
    // As a new session nothing of it waits, and its first turn can be resumed.
    let copy = import(&there, queued, "?as_new=true").await.ok()["session_id"].as_str().unwrap().to_owned();
    let view = there.session(&copy).await;
    assert_eq!((&view["queue"], &view["turn"]["status"]), (&json!([]), &json!("interrupted")));
}

/// What is wrong with a log is wrong under whatever id it comes.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_id_makes_no_bad_log_good() {
    let here = Daemon::start().await;
    let there = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let (session, archive) = exported(&here).await;
    let events = tenure_store::LogReader::new().take(&unpacked(&archive)[1].1).unwrap();
    let texts: Vec<String> = events.iter().map(|event| String::from_utf8(event.json.to_vec()).unwrap()).collect();
    let log = |texts: &[String]| {
        let (mut lines, mut writer) = (vec![], tenure_store::LogWriter::new());
        for (json, seq) in texts.iter().zip(1..) {
            writer.push(&tenure_store::StoredEvent { seq, json: json.clone().into(), more: 0 }, &mut lines);
        }
        lines
    };
    let mut other_id = texts.clone();
    other_id[2] = other_id[2].replace(&session, "sess_00000000000000000000000000");
    let mut created_twice = texts.clone();
    created_twice.push(texts[0].replacen("\"seq\":1", &format!("\"seq\":{}", texts.len() + 1), 1));
    let mut early = unpacked(&archive);
    let mut manifest: Value = serde_json::from_slice(&early[0].1).unwrap();
    manifest["seq"] = json!(texts.len() - 1);
    early[0].1 = manifest.to_string().into_bytes();
    let bad = [
        ("another id", with_log(&archive, &log(&other_id))),
        ("created twice", with_log(&archive, &log(&created_twice))),
        ("an earlier end", packed(&early)),
    ];
    for (what, archive) in bad {
        for query in ["?as_new=true", ""] {
            let got = import(&there, archive.clone(), query).await;
            assert_eq!((got.status, got.code()), (400, "bad_archive"), "{what} {query}: {got:?}");
        }
    }
    assert_eq!(folders(&there), [""; 0]);
    import(&there, with_log(&archive, &log(&texts)), "?as_new=true").await.ok();
}

/// What is still on its way is no session: nothing of it is shown, and a daemon that is told to stop takes it back.
#[tokio::test(flavor = "multi_thread")]
async fn a_half_import_is_not_shown_and_not_left_behind() {
    let here = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = full_session(&here).await;
    let archive = export(&here, &session).await;
    let limits = Limits { stop_grace: Duration::from_millis(100), ..Limits::default() };
    let there = Daemon::on_disk_with(Arc::new(tempfile::tempdir().unwrap()), limits).await;
    let _socket = begun(&there, archive.len(), &archive[..archive.len() - 40]).await;
    let artifacts = there.data().join("sessions").join(&session).join("artifacts");
    let staged = async {
        while !artifacts.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, staged).await.unwrap();
    for path in ["artifacts", "attachments", "messages"] {
        there.get(&format!("/v1/sessions/{session}/{path}")).await.refused(404, "unknown_session");
    }
    let files = there.end().await;
    for folder in ["sessions", "open"] {
        assert_eq!(std::fs::read_dir(files.path().join("data").join(folder)).unwrap().count(), 0, "{folder}");
    }
}

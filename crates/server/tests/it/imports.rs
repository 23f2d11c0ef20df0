//! Archives on their way in: slow ones, many at once, those that are not what they say, and what a refused one leaves behind.

use std::{
    io::{Read, Write},
    sync::Arc,
    time::Duration,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use serde_json::{Value, json};
use tenure_fuzzkit::Dice;
use tenure_server::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::{
    copies::{export, full_session, import, numbered},
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

/// The files of an archive.
pub fn unpacked(archive: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in tar::Archive::new(GzDecoder::new(archive)).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        files.push((entry.path().unwrap().display().to_string(), content));
    }
    files
}

fn header(name: &str, bytes: usize, kind: tar::EntryType) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    // As an attacker would: whatever the library thinks of the name.
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.set_size(bytes as u64);
    header.set_mode(0o600);
    header.set_entry_type(kind);
    header.set_cksum();
    header
}

fn packed(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, content) in files {
        archive.append(&header(name, content.len(), tar::EntryType::Regular), &content[..]).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(bytes).unwrap();
    gz.finish().unwrap()
}

/// Changes the manifest of an archive and packs it again.
fn with_manifest(files: &[(String, Vec<u8>)], change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut files = files.to_vec();
    let mut manifest: Value = serde_json::from_slice(&files[0].1).unwrap();
    change(&mut manifest);
    files[0].1 = manifest.to_string().into_bytes();
    packed(&files)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_archive_is_refused_and_leaves_nothing() {
    let here = Daemon::start().await;
    let there = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = full_session(&here).await;
    let archive = export(&here, &session).await;
    let files = unpacked(&archive);
    let swapped = |a: usize, b: usize| {
        let mut files = files.clone();
        files.swap(a, b);
        packed(&files)
    };
    let renamed = |index: usize, name: &str| {
        let mut files = files.clone();
        files[index].0 = name.to_owned();
        packed(&files)
    };
    let added = |name: &str| packed(&[&files[..], &[(name.to_owned(), b"x".to_vec())]].concat());
    let last = files.len() - 1;
    let link = {
        let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut entry = header("tenure-export.json", 0, tar::EntryType::Symlink);
        entry.set_link_name("/etc/passwd").unwrap();
        entry.set_cksum();
        builder.append(&entry, &b""[..]).unwrap();
        builder.into_inner().unwrap().finish().unwrap()
    };
    let bad: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", vec![]),
        ("no gzip", b"hello".to_vec()),
        ("no tar", gzipped(b"hello")),
        ("cut", archive[..archive.len() / 2].to_vec()),
        ("no manifest", packed(&files[1..])),
        ("the log missing", packed(&files[..1])),
        ("a file missing", packed(&files[..last])),
        ("another order", swapped(1, 2)),
        ("files swapped", swapped(2, last)),
        ("a file more", added("artifacts/more.txt")),
        ("a file outside", added("../../outside.txt")),
        ("an absolute file", added("/tmp/outside.txt")),
        ("a file of ours", added("session.json")),
        ("a renamed file", renamed(last, "../../../outside.txt")),
        ("a link", link),
        ("another format", with_manifest(&files, |manifest| manifest["tenure_export"] = json!(2))),
        (
            "another session",
            with_manifest(&files, |manifest| {
                manifest["session_id"] = json!("sess_01JGFJJZ00041061050R3GG28A");
            }),
        ),
        ("a path for an id", with_manifest(&files, |manifest| manifest["session_id"] = json!("../../x"))),
        ("another end", with_manifest(&files, |manifest| manifest["seq"] = json!(2))),
        ("another sum", with_manifest(&files, |manifest| manifest["log_sum"] = json!("0".repeat(32)))),
        ("a digest changed", with_manifest(&files, |manifest| manifest["blobs"][0]["digest"] = json!("0".repeat(64)))),
        (
            "a name outside",
            with_manifest(&files, |manifest| {
                manifest["blobs"][0]["name"] = json!("../../../outside.txt");
            }),
        ),
        (
            "all missing",
            with_manifest(&files, |manifest| {
                manifest["missing"] = manifest["blobs"].take();
                manifest["blobs"] = json!([]);
            }),
        ),
    ];
    for (what, archive) in bad {
        for query in ["", "?as_new=true"] {
            // Under a name of its own it does not matter what the first one was.
            if (what, query) == ("another session", "?as_new=true") {
                continue;
            }
            let got = import(&there, archive.clone(), query).await;
            assert_eq!((got.status, got.code()), (400, "bad_archive"), "{what}: {got:?}");
        }
    }
    assert_eq!(there.get("/v1/sessions").await.ok()["sessions"], json!([]));
    let outside = there.files.path().parent().unwrap().join("outside.txt");
    assert!(!outside.exists() && !there.files.path().join("outside.txt").exists());
    for (folder, what) in [("open", "no session is marked as open"), ("sessions", "no folder is left")] {
        let left: Vec<_> = std::fs::read_dir(there.data().join(folder)).unwrap().collect();
        assert_eq!(left.len(), 0, "{what}: {left:?}");
    }
    // And after all that the true one is taken.
    import(&there, archive, "").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_in_an_archive_is_noticed() {
    let (here, there) = (Daemon::start().await, Daemon::start().await);
    let session = full_session(&here).await;
    let mut plain = Vec::new();
    GzDecoder::new(&export(&here, &session).await[..]).read_to_end(&mut plain).unwrap();
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut dice = Dice::new(seed);
    let mut same = 0;
    for _ in 0..120 {
        let (at, bit) = (dice.below(plain.len()), dice.below(8));
        let mut flipped = plain.clone();
        flipped[at] ^= 1 << bit;
        let got = import(&there, gzipped(&flipped), "").await;
        if got.status == 201 {
            // Padding and times of a tar say nothing: then it is the same session.
            same += 1;
            assert_eq!(numbered(&there, &session).await, numbered(&here, &session).await, "seed {seed}: {at}.{bit}");
            break;
        }
        assert_eq!((got.status, got.code()), (400, "bad_archive"), "seed {seed}, byte {at}, bit {bit}: {got:?}");
    }
    assert!(same <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_unpacks_to_too_much_is_refused() {
    let limits = Limits { import_bytes_max: 4 << 20, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    // A thousand times smaller than what it unpacks to.
    let bomb = packed(&[("tenure-export.json".into(), vec![b' '; 15 << 20])]);
    assert!(bomb.len() < 100_000);
    import(&daemon, bomb, "").await.refused(413, "archive_too_large");
    daemon.is_well().await;
    let request = daemon.request("POST", "/v1/sessions/import").header("content-type", "application/json");
    daemon.send(request.body("{}")).await.refused(415, "wrong_content_type");
    import(&daemon, vec![], "?as_new=maybe").await.refused(400, "bad_query");
}

/// The archive with a field of its attachment changed in the log, all sums as they should be: whoever makes such a one
/// needs no secret for that.
fn with_attachment(
    files: &[(String, Vec<u8>)],
    change: Option<(&str, &str)>,
    manifest: impl FnOnce(&mut Value),
) -> Vec<u8> {
    let (mut files, mut lines, mut writer) = (files.to_vec(), vec![], tenure_store::LogWriter::new());
    for mut stored in tenure_store::LogReader::new().take(&files[1].1).unwrap() {
        let event: Value = serde_json::from_slice(&stored.json).unwrap();
        if let Some((field, value)) = change.filter(|_| event["type"] == "attachment_added") {
            let text = String::from_utf8(stored.json.to_vec()).unwrap();
            let (old, new) = (event["data"][field].to_string(), json!(value).to_string());
            let text = text.replacen(&format!("\"{field}\":{old}"), &format!("\"{field}\":{new}"), 1);
            stored.json = text.into_bytes().into();
        }
        writer.push(&stored, &mut lines);
    }
    let (bytes, sum) = (lines.len(), writer.sum());
    files[1].1 = lines;
    with_manifest(&files, |told| {
        (told["log_bytes"], told["log_sum"]) = (json!(bytes), json!(sum));
        manifest(told);
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_names_what_it_must_not_is_no_session() {
    let here = Daemon::start().await;
    let there = Daemon::on_disk(Arc::new(tempfile::tempdir().unwrap())).await;
    let session = full_session(&here).await;
    let path = format!("/v1/sessions/{session}/attachments");
    let file = json!({ "name": "note.txt", "mime_type": "text/plain", "data": "aGVsbG8K" });
    let attached = here.post(&path, file).await.ok()["ref"].as_str().unwrap().to_owned();
    let files = unpacked(&export(&here, &session).await);
    import(&there, with_attachment(&files, None, |_| {}), "?as_new=true").await.ok();
    for (field, value) in [
        ("ref", "attachments/../../../../../victim"),
        ("ref", "attachments//x"),
        ("ref", "/etc/passwd"),
        ("ref", "attachments/a\nb"),
        ("ref", "attachments/a\"b"),
        ("mime_type", "text/plain\r\nx: y"),
        ("digest", "not hex"),
        ("digest", "0000000000000000000000000000000000000000000000000000000000000000"),
    ] {
        // The file is said to be missing, or comes with other bytes than the log tells of.
        let missing = |told: &mut Value| {
            let blobs = told["blobs"].as_array().unwrap().clone();
            let kept: Vec<Value> = blobs.into_iter().filter(|blob| blob["name"] != json!(attached)).collect();
            told["blobs"] = json!(kept);
            told["missing"] = json!([value]);
        };
        let archive = match field {
            "ref" => with_attachment(&files, Some((field, value)), missing),
            _ => with_attachment(&files, Some((field, value)), |_| {}),
        };
        for query in ["", "?as_new=true"] {
            let got = import(&there, archive.clone(), query).await;
            assert_eq!((got.status, got.code()), (400, "bad_archive"), "{field} {value}: {got:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_in_an_entry_of_its_own_is_not_read() {
    let there = Daemon::start().await;
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let long = vec![b'a'; 1 << 20];
    let mut entry = header("././@LongLink", long.len(), tar::EntryType::GNULongName);
    entry.set_cksum();
    builder.append(&entry, &long[..]).unwrap();
    let archive = builder.into_inner().unwrap().finish().unwrap();
    let got = import(&there, archive, "").await;
    assert_eq!((got.status, got.code()), (400, "bad_archive"), "{got:?}");
    assert!(got.body["detail"].as_str().unwrap().contains("not a plain file"), "{got:?}");
}

//! Event streams: their form, where they begin and end, and clients that do not read.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_server::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::rig::{Daemon, PATIENCE, TOKEN, call_step, headers, text_step, types};

/// One SSE event.
#[derive(Debug, Clone, PartialEq)]
struct Sse {
    id: String,
    event: String,
    data: Value,
}

/// Reads a stream strictly: each event is `id`, `event`, `data` and a blank line, or a comment.
fn parse_sse(text: &str) -> Vec<Sse> {
    let blocks = text.split_terminator("\n\n").filter(|block| !block.starts_with(':'));
    let parse = |block: &str| {
        let lines: Vec<&str> = block.split('\n').collect();
        let [id, event, data] = lines[..] else { panic!("{block:?}") };
        let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let (id, event) = (id.strip_prefix("id: ").unwrap(), event.strip_prefix("event: ").unwrap());
        Sse { id: id.into(), event: event.into(), data }
    };
    blocks.map(parse).collect()
}

async fn talked(daemon: &Daemon) -> String {
    let steps = json!([{ "do": [{ "text": "one two three four", "chunk": 4 }] }]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "count").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    session
}

async fn sse(daemon: &Daemon, session: &str, query: &str, extra: &[(&str, &str)]) -> Vec<Sse> {
    let path = format!("/v1/sessions/{session}/events?follow=false{query}");
    let got = daemon.send(daemon.request("GET", &path).headers(headers(extra))).await;
    assert_eq!(got.header("content-type"), "text/event-stream");
    parse_sse(got.body.as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn sse_has_the_cursor_the_type_and_the_event() {
    let daemon = Daemon::start().await;
    let session = talked(&daemon).await;
    let path = format!("/v1/sessions/{session}/events?follow=false");
    let got = daemon.get(&path).await;
    assert_eq!(got.header("content-type"), "text/event-stream");
    assert_eq!(got.header("cache-control"), "no-store");
    assert_eq!(got.header("x-accel-buffering"), "no");
    let events = parse_sse(got.body.as_str().unwrap());
    for event in &events {
        let (seq, pos) = (&event.data["seq"], event.data["pos"].as_u64());
        let expected = pos.map_or(seq.to_string(), |pos| format!("{seq}.{pos}"));
        assert_eq!((&event.id, event.event.as_str()), (&expected, event.data["type"].as_str().unwrap()));
    }
    assert_eq!(events.first().unwrap().event, "session_created");
    assert_eq!(events.last().unwrap().event, "turn_completed");
    // NDJSON is the same events.
    let data: Vec<Value> = events.into_iter().map(|event| event.data).collect();
    assert_eq!(daemon.events(&session).await, data);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_continues_at_every_cursor_it_ever_gave() {
    let daemon = Daemon::start().await;
    let session = talked(&daemon).await;
    let all = sse(&daemon, &session, "", &[]).await;
    assert!(all.iter().any(|event| event.event == "model_output_delta"), "{all:?}");
    for (at, event) in all.iter().enumerate() {
        let rest = &all[at + 1..];
        assert_eq!(sse(&daemon, &session, &format!("&after={}", event.id), &[]).await, rest, "after {}", event.id);
        // The header is newer than the address.
        let by_header = sse(&daemon, &session, "&after=1", &[("last-event-id", event.id.as_str())]).await;
        assert_eq!(by_header, rest, "after {}", event.id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_stream_shows_what_comes_and_signs_of_life_between() {
    let limits = Limits { keep_alive: Duration::from_millis(40), ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let session = daemon.create(json!({})).await;
    let path = format!("/v1/sessions/{session}/events");
    let mut response = daemon.request("GET", &path).send().await.unwrap();
    let mut seen = String::new();
    let mut sent = false;
    let read = async {
        while let Some(chunk) = response.chunk().await.unwrap() {
            seen.push_str(std::str::from_utf8(&chunk).unwrap());
            if !sent && seen.contains(": keep-alive\n\n") {
                sent = true;
                daemon.say(&session, "hi").await;
            }
            if seen.contains("event: turn_completed") && seen.ends_with("\n\n") {
                break;
            }
        }
    };
    timeout(PATIENCE, read).await.unwrap();
    drop(response);
    let live: Vec<Value> = parse_sse(&seen).into_iter().map(|event| event.data).collect();
    let later = daemon.events(&session).await;
    // Deltas that wait together may be merged; the numbered events are the same.
    let numbered =
        |events: &[Value]| events.iter().filter(|event| event.get("pos").is_none()).cloned().collect::<Vec<_>>();
    assert_eq!(numbered(&live), numbered(&later));
    assert!(types(&live).contains(&"model_output_delta"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_never_reads_is_cut_and_hurts_nobody() {
    let limits = Limits { write_stall: Duration::from_millis(300), ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    // More than all socket buffers between us hold.
    let body = "x".repeat(900_000);
    let session = daemon.create(json!({ "auto_run": false })).await;
    for _ in 0..24 {
        let message = json!({ "parts": [{ "type": "text", "text": body }] });
        assert_eq!(daemon.post(&format!("/v1/sessions/{session}/messages"), message).await.status, 202);
    }
    let mut deaf = TcpStream::connect(daemon.address).await.unwrap();
    let request = format!(
        "GET /v1/sessions/{session}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    );
    deaf.write_all(request.as_bytes()).await.unwrap();
    let gone = async {
        while daemon.engine.subscribers() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        while daemon.engine.subscribers() > 0 {
            daemon.is_well().await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("the stalled stream is given up");
    // What was written before the cut is less than the whole, and the connection is over.
    let mut taken = Vec::new();
    let _ = timeout(PATIENCE, deaf.read_to_end(&mut taken)).await.unwrap();
    assert!(taken.len() < 24 * body.len(), "{}", taken.len());
    assert_eq!(daemon.events(&session).await.len(), 25);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_streams_and_waits_at_once_and_lets_requests_finish() {
    let mut daemon = Daemon::start().await;
    let gate = daemon.files.path().join("gate");
    let steps = json!([{ "do": [{ "text": "begun" }, { "wait_for": gate }] }]);
    let session = daemon.scripted(steps, json!({})).await;
    let turn = daemon.say(&session, "wait").await;
    let stream = daemon.request("GET", &format!("/v1/sessions/{session}/events")).send().await.unwrap();
    let waiting = daemon.request("GET", &format!("/v1/sessions/{session}/turns/{turn}?wait_ms=60000"));
    let waiting = tokio::spawn(waiting.send());
    // A connection with nothing under way is no reason to wait either.
    let idle = TcpStream::connect(daemon.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let began = std::time::Instant::now();
    daemon.stop_serving().await;
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    // It was closed properly, so this is no error.
    let text = stream.text().await.unwrap();
    assert!(text.contains("event: turn_started") && text.ends_with("\n\n"), "{text}");
    let record: Value = waiting.await.unwrap().unwrap().json().await.unwrap();
    assert!(["running", "streaming"].contains(&record["status"].as_str().unwrap()), "{record}");
    drop(idle);
    assert!(TcpStream::connect(daemon.address).await.is_err(), "no new connection is taken");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_watchers_see_the_same() {
    let daemon = Daemon::start().await;
    let steps = json!([
        call_step("read_file", json!({ "path": "missing" })),
        { "do": [{ "text": "a long answer in many pieces ".repeat(50), "chunk": 3 }] },
        text_step("over"),
    ]);
    let session = daemon.scripted(steps, json!({})).await;
    let path = format!("/v1/sessions/{session}/events");
    let mut watchers = Vec::new();
    for _ in 0..20 {
        let mut response = daemon.request("GET", &path).send().await.unwrap();
        watchers.push(tokio::spawn(async move {
            let mut seen = String::new();
            while !seen.contains("event: turn_completed") || !seen.ends_with("\n\n") {
                seen.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
            }
            seen
        }));
    }
    daemon.say(&session, "go").await;
    let text = |events: &[Value]| {
        let deltas = events.iter().filter(|event| event["type"] == "model_output_delta");
        deltas.map(|event| event["data"]["text"].as_str().unwrap()).collect::<String>()
    };
    let mut texts = Vec::new();
    for watcher in watchers {
        let seen = timeout(PATIENCE, watcher).await.unwrap().unwrap();
        let events: Vec<Value> = parse_sse(&seen).into_iter().map(|event| event.data).collect();
        texts.push(text(&events));
    }
    let later = daemon.events(&session).await;
    assert!(texts.iter().all(|seen| *seen == text(&later)), "{texts:?}");
}

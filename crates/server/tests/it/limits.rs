//! What is too much, too often or too slow: each is refused by name, counted, and hurts nobody else.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_server::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::rig::{Daemon, PATIENCE, TOKEN};

/// A whole refusal as it came over the wire.
#[track_caller]
fn whole(answer: &str, status: u16, code: &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(head.contains("content-type: application/problem+json"), "{answer}");
    let problem: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert_eq!((&problem["code"], &problem["status"]), (&json!(code), &json!(status)), "{answer}");
    for field in ["detail", "hint", "title"] {
        assert!(problem[field].as_str().is_some_and(|text| !text.is_empty()), "{field} in {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_cannot_be_read_get_a_whole_refusal() {
    let daemon = Daemon::start().await;
    for bad in [
        &b"nonsense\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\nhost: localhost\r\n\r\n",
        b"GET /\x01 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello of sorts\r\n\r\n",
    ] {
        whole(&daemon.raw(bad).await, 400, "bad_head");
    }
    let many: String = (0..100).map(|number| format!("x-{number}: y\r\n")).collect();
    let long = format!("x-long: {}\r\n", "y".repeat(70_000));
    for flood in [many, long] {
        let request = format!("GET /healthz HTTP/1.1\r\nhost: localhost\r\n{flood}\r\n");
        whole(&daemon.raw(request.as_bytes()).await, 431, "head_too_large");
    }
    // Also behind a request that was fine.
    let second = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nnonsense\r\n\r\n";
    let answers = daemon.raw(second).await;
    let (first, rest) = answers.split_at(answers.rfind("HTTP/1.1 4").unwrap());
    assert!(first.starts_with("HTTP/1.1 200"), "{answers}");
    whole(rest, 400, "bad_head");
    assert_eq!((daemon.refusals("bad_head").await, daemon.refusals("head_too_large").await), (7, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_header_bytes_is_cut_and_told() {
    let daemon = Daemon::start().await;
    let mut socket = TcpStream::connect(daemon.address).await.unwrap();
    socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n").await.unwrap();
    let mut sent = 0;
    let flood = async {
        while sent < 64 << 20 && socket.write_all(&[b'a'; 4096]).await.is_ok() {
            sent += 4096;
        }
    };
    timeout(PATIENCE, flood).await.unwrap();
    assert!(sent < 64 << 20, "it was taken to the end");
    assert_eq!(daemon.refusals("head_too_large").await, 1);
    daemon.is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_dripping_heads_are_cut_while_others_are_served() {
    let limits = Limits { header_read: Duration::from_millis(500), ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let mut drips = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let mut socket = TcpStream::connect(daemon.address).await.unwrap();
        drips.spawn(async move {
            let began = Instant::now();
            let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ".bytes().chain(std::iter::repeat(b'x'));
            for byte in request {
                if socket.write_all(&[byte]).await.is_err() || began.elapsed() > PATIENCE {
                    break;
                }
                let mut answer = vec![];
                match timeout(Duration::from_millis(50), socket.read_to_end(&mut answer)).await {
                    Err(_) => {}
                    Ok(_) => return String::from_utf8_lossy(&answer).into_owned(),
                }
            }
            String::new()
        });
    }
    // While they drip, a turn runs to its end.
    let session = daemon.create(json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    let mut told = 0;
    while let Some(answer) = drips.join_next().await {
        let answer = answer.unwrap();
        if !answer.is_empty() {
            whole(&answer, 408, "head_timeout");
            told += 1;
        }
    }
    assert!(told > 0, "nobody was told why");
    assert_eq!(daemon.refusals("head_timeout").await, 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_all_connections() {
    let limits = Limits { connections_per_address_max: 2, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let mut held = vec![];
    for _ in 0..2 {
        let mut socket = TcpStream::connect(daemon.address).await.unwrap();
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        socket.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        held.push(socket);
    }
    whole(&daemon.raw(b"").await, 503, "too_many_connections");
    // Another address of the same machine still gets in.
    let from = tokio::net::TcpSocket::new_v4().unwrap();
    from.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = from.connect(daemon.address).await.unwrap();
    other.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, other.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop(held);
    let free = async {
        while !daemon
            .raw(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .contains(" 200 ")
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, free).await.expect("their places are free again");
    assert!(daemon.refusals("too_many_connections").await >= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_stream_too_many_is_refused() {
    let limits = Limits { streams_max: 2, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let session = daemon.create(json!({})).await;
    let path = format!("/v1/sessions/{session}/events");
    let held =
        [daemon.request("GET", &path).send().await.unwrap(), daemon.request("GET", "/v1/events").send().await.unwrap()];
    for path in [&*path, "/v1/events"] {
        let got = daemon.get(path).await;
        got.refused(429, "too_many_streams");
        assert_eq!(got.header("retry-after"), "5");
    }
    assert_eq!(daemon.refusals("too_many_streams").await, 2);
    drop(held);
    let free = async {
        while daemon.get(&format!("{path}?follow=false")).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, free).await.expect("their places are free again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_asks_too_fast_is_told_to_wait_and_others_are_not() {
    let limits = Limits { requests_per_second_max: 1, requests_burst_max: 5, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let other = daemon.post("/v1/tokens", json!({ "name": "other" })).await.ok()["token"].clone();
    let mut refused = None;
    for _ in 0..50 {
        let got = daemon.get("/v1/sessions").await;
        if got.status != 200 {
            refused = Some(got);
            break;
        }
    }
    let refused = refused.expect("fifty at once are too many");
    refused.refused(429, "too_fast");
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    let got = daemon.send(daemon.bare("GET", "/v1/sessions").bearer_auth(other.as_str().unwrap())).await;
    assert_eq!(got.status, 200, "{got:?}");
    daemon.is_well().await;
    let passed = async {
        while daemon.get("/v1/sessions").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(PATIENCE, passed).await.expect("it may ask again after a while");
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_requests_of_an_address_are_slowed_and_a_valid_token_still_works() {
    let limits = Limits { failures_per_minute_max: 3, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    for (status, code) in
        [(401, "unauthorized"), (401, "unauthorized"), (401, "unauthorized"), (429, "too_many_failures")]
    {
        let got = daemon.send(daemon.bare("GET", "/v1/sessions").bearer_auth("wrong")).await;
        got.refused(status, code);
        assert_eq!(got.header("retry-after").is_empty(), status == 401);
    }
    // Guessed links count too.
    daemon.send(daemon.bare("GET", "/login?code=guess")).await.refused(429, "too_many_failures");
    assert_eq!(daemon.get("/v1/sessions").await.status, 200);
    assert_eq!((daemon.refusals("unauthorized").await, daemon.refusals("too_many_failures").await), (3, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_body_bytes_are_refused_and_counted() {
    let limits = Limits { body_bytes_max: 1000, drain_bytes_max: 1 << 20, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    daemon.post("/v1/sessions", json!({ "workspace_path": "x".repeat(2000) })).await.refused(413, "body_too_large");
    // One that never ends, and tells no length.
    let head = format!(
        "POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let mut socket = TcpStream::connect(daemon.address).await.unwrap();
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut sent = 0;
    let flood = async {
        while sent < 64 << 20 && socket.write_all(&[&b"1000\r\n"[..], &[b'a'; 0x1000], b"\r\n"].concat()).await.is_ok()
        {
            sent += 0x1000;
        }
    };
    timeout(PATIENCE, flood).await.unwrap();
    assert!(sent < 64 << 20, "it was taken to the end");
    assert_eq!(daemon.refusals("body_too_large").await, 2);
    assert_eq!(daemon.get("/v1/sessions").await.ok()["sessions"], json!([]));
}

//! The stream against a peer that breaks off, repeats itself, moves and refuses.

use std::sync::Mutex;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Takes one connection and returns it with the head of its request.
async fn accept(listener: &TcpListener) -> (TcpStream, String) {
    let (mut peer, _) = listener.accept().await.unwrap();
    let mut head = vec![];
    while !head.ends_with(b"\r\n\r\n") {
        head.push(peer.read_u8().await.unwrap());
    }
    (peer, String::from_utf8(head).unwrap().to_ascii_lowercase())
}

async fn send(peer: &mut TcpStream, text: &str) {
    peer.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes()).await.unwrap();
}

fn sse(cursor: &str, data: &str) -> String {
    format!("id: {cursor}\nevent: e\ndata: {data}\n\n")
}

fn item(cursor: &str, data: &str) -> Item {
    Item { cursor: cursor.into(), kind: "e".into(), json: data.into() }
}

async fn listen() -> (TcpListener, Target) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = Target::new(format!("http://{}", listener.local_addr().unwrap()), "token");
    (listener, target)
}

async fn take(stream: &mut EventStream, count: usize) -> Vec<Item> {
    let mut items = vec![];
    for _ in 0..count {
        items.push(stream.next().await.unwrap().unwrap());
    }
    items
}

#[tokio::test]
async fn a_broken_stream_goes_on_at_its_cursor_without_repeats() {
    let (listener, target) = listen().await;
    let peer = tokio::spawn(async move {
        let (mut peer, head) = accept(&listener).await;
        assert!(!head.contains("last-event-id"), "{head}");
        assert!(head.contains("authorization: bearer token"), "{head}");
        peer.write_all(HEAD.as_bytes()).await.unwrap();
        send(&mut peer, &sse("1", "a")).await;
        // The second event is cut inside a character.
        peer.write_all(b"40\r\nid: 1.5\nevent: e\ndata: \xc3").await.unwrap();
        drop(peer);
        let (mut peer, head) = accept(&listener).await;
        assert!(head.contains("last-event-id: 1\r\n"), "{head}");
        peer.write_all(HEAD.as_bytes()).await.unwrap();
        send(&mut peer, &format!("{}{}{}", sse("1", "a"), sse("1.5", "ä"), sse("2", "c"))).await;
        send(&mut peer, &format!("{}{}", sse("1.9", "old"), sse("10", "d"))).await;
        peer
    });
    let mut stream = Client::new(target).events("sess_1", Until::Forever);
    assert_eq!(take(&mut stream, 4).await, [item("1", "a"), item("1.5", "ä"), item("2", "c"), item("10", "d")]);
    assert_eq!((stream.connections(), stream.cursor()), (2, Some("10")));
    peer.await.unwrap();
}

#[tokio::test]
async fn a_daemon_that_moved_is_found_again() {
    let (first, target) = listen().await;
    let (second, moved) = listen().await;
    let place = Arc::new(Mutex::new(Some(target.clone())));
    let find: Find = {
        let place = Arc::clone(&place);
        Arc::new(move || place.lock().unwrap().clone())
    };
    let client = Client::new(target);
    let mut stream = client.events("sess_1", Until::Forever).finding(find);
    let peer = tokio::spawn(async move {
        let (mut peer, _) = accept(&first).await;
        peer.write_all(HEAD.as_bytes()).await.unwrap();
        send(&mut peer, &sse("1", "a")).await;
        *place.lock().unwrap() = None;
        drop((peer, first));
        tokio::time::sleep(Duration::from_millis(200)).await;
        *place.lock().unwrap() = Some(moved);
        let (mut peer, head) = accept(&second).await;
        assert!(head.contains("last-event-id: 1\r\n"), "{head}");
        peer.write_all(HEAD.as_bytes()).await.unwrap();
        send(&mut peer, &sse("2", "b")).await;
        (peer, second)
    });
    assert_eq!(take(&mut stream, 2).await, [item("1", "a"), item("2", "b")]);
    let (_, second) = peer.await.unwrap();
    assert_eq!(client.target().base_url(), format!("http://{}", second.local_addr().unwrap()), "clones follow");
}

#[tokio::test]
async fn a_refusal_and_a_lost_daemon_become_errors() {
    let (listener, target) = listen().await;
    let peer = tokio::spawn(async move {
        let (mut peer, _) = accept(&listener).await;
        let body = r#"{"status":404,"code":"unknown_session","detail":"there is no such session","hint":""}"#;
        let head = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n", body.len());
        peer.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    });
    let mut stream = Client::new(target).events("sess_1", Until::Forever).patience(Duration::from_millis(100));
    let refused = stream.next().await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Some("unknown_session"));
    peer.await.unwrap();
    let lost = stream.next().await.unwrap().unwrap_err();
    assert!(matches!(lost, Error::Unreachable { .. }), "{lost}");
}

#[tokio::test]
async fn a_stream_to_the_present_ends_there_and_a_reset_is_let_through() {
    let (listener, target) = listen().await;
    let peer = tokio::spawn(async move {
        let (mut peer, head) = accept(&listener).await;
        assert!(head.starts_with("get /v1/sessions/sess_1/events?follow=false "), "{head}");
        assert!(head.contains("last-event-id: 4.20\r\n"), "{head}");
        peer.write_all(HEAD.as_bytes()).await.unwrap();
        send(&mut peer, "id: 4\nevent: stream_reset\ndata: {}\n\n").await;
        send(&mut peer, &sse("5", "e")).await;
        peer.write_all(b"0\r\n\r\n").await.unwrap();
    });
    let mut stream = Client::new(target).events("sess_1", Until::Present).after("4.20");
    let reset = Item { cursor: "4".into(), kind: "stream_reset".into(), json: "{}".into() };
    assert_eq!(take(&mut stream, 2).await, [reset, item("5", "e")]);
    assert!(stream.next().await.is_none());
    peer.await.unwrap();
}

#[test]
fn cursors_order() {
    assert_eq!(place("42.1830"), Some((42, 1830)));
    assert!(place("42") < place("42.1") && place("42.9") < place("42.10") && place("42.10") < place("43"));
    assert_eq!(place("x"), None);
}

//! Connections that do nothing, come too slowly, or are too many.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_server::Limits;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::rig::{Daemon, PATIENCE};

const IDLE: usize = 1000;

/// Both ends of every connection live in this process.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_connections_hurt_nobody() {
    allow_many_files();
    let daemon = Daemon::start().await;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        idle.push(TcpStream::connect(daemon.address).await.unwrap());
    }
    // Some have said half a word.
    for socket in idle.iter_mut().step_by(2) {
        socket.write_all(b"GET /healthz HT").await.unwrap();
    }
    let began = Instant::now();
    let session = daemon.create(json!({})).await;
    let turn = daemon.say(&session, "hi").await;
    daemon.completed(&daemon.rested(&session, &turn).await);
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    daemon.is_well().await;
    drop(idle);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_drips_and_a_connection_that_idles_are_closed() {
    let limits =
        Limits { header_read: Duration::from_millis(200), idle: Duration::from_millis(400), ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let mut dripping = TcpStream::connect(daemon.address).await.unwrap();
    let mut idle = TcpStream::connect(daemon.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let drip = async {
        let request = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n".bytes().chain(std::iter::repeat(b'x'));
        for byte in request {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if dripping.write_all(&[byte]).await.is_err() {
                return;
            }
        }
    };
    timeout(Duration::from_secs(5), drip).await.expect("a dripping head is cut");
    let mut answer = String::new();
    timeout(Duration::from_secs(5), idle.read_to_string(&mut answer)).await.expect("an idle one is closed").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    daemon.is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_is_told_so_and_closed() {
    let limits = Limits { connections_max: 3, ..Limits::default() };
    let daemon = Daemon::with_limits(limits).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut socket = TcpStream::connect(daemon.address).await.unwrap();
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut first = [0; 12];
        socket.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"HTTP/1.1 200");
        held.push(socket);
    }
    let mut over = TcpStream::connect(daemon.address).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, over.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("too_many_connections"), "{answer}");
    drop(held);
    tokio::time::sleep(Duration::from_millis(200)).await;
    daemon.is_well().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_serves_many_requests() {
    let daemon = Daemon::start().await;
    let one = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let last = "GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = daemon.raw(format!("{one}{one}{last}").as_bytes()).await;
    assert_eq!(answer.matches("HTTP/1.1 200 OK").count(), 3, "{answer}");
}

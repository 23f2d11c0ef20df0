//! A vendor that says a great deal at once, and clients that read nothing meanwhile: all of it reaches them in order, and nothing piles up for them in memory.

use std::{collections::BTreeMap, fs, sync::Arc, time::Duration};

use futures::future::join_all;
use serde_json::{Value, json};
use tenure_models::catalog::{CatalogConfig, ProviderConfig};
use tenure_testkit::vendor::{Answer, FakeVendor, Format, Piece, Speech};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::rig::{Daemon, TOKEN};

/// Fragments of each of two calls. They take turns, so no two of them can be joined on the way.
const ROUNDS: usize = 20_000;
const FRAGMENT_BYTES: usize = 16;
const CLIENTS: usize = 2;
/// They are some 16 MB as events; the reply itself takes half of that.
const GROWTH_KB_MAX: u64 = 18 * 1024;
const PATIENCE: Duration = Duration::from_secs(120);

fn fragment(call: usize, round: usize) -> String {
    match round {
        0 => "{\"text\": \"".to_owned(),
        _ if round == ROUNDS - 1 => "\"}".to_owned(),
        _ => format!("{call} {round:0width$}", width = FRAGMENT_BYTES - 2),
    }
}

/// A reply that asks for two calls, in more fragments than anybody reads at once.
fn endless() -> Answer {
    let event = |delta: Value| format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": delta }] }));
    let call =
        |index: usize, function: Value| json!({ "index": index, "id": format!("call_{index}"), "function": function });
    let begun = (0..2).map(|index| event(json!({ "tool_calls": [call(index, json!({ "name": "none" }))] })));
    let spoken = (0..2 * ROUNDS).map(|number| {
        let function = json!({ "arguments": fragment(number % 2, number / 2) });
        event(json!({ "tool_calls": [{ "index": number % 2, "function": function }] }))
    });
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n".to_owned();
    let text: String = begun.chain(spoken).chain([end]).collect();
    let pieces = text.as_bytes().chunks(64 * 1024).map(|piece| Piece::Bytes(piece.to_vec())).collect();
    Answer { pieces, ..Answer::events("") }
}

/// A client that has asked for the events and reads none of them; little fits into its own buffers.
async fn deaf(daemon: &Daemon, session: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 * 1024).unwrap();
    let mut stream = socket.connect(daemon.address).await.unwrap();
    let request = format!(
        "GET /v1/sessions/{session}/events HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// All events up to the turn's end, without the head of the answer and signs of life.
async fn hear(mut client: TcpStream) -> String {
    let mut heard = Vec::new();
    let mut room = vec![0; 1024 * 1024];
    let end = b"event: turn_completed";
    loop {
        let looked_at = heard.len().saturating_sub(end.len());
        let bytes = timeout(PATIENCE, client.read(&mut room)).await.unwrap().unwrap();
        assert!(bytes > 0, "the stream ended early");
        heard.extend_from_slice(&room[..bytes]);
        if heard[looked_at..].windows(end.len()).any(|window| window == end) {
            break;
        }
    }
    let heard = String::from_utf8(heard).unwrap();
    let (_, events) = heard.split_once("\r\n\r\n").unwrap();
    let (events, _) = events.split_once("event: turn_completed").unwrap();
    events.split_inclusive("\n\n").filter(|event| !event.starts_with(':')).collect()
}

/// What each call's arguments come to, and how many fragments told them.
fn arguments(events: &str) -> (BTreeMap<u64, String>, usize) {
    let (mut told, mut count) = (BTreeMap::<u64, String>::new(), 0);
    for event in events.split("\n\n") {
        let Some((_, data)) = event.split_once("event: tool_arguments_delta\ndata: ") else { continue };
        let data: Value = serde_json::from_str(data).unwrap();
        let call = data["data"]["index"].as_u64().unwrap();
        told.entry(call).or_default().push_str(data["data"]["text"].as_str().unwrap());
        count += 1;
    }
    (told, count)
}

/// A number of this process' own account, in KB.
fn status(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_piles_up_for_clients_that_do_not_read() {
    let vendor = FakeVendor::start().await;
    vendor.plan(endless());
    vendor.plan(Answer::events(Speech::text("Done.").events(Format::Chat)));
    let provider = ProviderConfig { base_url: Some(vendor.url("/v1")), ..ProviderConfig::default() };
    let models = CatalogConfig { providers: [("box".to_owned(), provider)].into(), ..CatalogConfig::default() };
    let daemon = Daemon::on_disk_with_models(Arc::new(tempfile::tempdir().unwrap()), models).await;
    let session = daemon.create(json!({ "model": "box/m" })).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(deaf(&daemon, &session).await);
    }
    while daemon.engine.subscribers() < CLIENTS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // The highest this process has ever been: what was needed to make the reply is in it.
    fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = status("VmHWM");
    let turn = daemon.say(&session, "go").await;
    let path = format!("/v1/sessions/{session}/turns/{turn}?wait_ms=60000");
    let record = loop {
        let record = timeout(PATIENCE, daemon.request("GET", &path).send()).await.unwrap().unwrap();
        let record: Value = record.json().await.unwrap();
        if record["status"] != "running" && record["status"] != "streaming" {
            break record;
        }
    };
    assert_eq!(record["status"], "completed", "{record}");
    let grown = status("VmHWM").saturating_sub(before);
    assert!(grown < GROWTH_KB_MAX, "the memory grew by {grown} KB");
    let told = join_all(clients.into_iter().map(hear)).await;
    assert!(told.iter().all(|events| *events == told[0]), "all are told the same");
    let (first, count) = arguments(&told[0]);
    let whole = |call: usize| (0..ROUNDS).map(|round| fragment(call, round)).collect::<String>();
    assert!(first == BTreeMap::from([(0, whole(0)), (1, whole(1))]), "they are told something else");
    assert!(count > ROUNDS, "{count} fragments are too few to say anything about memory");
}

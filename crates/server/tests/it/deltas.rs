//! A vendor that says a great deal at once, and clients that read nothing meanwhile: all of it reaches them in order, and nothing piles up for them in memory.

use std::{collections::BTreeMap, fs, sync::Arc, time::Duration};

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
const ROUNDS: usize = 30_000;
const FRAGMENT_BYTES: usize = 16;
const CLIENTS: usize = 4;
/// Held for each client, they would take some 20 MB for each of them.
const GROWTH_KB_MAX: u64 = 40 * 1024;
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
    socket.set_recv_buffer_size(4 * 1024).unwrap();
    let mut stream = socket.connect(daemon.address).await.unwrap();
    let request = format!(
        "GET /v1/sessions/{session}/events HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// What each call's arguments come to, and how many fragments told them.
async fn hear(mut client: TcpStream) -> (BTreeMap<u64, String>, usize) {
    let (mut unread, mut told, mut count) = (Vec::new(), BTreeMap::<u64, String>::new(), 0);
    let mut room = vec![0; 64 * 1024];
    loop {
        let bytes = timeout(PATIENCE, client.read(&mut room)).await.unwrap().unwrap();
        assert!(bytes > 0, "the stream ended early");
        unread.extend_from_slice(&room[..bytes]);
        while let Some(end) = unread.windows(2).position(|two| two == b"\n\n") {
            let event = String::from_utf8(unread.drain(..end + 2).collect()).unwrap();
            if event.contains("event: turn_completed") {
                return (told, count);
            }
            let Some((_, data)) = event.split_once("\ndata: ") else { continue };
            let data: Value = serde_json::from_str(data).unwrap();
            let (Some(call), Some(text)) = (data["data"]["index"].as_u64(), data["data"]["text"].as_str()) else {
                continue;
            };
            told.entry(call).or_default().push_str(text);
            count += 1;
        }
    }
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
    let whole = |call: usize| (0..ROUNDS).map(|round| fragment(call, round)).collect::<String>();
    let expected = BTreeMap::from([(0, whole(0)), (1, whole(1))]);
    for client in clients {
        let (told, count) = hear(client).await;
        assert!(told == expected, "a client was told something else");
        assert!(count > ROUNDS, "{count} fragments are too few to say anything about memory");
    }
}

//! A plain reader of a session's stream, as anybody would write it: it reconnects with the last id it saw and keeps everything it is given. It hides nothing that a server does wrong.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use serde_json::Value;
use tokio::{sync::watch, task::JoinHandle};

use crate::rig::{Daemon, PATIENCE};

#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    pub id: String,
    pub kind: String,
    pub event: Value,
}

impl Seen {
    /// The cursor as numbers.
    pub fn place(&self) -> (u64, u64) {
        let (seq, pos) = self.id.split_once('.').unwrap_or((&self.id, "0"));
        (seq.parse().unwrap(), pos.parse().unwrap())
    }

    pub fn data(&self, field: &str) -> &Value {
        &self.event["data"][field]
    }
}

pub struct Reader {
    seen: Arc<Mutex<Vec<Seen>>>,
    grown: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Reader {
    pub fn start(daemon: &Daemon, session: &str) -> Reader {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (grow, grown) = watch::channel(0);
        let (find, kept) = (daemon.find(), seen.clone());
        let path = format!("/v1/sessions/{session}/events");
        let task = tokio::spawn(async move {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let http = reqwest::Client::builder().no_proxy().build().unwrap();
            loop {
                if let Some(target) = find() {
                    let last = kept.lock().unwrap().last().map(|seen: &Seen| seen.id.clone());
                    let mut request = http.get(format!("{}{path}", target.base_url())).bearer_auth(target.token());
                    if let Some(last) = last {
                        request = request.header("Last-Event-ID", last);
                    }
                    if let Ok(response) = request.send().await {
                        if response.status() != 200 {
                            return;
                        }
                        read(response, &kept, &grow).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Reader { seen, grown, task }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn of_kind(&self, kind: &str) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.kind == kind).collect()
    }

    /// The first that fits, past ones included.
    pub async fn wait(&self, what: &str, fits: impl Fn(&Seen) -> bool) -> Seen {
        let mut grown = self.grown.clone();
        let found = async {
            loop {
                if let Some(seen) = self.seen().into_iter().find(&fits) {
                    return seen;
                }
                grown.changed().await.expect("the reader lives");
            }
        };
        match tokio::time::timeout(PATIENCE, found).await {
            Ok(seen) => seen,
            Err(_) => panic!("no {what} came; there are {:#?}", self.kinds()),
        }
    }

    pub async fn wait_kind(&self, kind: &str) -> Seen {
        self.wait(kind, |seen| seen.kind == kind).await
    }

    pub fn kinds(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| format!("{} {}", seen.id, seen.kind)).collect()
    }

    /// Numbered kinds only.
    pub fn numbered(&self) -> Vec<String> {
        self.seen().into_iter().filter(|seen| seen.place().1 == 0).map(|seen| seen.kind).collect()
    }

    /// The joined text that was streamed of the attempt which `ended` closes.
    fn streamed(&self, ended: &Seen) -> String {
        let same = |seen: &&Seen| {
            seen.event["turn_id"] == ended.event["turn_id"]
                && seen.data("step") == ended.data("step")
                && seen.data("attempt") == ended.data("attempt")
        };
        let deltas = self.of_kind("model_output_delta");
        deltas.iter().filter(same).map(|seen| seen.data("text").as_str().unwrap().to_owned()).collect()
    }

    /// Nothing missing, repeated or changed: numbers without a gap, cursors that only go on, texts as they were streamed, and a fresh reader is given the same.
    pub async fn assert_whole(&self, daemon: &Daemon, session: &str) {
        let seen = self.seen();
        let places: Vec<_> = seen.iter().map(Seen::place).collect();
        assert!(places.is_sorted_by(|a, b| a < b), "cursors only go on: {:#?}", self.kinds());
        let numbers: Vec<u64> = places.iter().filter(|(_, pos)| *pos == 0).map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        assert!(self.of_kind("stream_reset").is_empty());
        for ended in seen.iter().filter(|seen| matches!(&*seen.kind, "model_output_completed" | "model_attempt_failed"))
        {
            assert_eq!(*ended.data("text"), self.streamed(ended), "{ended:?}");
        }
        let last = seen.last().unwrap().id.clone();
        let fresh = Reader::start(daemon, session);
        fresh.wait("the last item", |seen| seen.id == last).await;
        let again: Vec<Seen> = fresh.seen().into_iter().take(seen.len()).collect();
        assert_eq!(again, seen);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Takes in whole events until the connection ends.
async fn read(response: reqwest::Response, kept: &Mutex<Vec<Seen>>, grow: &watch::Sender<usize>) {
    let mut body = response.bytes_stream();
    let mut buffer: Vec<u8> = Vec::new();
    while let Some(Ok(chunk)) = body.next().await {
        buffer.extend_from_slice(&chunk);
        while let Some(end) = buffer.windows(2).position(|pair| pair == b"\n\n") {
            let block: Vec<u8> = buffer.drain(..end + 2).collect();
            if let Some(seen) = parse(std::str::from_utf8(&block).unwrap()) {
                let mut all = kept.lock().unwrap();
                all.push(seen);
                let _ = grow.send(all.len());
            }
        }
    }
}

/// One event; comments are none.
fn parse(block: &str) -> Option<Seen> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
    let event = serde_json::from_str(&field("data: ")?).unwrap();
    Some(Seen { id: field("id: ")?, kind: field("event: ")?, event })
}

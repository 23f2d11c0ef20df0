//! A vendor of models on loopback: it speaks HTTP and every format byte by byte, and fails as it is told to.

mod speech;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{JoinHandle, JoinSet},
};

pub use speech::{Format, Speech, Spoken};

/// A request as the vendor got it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Whether it only looks at what there is.
    fn is_look(&self) -> bool {
        self.method == "GET" || self.path.ends_with("/api/show")
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What the vendor does next with an answer under way.
#[derive(Debug, Clone)]
pub enum Piece {
    Bytes(Vec<u8>),
    Pause(Duration),
    /// It says no more and keeps the connection open.
    Stall,
    /// It breaks the connection in the middle of the answer.
    Cut,
}

/// One answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub pieces: Vec<Piece>,
}

impl Answer {
    /// A stream of events, in one piece.
    pub fn events(text: impl Into<Vec<u8>>) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            pieces: vec![Piece::Bytes(text.into())],
        }
    }

    /// A small answer, mostly a refusal.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            pieces: vec![Piece::Bytes(body.to_string().into_bytes())],
        }
    }

    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// All its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let bytes = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Bytes(bytes) => Some(bytes.as_slice()),
            _ => None,
        });
        bytes.collect::<Vec<_>>().concat()
    }

    /// The same bytes in two pieces.
    pub fn split(self, at: usize) -> Self {
        let bytes = self.bytes();
        let (one, two) = bytes.split_at(at.min(bytes.len()));
        Self { pieces: vec![Piece::Bytes(one.into()), Piece::Bytes(two.into())], ..self }
    }

    /// The same bytes one by one.
    pub fn drip(self) -> Self {
        let pieces = self.bytes().into_iter().map(|byte| Piece::Bytes(vec![byte])).collect();
        Self { pieces, ..self }
    }

    /// Its first bytes, and then something else.
    pub fn until(self, at: usize, then: Piece) -> Self {
        let mut bytes = self.bytes();
        bytes.truncate(at);
        Self { pieces: vec![Piece::Bytes(bytes), then], ..self }
    }
}

type Mind = dyn Fn(&Asked, usize) -> Answer + Send + Sync;

/// The vendor. It ends when it is dropped.
pub struct FakeVendor {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    asked: Mutex<Vec<Asked>>,
    looked: Mutex<Vec<Asked>>,
    planned: Mutex<VecDeque<Answer>>,
    mind: Box<Mind>,
}

impl FakeVendor {
    /// A vendor that gives the answers it is told beforehand, and a refusal when there are none left.
    pub async fn start() -> Self {
        Self::with(|_, _| Answer::json(500, &serde_json::json!({ "error": { "message": "no answer was planned" } })))
            .await
    }

    /// A vendor that makes up its answers from the request and its number, from 0.
    pub async fn with(mind: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1:0".parse().expect("an address"), mind).await
    }

    /// The same at a known address, such as one that was left before.
    pub async fn at(address: SocketAddr, mind: impl Fn(&Asked, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            asked: Mutex::default(),
            looked: Mutex::default(),
            planned: Mutex::default(),
            mind: Box::new(mind),
        });
        let served = shared.clone();
        let task = tokio::spawn(async move {
            // Who is gone takes its connections along.
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, served.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, shared, task }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next answer, after those that were planned before.
    pub fn plan(&self, answer: Answer) {
        lock(&self.shared.planned).push_back(answer);
    }

    /// All looks so far at what the vendor has. They come beside the requests, when they like: they are not counted with
    /// them, and get no planned answer.
    pub fn looked(&self) -> Vec<Asked> {
        lock(&self.shared.looked).clone()
    }

    /// All requests so far that want a reply.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.shared.asked).clone()
    }
}

impl Drop for FakeVendor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut unread = Vec::new();
    while let Some(asked) = read(&mut stream, &mut unread).await {
        let answer = shared.answer(asked);
        if write(&mut stream, answer).await.is_none() {
            return;
        }
    }
}

impl Shared {
    fn answer(&self, asked: Asked) -> Answer {
        if asked.is_look() {
            lock(&self.looked).push(asked.clone());
            return (self.mind)(&asked, lock(&self.asked).len());
        }
        let number = {
            let mut all = lock(&self.asked);
            all.push(asked.clone());
            all.len() - 1
        };
        let planned = lock(&self.planned).pop_front();
        planned.unwrap_or_else(|| (self.mind)(&asked, number))
    }
}

/// Reads one request: a head, and as many bytes as it says.
async fn read(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<Asked> {
    let head_end = loop {
        if let Some(at) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        more(stream, unread).await?;
    };
    let head = String::from_utf8_lossy(&unread[..head_end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let split = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    let headers: Vec<_> = lines.filter_map(split).collect();
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    while unread.len() < head_end + length {
        more(stream, unread).await?;
    }
    let body = unread[head_end..head_end + length].to_vec();
    unread.drain(..head_end + length);
    Some(Asked { method, path, headers, body })
}

async fn more(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<()> {
    let mut room = [0; 16 * 1024];
    match stream.read(&mut room).await {
        Ok(0) | Err(_) => None,
        Ok(bytes) => {
            unread.extend_from_slice(&room[..bytes]);
            Some(())
        }
    }
}

/// Writes an answer, each piece as a chunk of its own. `None`: the connection is over.
async fn write(stream: &mut TcpStream, answer: Answer) -> Option<()> {
    let mut head = format!("HTTP/1.1 {} X\r\ntransfer-encoding: chunked\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    for piece in answer.pieces {
        match piece {
            Piece::Bytes(bytes) if bytes.is_empty() => {}
            Piece::Bytes(bytes) => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend_from_slice(&bytes);
                chunk.extend_from_slice(b"\r\n");
                stream.write_all(&chunk).await.ok()?;
                // A piece of its own for the reader, too.
                tokio::task::yield_now().await;
            }
            Piece::Pause(time) => tokio::time::sleep(time).await,
            Piece::Stall => {
                // Until the other side goes away.
                while more(stream, &mut Vec::new()).await.is_some() {}
                return None;
            }
            Piece::Cut => return None,
        }
    }
    stream.write_all(b"0\r\n\r\n").await.ok()
}

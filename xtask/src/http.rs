//! A plain HTTP client over one connection, as anybody would write it: it repeats nothing and hides nothing that a server does wrong.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Where a daemon listens and the key to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub address: SocketAddr,
    pub token: String,
}

/// A whole answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn json(&self) -> Result<Value> {
        serde_json::from_slice(&self.body).with_context(|| format!("no JSON: {self}"))
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// A silent daemon is given up after this long.
const PATIENCE: Duration = Duration::from_secs(60);
/// No answer has a line longer than this before its body.
const LINE_BYTES_MAX: u64 = 64 * 1024;

pub struct Connection {
    stream: BufReader<TcpStream>,
    head: String,
}

enum Length {
    Bytes(u64),
    Chunked,
}

impl Connection {
    pub fn open(target: &Target) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&target.address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let head = format!("Host: {}\r\nAuthorization: Bearer {}\r\n", target.address, target.token);
        Ok(Connection { stream: BufReader::with_capacity(64 * 1024, stream), head })
    }

    /// One request and its whole answer. The connection can be used again.
    pub fn ask(&mut self, method: &str, path: &str, key: Option<&str>, body: Option<&Value>) -> io::Result<Answer> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        self.send(method, path, &format!("{key}{kind}Content-Length: {}\r\n", body.len()), &body)?;
        self.answer()
    }

    /// Sends a request and does not wait for its answer, for those who watch what it does elsewhere.
    pub fn begin(&mut self, method: &str, path: &str, body: &str) -> io::Result<()> {
        let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        self.send(method, path, &head, body)
    }

    /// The whole answer to the request sent before.
    pub fn answer(&mut self) -> io::Result<Answer> {
        let (status, length) = self.answer_head()?;
        let mut whole = Vec::new();
        match length {
            Length::Bytes(length) => {
                whole.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
                self.stream.read_exact(&mut whole)?;
            }
            Length::Chunked => while self.chunk(&mut whole)? {},
        }
        Ok(Answer { status, body: whole })
    }

    /// Asks for a stream and gives back its pieces as they come; a refusal comes as the error's text.
    pub fn follow(mut self, path: &str, after: Option<&str>) -> io::Result<Follow> {
        let after = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        self.send("GET", path, &format!("Accept: text/event-stream\r\n{after}"), "")?;
        match self.answer_head()? {
            (200, Length::Chunked) => Ok(Follow { connection: self, pending: Vec::new(), looked_at: 0 }),
            (status, _) => Err(io::Error::other(format!("the stream was refused with {status}"))),
        }
    }

    fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) -> io::Result<()> {
        let request = format!("{method} {path} HTTP/1.1\r\n{}{headers}\r\n{body}", self.head);
        self.stream.get_mut().write_all(request.as_bytes())
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.stream).take(LINE_BYTES_MAX).read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn answer_head(&mut self) -> io::Result<(u16, Length)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no status in {first:?}")))?;
        let mut length = Length::Bytes(0);
        loop {
            let line = self.line()?.to_ascii_lowercase();
            match line.split_once(':') {
                Some(("content-length", bytes)) => {
                    length = Length::Bytes(bytes.trim().parse().map_err(io::Error::other)?);
                }
                Some(("transfer-encoding", _)) => length = Length::Chunked,
                Some(_) => {}
                None => return Ok((status, length)),
            }
        }
    }

    /// Adds the next chunk; false at the end of the body.
    fn chunk(&mut self, to: &mut Vec<u8>) -> io::Result<bool> {
        let size = self.line()?;
        let size = u64::from_str_radix(&size, 16).map_err(|_| io::Error::other(format!("no chunk size: {size:?}")))?;
        let read = (&mut self.stream).take(size).read_to_end(to)? as u64;
        if read < size || !self.line()?.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(size > 0)
    }
}

/// One event of a stream, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub id: String,
    pub kind: String,
    pub json: String,
}

/// An event stream under way.
pub struct Follow {
    connection: Connection,
    pending: Vec<u8>,
    /// Bytes of `pending` that hold no end of an event.
    looked_at: usize,
}

impl Follow {
    /// The next event; `None` when the server has ended the stream in good order.
    pub fn next(&mut self) -> Result<Option<Item>> {
        loop {
            let from = self.looked_at.saturating_sub(1);
            if let Some(end) = self.pending[from..].windows(2).position(|pair| pair == b"\n\n") {
                let rest = self.pending.split_off(from + end + 2);
                let block = std::mem::replace(&mut self.pending, rest);
                self.looked_at = 0;
                if let Some(item) = item(std::str::from_utf8(&block).context("an event is no UTF-8")?)? {
                    return Ok(Some(item));
                }
                continue;
            }
            self.looked_at = self.pending.len();
            if !self.connection.chunk(&mut self.pending)? {
                return Ok(None);
            }
        }
    }

    /// The connection, to be ended from elsewhere.
    pub fn socket(&self) -> io::Result<TcpStream> {
        self.connection.stream.get_ref().try_clone()
    }
}

/// One event; a comment is none.
fn item(block: &str) -> Result<Option<Item>> {
    let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
    match (field("id: "), field("event: "), field("data: ")) {
        (Some(id), Some(kind), Some(json)) => {
            Ok(Some(Item { id: id.to_owned(), kind: kind.to_owned(), json: json.to_owned() }))
        }
        _ if block.lines().all(|line| line.starts_with(':') || line.is_empty() || line.starts_with("retry:")) => {
            Ok(None)
        }
        _ => bail!("an event without id, event or data: {block:?}"),
    }
}

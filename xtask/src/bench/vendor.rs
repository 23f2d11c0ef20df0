//! A vendor on loopback that answers at once, in OpenAI's chat format. It knows just what is measured with it.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{deltas::DELTAS, tools::CALLS};

/// What it offers; the name says what a model does.
pub const SPEAKER: &str = "speaker";
/// It sends all deltas at once.
pub const RUSHER: &str = "rusher";
/// It asks for all calls, one by one.
pub const WORKER: &str = "worker";

const SPOKEN: &str = "The next thing is the one that people wait for; it matters because they do it many times a day.";
const COMMAND: &str = "/bin/true";
const LENGTH: &str = "content-length:";

/// It lives as long as this program.
pub struct Vendor {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    spoken: Vec<u8>,
    rushed: Vec<u8>,
    done: Vec<u8>,
    /// When the last answer began.
    began: Mutex<Option<Instant>>,
}

impl Vendor {
    pub fn start() -> Result<Vendor> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            spoken: answer(&[text(SPOKEN)], "stop"),
            rushed: answer(&vec![text("word "); DELTAS], "stop"),
            done: answer(&[text("Done.")], "stop"),
            began: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(io::Result::ok) {
                let shared = Arc::clone(&serving);
                // A client that goes away ends its thread.
                thread::spawn(move || shared.serve(stream));
            }
        });
        Ok(Vendor { address, shared })
    }

    /// What a daemon is told of it.
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("OPENAI_BASE_URL", format!("http://{}/v1", self.address)), ("NO_PROXY", "127.0.0.1".to_owned())]
    }

    /// When the last answer's first byte was handed over.
    pub fn began(&self) -> Result<Instant> {
        self.shared.began.lock().unwrap_or_else(PoisonError::into_inner).context("the vendor was not asked")
    }

    /// A client that asks it for one short reply again and again, with nothing in between.
    pub fn bare(&self) -> Result<Bare> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        Ok(Bare { stream: BufReader::new(stream), answer: vec![0; self.shared.spoken.len()] })
    }
}

pub struct Bare {
    stream: BufReader<TcpStream>,
    answer: Vec<u8>,
}

impl Bare {
    pub fn once(&mut self) -> Result<Duration> {
        let start = Instant::now();
        let body = json!({ "model": SPEAKER }).to_string();
        let head = format!("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {}\r\n\r\n", body.len());
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes())?;
        self.stream.read_exact(&mut self.answer)?;
        ensure!(self.answer.ends_with(b"\r\n0\r\n\r\n"), "the vendor gave another answer");
        Ok(start.elapsed())
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut stream = BufReader::with_capacity(64 * 1024, stream);
        let mut body = Vec::new();
        while request(&mut stream, &mut body)? {
            let model = [SPEAKER, RUSHER, WORKER].into_iter().find(|name| is_for(&body, name));
            let called;
            let bytes = match model {
                Some(RUSHER) => &self.rushed,
                Some(WORKER) => match results(&body) {
                    made if made < CALLS => {
                        called = answer(&[call(made)], "tool_calls");
                        &called
                    }
                    _ => &self.done,
                },
                _ => &self.spoken,
            };
            *self.began.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
            stream.get_mut().write_all(bytes)?;
        }
        Ok(())
    }
}

/// Reads one request; false where no more come.
fn request(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<bool> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(bytes) = line.strip_prefix(LENGTH) {
            length = bytes.trim().parse().map_err(io::Error::other)?;
        }
    }
    body.resize(length, 0);
    stream.read_exact(body)?;
    Ok(true)
}

/// The body begins with the model's name. It is not read as JSON: that would be measured too.
fn is_for(body: &[u8], model: &str) -> bool {
    body.starts_with(format!("{{\"model\":\"{model}\"").as_bytes())
}

/// Results of calls in a request.
fn results(body: &[u8]) -> usize {
    const MARK: &[u8] = b"\"role\":\"tool\"";
    body.windows(MARK.len()).filter(|window| *window == MARK).count()
}

fn text(text: &str) -> Value {
    json!({ "content": text })
}

fn call(number: usize) -> Value {
    let arguments = json!({ "command": COMMAND }).to_string();
    let function = json!({ "name": "shell", "arguments": arguments });
    json!({ "tool_calls": [{ "index": 0, "id": format!("call_{number}"), "type": "function", "function": function }] })
}

/// A whole answer: head, one event for each delta, the reason of its end, usage, closing mark.
fn answer(deltas: &[Value], finish: &str) -> Vec<u8> {
    let event = |choices: Value, usage: Value| {
        let chunk = json!({ "id": "chat", "object": "chat.completion.chunk", "created": 0, "model": "fake",
                            "choices": choices, "usage": usage });
        format!("data: {chunk}\n\n")
    };
    let said = |delta: &Value| event(json!([{ "index": 0, "delta": delta, "finish_reason": null }]), Value::Null);
    let mut body: String = deltas.iter().map(said).collect();
    body += &event(json!([{ "index": 0, "delta": {}, "finish_reason": finish }]), Value::Null);
    body += &event(json!([]), json!({ "prompt_tokens": 10, "completion_tokens": deltas.len(), "total_tokens": 10 }));
    body += "data: [DONE]\n\n";
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_answers_on_one_connection_again_and_again() {
        let vendor = Vendor::start().unwrap();
        assert!(vendor.began().is_err());
        let mut bare = vendor.bare().unwrap();
        bare.once().unwrap();
        bare.once().unwrap();
        assert!(vendor.began().is_ok());
    }

    #[test]
    fn a_request_is_told_by_its_model_and_its_results() {
        let body = br#"{"model":"worker","messages":[{"role":"tool"},{"role":"user"},{"role":"tool"}]}"#;
        assert!(is_for(body, WORKER) && !is_for(body, SPEAKER));
        assert_eq!(results(body), 2);
    }
}

//! Requests that went wrong at every door: never a 5xx, a whole refusal for each 4xx, and nothing begun by one.

use std::time::Duration;

use reqwest::{Method, Url};
use serde_json::{Value, json};
use tenure_fuzzkit::{Dice, mutated, target};
use tenure_server::Limits;
use tokio::time::timeout;

use crate::rig::{Daemon, Got, PATIENCE, TOKEN, client, text_step};

/// Sessions and turns pile up; a fresh daemon now and then keeps that small.
const CASES_A_DAEMON: usize = 500;
/// How long the start of an endless answer is waited for.
const HEAD: Duration = Duration::from_secs(10);

/// One request as a corpus file has it: a line `METHOD path`, header lines, an empty line, the body.
struct Request {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// `None` if what is left could not even be sent.
    fn read(input: &[u8]) -> Option<Request> {
        let split = input.windows(2).position(|pair| pair == b"\n\n").unwrap_or(input.len());
        let head = String::from_utf8_lossy(&input[..split]).into_owned();
        let mut lines = head.lines();
        let (method, path) = lines.next()?.split_once(' ')?;
        let headers = lines.filter_map(|line| line.split_once(": "));
        Some(Request {
            method: Method::from_bytes(method.as_bytes())
                .ok()
                .filter(|method| *method != Method::CONNECT && method.as_str().len() < 32)?,
            path: path.to_owned(),
            headers: headers.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            body: input.get(split + 2..).unwrap_or_default().to_vec(),
        })
    }
}

/// A daemon with a session at rest, and what is known of it.
struct Scene {
    daemon: Daemon,
    session: String,
    turn: String,
    cases: usize,
}

impl Scene {
    async fn new() -> Scene {
        let daemon = Daemon::start().await;
        let (session, turn) = at_rest(&daemon).await;
        Scene { daemon, session, turn, cases: 0 }
    }

    async fn state(&self) -> (Value, usize) {
        let listed = self.daemon.get("/v1/sessions?limit=200").await.ok();
        (self.daemon.session(&self.session).await, listed["sessions"].as_array().map_or(0, Vec::len))
    }

    async fn check(&mut self, input: &[u8]) {
        let Some(request) = Request::read(input) else { return };
        let fill = |text: &str| text.replace("{s}", &self.session).replace("{t}", &self.turn);
        let workspace = self.daemon.workspace().display().to_string();
        let path = fill(&request.path);
        let Ok(url) = Url::parse(&self.daemon.url(&path)) else { return };
        // A changed path must not lead to another machine.
        if url.host_str() != Some("127.0.0.1") || url.port() != Some(self.daemon.address.port()) {
            return;
        }
        let body = match String::from_utf8(request.body) {
            Ok(text) => fill(&text).replace("{w}", &workspace).into_bytes(),
            Err(error) => error.into_bytes(),
        };
        let before = self.state().await;
        let mut sent = client().request(request.method, url).bearer_auth(TOKEN).body(body);
        for (name, value) in request.headers {
            let own =
                ["authorization", "host", "content-length", "transfer-encoding", "connection", "expect", "upgrade"];
            let name = name.to_ascii_lowercase();
            let valid = reqwest::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
                && reqwest::header::HeaderValue::from_str(&fill(&value)).is_ok();
            if valid && !own.contains(&name.as_str()) {
                sent = sent.header(name, fill(&value));
            }
        }
        let Ok(response) = timeout(HEAD, sent.send()).await.expect("the daemon is silent") else { return };
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        if (200..300).contains(&status) {
            drop(response);
            self.daemon.is_well().await;
            (self.session, self.turn) = at_rest(&self.daemon).await;
            return;
        }
        let text = timeout(PATIENCE, response.text()).await.unwrap().unwrap();
        let got = Got { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) };
        assert!((400..500).contains(&status), "{got:?}");
        assert_eq!(got.header("content-type"), "application/problem+json", "{got:?}");
        for field in ["type", "title", "detail", "hint", "code"] {
            let whole = got.body[field].as_str().is_some_and(|text| !text.is_empty() && text.len() < 2000);
            assert!(whole, "{field} of {}", got.body);
        }
        assert_eq!(self.state().await, before, "a refused request changed something");
    }
}

/// A session whose one turn has settled.
async fn at_rest(daemon: &Daemon) -> (String, String) {
    let session = daemon.scripted(json!([text_step("done")]), json!({})).await;
    let turn = daemon.say(&session, "go").await;
    daemon.rested(&session, &turn).await;
    (session, turn)
}

#[test]
fn request() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut scene = runtime.block_on(Scene::new());
    target!("request").cases(150).run(|input| {
        scene.cases += 1;
        if scene.cases > CASES_A_DAEMON {
            scene = runtime.block_on(Scene::new());
        }
        runtime.block_on(scene.check(input));
    });
}

/// Changes one part of a request and keeps the others, so that it comes further.
#[test]
fn part() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut scene = runtime.block_on(Scene::new());
    target!("request").named("part").cases(150).run_made(with_one_part_changed, |input, _| {
        scene.cases += 1;
        if scene.cases > CASES_A_DAEMON {
            scene = runtime.block_on(Scene::new());
        }
        runtime.block_on(scene.check(input));
    });
}

fn with_one_part_changed(dice: &mut Dice, corpus: &[Vec<u8>]) -> Vec<u8> {
    let request = dice.pick(corpus).clone();
    let split = request.windows(2).position(|pair| pair == b"\n\n").map_or(request.len(), |at| at + 2);
    let (head, body) = request.split_at(split);
    if body.len() > 1 && !dice.one_in(4) {
        return [head, &mutated(dice, &[body.to_vec()])].concat();
    }
    // What stands behind the `?`, or the last part of the path.
    let line = head.iter().position(|byte| *byte == b'\n').unwrap_or(head.len());
    let from = head[..line].iter().rposition(|byte| matches!(byte, b'?' | b'/')).map_or(0, |at| at + 1);
    let mut changed = mutated(dice, &[head[from..line].to_vec()]);
    changed.retain(|byte| *byte > b' ' && *byte < 0x7f);
    [&head[..from], &changed, &head[line..], body].concat()
}

#[test]
fn feed() {
    target!("feed").cases(1000).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let Ok(cursor) = text.parse::<tenure_engine::FeedCursor>() else { return };
        assert_eq!(cursor.to_string(), text, "a place with two spellings");
    });
}

/// Heads byte for byte, as no client of ours would send them: each gets a whole answer or a closed door, and nothing is done.
#[test]
fn head() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    // A head that is cut short is waited for.
    let limits =
        || Limits { header_read: Duration::from_millis(100), idle: Duration::from_millis(100), ..Limits::default() };
    let daemon = runtime.block_on(Daemon::with_limits(limits()));
    target!("head").cases(150).at_most(2000).run(|input| {
        let answer = runtime.block_on(daemon.raw(input));
        if answer.is_empty() {
            return;
        }
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("half an answer: {answer:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok());
        let status = status.unwrap_or_else(|| panic!("no status: {answer:?}"));
        assert!((200..500).contains(&status), "{answer:?}");
        if status >= 400 && !input.starts_with(b"HEAD ") {
            assert!(head.contains("application/problem+json") && body.contains("\"code\""), "{answer:?}");
        }
        assert!(status >= 400 || !head.contains("set-cookie"), "a stranger got in: {answer:?}");
    });
    let tokens = runtime.block_on(async { daemon.get("/v1/tokens").await.ok() });
    assert_eq!(tokens["tokens"], json!([]));
}

#[test]
fn tokens() {
    target!("tokens").cases(1000).run(|input| {
        let Ok(tokens) = tenure_server::read_tokens(input) else { return };
        let kept = tokens.to_json().unwrap();
        assert_eq!(tenure_server::read_tokens(&kept), Ok(tokens), "what is kept is read as it was");
    });
}

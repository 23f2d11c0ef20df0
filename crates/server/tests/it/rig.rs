//! A daemon on a free port, and a client that says what it got.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use reqwest::{
    Method,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_core::redact::Secrets;
use tenure_engine::{Engine, EngineConfig, MemoryStanding, Parts, SystemClock};
use tenure_models::catalog::{Catalog, CatalogConfig};
use tenure_server::{About, Access, Limits};
use tenure_store::{Durability, FileStore, MemoryStore, Options, Store};
use tenure_tools::ToolsConfig;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::documented;

pub const TOKEN: &str = "a-token-for-tests";
/// Longer than anything here takes, shorter than a person waits.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Daemon {
    pub address: SocketAddr,
    pub engine: Engine,
    /// Holds the workspace, scripts and the data folder.
    pub files: Arc<TempDir>,
    http: reqwest::Client,
    stop: CancellationToken,
    serving: Option<JoinHandle<std::io::Result<()>>>,
}

/// What came back.
#[derive(Debug)]
pub struct Got {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Got {
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("")
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body of a request that was taken.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.body
    }

    /// A refusal is whole and says what it should.
    #[track_caller]
    pub fn refused(&self, status: u16, code: &str) {
        assert_eq!((self.status, self.code()), (status, code), "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        for field in ["type", "title", "detail", "hint"] {
            assert!(self.body[field].as_str().is_some_and(|text| !text.is_empty()), "{field} of {}", self.body);
        }
        assert_eq!(self.body["status"], status);
    }
}

impl Daemon {
    pub async fn start() -> Daemon {
        Self::with_limits(Limits::default()).await
    }

    pub async fn with_limits(limits: Limits) -> Daemon {
        Self::with(limits, Access::new(TOKEN)).await
    }

    pub async fn with(limits: Limits, access: Access) -> Daemon {
        let files = Arc::new(tempfile::tempdir().unwrap());
        Self::build(MemoryStore::new(), files, limits, access, CatalogConfig::default()).await
    }

    /// With models of these settings, and no variable of any vendor.
    pub async fn with_models(models: CatalogConfig) -> Daemon {
        let files = Arc::new(tempfile::tempdir().unwrap());
        Self::build(MemoryStore::new(), files, Limits::default(), Access::new(TOKEN), models).await
    }

    /// With a data folder on disk; the same folder again is a restart.
    pub async fn on_disk(files: Arc<TempDir>) -> Daemon {
        Self::on_disk_with(files, Limits::default()).await
    }

    pub async fn on_disk_with(files: Arc<TempDir>, limits: Limits) -> Daemon {
        Self::build(on_disk(&files).await, files, limits, Access::new(TOKEN), CatalogConfig::default()).await
    }

    /// On disk, with models of these settings.
    pub async fn on_disk_with_models(files: Arc<TempDir>, models: CatalogConfig) -> Daemon {
        Self::build(on_disk(&files).await, files, Limits::default(), Access::new(TOKEN), models).await
    }

    async fn build(
        store: Arc<dyn Store>,
        files: Arc<TempDir>,
        limits: Limits,
        access: Access,
        models: CatalogConfig,
    ) -> Daemon {
        let catalog = Catalog::new(models, |_| None).unwrap();
        fs::create_dir_all(files.path().join("workspace")).unwrap();
        let mark = files.path().display().to_string();
        let tools = ToolsConfig::new(supervisor(), files.path().join("processes"), mark);
        let engine = Engine::start(Parts {
            store,
            models: Arc::new(catalog),
            foreign: None,
            tools: Arc::new(tenure_tools::Registry::new(tools)),
            clock: Arc::new(SystemClock::new().unwrap()),
            secrets: Secrets::new([("TENURE_TOKEN".to_owned(), TOKEN.to_owned())]),
            standing: Arc::new(MemoryStanding::default()),
            config: EngineConfig::default(),
        })
        .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let about = About { durability: "memory".into(), ..About::default() };
        let serving = tokio::spawn(tenure_server::serve(listener, engine.clone(), access, limits, about, stop.clone()));
        let http = client();
        Daemon { address, engine, files, http, stop, serving: Some(serving) }
    }

    /// Stops the door alone; the engine goes on.
    pub async fn stop_serving(&mut self) {
        self.stop.cancel();
        if let Some(serving) = self.serving.take() {
            timeout(PATIENCE, serving).await.unwrap().unwrap().unwrap();
        }
    }

    pub async fn end(mut self) -> Arc<TempDir> {
        self.stop_serving().await;
        self.engine.shutdown().await;
        self.files.clone()
    }

    pub fn workspace(&self) -> PathBuf {
        self.files.path().join("workspace")
    }

    pub fn data(&self) -> PathBuf {
        self.files.path().join("data")
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.http.request(method, self.url(path)).bearer_auth(TOKEN)
    }

    pub async fn send(&self, request: reqwest::RequestBuilder) -> Got {
        let (http, request) = request.build_split();
        let request = request.unwrap();
        let (method, path) = (request.method().to_string(), request.url().path().to_owned());
        let response = timeout(PATIENCE, http.execute(request)).await.unwrap().unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = timeout(PATIENCE, response.text()).await.unwrap().unwrap();
        let got = Got { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) };
        documented::check(&method, &path, &got);
        got
    }

    pub async fn get(&self, path: &str) -> Got {
        self.send(self.request("GET", path)).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Got {
        self.send(self.request("POST", path).json(&body)).await
    }

    pub async fn post_with_key(&self, path: &str, key: &str, body: Value) -> Got {
        self.send(self.request("POST", path).header("idempotency-key", key).json(&body)).await
    }

    /// A session of the workspace, with what else is said.
    pub async fn create(&self, extra: Value) -> String {
        let got = self.post("/v1/sessions", self.create_body(extra)).await;
        assert_eq!(got.status, 201, "{got:?}");
        got.body["session_id"].as_str().unwrap().to_owned()
    }

    pub fn create_body(&self, extra: Value) -> Value {
        let mut body = json!({ "workspace_path": self.workspace() });
        merge(&mut body, extra);
        body
    }

    /// A session whose model plays these steps.
    pub async fn scripted(&self, steps: Value, extra: Value) -> String {
        let mut all = json!({ "model": self.script(steps) });
        merge(&mut all, extra);
        self.create(all).await
    }

    /// Writes a script and names the model that plays it.
    pub fn script(&self, steps: Value) -> String {
        let file = tempfile::Builder::new().suffix(".json").tempfile_in(self.files.path()).unwrap();
        let (_, path) = file.keep().unwrap();
        fs::write(&path, json!({ "name": "test", "steps": steps }).to_string()).unwrap();
        format!("scripted:{}", path.display())
    }

    /// Sends a text and gives the turn it started.
    pub async fn say(&self, session: &str, text: &str) -> String {
        let body = json!({ "parts": [{ "type": "text", "text": text }] });
        let got = self.post(&format!("/v1/sessions/{session}/messages"), body).await;
        assert_eq!(got.status, 202, "{got:?}");
        got.body["turn_id"].as_str().unwrap().to_owned()
    }

    /// The turn's record once it rests.
    pub async fn rested(&self, session: &str, turn: &str) -> Value {
        let path = format!("/v1/sessions/{session}/turns/{turn}?wait_ms=15000");
        self.get(&path).await.ok()
    }

    #[track_caller]
    pub fn completed(&self, record: &Value) {
        assert_eq!(record["status"], "completed", "{record}");
    }

    pub async fn session(&self, session: &str) -> Value {
        self.get(&format!("/v1/sessions/{session}")).await.ok()
    }

    /// The approval that waits, once there is one.
    pub async fn approval(&self, session: &str) -> Value {
        let look = async {
            loop {
                let view = self.session(session).await;
                if let Some(first) = view["approvals"].get(0) {
                    return first.clone();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, look).await.unwrap()
    }

    /// Everything the session has shown so far, in order.
    pub async fn events(&self, session: &str) -> Vec<Value> {
        let path = format!("/v1/sessions/{session}/events?follow=false");
        let request = self.request("GET", &path).header("accept", "application/x-ndjson");
        let response = timeout(PATIENCE, request.send()).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        let text = timeout(PATIENCE, response.text()).await.unwrap().unwrap();
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        events.iter().for_each(documented::check_event);
        events
    }

    /// A request that shows nothing.
    pub fn bare(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.http.request(method, self.url(path))
    }

    /// How often requests were refused for this.
    pub async fn refusals(&self, reason: &str) -> u64 {
        let page = self.get("/metrics").await;
        let page = page.body.as_str().unwrap();
        let line = format!("tenure_refusals_total{{reason=\"{reason}\"}} ");
        let count = page.lines().find_map(|found| found.strip_prefix(&line));
        count.unwrap_or_else(|| panic!("no {line} in {page}")).parse().unwrap()
    }

    /// One request byte for byte, and all that comes back until the daemon closes.
    pub async fn raw(&self, request: &[u8]) -> String {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        // A daemon that closes early is part of what is tested.
        let _ = socket.write_all(request).await;
        let mut answer = Vec::new();
        let _ = timeout(PATIENCE, socket.read_to_end(&mut answer)).await.expect("the daemon closes");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Others are still served.
    pub async fn is_well(&self) {
        let got = self.get("/healthz").await;
        assert_eq!((got.status, &got.body["status"]), (200, &json!("ok")));
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The folder's store. One that has just ended in this process may still have a hand on it.
async fn on_disk(files: &TempDir) -> Arc<FileStore> {
    let opening = async {
        loop {
            let options = Options { durability: Durability::Process, ..Options::default() };
            match FileStore::open(files.path().join("data"), options) {
                Err(tenure_store::Error::Locked { pid }) if pid == std::process::id() => {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                opened => return opened.unwrap(),
            }
        }
    };
    timeout(PATIENCE, opening).await.expect("the folder is let go")
}

/// A client without cookies that follows no redirect.
pub fn client() -> reqwest::Client {
    client_with(reqwest::Client::builder())
}

pub fn client_with(builder: reqwest::ClientBuilder) -> reqwest::Client {
    // Whoever is first has it for all.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder.no_proxy().redirect(reqwest::redirect::Policy::none()).build().unwrap()
}

fn merge(into: &mut Value, from: Value) {
    let (Value::Object(into), Value::Object(from)) = (into, from) else { panic!("two objects") };
    into.extend(from);
}

pub fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
    let parse =
        |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap());
    pairs.iter().map(parse).collect()
}

/// The types of the events, in order.
pub fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// The events of one type.
pub fn of_type<'a>(events: &'a [Value], wire_type: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == wire_type).collect()
}

#[track_caller]
pub fn only<'a>(events: &'a [Value], wire_type: &str) -> &'a Value {
    match of_type(events, wire_type)[..] {
        [one] => one,
        ref found => panic!("{} of {wire_type} in {:?}", found.len(), types(events)),
    }
}

/// Whether these types occur in this order, with anything between.
#[track_caller]
pub fn in_order(events: &[Value], expected: &[&str]) {
    let found = types(events);
    let mut rest = found.iter();
    for wanted in expected {
        assert!(rest.any(|found| found == wanted), "{wanted} is missing or out of order in {found:?}");
    }
}

pub fn text_step(text: &str) -> Value {
    json!({ "do": [{ "text": text }] })
}

pub fn call_step(name: &str, input: Value) -> Value {
    json!({ "do": [{ "call": { "name": name, "input": input } }] })
}

/// Made by `cargo test` together with this binary.
fn supervisor() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().and_then(Path::parent).unwrap().join("examples/supervise");
    assert!(path.exists(), "{} is missing: run `cargo test -p tenure-server`, which makes it", path.display());
    path
}

//! A real browser: a page of another origin tries all it can against the daemon, logged in and not, and by another name.

use std::{
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    process::Command,
    time::timeout,
};

use crate::rig::Daemon;

/// A browser on a busy machine takes its time.
const BROWSER_MAX: Duration = Duration::from_secs(60);

fn browser(profile: &Path) -> Command {
    let mut command = Command::new("chromium");
    command
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-pings"])
        .args(["--password-store=basic", "--no-proxy-server"])
        .args([
            "--host-resolver-rules=MAP rebind.example 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

const MISSING: &str = "chromium is missing; `cargo xtask test` installs it";

/// The page at an address once it is loaded.
async fn page_at(profile: &Path, url: &str) -> String {
    let mut command = browser(profile);
    command.args(["--timeout=15000", "--dump-dom", url]);
    let ran = timeout(BROWSER_MAX, command.output()).await.expect("the browser ends");
    String::from_utf8_lossy(&ran.expect(MISSING).stdout).into_owned()
}

/// A site that is not ours: it serves one page and keeps what that page reports.
struct Foreign {
    port: u16,
    reported: Arc<Mutex<Option<Value>>>,
}

impl Foreign {
    async fn start(page: String) -> Foreign {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let reported = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&reported);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (page, kept) = (page.clone(), Arc::clone(&kept));
                tokio::spawn(async move {
                    let request = read_request(&mut socket).await;
                    if let Some((_, body)) =
                        request.split_once("\r\n\r\n").filter(|_| request.starts_with("POST /done"))
                    {
                        *kept.lock().unwrap() = serde_json::from_str(body).ok();
                    }
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length";
                    let _ = socket.write_all(format!("{head}: {}\r\n\r\n{page}", page.len()).as_bytes()).await;
                });
            }
        });
        Foreign { port, reported }
    }

    /// Lets a browser open the page, and gives what the page got.
    async fn visited(&self, profile: &Path, host: &str) -> Value {
        let mut command = browser(profile);
        command.arg("--window-size=420,900");
        let address = format!("http://{host}:{}/", self.port);
        let mut running = command.arg(address).stdout(Stdio::null()).spawn().expect(MISSING);
        let told = async {
            loop {
                if let Some(told) = self.reported.lock().unwrap().take() {
                    return told;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let told = timeout(BROWSER_MAX, told).await.expect("the page tells what it got");
        // In good order, so that it keeps its cookies.
        let pid = running.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)).unwrap();
        let _ = kill_process(pid, Signal::TERM);
        let _ = timeout(BROWSER_MAX, running.wait()).await.expect("the browser ends");
        told
    }
}

async fn read_request(socket: &mut tokio::net::TcpStream) -> String {
    let mut request = vec![];
    loop {
        let mut piece = [0; 4096];
        let read = socket.read(&mut piece).await.unwrap_or(0);
        request.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let whole = text.split_once("\r\n\r\n").is_some_and(|(head, body)| {
            let length = head
                .to_ascii_lowercase()
                .split("content-length: ")
                .nth(1)
                .map_or(0, |rest| rest.split("\r\n").next().unwrap_or("").trim().parse::<usize>().unwrap_or(0));
            body.len() >= length
        });
        if read == 0 || whole {
            return text;
        }
    }
}

/// What a page of another origin can try. `DAEMON` and `BODY` are put in.
const ATTACK: &str = r#"<!doctype html><body><script>
const daemon = "DAEMON", body = JSON.stringify(BODY), got = {};
const until = (ms) => new Promise(done => setTimeout(() => done("nothing"), ms));
const attempt = async (name, what) => {
  try { got[name] = String(await Promise.race([what(), until(3000)])); } catch (error) { got[name] = "error"; }
};
const element = (kind, attributes) => new Promise(done => {
  const made = document.createElement(kind);
  made.onload = () => done(kind === "iframe" ? "loaded" : "ok"); made.onerror = () => done("error");
  Object.assign(made, attributes); document.body.append(made);
});
const post = (path, options) => fetch(daemon + path, { method: "POST", credentials: "include", ...options });
const form = (path, fields) => new Promise(done => {
  const frame = document.createElement("iframe"); frame.name = "f" + Math.random(); document.body.append(frame);
  const made = document.createElement("form");
  Object.assign(made, { action: daemon + path, method: "post", enctype: "text/plain", target: frame.name });
  for (const [name, value] of fields) {
    const input = document.createElement("input"); Object.assign(input, { name, value }); made.append(input);
  }
  document.body.append(made); made.submit(); setTimeout(() => done("sent"), 800);
});
(async () => {
  await attempt("read", async () => (await fetch(daemon + "/v1/sessions", { credentials: "include" })).text());
  await attempt("read_blind", async () => (await fetch(daemon + "/v1/sessions", { credentials: "include", mode: "no-cors" })).text());
  await attempt("json", async () => (await post("/v1/sessions", { body, headers: { "content-type": "application/json" } })).status);
  await attempt("plain", async () => (await post("/v1/sessions", { body, mode: "no-cors", headers: { "content-type": "text/plain" } })).type);
  await attempt("logout", async () => (await post("/logout", { mode: "no-cors" })).type);
  await attempt("token", async () => (await post("/v1/tokens", { mode: "no-cors", body: '{"name":"evil"}' })).type);
  await attempt("beacon", async () => navigator.sendBeacon(daemon + "/v1/sessions", body));
  await attempt("form", () => form("/v1/sessions", [[body.slice(0, -1) + ',"x":"', '"}']]));
  await attempt("form_logout", () => form("/logout", []));
  await attempt("image", () => element("img", { src: daemon + "/v1/sessions" }));
  await attempt("script", () => element("script", { src: daemon + "/v1/sessions" }));
  await attempt("frame", () => element("iframe", { src: daemon + "/v1/sessions" }));
  await attempt("events", () => new Promise(done => {
    const source = new EventSource(daemon + "/v1/events", { withCredentials: true });
    source.onopen = () => done("open"); source.onmessage = () => done("message"); source.onerror = () => done("error");
  }));
  await attempt("socket", () => new Promise(done => {
    const socket = new WebSocket(daemon.replace("http", "ws") + "/ws");
    socket.onopen = () => done("open"); socket.onerror = () => done("error");
  }));
  await fetch("/done", { method: "POST", body: JSON.stringify(got) });
  document.body.append("all tried");
})();
</script></body>"#;

/// What the page may have learned: nothing.
fn learned_nothing(got: &Value) {
    for (name, what) in got.as_object().unwrap() {
        let what = what.as_str().unwrap();
        let harmless = match name.as_str() {
            // A frame loads the browser's own error page; that is all the page outside can see of it.
            "frame" => ["loaded", "error", "nothing"].contains(&what),
            "form" | "form_logout" => what == "sent",
            // An answer without a face, which is empty to the page.
            "plain" | "logout" | "token" => ["opaque", "error"].contains(&what),
            "read_blind" => ["", "error"].contains(&what),
            "beacon" => ["true", "false"].contains(&what),
            _ => what == "error",
        };
        assert!(harmless, "{name}: {what} in {got}");
    }
    assert_eq!(got.as_object().unwrap().len(), 14, "{got}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_gets_nothing_and_changes_nothing() {
    let daemon = Daemon::start().await;
    let profile = tempfile::tempdir().unwrap();
    let body = daemon.create_body(json!({})).to_string();
    let page = ATTACK.replace("DAEMON", &daemon.url("")).replace("BODY", &body);
    let foreign = Foreign::start(page).await;
    // Without a cookie.
    let stranger = tempfile::tempdir().unwrap();
    learned_nothing(&foreign.visited(stranger.path(), "127.0.0.1").await);
    let refused_before = daemon.refusals("bad_origin").await;
    assert!(refused_before >= 10, "the attempts are on record: {refused_before}");

    let made = daemon.post("/v1/logins", json!({})).await.ok();
    let home = page_at(profile.path(), made["url"].as_str().unwrap()).await;
    assert!(home.contains("<b>owner</b>"), "the browser is logged in: {home}");
    for host in ["127.0.0.1", "localhost"] {
        // The first is the same site to a browser, which sends its cookie along; the second is not.
        learned_nothing(&foreign.visited(profile.path(), host).await);
    }
    let home = page_at(profile.path(), &daemon.url("/")).await;
    assert!(home.contains("<b>owner</b>"), "and still is: {home}");
    assert!(daemon.refusals("bad_origin").await >= refused_before + 20);
    assert_eq!(daemon.get("/v1/sessions").await.ok()["sessions"], json!([]));
    assert_eq!(daemon.get("/v1/tokens").await.ok()["tokens"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_points_here_by_another_site_is_refused() {
    let daemon = Daemon::start().await;
    let profile = tempfile::tempdir().unwrap();
    let rebound = daemon.url("/v1/sessions").replace("127.0.0.1", "rebind.example");
    let page = page_at(profile.path(), &rebound).await;
    assert!(page.contains("bad_host"), "{page}");
    assert!(daemon.refusals("bad_host").await >= 1);
}

/// The page of the API as a telephone shows it, with the document beside it: neither it nor its list scrolls sideways.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_api_fits_a_narrow_window() {
    let daemon = Daemon::start().await;
    let (page, document) = (daemon.get("/docs").await.body, daemon.get("/openapi.json").await.body);
    let document = document.to_string().replace("</", "<\\/");
    let before =
        format!("<script>const post = window.fetch; window.fetch = async () => Response.json({document});</script>");
    let after = r#"<script>
        const look = () => {
            if (!document.querySelector(".card")) return setTimeout(look, 50);
            document.querySelectorAll("details").forEach((one) => { one.open = true; });
            setTimeout(() => {
                const wide = [document.documentElement, document.body, document.getElementById("index")];
                const over = wide.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.tagName);
                post("/done", { method: "POST", body: JSON.stringify({ width: innerWidth, over }) });
            }, 500);
        };
        look();
    </script>"#;
    let page = page.as_str().unwrap().replacen("<body>", &format!("<body>{before}"), 1) + after;
    let profile = tempfile::tempdir().unwrap();
    let told = Foreign::start(page).await.visited(profile.path(), "127.0.0.1").await;
    assert!(told["width"].as_u64().is_some_and(|width| width <= 500), "{told}");
    assert_eq!(told["over"], json!([]), "{told}");
}

//! `fetch_url` against servers on this machine: what is read, what is refused, and that no way leads around the refusal.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{Arc, Mutex},
};

use serde_json::json;
use tenure_tools::{OUTPUT_BYTES_MAX, PrivateAddresses};

use crate::rig::Rig;

/// Answers each path with what is written for it, and notes what it was sent.
struct Server {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

type Answers = fn(&str, u16) -> Vec<u8>;

impl Server {
    fn start(answers: Answers) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let noted = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(mut stream), noted) = (stream, Arc::clone(&noted)) else { return };
                std::thread::spawn(move || {
                    let (mut head, mut chunk) = (vec![], [0; 1024]);
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read(&mut chunk) {
                            Ok(0) | Err(_) => return,
                            Ok(count) => head.extend_from_slice(&chunk[..count]),
                        }
                    }
                    let head = String::from_utf8_lossy(&head).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    noted.lock().unwrap().push(head);
                    let _ = stream.write_all(&answers(&path, port));
                });
            }
        });
        Self { port, heads }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn pages(path: &str, port: u16) -> Vec<u8> {
    let moved = |to: String| answer("302 Found", &format!("Location: {to}\r\n"), b"");
    match path {
        "/page" => answer(
            "200 OK",
            "Content-Type: text/html; charset=utf-8\r\nSet-Cookie: a=b\r\n",
            "<title>T</title><h1>Hé</h1><a href=\"/x\">x</a><script>no</script>".as_bytes(),
        ),
        "/latin" => answer("200 OK", "Content-Type: text/plain; charset=iso-8859-1\r\n", b"caf\xe9"),
        "/json" => answer("200 OK", "Content-Type: application/json\r\n", b"{\"a\": [1, 2]}"),
        "/untyped" => answer("200 OK", "", b"just text"),
        "/untyped-binary" => answer("200 OK", "", b"a\0b"),
        "/picture" => answer("200 OK", "Content-Type: image/png\r\n", b"12345"),
        "/packed" => answer("200 OK", "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", b"12345"),
        "/gone" => answer("404 Not Found", "Content-Type: text/plain\r\n", b"nothing here"),
        "/long" => answer("200 OK", "Content-Type: text/plain\r\n", &b"0123456789abcde\n".repeat(6 * 65536)),
        "/once" => moved("/json".into()),
        "/loop" => moved("/loop".into()),
        "/to-file" => moved("file:///etc/passwd".into()),
        "/to-named" => moved(format!("http://user:secret@127.0.0.1:{port}/json")),
        "/to-other" => moved(format!("http://127.0.0.2:{port}/json")),
        "/to-mapped" => moved(format!("http://[::ffff:127.0.0.2]:{port}/json")),
        "/five" | "/5" | "/4" | "/3" | "/2" => {
            let left = path[1..].parse().unwrap_or(5) - 1;
            moved(if left == 0 { "/json".into() } else { format!("/{left}") })
        }
        "/1" => moved("/json".into()),
        _ => answer("500 Internal Server Error", "Content-Type: text/plain\r\n", b"?"),
    }
}

fn allowing(networks: &[&str]) -> Rig {
    let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
    Rig::with(|config| config.fetch_private = PrivateAddresses::Only(networks))
}

async fn fetched(rig: &Rig, url: String) -> String {
    rig.text("fetch_url", json!({"url": url})).await
}

#[tokio::test]
async fn texts_are_read_as_what_they_are() {
    let (rig, server) = (allowing(&["127.0.0.1"]), Server::start(pages));
    for (path, expected) in [
        ("/page", "(text/html, 65 bytes)\n\nTitle: T\n\n# Hé\n\n[x](http://127.0.0.1:PORT/x)"),
        ("/latin", "(text/plain, 4 bytes)\n\ncafé"),
        ("/json", "(application/json, 13 bytes)\n\n{\"a\": [1, 2]}"),
        ("/untyped", "(text/plain, 9 bytes)\n\njust text"),
    ] {
        let expected = format!("{} {}", server.url(path), expected.replace("PORT", &server.port.to_string()));
        assert_eq!(fetched(&rig, server.url(path)).await, expected);
    }
    let once = fetched(&rig, server.url("/once")).await;
    assert!(once.starts_with(&server.url("/json")), "{once}");
    // No cookie came back, and nothing tells where we were before.
    for head in server.heads.lock().unwrap().iter() {
        let head = head.to_ascii_lowercase();
        assert!(!head.contains("cookie") && !head.contains("referer") && !head.contains("authorization"), "{head}");
        assert!(head.starts_with("get ") && head.contains("user-agent: tenure/"), "{head}");
    }
}

#[tokio::test]
async fn what_is_no_text_or_no_success_is_told() {
    let (rig, server) = (allowing(&["127.0.0.1"]), Server::start(pages));
    let cases = [
        ("/picture", "is image/png of 5 bytes; only text can be fetched"),
        ("/untyped-binary", "is 3 bytes of no known type; only text can be fetched"),
        ("/packed", "came packed as gzip, which was not asked for"),
    ];
    for (path, expected) in cases {
        let url = server.url(path);
        assert_eq!(rig.error("fetch_url", json!({"url": url})).await, format!("{url} {expected}"));
    }
    let gone = rig.call("fetch_url", json!({"url": server.url("/gone")})).await;
    assert_eq!(gone.result.error.as_deref(), Some("the server answered 404 Not Found"));
    assert!(tenure_core::message::joined_text(&gone.result.parts).ends_with("nothing here"));
    let long = fetched(&rig, server.url("/long")).await;
    assert!(long.len() <= OUTPUT_BYTES_MAX && long.ends_with("[only its first 5 MiB were read]"), "{}", long.len());
    assert!(long.contains("the whole is in artifacts/"));
}

#[tokio::test]
async fn redirections_are_followed_five_times() {
    let (rig, server) = (allowing(&["127.0.0.1"]), Server::start(pages));
    // Five, then the page: /4 → /3 → /2 → /1 → /json are four, /five is one more.
    assert!(fetched(&rig, server.url("/five")).await.contains("[1, 2]"));
    let error = rig.error("fetch_url", json!({"url": server.url("/loop")})).await;
    assert!(error.starts_with("it was redirected more than 5 times"), "{error}");
    assert_eq!(server.heads.lock().unwrap().iter().filter(|head| head.starts_with("GET /loop")).count(), 6);
    for (path, expected) in [
        ("/to-file", "only http and https are fetched"),
        ("/to-named", "a name or password"),
        ("/to-other", "127.0.0.2 is not a public address"),
        ("/to-mapped", "127.0.0.2 ([::ffff:7f00:2]) is not a public address"),
    ] {
        let error = rig.error("fetch_url", json!({"url": server.url(path)})).await;
        assert!(error.contains(expected) && !error.contains("secret"), "{path}: {error}");
    }
}

#[tokio::test]
async fn private_addresses_are_refused_in_every_spelling_and_never_connected_to() {
    let (rig, server) = (Rig::new(), Server::start(pages));
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "localhost",
        "0.0.0.0",
        "0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "[fe80::1]",
        "[fd00::1]",
        "224.0.0.1",
        "①②⑦.0.0.1",
    ] {
        let error = rig.error("fetch_url", json!({"url": format!("http://{host}:{}/json", server.port)})).await;
        assert!(error.contains("is not a public address") && error.contains("fetch_private"), "{host}: {error}");
    }
    assert_eq!(*server.heads.lock().unwrap(), Vec::<String>::new());
    for (url, expected) in [
        ("ftp://example.org/", "only http and https are fetched"),
        ("file:///etc/passwd", "only http and https are fetched"),
        ("nonsense", "is no URL"),
        ("http://user@127.0.0.1/", "a name or password"),
        ("http://:pw@127.0.0.1/", "a name or password"),
    ] {
        let error = rig.error("fetch_url", json!({"url": url})).await;
        assert!(error.contains(expected), "{url}: {error}");
    }
}

#[tokio::test]
async fn what_the_user_allows_is_allowed_and_no_more() {
    let server = Server::start(pages);
    let rig = Rig::with(|config| config.fetch_private = PrivateAddresses::Allowed);
    assert!(fetched(&rig, format!("http://localhost:{}/json", server.port)).await.contains("[1, 2]"));
    let rig = allowing(&["127.0.0.2", "10.0.0.0/8"]);
    let error = rig.error("fetch_url", json!({"url": server.url("/json")})).await;
    assert!(error.starts_with("127.0.0.1 is not a public address"), "{error}");
}

#[tokio::test]
async fn no_proxy_of_the_environment_is_gone_by() {
    // The client is made with its proxies switched off; a server that takes absolute URLs would see them.
    let (rig, server) = (allowing(&["127.0.0.1"]), Server::start(pages));
    fetched(&rig, server.url("/json")).await;
    assert!(server.heads.lock().unwrap()[0].starts_with("GET /json HTTP/1.1\r\n"));
}

#[tokio::test]
async fn a_server_that_is_silent_or_speaks_no_tls_ends_the_call() {
    let rig = allowing(&["127.0.0.1"]);
    // It speaks before it is spoken to, and not TLS.
    let plain = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://127.0.0.1:{}/", plain.local_addr().unwrap().port());
    std::thread::spawn(move || plain.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
    let error = rig.error("fetch_url", json!({"url": url})).await;
    assert!(error.starts_with("127.0.0.1 could not be reached: "), "{error}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://127.0.0.1:{}/", silent.local_addr().unwrap().port());
    let cancel = rig.context.cancel.clone();
    let call = rig.call("fetch_url", json!({"url": url}));
    let taken = tokio::task::spawn_blocking(move || silent.accept().unwrap());
    let end = async {
        // It is connected by now, and waits.
        let _held = taken.await.unwrap();
        cancel.cancel();
        std::future::pending::<()>().await
    };
    tokio::select! {
        invoked = call => assert_eq!(invoked.result.error.as_deref(), Some("stopped")),
        () = end => unreachable!(),
    }
}

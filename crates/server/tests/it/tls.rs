//! TLS with a certificate of the daemon's own making: who trusts it gets in, who does not is gone, and plain words are not heard.

use std::time::Duration;

use reqwest::Certificate;
use serde_json::json;
use tenure_server::{Access, Limits, Made, Tls};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::rig::{Daemon, PATIENCE, TOKEN, client, client_with};

struct Scene {
    daemon: Daemon,
    trusting: reqwest::Client,
}

async fn scene(limits: Limits) -> Scene {
    let Made { certificate_pem, key_pem } = Tls::make(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
    let tls = Tls::from_pem(certificate_pem.as_bytes(), key_pem.as_bytes()).unwrap();
    let daemon = Daemon::with(limits, Access { tls: Some(tls), ..Access::new(TOKEN) }).await;
    let root = Certificate::from_pem(certificate_pem.as_bytes()).unwrap();
    Scene { daemon, trusting: client_with(reqwest::Client::builder().tls_certs_only([root])) }
}

impl Scene {
    fn url(&self, path: &str) -> String {
        self.daemon.url(path).replace("http://", "https://")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_trusts_the_certificate_is_served() {
    let scene = scene(Limits::default()).await;
    let get = |path: &str| scene.trusting.get(scene.url(path)).bearer_auth(TOKEN);
    assert_eq!(scene.daemon.send(get("/v1/sessions")).await.status, 200);
    let made = scene.trusting.post(scene.url("/v1/logins")).bearer_auth(TOKEN).json(&json!({}));
    let url = scene.daemon.send(made).await.ok()["url"].as_str().unwrap().to_owned();
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    let got = scene.daemon.send(scene.trusting.get(url)).await;
    assert!(got.header("set-cookie").ends_with("; Secure"), "{got:?}");
    let own = format!("https://{}", scene.daemon.address);
    for (origin, status) in [(own.as_str(), 200), (&own.replace("https", "http"), 403)] {
        assert_eq!(scene.daemon.send(get("/v1/sessions").header("origin", origin)).await.status, status, "{origin}");
    }
    // A head that cannot be read is told so here too.
    let long = get("/healthz").header("x-long", "y".repeat(70_000));
    scene.daemon.send(long).await.refused(431, "head_too_large");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_trust_it_or_speaks_plainly_is_not() {
    let scene = scene(Limits::default()).await;
    let stranger = client().get(scene.url("/healthz")).send().await;
    assert!(stranger.is_err(), "{stranger:?}");
    let answer = scene.daemon.raw(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(!answer.contains("200 OK"), "{answer}");
    let metrics = scene.daemon.send(scene.trusting.get(scene.url("/metrics")).bearer_auth(TOKEN)).await;
    let failed = metrics.body.as_str().unwrap().lines().find(|line| line.contains("tls_failed")).unwrap().to_owned();
    assert!(!failed.ends_with(" 0"), "{failed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_drips_is_cut() {
    let limits = Limits { header_read: Duration::from_millis(300), ..Limits::default() };
    let scene = scene(limits).await;
    let mut socket = TcpStream::connect(scene.daemon.address).await.unwrap();
    socket.write_all(&[0x16, 0x03]).await.unwrap();
    let mut rest = vec![];
    let _ = timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("it is cut");
    let request = scene.trusting.get(scene.url("/healthz"));
    assert_eq!(scene.daemon.send(request).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_older_than_version_1_3_is_spoken() {
    let scene = scene(Limits::default()).await;
    let old = client_with(
        reqwest::Client::builder()
            .tls_danger_accept_invalid_certs(true)
            .tls_version_max(reqwest::tls::Version::TLS_1_2),
    );
    assert!(old.get(scene.url("/healthz")).send().await.is_err());
    let new = client_with(reqwest::Client::builder().tls_danger_accept_invalid_certs(true));
    assert_eq!(scene.daemon.send(new.get(scene.url("/healthz"))).await.status, 200);
}

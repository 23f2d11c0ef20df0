//! Models over HTTP: the list, names that are taken and refused, a vendor's answers, and shorter contexts.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_models::catalog::{CatalogConfig, ProviderConfig};
use tenure_testkit::vendor::{Answer, Asked, FakeVendor, Format, Speech};

use crate::rig::{Daemon, PATIENCE, of_type, only, text_step};

fn at(vendor: &FakeVendor) -> CatalogConfig {
    let provider = ProviderConfig { base_url: Some(vendor.url("/v1")), ..ProviderConfig::default() };
    CatalogConfig {
        providers: [("box".to_owned(), provider)].into(),
        aliases: [("small".to_owned(), "box/tiny".to_owned())].into(),
        ..CatalogConfig::default()
    }
}

fn answer(asked: &Asked) -> Answer {
    match asked.path.as_str() {
        "/v1/models" => Answer::json(200, &json!({ "data": [{ "id": "tiny" }] })),
        _ => Answer::events(Speech::text("Hello.").events(Format::Chat)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_tells_all_that_is_known() {
    let vendor = FakeVendor::with(|asked, _| answer(asked)).await;
    let daemon = Daemon::with_models(at(&vendor)).await;
    let list = daemon.get("/v1/models").await.ok();
    let of = |name: &str| {
        let found = list["models"].as_array().unwrap().iter().find(|model| model["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {list}")).clone()
    };
    assert_eq!(
        of("box/tiny"),
        json!({
            "name": "box/tiny", "provider": "box", "ready": true, "source": "server", "aliases": ["small"],
            "window": null, "output_max": null, "prices": null,
            "takes": ["image", "audio", "file"], "tool_mode": "native", "thinking": "none",
        })
    );
    let sol = of("openai/gpt-6.1-sol");
    assert_eq!((&sol["ready"], &sol["prices"]["long"]["above"]), (&json!(false), &json!(272_000)));
    assert!(sol["missing"].as_str().unwrap().contains("OPENAI_API_KEY"));
    assert_eq!(list["default_model"], "scripted");
    let own = daemon.get("/v1/models?provider=box").await.ok();
    assert_eq!((own["models"].as_array().unwrap().len(), &own["providers"][0]["local"]), (1, &json!(true)));
    let named = daemon.get("/v1/models?name=small").await.ok();
    assert_eq!((named["models"].as_array().unwrap().len(), &named["models"][0]["name"]), (1, &json!("box/tiny")));
    daemon.get("/v1/models?name=nobody/nothing").await.refused(400, "unknown_model");
    daemon.get("/v1/models?of=box").await.refused(400, "bad_query");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_is_written_out_and_a_name_that_can_never_be_one_is_refused() {
    let vendor = FakeVendor::with(|asked, _| answer(asked)).await;
    let daemon = Daemon::with_models(at(&vendor)).await;
    let session = daemon.create(json!({ "model": "small" })).await;
    let path = format!("/v1/sessions/{session}");
    assert_eq!(daemon.get(&path).await.ok()["model"], "box/tiny");
    let turn = daemon.say(&session, "hi").await;
    let record = daemon.rested(&session, &turn).await;
    daemon.completed(&record);
    assert_eq!((&record["model"], &record["response"]["text"]), (&json!("box/tiny"), &json!("Hello.")));
    for name in ["nobody/x", "tiny", "box/"] {
        let body = daemon.create_body(json!({ "model": name }));
        daemon.post("/v1/sessions", body).await.refused(400, "unknown_model");
        let patch = daemon.request("PATCH", &path).json(&json!({ "model": name }));
        daemon.send(patch).await.refused(400, "unknown_model");
        daemon.post(&format!("{path}/fork"), json!({ "model": name })).await.refused(400, "unknown_model");
    }
    // A key may still come: only the turn needs it.
    let patch = daemon.request("PATCH", &path).json(&json!({ "model": "openai/any" }));
    assert_eq!(daemon.send(patch).await.ok()["model"], "openai/any");
    let turn = daemon.say(&session, "hi").await;
    let record = daemon.rested(&session, &turn).await;
    assert_eq!(record["error"]["code"], "auth", "{record}");
    assert!(record["error"]["message"].as_str().unwrap().contains("set OPENAI_API_KEY"), "{record}");
}

/// The first event of this type, as soon as it is there.
async fn event(daemon: &Daemon, session: &str, wire_type: &str) -> Value {
    let found = async {
        loop {
            if let Some(event) = of_type(&daemon.events(session).await, wire_type).first() {
                return (*event).clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("no {wire_type} came"))
}

/// A session with a long past.
async fn long(daemon: &Daemon, window: u64, more: Value) -> String {
    let steps: Vec<Value> = (0..4).map(|_| text_step(&"word ".repeat(3_000))).collect();
    let path = daemon.files.path().join("long.json");
    std::fs::write(&path, json!({ "summary": "They said words.", "window": window, "steps": steps }).to_string())
        .unwrap();
    let mut settings = json!({ "model": format!("scripted:{}", path.display()) });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let session = daemon.create(settings).await;
    for _ in 0..4 {
        let turn = daemon.say(&session, "go on").await;
        daemon.rested(&session, &turn).await;
    }
    session
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_is_compacted_when_somebody_asks() {
    let daemon = Daemon::start().await;
    let session = long(&daemon, 50_000, json!({})).await;
    let path = format!("/v1/sessions/{session}/compact");
    let got = daemon.post_with_key(&path, "once", json!({})).await;
    assert_eq!((got.status, &got.body["status"]), (202, &json!("compacting")));
    let compacted = event(&daemon, &session, "context_compacted").await;
    assert_eq!(compacted["data"]["trigger"], "asked");
    assert!(compacted["data"]["summary"].as_str().unwrap().ends_with("They said words."), "{compacted}");
    // The same key asks for nothing new.
    assert_eq!(daemon.post_with_key(&path, "once", json!({})).await.body, got.body);
    let events = daemon.events(&session).await;
    let started = only(&events, "compaction_started");
    assert_eq!(started["data"], json!({ "trigger": "asked", "blocking": false }));
    assert_eq!(of_type(&events, "context_compacted").len(), 1);
    daemon.post(&format!("/v1/sessions/{session}/end"), json!({})).await.ok();
    daemon.post(&path, json!({})).await.refused(409, "session_ended");
    daemon.post(&path, json!({ "force": true })).await.refused(400, "bad_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_it_begins_is_a_policy() {
    let daemon = Daemon::start().await;
    let early = json!({ "policy": { "compaction": { "from_percent": 10, "block_percent": 20 } } });
    let session = long(&daemon, 20_000, early).await;
    let compacted = event(&daemon, &session, "context_compacted").await;
    assert_eq!(compacted["data"]["trigger"], "threshold");
    let policy = daemon.get(&format!("/v1/sessions/{session}")).await.ok()["policy"]["compaction"].clone();
    assert_eq!(policy, json!({ "auto": true, "from_percent": 10, "block_percent": 20 }));
    let never = json!({ "policy": { "compaction": { "from_percent": 0, "block_percent": 50 } } });
    daemon.post("/v1/sessions", daemon.create_body(never)).await.refused(400, "unsupported_policy");
}

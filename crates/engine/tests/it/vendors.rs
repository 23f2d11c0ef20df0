//! The engine over real HTTP with every vendor's format: what a model says, is shown and is sent back.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde_json::{Value, json};
use tenure_core::{
    command::{Answer as Answered, Command},
    event::{Body, Event},
    message::{Delivery, Part, Role},
    model::{StopReason, Usage},
    tool::ToolKind,
};
use tenure_engine::{NewFile, RecordStatus};
use tenure_models::{
    catalog::{Catalog, CatalogConfig, ModelConfig, ProviderConfig},
    entry::{LongPrices, PartKind, Prices, Rates},
};
use tenure_testkit::{
    Rig, RigSetup, TestTool, trusting, user,
    vendor::{Answer, FakeVendor, Format, Speech, Spoken},
};

mod compaction;
mod cuts;
mod faults;
mod prefix;
mod secrets;

/// A catalog in which `fake/m` is this vendor's.
pub fn catalog(vendor: &FakeVendor, format: Format, model: ModelConfig) -> Catalog {
    let provider = ProviderConfig {
        wire: Some(format.wire()),
        base_url: Some(vendor.url(format.base_path())),
        ..ProviderConfig::default()
    };
    let config = CatalogConfig {
        providers: BTreeMap::from([("fake".to_owned(), provider)]),
        models: BTreeMap::from([("fake/m".to_owned(), model)]),
        aliases: BTreeMap::new(),
    };
    Catalog::new(config, |_| None).expect("a catalog of one vendor")
}

pub fn rig(vendor: &FakeVendor, format: Format, model: ModelConfig) -> RigSetup {
    Rig::models(Arc::new(catalog(vendor, format, model)), "fake/m")
}

pub async fn plain(vendor: &FakeVendor, format: Format) -> Rig {
    rig(vendor, format, ModelConfig::default()).start().await
}

pub fn says(format: Format, text: &str) -> Answer {
    Answer::events(Speech::text(text).events(format))
}

/// The replies of a session, in order.
pub fn replies(events: &[Event]) -> Vec<&str> {
    let replies = events.iter().filter_map(|event| match &event.body {
        Body::ModelOutputCompleted(output) => Some(output.text.as_str()),
        _ => None,
    });
    replies.collect()
}

#[tokio::test]
async fn a_turn_of_text() {
    for format in Format::ALL {
        let vendor = FakeVendor::start().await;
        vendor.plan(says(format, "Hello there, friend."));
        let rig = plain(&vendor, format).await;
        let session = rig.create().await;
        let record = rig.ask(session, "hi").await;
        assert_eq!(record.status, RecordStatus::Completed, "{format:?}: {:?}", record.error);
        assert_eq!(record.response.expect("a reply").text, "Hello there, friend.");
        rig.sound(session).await;
    }
}

fn calls(stop: StopReason) -> Speech {
    let call = |id: &str, at: &str| {
        let text = json!({ "subject": at }).to_string();
        let (one, two) = text.split_at(5);
        (id.to_owned(), "look".to_owned(), vec![one.to_owned(), two.to_owned()])
    };
    Speech {
        spoken: vec![
            Spoken::Thought(vec!["Where ".into(), "to look?".into()], Some("sig+/=abc".into())),
            Spoken::Calls(vec![call("call_a", "here"), call("call_b", "there")]),
        ],
        stop,
        usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() },
    }
}

#[tokio::test]
async fn parallel_calls_are_run_and_answered_and_thinking_goes_back() {
    for format in Format::ALL {
        let vendor = FakeVendor::start().await;
        vendor.plan(Answer::events(calls(StopReason::ToolUse).events(format)));
        vendor.plan(says(format, "Seen."));
        let look = TestTool::new("look", ToolKind::Read).shared();
        let model = ModelConfig { sends_reasoning: Some(true), ..ModelConfig::default() };
        let rig = rig(&vendor, format, model).tool(&look).start().await;
        let session = rig.create_with(trusting).await;
        let record = rig.ask(session, "look").await;
        assert_eq!(record.status, RecordStatus::Completed, "{format:?}: {:?}", record.error);
        assert_eq!(look.inputs(), [json!({ "subject": "here" }), json!({ "subject": "there" })], "{format:?}");
        rig.sound(session).await;
        let again = vendor.asked()[1].json();
        let text = again.to_string();
        assert_eq!(results(format, &again), ["call_a", "call_b"], "{format:?}: {text}");
        let kept = if format == Format::Chat { "Where to look?" } else { "sig+/=abc" };
        assert!(text.contains(kept), "{format:?}: {text}");
    }
}

/// The signatures, texts and calls of a request's first reply, in their order.
fn blocks(format: Format, body: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let blocks = match format {
        Format::Anthropic => list(&body["messages"][1]["content"]),
        Format::Gemini => list(&body["contents"][1]["parts"]),
        Format::Responses => list(&body["input"]).into_iter().skip(1).collect(),
        Format::Chat => vec![],
    };
    let mut told = Vec::new();
    for block in blocks {
        match format {
            Format::Gemini => {
                told.extend(block.get("thoughtSignature").map(text));
                told.extend(block.get("text").map(text));
                told.extend(block.pointer("/functionCall/id").map(text));
            }
            _ => match block["type"].as_str().unwrap_or_default() {
                "thinking" => told.push(text(&block["signature"])),
                "reasoning" => told.push(text(&block["encrypted_content"])),
                "text" => told.push(text(&block["text"])),
                "message" => told.push(text(&block["content"][0]["text"])),
                "tool_use" => told.push(text(&block["id"])),
                "function_call" => told.push(text(&block["call_id"])),
                _ => {}
            },
        }
    }
    told
}

#[tokio::test]
async fn blocks_go_back_in_the_order_in_which_they_came() {
    let thought = |signature: &str| Spoken::Thought(vec!["Hm ".into(), "hm.".into()], Some(signature.into()));
    let call = |id: &str| {
        let arguments = json!({ "subject": id }).to_string();
        Spoken::Calls(vec![(id.to_owned(), "look".to_owned(), vec![arguments])])
    };
    let speech = Speech {
        spoken: vec![
            thought("sig1"),
            Spoken::Text(vec!["I look.".into()]),
            thought("sig2"),
            call("call_a"),
            Spoken::Text(vec!["And there.".into()]),
            thought("sig3"),
            call("call_b"),
        ],
        stop: StopReason::ToolUse,
        usage: Usage { input_tokens: 10, output_tokens: 5, ..Usage::default() },
    };
    for format in [Format::Anthropic, Format::Responses, Format::Gemini] {
        let vendor = FakeVendor::start().await;
        vendor.plan(Answer::events(speech.events(format)));
        vendor.plan(says(format, "Seen."));
        vendor.plan(says(format, "Bye."));
        let look = TestTool::new("look", ToolKind::Read).shared();
        let rig = rig(&vendor, format, ModelConfig::default()).tool(&look).start().await;
        let session = rig.create_with(trusting).await;
        for text in ["look", "thanks"] {
            let record = rig.ask(session, text).await;
            assert_eq!(record.status, RecordStatus::Completed, "{format:?}: {:?}", record.error);
        }
        for asked in &vendor.asked()[1..] {
            let expected = ["sig1", "I look.", "sig2", "call_a", "And there.", "sig3", "call_b"];
            let told = blocks(format, &asked.json());
            assert_eq!(told[..7], expected, "{format:?}");
        }
        rig.sound(session).await;
    }
}

/// Whose results a request holds.
fn results(format: Format, body: &Value) -> Vec<String> {
    let (list, id) = match format {
        Format::Anthropic => ("/messages", "tool_use_id"),
        Format::Chat => ("/messages", "tool_call_id"),
        Format::Responses => ("/input", "call_id"),
        Format::Gemini => ("/contents", "id"),
    };
    let mut found = Vec::new();
    for item in body.pointer(list).and_then(Value::as_array).into_iter().flatten() {
        let inner = item.get("content").or_else(|| item.get("parts")).and_then(Value::as_array);
        let blocks = inner.map_or_else(|| vec![item], |blocks| blocks.iter().collect());
        for block in blocks {
            let block = block.get("functionResponse").unwrap_or(block);
            let is_result =
                block.get("type").is_none_or(|kind| kind == "tool_result" || kind == "function_call_output");
            let is_result = is_result && block.get("args").is_none();
            found.extend(block.get(id).filter(|_| is_result).and_then(Value::as_str).map(str::to_owned));
        }
    }
    found
}

#[tokio::test]
async fn attachments_reach_the_vendor() {
    let files = [
        ("a.png", "image/png", PartKind::Image),
        ("b.pdf", "application/pdf", PartKind::File),
        ("c.wav", "audio/wav", PartKind::Audio),
        ("d.txt", "text/plain", PartKind::File),
    ];
    for format in Format::ALL {
        let vendor = FakeVendor::start().await;
        let takes = match format {
            Format::Chat | Format::Gemini => vec![PartKind::Image, PartKind::File, PartKind::Audio],
            Format::Anthropic | Format::Responses => vec![PartKind::Image, PartKind::File],
        };
        let model = ModelConfig { takes: Some(takes.clone()), ..ModelConfig::default() };
        let rig = rig(&vendor, format, model).start().await;
        let session = rig.create().await;
        for (name, mime_type, kind) in files {
            let words = format!("the words of {name} in {format:?}");
            let bytes = Bytes::from(words.clone().into_bytes());
            let file = NewFile { name: name.into(), mime_type: mime_type.into(), bytes };
            let Ok(Answered::Attached { attachment }) = rig.engine.attach(session, file, None, user()).await else {
                panic!("{name} is not taken");
            };
            let (r#ref, mime_type) = (attachment.r#ref, attachment.mime_type);
            let part = match kind {
                PartKind::Image => Part::Image { r#ref, mime_type },
                PartKind::Audio => Part::Audio { r#ref, mime_type },
                PartKind::File => Part::File { r#ref, mime_type },
            };
            let parts = vec![Part::text("see"), part];
            let command = Command::SendMessage { role: Role::User, parts, delivery: Delivery::Queue, auto_run: None };
            vendor.plan(says(format, "seen"));
            let told = rig.command(session, command).await;
            if !takes.contains(&kind) {
                let refusal = told.expect_err("a part that the model cannot take").to_string();
                assert!(refusal.contains("cannot take a part"), "{format:?} {name}: {refusal}");
                continue;
            }
            let Ok(Answered::Message { turn_id: Some(turn), .. }) = told else { panic!("{format:?} {name}: {told:?}") };
            let record = rig.settled(session, turn).await;
            assert_eq!(record.status, RecordStatus::Completed, "{format:?} {name}: {:?}", record.error);
            let body = vendor.asked().pop().expect("a request").json().to_string();
            let coded = base64(words.as_bytes());
            assert!(body.contains(&words) || body.contains(&coded), "{format:?} {name}: {body}");
        }
    }
}

#[tokio::test]
async fn an_attachment_that_the_disk_changed_does_not_reach_the_vendor() {
    let vendor = FakeVendor::start().await;
    let model = ModelConfig { takes: Some(vec![PartKind::File]), ..ModelConfig::default() };
    let rig = rig(&vendor, Format::Anthropic, model).start().await;
    let session = rig.create().await;
    let file = NewFile { name: "d.txt".into(), mime_type: "text/plain".into(), bytes: Bytes::from_static(b"words") };
    let Ok(Answered::Attached { attachment }) = rig.engine.attach(session, file, None, user()).await else {
        panic!("it is not taken");
    };
    rig.store().blob_put(session, &attachment.r#ref, Bytes::from_static(b"wards")).await.unwrap();
    let parts = vec![Part::File { r#ref: attachment.r#ref, mime_type: attachment.mime_type }];
    let command = Command::SendMessage { role: Role::User, parts, delivery: Delivery::Queue, auto_run: None };
    let told = rig.command(session, command).await;
    let Ok(Answered::Message { turn_id: Some(turn), .. }) = told else { panic!("{told:?}") };
    let record = rig.settled(session, turn).await;
    assert_eq!(record.status, RecordStatus::Failed);
    let why = record.error.unwrap().message;
    assert!(why.contains("were changed on the disk"), "{why}");
    assert_eq!(vendor.asked().len(), 0);
}

/// As RFC 4648 has it; written out so that the test does not trust what it tests.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().chain([0, 0].iter()).take(3).fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    text
}

/// The same vendor, reached through itself as a proxy: nobody takes it for a server on this machine.
fn far_away(vendor: &FakeVendor, format: Format, model: ModelConfig) -> RigSetup {
    let provider = ProviderConfig {
        wire: Some(format.wire()),
        base_url: Some(format!("http://models.example{}", format.base_path())),
        proxy: Some(vendor.url("")),
        ..ProviderConfig::default()
    };
    let config = CatalogConfig {
        providers: BTreeMap::from([("fake".to_owned(), provider)]),
        models: BTreeMap::from([("fake/m".to_owned(), model)]),
        aliases: BTreeMap::new(),
    };
    Rig::models(Arc::new(Catalog::new(config, |_| None).expect("a catalog of one vendor")), "fake/m")
}

#[tokio::test]
async fn costs_follow_the_prices() {
    let rates = |input: f64| Rates { input, output: 10.0, cache_read: Some(0.5), cache_write: Some(4.0) };
    let long = Some(LongPrices { above: 1000, rates: rates(20.0) });
    let prices = Some(Prices { rates: rates(2.0), long });
    for format in Format::ALL {
        // Gemini does not tell what it wrote to its cache.
        let cache_write_tokens = if format == Format::Gemini { 0 } else { 5 };
        let others = 7 * 10 + 40 / 2 + cache_write_tokens * 4;
        let rows = [(prices, 100, Some(200 + others)), (prices, 2000, Some(40_000 + others)), (None, 100, None)];
        for (prices, input_tokens, cost) in rows {
            let usage = Usage { input_tokens, output_tokens: 7, cache_read_tokens: 40, cache_write_tokens };
            let vendor = FakeVendor::start().await;
            vendor.plan(Answer::events(Speech { usage, ..Speech::text("ok") }.events(format)));
            let model = ModelConfig { prices, ..ModelConfig::default() };
            let rig = far_away(&vendor, format, model).start().await;
            let session = rig.create().await;
            let record = rig.ask(session, "hi").await;
            assert_eq!(record.status, RecordStatus::Completed, "{format:?}: {:?}", record.error);
            assert_eq!(record.cost_micro_usd, cost, "{format:?} {input_tokens}");
            assert_eq!(record.spent.usage, usage, "{format:?}");
            assert_eq!(rig.state(session).await.spent().cost(), cost);
            assert!(vendor.asked()[0].path.starts_with("http://models.example/"), "it came by the proxy");
        }
    }
}

#[tokio::test]
async fn a_server_that_runs_models_on_this_machine_costs_nothing_and_of_another_nobody_knows() {
    for (name, cost) in [("ollama", Some(0)), ("fake", None)] {
        let vendor = FakeVendor::start().await;
        vendor.plan(says(Format::Chat, "ok"));
        let provider = ProviderConfig { base_url: Some(vendor.url("/v1")), ..ProviderConfig::default() };
        let config = CatalogConfig { providers: [(name.to_owned(), provider)].into(), ..CatalogConfig::default() };
        let catalog = Catalog::new(config, |_| None).expect("a catalog of one server");
        let rig = Rig::models(Arc::new(catalog), &format!("{name}/m")).start().await;
        let session = rig.create().await;
        assert_eq!(rig.ask(session, "hi").await.cost_micro_usd, cost, "{name}");
    }
}

#[tokio::test]
async fn every_signature_of_gemini_goes_back_on_its_own_part() {
    let format = Format::Gemini;
    let vendor = FakeVendor::start().await;
    let parts = json!([
        { "text": "Hm.", "thought": true },
        { "text": "Hmm.", "thought": true, "thoughtSignature": "s1" },
        { "text": "One " },
        { "text": "two ", "thoughtSignature": "s2" },
        { "text": "three", "thoughtSignature": "s3" },
        { "functionCall": { "id": "a", "name": "look", "args": { "subject": "x" } }, "thoughtSignature": "s4" },
        { "text": "", "thoughtSignature": "s5" },
    ]);
    let answer = json!({ "candidates": [{ "content": { "parts": parts }, "finishReason": "STOP" }] });
    vendor.plan(Answer::events(format!("data: {answer}\n\n")));
    vendor.plan(says(format, "Seen."));
    let look = TestTool::new("look", ToolKind::Read).shared();
    let rig = rig(&vendor, format, ModelConfig::default()).tool(&look).start().await;
    let session = rig.create_with(trusting).await;
    assert_eq!(rig.ask(session, "look").await.status, RecordStatus::Completed);
    let mut expected = parts.as_array().unwrap().clone();
    // What is not signed need not go back.
    expected.remove(0);
    assert_eq!(vendor.asked()[1].json()["contents"][1]["parts"], Value::Array(expected));
    assert_eq!(replies(&rig.events(session).await), ["One two three", "Seen."]);
    rig.sound(session).await;
}

/// A message with a file of this kind.
async fn showing(rig: &Rig, session: tenure_core::ids::SessionId, name: &str, mime_type: &str) -> Command {
    let file = NewFile { name: name.into(), mime_type: mime_type.into(), bytes: Bytes::from_static(b"bytes") };
    let Ok(Answered::Attached { attachment }) = rig.engine.attach(session, file, None, user()).await else {
        panic!("{name} is not taken");
    };
    let (r#ref, mime_type) = (attachment.r#ref, attachment.mime_type);
    let part = match mime_type.starts_with("audio/") {
        true => Part::Audio { r#ref, mime_type },
        false => Part::Image { r#ref, mime_type },
    };
    let parts = vec![Part::text("what is it?"), part];
    Command::SendMessage { role: Role::User, parts, delivery: Delivery::Queue, auto_run: None }
}

#[tokio::test]
async fn a_part_that_the_format_cannot_carry_is_refused_when_it_comes() {
    for format in [Format::Anthropic, Format::Responses] {
        let vendor = FakeVendor::with(move |_, _| says(format, "ok")).await;
        // Nobody says what this model takes.
        let rig = plain(&vendor, format).await;
        let session = rig.create().await;
        for (name, mime_type) in [("c.wav", "audio/wav"), ("d.tiff", "image/tiff")] {
            let command = showing(&rig, session, name, mime_type).await;
            let refusal = rig.command(session, command).await.expect_err("it cannot be sent").to_string();
            assert!(refusal.contains("cannot take a part"), "{format:?}: {refusal}");
        }
        assert_eq!(rig.ask(session, "hello").await.status, RecordStatus::Completed, "{format:?}");
        assert_eq!(vendor.asked().len(), 1);
    }
}

#[tokio::test]
async fn an_image_that_the_vendor_refuses_does_not_stay_in_the_way() {
    let told = json!({ "error": { "code": 500, "type": "server_error", "message": "image input is not supported" } });
    for (format, status) in Format::ALL.into_iter().flat_map(|format| [(format, 400), (format, 500)]) {
        let told = told.clone();
        let vendor = FakeVendor::with(move |asked, _| match asked.json().to_string().contains(&base64(b"bytes")) {
            true => Answer::json(status, &told),
            false => says(format, "ok"),
        })
        .await;
        let rig = plain(&vendor, format).await;
        let session = rig.create().await;
        let command = showing(&rig, session, "a.png", "image/png").await;
        let sent = rig.command(session, command).await;
        let Ok(Answered::Message { turn_id: Some(turn), .. }) = sent else { panic!("{format:?}: {sent:?}") };
        let record = rig.settled(session, turn).await;
        let error = record.error.expect("it was refused");
        assert_eq!(error.code, "bad_request", "{format:?} {status}");
        assert!(error.message.contains("attach it again"), "{}", error.message);
        let record = rig.ask(session, "and now?").await;
        assert_eq!(record.status, RecordStatus::Completed, "{format:?} {status}: {:?}", record.error);
        let last = vendor.asked().pop().expect("a request").json().to_string();
        assert!(last.contains("-a.png: left out"), "{format:?}: {last}");
        rig.sound(session).await;
    }
}

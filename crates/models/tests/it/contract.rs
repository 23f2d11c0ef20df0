//! What holds for every format: one reply, however it is cut, dripped or broken, gives the same fragments.

use std::{sync::Arc, time::Duration};

use futures::StreamExt;
use serde_json::json;
use tenure_core::model::{Fault, FaultKind, StopReason, Usage};
use tenure_models::{
    Model, ModelEvent, Patience,
    entry::{Entry, ThinkingStyle, ToolMode},
    vendor::{Endpoint, Transport, VendorModel},
};
use tenure_testkit::vendor::{Answer, FakeVendor, Format, Piece, Speech, Spoken};

use crate::request::{request, user};

pub fn entry() -> Entry {
    Entry {
        name: "fake/m".into(),
        id: "m".into(),
        window: None,
        output_max: Some(4096),
        prices: None,
        takes: vec![],
        tool_mode: ToolMode::Native,
        thinking: ThinkingStyle::None,
        effort: None,
        sends_reasoning: false,
        is_openai: false,
        patience: Patience { first_byte: Duration::from_secs(60), between_bytes: Duration::from_secs(60) },
    }
}

pub fn model(vendor: &FakeVendor, format: Format, entry: Entry) -> VendorModel {
    let endpoint = Endpoint {
        base_url: vendor.url(format.base_path()),
        key: Some("key-of-the-fake".into()),
        key_variable: Some("FAKE_API_KEY".into()),
        key_from: Some("FAKE_API_KEY".into()),
        headers: vec![("x-team".into(), "blue".into())],
        ..nowhere()
    };
    VendorModel::new(entry, format.wire(), Arc::new(endpoint), Transport::new())
}

/// Where nobody is asked.
pub fn nowhere() -> Endpoint {
    Endpoint {
        provider: "fake".into(),
        base_url: "http://127.0.0.1:9".into(),
        url_variable: None,
        key: None,
        key_variable: None,
        key_from: None,
        headers: vec![],
        proxy: None,
    }
}

/// What a reply comes to, whatever the fragments were.
#[derive(Debug, Default, PartialEq)]
pub struct Heard {
    pub text: String,
    pub thoughts: Vec<(String, Option<String>)>,
    thinking: String,
    pub calls: Vec<(Option<String>, String, String)>,
    pub usage: Usage,
    pub end: Option<Result<StopReason, FaultKind>>,
}

pub async fn listen(model: &VendorModel) -> (Heard, Option<Fault>) {
    let mut heard = Heard::default();
    let mut request = request(vec![user("hi")]);
    request.tools = Arc::from([spec()]);
    let mut stream = match model.stream(request).await {
        Ok(stream) => stream,
        Err(fault) => {
            heard.end = Some(Err(fault.kind));
            return (heard, Some(fault));
        }
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(ModelEvent::KeepAlive) => {}
            Ok(ModelEvent::Text(text)) => heard.text.push_str(&text),
            Ok(ModelEvent::Thinking(text)) => heard.thinking.push_str(&text),
            Ok(ModelEvent::ThinkingDone { signature, .. }) => {
                heard.thoughts.push((std::mem::take(&mut heard.thinking), signature));
            }
            Ok(ModelEvent::CallStarted { index, provider_id, name }) => {
                assert_eq!(index as usize, heard.calls.len());
                heard.calls.push((provider_id, name, String::new()));
            }
            Ok(ModelEvent::CallArguments { index, text }) => heard.calls[index as usize].2.push_str(&text),
            Ok(ModelEvent::Usage(usage)) => heard.usage = usage,
            Ok(ModelEvent::Done { stop_reason }) => heard.end = Some(Ok(stop_reason)),
            Err(fault) => {
                heard.end = Some(Err(fault.kind));
                return (heard, Some(fault));
            }
        }
    }
    (heard, None)
}

fn spec() -> tenure_core::tool::ToolSpec {
    tenure_core::tool::ToolSpec {
        name: "look".into(),
        description: "Looks.".into(),
        input_schema: json!({ "type": "object", "properties": { "at": { "type": "string" } } }),
        kind: tenure_core::tool::ToolKind::Read,
    }
}

pub fn rich() -> Speech {
    let call = |id: &str, at: &str| {
        let text = json!({ "at": at }).to_string();
        let (one, two) = text.split_at(4);
        (id.to_owned(), "look".to_owned(), vec![one.to_owned(), two.to_owned()])
    };
    Speech {
        spoken: vec![
            Spoken::Thought(vec!["Hm, ".into(), "äöü 😀".into()], Some("sig+/=".into())),
            Spoken::Text(vec!["Grüße".into(), " und\n\"so\" ".into(), "weiter 🦀".into()]),
            Spoken::Calls(vec![call("call_a", "hier"), call("call_b", "dort \\ \"é\"")]),
        ],
        stop: StopReason::ToolUse,
        usage: Usage { input_tokens: 100, output_tokens: 42, cache_read_tokens: 7, cache_write_tokens: 0 },
    }
}

fn assert_whole(heard: &Heard, format: Format, how: &str) {
    assert_eq!(heard.end, Some(Ok(StopReason::ToolUse)), "{format:?} {how}");
    assert_eq!(heard.text, "Grüße und\n\"so\" weiter 🦀", "{format:?} {how}");
    // Gemini signs the text that follows, Chat signs nothing.
    let signed = Some("sig+/=".to_owned());
    let thought = "Hm, äöü 😀".to_owned();
    let thoughts = match format {
        Format::Anthropic => vec![(thought, signed)],
        Format::Chat => vec![(thought, None)],
        Format::Gemini => vec![(thought, None), (String::new(), signed)],
        Format::Responses => {
            assert!(heard.thoughts[0].1.as_ref().is_some_and(|item| item.contains("sig+/=")), "{:?}", heard.thoughts);
            vec![(thought, heard.thoughts[0].1.clone())]
        }
    };
    assert_eq!(heard.thoughts, thoughts, "{format:?} {how}");
    let usage = Usage { input_tokens: 100, output_tokens: 42, cache_read_tokens: 7, cache_write_tokens: 0 };
    assert_eq!(heard.usage, usage, "{format:?} {how}");
    let calls: Vec<_> =
        heard.calls.iter().map(|(id, name, text)| (id.as_deref(), name.as_str(), text.as_str())).collect();
    let (one, two) = (json!({ "at": "hier" }).to_string(), json!({ "at": "dort \\ \"é\"" }).to_string());
    let expected = [(Some("call_a"), "look", one.as_str()), (Some("call_b"), "look", two.as_str())];
    assert_eq!(calls, expected, "{format:?} {how}");
}

#[tokio::test]
async fn a_reply_is_the_same_wherever_it_is_cut() {
    for format in Format::ALL {
        let events = rich().events(format);
        let vendor = FakeVendor::start().await;
        let model = model(&vendor, format, entry());
        // Cuts at every byte are read without a network, in `decoders`.
        for at in (0..=events.len()).step_by(11) {
            vendor.plan(Answer::events(events.clone()).split(at));
            let (heard, fault) = listen(&model).await;
            assert_eq!(fault, None, "{format:?} at {at}");
            assert_whole(&heard, format, &format!("cut at {at}"));
        }
        vendor.plan(Answer::events(events.clone()).drip());
        assert_whole(&listen(&model).await.0, format, "byte by byte");
        vendor.plan(Answer::events(events.replace('\n', "\r\n")));
        assert_whole(&listen(&model).await.0, format, "with CR LF");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_never_taken_for_a_reply() {
    for format in Format::ALL {
        let events = rich().events(format);
        let vendor = FakeVendor::start().await;
        let model = model(&vendor, format, entry());
        // Up to here no closing mark was seen; what the formats send behind it is only usage.
        let closing = match format {
            Format::Anthropic => events.rfind("event: message_stop").unwrap(),
            Format::Chat => events.find("\"tool_calls\"}").or_else(|| events.rfind("tool_calls\"")).unwrap(),
            Format::Responses => events.rfind("event: response.completed").unwrap(),
            Format::Gemini => events.rfind("data: ").unwrap(),
        };
        for at in (0..closing).step_by(7) {
            for then in [Piece::Cut, Piece::Pause(Duration::ZERO)] {
                let how = format!("{format:?} at {at} {then:?}");
                vendor.plan(Answer::events(events.clone()).until(at, then));
                let (heard, fault) = listen(&model).await;
                match heard.end {
                    None | Some(Err(FaultKind::StreamCut)) => {}
                    end => panic!("{how}: {end:?} {fault:?}"),
                }
            }
        }
    }
}

#[tokio::test]
async fn keys_and_headers_go_where_the_vendor_looks_for_them() {
    for format in Format::ALL {
        let vendor = FakeVendor::start().await;
        vendor.plan(Answer::events(Speech::text("ok").events(format)));
        listen(&model(&vendor, format, entry())).await;
        let asked = &vendor.asked()[0];
        let (header, value, path) = match format {
            Format::Anthropic => ("x-api-key", "key-of-the-fake", "/v1/messages"),
            Format::Chat => ("authorization", "Bearer key-of-the-fake", "/v1/chat/completions"),
            Format::Responses => ("authorization", "Bearer key-of-the-fake", "/v1/responses"),
            Format::Gemini => ("x-goog-api-key", "key-of-the-fake", "/v1beta/models/m:streamGenerateContent?alt=sse"),
        };
        assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", path));
        assert_eq!(asked.header(header), Some(value), "{format:?}");
        assert_eq!(asked.header("x-team"), Some("blue"), "{format:?}");
    }
}

#[tokio::test]
async fn stop_reasons_are_told_apart() {
    for format in Format::ALL {
        let vendor = FakeVendor::start().await;
        let model = model(&vendor, format, entry());
        for stop in [StopReason::EndTurn, StopReason::MaxTokens, StopReason::Refusal, StopReason::Other] {
            vendor.plan(Answer::events(Speech { stop, ..Speech::text("so") }.events(format)));
            assert_eq!(listen(&model).await.0.end, Some(Ok(stop)), "{format:?}");
        }
    }
}

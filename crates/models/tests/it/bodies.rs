//! What vendors are sent: conversations in the shape they demand, that grow at their end only.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_core::{
    context::{ChatMessage, ModelRequest},
    message::Part,
    model::{Thinking, Usage},
    tool::{ToolCall, ToolKind},
};
use tenure_models::{
    Model,
    entry::{Effort, Entry, PartKind, Prices, Rates, ThinkingStyle},
    vendor::VendorModel,
};
use tenure_testkit::vendor::{FakeVendor, Format};

use crate::{
    contract::{entry, model},
    request::{assistant, request, user},
};

pub fn call(number: u64, provider_id: Option<&str>, input: Value) -> ToolCall {
    ToolCall {
        id: format!("call_{number:026}").parse().unwrap(),
        provider_id: provider_id.map(str::to_owned),
        name: "look".into(),
        kind: ToolKind::Read,
        input,
        subject: String::new(),
        secrets: vec![],
        problem: None,
    }
}

pub fn asks(text: &str, thinking: Vec<Thinking>, calls: Vec<ToolCall>) -> ChatMessage {
    ChatMessage::Assistant { text: text.into(), thinking, calls, order: vec![] }
}

pub fn result(call: &ToolCall, ok: bool, text: &str) -> ChatMessage {
    ChatMessage::Tool {
        call: call.id,
        provider_id: call.provider_id.clone(),
        name: call.name.clone(),
        ok,
        parts: vec![Part::text(text)],
    }
}

fn thought(text: &str, signature: &str, origin: &str) -> Thinking {
    Thinking { text: text.into(), signature: Some(signature.into()), origin: Some(origin.into()) }
}

async fn speaker(format: Format, entry: Entry) -> VendorModel {
    model(&FakeVendor::start().await, format, entry)
}

async fn sent(format: Format, entry: Entry, messages: Vec<ChatMessage>) -> Value {
    let body = speaker(format, entry).await.body(&request(messages)).unwrap();
    serde_json::from_slice(&body).unwrap()
}

/// The list that grows.
fn conversation(format: Format, body: &Value) -> &Vec<Value> {
    let field = match format {
        Format::Anthropic | Format::Chat => "messages",
        Format::Responses => "input",
        Format::Gemini => "contents",
    };
    body[field].as_array().unwrap()
}

fn long_talk() -> Vec<ChatMessage> {
    let (one, two) = (call(1, Some("call_a"), json!({ "at": "x" })), call(2, None, json!({})));
    vec![
        user("first"),
        assistant("hello"),
        user("second"),
        asks("I look.", vec![], vec![one.clone(), two.clone()]),
        result(&two, false, "nothing there"),
        result(&one, true, "a file"),
        user("steered"),
        assistant("done"),
        ChatMessage::System { parts: vec![Part::text("be brief")] },
        user("third"),
        assistant("ok"),
        user("fourth"),
    ]
}

#[tokio::test]
async fn a_request_begins_with_the_bytes_of_the_one_before() {
    for format in Format::ALL {
        let speaker =
            speaker(format, Entry { effort: Some(Effort::Low), thinking: ThinkingStyle::Adaptive, ..entry() }).await;
        let talk = long_talk();
        // Requests are sent after these many messages.
        let mut before: Option<Vec<u8>> = None;
        for count in [1, 3, 7, 10, 12] {
            let body = speaker.body(&with_tools(talk[..count].to_vec())).unwrap();
            if let Some(before) = &before {
                let open = before.len() - before.iter().rev().take_while(|byte| b"]}".contains(byte)).count();
                assert!(body.starts_with(&before[..open]), "{format:?} after {count} messages");
            }
            before = Some(body);
        }
    }
}

fn with_tools(messages: Vec<ChatMessage>) -> ModelRequest {
    let spec = tenure_core::tool::ToolSpec {
        name: "look".into(),
        description: "Looks.".into(),
        input_schema: json!({ "type": "object" }),
        kind: ToolKind::Read,
    };
    ModelRequest { tools: Arc::from([spec]), system: vec!["Be kind.".into(), "Be exact.".into()], ..request(messages) }
}

#[tokio::test]
async fn results_follow_their_calls_in_order_and_none_is_missing() {
    let (one, two) = (call(1, Some("call_a"), json!({})), call(2, Some("call_b"), json!({})));
    for format in Format::ALL {
        // The second call never got a result, and somebody spoke before the first one had.
        let talk =
            vec![user("go"), asks("", vec![], vec![one.clone(), two.clone()]), user("wait"), result(&one, true, "A")];
        let body = sent(format, entry(), talk).await;
        let text = serde_json::to_string(conversation(format, &body)).unwrap();
        let place = |what: &str| text.find(what).unwrap_or_else(|| panic!("{format:?}: no {what} in {text}"));
        assert!(place("\"A\"") < place("There is no result"), "{format:?}: {text}");
        assert!(place("There is no result") < place("wait"), "{format:?}: {text}");
    }
}

#[tokio::test]
async fn calls_have_names_that_differ_and_that_every_vendor_takes() {
    let strange = call(3, Some("a b|c"), json!({}));
    let (one, again) = (call(1, Some("call_0"), json!({})), call(2, Some("call_0"), json!({})));
    let talk = vec![
        user("go"),
        asks("", vec![], vec![one.clone()]),
        result(&one, true, "1"),
        asks("", vec![], vec![again.clone(), strange.clone()]),
        result(&again, true, "2"),
        result(&strange, true, "3"),
    ];
    let body = sent(Format::Anthropic, entry(), talk).await;
    let ids: Vec<&str> = conversation(Format::Anthropic, &body)
        .iter()
        .flat_map(|message| message["content"].as_array().unwrap())
        .filter_map(|block| block["id"].as_str().or_else(|| block["tool_use_id"].as_str()))
        .collect();
    let (second, third) = (again.id.to_string(), strange.id.to_string());
    assert_eq!(ids, ["call_0", "call_0", second.as_str(), third.as_str(), second.as_str(), third.as_str()]);
}

#[tokio::test]
async fn thinking_goes_back_to_the_format_that_made_it_and_to_no_other() {
    let item = json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "zzz" }).to_string();
    let thinking = vec![
        thought("Hm.", "sig-a", "anthropic"),
        thought("", "hidden-a", "anthropic-redacted"),
        thought("Hm.", &item, "responses"),
        thought("", "sig-g", "gemini-call-0"),
        Thinking { text: "aloud".into(), signature: None, origin: Some("chat".into()) },
    ];
    let one = call(1, Some("call_a"), json!({}));
    let talk = || vec![user("go"), asks("", thinking.clone(), vec![one.clone()]), result(&one, true, "1")];
    let reply = |format: Format, body: &Value| conversation(format, body)[1].clone();

    let body = sent(Format::Anthropic, entry(), talk()).await;
    assert_eq!(
        reply(Format::Anthropic, &body)["content"],
        json!([
            { "type": "thinking", "thinking": "Hm.", "signature": "sig-a" },
            { "type": "redacted_thinking", "data": "hidden-a" },
            { "type": "tool_use", "id": "call_a", "name": "look", "input": {} },
        ])
    );
    let body = sent(Format::Responses, entry(), talk()).await;
    assert_eq!(reply(Format::Responses, &body)["encrypted_content"], "zzz");
    let body = sent(Format::Gemini, entry(), talk()).await;
    let expected =
        json!({ "functionCall": { "id": "call_a", "name": "look", "args": {} }, "thoughtSignature": "sig-g" });
    assert_eq!(reply(Format::Gemini, &body)["parts"], json!([expected]));
    let body = sent(Format::Chat, entry(), talk()).await;
    assert_eq!(reply(Format::Chat, &body).get("reasoning_content"), None);
    let body = sent(Format::Chat, Entry { sends_reasoning: true, ..entry() }, talk()).await;
    assert_eq!(reply(Format::Chat, &body)["reasoning_content"], "aloud");
}

#[tokio::test]
async fn a_reply_without_an_order_is_sent_as_it_always_was() {
    let item = json!({ "type": "reasoning", "encrypted_content": "zzz" }).to_string();
    let calls = || vec![call(1, Some("c1"), json!({})), call(2, Some("c2"), json!({}))];
    let text = |text: &str| json!({ "type": "text", "text": text });
    let used = |id: &str| json!({ "type": "tool_use", "id": id, "name": "look", "input": {} });
    let thinking = |signature: &str| json!({ "type": "thinking", "thinking": "Hm.", "signature": signature });
    let thoughts = |origin: &str, one: &str, two: &str| vec![thought("Hm.", one, origin), thought("Hm.", two, origin)];
    let talk = |thinking: Vec<Thinking>| vec![user("go"), asks("So.", thinking, calls())];

    let body = sent(Format::Anthropic, entry(), talk(thoughts("anthropic", "s1", "s2"))).await;
    let expected = json!([thinking("s1"), thinking("s2"), text("So."), used("c1"), used("c2")]);
    assert_eq!(body["messages"][1]["content"], expected);
    let body = sent(Format::Responses, entry(), talk(thoughts("responses", &item, &item))).await;
    let kinds: Vec<_> = body["input"].as_array().unwrap()[1..6].iter().map(|item| item["type"].clone()).collect();
    assert_eq!(kinds, ["reasoning", "reasoning", "message", "function_call", "function_call"]);
    let mut signed = thoughts("gemini-text", "t1", "t2");
    signed.extend(thoughts("gemini-call-1", "c1", "c2"));
    let body = sent(Format::Gemini, entry(), talk(signed)).await;
    let called = |id: &str| json!({ "functionCall": { "id": id, "name": "look", "args": {} } });
    let mut second = called("c2");
    second["thoughtSignature"] = json!("c1");
    let expected = json!([{ "text": "So.", "thoughtSignature": "t1" }, called("c1"), second]);
    assert_eq!(body["contents"][1]["parts"], expected);
}

#[tokio::test]
async fn an_order_that_does_not_fit_loses_nothing() {
    use tenure_core::model::Block;
    for order in [vec![Block::Call, Block::Text(u64::MAX)], vec![Block::Text(1), Block::Thinking, Block::Thinking]] {
        let (thinking, calls) = (vec![thought("Hm.", "s1", "anthropic")], vec![call(1, Some("c1"), json!({}))]);
        let reply = ChatMessage::Assistant { text: "\u{e4}h".into(), thinking, calls, order: order.clone() };
        let body = sent(Format::Anthropic, entry(), vec![user("go"), reply]).await;
        let content = body["messages"][1]["content"].as_array().unwrap();
        let text: String = content.iter().filter_map(|block| block["text"].as_str()).collect();
        assert_eq!(text, "\u{e4}h", "{order:?}");
        assert_eq!(content.len(), 3, "{order:?}: {content:?}");
    }
}

#[tokio::test]
async fn attachments_are_sent_as_each_vendor_takes_them() {
    let parts = vec![
        Part::text("look"),
        Part::Image { r#ref: "attachments/a.png".into(), mime_type: "image/png".into() },
        Part::File { r#ref: "attachments/b.pdf".into(), mime_type: "application/pdf".into() },
        Part::File { r#ref: "attachments/c.md".into(), mime_type: "text/markdown".into() },
    ];
    for format in Format::ALL {
        let entry = Entry { takes: vec![PartKind::Image, PartKind::File], ..entry() };
        let mut request = request(vec![ChatMessage::User { parts: parts.clone() }]);
        for (name, bytes) in [("a.png", &b"PNG"[..]), ("b.pdf", b"PDF"), ("c.md", b"# words")] {
            request.files.insert(format!("attachments/{name}"), Arc::from(bytes));
        }
        let speaker = speaker(format, entry).await;
        let text = String::from_utf8(speaker.body(&request).unwrap()).unwrap();
        for expected in ["UE5H", "UERG", "# words", "image/png", "application/pdf"] {
            assert!(text.contains(expected), "{format:?} lacks {expected}: {text}");
        }
        request.files.clear();
        assert!(speaker.body(&request).unwrap_err().message.contains("attachments/a.png"), "{format:?}");
    }
}

#[tokio::test]
async fn what_a_model_cannot_take_is_named_in_its_place() {
    let part = |name: &str, mime_type: &str| Part::File {
        r#ref: format!("attachments/{name}"),
        mime_type: mime_type.to_owned(),
    };
    let parts = [part("b.pdf", "application/pdf"), part("c.md", "text/markdown"), part("d.zip", "application/zip")];
    for format in Format::ALL {
        let takes_files = speaker(format, Entry { takes: vec![PartKind::File], ..entry() }).await;
        assert_eq!(parts.each_ref().map(|part| takes_files.takes(part)), [true, true, false], "{format:?}");
        let takes_none = speaker(format, Entry { takes: vec![], ..entry() }).await;
        assert_eq!(parts.each_ref().map(|part| takes_none.takes(part)), [false, true, false], "{format:?}");
        let mut request = request(vec![ChatMessage::User { parts: parts.to_vec() }]);
        for (name, bytes) in [("b.pdf", &b"PDF"[..]), ("c.md", b"# words"), ("d.zip", b"PK")] {
            request.files.insert(format!("attachments/{name}"), Arc::from(bytes));
        }
        let text = String::from_utf8(takes_none.body(&request).unwrap()).unwrap();
        for expected in ["attachments/b.pdf: left out", "attachments/d.zip: left out", "# words"] {
            assert!(text.contains(expected), "{format:?} lacks {expected}: {text}");
        }
        assert!(!text.contains("UERG"), "{format:?}: {text}");
    }
}

#[tokio::test]
async fn what_was_not_counted_is_of_unknown_cost() {
    let rates = Rates { input: 1.0, output: 1.0, cache_read: None, cache_write: None };
    let cost = async |prices: Option<Prices>, usage: Usage| {
        speaker(Format::Chat, Entry { prices, ..entry() }).await.cost(&usage)
    };
    let (priced, one) = (Some(Prices { rates, long: None }), Usage { input_tokens: 1, ..Usage::default() });
    assert_eq!((cost(priced, one).await, cost(priced, Usage::default()).await), (Some(1), None));
    assert_eq!((cost(None, one).await, cost(Some(Prices::FREE), Usage::default()).await), (None, Some(0)));
}

#[tokio::test]
async fn the_stable_part_and_the_end_are_marked_for_the_cache() {
    let speaker = speaker(Format::Anthropic, entry()).await;
    let body: Value = serde_json::from_slice(&speaker.body(&with_tools(long_talk())).unwrap()).unwrap();
    assert_eq!(body["cache_control"], json!({ "type": "ephemeral" }));
    assert_eq!(body["system"][0].get("cache_control"), None);
    assert_eq!(body["system"][1]["cache_control"], json!({ "type": "ephemeral" }));
    assert!(!body["messages"].to_string().contains("cache_control"));
}

#[tokio::test]
async fn a_context_that_begins_with_a_reply_is_given_a_beginning() {
    for format in [Format::Anthropic, Format::Gemini] {
        let body = sent(format, entry(), vec![assistant("so"), user("go on")]).await;
        assert_eq!(conversation(format, &body)[0]["role"], "user");
        assert_eq!(conversation(format, &body).len(), 3);
    }
}

/// What is sent where a reply has to fit this schema.
async fn sent_with(format: Format, schema: &Value) -> Value {
    let request = ModelRequest { output_schema: Some(Arc::new(schema.clone())), ..request(vec![user("n?")]) };
    serde_json::from_slice(&speaker(format, entry()).await.body(&request).unwrap()).unwrap()
}

const SCHEMAS: [(Format, &str, &str); 4] = [
    (Format::Anthropic, "/output_config/format/schema", ""),
    (Format::Chat, "/response_format/json_schema/schema", "/response_format/json_schema/strict"),
    (Format::Responses, "/text/format/schema", "/text/format/strict"),
    (Format::Gemini, "/generationConfig/responseJsonSchema", ""),
];

#[tokio::test]
async fn a_schema_for_the_reply_is_sent_as_strict_modes_demand_it() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    let mut closed = schema.clone();
    closed["additionalProperties"] = json!(false);
    for (format, place, strict) in SCHEMAS {
        let body = sent_with(format, &schema).await;
        let expected = if format == Format::Gemini { &schema } else { &closed };
        assert_eq!(body.pointer(place), Some(expected), "{format:?}: {body}");
        assert!(strict.is_empty() || body.pointer(strict) == Some(&json!(true)), "{format:?}: {body}");
    }
}

#[tokio::test]
async fn a_schema_that_strict_modes_do_not_take_is_sent_without_them() {
    let free = json!({ "type": "object", "properties": { "n": { "type": "null" }, "m": { "type": "null" } }, "required": ["n"] });
    let open = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
    for (format, place, strict) in SCHEMAS {
        for schema in [&free, &open] {
            let body = sent_with(format, schema).await;
            if format != Format::Anthropic {
                assert_eq!(body.pointer(place), Some(schema), "{format:?}: {body}");
                assert!(strict.is_empty() || body.pointer(strict) == Some(&json!(false)), "{format:?}: {body}");
            }
        }
    }
    let body = sent_with(Format::Anthropic, &free).await;
    assert_eq!(body.pointer("/output_config/format/schema/required"), Some(&json!(["n"])));
    let body = sent_with(Format::Anthropic, &open).await;
    assert_eq!(body.get("output_config"), None);
    let told = body["system"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap().to_owned();
    assert!(told.ends_with(&open.to_string()), "{told}");
}

#[tokio::test]
async fn thoughts_that_came_to_nothing_are_not_sent_back() {
    for (format, list, origin) in
        [(Format::Anthropic, "messages", "anthropic"), (Format::Responses, "input", "responses")]
    {
        let lone = || asks("", vec![thought("hm", "{\"type\":\"reasoning\"}", origin)], vec![]);
        let body = sent(format, entry(), vec![user("a"), lone(), user("b")]).await;
        let text = body[list].to_string();
        assert!(!text.contains("reasoning") && !text.contains("thinking"), "{format:?}: {text}");
    }
}

#[tokio::test]
async fn what_a_model_wrote_for_an_object_goes_back_as_one() {
    for (format, pointer) in
        [(Format::Anthropic, "/messages/1/content/0/input"), (Format::Gemini, "/contents/1/parts/0/functionCall/args")]
    {
        let asked = call(1, Some("c1"), json!([1, 2]));
        let messages = vec![user("a"), asks("", vec![], vec![asked.clone()]), result(&asked, false, "no")];
        let body = sent(format, entry(), messages).await;
        assert_eq!(body.pointer(pointer), Some(&json!({ "malformed": [1, 2] })), "{format:?}: {body}");
    }
}

//! Tools as an action object: answers are shown while they are written, calls are read out of it.

use std::sync::Arc;

use serde_json::{Value, json};
use tenure_core::{
    context::ModelRequest,
    model::{FaultKind, StopReason, Usage},
};
use tenure_models::entry::{Entry, ToolMode};
use tenure_testkit::vendor::{Answer, FakeVendor, Format, Speech, Spoken};

use crate::{
    bodies::{asks, call, result},
    contract::{Heard, entry, listen, model},
    request::{request, user},
};

fn by_schema() -> Entry {
    Entry { tool_mode: ToolMode::Schema, ..entry() }
}

async fn heard(raw: &str, piece: usize, stop: StopReason) -> Heard {
    let vendor = FakeVendor::start().await;
    let letters: Vec<char> = raw.chars().collect();
    let pieces = letters.chunks(piece).map(|piece| piece.iter().collect()).collect();
    let speech = Speech { spoken: vec![Spoken::Text(pieces)], stop, usage: Usage::default() };
    vendor.plan(Answer::events(speech.events(Format::Chat)));
    listen(&model(&vendor, Format::Chat, by_schema())).await.0
}

#[tokio::test]
async fn an_answer_is_text_however_it_is_cut() {
    let text = "Grüße \"und\" so\n\\ 😀 \u{7}ende";
    let escaped = json!({ "action": "answer", "text": text }).to_string();
    let wild = "{ \"action\" : \"answer\" ,\n \"text\":\"Gr\\u00fc\\u00DFe \\\"und\\\" so\\n\\\\ \\ud83d\\ude00 \\u0007ende\" }";
    for raw in [escaped.as_str(), wild] {
        for piece in 1..12 {
            let heard = heard(raw, piece, StopReason::EndTurn).await;
            assert_eq!((heard.text.as_str(), heard.end), (text, Some(Ok(StopReason::EndTurn))), "{raw} by {piece}");
            assert!(heard.calls.is_empty());
        }
    }
}

#[tokio::test]
async fn a_call_is_a_call() {
    let heard = heard("{\"action\":\"look\",\"input\":{\"at\":\"here\"}}", 3, StopReason::EndTurn).await;
    assert_eq!(heard.end, Some(Ok(StopReason::ToolUse)));
    assert_eq!(heard.text, "");
    assert_eq!(heard.calls, [(None, "look".into(), json!({ "at": "here" }).to_string())]);
}

#[tokio::test]
async fn an_action_is_found_behind_thinking_and_in_a_fence() {
    let answer = "{\"action\":\"answer\",\"text\":\"a < b\"}";
    let call = "{\"action\":\"look\",\"input\":{\"at\":\"here\"}}";
    let rows = [
        ("", ""),
        ("```json\n", "\n```"),
        ("\n ```\n", "\n```\nDone."),
        ("<think>Where </thin to?</think>\n\n", ""),
        ("\n<think>Where </thin to?</think>```json\n", "\n```"),
        ("Where </thin to?</think>", " So be it."),
        ("Here it is:\n```json\n", "```"),
        ("", "\n{\"action\":\"look\",\"input\":{}}"),
    ];
    for (before, after) in rows {
        for piece in 1..10 {
            let raw = format!("{before}{answer}{after}");
            let told = heard(&raw, piece, StopReason::EndTurn).await;
            assert_eq!((told.text.as_str(), told.end), ("a < b", Some(Ok(StopReason::EndTurn))), "{raw} by {piece}");
            let raw = format!("{before}{call}{after}");
            let asked = heard(&raw, piece, StopReason::EndTurn).await;
            assert_eq!((asked.text.as_str(), asked.end), ("", Some(Ok(StopReason::ToolUse))), "{raw} by {piece}");
            assert_eq!(asked.calls, [(None, "look".into(), json!({ "at": "here" }).to_string())], "{raw}");
            let thought = before.contains("think").then(|| ("Where </thin to?".to_owned(), None));
            let thoughts: Vec<_> = thought.into_iter().collect();
            assert_eq!((told.thoughts, asked.thoughts), (thoughts.clone(), thoughts), "{raw} by {piece}");
        }
    }
}

#[tokio::test]
async fn what_is_no_action_is_told_with_what_can_be_done() {
    for raw in [
        "",
        "hello",
        "{\"action\":\"look\"}",
        "{\"input\":{}}",
        "[]",
        "{\"action\":\"answer\"}",
        "{\"action\":\"look\",\"inp",
        "```json\nhello\n```",
        "<think>never said",
        "I would not {\"action\":\"look\",\"input\":{}}",
    ] {
        assert_eq!(heard(raw, 2, StopReason::EndTurn).await.end, Some(Err(FaultKind::SchemaMismatch)), "{raw:?}");
    }
    let vendor = FakeVendor::start().await;
    let long = format!("Sure! {}", "blah ".repeat(100));
    vendor.plan(Answer::events(Speech::text(&long).events(Format::Chat)));
    let fault = listen(&model(&vendor, Format::Chat, by_schema())).await.1.unwrap().message;
    for told in ["“Sure! blah blah", "blah…”", "`tool_mode = \"native\"` under [models.\"fake/m\"]", "json_schema"]
    {
        assert!(fault.contains(told), "{told}: {fault}");
    }
    assert!(fault.len() < 600, "{fault}");
    // A broken pair of escapes is shown as it stands.
    let heard = heard("{\"action\":\"answer\",\"text\":\"a\\ud83dé\"}", 1, StopReason::EndTurn).await;
    assert_eq!(heard.end, Some(Ok(StopReason::EndTurn)));
    assert!(heard.text.starts_with('a'), "{}", heard.text);
}

#[tokio::test]
async fn an_answer_that_was_too_long_keeps_what_came() {
    let heard = heard("{\"action\":\"answer\",\"text\":\"so far", 4, StopReason::MaxTokens).await;
    assert_eq!((heard.text.as_str(), heard.end), ("so far", Some(Ok(StopReason::MaxTokens))));
}

#[tokio::test]
async fn the_model_is_told_of_its_tools_and_of_what_it_did() {
    let one = call(1, None, json!({ "at": "here" }));
    let spec = tenure_core::tool::ToolSpec {
        name: "look".into(),
        description: "Looks.".into(),
        input_schema: json!({ "type": "object", "properties": { "at": { "type": "string" } } }),
        kind: tenure_core::tool::ToolKind::Read,
    };
    let talk = vec![user("go"), asks("", vec![], vec![one.clone()]), result(&one, true, "a file")];
    let request = ModelRequest { tools: Arc::from([spec]), ..request(talk) };
    let body = model(&FakeVendor::start().await, Format::Chat, by_schema()).body(&request).unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body.get("tools"), None);
    assert!(body["messages"][0]["content"].as_str().unwrap().contains("look: Looks."));
    let said: Value = serde_json::from_str(body["messages"][2]["content"].as_str().unwrap()).unwrap();
    assert_eq!(said, json!({ "action": "look", "input": { "at": "here" } }));
    assert_eq!(body["messages"][3], json!({ "role": "user", "content": "Result of look:\na file" }));
    let actions = body["response_format"]["json_schema"]["schema"]["anyOf"].as_array().unwrap();
    let names: Vec<_> = actions.iter().map(|action| &action["properties"]["action"]["const"]).collect();
    assert_eq!(names, ["answer", "look"]);
}

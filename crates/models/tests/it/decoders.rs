//! Streams that went wrong, in every format: never a panic, the same however they are cut, and no end where none was told.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use tenure_core::model::{Fault, FaultKind, StopReason, Usage};
use tenure_fuzzkit::{Dice, Target, target};
use tenure_models::{
    ModelEvent,
    entry::{Entry, ToolMode},
    vendor::{Transport, VendorModel, Wire},
};
use tenure_testkit::vendor::Format;

use crate::contract::{entry, nowhere, rich};

pub fn model(wire: Wire, tool_mode: ToolMode) -> VendorModel {
    VendorModel::new(Entry { tool_mode, ..entry() }, wire, Arc::new(nowhere()), Transport::new())
}

/// What a stream comes to.
#[derive(Debug, Default, PartialEq)]
struct Told {
    text: String,
    thoughts: Vec<(String, Option<String>, Option<String>)>,
    thinking: String,
    calls: Vec<(Option<String>, String, String)>,
    usage: Option<Usage>,
    end: Option<Result<StopReason, FaultKind>>,
}

/// The events of a stream that comes in these pieces. All of them are there, so nothing is waited for.
pub fn events(model: &VendorModel, pieces: Vec<Bytes>) -> Vec<Result<ModelEvent, Fault>> {
    let events = model.read(stream::iter(pieces.into_iter().map(Ok)).boxed(), true);
    events.collect().now_or_never().expect("nothing is waited for")
}

fn read(model: &VendorModel, pieces: Vec<Bytes>) -> Told {
    let mut told = Told::default();
    for event in events(model, pieces) {
        assert_eq!(told.end, None, "nothing comes after the end");
        match event {
            Ok(ModelEvent::KeepAlive) => {}
            Ok(ModelEvent::Text(text)) => told.text.push_str(&text),
            Ok(ModelEvent::Thinking(text)) => told.thinking.push_str(&text),
            Ok(ModelEvent::ThinkingDone { signature, origin }) => {
                told.thoughts.push((std::mem::take(&mut told.thinking), signature, origin));
            }
            Ok(ModelEvent::CallStarted { index, provider_id, name }) => {
                assert_eq!(index as usize, told.calls.len(), "calls are numbered as they come");
                assert!(!name.is_empty(), "a call has a name");
                told.calls.push((provider_id, name, String::new()));
            }
            Ok(ModelEvent::CallArguments { index, text }) => {
                let call = told.calls.get_mut(index as usize).expect("arguments are of a call that was begun");
                call.2.push_str(&text);
            }
            Ok(ModelEvent::Usage(usage)) => {
                let before = told.usage.unwrap_or_default();
                assert!(
                    before.sent() <= usage.sent() && before.output_tokens <= usage.output_tokens,
                    "{before:?} {usage:?}"
                );
                told.usage = Some(usage);
            }
            Ok(ModelEvent::Done { stop_reason }) => told.end = Some(Ok(stop_reason)),
            Err(fault) => told.end = Some(Err(fault.kind)),
        }
    }
    told
}

fn whole(input: &[u8]) -> Vec<Bytes> {
    vec![Bytes::copy_from_slice(input)]
}

fn one_by_one(input: &[u8]) -> Vec<Bytes> {
    input.chunks(1).map(Bytes::copy_from_slice).collect()
}

/// The same bytes, cut at a few places.
fn cut(input: &[u8], dice: &mut Dice) -> Vec<Bytes> {
    let places: BTreeSet<usize> = (0..6).map(|_| dice.below(input.len() + 1)).collect();
    let mut pieces = Vec::new();
    let mut from = 0;
    for to in places.into_iter().chain([input.len()]) {
        pieces.push(Bytes::copy_from_slice(&input[from..to]));
        from = to;
    }
    pieces
}

fn check(target: Target, model: &VendorModel, closing: &[&str]) {
    target.cases(250).run_with(|input, dice| {
        let told = read(model, whole(input));
        assert_eq!(read(model, one_by_one(input)), told, "byte by byte");
        assert_eq!(read(model, cut(input, dice)), told, "cut somewhere");
        if let Some(Ok(_)) = told.end {
            let text = String::from_utf8_lossy(input);
            assert!(closing.iter().any(|mark| text.contains(mark)), "an end that nobody told");
        }
    });
}

#[test]
fn anthropic() {
    check(target!("anthropic"), &model(Wire::Anthropic, ToolMode::Native), &["message_stop"]);
}

#[test]
fn chat() {
    check(target!("chat"), &model(Wire::Chat, ToolMode::Native), &["finish_reason"]);
}

#[test]
fn actions() {
    check(target!("actions"), &model(Wire::Chat, ToolMode::Schema), &["finish_reason"]);
}

#[test]
fn responses() {
    let closing = ["response.completed", "response.incomplete"];
    check(target!("responses"), &model(Wire::Responses, ToolMode::Native), &closing);
}

#[test]
fn gemini() {
    check(target!("gemini"), &model(Wire::Gemini, ToolMode::Native), &["finishReason", "blockReason"]);
}

#[test]
fn a_reply_that_ends_before_its_closing_mark_has_no_end() {
    for format in Format::ALL {
        let events = rich().events(format);
        let model = model(format.wire(), ToolMode::Native);
        let reply = read(&model, whole(events.as_bytes()));
        assert_eq!(reply.end, Some(Ok(StopReason::ToolUse)), "{format:?}");
        let mut ended = false;
        for at in 0..=events.len() {
            let told = read(&model, whole(&events.as_bytes()[..at]));
            match told.end {
                None => assert!(!ended, "{format:?}: what has an end keeps it, at {at}"),
                Some(Ok(stop_reason)) => {
                    assert_eq!(stop_reason, StopReason::ToolUse, "{format:?} at {at}");
                    let all = (&told.text, &told.thoughts, &told.calls);
                    assert_eq!(
                        all,
                        (&reply.text, &reply.thoughts, &reply.calls),
                        "{format:?}: nothing is lost, at {at}"
                    );
                    ended = true;
                }
                Some(Err(kind)) => panic!("{format:?} at {at}: {kind:?}"),
            }
            assert!(reply.text.starts_with(&told.text), "{format:?} at {at}");
        }
        assert!(ended);
    }
}

#[test]
fn items_that_are_only_told_at_the_end_are_shown() {
    let input = include_bytes!("../corpus/responses/whole.sse");
    let told = read(&model(Wire::Responses, ToolMode::Native), whole(input));
    assert_eq!((told.text.as_str(), told.end), ("All", Some(Ok(StopReason::ToolUse))));
    assert_eq!(told.calls, [(Some("a".to_owned()), "look".to_owned(), "{}".to_owned())]);
}

#[test]
fn calls_of_one_number_are_told_apart_by_their_ids() {
    let call = |id: &str| {
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"id\":\"{id}\",\"function\":{{\"name\":\"look\",\"arguments\":\"{{}}\"}}}}]}}}}]}}\n\n"
        )
    };
    let end = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let input = call("a") + &call("b") + end;
    let told = read(&model(Wire::Chat, ToolMode::Native), whole(input.as_bytes()));
    let ids: Vec<_> = told.calls.iter().map(|(id, ..)| id.as_deref()).collect();
    assert_eq!((ids, told.end), (vec![Some("a"), Some("b")], Some(Ok(StopReason::ToolUse))));
}

/// One item of the Responses format: added, with these pieces, and whole.
fn item(added: Value, kind: &str, pieces: &[&str], whole: Value) -> String {
    let event = |data: Value| format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap());
    let mut events = event(json!({ "type": "response.output_item.added", "output_index": 0, "item": added }));
    for piece in pieces {
        events += &event(json!({ "type": kind, "output_index": 0, "delta": piece }));
    }
    events += &event(json!({ "type": "response.output_item.done", "output_index": 0, "item": whole }));
    events + &event(json!({ "type": "response.completed", "response": {} }))
}

fn said(pieces: &[&str], whole: &str) -> Told {
    let message = |content: Value| json!({ "type": "message", "content": content });
    let content = json!([{ "type": "output_text", "text": whole }]);
    let events = item(message(json!([])), "response.output_text.delta", pieces, message(content));
    read(&model(Wire::Responses, ToolMode::Native), vec![Bytes::from(events)])
}

fn asked(pieces: &[&str], whole: &str) -> Told {
    let call =
        |arguments: &str| json!({ "type": "function_call", "call_id": "c", "name": "look", "arguments": arguments });
    let events = item(call(""), "response.function_call_arguments.delta", pieces, call(whole));
    read(&model(Wire::Responses, ToolMode::Native), vec![Bytes::from(events)])
}

#[test]
fn a_whole_item_adds_what_its_pieces_did_not_tell() {
    for (pieces, whole, text) in [
        (&["Hello "][..], "Hello world", "Hello world"),
        (&["Hello ", "world"], "Hello world", "Hello world"),
        (&["Hello"], "", "Hello"),
        (&["Hello\n"], "Hello", "Hello\n"),
        (&[], "Hello", "Hello"),
    ] {
        let told = said(pieces, whole);
        assert_eq!((told.text.as_str(), told.end), (text, Some(Ok(StopReason::EndTurn))), "{pieces:?} {whole}");
    }
    for (pieces, whole, arguments) in [
        (&["{\"path\":"][..], "{\"path\":\"one.txt\"}", "{\"path\":\"one.txt\"}"),
        (&["{\"a\": 1}"], "{\"a\":1}", "{\"a\": 1}"),
        (&["{}"], "", "{}"),
    ] {
        let told = asked(pieces, whole);
        assert_eq!((told.calls[0].2.as_str(), told.end), (arguments, Some(Ok(StopReason::ToolUse))), "{pieces:?}");
    }
    let reasoning = |summary: Value| json!({ "type": "reasoning", "summary": summary, "encrypted_content": "zzz" });
    let parts = json!([{ "type": "summary_text", "text": "One." }, { "type": "summary_text", "text": "Two." }]);
    let events = item(reasoning(json!([])), "response.reasoning_summary_text.delta", &["One."], reasoning(parts));
    let told = read(&model(Wire::Responses, ToolMode::Native), vec![Bytes::from(events)]);
    assert_eq!(told.thoughts[0].0, "One.\n\nTwo.");
}

#[test]
fn an_item_that_contradicts_its_pieces_is_a_fault() {
    let fault = Some(Err(FaultKind::Malformed));
    let told = said(&["Hello "], "Goodbye");
    assert_eq!((told.text.as_str(), told.end), ("Hello ", fault), "what was shown stays shown");
    assert_eq!(said(&["Hello world"], "Hello").end, fault);
    assert_eq!(asked(&["{\"a\":1}"], "{\"a\":2}").end, fault);
}

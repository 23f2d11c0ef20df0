//! Each way a vendor can fail: the events that tell of it, and what comes after.

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tenure_core::{
    cursor::Cursor,
    event::{Body, ModelAttemptFailed},
    model::{FaultKind, StopReason, Usage},
};
use tenure_engine::RecordStatus;
use tenure_models::{
    catalog::ModelConfig,
    entry::{Prices, Rates, ToolMode},
};
use tenure_testkit::vendor::{Answer, FakeVendor, Format, Piece, Speech};

use super::{far_away, plain, replies, rig, says};

const REPLY: &str = "All is well.";

fn error(kind: &str, message: &str) -> Value {
    json!({ "error": { "type": kind, "message": message } })
}

/// The first half of a reply that was meant to be another one.
fn half(format: Format) -> Answer {
    let events = Speech::text("This is not the end.").events(format);
    let at = events.find("not").expect("the word is there");
    let at = at + events[at..].find("\n\n").expect("its event ends") + 2;
    Answer::events(events).until(at, Piece::Pause(Duration::ZERO))
}

fn half_and(format: Format, then: &str) -> Answer {
    let mut answer = half(format);
    answer.pieces.push(Piece::Bytes(then.into()));
    answer
}

async fn attempts(answers: Vec<Answer>, format: Format) -> (Vec<(ModelAttemptFailed, u64)>, tenure_engine::TurnRecord) {
    let vendor = FakeVendor::start().await;
    answers.into_iter().for_each(|answer| vendor.plan(answer));
    vendor.plan(says(format, REPLY));
    let model = ModelConfig { between_bytes_ms: Some(300), ..ModelConfig::default() };
    let rig = rig(&vendor, format, model).start().await;
    let session = rig.create().await;
    let record = rig.ask(session, "hi").await;
    rig.sound(session).await;
    let events = rig.events(session).await;
    let said = replies(&events);
    assert!(said.is_empty() || said == [REPLY], "{format:?}: {said:?}");
    let failed = events.into_iter().filter_map(|event| match event.body {
        Body::ModelAttemptFailed(failed) => Some((*failed, event.ts.ms())),
        _ => None,
    });
    (failed.collect(), record)
}

#[tokio::test]
async fn what_may_pass_is_tried_again_when_the_vendor_says() {
    use FaultKind::*;
    for format in Format::ALL {
        let rows = [
            (429, "rate_limit_error", RateLimited),
            (529, "overloaded_error", Overloaded),
            (500, "api_error", Server),
            (503, "", Server),
            (408, "", Server),
        ];
        // Longer than what is waited anyway.
        let asked = |status: u16| 700 + u64::from(status % 100);
        let turns = rows.iter().map(|(status, kind, _)| {
            let answer = Answer::json(*status, &error(kind, "wait a little"));
            attempts(vec![answer.with_header("retry-after-ms", &asked(*status).to_string())], format)
        });
        for ((status, _, kind), (failed, record)) in rows.iter().zip(join_all(turns).await) {
            assert_eq!(record.status, RecordStatus::Completed, "{format:?} {status}: {:?}", record.error);
            let [(failed, at)] = &failed[..] else { panic!("{format:?} {status}: {failed:?}") };
            assert_eq!(failed.reason.kind, *kind, "{format:?} {status}");
            let wait = failed.retry_at.expect("another attempt").ms() - at;
            assert_eq!(wait, asked(*status), "{format:?} {status}");
            assert!(failed.reason.message.contains("wait a little"), "{:?}", failed.reason);
        }
    }
}

#[tokio::test]
async fn a_reply_that_breaks_is_abandoned_and_begun_again() {
    use FaultKind::*;
    for format in Format::ALL {
        let told = json!({ "type": "error", "error": { "type": "overloaded_error", "message": "busy" } });
        let rows = vec![
            (half(format), StreamCut),
            (half_and(format, "data: {\"nonsense\n\n"), Malformed),
            (half_and(format, &format!("event: error\ndata: {told}\n\n")), Overloaded),
            (Answer { pieces: [half(format).pieces, vec![Piece::Stall]].concat(), ..half(format) }, StreamStalled),
        ];
        for (answer, kind) in rows {
            let (failed, record) = attempts(vec![answer], format).await;
            assert_eq!(record.status, RecordStatus::Completed, "{format:?} {kind:?}: {:?}", record.error);
            let [(failed, _)] = &failed[..] else { panic!("{format:?} {kind:?}: {failed:?}") };
            // The Responses format tells errors in another shape, which is the same to us.
            assert_eq!(failed.reason.kind, kind, "{format:?}: {:?}", failed.reason);
            assert_eq!(failed.text, "This is not ", "{format:?} {kind:?}");
        }
    }
}

/// A reply that tells what it has used so far and breaks then. Responses tells it with its failure alone.
fn used_and_broken(format: Format, usage: Usage) -> Answer {
    let events = Speech { usage, ..Speech::text("This is not the end.") }.events(format);
    if format == Format::Responses {
        let failed = events.replace("response.completed", "response.failed");
        return Answer::events(failed.replace("\"incomplete_details\":null", "\"error\":{\"code\":\"server_error\"}"));
    }
    let closing = match format {
        Format::Anthropic => "event: message_stop",
        Format::Chat => "data: [DONE]",
        _ => "\"finishReason\"",
    };
    // The reason why it ends is what makes it whole.
    let broken = events.replace("\"finish_reason\":\"stop\"", "\"finish_reason\":null");
    let broken = broken.replace("\"finishReason\":\"STOP\"", "\"index\":0");
    let at = broken.find(closing).unwrap_or(broken.len());
    Answer::events(broken).until(at, Piece::Cut)
}

#[tokio::test]
async fn what_an_abandoned_attempt_has_used_stays_counted() {
    for format in Format::ALL {
        // Gemini does not tell what it wrote to its cache.
        let cache_write_tokens = if format == Format::Gemini { 0 } else { 4 };
        let used = Usage { input_tokens: 30, output_tokens: 7, cache_read_tokens: 20, cache_write_tokens };
        let vendor = FakeVendor::start().await;
        for _ in 0..2 {
            vendor.plan(used_and_broken(format, used));
        }
        vendor.plan(Answer::events(Speech { usage: used, ..Speech::text(REPLY) }.events(format)));
        let rates = Rates { input: 1.0, output: 1.0, cache_read: None, cache_write: None };
        let model = ModelConfig { prices: Some(Prices { rates, long: None }), ..ModelConfig::default() };
        let rig = far_away(&vendor, format, model).start().await;
        let session = rig.create().await;
        let record = rig.ask(session, "hi").await;
        assert_eq!(record.status, RecordStatus::Completed, "{format:?}: {:?}", record.error);
        let failed: Vec<Usage> = rig
            .events(session)
            .await
            .iter()
            .filter_map(|event| match &event.body {
                Body::ModelAttemptFailed(failed) => Some(failed.usage),
                _ => None,
            })
            .collect();
        assert_eq!(failed, [used, used], "{format:?}");
        let mut all = Usage::default();
        (0..3).for_each(|_| all.add(&used));
        let state = rig.state(session).await;
        assert_eq!((record.spent.usage, state.spent().usage), (all, all), "{format:?}");
        // More than what was told may have been used before it broke.
        let cost = all.sent() + all.output_tokens;
        assert_eq!((record.spent.micro_usd, state.spent().micro_usd), (cost, cost), "{format:?}");
        assert_eq!((record.cost_micro_usd, state.spent().cost()), (None, None), "{format:?}");
        assert_eq!(rig.engine.counts().usage, all, "{format:?}");
    }
}

#[tokio::test]
async fn a_call_that_is_stopped_costs_what_was_told_or_nobody_knows_what() {
    for format in Format::ALL {
        let used = Usage { input_tokens: 30, output_tokens: 7, ..Usage::default() };
        let events = Speech { usage: used, ..Speech::text("This is not the end.") }.events(format);
        let at = events.find("not").expect("the word is there");
        let at = at + events[at..].find("\n\n").expect("its event ends") + 2;
        let stalled = || Answer::events(events.clone()).until(at, Piece::Stall);
        let vendor = FakeVendor::start().await;
        vendor.plan(stalled());
        let rates = Rates { input: 1.0, output: 1.0, cache_read: None, cache_write: None };
        let model = ModelConfig { prices: Some(Prices { rates, long: None }), ..ModelConfig::default() };
        let mut rig = far_away(&vendor, format, model).start().await;

        let session = rig.create().await;
        let mut watcher = rig.watch(session, Cursor::START).await;
        let turn = rig.say(session, "hi").await;
        watcher.until("model_output_delta").await;
        rig.cancel(session).await.unwrap();
        let record = rig.settled(session, turn).await;
        // Anthropic tells what was sent before it answers, the others when all is said.
        let told = record.spent.usage != Usage::default();
        assert_eq!(told, format == Format::Anthropic, "{format:?}: {:?}", record.spent);
        let known = record.spent.usage.sent() + record.spent.usage.output_tokens;
        assert_eq!((record.spent.micro_usd, record.cost_micro_usd), (known, None), "{format:?}");

        vendor.plan(stalled());
        vendor.plan(says(format, REPLY));
        let session = rig.create().await;
        let mut watcher = rig.watch(session, Cursor::START).await;
        let turn = rig.say(session, "hi").await;
        watcher.until("model_output_delta").await;
        rig.crash_and_restart().await;
        let record = rig.settled(session, turn).await;
        assert_eq!((record.status, record.cost_micro_usd), (RecordStatus::Completed, None), "{format:?}");
    }
}

#[tokio::test]
async fn what_cannot_be_helped_ends_the_turn_with_the_vendors_words() {
    use FaultKind::*;
    for format in Format::ALL {
        let rows = [
            (400, error("invalid_request_error", "a bad field"), BadRequest),
            (401, error("authentication_error", "a wrong key"), Auth),
            (403, error("permission_error", "not you"), Auth),
            (404, error("not_found_error", "no such model"), UnknownModel),
            (402, error("", "pay first"), Quota),
            (429, error("insufficient_quota", "all is spent"), Quota),
        ];
        for (status, body, kind) in rows {
            let (failed, record) = attempts(vec![Answer::json(status, &body)], format).await;
            assert_eq!(record.status, RecordStatus::Failed, "{format:?} {status}");
            let told = record.error.expect("a reason");
            assert_eq!(told.code, kind.code(), "{format:?} {status}");
            assert!(told.message.contains(body["error"]["message"].as_str().unwrap()), "{}", told.message);
            let [(failed, _)] = &failed[..] else { panic!("{format:?} {status}: {failed:?}") };
            assert_eq!((failed.reason.kind, failed.retry_at), (kind, None), "{format:?} {status}");
        }
    }
}

#[tokio::test]
async fn a_model_that_does_not_hold_the_shape_is_given_up_soon() {
    let vendor = FakeVendor::with(|_, _| says(Format::Chat, "I had rather chat.")).await;
    let model = ModelConfig { tool_mode: Some(ToolMode::Schema), ..ModelConfig::default() };
    let look = tenure_testkit::TestTool::new("look", tenure_core::tool::ToolKind::Read).shared();
    let rig = rig(&vendor, Format::Chat, model).tool(&look).start().await;
    let session = rig.create().await;
    let told = rig.ask(session, "look").await.error.expect("a reason");
    assert_eq!((told.code.as_str(), vendor.asked().len()), ("schema_mismatch", 2), "{told:?}");
    assert!(told.message.contains("the model said “I had rather chat.”"), "{told:?}");
    rig.sound(session).await;
}

#[tokio::test]
async fn an_answer_of_a_shape_is_taken_out_of_its_fence() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
    for (said, text) in [
        ("{\"n\": 5}", "{\"n\": 5}"),
        ("```json\n{\"n\": 5}\n```", "{\"n\": 5}"),
        ("```json {\"n\": 5} ```", "{\"n\": 5}"),
        ("Here it is:\n\n```\n{\"n\": 5, \"code\": \"```\"}\n```\nAnything else?", "{\"n\": 5, \"code\": \"```\"}"),
    ] {
        let vendor = FakeVendor::with(move |_, _| says(Format::Chat, said)).await;
        let rig = plain(&vendor, Format::Chat).await;
        let session = rig.create_with(|new| new.settings.output_schema = Some(schema.clone())).await;
        let record = rig.ask(session, "how many?").await;
        assert_eq!(record.response.expect("an answer").text, text, "{said}");
        assert_eq!(vendor.asked().len(), 1, "{said}");
        rig.sound(session).await;
    }
    for said in ["```json\n{\"n\": \"five\"}\n```", "```json", "five, I think"] {
        let vendor = FakeVendor::with(move |_, _| says(Format::Chat, said)).await;
        let rig = plain(&vendor, Format::Chat).await;
        let session = rig.create_with(|new| new.settings.output_schema = Some(schema.clone())).await;
        let told = rig.ask(session, "how many?").await.error.expect("a reason");
        assert_eq!(told.code, "schema_mismatch", "{told:?}");
        assert!(told.message.ends_with(&format!("the model said “{said}”")), "{told:?}");
    }
}

#[tokio::test]
async fn an_answer_of_a_shape_that_is_cut_says_so() {
    for format in Format::ALL {
        let cut = Speech { stop: StopReason::MaxTokens, ..Speech::text("{\"a\": ") };
        let vendor = FakeVendor::with(move |_, _| Answer::events(cut.events(format))).await;
        let rig = plain(&vendor, format).await;
        let session = rig.create_with(|new| new.settings.output_schema = Some(json!({ "type": "object" }))).await;
        let told = rig.ask(session, "fill it in").await.error.expect("a reason");
        assert_eq!(told.code, "schema_mismatch", "{format:?}");
        assert!(told.message.contains("was cut at the model's output limit (max_tokens)"), "{format:?}: {told:?}");
        let events = rig.events(session).await;
        let mut failed = events.iter().filter_map(|event| match &event.body {
            Body::ModelAttemptFailed(failed) => failed.reason.stop_reason,
            _ => None,
        });
        assert_eq!(failed.next_back(), Some(StopReason::MaxTokens), "{format:?}");
    }
}

#[tokio::test]
async fn an_answer_that_came_whole_and_does_not_fit_has_a_known_cost() {
    for format in Format::ALL {
        let vendor = FakeVendor::with(move |_, _| says(format, "no object")).await;
        let rates = Rates { input: 1.0, output: 1.0, cache_read: None, cache_write: None };
        let prices = Some(Prices { rates, long: None });
        let rig = far_away(&vendor, format, ModelConfig { prices, ..ModelConfig::default() }).start().await;
        let session = rig.create_with(|new| new.settings.output_schema = Some(json!({ "type": "object" }))).await;
        let record = rig.ask(session, "fill it in").await;
        assert_eq!(record.error.expect("a reason").code, "schema_mismatch", "{format:?}");
        // Two attempts, both counted.
        assert_eq!((record.cost_micro_usd, vendor.asked().len()), (Some(30), 2), "{format:?}");
    }
}

#[tokio::test]
async fn a_call_with_broken_arguments_is_told_to_the_model() {
    for format in [Format::Anthropic, Format::Chat, Format::Responses] {
        let vendor = FakeVendor::start().await;
        for broken in ["{\"subject\": ", "[1, 2]", "\"text\""] {
            let mut speech = Speech::call("call_1", "look", &json!({}));
            speech.spoken = vec![tenure_testkit::vendor::Spoken::Calls(vec![(
                "call_1".into(),
                "look".into(),
                vec![broken.into()],
            )])];
            vendor.plan(Answer::events(speech.events(format)));
            vendor.plan(says(format, REPLY));
            let look = tenure_testkit::TestTool::new("look", tenure_core::tool::ToolKind::Read).shared();
            let rig = rig(&vendor, format, ModelConfig::default()).tool(&look).start().await;
            let session = rig.create_with(tenure_testkit::trusting).await;
            let record = rig.ask(session, "look").await;
            assert_eq!(record.status, RecordStatus::Completed, "{format:?} {broken}: {:?}", record.error);
            assert_eq!(look.inputs().len(), 0, "{format:?} {broken}: it does not run");
            let body = vendor.asked().pop().unwrap().json();
            if format == Format::Anthropic {
                let input = &body["messages"][1]["content"][0]["input"];
                assert!(input.is_object(), "the vendor takes nothing else: {body}");
            }
        }
    }
}

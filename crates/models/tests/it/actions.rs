//! Each action of a script, as the stream shows it.

use std::time::Duration;

use futures::StreamExt;
use tenure_core::model::{Fault, FaultKind, StopReason, Usage};
use tenure_models::{
    Model,
    ModelEvent::{self, *},
};
use tokio::time::{Instant, timeout};

use crate::request::{assistant, model, one_step, play, request, user};

/// Plays one step for a request without messages and compares everything but the usage and closing mark that come by themselves.
async fn check(actions: &str, expected: &[ModelEvent], stop_reason: StopReason) {
    let mut events: Vec<ModelEvent> =
        play(&one_step(actions), request(vec![])).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(events.pop(), Some(Done { stop_reason }), "{actions}");
    assert!(matches!(events.pop(), Some(Usage(_))), "{actions}");
    assert_eq!(events, expected, "{actions}");
}

fn text(text: &str) -> ModelEvent {
    Text(text.into())
}

fn usage(input_tokens: u64, output_tokens: u64) -> ModelEvent {
    ModelEvent::Usage(Usage { input_tokens, output_tokens, ..Usage::default() })
}

#[tokio::test]
async fn text_and_thinking() {
    check(r#"[]"#, &[], StopReason::EndTurn).await;
    check(r#"[{"text": "whole"}]"#, &[text("whole")], StopReason::EndTurn).await;
    check(r#"[{"text": ""}, {"text": "", "chunk": 3}]"#, &[], StopReason::EndTurn).await;
    check(r#"[{"text": "żółw🐢", "chunk": 2}]"#, &[text("żó"), text("łw"), text("🐢")], StopReason::EndTurn).await;
    check(
        r#"[{"thinking": "hmmm", "chunk": 3, "signature": "s1"}, {"thinking": "so"}]"#,
        &[
            Thinking("hmm".into()),
            Thinking("m".into()),
            ThinkingDone { signature: Some("s1".into()), origin: None },
            Thinking("so".into()),
            ThinkingDone { signature: None, origin: None },
        ],
        StopReason::EndTurn,
    )
    .await;
    check(r#"[{"keep_alive": true}]"#, &[KeepAlive], StopReason::EndTurn).await;
}

#[tokio::test]
async fn calls_stream_their_arguments_and_change_the_stop_reason() {
    let started = |index, name: &str| CallStarted {
        index,
        provider_id: Some(format!("scripted_1_{}", index + 1)),
        name: name.into(),
    };
    let arguments = |index, text: &str| CallArguments { index, text: text.into() };
    check(
        r#"[{"call": {"name": "shell", "input": {"command": "ls"}}, "chunk": 9},
            {"call": {"name": "read_file", "arguments": "{\"path"}}]"#,
        &[
            started(0, "shell"),
            arguments(0, r#"{"command"#),
            arguments(0, r#"":"ls"}"#),
            started(1, "read_file"),
            arguments(1, r#"{"path"#),
        ],
        StopReason::ToolUse,
    )
    .await;
}

#[tokio::test]
async fn a_named_stop_reason_wins() {
    check(r#"[{"stop_reason": "max_tokens"}, {"text": "cut"}]"#, &[text("cut")], StopReason::MaxTokens).await;
    let actions = r#"[{"call": {"name": "x", "input": {}}}, {"stop_reason": "refusal"}]"#;
    let last = play(&one_step(actions), request(vec![])).await.pop();
    assert_eq!(last, Some(Ok(Done { stop_reason: StopReason::Refusal })));
}

#[tokio::test]
async fn usage_is_estimated_unless_the_script_names_it() {
    let mut asked = request(vec![user("12345678"), assistant("1234"), user("1")]);
    asked.system = vec!["123".into()];
    let script = model(r#"{"steps": [{"do": []}, {"do": [{"text": "12345"}, {"thinking": "6789"}]}]}"#);
    assert!(play(&script, asked).await.contains(&Ok(usage(4, 3))));

    let named = play(&one_step(r#"[{"usage": {"input_tokens": 7}}, {"text": "x"}]"#), request(vec![])).await;
    assert_eq!(named, [Ok(usage(7, 0)), Ok(text("x")), Ok(Done { stop_reason: StopReason::EndTurn })]);
}

#[tokio::test]
async fn a_drop_ends_the_stream_without_its_closing_mark() {
    let events = play(&one_step(r#"[{"text": "half a"}, {"drop": true}]"#), request(vec![])).await;
    assert_eq!(events, [Ok(text("half a"))]);
}

#[tokio::test]
async fn an_error_breaks_the_stream_where_it_stands() {
    let actions = r#"[{"text": "so"}, {"error": {"kind": "server", "message": "boom"}}]"#;
    let events = play(&one_step(actions), request(vec![])).await;
    assert_eq!(events, [Ok(text("so")), Err(Fault::new(FaultKind::Server, "boom"))]);
}

#[tokio::test]
async fn an_error_with_nothing_before_it_refuses_the_call() {
    let actions = r#"[{"error": {"kind": "rate_limited", "message": "slow down", "retry_after_ms": 50}}]"#;
    let refused = one_step(actions).stream(request(vec![])).await.err();
    let fault = Fault { retry_after_ms: Some(50), ..Fault::new(FaultKind::RateLimited, "slow down") };
    assert_eq!(refused, Some(fault));
}

#[tokio::test(start_paused = true)]
async fn a_stall_never_sends_again() {
    let model = one_step(r#"[{"text": "and"}, {"stall": true}]"#);
    let mut stream = model.stream(request(vec![])).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(text("and"))));
    assert!(timeout(Duration::from_secs(100_000), stream.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn pauses_fall_between_chunks_and_where_they_stand_alone() {
    let start = Instant::now();
    play(&one_step(r#"[{"text": "abcdef", "chunk": 2, "pause_ms": 20}]"#), request(vec![])).await;
    assert_eq!(start.elapsed(), Duration::from_millis(40));

    let start = Instant::now();
    play(&one_step(r#"[{"text": "a"}, {"pause_ms": 500}, {"text": "b"}]"#), request(vec![])).await;
    assert_eq!(start.elapsed(), Duration::from_millis(500));
}

#[tokio::test]
async fn a_gate_waits_for_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let wait = serde_json::json!([{"text": "before"}, {"wait_for": gate}, {"text": "after"}]);
    let model = one_step(&wait.to_string());
    let mut stream = model.stream(request(vec![])).await.unwrap();
    assert_eq!(stream.next().await, Some(Ok(text("before"))));
    assert!(timeout(Duration::from_millis(40), stream.next()).await.is_err());
    std::fs::write(&gate, "").unwrap();
    assert_eq!(stream.next().await, Some(Ok(text("after"))));
}

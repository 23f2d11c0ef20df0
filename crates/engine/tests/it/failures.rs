//! Models that fail: what is tried again, when, how often, and what the turn says in the end.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_core::{
    event::{Body, ModelAttemptFailed},
    ids::SessionId,
    model::FaultKind,
    session::ATTEMPTS_MAX,
};
use tenure_engine::RecordStatus;
use tenure_testkit::{PANICKING_MODEL, Rig};
use tokio::time::Instant;

async fn failed_attempts(rig: &Rig, session: SessionId) -> Vec<ModelAttemptFailed> {
    let events = rig.events(session).await;
    let failed = events.into_iter().filter_map(|event| match event.body {
        Body::ModelAttemptFailed(failed) => Some(*failed),
        _ => None,
    });
    failed.collect()
}

/// The first attempt does this, the second answers.
fn once(actions: Value) -> Value {
    json!({
        "steps": [{"attempts": [{"do": actions}, {"do": [{"text": "well"}]}]}],
        "patience": {"first_byte_ms": 30_000, "between_bytes_ms": 5_000}
    })
}

#[track_caller]
fn about(expected: Duration, began: Instant) {
    let passed = began.elapsed();
    assert!(passed >= expected && passed < expected + Duration::from_secs(2), "{passed:?} instead of {expected:?}");
}

#[tokio::test(start_paused = true)]
async fn what_may_help_is_tried_again() {
    let cases = [
        (
            json!([{"error": {"kind": "rate_limited", "message": "slow", "retry_after_ms": 20_000}}]),
            FaultKind::RateLimited,
            "",
            20,
        ),
        (json!([{"error": {"kind": "server", "message": "oops"}}]), FaultKind::Server, "", 0),
        (json!([{"text": "Half "}, {"drop": true}]), FaultKind::StreamCut, "Half ", 0),
        (json!([{"stall": true}]), FaultKind::StreamStalled, "", 30),
        (json!([{"text": "Half "}, {"stall": true}]), FaultKind::StreamStalled, "Half ", 5),
        (
            json!([{"text": "Half "}, {"error": {"kind": "overloaded", "message": "busy"}}]),
            FaultKind::Overloaded,
            "Half ",
            0,
        ),
    ];
    for (actions, kind, text, seconds) in cases {
        let rig = Rig::script(once(actions)).start().await;
        let session = rig.create().await;
        let began = Instant::now();
        let record = rig.ask(session, "go").await;
        assert_eq!(
            (record.status, record.response.unwrap().text.as_str()),
            (RecordStatus::Completed, "well"),
            "{kind:?}"
        );
        let failed = failed_attempts(&rig, session).await;
        assert_eq!((failed.len(), failed[0].reason.kind, failed[0].text.as_str()), (1, kind, text));
        about(Duration::from_secs(seconds), began);
        rig.sound(session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_sign_of_life_keeps_the_watchdog_quiet() {
    let beats: Vec<Value> = (0..10).flat_map(|_| [json!({"pause_ms": 4000}), json!({"keep_alive": true})]).collect();
    let rig = Rig::script(once(beats.into())).start().await;
    rig.model_gate().open();
    let session = rig.create().await;
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Completed);
    assert_eq!(failed_attempts(&rig, session).await, []);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_help_fails_the_turn_at_once() {
    for kind in ["auth", "bad_request", "unknown_model"] {
        let rig = Rig::steps(json!([{"do": [{"text": "Half "}, {"error": {"kind": kind, "message": "no way"}}]}]))
            .start()
            .await;
        let session = rig.create().await;
        let record = rig.ask(session, "go").await;
        let error = record.error.unwrap();
        assert_eq!(
            (record.status, error.code.as_str(), error.message.as_str()),
            (RecordStatus::Failed, kind, "no way")
        );
        assert_eq!(failed_attempts(&rig, session).await.len(), 1);
        rig.sound(session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn ten_attempts_are_enough() {
    let rig =
        Rig::steps(json!([{"do": [{"text": "x"}, {"error": {"kind": "server", "message": "oops"}}]}])).start().await;
    let session = rig.create().await;
    let record = rig.ask(session, "go").await;
    assert_eq!((record.status, record.error.unwrap().code.as_str()), (RecordStatus::Failed, "server"));
    let failed = failed_attempts(&rig, session).await;
    assert_eq!(failed.iter().map(|failed| failed.attempt).collect::<Vec<_>>(), (1..=ATTEMPTS_MAX).collect::<Vec<_>>());
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_quarter_of_an_hour_is_enough() {
    let wait = json!({"error": {"kind": "rate_limited", "message": "slow", "retry_after_ms": 400_000}});
    let rig = Rig::steps(json!([{"do": [wait]}])).start().await;
    let session = rig.create().await;
    let began = Instant::now();
    assert_eq!(rig.ask(session, "go").await.status, RecordStatus::Failed);
    about(Duration::from_secs(800), began);
    assert_eq!(failed_attempts(&rig, session).await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn the_wait_outlives_a_restart() {
    let wait = json!({"error": {"kind": "rate_limited", "message": "slow", "retry_after_ms": 100_000}});
    let mut rig = Rig::steps(json!([{"attempts": [{"do": [wait]}, {"do": [{"text": "well"}]}]}])).start().await;
    let session = rig.create_with(|new| new.policy.recovery.resume = tenure_core::policy::Resume::Ask).await;
    let began = Instant::now();
    let turn = rig.say(session, "go").await;
    rig.until(session, "it waits", |state| state.turn.as_ref().is_some_and(|turn| turn.attempts.made == 1)).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    rig.crash_and_restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    about(Duration::from_secs(100), began);
    let types = rig.types(session).await;
    assert!(!types.contains(&"turn_interrupted"), "{types:?}");
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_model_fails_the_turn_and_says_which_there_are() {
    let rig = Rig::steps(json!([])).start().await;
    for name in ["nobody/nothing", "scripted:/no/such/file.json"] {
        let session = rig.create_with(|new| new.settings.model = name.into()).await;
        let record = rig.ask(session, "go").await;
        let error = record.error.unwrap();
        assert_eq!((record.status, error.code.as_str()), (RecordStatus::Failed, "unknown_model"));
        assert!(error.message.contains(name.trim_start_matches("scripted:")), "{}", error.message);
        rig.sound(session).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_model_that_panics_ends_only_its_own_turn() {
    let rig = Rig::steps(json!([{"do": [{"text": "fine"}]}])).start().await;
    let broken = rig.create_with(|new| new.settings.model = PANICKING_MODEL.into()).await;
    let turn = rig.say(broken, "go").await;
    let other = rig.create().await;
    assert_eq!(rig.ask(other, "go").await.status, RecordStatus::Completed);
    assert_eq!(rig.settled(broken, turn).await.status, RecordStatus::Failed);
    rig.sound(broken).await;
}

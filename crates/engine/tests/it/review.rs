//! Changes that are looked at before they are made: by a person who is shown the diff, or by a model.

use serde_json::{Value, json};
use tenure_core::{
    command::Verdict,
    event::{ApprovalRequested, Body, ReviewFailed},
    ids::SessionId,
    model::FaultKind,
    policy::PatchReview,
    session::Session,
};
use tenure_engine::RecordStatus;
use tenure_testkit::{Rig, RigSetup};

fn write(content: &str) -> Value {
    json!({"do": [{"call": {"name": "write_file", "input": {"path": "a.txt", "content": content}}}]})
}

/// Writes these contents one after the other and ends; `review` answers for the reviewer.
fn writes(contents: &[&str], review: Value) -> RigSetup {
    let mut steps: Vec<Value> = contents.iter().map(|content| write(content)).collect();
    steps.push(json!({"do": [{"text": "done"}]}));
    Rig::script(json!({"steps": steps, "review": review})).real_tool("write_file")
}

async fn session(rig: &Rig, review: PatchReview) -> SessionId {
    rig.create_with(|new| {
        new.policy.patch_review = review;
        new.policy.verify.auto_verify = false;
    })
    .await
}

fn said(verdict: &str, reason: &str) -> Value {
    json!({"do": [{"text": json!({"verdict": verdict, "reason": reason}).to_string()}]})
}

fn text(rig: &Rig) -> String {
    std::fs::read_to_string(rig.workspace().join("a.txt")).unwrap_or_default()
}

async fn asked(rig: &Rig, session: SessionId) -> Vec<ApprovalRequested> {
    let events = rig.events(session).await;
    let asked = events.into_iter().filter_map(|event| match event.body {
        Body::ApprovalRequested(request) => Some(*request),
        _ => None,
    });
    asked.collect()
}

#[tokio::test]
async fn a_person_is_shown_the_diff_and_their_yes_is_for_that_alone() {
    let mut rig = writes(&["two\n"], said("approve", "")).start().await;
    std::fs::write(rig.workspace().join("a.txt"), "one\n").unwrap();
    let session = session(&rig, PatchReview::Request).await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    let shown = asked(&rig, session).await.remove(0).proposed.expect("what it would change");
    assert_eq!(shown.diff, "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-one\n+two\n");
    rig.crash_and_restart().await;
    assert_eq!((rig.pending(session).await, text(&rig).as_str()), (vec![call], "one\n"));
    rig.answer(session, call, Verdict::Approve).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(text(&rig), "two\n");
    rig.sound(session).await;
}

#[tokio::test]
async fn a_yes_is_for_the_change_that_was_shown() {
    let rig = writes(&["two\n"], said("approve", "")).start().await;
    let session = session(&rig, PatchReview::Request).await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    std::fs::write(rig.workspace().join("a.txt"), "somebody else was here\n").unwrap();
    rig.answer(session, call, Verdict::Approve).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!((text(&rig).as_str(), asked(&rig, session).await.len()), ("somebody else was here\n", 1));
    rig.sound(session).await;
}

#[tokio::test]
async fn a_model_sends_back_and_approves() {
    let review = json!({"cases": [
        {"seen": "+TODO", "do": [{"text": "```json\n{\"verdict\": \"send_back\", \"reason\": \"finish it\"}\n```"}]},
        said("approve", "fine"),
    ]});
    let rig = writes(&["TODO\n", "all of it\n"], review).start().await;
    let session = session(&rig, PatchReview::Auto).await;
    let record = rig.ask(session, "write it down").await;
    assert_eq!((record.status, text(&rig).as_str()), (RecordStatus::Completed, "all of it\n"));
    let events = rig.events(session).await;
    let reviews: Vec<(Verdict, &str)> = events
        .iter()
        .filter_map(|event| match &event.body {
            Body::ReviewCompleted(done) => Some((done.verdict, done.reason.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(reviews, [(Verdict::Deny, "finish it"), (Verdict::Approve, "fine")]);
    let told = events.iter().any(|event| match &event.body {
        Body::ToolCallCompleted(done) => done.result.error.as_deref().is_some_and(|why| why.ends_with("finish it")),
        _ => false,
    });
    assert!(told, "the author reads the reason");
    rig.sound(session).await;
}

#[tokio::test]
async fn a_reviewer_that_gives_no_verdict_leaves_it_to_a_person() {
    let rig = writes(&["x\n"], json!({"do": [{"text": "looks good to me"}]})).start().await;
    let session = session(&rig, PatchReview::Auto).await;
    let turn = rig.say(session, "go").await;
    let call = rig.pending(session).await[0];
    let failed = |event: &tenure_core::event::Event| match &event.body {
        Body::ReviewFailed(failed) => Some(failed.reason.kind),
        _ => None,
    };
    let faults: Vec<FaultKind> = rig.events(session).await.iter().filter_map(failed).collect();
    assert!(faults.len() > 1 && faults.iter().all(|kind| *kind == FaultKind::SchemaMismatch), "{faults:?}");
    assert_eq!(text(&rig), "");
    rig.answer(session, call, Verdict::Approve).await.unwrap();
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(text(&rig), "x\n");
    rig.sound(session).await;
}

#[tokio::test]
async fn a_review_that_a_crash_cuts_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let gate = folder.path().join("gate");
    let review = json!({"attempts": [
        {"do": [{"wait_for": gate}]},
        said("approve", "fine"),
    ]});
    let mut rig = writes(&["x\n"], review).start().await;
    let session = session(&rig, PatchReview::Auto).await;
    let turn = rig.say(session, "go").await;
    let reviews = |state: &Session| {
        let calls = state.turn.iter().flat_map(|turn| &turn.calls);
        calls.into_iter().any(|call| call.reviewing().is_some())
    };
    rig.until(session, "a review is under way", reviews).await;
    rig.crash_and_restart().await;
    assert_eq!(rig.settled(session, turn).await.status, RecordStatus::Completed);
    assert_eq!(text(&rig), "x\n");
    let events = rig.events(session).await;
    let cut = events.iter().filter_map(|event| match &event.body {
        Body::ReviewFailed(failed) => Some((**failed).clone()),
        _ => None,
    });
    let cut: Vec<ReviewFailed> = cut.collect();
    assert_eq!(cut.iter().map(|cut| cut.reason.kind).collect::<Vec<_>>(), [FaultKind::Interrupted]);
    rig.sound(session).await;
}

//! Changes are looked at before they are made: by a person, or by a model that approves them or sends them back.

use tenure_core::{
    command::{Partial, Verdict},
    model::{FaultKind, Usage},
    policy::{
        PatchReview::{Auto, Off, Request},
        Policy, Scope,
    },
    tool::{FileChange, Intent},
};

use crate::{case::case, steps::*};

/// Another change than the one that was shown.
fn drifted() -> Intent {
    let change = FileChange { path: "a.txt".into(), before: Some("else".into()), ..FileChange::default() };
    Intent { files: vec![change], folders: vec![] }
}

#[test]
fn a_person_looks_at_every_change() {
    case("what it would do is found out first")
        .reviewing(Request)
        .given([say("hi")])
        .when(asks([write("w1")]))
        .then(&["model_output_completed 1.1 w1"], &["PrepareTool w1"]);
    let asked = || case("review").reviewing(Request).given([say("hi"), asks([write("w1")])]);
    let waits = asked().when(prepared("w1")).then(&["approval_requested w1"], &[]);
    waits.status("waiting_approval", "t1 waiting_approval");
    asked().given([prepared("w1")]).when(approve("w1")).then(&["approval_granted w1 once"], &["PrepareTool w1"]);
    asked()
        .given([prepared("w1"), approve("w1")])
        .when(prepared("w1"))
        .then(&["tool_call_started w1 run 1"], &["RunTool w1 run 1"]);
    asked()
        .given([prepared("w1")])
        .when(deny("w1"))
        .then(&["approval_denied w1 once", "tool_call_completed w1 not_run failed"], &["CallModel 2.1"]);
}

#[test]
fn a_yes_is_for_the_change_that_was_shown() {
    case("the file changed meanwhile: the model reads it again")
        .reviewing(Request)
        .given([say("hi"), asks([write("w1")]), prepared("w1"), approve("w1")])
        .when(prepared_with("w1", drifted()))
        .then(&["tool_call_completed w1 not_run failed"], &["CallModel 2.1"]);
    let asks_too = case("a yes without the change, then a reviewer that fails: nobody is asked twice");
    asks_too
        .reviewing(Auto)
        .approval(|approval| approval.require_for_tools.push("write_file".into()))
        .given([say("hi"), asks([write("w1")]), approve("w1"), prepared("w1"), review_fails("w1", FaultKind::Auth)])
        .when(prepared("w1"))
        .then(&["tool_call_started w1 run 1"], &["RunTool w1 run 1"]);
    case("it can no longer be done")
        .reviewing(Request)
        .given([say("hi"), asks([write("w1")]), prepared("w1"), approve("w1")])
        .when(unprepared("w1"))
        .then(&["tool_call_completed w1 not_run failed"], &["CallModel 2.1"]);
    case("for the whole session: the next one of this kind is not shown")
        .reviewing(Request)
        .given([say("hi"), asks([write("w1")]), prepared("w1"), approve_for(Scope::Session, "w1"), prepared("w1")])
        .given([done("w1"), asks([write("w2")])])
        .when(prepared_with("w2", drifted()))
        .then(&["tool_call_started w2 run 1"], &["RunTool w2 run 1"]);
}

#[test]
fn who_is_asked_anyway_is_asked_once_with_the_change() {
    let asks_for_writes = || {
        let row = case("writes need a yes, and are reviewed");
        row.reviewing(Request).approval(|approval| approval.require_for_tools.push("write_file".into()))
    };
    asks_for_writes()
        .given([say("hi")])
        .when(asks([write("w1")]))
        .then(&["model_output_completed 1.1 w1"], &["PrepareTool w1"]);
    asks_for_writes()
        .given([say("hi"), asks([write("w1")]), prepared("w1"), approve("w1")])
        .when(prepared("w1"))
        .then(&["tool_call_started w1 run 1"], &["RunTool w1 run 1"]);
    case("nobody can be asked: no")
        .reviewing(Request)
        .unattended()
        .given([say("hi"), asks([write("w1")])])
        .when(prepared("w1"))
        .then(&["approval_denied w1 once by policy", "tool_call_completed w1 not_run failed"], &["CallModel 2.1"]);
    case("reviews are given up while one is about to be asked for")
        .reviewing(Request)
        .approval(|approval| approval.require_for_tools.push("write_file".into()))
        .given([say("hi"), asks([write("w1")])])
        .when(change_policy(asking(Off)))
        .then(&["session_updated policy", "approval_requested w1"], &[]);
}

fn asking(patch_review: tenure_core::policy::PatchReview) -> Policy {
    let mut policy = Policy { patch_review, ..Policy::default() };
    policy.approval.require_for_tools.push("write_file".into());
    policy
}

#[test]
fn a_model_approves_or_sends_back() {
    let shown = || case("auto").reviewing(Auto).given([say("hi"), asks([write("w1")]), prepared("w1")]);
    case("it is asked")
        .reviewing(Auto)
        .given([say("hi"), asks([write("w1")])])
        .when(prepared("w1"))
        .then(&["review_started w1"], &["ReviewChange w1.1"])
        .status("active", "t1 running");
    shown().when(reviewed("w1", Verdict::Approve)).then(&["review_completed w1 approve"], &["PrepareTool w1"]);
    shown()
        .given([reviewed("w1", Verdict::Approve)])
        .when(prepared("w1"))
        .then(&["tool_call_started w1 run 1"], &["RunTool w1 run 1"]);
    shown()
        .given([reviewed("w1", Verdict::Approve)])
        .when(prepared_with("w1", drifted()))
        .then(&["review_started w1"], &["ReviewChange w1.1"]);
    let back = shown().when(reviewed("w1", Verdict::Deny));
    let back = back.then(&["review_completed w1 deny", "tool_call_completed w1 not_run failed"], &["CallModel 2.1"]);
    assert_eq!(back.world.session.spent().micro_usd, 7 + 4, "a review is paid for beside the reply");
    case("others wait for it")
        .reviewing(Auto)
        .given([say("hi"), asks([write("w1"), read("r1")])])
        .when(prepared("w1"))
        .then(&["review_started w1"], &["ReviewChange w1.1"]);
}

#[test]
fn a_review_that_fails_is_tried_again_and_then_a_person_decides() {
    let shown = || case("auto").reviewing(Auto).given([say("hi"), asks([write("w1")]), prepared("w1")]);
    shown()
        .when(review_fails("w1", FaultKind::Overloaded))
        .then(&["review_failed w1.1 overloaded retry +500"], &["ReviewChange w1.2 +500"]);
    shown().when(review_fails("w1", FaultKind::Auth)).then(&["review_failed w1.1 auth"], &["PrepareTool w1"]);
    shown().given([review_fails("w1", FaultKind::Auth)]).when(prepared("w1")).then(&["approval_requested w1"], &[]);
    shown()
        .given([review_fails("w1", FaultKind::Auth), prepared("w1"), approve("w1")])
        .when(prepared("w1"))
        .then(&["tool_call_started w1 run 1"], &["RunTool w1 run 1"]);
    shown()
        .unattended()
        .given([review_fails("w1", FaultKind::Auth)])
        .when(prepared("w1"))
        .then(&["approval_denied w1 once by policy", "tool_call_completed w1 not_run failed"], &["CallModel 2.1"]);
}

#[test]
fn a_review_that_is_cut_is_made_again_or_goes_with_its_turn() {
    let shown = || case("auto").reviewing(Auto).given([say("hi"), asks([write("w1")]), prepared("w1")]);
    shown().when(crash()).then(
        &["review_failed w1.1 interrupted", "turn_interrupted t1", "turn_resumed t1 automatic"],
        &["ReviewChange w1.2"],
    );
    case("one that waits for its next attempt was not cut")
        .reviewing(Auto)
        .given([say("hi"), asks([write("w1")]), prepared("w1"), review_fails("w1", FaultKind::Overloaded)])
        .when(crash())
        .then(&[], &["ReviewChange w1.2 +500"]);
    shown().when(cancel()).then(&["cancel_requested t1"], &["ReportGone t1"]);
    let used = Partial { usage: Usage { input_tokens: 9, ..Usage::default() }, cost: Some(7), ..Partial::default() };
    let gone = shown().given([cancel()]).when(gone_with(&[], Some(used)));
    let gone =
        gone.then(&["review_failed w1.1 canceled", "tool_call_completed w1 not_run failed", "turn_canceled t1"], &[]);
    assert_eq!(gone.world.session.spent().micro_usd, 7 + 7, "what a cut review has cost is told");
    shown()
        .given([crash()])
        .when(reviewed("w1", Verdict::Approve))
        .then(&["review_completed w1 approve"], &["PrepareTool w1"]);
}

//! Cancel: the work is stopped first, and only when it is gone the turn is canceled.

use tenure_core::{event::Body, model::FaultKind};

use crate::{case::case, steps::*};

#[test]
fn a_cancel_stops_the_work_before_it_settles() {
    case("while the model answers")
        .given([say("hi")])
        .when(cancel())
        .then(&["cancel_requested t1"], &["ReportGone t1"])
        .answers("canceling t1")
        .status("active", "t1 running");
    case("while tools run")
        .given([say("hi"), asks([read("r1"), read("r2")])])
        .when(cancel())
        .then(&["cancel_requested t1"], &["ReportGone t1"]);
    case("while a yes is waited for")
        .given([say("hi"), asks([shell("s1", "ls")])])
        .when(cancel())
        .then(&["cancel_requested t1"], &["ReportGone t1"]);
    case("while it waits to try again")
        .given([say("hi"), fault(FaultKind::Server)])
        .when(cancel())
        .then(&["cancel_requested t1"], &["ReportGone t1"]);
    case("while a budget is waited for")
        .budgets(tenure_core::budget::Budgets { max_steps: Some(0), ..unlimited() })
        .given([say("hi")])
        .when(cancel())
        .then(&["cancel_requested t1"], &["ReportGone t1"]);
    case("an interrupted turn")
        .policy(crate::recover::asking())
        .given([say("hi"), crash()])
        .when(cancel())
        .then(&["cancel_requested t1"], &["ReportGone t1"]);
    case("by its name").given([say("hi")]).when(cancel_turn("t1")).then(&["cancel_requested t1"], &["ReportGone t1"]);
}

#[test]
fn when_the_work_is_gone_the_turn_is_canceled() {
    case("nothing was under way")
        .given([say("hi"), cancel()])
        .when(gone())
        .then(&["turn_canceled t1"], &[])
        .status("active", "t1 cancelled");
    case("the sentence that was cut is kept")
        .given([say("hi"), cancel()])
        .when(gone_with(&[], Some(partial("Half a"))))
        .then(&["model_attempt_failed 1.1 canceled 'Half a'", "turn_canceled t1"], &[]);
    case("what did not end is named")
        .given([say("hi"), asks([read("r1")]), cancel()])
        .when(gone_with(&["pid 7"], None))
        .then(&["tool_call_completed r1 canceled failed", "turn_canceled t1 left pid 7"], &[]);
    case("every call gets a result")
        .given([say("hi"), asks([read("r1"), shell("s1", "ls"), write("w1")]), approve("s1"), cancel()])
        .when(gone())
        .then(
            &[
                "tool_call_completed r1 canceled failed",
                "tool_call_completed s1 not_run failed",
                "tool_call_completed w1 not_run failed",
                "turn_canceled t1",
            ],
            &[],
        );
    case("an approval that waited is closed")
        .given([say("hi"), asks([shell("s1", "ls")]), cancel()])
        .when(gone())
        .then(&["tool_call_completed s1 not_run failed", "turn_canceled t1"], &[])
        .status("active", "t1 cancelled");
    case("a tool that ended in the meantime keeps its result")
        .given([say("hi"), asks([read("r1"), read("r2")]), cancel(), done("r1")])
        .when(gone())
        .then(&["tool_call_completed r2 canceled failed", "turn_canceled t1"], &[]);
    case("and nothing starts after it")
        .given([say("hi"), asks([read("r1"), write("w1")]), cancel()])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok"], &["ReportGone t1"]);
    case("the cancel survives a restart")
        .given([say("hi"), asks([read("r1")]), cancel()])
        .when(crash())
        .then(&[], &["ReportGone t1"]);
}

#[test]
fn cancels_that_come_to_nothing() {
    case("nothing is open").when(cancel()).refused("no_open_turn");
    case("all is settled").given([say("hi"), reply()]).when(cancel()).refused("no_open_turn");
    case("a settled turn by name").given([say("hi"), reply()]).when(cancel_turn("t1")).refused("turn_settled");
    case("an unknown turn").given([say("hi")]).when(cancel_turn("t9")).refused("unknown_turn");
    case("twice is answered and changes nothing")
        .given([say("hi"), cancel()])
        .when(cancel())
        .then(&[], &["ReportGone t1"])
        .answers("canceling t1");
    case("gone told without a cancel").given([say("hi")]).when(gone()).refused("stale");
}

#[test]
fn a_canceled_call_tells_the_model_that_it_may_have_taken_effect() {
    let world = case("told").given([say("hi"), asks([read("r1")]), cancel()]).when(gone()).world;
    assert_eq!(
        world.results_of("r1"),
        ["stopped while it ran: the turn was canceled; it may have taken effect in part"]
    );
    let Body::TurnCanceled(canceled) = &world.events.last().unwrap().body else { panic!("it is canceled") };
    assert_eq!((canceled.spent.steps, canceled.spent.tool_calls, canceled.cost_micro_usd), (1, 1, Some(7)));
}

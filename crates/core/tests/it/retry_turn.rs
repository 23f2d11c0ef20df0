//! Retry: a new turn with the same input that points back.

use tenure_core::model::FaultKind;

use crate::{case::case, recover::asking, steps::*};

#[test]
fn a_turn_that_did_not_complete_can_be_retried() {
    case("failed")
        .given([say("hi"), fault(FaultKind::Auth)])
        .when(retry("t1"))
        .then(&["turn_started t2 m1 retry_of t1"], &["CallModel 1.1"])
        .answers("turn t2");
    case("canceled")
        .given([say("hi"), cancel(), gone()])
        .when(retry("t1"))
        .then(&["turn_started t2 m1 retry_of t1"], &["CallModel 1.1"]);
    case("canceled in the queue")
        .given([say("a"), say("b"), cancel_turn("t2"), reply()])
        .when(retry("t2"))
        .then(&["turn_started t3 m2 retry_of t2"], &["CallModel 1.1"]);
    case("expired")
        .unattended()
        .budgets(tenure_core::budget::Budgets { max_steps: Some(1), ..unlimited() })
        .given([say("hi"), asks([read("r1")]), done("r1"), gone()])
        .when(retry("t1"))
        .then(&["turn_started t2 m1 retry_of t1"], &["CallModel 1.1"]);
    case("interrupted: it gives way")
        .policy(asking())
        .given([say("hi"), crash()])
        .when(retry("t1"))
        .then(&["turn_failed t1 superseded", "turn_started t2 m1 retry_of t1"], &["CallModel 1.1"]);
    case("superseded")
        .policy(asking())
        .given([say("hi"), crash(), say("more"), reply()])
        .when(retry("t1"))
        .then(&["turn_started t3 m1 retry_of t1"], &["CallModel 1.1"]);
    case("with all its messages")
        .given([append("a"), append("b"), start_turn(), fault(FaultKind::Auth)])
        .when(retry("t1"))
        .then(&["turn_started t2 m1,m2 retry_of t1"], &["CallModel 1.1"]);
    case("a retry can be retried")
        .given([say("hi"), fault(FaultKind::Auth), retry("t1"), fault(FaultKind::Auth)])
        .when(retry("t2"))
        .then(&["turn_started t3 m1 retry_of t2"], &["CallModel 1.1"]);
    case("behind an open turn")
        .given([say("hi"), fault(FaultKind::Auth), say("more")])
        .when(retry("t1"))
        .then(&["turn_queued t3 m1 retry_of t1"], &["CallModel 1.1"])
        .status("active", "t3 pending");
    case("and points back when it starts")
        .given([say("hi"), fault(FaultKind::Auth), say("more"), retry("t1")])
        .when(reply())
        .then(
            &["model_output_completed 1.1", "turn_completed t2 not_needed", "turn_started t3 m1 retry_of t1"],
            &["CallModel 1.1"],
        );
}

#[test]
fn what_is_not_retried() {
    case("completed").given([say("hi"), reply()]).when(retry("t1")).refused("turn_completed");
    case("running").given([say("hi")]).when(retry("t1")).refused("turn_open");
    case("waiting").given([say("hi"), asks([shell("s1", "ls")])]).when(retry("t1")).refused("turn_open");
    case("being stopped").given([say("hi"), cancel()]).when(retry("t1")).refused("turn_open");
    case("queued").given([say("a"), say("b")]).when(retry("t2")).refused("turn_open");
    case("unknown").given([say("hi")]).when(retry("t9")).refused("unknown_turn");
    let mut full = vec![say("hi"), fault(FaultKind::Auth), say("open")];
    full.extend((0..tenure_core::session::QUEUE_MAX).map(|_| say("more")));
    case("no room").given(full).when(retry("t1")).refused("queue_full");
}

//! Messages that come while a turn is under way: they wait their turn or steer it. None is ever lost.

use tenure_core::{model::FaultKind, policy::Scope, session::QUEUE_MAX};

use crate::{case::case, steps::*};

#[test]
fn queued_messages_wait_their_turn() {
    case("behind a running turn")
        .given([say("a")])
        .when(say("b"))
        .then(&["message_added m2 t2", "turn_queued t2 m2"], &["CallModel 1.1"])
        .answers("message m2 t2")
        .status("active", "t2 pending");
    case("the next one starts in the decision that settles the first").given([say("a"), say("b")]).when(reply()).then(
        &["model_output_completed 1.1", "turn_completed t1 not_needed", "turn_started t2 m2"],
        &["CallModel 1.1"],
    );
    case("in the order they came").given([say("a"), say("b"), say("c"), reply()]).when(reply()).then(
        &["model_output_completed 1.1", "turn_completed t2 not_needed", "turn_started t3 m3"],
        &["CallModel 1.1"],
    );
    case("after a failed turn")
        .given([say("a"), say("b")])
        .when(fault(FaultKind::Auth))
        .then(&["model_attempt_failed 1.1 auth", "turn_failed t1 auth", "turn_started t2 m2"], &["CallModel 1.1"]);
    case("after a canceled turn")
        .given([say("a"), say("b"), cancel()])
        .when(gone())
        .then(&["turn_canceled t1", "turn_started t2 m2"], &["CallModel 1.1"]);
    case("behind a turn that waits for a yes")
        .given([say("a"), asks([shell("s1", "ls")])])
        .when(say("b"))
        .then(&["message_added m2 t2", "turn_queued t2 m2"], &[]);
    case("behind a turn that is being stopped")
        .given([say("a"), cancel()])
        .when(say("b"))
        .then(&["message_added m2 t2", "turn_queued t2 m2"], &["ReportGone t1"]);
}

#[test]
fn the_queue_has_a_bound() {
    let full = || std::iter::once(say("open")).chain((0..QUEUE_MAX).map(|_| say("more")));
    case("full").given(full()).when(say("one too many")).refused("queue_full");
    case("starting a turn needs room too")
        .given(full())
        .given([append("note")])
        .when(start_turn())
        .refused("queue_full");
    case("a steering message needs none of it")
        .given(full())
        .when(steer("this way"))
        .then(&["message_added m34 t1"], &["CallModel 1.1"]);
    case("room comes back").given(full()).given([reply()]).when(say("fits")).answers("message m34 t34");
    case("a canceled one makes room")
        .given(full())
        .given([cancel_turn("t2")])
        .when(say("fits"))
        .answers("message m34 t34");
}

#[test]
fn a_queued_turn_can_be_canceled() {
    case("it settles at once")
        .given([say("a"), say("b")])
        .when(cancel_turn("t2"))
        .then(&["turn_canceled t2"], &["CallModel 1.1"])
        .answers("canceling t2")
        .status("active", "t2 cancelled");
    case("the one behind it is next").given([say("a"), say("b"), say("c"), cancel_turn("t2")]).when(reply()).then(
        &["model_output_completed 1.1", "turn_completed t1 not_needed", "turn_started t3 m3"],
        &["CallModel 1.1"],
    );
}

#[test]
fn a_steering_message_enters_the_next_request() {
    case("while the model answers, it waits")
        .given([say("a")])
        .when(steer("b"))
        .then(&["message_added m2 t1"], &["CallModel 1.1"])
        .answers("message m2 t1");
    case("after the calls it goes along")
        .given([say("a"), steer("b"), asks([read("r1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok", "message_delivered m2 step 2"], &["CallModel 2.1"]);
    case("a last word is not the last when a steer waits")
        .given([say("a"), steer("b")])
        .when(reply())
        .then(&["model_output_completed 1.1", "message_delivered m2 step 2"], &["CallModel 2.1"]);
    case("then the turn is completed")
        .given([say("a"), steer("b"), reply()])
        .when(reply())
        .then(&["model_output_completed 2.1", "turn_completed t1 not_needed"], &[]);
    case("several, in order").given([say("a"), steer("b"), steer("c")]).when(reply()).then(
        &["model_output_completed 1.1", "message_delivered m2 step 2", "message_delivered m3 step 2"],
        &["CallModel 2.1"],
    );
    case("while a tool runs")
        .given([say("a"), asks([read("r1")]), steer("b")])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok", "message_delivered m2 step 2"], &["CallModel 2.1"]);
    case("while a yes is waited for").given([say("a"), asks([shell("s1", "ls")]), steer("b")]).when(deny("s1")).then(
        &["approval_denied s1 once", "tool_call_completed s1 not_run failed", "message_delivered m2 step 2"],
        &["CallModel 2.1"],
    );
    case("another attempt is another request")
        .given([say("a"), steer("b")])
        .when(fault(FaultKind::Server))
        .then(&["model_attempt_failed 1.1 server retry +500", "message_delivered m2 step 1"], &["CallModel 1.2 +500"]);
    case("it does not wait behind the queue")
        .given([say("a"), say("b"), steer("c")])
        .when(reply())
        .then(&["model_output_completed 1.1", "message_delivered m3 step 2"], &["CallModel 2.1"]);
    case("it is delivered once")
        .given([say("a"), steer("b"), asks([read("r1")]), done("r1"), asks([read("r2")])])
        .when(done("r2"))
        .then(&["tool_call_completed r2 finished ok"], &["CallModel 3.1"]);
}

#[test]
fn a_steer_that_no_request_took_in_goes_to_the_next_turn() {
    case("of a canceled turn")
        .given([say("a"), steer("b"), cancel(), gone()])
        .when(say("c"))
        .then(&["message_added m3 t2", "turn_started t2 m2,m3"], &["CallModel 1.1"]);
    case("of a failed turn")
        .given([say("a"), steer("b"), fault(FaultKind::Auth)])
        .when(say("c"))
        .then(&["message_added m3 t2", "turn_started t2 m2,m3"], &["CallModel 1.1"]);
    case("the queued turn that follows takes it")
        .given([say("a"), say("b"), steer("c")])
        .when(fault(FaultKind::Auth))
        .then(&["model_attempt_failed 1.1 auth", "turn_failed t1 auth", "turn_started t2 m2,m3"], &["CallModel 1.1"]);
    case("of an interrupted turn that gives way")
        .policy(crate::recover::asking())
        .given([say("a"), steer("b"), crash()])
        .when(say("c"))
        .then(&["message_added m3 t2", "turn_failed t1 superseded", "turn_started t2 m2,m3"], &["CallModel 1.1"]);
    case("in the order they were sent")
        .given([say("a"), steer("b"), append("c"), cancel(), gone()])
        .when(start_turn())
        .then(&["turn_started t2 m2,m3"], &["CallModel 1.1"]);
}

#[test]
fn steering_what_cannot_be_steered_starts_a_turn() {
    case("a turn that is being stopped")
        .given([say("a"), cancel()])
        .when(steer("b"))
        .then(&["message_added m2 t2", "turn_queued t2 m2"], &["ReportGone t1"]);
    case("an interrupted one")
        .policy(crate::recover::asking())
        .given([say("a"), crash()])
        .when(steer("b"))
        .then(&["message_added m2 t2", "turn_failed t1 superseded", "turn_started t2 m2"], &["CallModel 1.1"]);
}

#[test]
fn a_steer_during_verification_is_answered_before_the_turn_ends() {
    let policy = crate::verification::trusted(&["make test"]);
    case("it passed")
        .policy(policy.clone())
        .given([say("a"), asks([write("w1")]), prepared("w1"), done("w1"), reply(), steer("b")])
        .when(done("verify"))
        .then(&["tool_call_completed verify finished ok", "message_delivered m2 step 3"], &["CallModel 3.1"]);
    case("and the turn ends as verified")
        .policy(policy.clone())
        .given([say("a"), asks([write("w1")]), prepared("w1"), done("w1"), reply(), steer("b"), done("verify")])
        .when(reply())
        .then(&["model_output_completed 3.1", "checkpoint_created t1 a.txt", "turn_completed t1 passed"], &[]);
    case("it failed")
        .policy(policy.clone())
        .given([say("a"), asks([write("w1")]), prepared("w1"), done("w1"), reply(), steer("b")])
        .when(broke("verify"))
        .then(&["tool_call_completed verify finished failed", "message_delivered m2 step 3"], &["CallModel 3.1"]);
    case("a steer that waits comes before verification")
        .policy(policy)
        .given([say("a"), asks([write("w1")]), prepared("w1"), steer("b"), done("w1"), steer("c")])
        .when(reply())
        .then(&["model_output_completed 2.1", "message_delivered m3 step 3"], &["CallModel 3.1"]);
}

#[test]
fn a_steer_survives_a_session_wide_yes() {
    case("steer and scope")
        .given([say("a"), asks([shell("s1", "ls")]), steer("b"), approve_for(Scope::Session, "s1")])
        .when(done("s1"))
        .then(&["tool_call_completed s1 finished ok", "message_delivered m2 step 2"], &["CallModel 2.1"]);
}

#[test]
fn a_request_that_waits_for_its_time_is_steered_at_once() {
    case("in backoff the request is not built yet")
        .given([say("a"), fault_after(FaultKind::RateLimited, 1_000)])
        .when(steer("this way"))
        .then(&["message_added m2 t1", "message_delivered m2 step 1"], &["CallModel 1.2 +1000"]);
    case("once its time has come it may be under way: the next request takes the message in")
        .given([say("a"), fault_after(FaultKind::RateLimited, 1_000), wait(1_000)])
        .when(steer("this way"))
        .then(&["message_added m2 t1"], &["CallModel 1.2 +0"]);
}

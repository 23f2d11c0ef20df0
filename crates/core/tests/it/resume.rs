//! An interrupted turn goes on when a person says so, or gives way to a new message.

use tenure_core::{policy::Resume, tool::CallClass};

use crate::{
    case::case,
    recover::{asking, resuming},
    steps::*,
};

#[test]
fn resume_goes_on_where_the_turn_was_cut() {
    case("at the model")
        .policy(asking())
        .given([say("hi"), crash()])
        .when(resume("t1"))
        .then(&["turn_resumed t1 asked"], &["CallModel 1.2"])
        .answers("turn t1")
        .status("active", "t1 running");
    case("at a read")
        .policy(asking())
        .given([say("hi"), asks([read("r1")]), crash()])
        .when(resume("t1"))
        .then(&["turn_resumed t1 asked", "tool_call_started r1 run 2"], &["RunTool r1 run 2"]);
    case("at an unknown command: told, not run")
        .policy(resuming(Resume::Safe))
        .given([say("hi"), asks([shell("s1", "ls")]), crash()])
        .when(resume("t1"))
        .then(&["turn_resumed t1 asked", "tool_call_completed s1 unknown failed"], &["CallModel 2.1"]);
    case("at an unknown write: told, not run")
        .given([say("hi"), asks([write("w1")]), prepared("w1"), crash()])
        .when(resume("t1"))
        .then(&["turn_resumed t1 asked", "tool_call_completed w1 unknown failed"], &["CallModel 2.1"]);
    case("at a write that did not start")
        .policy(asking())
        .given([say("hi"), asks([write("w1")]), prepared("w1"), crash_with([("w1", CallClass::NotStarted)], "")])
        .when(resume("t1"))
        .then(&["turn_resumed t1 asked"], &["PrepareTool w1"]);
    case("with the steer that came before the crash")
        .policy(asking())
        .given([say("hi"), steer("b"), crash()])
        .when(resume("t1"))
        .then(&["turn_resumed t1 asked", "message_delivered m2 step 1"], &["CallModel 1.2"]);
    case("with a yes that was given in the meantime")
        .policy({
            let mut policy = tenure_core::policy::Policy::default();
            policy.recovery.resume = Resume::Ask;
            policy
        })
        .given([say("hi"), asks([shell("s1", "a"), read("r1")]), approve("s1"), crash()])
        .when(resume("t1"))
        .then(
            &["turn_resumed t1 asked", "tool_call_completed s1 unknown failed", "tool_call_started r1 run 1"],
            &["RunTool r1 run 1"],
        );
}

#[test]
fn only_interrupted_turns_are_resumed() {
    case("running").given([say("hi")]).when(resume("t1")).refused("not_interrupted");
    case("completed").given([say("hi"), reply()]).when(resume("t1")).refused("not_interrupted");
    case("queued").given([say("hi"), say("more")]).when(resume("t2")).refused("not_interrupted");
    case("being stopped").given([say("hi"), cancel()]).when(resume("t1")).refused("not_interrupted");
    case("unknown").given([say("hi")]).when(resume("t9")).refused("unknown_turn");
    case("twice")
        .policy(asking())
        .given([say("hi"), crash(), resume("t1")])
        .when(resume("t1"))
        .refused("not_interrupted");
}

#[test]
fn a_new_message_settles_the_interrupted_turn() {
    case("superseded")
        .policy(asking())
        .given([say("hi"), crash()])
        .when(say("more"))
        .then(&["message_added m2 t2", "turn_failed t1 superseded", "turn_started t2 m2"], &["CallModel 1.1"])
        .answers("message m2 t2")
        .status("active", "t1 failed");
    case("its calls get their results first")
        .policy(asking())
        .given([say("hi"), asks([shell("s1", "a"), read("r1")]), crash()])
        .when(say("more"))
        .then(
            &[
                "message_added m2 t2",
                "tool_call_completed s1 unknown failed",
                "tool_call_completed r1 not_run failed",
                "turn_failed t1 superseded",
                "turn_started t2 m2",
            ],
            &["CallModel 1.1"],
        );
    case("the queue keeps its order").policy(asking()).given([say("a"), say("b"), crash()]).when(say("c")).then(
        &["message_added m3 t3", "turn_failed t1 superseded", "turn_started t2 m2", "turn_queued t3 m3"],
        &["CallModel 1.1"],
    );
    case("a message that is only appended does not")
        .policy(asking())
        .given([say("hi"), crash()])
        .when(append("note"))
        .then(&["message_added m2 -"], &[])
        .status("active", "t1 interrupted");
    case("starting a turn does")
        .policy(asking())
        .given([say("hi"), crash(), append("note")])
        .when(start_turn())
        .then(&["turn_failed t1 superseded", "turn_started t2 m2"], &["CallModel 1.1"]);
}

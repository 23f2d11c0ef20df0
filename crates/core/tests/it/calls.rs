//! Tool calls: intent before work, order, reads side by side, writes prepared first, one outcome each.

use tenure_core::event::Body;

use crate::{case::case, steps::*};

#[test]
fn every_call_has_an_intent_before_it_runs() {
    case("a read starts at once")
        .given([say("hi")])
        .when(asks([read("r1")]))
        .then(&["model_output_completed 1.1 r1", "tool_call_started r1 run 1"], &["RunTool r1 run 1"]);
    case("a write is prepared first, and has no intent until then")
        .given([say("hi")])
        .when(asks([write("w1")]))
        .then(&["model_output_completed 1.1 w1"], &["PrepareTool w1"]);
    case("prepared, its intent is recorded")
        .given([say("hi"), asks([write("w1")])])
        .when(prepared("w1"))
        .then(&["tool_call_started w1 run 1"], &["RunTool w1 run 1"]);
    case("then its outcome")
        .given([say("hi"), asks([write("w1")]), prepared("w1")])
        .when(done("w1"))
        .then(&["tool_call_completed w1 finished ok"], &["CallModel 2.1"]);
    case("exec and network wait for a yes by default")
        .given([say("hi")])
        .when(asks([shell("s1", "ls"), fetch("f1")]))
        .then(&["model_output_completed 1.1 s1 f1", "approval_requested s1", "approval_requested f1"], &[])
        .status("waiting_approval", "t1 waiting_approval");
    case("allowed, exec starts at once")
        .trusting()
        .given([say("hi")])
        .when(asks([shell("s1", "ls")]))
        .then(&["model_output_completed 1.1 s1", "tool_call_started s1 run 1"], &["RunTool s1 run 1"]);
}

#[test]
fn an_intent_holds_what_was_prepared() {
    let world = case("intent").given([say("hi"), asks([write("w1")])]).when(prepared("w1")).world;
    let Body::ToolCallStarted(started) = &world.events.last().unwrap().body else { panic!("it started") };
    assert_eq!(
        serde_json::to_value(started).unwrap(),
        serde_json::json!({
            "tool_call_id": crate::world::call_id("w1").to_string(),
            "name": "write_file",
            "kind": "write",
            "input": {"of": "a.txt"},
            "runner": "local",
            "origin": "model",
            "run": 1,
            "intent": {"files": [
                {"path": "a.txt", "before": "b3", "after": "af", "old_bytes": "blob", "mode": 0o644},
            ]},
        })
    );
}

#[test]
fn reads_run_side_by_side_and_others_in_order() {
    case("two reads").given([say("hi")]).when(asks([read("r1"), read("r2")])).then(
        &["model_output_completed 1.1 r1 r2", "tool_call_started r1 run 1", "tool_call_started r2 run 1"],
        &["RunTool r1 run 1", "RunTool r2 run 1"],
    );
    case("the model waits for both")
        .given([say("hi"), asks([read("r1"), read("r2")])])
        .when(done("r2"))
        .then(&["tool_call_completed r2 finished ok"], &["RunTool r1 run 1"]);
    case("whichever ends last")
        .given([say("hi"), asks([read("r1"), read("r2")]), done("r2")])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok"], &["CallModel 2.1"]);
    case("a write waits for the reads before it")
        .given([say("hi")])
        .when(asks([read("r1"), write("w1")]))
        .then(&["model_output_completed 1.1 r1 w1", "tool_call_started r1 run 1"], &["RunTool r1 run 1"]);
    case("and is prepared when they are done")
        .given([say("hi"), asks([read("r1"), write("w1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok"], &["PrepareTool w1"]);
    case("a read waits for the write before it")
        .given([say("hi"), asks([write("w1"), read("r1")])])
        .when(prepared("w1"))
        .then(&["tool_call_started w1 run 1"], &["RunTool w1 run 1"]);
    case("and starts when that is done")
        .given([say("hi"), asks([write("w1"), read("r1")]), prepared("w1")])
        .when(done("w1"))
        .then(&["tool_call_completed w1 finished ok", "tool_call_started r1 run 1"], &["RunTool r1 run 1"]);
    case("a read does not overtake a write between reads")
        .given([say("hi")])
        .when(asks([read("r1"), write("w1"), read("r2")]))
        .then(&["model_output_completed 1.1 r1 w1 r2", "tool_call_started r1 run 1"], &["RunTool r1 run 1"]);
    case("two writes are one after the other")
        .given([say("hi"), asks([write("w1"), write("w2")]), prepared("w1")])
        .when(done("w1"))
        .then(&["tool_call_completed w1 finished ok"], &["PrepareTool w2"]);
    case("two commands are one after the other")
        .trusting()
        .given([say("hi")])
        .when(asks([shell("s1", "a"), shell("s2", "b")]))
        .then(&["model_output_completed 1.1 s1 s2", "tool_call_started s1 run 1"], &["RunTool s1 run 1"]);
    case("the second starts when the first is done, well or not")
        .trusting()
        .given([say("hi"), asks([shell("s1", "a"), shell("s2", "b")])])
        .when(broke("s1"))
        .then(&["tool_call_completed s1 finished failed", "tool_call_started s2 run 1"], &["RunTool s2 run 1"]);
    case("reads that follow a command start together")
        .trusting()
        .given([say("hi"), asks([shell("s1", "a"), read("r1"), read("r2")])])
        .when(done("s1"))
        .then(
            &["tool_call_completed s1 finished ok", "tool_call_started r1 run 1", "tool_call_started r2 run 1"],
            &["RunTool r1 run 1", "RunTool r2 run 1"],
        );
}

#[test]
fn a_call_that_cannot_run_is_a_result_for_the_model() {
    case("malformed, alone")
        .given([say("hi")])
        .when(asks([malformed("x1")]))
        .then(&["model_output_completed 1.1 x1", "tool_call_completed x1 not_run failed"], &["CallModel 2.1"]);
    case("malformed beside a good one").given([say("hi")]).when(asks([malformed("x1"), read("r1")])).then(
        &["model_output_completed 1.1 x1 r1", "tool_call_completed x1 not_run failed", "tool_call_started r1 run 1"],
        &["RunTool r1 run 1"],
    );
    case("malformed asks nobody, though its kind would")
        .given([say("hi")])
        .when(asks([malformed("x1"), malformed("x2")]))
        .then(
            &[
                "model_output_completed 1.1 x1 x2",
                "tool_call_completed x1 not_run failed",
                "tool_call_completed x2 not_run failed",
            ],
            &["CallModel 2.1"],
        );
    case("a write that cannot be prepared")
        .given([say("hi"), asks([write("w1")])])
        .when(unprepared("w1"))
        .then(&["tool_call_completed w1 not_run failed"], &["CallModel 2.1"]);
    case("lets the next one start")
        .given([say("hi"), asks([write("w1"), read("r1")])])
        .when(unprepared("w1"))
        .then(&["tool_call_completed w1 not_run failed", "tool_call_started r1 run 1"], &["RunTool r1 run 1"]);
    let world = case("the model is told why").given([say("hi"), asks([write("w1")])]).when(unprepared("w1")).world;
    assert_eq!(world.results_of("w1"), ["the file changed"]);
}

#[test]
fn each_call_has_one_outcome() {
    let two = || [say("hi"), asks([read("r1"), read("r2")]), done("r1")];
    case("told twice").given(two()).when(late_done("t1", "r1", 1)).refused("stale");
    case("of a run that never was").given(two()).when(late_done("t1", "r2", 2)).refused("stale");
    case("of a call nobody knows").given(two()).when(late_done("t1", "r9", 1)).refused("stale");
    case("of a settled turn")
        .given(two())
        .given([done("r2"), reply(), say("more")])
        .when(late_done("t1", "r2", 1))
        .refused("stale");
    case("of a call that was never started")
        .given([say("hi"), asks([write("w1")])])
        .when(late_done("t1", "w1", 0))
        .refused("stale");
    case("of a call that waits for a yes")
        .given([say("hi"), asks([shell("s1", "ls")])])
        .when(late_done("t1", "s1", 0))
        .refused("stale");
}

#[test]
fn preparing_out_of_turn_is_stale() {
    case("twice").given([say("hi"), asks([write("w1")]), prepared("w1")]).when(prepared("w1")).refused("stale");
    case("before its place in the order")
        .given([say("hi"), asks([write("w1"), write("w2")])])
        .when(prepared("w2"))
        .refused("stale");
    case("a read needs none").given([say("hi"), asks([read("r1")])]).when(prepared("r1")).refused("stale");
    case("before a yes")
        .approval(|approval| approval.require_for_tools.push("write_file".into()))
        .given([say("hi"), asks([write("w1")])])
        .when(prepared("w1"))
        .refused("stale");
    case("after a cancel").given([say("hi"), asks([write("w1")]), cancel()]).when(prepared("w1")).refused("stale");
}

//! A turn from its message to its end: start, steps, single flight, messages that are only appended.

use serde_json::json;
use tenure_core::{
    command::{Command, Input},
    event::{Actor, Body},
    message::{Delivery, Part, Role},
    model::FaultKind,
};

use crate::{case::case, steps::*, world::World};

#[test]
fn a_message_starts_a_turn() {
    case("a first message")
        .when(say("hi"))
        .then(&["message_added m1 t1", "turn_started t1 m1"], &["CallModel 1.1"])
        .answers("message m1 t1")
        .status("active", "t1 running");
    case("a steering message with no turn to steer")
        .when(steer("hi"))
        .then(&["message_added m1 t1", "turn_started t1 m1"], &["CallModel 1.1"])
        .answers("message m1 t1");
    case("auto_run said outright")
        .when(message("hi", Delivery::Queue, Some(true)))
        .then(&["message_added m1 t1", "turn_started t1 m1"], &["CallModel 1.1"]);
    case("a second message after the first turn")
        .given([say("hi"), reply()])
        .when(say("more"))
        .then(&["message_added m2 t2", "turn_started t2 m2"], &["CallModel 1.1"])
        .status("active", "t1 completed");
    case("a system message starts a turn as well")
        .when(command(Command::SendMessage {
            role: Role::System,
            parts: vec![Part::text("be short")],
            delivery: Delivery::Queue,
            auto_run: None,
        }))
        .then(&["message_added m1 t1", "turn_started t1 m1"], &["CallModel 1.1"]);
}

#[test]
fn a_message_with_auto_run_false_is_only_appended() {
    case("appended").when(append("hi")).then(&["message_added m1 -"], &[]).answers("message m1 -");
    case("the next running message takes the appended ones in, in order")
        .given([append("one"), append("two")])
        .when(say("three"))
        .then(&["message_added m3 t1", "turn_started t1 m1,m2,m3"], &["CallModel 1.1"]);
    case("starting a turn takes them in")
        .given([append("one"), append("two")])
        .when(start_turn())
        .then(&["turn_started t1 m1,m2"], &["CallModel 1.1"])
        .answers("turn t1");
    case("they are taken in once")
        .given([append("one"), start_turn(), reply()])
        .when(say("two"))
        .then(&["message_added m2 t2", "turn_started t2 m2"], &["CallModel 1.1"]);
    case("appended during a turn, it waits")
        .given([say("hi")])
        .when(append("note"))
        .then(&["message_added m2 -"], &["CallModel 1.1"])
        .answers("message m2 -");
    case("and the turn ends without it")
        .given([say("hi"), append("note")])
        .when(reply())
        .then(&["model_output_completed 1.1", "turn_completed t1 not_needed"], &[]);
    case("a queued turn takes in what was appended before it")
        .given([say("hi"), append("note")])
        .when(say("go"))
        .then(&["message_added m3 t2", "turn_queued t2 m2,m3"], &["CallModel 1.1"]);
    case("starting a turn during a turn queues it")
        .given([say("hi"), append("note")])
        .when(start_turn())
        .then(&["turn_queued t2 m2"], &["CallModel 1.1"])
        .answers("turn t2");
    case("nothing to start").when(start_turn()).refused("nothing_to_send");
    case("all was taken in").given([append("a"), start_turn(), reply()]).when(start_turn()).refused("nothing_to_send");
}

#[test]
fn a_session_made_without_auto_run_only_appends() {
    let mut created = crate::world::plain();
    created.settings.auto_run = false;
    let mut world = World::new(created);
    let input = |auto_run| Input::Command {
        command: Command::SendMessage {
            role: Role::User,
            parts: vec![Part::text("x")],
            delivery: Delivery::Queue,
            auto_run,
        },
        actor: Actor::user("test"),
        key: None,
    };
    let decision = world.tell(input(None)).unwrap();
    assert_eq!(world.show_decision(&decision), ["message_added m1 -"]);
    let decision = world.tell(input(Some(true))).unwrap();
    assert_eq!(world.show_decision(&decision), ["message_added m2 t1", "turn_started t1 m1,m2"]);
}

#[test]
fn messages_that_are_no_messages_are_refused() {
    let send = |role, parts| command(Command::SendMessage { role, parts, delivery: Delivery::Queue, auto_run: None });
    case("no part").when(send(Role::User, vec![])).refused("empty_message");
    for role in [Role::Assistant, Role::Tool] {
        case("a role that only the agent speaks in").when(send(role, vec![Part::text("x")])).refused("bad_role");
    }
}

#[test]
fn the_loop_goes_on_until_the_last_word() {
    case("the last word at once")
        .given([say("hi")])
        .when(reply())
        .then(&["model_output_completed 1.1", "turn_completed t1 not_needed"], &[])
        .status("active", "t1 completed");
    case("a call, then the model again")
        .given([say("hi"), asks([read("r1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok"], &["CallModel 2.1"]);
    case("a failed tool is a result for the model")
        .given([say("hi"), asks([read("r1")])])
        .when(broke("r1"))
        .then(&["tool_call_completed r1 finished failed"], &["CallModel 2.1"]);
    case("three steps")
        .given([say("hi"), asks([read("r1")]), done("r1"), asks([read("r2")]), done("r2")])
        .when(reply())
        .then(&["model_output_completed 3.1", "turn_completed t1 not_needed"], &[]);
    case("steps count anew in the next turn")
        .given([say("hi"), asks([read("r1")]), done("r1"), reply(), say("more")])
        .when(asks([read("r2")]))
        .then(&["model_output_completed 1.1 r2", "tool_call_started r2 run 1"], &["RunTool r2 run 1"]);
}

#[test]
fn late_answers_of_the_model_are_stale() {
    case("another step").given([say("hi")]).when(late_reply("t1", 2, 1)).refused("stale");
    case("another attempt").given([say("hi")]).when(late_reply("t1", 1, 2)).refused("stale");
    case("an attempt that failed")
        .given([say("hi"), fault(FaultKind::Server)])
        .when(late_reply("t1", 1, 1))
        .refused("stale");
    case("its fault told twice")
        .given([say("hi"), fault(FaultKind::Server)])
        .when(late_fault("t1", 1, 1))
        .refused("stale");
    case("a turn that is settled").given([say("hi"), reply()]).when(late_reply("t1", 1, 1)).refused("stale");
    case("an older turn while a new one is open")
        .given([say("hi"), reply(), say("more")])
        .when(late_reply("t1", 1, 1))
        .refused("stale");
    case("while a tool runs").given([say("hi"), asks([read("r1")])]).when(late_reply("t1", 2, 1)).refused("stale");
    case("a canceled turn").given([say("hi"), cancel()]).when(late_reply("t1", 1, 1)).refused("stale");
}

#[test]
fn what_a_turn_spent_and_cost_is_told_at_its_end() {
    let world = case("two steps, one call, time")
        .given([say("hi"), wait(100), asks([read("r1")]), wait(50), done("r1"), wait(200)])
        .when(reply())
        .world;
    let Body::TurnCompleted(done) = &world.events.last().unwrap().body else { panic!("the turn is completed") };
    assert_eq!(
        serde_json::to_value(done).unwrap(),
        json!({
            "message_id": world.events[world.events.len() - 2].body_message(),
            "spent": {
                "steps": 2, "tool_calls": 1, "active_ms": 350,
                "usage": {
                    "input_tokens": 20, "output_tokens": 10, "cache_read_tokens": 200, "cache_write_tokens": 2,
                },
                "micro_usd": 14,
            },
            "cost_micro_usd": 14,
            "verification": "not_needed",
        })
    );
    assert_eq!(world.session.total, done.spent);
}

trait BodyMessage {
    fn body_message(&self) -> String;
}

impl BodyMessage for tenure_core::event::Event {
    fn body_message(&self) -> String {
        match &self.body {
            Body::ModelOutputCompleted(output) => output.message_id.to_string(),
            other => panic!("{} has no message", other.wire_type()),
        }
    }
}

//! Idempotency keys: the same key and command get the first answer, another command is refused.

use tenure_core::{
    command::{Command, Update},
    model::FaultKind,
    session::{KEY_KEPT_MS, Session},
};

use crate::{case::case, steps::*, world::fold};

#[test]
fn the_same_key_and_command_gets_the_first_answer() {
    case("a message")
        .given([keyed("k", say("hi"))])
        .when(keyed("k", say("hi")))
        .then(&[], &["CallModel 1.1"])
        .answers("message m1 t1");
    case("also when its turn is over")
        .given([keyed("k", say("hi")), reply()])
        .when(keyed("k", say("hi")))
        .then(&[], &[])
        .answers("message m1 t1");
    case("also after a crash")
        .given([keyed("k", say("hi")), crash()])
        .when(keyed("k", say("hi")))
        .then(&[], &["CallModel 1.2"])
        .answers("message m1 t1");
    case("an answer to an approval")
        .given([say("hi"), asks([shell("s1", "ls")]), keyed("k", approve("s1"))])
        .when(keyed("k", approve("s1")))
        .then(&[], &["RunTool s1 run 1"])
        .answers("approval s1 approve once");
    case("a cancel")
        .given([say("hi"), keyed("k", cancel()), gone()])
        .when(keyed("k", cancel()))
        .then(&[], &[])
        .answers("canceling t1");
    case("a cancel does not hit the next turn")
        .given([say("hi"), say("more"), keyed("k", cancel()), gone()])
        .when(keyed("k", cancel()))
        .then(&[], &["CallModel 1.1"])
        .answers("canceling t1");
    case("nor does one that changed nothing the first time")
        .given([say("hi"), say("more"), cancel(), keyed("k", cancel()), gone()])
        .when(keyed("k", cancel()))
        .then(&[], &["CallModel 1.1"])
        .answers("canceling t1");
    case("a retry")
        .given([say("hi"), fault(FaultKind::Auth), keyed("k", retry("t1"))])
        .when(keyed("k", retry("t1")))
        .then(&[], &["CallModel 1.1"])
        .answers("turn t2");
    case("a resume")
        .policy(crate::recover::asking())
        .given([say("hi"), crash(), keyed("k", resume("t1"))])
        .when(keyed("k", resume("t1")))
        .then(&[], &["CallModel 1.2"])
        .answers("turn t1");
    case("a start")
        .given([append("a"), keyed("k", start_turn())])
        .when(keyed("k", start_turn()))
        .then(&[], &["CallModel 1.1"])
        .answers("turn t1");
    case("an update, though others came since")
        .given([keyed("k", rename("x", Some(1))), append("note")])
        .when(keyed("k", rename("x", Some(1))))
        .then(&[], &[])
        .answers("updated 2");
    case("an end, though the session is over")
        .given([keyed("k", end())])
        .when(keyed("k", end()))
        .then(&[], &[])
        .answers("ended completed");
}

#[test]
fn a_key_belongs_to_one_command() {
    case("another text").given([keyed("k", say("hi"))]).when(keyed("k", say("ho"))).refused("key_reused");
    case("another verdict")
        .given([say("hi"), asks([shell("s1", "ls")]), keyed("k", approve("s1"))])
        .when(keyed("k", deny("s1")))
        .refused("key_reused");
    case("another key is another command")
        .given([keyed("k", say("hi"))])
        .when(keyed("l", say("hi")))
        .then(&["message_added m2 t2", "turn_queued t2 m2"], &["CallModel 1.1"]);
    case("another endpoint has keys of its own")
        .given([keyed("k", say("hi"))])
        .when(keyed("k", cancel()))
        .then(&["cancel_requested t1"], &["ReportGone t1"]);
    case("without a key all are new")
        .given([say("hi")])
        .when(say("hi"))
        .then(&["message_added m2 t2", "turn_queued t2 m2"], &["CallModel 1.1"]);
}

#[test]
fn only_successes_are_kept() {
    case("refused, then possible")
        .given([])
        .given([append("x")])
        .when(keyed("k", start_turn()))
        .then(&["turn_started t1 m1"], &["CallModel 1.1"]);
    let mut world = crate::world::World::new(crate::world::plain());
    let tell = |world: &mut crate::world::World, step: Step| {
        let Step::Tell(input) = step else { unreachable!() };
        world.tell(input(world))
    };
    assert_eq!(tell(&mut world, keyed("k", start_turn())).unwrap_err().code, "nothing_to_send");
    tell(&mut world, append("x")).unwrap();
    let decision = tell(&mut world, keyed("k", start_turn())).unwrap();
    assert_eq!(world.show_decision(&decision), ["turn_started t1 m1"]);
}

#[test]
fn a_key_is_kept_for_a_day() {
    case("just within")
        .given([keyed("k", say("hi")), reply(), wait(KEY_KEPT_MS - 1)])
        .when(keyed("k", say("hi")))
        .then(&[], &[])
        .answers("message m1 t1");
    case("not longer")
        .given([keyed("k", say("hi")), reply(), wait(KEY_KEPT_MS)])
        .when(keyed("k", say("hi")))
        .then(&["message_added m2 t2", "turn_started t2 m2"], &["CallModel 1.1"]);
    let world = case("what is over is forgotten")
        .given([keyed("k", append("a")), wait(KEY_KEPT_MS)])
        .when(keyed("l", append("b")))
        .world;
    assert_eq!(world.session.keys.keys().collect::<Vec<_>>(), ["messages l"]);
    case("a clock that was set back keeps it as long as the log says")
        .given([append("x"), rewind(1000), keyed("k", say("hi")), reply(), wait(KEY_KEPT_MS)])
        .when(keyed("k", say("hi")))
        .then(&[], &[])
        .answers("message m2 t1");
}

#[test]
fn keys_live_in_the_log() {
    let world = case("keyed").given([keyed("k", say("hi"))]).when(reply()).world;
    let (added, started) = (&world.events[1], &world.events[2]);
    let used = added.key.as_ref().expect("the first event of the decision carries the key");
    let answer = serde_json::json!({"message": {
        "message_id": world.messages[0].to_string(), "turn_id": world.turns[0].to_string(),
    }});
    let Step::Tell(again) = say("hi") else { unreachable!() };
    let tenure_core::command::Input::Command { command, .. } = again(&world) else { unreachable!() };
    assert_eq!(
        serde_json::to_value(used).unwrap(),
        serde_json::json!({"endpoint": "messages", "key": "k", "digest": command.digest(), "answer": answer})
    );
    assert_eq!(started.key, None);
    let replayed: Session = fold(&world.events);
    assert_eq!(replayed.keys, world.session.keys);
}

#[test]
fn a_keyed_command_that_changes_nothing_still_leaves_its_key() {
    case("an empty update")
        .when(keyed("k", command(Command::Update(Box::new(Update { ..Update::default() })))))
        .then(&["session_updated"], &[])
        .answers("updated 2");
    case("a cancel of a turn that is being stopped")
        .given([say("hi"), cancel()])
        .when(keyed("k", cancel()))
        .then(&["session_updated"], &["ReportGone t1"])
        .answers("canceling t1");
}

//! A copy of a log goes its own way: what was open waits, nothing that ran runs again, and what belongs to the other session stays there.

use tenure_core::{
    event::{Actor, SessionForked},
    ids::SessionId,
    policy::Scope,
    session::{Decision, Life, Session, fork},
    time::{Moment, Timestamp},
};
use ulid::Ulid;

use crate::{
    case::case,
    steps::*,
    world::{World, fold},
};

/// The session as it was at an event, forked a second later under an id of its own.
fn forked_at(world: &World, seq: usize) -> (Session, Decision) {
    let from = world.session.id;
    let mut events = world.events[..seq].to_vec();
    let id = SessionId::new(Ulid::from_parts(world.now_ms, 77));
    events.iter_mut().for_each(|event| event.session_id = id);
    let copied = fold(&events);
    let mut moment = Moment::new(Timestamp::from_ms(world.now_ms + 1000), 9 << 20);
    let forked = SessionForked {
        from,
        at_seq: seq as u64,
        title: None,
        model: None,
        workspace_path: None,
        labels: vec!["copy".into()],
    };
    let decision = fork(&copied, forked, Actor::user("test"), &mut moment);
    events.extend(decision.events.iter().cloned());
    assert_eq!(fold(&events), decision.state, "the state is the fold of the log");
    (copied, decision)
}

fn shown(world: &World, decision: &Decision) -> Vec<String> {
    world.show_decision(decision)
}

#[test]
fn a_session_at_rest_is_just_another_one() {
    let world = case("at rest").given([say("hi"), reply()]).world();
    let (_, decision) = forked_at(&world, world.events.len());
    assert_eq!(shown(&world, &decision), [format!("session_forked at {}", world.events.len())]);
    let fork = &decision.state;
    assert_eq!(fork.status(), "active");
    assert_eq!(fork.settings.labels, ["copy"]);
    assert_eq!(fork.created_at, fork.updated_at);
    assert_eq!(fork.forked_from.unwrap().session_id, world.session.id);
    assert!(fork.wanted().is_empty());
}

#[test]
fn costs_keys_and_answers_stay_where_they_were_made() {
    let world = case("with everything")
        .given([
            keyed("k", say("hi")),
            asks([shell("e1", "ls")]),
            approve_for(Scope::Session, "e1"),
            done("e1"),
            reply(),
        ])
        .world();
    assert!(!world.session.keys.is_empty() && !world.session.grants.is_empty());
    assert_ne!(world.session.spent(), Default::default());
    let fork = forked_at(&world, world.events.len()).1.state;
    assert_eq!(fork.spent(), Default::default());
    assert!(fork.keys.is_empty() && fork.grants.is_empty() && fork.answered.is_empty());
    assert_eq!(fork.settled, world.session.settled, "what was settled is known");
}

#[test]
fn an_open_turn_waits_in_the_fork() {
    let waiting = case("waits for a yes").given([say("hi"), asks([shell("e1", "ls")])]).world();
    let (copied, decision) = forked_at(&waiting, waiting.events.len());
    assert_eq!(copied.status(), "waiting_approval");
    assert_eq!(
        shown(&waiting, &decision),
        [format!("session_forked at {}", waiting.events.len()), "turn_interrupted t1".to_owned()]
    );
    assert_eq!(decision.state.status(), "active", "the question is not copied");
    assert!(decision.state.wanted().is_empty());

    let running = case("a command runs").given([say("hi"), asks([shell("e1", "ls")]), approve("e1")]).world();
    let (_, decision) = forked_at(&running, running.events.len());
    assert_eq!(shown(&running, &decision)[1], "turn_interrupted t1 e1=unknown");
    assert!(decision.state.wanted().is_empty(), "it does not run again");
}

#[test]
fn every_cut_of_a_log_can_be_forked_and_wants_nothing() {
    let worlds = [
        case("tools").given([
            say("hi"),
            asks([shell("e1", "ls"), read("r1")]),
            approve("e1"),
            done("e1"),
            done("r1"),
            reply(),
        ]),
        case("queue").given([
            say("hi"),
            say("two"),
            asks([shell("e1", "ls")]),
            say("three"),
            approve("e1"),
            done("e1"),
        ]),
        case("cancel").given([say("hi"), asks([shell("e1", "ls")]), approve("e1"), cancel()]),
        case("ended").given([say("hi"), reply(), end()]),
    ];
    for world in worlds.map(|case| case.world()) {
        for seq in 1..=world.events.len() {
            let (_, decision) = forked_at(&world, seq);
            let fork = &decision.state;
            assert!(fork.wanted().is_empty(), "{:?} at {seq}", shown(&world, &decision));
            assert_eq!(fork.life, Life::Open);
            assert!(fork.queue.is_empty(), "what waits there does not run here too");
        }
    }
}

//! Lost events: whichever are gone, the session comes to its end, wants nothing, and nothing in it hangs.

use tenure_core::{
    event::{Actor, EventLost},
    session::{LOG_DAMAGED, Life, Lost, fail_damaged},
    time::{Moment, Timestamp},
    tool::ToolKind,
};

use crate::{
    case::{Case, case},
    steps::*,
    world::{World, fold},
};

fn cases() -> [Case; 5] {
    [
        case("tools").given([say("hi"), asks([shell("e1", "ls"), read("r1")]), approve("e1"), done("e1"), done("r1")]),
        case("queue").given([say("hi"), say("two"), asks([shell("e1", "ls")]), say("three"), steer("left")]),
        case("cancel").given([say("hi"), asks([shell("e1", "ls")]), approve("e1"), cancel()]),
        case("settled").given([say("hi"), reply()]),
        case("ended").given([say("hi"), reply(), end()]),
    ]
}

/// The log with these events lost, and what follows.
fn ended_without(world: &World, lost: &[usize]) -> (Vec<String>, tenure_core::session::Session) {
    let mut events = world.events.clone();
    for at in lost {
        let event = &mut events[*at];
        (event.actor, event.turn_id, event.key) = (Actor::SYSTEM, None, None);
        event.body = EventLost { reason: "gone".into() }.into();
    }
    let left = fold(&events);
    let mut moment = Moment::new(Timestamp::from_ms(world.now_ms + 1000), 9 << 20);
    let decision = fail_damaged(&left, "the log lost events", &mut moment);
    events.extend(decision.events.iter().cloned());
    assert_eq!(fold(&events), decision.state, "the state is the fold of the log");
    let again = fail_damaged(&decision.state, "the log lost events", &mut moment);
    assert!(again.events.is_empty(), "a session ends once");
    (world.show_decision(&decision), decision.state)
}

#[test]
fn whichever_events_are_lost_the_session_ends_and_wants_nothing() {
    for world in cases().map(|case| case.world()) {
        let count = world.events.len();
        for first in 0..count {
            for second in first..count {
                let (shown, state) = ended_without(&world, &[first, second]);
                assert_ne!(state.life, Life::Open, "{shown:?}");
                assert!(state.turn.is_none() && state.queue.is_empty() && state.wanted().is_empty(), "{shown:?}");
            }
        }
    }
}

#[test]
fn what_lost_its_beginning_is_allowed_nothing_unasked() {
    let (_, state) = ended_without(&case("settled").given([say("hi"), reply()]).world(), &[0]);
    assert_eq!(state.policy.approval.require_for_kinds, [ToolKind::Write, ToolKind::Exec, ToolKind::Network]);
}

#[test]
fn what_was_open_is_settled_first() {
    let world = case("a command runs").given([say("hi"), asks([shell("e1", "ls")]), approve("e1"), say("two")]).world();
    let (shown, state) = ended_without(&world, &[1]);
    assert_eq!(state.status(), "failed");
    let kinds: Vec<&str> = shown.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(kinds, ["turn_canceled", "tool_call_completed", "turn_failed", "session_failed"]);
    assert_eq!(shown[3], format!("session_failed {LOG_DAMAGED}"));
}

#[test]
fn a_session_that_had_ended_stays_as_it_was() {
    let world = case("ended").given([say("hi"), reply(), end()]).world();
    let (shown, state) = ended_without(&world, &[2, 3]);
    assert_eq!((shown, state.status()), (vec![], "completed"));
    assert_eq!(state.lost, Some(Lost { from_seq: 3, events: 2, reason: "gone".into() }));
}

#[test]
fn a_log_without_its_beginning_has_a_session_too() {
    let world = case("settled").given([say("hi"), reply()]).world();
    let (_, state) = ended_without(&world, &[0]);
    assert_eq!((state.status(), state.settings.workspace_path.as_str()), ("failed", ""));
    assert_eq!(state.lost, Some(Lost { from_seq: 1, events: 1, reason: "gone".into() }));
    assert_eq!(state.settled.len(), 1);
}

//! Failures of the model: another attempt with backoff, or the end of the turn.

use tenure_core::{
    command::Partial,
    event::Body,
    model::{Fault, FaultKind},
    session::{ATTEMPTS_MAX, RETRYING_MS_MAX},
};

use crate::{case::case, steps::*};

#[test]
fn what_may_pass_is_tried_again() {
    use FaultKind::*;
    for kind in [RateLimited, Overloaded, Server, Network, NoServer, StreamCut, StreamStalled, Malformed] {
        let expected = format!("model_attempt_failed 1.1 {} retry +500", kind.code());
        case("tried again").given([say("hi")]).when(fault(kind)).then(&[&expected], &["CallModel 1.2 +500"]);
    }
}

#[test]
fn what_would_not_help_ends_the_turn() {
    use FaultKind::*;
    for kind in [Auth, Quota, Tls, BadRequest, UnknownModel, ReplyTooLarge] {
        let (failed, ended) =
            (format!("model_attempt_failed 1.1 {}", kind.code()), format!("turn_failed t1 {}", kind.code()));
        case("not tried again")
            .given([say("hi")])
            .when(fault(kind))
            .then(&[&failed, &ended], &[])
            .status("active", "t1 failed");
    }
}

#[test]
fn the_wait_doubles_to_a_bound() {
    for (failures, waited) in
        [(0, 500), (1, 1000), (2, 2000), (3, 4000), (4, 8000), (5, 16_000), (6, 32_000), (7, 60_000), (8, 60_000)]
    {
        let attempt = failures + 1;
        let failed = format!("model_attempt_failed 1.{attempt} server retry +{waited}");
        let wanted = format!("CallModel 1.{} +{waited}", attempt + 1);
        case("backoff")
            .given((0..failures).map(|_| fault(FaultKind::Server)).fold(vec![say("hi")], |mut script, step| {
                script.push(step);
                script
            }))
            .when(fault(FaultKind::Server))
            .then(&[&failed], &[&wanted]);
    }
}

#[test]
fn retry_after_is_followed() {
    case("longer than the backoff")
        .given([say("hi")])
        .when(fault_after(FaultKind::RateLimited, 7000))
        .then(&["model_attempt_failed 1.1 rate_limited retry +7000"], &["CallModel 1.2 +7000"]);
    case("at the bound")
        .given([say("hi")])
        .when(fault_after(FaultKind::RateLimited, RETRYING_MS_MAX))
        .then(&["model_attempt_failed 1.1 rate_limited retry +900000"], &["CallModel 1.2 +900000"]);
    case("beyond the time in which attempts are made")
        .given([say("hi")])
        .when(fault_after(FaultKind::RateLimited, RETRYING_MS_MAX + 1))
        .then(&["model_attempt_failed 1.1 rate_limited", "turn_failed t1 rate_limited"], &[]);
    case("an absurd one")
        .given([say("hi")])
        .when(fault_after(FaultKind::RateLimited, u64::MAX))
        .then(&["model_attempt_failed 1.1 rate_limited", "turn_failed t1 rate_limited"], &[]);
    case("it does not help what cannot be helped")
        .given([say("hi")])
        .when(fault_after(FaultKind::Auth, 1))
        .then(&["model_attempt_failed 1.1 auth", "turn_failed t1 auth"], &[]);
}

#[test]
fn a_vendor_cannot_ask_for_less_than_the_backoff() {
    case("none at all")
        .given([say("hi")])
        .when(fault_after(FaultKind::RateLimited, 0))
        .then(&["model_attempt_failed 1.1 rate_limited retry +500"], &["CallModel 1.2 +500"]);
    case("less than is usual by now")
        .given([say("hi"), fault(FaultKind::Overloaded), fault(FaultKind::Overloaded)])
        .when(fault_after(FaultKind::Overloaded, 600))
        .then(&["model_attempt_failed 1.3 overloaded retry +2000"], &["CallModel 1.4 +2000"]);
}

/// How long each wait of one step is when the vendor asks for these times, until it is given up.
fn waits(asked: &[Option<u64>]) -> Vec<u64> {
    let mut world = crate::world::World::new(crate::world::plain());
    let tell = |world: &mut crate::world::World, step: Step| {
        let Step::Tell(input) = step else { unreachable!("only inputs are told") };
        world.tell(input(world)).unwrap();
    };
    tell(&mut world, say("hi"));
    let mut waits = Vec::new();
    for retry_after_ms in asked {
        let fault = Fault { retry_after_ms: *retry_after_ms, ..Fault::new(FaultKind::RateLimited, "slow down") };
        let now = world.now();
        tell(&mut world, fault_with(fault, partial("")));
        let Body::ModelAttemptFailed(failed) = &world.events.last().unwrap().body else { break };
        let wait = failed.retry_at.expect("it goes on").ms() - now.ms();
        waits.push(wait);
        world.now_ms += wait;
    }
    waits
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(32))]
    #[test]
    fn the_waits_of_a_step_never_sum_to_less_than_the_backoff(
        asked in proptest::collection::vec(proptest::option::of(0..50_000u64), 1..ATTEMPTS_MAX as usize)
    ) {
        let (waited, plain) = (waits(&asked), waits(&vec![None; asked.len()]));
        for (waited, plain) in waited.iter().zip(&plain) {
            proptest::prop_assert!(waited >= plain);
        }
        let sum = |waits: &[u64]| waits.iter().sum::<u64>();
        proptest::prop_assert!(sum(&waited) >= sum(&plain[..waited.len()]));
    }
}

#[test]
fn retries_end() {
    let failures = |count: u32| {
        let mut script = vec![say("hi")];
        script.extend((0..count).map(|_| fault(FaultKind::Server)));
        script
    };
    case("the tenth attempt is the last")
        .given(failures(ATTEMPTS_MAX - 1))
        .when(fault(FaultKind::Server))
        .then(&["model_attempt_failed 1.10 server", "turn_failed t1 server"], &[]);
    case("the ninth is not")
        .given(failures(ATTEMPTS_MAX - 2))
        .when(fault(FaultKind::Server))
        .then(&["model_attempt_failed 1.9 server retry +60000"], &["CallModel 1.10 +60000"]);
    case("fifteen minutes after the first failure")
        .given([say("hi"), fault(FaultKind::Server), wait(RETRYING_MS_MAX)])
        .when(fault(FaultKind::Server))
        .then(&["model_attempt_failed 1.2 server", "turn_failed t1 server"], &[]);
    case("one slow attempt alone does not end it")
        .given([say("hi"), wait(2 * RETRYING_MS_MAX)])
        .when(fault(FaultKind::StreamStalled))
        .then(&["model_attempt_failed 1.1 stream_stalled retry +500"], &["CallModel 1.2 +500"]);
    case("a reply starts the count anew")
        .given(failures(ATTEMPTS_MAX - 1))
        .given([asks([read("r1")]), done("r1")])
        .when(fault(FaultKind::Server))
        .then(&["model_attempt_failed 2.1 server retry +500"], &["CallModel 2.2 +500"]);
    case("crashes are no failures of the model")
        .given(failures(ATTEMPTS_MAX - 2))
        .given([wait(60_000), crash(), wait(60_000)])
        .when(fault(FaultKind::Server))
        .then(&["model_attempt_failed 1.10 server retry +60000"], &["CallModel 1.11 +60000"]);
}

#[test]
fn a_server_of_this_machine_that_was_never_there_is_not_waited_for() {
    let no_server = || fault(FaultKind::NoServer);
    case("the third time")
        .given([say("hi"), no_server(), no_server()])
        .when(no_server())
        .then(&["model_attempt_failed 1.3 no_server retry +2000"], &["CallModel 1.4 +2000"]);
    case("the fourth is the last")
        .given([say("hi"), no_server(), no_server(), no_server()])
        .when(no_server())
        .then(&["model_attempt_failed 1.4 no_server", "turn_failed t1 no_server"], &[]);
    case("one that was there may come back")
        .given([say("hi"), fault(FaultKind::StreamCut), no_server(), no_server()])
        .when(no_server())
        .then(&["model_attempt_failed 1.4 no_server retry +4000"], &["CallModel 1.5 +4000"]);
    case("one that answered a step before, too")
        .given([say("hi"), asks([read("r1")]), done("r1"), no_server(), no_server(), no_server()])
        .when(no_server())
        .then(&["model_attempt_failed 2.4 no_server retry +4000"], &["CallModel 2.5 +4000"]);
    let three = || [no_server(), no_server(), no_server()];
    case("one whose answer was cut with us, too")
        .given([say("hi"), crash_with([], "Half a sen")])
        .given(three())
        .when(no_server())
        .then(&["model_attempt_failed 1.5 no_server retry +4000"], &["CallModel 1.6 +4000"]);
    case("also where only a call had begun")
        .given([say("hi"), crash_in(Partial { begun: true, ..partial("") })])
        .given(three())
        .when(no_server())
        .then(&["model_attempt_failed 1.5 no_server retry +4000"], &["CallModel 1.6 +4000"]);
    case("a crash alone tells nothing of it")
        .given([say("hi"), crash()])
        .given(three())
        .when(no_server())
        .then(&["model_attempt_failed 1.5 no_server", "turn_failed t1 no_server"], &[]);
    case("what it did a turn before does not count")
        .given([say("hi"), reply(), say("again"), no_server(), no_server(), no_server()])
        .when(no_server())
        .then(&["model_attempt_failed 1.4 no_server", "turn_failed t2 no_server"], &[]);
}

#[test]
fn a_vendor_that_asks_for_too_much_time_is_told_of() {
    let why = |world: &crate::world::World| match &world.events.last().unwrap().body {
        Body::TurnFailed(failed) => failed.message.clone(),
        other => panic!("{other:?}"),
    };
    let asks = |ms: u64| {
        let fault = Fault { retry_after_ms: Some(ms), ..Fault::new(FaultKind::RateLimited, "slow down") };
        fault_with(fault, partial(""))
    };
    for (ms, told) in [(3_600_000, "1 h"), (5_400_001, "1 h 31 min"), (900_001, "16 min")] {
        let world = case("at once").given([say("hi")]).when(asks(ms)).world;
        let limit = "and a call is tried for 15 min at most";
        assert_eq!(why(&world), format!("slow down; the vendor asks to wait for {told}, {limit}"));
    }
    let world = case("later").given([say("hi"), asks(600_000), wait(600_000)]).when(asks(600_000)).world;
    assert!(why(&world).contains("asks to wait for 10 min"), "{}", why(&world));
    let world = case("what is not tried again anyway").given([say("hi")]).when(fault(FaultKind::Auth)).world;
    assert!(!why(&world).contains("wait"), "{}", why(&world));
}

#[test]
fn the_wait_survives_a_restart() {
    case("a turn that only waits stays as it is")
        .given([say("hi"), fault_after(FaultKind::Overloaded, 5000), wait(2000)])
        .when(crash())
        .then(&[], &["CallModel 1.2 +3000"])
        .status("active", "t1 running");
    case("whatever the policy of recovery")
        .policy(crate::recover::asking())
        .given([say("hi"), fault_after(FaultKind::Overloaded, 5000), wait(2000)])
        .when(crash())
        .then(&[], &["CallModel 1.2 +3000"]);
}

#[test]
fn an_attempt_keeps_the_text_that_was_shown() {
    let world = case("partial text")
        .given([say("hi")])
        .when(fault_with(Fault::new(FaultKind::StreamCut, "cut"), partial("Half a sen")))
        .then(&["model_attempt_failed 1.1 stream_cut 'Half a sen' retry +500"], &["CallModel 1.2 +500"])
        .world;
    let Body::ModelAttemptFailed(failed) = &world.events.last().unwrap().body else { panic!("it failed") };
    assert_eq!(failed.reason, Fault::new(FaultKind::StreamCut, "cut"));
    case("the next attempt has its own number")
        .given([say("hi"), fault(FaultKind::StreamCut)])
        .when(reply())
        .then(&["model_output_completed 1.2", "turn_completed t1 not_needed"], &[]);
}

#[test]
fn chance_spreads_the_attempts() {
    use tenure_core::{command::Input, time::Moment};
    let mut world = crate::world::World::new(crate::world::plain());
    let Step::Tell(hello) = say("hi") else { unreachable!() };
    world.tell(hello(&world)).unwrap();
    for (permille, waited) in [(0u128, 500), (500, 562), (999, 624)] {
        let input = Input::ModelFailed {
            turn: world.open_turn(),
            step: 1,
            attempt: 1,
            fault: Fault::new(FaultKind::Server, "x"),
            partial: partial(""),
        };
        let decision = world.session.decide(input, &mut Moment::new(world.now(), permille << 64)).unwrap();
        let Body::ModelAttemptFailed(failed) = &decision.events[0].body else { panic!("it failed") };
        assert_eq!(failed.retry_at, Some(world.now().plus_ms(waited)));
    }
}

//! A context that grows too long: when it is compacted, who waits for that, and what follows when it fails.

use tenure_core::{
    budget::Budgets,
    command::Partial,
    context::Voice,
    event::{Actor, Body, SessionForked},
    ids::SessionId,
    model::FaultKind,
    policy::Policy,
    session::{AUTO_RESUMES_MAX, SUMMARY_OVERFLOWS_MAX, fork},
    time::{Moment, Timestamp},
};
use ulid::Ulid;

use crate::{
    case::{Case, case},
    context::{reloaded, show, transcript},
    recover::asking,
    steps::*,
    world::World,
};

/// A turn whose second step is awaited: there is something that could be left out.
fn talk() -> Vec<Step> {
    vec![say("a"), reply(), say("b")]
}

fn talk_and(steps: impl IntoIterator<Item = Step>) -> Vec<Step> {
    talk().into_iter().chain(steps).collect()
}

fn after_talk(name: &'static str, steps: impl IntoIterator<Item = Step>) -> Case {
    case(name).given(talk_and(steps))
}

fn by_hand() -> Policy {
    let mut policy = Policy::default();
    policy.compaction.auto = false;
    policy
}

fn messages(world: &World) -> Vec<String> {
    let (live, reloaded) = (transcript(world), reloaded(world));
    assert_eq!(live.entries(), reloaded.entries());
    show(live.messages())
}

const SUMMARY: &str = "user: The earlier part of this conversation was summarized.\n\nwhat was before";

#[test]
fn it_begins_at_the_policys_share_of_the_window() {
    after_talk("below", []).when(measured(79)).then(&[], &["CallModel 1.1"]);
    after_talk("at the threshold the turn goes on beside it", [])
        .when(measured(80))
        .then(&["compaction_started threshold"], &["CallModel 1.1", "Compact 1"]);
    after_talk("just below what blocks", [])
        .when(measured(94))
        .then(&["compaction_started threshold"], &["CallModel 1.1", "Compact 1"]);
    after_talk("where the window is nearly full the turn waits", [])
        .when(measured(95))
        .then(&["compaction_started threshold blocking"], &["Compact 1"]);
    after_talk("beyond the window", [])
        .when(measured(1000))
        .then(&["compaction_started threshold blocking"], &["Compact 1"]);
    case("switched off").policy(by_hand()).given(talk()).when(measured(99)).then(&[], &["CallModel 1.1"]);
    case("of a turn that is not open").given(talk_and([cancel()])).when(measured(99)).refused("stale");
}

#[test]
fn one_under_way_is_enough() {
    after_talk("it goes on", [measured(80)]).when(measured(90)).then(&[], &["CallModel 1.1", "Compact 1"]);
    after_talk("the turn comes to wait for it", [measured(80)])
        .when(measured(95))
        .then(&["compaction_started threshold blocking"], &["Compact 1"]);
    after_talk("its failures are not forgotten then", [measured(80), summary_failed(FaultKind::Server)])
        .when(measured(95))
        .then(&["compaction_started threshold blocking"], &["Compact 2 +500"]);
    after_talk("it is waited for already", [measured(95)]).when(measured(99)).then(&[], &["Compact 1"]);
    after_talk("asked for as well", [measured(80)])
        .when(compact())
        .then(&[], &["CallModel 1.1", "Compact 1"])
        .answers("compacting 8");
    after_talk("what came too late", [measured(80), summary_failed(FaultKind::Server)])
        .when(late_summary_failed(1))
        .refused("stale");
}

#[test]
fn it_can_be_asked_for() {
    case("without a turn")
        .given([say("a"), reply()])
        .when(compact())
        .then(&["compaction_started asked"], &["Compact 1"])
        .answers("compacting 6");
    let world = case("its summary").given([say("a"), reply(), compact()]).when(summary());
    let world = world.then(&["context_compacted asked from 4"], &[]).world;
    assert_eq!(messages(&world), [SUMMARY, "assistant: text"]);
    case("beside a turn")
        .given(talk())
        .when(compact())
        .then(&["compaction_started asked"], &["CallModel 1.1", "Compact 1"]);
    case("where the policy would not")
        .policy(by_hand())
        .given(talk())
        .when(compact())
        .then(&["compaction_started asked"], &["CallModel 1.1", "Compact 1"]);
    case("once by a key")
        .given([say("a"), reply(), keyed("k", compact())])
        .when(keyed("k", compact()))
        .then(&[], &["Compact 1"])
        .answers("compacting 6");
    case("of an ended session").given([end()]).when(compact()).refused("session_ended");
}

#[test]
fn a_turn_that_did_not_wait_goes_on_as_it_is() {
    after_talk("its request is made: what steers it waits for the next one", [measured(80), steer("c")])
        .when(summary())
        .then(&["context_compacted threshold from 7"], &["CallModel 1.1"]);
    let spent = Budgets { max_micro_usd: Some(3), ..unlimited() };
    case("the budget is looked at before the next step")
        .budgets(spent)
        .given(talk_and([measured(80)]))
        .when(summary())
        .then(&["context_compacted threshold from 7"], &["CallModel 1.1"]);
    after_talk("its failure changes nothing either", [measured(80), steer("c")])
        .when(summary_failed(FaultKind::Auth))
        .then(&["compaction_failed auth"], &["CallModel 1.1"]);
    after_talk("it outlives the turn", [measured(80)])
        .when(reply())
        .then(&["model_output_completed 1.1", "turn_completed t2 not_needed"], &["Compact 1"]);
}

#[test]
fn a_turn_that_waited_goes_on() {
    after_talk("with the shorter context", [measured(95)])
        .when(summary())
        .then(&["context_compacted threshold from 7"], &["CallModel 1.1"]);
    let world = after_talk("and what steers it", [measured(95), steer("c")])
        .when(summary())
        .then(&["context_compacted threshold from 7", "message_delivered m3 step 1"], &["CallModel 1.1"])
        .world;
    assert_eq!(messages(&world), [SUMMARY, "user: b", "user: c"]);
    let spent = Budgets { max_micro_usd: Some(3), ..unlimited() };
    case("unless the summary used up the budget")
        .budgets(spent.clone())
        .given(talk_and([measured(95)]))
        .when(summary())
        .then(&["context_compacted threshold from 7", "budget_reached money 3 of 3"], &[]);
    case("which ends a turn that nobody watches")
        .unattended()
        .budgets(spent)
        .given(talk_and([measured(95)]))
        .when(summary())
        .then(&["context_compacted threshold from 7", "budget_reached money 3 of 3"], &["ReportGone t2"]);
}

#[test]
fn a_failed_one_is_tried_again() {
    after_talk("what may pass", [measured(95)])
        .when(summary_failed(FaultKind::Overloaded))
        .then(&["compaction_failed overloaded retry +500"], &["Compact 2 +500"]);
    after_talk("the wait doubles", [measured(95), summary_failed(FaultKind::Overloaded)])
        .when(summary_failed(FaultKind::Server))
        .then(&["compaction_failed server retry +1000"], &["Compact 3 +1000"]);
    after_talk("a record that was too long is read in part, at once", [measured(95)])
        .when(summary_failed(FaultKind::ContextOverflow))
        .then(&["compaction_failed context_overflow retry +0"], &["Compact 2 +0"]);
    let tries = (1..SUMMARY_OVERFLOWS_MAX).map(|_| summary_failed(FaultKind::ContextOverflow));
    after_talk("but not for ever", std::iter::once(measured(95)).chain(tries))
        .when(summary_failed(FaultKind::ContextOverflow))
        .then(&["compaction_failed context_overflow"], &["CallModel 1.1"]);
}

#[test]
fn a_turn_that_waited_in_vain() {
    after_talk("the vendor has the last word on a guess", [measured(95), steer("c")])
        .when(summary_failed(FaultKind::Auth))
        .then(&["compaction_failed auth", "message_delivered m3 step 1"], &["CallModel 1.1"]);
    after_talk("and it is not guessed again", [measured(95), summary_failed(FaultKind::Auth)])
        .when(measured(95))
        .then(&[], &["CallModel 1.1"]);
    after_talk("what the vendor refused stays refused", [fault(FaultKind::ContextOverflow)])
        .when(summary_failed(FaultKind::Auth))
        .then(&["compaction_failed auth", "turn_failed t2 context_overflow"], &[]);
    after_talk("the next turn starts", [fault(FaultKind::ContextOverflow), say("c")])
        .when(summary_failed(FaultKind::Auth))
        .then(&["compaction_failed auth", "turn_failed t2 context_overflow", "turn_started t3 m3"], &["CallModel 1.1"]);
}

#[test]
fn an_overflow_is_compacted() {
    after_talk("the turn waits", [])
        .when(fault(FaultKind::ContextOverflow))
        .then(&["model_attempt_failed 1.1 context_overflow", "compaction_started overflow blocking"], &["Compact 1"]);
    after_talk("and tries again", [fault(FaultKind::ContextOverflow)])
        .when(summary())
        .then(&["context_compacted overflow from 7"], &["CallModel 1.2"]);
    after_talk("one under way will do", [measured(80)])
        .when(fault(FaultKind::ContextOverflow))
        .then(&["model_attempt_failed 1.1 context_overflow", "compaction_started overflow blocking"], &["Compact 1"]);
    let again = || [fault(FaultKind::ContextOverflow), summary()];
    after_talk("a second time", again())
        .when(fault(FaultKind::ContextOverflow))
        .then(&["model_attempt_failed 1.2 context_overflow", "compaction_started overflow blocking"], &["Compact 1"]);
    after_talk("that is enough", again().into_iter().chain(again()))
        .when(fault(FaultKind::ContextOverflow))
        .then(&["model_attempt_failed 1.3 context_overflow", "turn_failed t2 context_overflow"], &[]);
    after_talk("a guess and an overflow", [measured(95), summary()])
        .when(fault(FaultKind::ContextOverflow))
        .then(&["model_attempt_failed 1.1 context_overflow", "compaction_started overflow blocking"], &["Compact 1"]);
    let reached = again().into_iter().chain(again()).chain([asks([read("r1")]), done("r1")]);
    after_talk("a reply is progress", reached)
        .when(fault(FaultKind::ContextOverflow))
        .then(&["model_attempt_failed 2.1 context_overflow", "compaction_started overflow blocking"], &["Compact 1"]);
    case("switched off")
        .policy(by_hand())
        .given(talk())
        .when(fault(FaultKind::ContextOverflow))
        .then(&["model_attempt_failed 1.1 context_overflow", "turn_failed t2 context_overflow"], &[]);
}

#[test]
fn a_summary_that_is_no_shorter_changes_nothing() {
    let told = "compaction_failed reply_too_large";
    case("asked for").given([say("a"), reply(), compact()]).when(summary_in_vain()).then(&[told], &[]);
    let world = after_talk("the turn goes on as it is", [measured(95)]).when(summary_in_vain());
    let world = world.then(&[told], &["CallModel 1.1"]).world;
    assert_eq!(messages(&world), ["user: a", "assistant: text", "user: b"]);
    let spent = world.session.turn.as_ref().expect("a turn is open").spent;
    assert_eq!(spent.micro_usd, 3, "it is paid for all the same");
    after_talk("it is not guessed again", [measured(95), summary_in_vain()])
        .when(measured(95))
        .then(&[], &["CallModel 1.1"]);
    after_talk("what the vendor refused stays refused", [fault(FaultKind::ContextOverflow)])
        .when(summary_in_vain())
        .then(&[told, "turn_failed t2 context_overflow"], &[]);
}

#[test]
fn what_did_not_help_is_not_repeated_at_once() {
    let step = || [asks([read("r1")]), done("r1")];
    let compacted = |tokens: u64| [measured(tokens), summary()].into_iter().chain(step());
    // The summary left 20 tokens of 100.
    after_talk("the context grew again", compacted(95))
        .when(measured(85))
        .then(&["compaction_started threshold"], &["CallModel 2.1", "Compact 1"]);
    let failed = |tokens: u64| [measured(tokens), summary_failed(FaultKind::BadRequest)].into_iter().chain(step());
    after_talk("nothing could go, and little came", failed(85)).when(measured(94)).then(&[], &["CallModel 2.1"]);
    after_talk("a tenth of the window came", failed(85))
        .when(measured(95))
        .then(&["compaction_started threshold blocking"], &["Compact 1"]);
}

#[test]
fn a_cancel_ends_what_its_turn_waits_for() {
    after_talk("it stops at once", [measured(95)]).when(cancel()).then(&["cancel_requested t2"], &["ReportGone t2"]);
    after_talk("and is told", [measured(95), cancel()])
        .when(gone())
        .then(&["compaction_failed canceled", "turn_canceled t2"], &[]);
    after_talk("its answer comes too late", [measured(95), cancel(), gone()]).when(summary()).refused("stale");
    after_talk("one beside the turn goes on", [measured(80)])
        .when(cancel())
        .then(&["cancel_requested t2"], &["ReportGone t2", "Compact 1"]);
    after_talk("and outlives it", [measured(80), cancel()]).when(gone()).then(&["turn_canceled t2"], &["Compact 1"]);
    after_talk("a summary that came before the end is taken", [measured(95), cancel()])
        .when(summary())
        .then(&["context_compacted threshold from 7"], &["ReportGone t2"]);
}

#[test]
fn the_end_of_the_session_is_its_end() {
    case("without a turn")
        .given([say("a"), reply(), compact()])
        .when(end())
        .then(&["session_completed"], &[])
        .status("completed", "t1 completed");
    after_talk("with a turn that waits", [measured(95), end()])
        .when(gone())
        .then(&["compaction_failed canceled", "turn_canceled t2", "session_canceled"], &[]);
    after_talk("beside a turn", [measured(80), end()])
        .when(gone())
        .then(&["turn_canceled t2", "session_canceled"], &[]);
    case("it keeps a session from expiring").given([say("a"), reply(), compact()]).when(expire()).refused("stale");
}

#[test]
fn a_crash_cuts_it() {
    let told = "compaction_failed interrupted retry +0";
    case("without a turn").given([say("a"), reply(), compact()]).when(crash()).then(&[told], &["Compact 2 +0"]);
    after_talk("beside a turn", [measured(80)]).when(crash()).then(
        &[told, "model_attempt_failed 1.1 interrupted", "turn_interrupted t2", "turn_resumed t2 automatic"],
        &["CallModel 1.2", "Compact 2 +0"],
    );
    after_talk("the turn that waits is cut with it", [measured(95)])
        .when(crash())
        .then(&[told, "turn_interrupted t2", "turn_resumed t2 automatic"], &["Compact 2 +0"]);
    case("and rests with it")
        .policy(asking())
        .given(talk_and([measured(95)]))
        .when(crash())
        .then(&[told, "turn_interrupted t2"], &[])
        .status("active", "t2 interrupted");
    case("until it is resumed")
        .policy(asking())
        .given(talk_and([measured(95), crash()]))
        .when(resume("t2"))
        .then(&["turn_resumed t2 asked"], &["Compact 2 +0"]);
    case("or gives way")
        .policy(asking())
        .given(talk_and([measured(95), crash()]))
        .when(say("c"))
        .then(&["message_added m3 t3", "turn_failed t2 superseded", "turn_started t3 m3"], &["Compact 2 +0"]);
    after_talk("one that only waits for its time stays as it is", [measured(95), summary_failed(FaultKind::Server)])
        .when(crash())
        .then(&[], &["Compact 2 +500"]);
    let crashes = (0..AUTO_RESUMES_MAX).map(|_| crash());
    case("a daemon that dies of it is not started into it for ever")
        .given([say("a"), reply(), compact()].into_iter().chain(crashes))
        .when(crash())
        .then(&["compaction_failed interrupted"], &[]);
    after_talk("one that was to be stopped is not begun again", [measured(95), cancel()])
        .when(crash())
        .then(&[], &["ReportGone t2"]);
}

#[test]
fn time_away_is_not_counted() {
    let world = after_talk("away", [measured(95), wait(60_000)]).when(crash()).world;
    assert_eq!(world.session.turn.expect("a turn is open").spent.active_ms, 0);
}

#[test]
fn its_cost_is_the_turns_or_the_sessions() {
    let world = after_talk("of the turn that waits", [measured(95), summary_failed(FaultKind::Server)]).when(summary());
    let spent = world.world.session.turn.as_ref().expect("a turn is open").spent;
    assert_eq!((spent.micro_usd, spent.steps, spent.usage.output_tokens), (6, 0, 10));
    let world = case("of the session").given([say("a"), reply(), compact()]).when(summary()).world;
    assert_eq!(world.session.spent().cost(), Some(10));
    let world = case("unknown").given([say("a"), reply(), compact()]).when(summary_costing(None)).world;
    assert_eq!(world.session.spent().cost(), None);
    let broken = |begun: bool, cost| {
        let partial = Partial { begun, cost, ..Partial::default() };
        let world = case("broken").given([say("a"), reply(), compact()]).when(summary_broken(partial)).world;
        world.session.spent().cost()
    };
    assert_eq!(broken(false, None), Some(7), "what never began is for nothing");
    assert_eq!(broken(true, None), None, "what had begun costs something");
    assert_eq!(broken(true, Some(0)), Some(7), "but with a model that is free");
    let cut =
        |steps: Vec<Step>, cut| after_talk("stopped", steps).when(gone_with(&[], cut)).world.session.spent().cost();
    let waits = || vec![measured(95), summary_failed(FaultKind::Server), cancel()];
    assert_eq!(cut(waits(), None), Some(10), "between two attempts nothing is used up");
    assert_eq!(cut(vec![measured(95), cancel()], Some(Partial::default())), None);
}

#[test]
fn a_fork_leaves_it_behind() {
    let world = after_talk("forked", [measured(95)]).when(steer("c")).world;
    let forked = SessionForked {
        from: world.session.id,
        at_seq: world.session.seq,
        title: None,
        model: None,
        workspace_path: None,
        labels: vec![],
    };
    let mut copied = world.session.clone();
    copied.id = SessionId::new(Ulid::from_parts(world.now_ms, 77));
    let mut moment = Moment::new(Timestamp::from_ms(world.now_ms), 9 << 20);
    let decision = fork(&copied, forked, Actor::user("test"), &mut moment);
    assert_eq!(decision.state.compaction, None);
    assert_eq!(decision.state.wanted(), []);
    assert!(decision.events.iter().any(|event| matches!(event.body, Body::TurnInterrupted(_))));
}

#[test]
fn what_waits_is_not_left_behind() {
    let waits = || [append("c"), steer("d"), say("e"), measured(95), summary()];
    let world = after_talk("all kinds of waiting", waits()).when(reply()).world;
    let shown = [SUMMARY, "user: b", "user: d", "assistant: text", "user: c", "user: e"];
    assert_eq!(messages(&world), shown);
}

#[test]
fn a_turn_of_long_ago_can_be_retried() {
    let script = [say("a"), fault(FaultKind::Auth), say("b"), reply(), compact(), summary()];
    let world = case("retried").given(script).when(retry("t1")).world;
    assert!(world.session.context_from > 2, "the message stands before the context");
    assert_eq!(messages(&world), [SUMMARY, "assistant: text", "user: a"]);
    let script = [say("a"), fault(FaultKind::Auth), say("b"), reply(), compact(), summary(), say("c"), retry("t1")];
    let world =
        case("behind another, past one more").given(script).given([measured(95), summary()]).when(reply()).world;
    assert!(world.session.context_from > 2, "the context does not grow back for it");
    assert_eq!(messages(&world), [SUMMARY, "user: c", "assistant: text", "user: a"]);
    let script = [say("a"), fault(FaultKind::Auth), say("b"), reply(), compact(), summary(), retry("t1"), compact()];
    let world = case("kept by one more").given(script).when(summary()).world;
    assert_eq!(messages(&world), [SUMMARY, "user: a"]);
}

#[test]
fn a_call_stays_with_its_result() {
    let open = [asks([read("r1"), read("r2")]), done("r1"), compact(), summary()];
    let world = after_talk("one is open", open).when(done("r2")).world;
    assert_eq!(
        messages(&world),
        [SUMMARY, "assistant: text r1 r2", "tool r1 ok: result of r1", "tool r2 ok: result of r2"]
    );
}

#[test]
fn a_summary_gives_way_to_the_next() {
    let script = [measured(95), summary(), reply(), say("c"), compact(), summary()];
    let world = after_talk("twice", script).when(reply()).world;
    assert_eq!(messages(&world), [SUMMARY, "user: c", "assistant: text"]);
    let transcript = transcript(&world);
    let voices: Vec<&Voice> = transcript.entries().iter().map(|entry| &entry.voice).collect();
    assert_eq!(voices, [&Voice::Summary { request: None }, &Voice::Person, &Voice::Agent]);
}

#[test]
fn the_last_request_is_told_word_by_word() {
    let mut world = after_talk("asked", [compact()]).world();
    let Step::Tell(told) = summary() else { unreachable!() };
    let tenure_core::command::Input::Compacted { attempt, mut compacted } = told(&world) else { unreachable!() };
    compacted.request = Some("mend ${secret:DOOR}".into());
    compacted.secrets = vec!["DOOR".into()];
    world.tell(tenure_core::command::Input::Compacted { attempt, compacted }).expect("it is taken");
    let expected = "user: The earlier part of this conversation was summarized.\n\nThe user's last request in it, word by \
                    word:\nmend ${secret:DOOR}\n\nThe summary:\nwhat was before";
    assert_eq!(messages(&world), [expected, "user: b"]);
    assert_eq!(transcript(&world).shown_secrets().into_iter().collect::<Vec<_>>(), ["DOOR"]);
}

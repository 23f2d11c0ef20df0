//! After a crash: what was cut is named and classed, and goes on where the policy says so.

use tenure_core::{
    command::{Input, Partial},
    event::Event,
    model::FaultKind,
    policy::{Policy, Resume},
    tool::CallClass,
};

use crate::{case::case, steps::*, world::fold};

/// Interrupted turns wait for `resume`.
pub fn asking() -> Policy {
    resuming(Resume::Ask)
}

pub fn resuming(resume: Resume) -> Policy {
    let mut policy = Policy::default();
    policy.recovery.resume = resume;
    policy.approval.require_for_kinds.clear();
    policy
}

#[test]
fn a_cut_model_call_is_a_failed_attempt() {
    case("the text that was shown is kept, and the next attempt has its own number")
        .given([say("hi")])
        .when(crash_with([], "Half a"))
        .then(
            &["model_attempt_failed 1.1 interrupted 'Half a'", "turn_interrupted t1", "turn_resumed t1 automatic"],
            &["CallModel 1.2"],
        );
    case("ask: it waits")
        .policy(asking())
        .given([say("hi")])
        .when(crash_with([], "Half a"))
        .then(&["model_attempt_failed 1.1 interrupted 'Half a'", "turn_interrupted t1"], &[])
        .status("active", "t1 interrupted");
    case("a steer that waited goes along").given([say("hi"), steer("b")]).when(crash()).then(
        &[
            "model_attempt_failed 1.1 interrupted",
            "turn_interrupted t1",
            "turn_resumed t1 automatic",
            "message_delivered m2 step 1",
        ],
        &["CallModel 1.2"],
    );
    case("late answers of the attempt that was cut are stale")
        .given([say("hi"), crash()])
        .when(late_reply("t1", 1, 1))
        .refused("stale");
    case("a later step").given([say("hi"), asks([read("r1")]), done("r1")]).when(crash()).then(
        &["model_attempt_failed 2.1 interrupted", "turn_interrupted t1", "turn_resumed t1 automatic"],
        &["CallModel 2.2"],
    );
}

#[test]
fn what_only_waits_stays_as_it_is() {
    case("nothing open").when(crash()).then(&[], &[]);
    case("settled").given([say("hi"), reply()]).when(crash()).then(&[], &[]);
    case("an approval")
        .given([say("hi"), asks([shell("s1", "ls")])])
        .when(crash())
        .then(&[], &[])
        .status("waiting_approval", "t1 waiting_approval");
    case("is answered afterwards")
        .given([say("hi"), asks([shell("s1", "ls")]), crash()])
        .when(approve("s1"))
        .then(&["approval_granted s1 once", "tool_call_started s1 run 1"], &["RunTool s1 run 1"]);
    case("a budget")
        .budgets(tenure_core::budget::Budgets { max_steps: Some(0), ..unlimited() })
        .given([say("hi")])
        .when(crash())
        .then(&[], &[])
        .status("active", "t1 waiting_budget");
    case("a backoff").given([say("hi"), fault(FaultKind::Server)]).when(crash()).then(&[], &["CallModel 1.2 +500"]);
    case("an interrupted turn")
        .policy(asking())
        .given([say("hi"), crash()])
        .when(crash())
        .then(&[], &[])
        .status("active", "t1 interrupted");
    case("messages that were only appended").given([append("hi")]).when(crash()).then(&[], &[]);
}

/// No session of ours comes to this by itself; a log from elsewhere may.
#[test]
fn a_queued_turn_behind_nothing_starts() {
    let mut world = case("queued").given([say("hi"), say("two")]).world();
    let is_first = |event: &Event| event.turn_id == world.session.turn.as_ref().map(|turn| turn.id);
    let mut events: Vec<Event> = world.events.iter().filter(|event| !is_first(event)).cloned().collect();
    events.iter_mut().zip(1..).for_each(|(event, seq)| event.seq = seq);
    (world.session, world.events) = (fold(&events), events);
    assert_eq!((world.session.turn.is_some(), world.session.queue.len()), (false, 1));
    world.tell(Input::Recover { classes: vec![], restore: None, partial: Partial::default(), seen: None }).unwrap();
    assert_eq!((world.session.turn.is_some(), world.session.queue.len()), (true, 0));
    assert_eq!(world.show_wanted(), ["CallModel 1.1"]);
}

#[test]
fn an_unknown_read_is_run_again() {
    case("one").given([say("hi"), asks([read("r1")])]).when(crash()).then(
        &["turn_interrupted t1 r1=unknown", "turn_resumed t1 automatic", "tool_call_started r1 run 2"],
        &["RunTool r1 run 2"],
    );
    case("two, one of them finished")
        .given([say("hi"), asks([read("r1"), read("r2")]), done("r1")])
        .when(crash())
        .then(
            &["turn_interrupted t1 r2=unknown", "turn_resumed t1 automatic", "tool_call_started r2 run 2"],
            &["RunTool r2 run 2"],
        );
    case("the first run's late answer is stale")
        .given([say("hi"), asks([read("r1")]), crash()])
        .when(late_done("t1", "r1", 1))
        .refused("stale");
    case("ask: it waits")
        .policy(asking())
        .given([say("hi"), asks([read("r1")])])
        .when(crash())
        .then(&["turn_interrupted t1 r1=unknown"], &[]);
    case("no traces can class a read: it is run again")
        .given([say("hi"), asks([read("r1")])])
        .when(crash_with([("r1", CallClass::Finished)], ""))
        .then(
            &["turn_interrupted t1 r1=unknown", "turn_resumed t1 automatic", "tool_call_started r1 run 2"],
            &["RunTool r1 run 2"],
        );
}

#[test]
fn unknown_exec_and_network_are_never_run_again() {
    for (name, call) in [("exec", shell("x1", "ls")), ("network", fetch("x1"))] {
        case(name)
            .policy(resuming(Resume::Safe))
            .given([say("hi"), asks([call.clone()])])
            .when(crash())
            .then(&["turn_interrupted t1 x1=unknown"], &[])
            .status("active", "t1 interrupted");
        case("always: the model is told and goes on")
            .policy(resuming(Resume::Always))
            .given([say("hi"), asks([call.clone()])])
            .when(crash())
            .then(
                &[
                    "turn_interrupted t1 x1=unknown",
                    "turn_resumed t1 automatic",
                    "tool_call_completed x1 unknown failed",
                ],
                &["CallModel 2.1"],
            );
        for class in [CallClass::NotStarted, CallClass::Finished] {
            case("no class makes it run again")
                .policy(resuming(Resume::Safe))
                .given([say("hi"), asks([call.clone()])])
                .when(crash_with([("x1", class)], ""))
                .then(&["turn_interrupted t1 x1=unknown"], &[]);
        }
    }
    case("calls behind it go on")
        .policy(resuming(Resume::Always))
        .given([say("hi"), asks([shell("s1", "a"), shell("s2", "b")])])
        .when(crash())
        .then(
            &[
                "turn_interrupted t1 s1=unknown",
                "turn_resumed t1 automatic",
                "tool_call_completed s1 unknown failed",
                "tool_call_started s2 run 1",
            ],
            &["RunTool s2 run 1"],
        );
    let world = case("the model is told that nobody knows")
        .policy(resuming(Resume::Always))
        .given([say("hi"), asks([shell("s1", "a")])])
        .when(crash())
        .world;
    let results = world.results_of("s1");
    assert_eq!(results.len(), 1);
    assert!(results[0].contains("outcome of this call is unknown"), "{}", results[0]);
    assert!(results[0].contains("not run again"), "{}", results[0]);
}

#[test]
fn writes_are_classed_by_their_traces() {
    let started = || [say("hi"), asks([write("w1")]), prepared("w1")];
    case("finished: its outcome is recorded")
        .given(started())
        .when(crash_with([("w1", CallClass::Finished)], ""))
        .then(
            &["turn_interrupted t1 w1=finished", "tool_call_completed w1 finished ok", "turn_resumed t1 automatic"],
            &["CallModel 2.1"],
        );
    case("finished, ask: recorded, but the turn waits")
        .policy(asking())
        .given(started())
        .when(crash_with([("w1", CallClass::Finished)], ""))
        .then(&["turn_interrupted t1 w1=finished", "tool_call_completed w1 finished ok"], &[]);
    case("not started: prepared anew")
        .given(started())
        .when(crash_with([("w1", CallClass::NotStarted)], ""))
        .then(&["turn_interrupted t1 w1=not_started", "turn_resumed t1 automatic"], &["PrepareTool w1"]);
    case("and run under a new number")
        .given(started())
        .given([crash_with([("w1", CallClass::NotStarted)], "")])
        .when(prepared("w1"))
        .then(&["tool_call_started w1 run 2"], &["RunTool w1 run 2"]);
    case("unknown: not run again")
        .given(started())
        .when(crash_with([("w1", CallClass::Unknown)], ""))
        .then(&["turn_interrupted t1 w1=unknown"], &[]);
    case("unclassed: unknown").given(started()).when(crash()).then(&["turn_interrupted t1 w1=unknown"], &[]);
    case("unknown, always: told").policy(resuming(Resume::Always)).given(started()).when(crash()).then(
        &["turn_interrupted t1 w1=unknown", "turn_resumed t1 automatic", "tool_call_completed w1 unknown failed"],
        &["CallModel 2.1"],
    );
    case("a finished write is verified at the end")
        .policy(crate::verification::trusted(&["make test"]))
        .given(started())
        .given([crash_with([("w1", CallClass::Finished)], "")])
        .when(reply())
        .then(&["model_output_completed 2.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("an unknown write is verified too")
        .policy({
            let mut policy = crate::verification::trusted(&["make test"]);
            policy.recovery.resume = Resume::Always;
            policy
        })
        .given(started())
        .given([crash()])
        .when(reply())
        .then(&["model_output_completed 2.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("one that was being prepared did nothing, but its turn was cut")
        .given([say("hi"), asks([write("w1")])])
        .when(crash())
        .then(&["turn_interrupted t1", "turn_resumed t1 automatic"], &["PrepareTool w1"]);
    case("and does not go on unasked where the policy says ask")
        .policy(asking())
        .given([say("hi"), asks([write("w1")])])
        .when(crash())
        .then(&["turn_interrupted t1"], &[]);
}

#[test]
fn calls_that_never_started_run_after_the_crash() {
    case("a read behind a write")
        .given([say("hi"), asks([write("w1"), read("r1")]), prepared("w1")])
        .when(crash_with([("w1", CallClass::Finished)], ""))
        .then(
            &[
                "turn_interrupted t1 w1=finished",
                "tool_call_completed w1 finished ok",
                "turn_resumed t1 automatic",
                "tool_call_started r1 run 1",
            ],
            &["RunTool r1 run 1"],
        );
    case("an approval beside a read that was cut still waits")
        .given([say("hi"), asks([read("r1"), shell("s1", "ls")])])
        .when(crash())
        .then(
            &["turn_interrupted t1 r1=unknown", "turn_resumed t1 automatic", "tool_call_started r1 run 2"],
            &["RunTool r1 run 2"],
        )
        .status("waiting_approval", "t1 waiting_approval");
    case("a yes is taken while the turn is interrupted, and starts nothing")
        .policy({
            let mut policy = Policy::default();
            policy.recovery.resume = Resume::Ask;
            policy
        })
        .given([say("hi"), asks([read("r1"), shell("s1", "ls")]), crash()])
        .when(approve("s1"))
        .then(&["approval_granted s1 once"], &[])
        .status("active", "t1 interrupted");
}

#[test]
fn a_cut_verification_is_told_and_repeated_after_the_next_word() {
    let case = |name| {
        let mut policy = crate::verification::trusted(&["make test"]);
        policy.recovery.resume = Resume::Always;
        case(name).policy(policy).given([say("hi"), asks([write("w1")]), prepared("w1"), done("w1"), reply()])
    };
    case("told").when(crash()).then(
        &[
            "turn_interrupted t1 verify=unknown",
            "turn_resumed t1 automatic",
            "tool_call_completed verify unknown failed",
        ],
        &["CallModel 3.1"],
    );
    case("the write is still unverified")
        .given([crash()])
        .when(reply())
        .then(&["model_output_completed 3.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
}

#[test]
fn a_turn_goes_on_by_itself_three_times_without_progress() {
    let crashes = |count: usize| {
        let mut script = vec![say("hi")];
        script.extend((0..count).map(|_| crash()));
        script
    };
    case("the third").given(crashes(2)).when(crash()).then(
        &["model_attempt_failed 1.3 interrupted", "turn_interrupted t1", "turn_resumed t1 automatic"],
        &["CallModel 1.4"],
    );
    case("the fourth waits for a person")
        .given(crashes(3))
        .when(crash())
        .then(&["model_attempt_failed 1.4 interrupted", "turn_interrupted t1"], &[])
        .status("active", "t1 interrupted");
    case("progress starts the count anew").given(crashes(3)).given([asks([read("r1")])]).when(crash()).then(
        &["turn_interrupted t1 r1=unknown", "turn_resumed t1 automatic", "tool_call_started r1 run 2"],
        &["RunTool r1 run 2"],
    );
    case("a tool that kills the daemon is not run for ever")
        .given([say("hi"), asks([read("r1")]), crash(), crash(), crash()])
        .when(crash())
        .then(&["turn_interrupted t1 r1=unknown"], &[]);
    case("nor one that does so while it is prepared")
        .given([say("hi"), asks([write("w1")]), crash(), crash(), crash()])
        .when(crash())
        .then(&["turn_interrupted t1"], &[]);
    case("a person lets it go on").given(crashes(4)).given([resume("t1")]).when(crash()).then(
        &["model_attempt_failed 1.5 interrupted", "turn_interrupted t1", "turn_resumed t1 automatic"],
        &["CallModel 1.6"],
    );
}

#[test]
fn a_paused_turn_whose_tool_was_cut_pauses_again() {
    case("budget")
        .budgets(tenure_core::budget::Budgets { max_tool_calls: Some(1), ..unlimited() })
        .given([say("hi"), asks([read("r1"), read("r2")])])
        .when(crash())
        .then(
            &[
                "turn_interrupted t1 r1=unknown",
                "turn_resumed t1 automatic",
                "tool_call_started r1 run 2",
                "budget_reached tool_calls 1 of 1",
            ],
            &["RunTool r1 run 2"],
        );
}

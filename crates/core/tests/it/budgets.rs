//! Budgets: steps, calls, time, tokens, money. A breach pauses the turn; raising it lets the same turn go on.

use tenure_core::{
    budget::Budgets,
    command::{Input, Partial},
    event::Body,
    model::{Fault, FaultKind, Usage},
};

use crate::{case::case, steps::*};

fn limit(change: impl FnOnce(&mut Budgets)) -> Budgets {
    let mut budgets = unlimited();
    change(&mut budgets);
    budgets
}

fn steps(max: u64) -> Budgets {
    limit(|budgets| budgets.max_steps = Some(max))
}

fn calls(max: u64) -> Budgets {
    limit(|budgets| budgets.max_tool_calls = Some(max))
}

fn tokens(max: u64) -> Budgets {
    limit(|budgets| budgets.max_tokens = Some(max))
}

fn money(max: u64) -> Budgets {
    limit(|budgets| budgets.max_micro_usd = Some(max))
}

fn time(max: u64) -> Budgets {
    limit(|budgets| budgets.max_duration_ms = Some(max))
}

#[test]
fn a_breach_pauses_the_turn() {
    case("steps")
        .budgets(steps(1))
        .given([say("hi"), asks([read("r1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok", "budget_reached steps 1 of 1"], &[])
        .status("active", "t1 waiting_budget");
    case("calls: those that run go on").budgets(calls(1)).given([say("hi")]).when(asks([read("r1"), read("r2")])).then(
        &["model_output_completed 1.1 r1 r2", "tool_call_started r1 run 1", "budget_reached tool_calls 1 of 1"],
        &["RunTool r1 run 1"],
    );
    case("their results are still taken")
        .budgets(calls(1))
        .given([say("hi"), asks([read("r1"), read("r2")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok"], &[])
        .status("active", "t1 waiting_budget");
    // Each reply takes 10 + 5 + 1 tokens; the hundred read from a cache do not count.
    case("tokens not yet")
        .budgets(tokens(17))
        .given([say("hi"), asks([read("r1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok"], &["CallModel 2.1"]);
    case("tokens")
        .budgets(tokens(16))
        .given([say("hi"), asks([read("r1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok", "budget_reached tokens 16 of 16"], &[]);
    case("money not yet")
        .budgets(money(8))
        .given([say("hi"), asks([read("r1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok"], &["CallModel 2.1"]);
    case("money")
        .budgets(money(7))
        .given([say("hi"), asks([read("r1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok", "budget_reached money 7 of 7"], &[]);
    case("time before a step")
        .budgets(time(100))
        .given([say("hi"), asks([read("r1")]), wait(100)])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok", "budget_reached duration 100 of 100"], &[]);
    case("time before a call")
        .budgets(time(100))
        .given([say("hi"), wait(150)])
        .when(asks([read("r1")]))
        .then(&["model_output_completed 1.1 r1", "budget_reached duration 150 of 100"], &[]);
    case("a write is stopped when its intent would be recorded")
        .budgets(calls(1))
        .given([say("hi"), asks([read("r1"), write("w1")]), done("r1")])
        .when(prepared("w1"))
        .then(&["budget_reached tool_calls 1 of 1"], &[]);
    case("an approved call too")
        .budgets(calls(0))
        .given([say("hi"), asks([shell("s1", "ls")])])
        .when(approve("s1"))
        .then(&["approval_granted s1 once", "budget_reached tool_calls 0 of 0"], &[]);
    case("verification too")
        .policy(crate::verification::trusted(&["make test"]))
        .budgets(calls(1))
        .given([say("hi"), asks([write("w1")]), prepared("w1"), done("w1")])
        .when(reply())
        .then(&["model_output_completed 2.1", "budget_reached tool_calls 1 of 1"], &[]);
    case("no step at all")
        .budgets(steps(0))
        .when(say("hi"))
        .then(&["message_added m1 t1", "turn_started t1 m1", "budget_reached steps 0 of 0"], &[]);
    case("a steer that the budget holds back")
        .budgets(steps(1))
        .given([say("hi"), steer("b")])
        .when(reply())
        .then(&["model_output_completed 1.1", "budget_reached steps 1 of 1"], &[]);
    case("failed attempts count their tokens, and another one needs room")
        .budgets(tokens(10))
        .given([say("hi")])
        .when(fault_with(
            Fault::new(FaultKind::Server, "x"),
            Partial { usage: Usage { output_tokens: 12, ..Default::default() }, ..Default::default() },
        ))
        .then(&["model_attempt_failed 1.1 server retry +500", "budget_reached tokens 12 of 10"], &[]);
}

#[test]
fn time_ends_what_runs() {
    case("it is watched while the turn is active")
        .budgets(time(100))
        .given([wait(7)])
        .when(say("hi"))
        .then(&["message_added m1 t1", "turn_started t1 m1"], &["TimeUp +100", "CallModel 1.1"]);
    case("what was used before counts")
        .budgets(time(100))
        .given([say("hi"), wait(40)])
        .when(asks([read("r1")]))
        .then(&["model_output_completed 1.1 r1", "tool_call_started r1 run 1"], &["TimeUp +60", "RunTool r1 run 1"]);
    case("not while a person is asked")
        .budgets(time(100))
        .given([say("hi"), wait(40)])
        .when(asks([shell("s1", "ls")]))
        .then(&["model_output_completed 1.1 s1", "approval_requested s1"], &[]);
    case("a call that runs is work, also while a person is asked of another")
        .budgets(time(100))
        .given([say("hi"), wait(40)])
        .when(asks([read("r1"), shell("s1", "ls")]))
        .then(
            &["model_output_completed 1.1 r1 s1", "approval_requested s1", "tool_call_started r1 run 1"],
            &["TimeUp +60", "RunTool r1 run 1"],
        );
    case("it is ended in time, and the question stays")
        .budgets(time(100))
        .given([say("hi"), asks([read("r1"), shell("s1", "ls")]), wait(100)])
        .when(cut("r1"))
        .then(&["tool_call_completed r1 canceled failed"], &[])
        .status("waiting_approval", "t1 waiting_approval");
    case("a yes does not bring more time")
        .budgets(time(100))
        .given([say("hi"), asks([read("r1"), shell("s1", "ls")]), wait(100), cut("r1"), wait(999)])
        .when(approve("s1"))
        .then(&["approval_granted s1 once", "budget_reached duration 100 of 100"], &[]);
    case("not before its time").budgets(time(100)).given([say("hi"), wait(99)]).when(time_up()).refused("stale");
    case("nothing ran")
        .budgets(time(100))
        .given([say("hi"), wait(110)])
        .when(time_up())
        .then(&["budget_reached duration 110 of 100"], &[])
        .status("active", "t1 waiting_budget");
    let stopped = || fault_with(Fault::new(FaultKind::Canceled, "the time is up"), Partial::default());
    case("a model call")
        .budgets(time(100))
        .given([say("hi"), wait(100)])
        .when(stopped())
        .then(&["model_attempt_failed 1.1 canceled", "budget_reached duration 100 of 100"], &[]);
    case("another attempt follows when there is more")
        .budgets(time(100))
        .given([say("hi"), wait(100), stopped()])
        .when(raise(time(150)))
        .then(&["budget_raised"], &["TimeUp +50", "CallModel 1.2"]);
    case("a tool call")
        .budgets(time(100))
        .given([say("hi"), asks([read("r1")]), wait(100)])
        .when(cut("r1"))
        .then(&["tool_call_completed r1 canceled failed", "budget_reached duration 100 of 100"], &[]);
    case("calls beside each other")
        .budgets(time(100))
        .given([say("hi"), asks([read("r1"), read("r2"), write("w1")]), wait(100)])
        .when(cut("r1"))
        .then(&["tool_call_completed r1 canceled failed"], &["TimeUp +0", "RunTool r2 run 1"]);
}

#[test]
fn what_a_crash_cut_counts_as_far_as_it_was_seen() {
    let mut world = case("seen").given([say("hi")]).when(wait(500)).world;
    let seen = world.now();
    world.now_ms += 100_000;
    world
        .tell(Input::Recover { classes: vec![], restore: None, partial: Partial::default(), seen: Some(seen) })
        .unwrap();
    assert_eq!(world.session.spent().active_ms, 500);
    assert_eq!(world.session.turn.as_ref().unwrap().clock, world.now());
}

#[test]
fn what_needs_no_more_is_not_stopped() {
    case("the last word within the last step")
        .budgets(steps(1))
        .given([say("hi")])
        .when(reply())
        .then(&["model_output_completed 1.1", "turn_completed t1 not_needed"], &[]);
    case("over every limit at the end")
        .budgets(Budgets {
            max_steps: Some(1),
            max_tool_calls: Some(0),
            max_duration_ms: Some(1),
            max_tokens: Some(1),
            max_micro_usd: Some(1),
        })
        .given([say("hi"), wait(50)])
        .when(reply())
        .then(&["model_output_completed 1.1", "turn_completed t1 not_needed"], &[]);
    case("a denied call counts as none")
        .budgets(calls(1))
        .given([say("hi"), asks([shell("s1", "ls"), read("r1")])])
        .when(deny("s1"))
        .then(
            &["approval_denied s1 once", "tool_call_completed s1 not_run failed", "tool_call_started r1 run 1"],
            &["RunTool r1 run 1"],
        );
    case("a read that is run again counts once")
        .budgets(calls(1))
        .given([say("hi"), asks([read("r1")])])
        .when(crash())
        .then(
            &["turn_interrupted t1 r1=unknown", "turn_resumed t1 automatic", "tool_call_started r1 run 2"],
            &["RunTool r1 run 2"],
        );
    case("budgets are per turn")
        .budgets(steps(1))
        .given([say("hi"), reply()])
        .when(say("more"))
        .then(&["message_added m2 t2", "turn_started t2 m2"], &["CallModel 1.1"]);
}

#[test]
fn an_unknown_price_never_trips_a_money_budget() {
    case("unknown alone")
        .budgets(money(1))
        .given([say("hi"), asks_costing(None, [read("r1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok"], &["CallModel 2.1"]);
    case("known costs beside unknown ones still do")
        .budgets(money(7))
        .given([say("hi"), asks_costing(None, [read("r1")]), done("r1"), asks([read("r2")])])
        .when(done("r2"))
        .then(&["tool_call_completed r2 finished ok", "budget_reached money 7 of 7"], &[]);
    for (name, script, cost) in [
        ("known", vec![say("hi"), reply_costing(Some(3))], Some(3)),
        ("free", vec![say("hi"), reply_costing(Some(0))], Some(0)),
        ("unknown, never 0", vec![say("hi"), reply_costing(None)], None),
        ("one unknown step", vec![say("hi"), asks([read("r1")]), done("r1"), reply_costing(None)], None),
    ] {
        let mut script = script;
        let last = script.pop().unwrap();
        let world = case(name).given(script).when(last).world;
        let Body::TurnCompleted(done) = &world.events.last().unwrap().body else { panic!("{name}: completed") };
        assert_eq!(done.cost_micro_usd, cost, "{name}");
    }
}

#[test]
fn a_reply_without_tokens_or_price_is_not_free() {
    let mut world = crate::world::World::new(crate::world::plain());
    let mut tell = |step: Step| {
        let Step::Tell(input) = step else { unreachable!() };
        let mut input = input(&world);
        if let tenure_core::command::Input::ModelDone { output, .. } = &mut input {
            output.usage = Usage::default();
        }
        world.tell(input).unwrap();
    };
    tell(say("hi"));
    tell(reply_costing(None));
    assert_eq!(world.session.total.cost(), None);
}

#[test]
fn raising_lets_the_same_turn_go_on() {
    case("a step")
        .budgets(steps(1))
        .given([say("hi"), asks([read("r1")]), done("r1")])
        .when(raise(steps(2)))
        .then(&["budget_raised"], &["CallModel 2.1"])
        .status("active", "t1 running");
    case("no limit at all")
        .budgets(steps(1))
        .given([say("hi"), asks([read("r1")]), done("r1")])
        .when(raise(unlimited()))
        .then(&["budget_raised"], &["CallModel 2.1"]);
    case("a call")
        .budgets(calls(1))
        .given([say("hi"), asks([read("r1"), read("r2")]), done("r1")])
        .when(raise(calls(2)))
        .then(&["budget_raised", "tool_call_started r2 run 1"], &["RunTool r2 run 1"]);
    case("a call beside one that still runs")
        .budgets(calls(1))
        .given([say("hi"), asks([read("r1"), read("r2")])])
        .when(raise(calls(2)))
        .then(&["budget_raised", "tool_call_started r2 run 1"], &["RunTool r1 run 1", "RunTool r2 run 1"]);
    case("a write is prepared anew")
        .budgets(calls(0))
        .given([say("hi"), asks([write("w1")]), prepared("w1")])
        .when(raise(calls(1)))
        .then(&["budget_raised"], &["PrepareTool w1"]);
    case("verification")
        .policy(crate::verification::trusted(&["make test"]))
        .budgets(calls(1))
        .given([say("hi"), asks([write("w1")]), prepared("w1"), done("w1"), reply()])
        .when(raise(calls(2)))
        .then(&["budget_raised", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("a steer that waited is delivered")
        .budgets(steps(1))
        .given([say("hi"), steer("b"), reply()])
        .when(raise(steps(2)))
        .then(&["budget_raised", "message_delivered m2 step 2"], &["CallModel 2.1"]);
    case("too little pauses again")
        .budgets(tokens(10))
        .given([say("hi"), asks([read("r1")]), done("r1")])
        .when(raise(tokens(12)))
        .then(&["budget_raised", "budget_reached tokens 16 of 12"], &[]);
    case("raised while nothing waits")
        .budgets(steps(1))
        .given([say("hi")])
        .when(raise(steps(2)))
        .then(&["budget_raised"], &["CallModel 1.1"]);
    case("after a failed attempt, its wait still holds")
        .budgets(tokens(10))
        .given([
            say("hi"),
            fault_with(
                Fault::new(FaultKind::Server, "x"),
                Partial { usage: Usage { output_tokens: 12, ..Default::default() }, ..Default::default() },
            ),
        ])
        .when(raise(tokens(100)))
        .then(&["budget_raised"], &["CallModel 1.2 +500"]);
}

#[test]
fn a_budget_is_only_raised() {
    case("lowered").budgets(steps(5)).when(raise(steps(4))).refused("budget_lowered");
    case("a limit where there was none").budgets(unlimited()).when(raise(steps(9))).refused("budget_lowered");
    case("one raised, one lowered")
        .budgets(limit(|budgets| (budgets.max_steps, budgets.max_tokens) = (Some(5), Some(5))))
        .when(raise(limit(|budgets| (budgets.max_steps, budgets.max_tokens) = (Some(9), Some(4)))))
        .refused("budget_lowered");
    let told = |now: fn(&mut Budgets), wanted: fn(&mut Budgets)| {
        let when = case("told").budgets(limit(now)).when(raise(limit(wanted)));
        when.refusal().message.clone()
    };
    let money = told(|budgets| budgets.max_micro_usd = Some(2_500_000), |budgets| budgets.max_micro_usd = Some(1));
    assert_eq!(money, "a turn may use $2.50 now, and a limit can only be raised");
    let finer = told(|budgets| budgets.max_micro_usd = Some(12_340), |budgets| budgets.max_micro_usd = Some(1));
    assert_eq!(finer, "a turn may use $0.01234 now, and a limit can only be raised");
    let time = told(|budgets| budgets.max_duration_ms = Some(5_400_000), |budgets| budgets.max_duration_ms = Some(1));
    assert_eq!(time, "a turn may use 90 min now, and a limit can only be raised");
    let none = told(|_| {}, |budgets| budgets.max_tool_calls = Some(1));
    assert_eq!(none, "there is no limit on tool calls now, and one can only be raised");
    case("the same again changes nothing").budgets(steps(5)).when(raise(steps(5))).then(&[], &[]).answers("updated 1");
}

#[test]
fn unattended_a_breach_ends_the_turn() {
    case("it is stopped")
        .unattended()
        .budgets(steps(1))
        .given([say("hi"), asks([read("r1")])])
        .when(done("r1"))
        .then(&["tool_call_completed r1 finished ok", "budget_reached steps 1 of 1"], &["ReportGone t1"]);
    case("it ends as expired, with what it has")
        .unattended()
        .budgets(steps(1))
        .given([say("hi"), asks([read("r1")]), done("r1")])
        .when(gone())
        .then(&["turn_expired t1 steps 1 of 1"], &[])
        .status("active", "t1 expired");
    case("calls that ran or waited get a result first")
        .unattended()
        .budgets(calls(1))
        .given([say("hi"), asks([read("r1"), read("r2")])])
        .when(gone())
        .then(
            &[
                "tool_call_completed r1 canceled failed",
                "tool_call_completed r2 not_run failed",
                "turn_expired t1 tool_calls 1 of 1",
            ],
            &[],
        );
    case("the queue goes on")
        .unattended()
        .budgets(steps(1))
        .given([say("hi"), say("more"), asks([read("r1")]), done("r1")])
        .when(gone())
        .then(&["turn_expired t1 steps 1 of 1", "turn_started t2 m2"], &["CallModel 1.1"]);
}

#[test]
fn time_counts_only_while_the_turn_is_active() {
    for (name, script, active_ms) in [
        ("the model and the tools", vec![say("a"), wait(5), asks([read("r1")]), wait(7), done("r1")], 12),
        (
            "not while a yes is waited for",
            vec![say("a"), wait(5), asks([shell("s1", "ls")]), wait(999), approve("s1"), wait(3), done("s1")],
            8,
        ),
        (
            "a call that runs beside a question counts, and the question alone does not",
            vec![
                say("a"),
                asks([read("r1"), shell("s1", "ls")]),
                wait(7),
                done("r1"),
                wait(999),
                approve("s1"),
                wait(3),
                done("s1"),
            ],
            10,
        ),
        (
            "not while the daemon was away: a call beside a question",
            vec![say("a"), asks([read("r1"), shell("s1", "ls")]), wait(9999), crash(), wait(2), done("r1")],
            2,
        ),
        ("a backoff counts", vec![say("a"), wait(5), fault(FaultKind::Server), wait(500), asks([read("r1")])], 505),
        (
            "not while the daemon was away: model",
            vec![say("a"), asks([read("r1")]), wait(1), done("r1"), wait(9999), crash(), wait(2), asks([read("r2")])],
            3,
        ),
        (
            "not while the daemon was away: tool",
            vec![say("a"), asks([read("r1")]), wait(9999), crash(), wait(2), done("r1")],
            2,
        ),
        (
            "not while the daemon was away: a write being prepared",
            vec![say("a"), asks([write("w1")]), wait(9999), crash(), wait(2), prepared("w1")],
            2,
        ),
        (
            "a clock that is set back takes nothing away",
            vec![say("a"), wait(50), asks([read("r1")]), rewind(40), done("r1")],
            50,
        ),
    ] {
        let mut script = script;
        let last = script.pop().unwrap();
        let world = case(name).given(script).when(last).world;
        assert_eq!(world.session.turn.as_ref().unwrap().spent.active_ms, active_ms, "{name}");
    }
    let world = case("not while a budget is waited for")
        .budgets(steps(1))
        .given([say("a"), wait(5), asks([read("r1")]), done("r1"), wait(999)])
        .when(raise(steps(2)))
        .world;
    assert_eq!(world.session.turn.as_ref().unwrap().spent.active_ms, 5);
}

#[test]
fn absurd_counts_of_a_vendor_do_no_harm() {
    let absurd = Usage { input_tokens: u64::MAX, output_tokens: u64::MAX, cache_read_tokens: 1, cache_write_tokens: 9 };
    let partial = Partial { usage: absurd, cost: Some(u64::MAX), ..Default::default() };
    case("twice")
        .given([say("hi"), fault_with(Fault::new(FaultKind::Server, "x"), partial.clone())])
        .when(fault_with(Fault::new(FaultKind::Server, "x"), partial))
        .then(&["model_attempt_failed 1.2 server retry +1000"], &["CallModel 1.3 +1000"]);
}

//! Changing a session, and its end: once, and then nothing more.

use tenure_core::{
    command::{Command, Update},
    policy::{Policy, Rule, RuleAction},
    tool::{ToolKind, VerifySource},
};

use crate::{case::case, steps::*};

fn asking_for_writes() -> Policy {
    let mut policy = Policy::default();
    policy.approval.require_for_kinds.push(ToolKind::Write);
    policy
}

#[test]
fn updates() {
    case("a title").when(rename("new", None)).then(&["session_updated title new"], &[]).answers("updated 2");
    case("as seen").when(rename("new", Some(1))).then(&["session_updated title new"], &[]);
    case("others came since").given([append("x")]).when(rename("new", Some(1))).refused("version_mismatch");
    case("a version yet to come").when(rename("new", Some(2))).refused("version_mismatch");
    case("labels and title together")
        .when(command(Command::Update(Box::new(Update {
            title: Some("t".into()),
            labels: Some(vec!["a".into(), "b".into()]),
            ..Update::default()
        }))))
        .then(&["session_updated title t labels a,b"], &[]);
    case("nothing at all").when(command(Command::Update(Box::default()))).then(&[], &[]).answers("updated 1");
    case("all or nothing: a lowered budget keeps the title too")
        .when(command(Command::Update(Box::new(Update {
            title: Some("t".into()),
            budgets: Some(tenure_core::budget::Budgets { max_steps: Some(1), ..unlimited() }),
            ..Update::default()
        }))))
        .refused("budget_lowered");
    case("both in one")
        .when(command(Command::Update(Box::new(Update {
            title: Some("t".into()),
            budgets: Some(unlimited()),
            ..Update::default()
        }))))
        .then(&["session_updated title t", "budget_raised"], &[])
        .answers("updated 3");
    let elsewhere = || {
        let (model, workspace_path) = (Some("other".into()), Some("/other".into()));
        command(Command::Update(Box::new(Update { model, workspace_path, ..Update::default() })))
    };
    let moved = case("another model and folder").when(elsewhere()).then(&["session_updated"], &[]);
    let settings = &moved.world.session.settings;
    assert_eq!((settings.model.as_str(), settings.workspace_path.as_str()), ("other", "/other"));
    case("not under an open turn").given([say("hi")]).when(elsewhere()).refused("turn_open");
}

#[test]
fn a_new_policy_holds_at_once() {
    case("a write that may not start any more is asked for, and does not hang")
        .given([say("hi"), asks([write("w1")])])
        .when(change_policy(asking_for_writes()))
        .then(&["session_updated policy", "approval_requested w1"], &[])
        .status("waiting_approval", "t1 waiting_approval");
    case("a write that is forbidden now")
        .given([say("hi"), asks([write("w1")])])
        .when(change_policy({
            let mut policy = Policy::default();
            policy.approval.rules =
                vec![Rule { tool: "write_file".into(), pattern: None, exact: None, action: RuleAction::Deny }];
            policy
        }))
        .then(
            &["session_updated policy", "approval_denied w1 once by policy", "tool_call_completed w1 not_run failed"],
            &["CallModel 2.1"],
        );
    case("a call that runs goes on")
        .given([say("hi"), asks([write("w1")]), prepared("w1")])
        .when(change_policy(asking_for_writes()))
        .then(&["session_updated policy"], &["RunTool w1 run 1"]);
    case("a question that was asked stays asked")
        .given([say("hi"), asks([shell("s1", "ls")])])
        .when(change_policy(crate::recover::resuming(Default::default())))
        .then(&["session_updated policy"], &[])
        .status("waiting_approval", "t1 waiting_approval");
    case("a model call under way is left alone, and its steer waits")
        .given([say("hi"), steer("b")])
        .when(change_policy(asking_for_writes()))
        .then(&["session_updated policy"], &["CallModel 1.1"]);
    case("the next call follows it")
        .given([say("hi"), change_policy(crate::recover::resuming(Default::default()))])
        .when(asks([shell("s1", "ls")]))
        .then(&["model_output_completed 1.1 s1", "tool_call_started s1 run 1"], &["RunTool s1 run 1"]);
}

#[test]
fn the_end_of_a_session() {
    case("no turn open")
        .given([say("hi"), reply()])
        .when(end())
        .then(&["session_completed"], &[])
        .answers("ended completed")
        .status("completed", "t1 completed");
    case("with a turn open it is canceled first")
        .given([say("hi")])
        .when(end())
        .then(&["cancel_requested t1 and end"], &["ReportGone t1"])
        .answers("ended canceled");
    case("then the session")
        .given([say("hi"), asks([read("r1")]), end()])
        .when(gone())
        .then(&["tool_call_completed r1 canceled failed", "turn_canceled t1", "session_canceled"], &[])
        .status("canceled", "t1 cancelled");
    case("the queue is canceled with it")
        .given([say("a"), say("b"), say("c"), end()])
        .when(gone())
        .then(&["turn_canceled t1", "turn_canceled t2", "turn_canceled t3", "session_canceled"], &[]);
    case("while a cancel is under way")
        .given([say("hi"), cancel(), end()])
        .when(gone())
        .then(&["turn_canceled t1", "session_canceled"], &[]);
    case("a cancel does not take the end back")
        .given([say("hi"), end(), cancel()])
        .when(gone())
        .then(&["turn_canceled t1", "session_canceled"], &[]);
    case("an interrupted turn is canceled too")
        .policy(crate::recover::asking())
        .given([say("hi"), crash(), end()])
        .when(gone())
        .then(&["turn_canceled t1", "session_canceled"], &[]);
    case("idle for long").when(expire()).then(&["session_expired idle 1000"], &[]);
    case("never while a turn is open").given([say("hi")]).when(expire()).refused("stale");
    case("never while a turn waits for a yes")
        .given([say("hi"), asks([shell("s1", "ls")])])
        .when(expire())
        .refused("stale");
}

#[test]
fn after_the_end_nothing_more() {
    let ended = || [say("hi"), reply(), end()];
    let commands = [
        ("a message", say("x")),
        ("a steer", steer("x")),
        ("an appended message", append("x")),
        ("a start", start_turn()),
        ("a cancel", cancel()),
        ("a retry", retry("t1")),
        ("a resume", resume("t1")),
        ("an update", rename("x", None)),
        ("an end", end()),
    ];
    for (name, step) in commands {
        case(name).given(ended()).when(step).refused("session_ended");
    }
    case("an answer").given(ended()).when(approve("s1")).refused("session_ended");
    case("expiry").given(ended()).when(expire()).refused("stale");
    case("expiry twice").given([expire()]).when(expire()).refused("stale");
    case("a crash").given(ended()).when(crash()).then(&[], &[]);
    case("what the workspace says").given(ended()).when(found(VerifySource::Config, &["x"])).then(&[], &[]);
}

#[test]
fn a_session_that_is_being_ended_takes_nothing_new() {
    case("no message").given([say("a"), end()]).when(say("b")).refused("session_ended");
    case("no change").given([say("a"), end()]).when(rename("t", None)).refused("session_ended");
    case("ending it again asks for what is under way")
        .given([say("a"), end()])
        .when(end())
        .then(&[], &["ReportGone t1"]);
    case("and so does canceling").given([say("a"), end()]).when(cancel()).then(&[], &["ReportGone t1"]);
}

#[test]
fn the_same_words_under_the_same_key_are_the_same_update() {
    let patch = |title: &str| {
        Command::Update(Box::new(Update {
            title: Some(title.into()),
            said: Some("digest of the words".into()),
            ..Update::default()
        }))
    };
    case("also when they were laid over other settings by then")
        .given([keyed("k", command(patch("first")))])
        .when(keyed("k", command(patch("second"))))
        .then(&[], &[])
        .answers("updated 2");
}

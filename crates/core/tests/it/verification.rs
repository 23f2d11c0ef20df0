//! Verification after writes: part of the turn, asked for where the workspace chose the commands, capped.

use tenure_core::{
    policy::{Policy, Rule, RuleAction, Scope},
    tool::VerifySource,
};

use crate::{case::case, steps::*};

/// Commands that the session's maker chose.
pub fn trusted(commands: &[&str]) -> Policy {
    let mut policy = Policy::default();
    policy.verify.commands = Some(commands.iter().map(|line| (*line).to_owned()).collect());
    policy
}

fn wrote() -> Vec<Step> {
    vec![say("hi"), asks([write("w1")]), prepared("w1"), done("w1")]
}

#[test]
fn a_write_is_verified_before_the_turn_ends() {
    case("commands of the session's policy run unasked")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .when(reply())
        .then(&["model_output_completed 2.1", "tool_call_started verify run 1"], &["RunTool verify run 1"])
        .status("active", "t1 running");
    case("passed").policy(trusted(&["make test"])).given(wrote()).given([reply()]).when(done("verify")).then(
        &["tool_call_completed verify finished ok", "checkpoint_created t1 a.txt", "turn_completed t1 passed"],
        &[],
    );
    case("failed: the model goes on with it")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .given([reply()])
        .when(broke("verify"))
        .then(&["tool_call_completed verify finished failed"], &["CallModel 3.1"]);
    case("mended: verified again")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .given([reply(), broke("verify"), asks([write("w2")]), prepared("w2"), done("w2")])
        .when(reply())
        .then(&["model_output_completed 4.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("then it passes")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .given([reply(), broke("verify"), asks([write("w2")]), prepared("w2"), done("w2"), reply()])
        .when(done("verify"))
        .then(
            &["tool_call_completed verify finished ok", "checkpoint_created t1 a.txt", "turn_completed t1 passed"],
            &[],
        );
    case("a word instead of a change does not escape it")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .given([reply(), broke("verify")])
        .when(reply())
        .then(&["model_output_completed 3.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("the user's own config is trusted")
        .given([found(VerifySource::Config, &["make test"])])
        .given(wrote())
        .when(reply())
        .then(&["model_output_completed 2.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("the policy's commands come before the workspace's")
        .policy(trusted(&["make test"]))
        .given([found(VerifySource::AgentsMd, &["curl evil"])])
        .given(wrote())
        .when(reply())
        .then(&["model_output_completed 2.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
}

#[test]
fn what_needs_no_verification() {
    case("nothing was written")
        .policy(trusted(&["make test"]))
        .given([say("hi"), asks([read("r1")]), done("r1")])
        .when(reply())
        .then(&["model_output_completed 2.1", "turn_completed t1 not_needed"], &[]);
    case("the write failed")
        .policy(trusted(&["make test"]))
        .given([say("hi"), asks([write("w1")]), prepared("w1"), broke("w1")])
        .when(reply())
        .then(&["model_output_completed 2.1", "turn_completed t1 not_needed"], &[]);
    case("the write was not run")
        .policy(trusted(&["make test"]))
        .given([say("hi"), asks([write("w1")]), unprepared("w1")])
        .when(reply())
        .then(&["model_output_completed 2.1", "turn_completed t1 not_needed"], &[]);
    case("the turn before wrote")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .given([reply(), done("verify"), say("more")])
        .when(reply())
        .then(&["model_output_completed 1.1", "turn_completed t2 not_needed"], &[]);
    let mut off = trusted(&["make test"]);
    off.verify.auto_verify = false;
    case("the policy is off")
        .policy(off)
        .given(wrote())
        .when(reply())
        .then(&["model_output_completed 2.1", "checkpoint_created t1 a.txt", "turn_completed t1 not_needed"], &[]);
    case("no command was found: skipped, and the turn says so")
        .given(wrote())
        .when(reply())
        .then(&["model_output_completed 2.1", "checkpoint_created t1 a.txt", "turn_completed t1 skipped"], &[]);
    case("the policy names no command")
        .policy(trusted(&[]))
        .given([found(VerifySource::Makefile, &["make test"])])
        .given(wrote())
        .when(reply())
        .then(&["model_output_completed 2.1", "checkpoint_created t1 a.txt", "turn_completed t1 skipped"], &[]);
}

#[test]
fn commands_of_the_workspace_are_asked_for_once_per_session_and_text() {
    for source in [VerifySource::AgentsMd, VerifySource::Makefile] {
        case("asked")
            .given([found(source, &["make test"])])
            .given(wrote())
            .when(reply())
            .then(&["model_output_completed 2.1", "approval_requested verify"], &[])
            .status("waiting_approval", "t1 waiting_approval");
    }
    let asked = || {
        let mut script = vec![found(VerifySource::AgentsMd, &["make test"])];
        script.extend(wrote());
        script.push(reply());
        script
    };
    case("yes: it runs")
        .given(asked())
        .when(approve("verify"))
        .then(&["approval_granted verify once", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("the next time unasked")
        .given(asked())
        .given([approve("verify"), broke("verify")])
        .when(reply())
        .then(&["model_output_completed 3.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("in the next turn unasked")
        .given(asked())
        .given([approve("verify"), done("verify"), say("more"), asks([write("w2")]), prepared("w2"), done("w2")])
        .when(reply())
        .then(&["model_output_completed 2.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("another text is asked for")
        .given(asked())
        .given([approve("verify"), broke("verify"), found(VerifySource::AgentsMd, &["make test", "curl x"])])
        .when(reply())
        .then(&["model_output_completed 3.1", "approval_requested verify"], &[]);
    case("no: the turn is completed and says so").given(asked()).when(deny("verify")).then(
        &[
            "approval_denied verify once",
            "tool_call_completed verify not_run failed",
            "checkpoint_created t1 a.txt",
            "turn_completed t1 denied",
        ],
        &[],
    );
    case("no for the session: not asked again")
        .given(asked())
        .given([deny_for(Scope::Session, "verify"), say("more"), asks([write("w2")]), prepared("w2"), done("w2")])
        .when(reply())
        .then(&["model_output_completed 2.1", "checkpoint_created t2 a.txt", "turn_completed t2 denied"], &[]);
    case("nobody to ask")
        .unattended()
        .given([found(VerifySource::AgentsMd, &["make test"])])
        .given(wrote())
        .when(reply())
        .then(&["model_output_completed 2.1", "checkpoint_created t1 a.txt", "turn_completed t1 denied"], &[]);
    case("a no is not carried into a later verification")
        .given(asked())
        .given([steer("do verify"), deny("verify"), reply(), approve("verify")])
        .when(broke("verify"))
        .then(&["tool_call_completed verify finished failed"], &["CallModel 4.1"]);
}

#[test]
fn an_expired_question_counts_as_no() {
    case("expired")
        .approval(|approval| approval.expires_after_ms = Some(10))
        .given([found(VerifySource::AgentsMd, &["make test"])])
        .given(wrote())
        .given([reply(), wait(10)])
        .when(woke("verify"))
        .then(
            &[
                "approval_expired verify",
                "tool_call_completed verify not_run failed",
                "checkpoint_created t1 a.txt",
                "turn_completed t1 denied",
            ],
            &[],
        );
}

#[test]
fn attempts_are_capped() {
    let mut policy = trusted(&["make test"]);
    policy.verify.max_attempts = 2;
    case("the first failure")
        .policy(policy.clone())
        .given(wrote())
        .given([reply()])
        .when(broke("verify"))
        .then(&["tool_call_completed verify finished failed"], &["CallModel 3.1"]);
    case("the last")
        .policy(policy.clone())
        .given(wrote())
        .given([reply(), broke("verify"), reply()])
        .when(broke("verify"))
        .then(
            &[
                "tool_call_completed verify finished failed",
                "checkpoint_created t1 a.txt",
                "turn_failed t1 verification_failed",
            ],
            &[],
        )
        .status("active", "t1 failed");
    case("they count per turn")
        .policy(policy)
        .given(wrote())
        .given([reply(), broke("verify"), reply(), broke("verify"), say("more")])
        .given([asks([write("w2")]), prepared("w2"), done("w2"), reply()])
        .when(broke("verify"))
        .then(&["tool_call_completed verify finished failed"], &["CallModel 3.1"]);
}

#[test]
fn the_model_may_verify_by_itself() {
    case("trusted commands run unasked")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .when(asks([check_call("v1", "make test")]))
        .then(&["model_output_completed 2.1 v1", "tool_call_started v1 run 1"], &["RunTool v1 run 1"]);
    case("other commands under the same name do not")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .when(asks([check_call("v1", "rm -rf x")]))
        .then(&["model_output_completed 2.1 v1", "approval_requested v1"], &[]);
    case("what passed is not verified again")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .given([asks([check_call("v1", "make test")]), done("v1")])
        .when(reply())
        .then(&["model_output_completed 3.1", "checkpoint_created t1 a.txt", "turn_completed t1 passed"], &[]);
    case("what failed is")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .given([asks([check_call("v1", "make test")]), broke("v1")])
        .when(reply())
        .then(&["model_output_completed 3.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
    case("a later write is")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .given([asks([check_call("v1", "make test"), write("w2")]), done("v1"), prepared("w2"), done("w2")])
        .when(reply())
        .then(&["model_output_completed 3.1", "tool_call_started verify run 1"], &["RunTool verify run 1"]);
}

#[test]
fn a_rule_can_forbid_or_demand() {
    let with = |action| {
        let mut policy = trusted(&["make test"]);
        policy.approval.rules = vec![Rule { tool: "verify".into(), pattern: None, exact: None, action }];
        policy
    };
    case("forbidden")
        .policy(with(RuleAction::Deny))
        .given(wrote())
        .when(reply())
        .then(&["model_output_completed 2.1", "checkpoint_created t1 a.txt", "turn_completed t1 denied"], &[]);
    case("switched off after it passed: later writes do not count as verified")
        .policy(trusted(&["make test"]))
        .given(wrote())
        .given([reply(), steer("more"), done("verify"), asks([write("w2")]), prepared("w2"), done("w2")])
        .given([change_policy({
            let mut off = Policy::default();
            off.verify.auto_verify = false;
            off
        })])
        .when(reply())
        .then(&["model_output_completed 4.1", "checkpoint_created t1 a.txt", "turn_completed t1 not_needed"], &[]);
}

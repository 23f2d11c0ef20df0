//! Approvals wait in the state, are answered exactly once, and can expire.

use serde_json::json;
use tenure_core::{
    budget::Budgets,
    policy::{Policy, RecoveryPolicy, Resume, Rule, RuleAction, Scope},
};

use crate::{case::case, steps::*};

fn rule(tool: &str, pattern: Option<&str>, action: RuleAction) -> Rule {
    Rule { tool: tool.into(), pattern: pattern.map(Into::into), exact: None, action }
}

#[test]
fn a_yes_or_a_no() {
    case("yes: the intent is recorded")
        .given([say("hi"), asks([shell("s1", "ls")])])
        .when(approve("s1"))
        .then(&["approval_granted s1 once", "tool_call_started s1 run 1"], &["RunTool s1 run 1"])
        .answers("approval s1 approve once")
        .status("active", "t1 running");
    case("no: the model is told")
        .given([say("hi"), asks([shell("s1", "ls")])])
        .when(deny("s1"))
        .then(&["approval_denied s1 once", "tool_call_completed s1 not_run failed"], &["CallModel 2.1"])
        .answers("approval s1 deny once");
    case("yes to the second leaves the first waiting, and the order holds")
        .given([say("hi"), asks([shell("s1", "a"), shell("s2", "b")])])
        .when(approve("s2"))
        .then(&["approval_granted s2 once"], &[])
        .status("waiting_approval", "t1 waiting_approval");
    case("then yes to the first starts it alone")
        .given([say("hi"), asks([shell("s1", "a"), shell("s2", "b")]), approve("s2")])
        .when(approve("s1"))
        .then(&["approval_granted s1 once", "tool_call_started s1 run 1"], &["RunTool s1 run 1"]);
    case("the second follows without a further yes")
        .given([say("hi"), asks([shell("s1", "a"), shell("s2", "b")]), approve("s2"), approve("s1")])
        .when(done("s1"))
        .then(&["tool_call_completed s1 finished ok", "tool_call_started s2 run 1"], &["RunTool s2 run 1"]);
    case("no to the first lets the second start")
        .given([say("hi"), asks([shell("s1", "a"), shell("s2", "b")]), approve("s2")])
        .when(deny("s1"))
        .then(
            &["approval_denied s1 once", "tool_call_completed s1 not_run failed", "tool_call_started s2 run 1"],
            &["RunTool s2 run 1"],
        );
    case("with the right turn named")
        .given([say("hi"), asks([shell("s1", "ls")])])
        .when(approve_in("t1", "s1"))
        .then(&["approval_granted s1 once", "tool_call_started s1 run 1"], &["RunTool s1 run 1"]);
    case("a yes to a write lets it be prepared")
        .approval(|approval| approval.require_for_tools.push("write_file".into()))
        .given([say("hi"), asks([write("w1")])])
        .when(approve("w1"))
        .then(&["approval_granted w1 once"], &["PrepareTool w1"]);
    case("reads go on beside a read that waits")
        .approval(|approval| approval.rules.push(rule("read_file", Some("secret"), RuleAction::Ask)))
        .given([say("hi")])
        .when(asks([tenure_core::tool::ToolCall { subject: "secret".into(), ..read("r1") }, read("r2")]))
        .then(
            &["model_output_completed 1.1 r1 r2", "approval_requested r1", "tool_call_started r2 run 1"],
            &["RunTool r2 run 1"],
        )
        .status("waiting_approval", "t1 waiting_approval");
}

#[test]
fn an_approval_is_answered_exactly_once() {
    let asked = || [say("hi"), asks([shell("s1", "ls")])];
    case("yes, then no").given(asked()).given([approve("s1")]).when(deny("s1")).refused("already_answered");
    case("no, then yes").given(asked()).given([deny("s1")]).when(approve("s1")).refused("already_answered");
    case("yes twice").given(asked()).given([approve("s1")]).when(approve("s1")).refused("already_answered");
    case("when it is done")
        .given(asked())
        .given([approve("s1"), done("s1")])
        .when(approve("s1"))
        .refused("already_answered");
    case("when its turn is over")
        .given(asked())
        .given([approve("s1"), done("s1"), reply()])
        .when(deny("s1"))
        .refused("already_answered");
    case("what the policy denied is answered")
        .unattended()
        .given(asked())
        .when(approve("s1"))
        .refused("already_answered");
    let lost = case("the loser learns the first answer")
        .given(asked())
        .given([approve_for(Scope::Session, "s1")])
        .when(deny("s1"))
        .refused("already_answered");
    assert_eq!(lost.refusal().detail, json!({"verdict": "approve", "scope": "session", "seq": 6}));
}

#[test]
fn answers_to_what_does_not_wait_are_refused() {
    case("no such call").given([say("hi"), asks([shell("s1", "ls")])]).when(approve("s9")).refused("unknown_call");
    case("no turn at all").when(approve("s1")).refused("unknown_call");
    case("another turn named")
        .given([say("hi"), reply(), say("more"), asks([shell("s1", "ls")])])
        .when(approve_in("t1", "s1"))
        .refused("unknown_call");
    case("a call that needs no yes").given([say("hi"), asks([read("r1")])]).when(approve("r1")).refused("not_waiting");
    case("a turn that is being stopped")
        .given([say("hi"), asks([shell("s1", "ls")]), cancel()])
        .when(approve("s1"))
        .refused("not_waiting");
    case("a canceled turn")
        .given([say("hi"), asks([shell("s1", "ls")]), cancel(), gone()])
        .when(approve("s1"))
        .refused("unknown_call");
}

#[test]
fn how_far_an_answer_reaches() {
    let once = || [say("hi"), asks([shell("s1", "ls")])];
    case("once: asked again")
        .given(once())
        .given([approve("s1"), done("s1")])
        .when(asks([shell("s2", "ls")]))
        .then(&["model_output_completed 2.1 s2", "approval_requested s2"], &[]);
    for scope in [Scope::Session, Scope::Always] {
        case("for the session: not asked again")
            .given(once())
            .given([approve_for(scope, "s1"), done("s1")])
            .when(asks([shell("s2", "ls")]))
            .then(&["model_output_completed 2.1 s2", "tool_call_started s2 run 1"], &["RunTool s2 run 1"]);
        case("for the session, in the next turn too")
            .given(once())
            .given([approve_for(scope, "s1"), done("s1"), reply(), say("more")])
            .when(asks([shell("s2", "ls")]))
            .then(&["model_output_completed 1.1 s2", "tool_call_started s2 run 1"], &["RunTool s2 run 1"]);
        case("another command is asked for")
            .given(once())
            .given([approve_for(scope, "s1"), done("s1")])
            .when(asks([shell("s2", "ls -l")]))
            .then(&["model_output_completed 2.1 s2", "approval_requested s2"], &[]);
        case("no for the session: denied unasked")
            .given(once())
            .given([deny_for(scope, "s1")])
            .when(asks([shell("s2", "ls")]))
            .then(
                &[
                    "model_output_completed 2.1 s2",
                    "approval_denied s2 once by policy",
                    "tool_call_completed s2 not_run failed",
                ],
                &["CallModel 3.1"],
            );
    }
    case("a lasting yes also answers the same call that waits already")
        .given([say("hi"), asks([shell("s1", "ls"), shell("s2", "ls")])])
        .when(approve_for(Scope::Session, "s1"))
        .then(
            &["approval_granted s1 session", "approval_granted s2 once by policy", "tool_call_started s1 run 1"],
            &["RunTool s1 run 1"],
        );
    case("a yes for once does not")
        .given([say("hi"), asks([shell("s1", "ls"), shell("s2", "ls")])])
        .when(approve("s1"))
        .then(&["approval_granted s1 once", "tool_call_started s1 run 1"], &["RunTool s1 run 1"])
        .status("waiting_approval", "t1 waiting_approval");
}

#[test]
fn rules_decide_before_kinds() {
    let rules = |rules: Vec<Rule>| {
        let mut policy = Policy::default();
        policy.approval.rules = rules;
        policy
    };
    case("allow by pattern")
        .policy(rules(vec![rule("shell", Some("git status*"), RuleAction::Allow)]))
        .given([say("hi")])
        .when(asks([shell("s1", "git status -sb")]))
        .then(&["model_output_completed 1.1 s1", "tool_call_started s1 run 1"], &["RunTool s1 run 1"]);
    case("a chained command does not slip through")
        .policy(rules(vec![rule("shell", Some("git status*"), RuleAction::Allow)]))
        .given([say("hi")])
        .when(asks([shell("s1", "git status; rm -rf x")]))
        .then(&["model_output_completed 1.1 s1", "approval_requested s1"], &[]);
    case("deny by pattern")
        .policy(rules(vec![rule("shell", Some("rm *"), RuleAction::Deny)]))
        .given([say("hi")])
        .when(asks([shell("s1", "rm -rf x")]))
        .then(
            &[
                "model_output_completed 1.1 s1",
                "approval_denied s1 once by policy",
                "tool_call_completed s1 not_run failed",
            ],
            &["CallModel 2.1"],
        );
    case("ask for a read")
        .policy(rules(vec![rule("*", None, RuleAction::Ask)]))
        .given([say("hi")])
        .when(asks([read("r1")]))
        .then(&["model_output_completed 1.1 r1", "approval_requested r1"], &[]);
    case("a deny rule beats an earlier yes for the session")
        .given([say("hi"), asks([shell("s1", "ls")]), approve_for(Scope::Session, "s1"), done("s1")])
        .given([change_policy(rules(vec![rule("shell", None, RuleAction::Deny)]))])
        .when(asks([shell("s2", "ls")]))
        .then(
            &[
                "model_output_completed 2.1 s2",
                "approval_denied s2 once by policy",
                "tool_call_completed s2 not_run failed",
            ],
            &["CallModel 3.1"],
        );
}

#[test]
fn nobody_to_ask_fails_closed() {
    case("exec").unattended().given([say("hi")]).when(asks([shell("s1", "ls")])).then(
        &[
            "model_output_completed 1.1 s1",
            "approval_denied s1 once by policy",
            "tool_call_completed s1 not_run failed",
        ],
        &["CallModel 2.1"],
    );
    case("reads and writes go on").unattended().given([say("hi")]).when(asks([fetch("f1"), read("r1")])).then(
        &[
            "model_output_completed 1.1 f1 r1",
            "approval_denied f1 once by policy",
            "tool_call_completed f1 not_run failed",
            "tool_call_started r1 run 1",
        ],
        &["RunTool r1 run 1"],
    );
}

#[test]
fn an_approval_can_expire() {
    let case = |name| case(name).approval(|approval| approval.expires_after_ms = Some(1000));
    case("its time is recorded and waited for")
        .given([say("hi")])
        .when(asks([shell("s1", "ls")]))
        .then(&["model_output_completed 1.1 s1", "approval_requested s1 expires +1000"], &["Wake s1 +1000"]);
    case("then it counts as no")
        .given([say("hi"), asks([shell("s1", "ls")]), wait(1000)])
        .when(woke("s1"))
        .then(&["approval_expired s1", "tool_call_completed s1 not_run failed"], &["CallModel 2.1"]);
    case("not before its time")
        .given([say("hi"), asks([shell("s1", "ls")]), wait(999)])
        .when(woke("s1"))
        .refused("stale");
    case("not when it was answered")
        .given([say("hi"), asks([shell("s1", "ls")]), approve("s1"), wait(1000)])
        .when(woke("s1"))
        .refused("stale");
    case("not while its turn is being stopped")
        .given([say("hi"), asks([shell("s1", "ls")]), cancel(), wait(1000)])
        .when(woke("s1"))
        .refused("stale");
    case("a late yes loses")
        .given([say("hi"), asks([shell("s1", "ls")]), wait(1000), woke("s1")])
        .when(approve("s1"))
        .refused("already_answered");
    case("a yes before the clock tells is taken")
        .given([say("hi"), asks([shell("s1", "ls")]), wait(5000)])
        .when(approve("s1"))
        .then(&["approval_granted s1 once", "tool_call_started s1 run 1"], &["RunTool s1 run 1"]);
    case("its time passes while the turn waits for a budget")
        .budgets(Budgets { max_tool_calls: Some(0), ..Budgets::default() })
        .given([say("hi")])
        .when(asks([read("r1"), shell("s1", "ls")]))
        .then(
            &[
                "model_output_completed 1.1 r1 s1",
                "approval_requested s1 expires +1000",
                "budget_reached tool_calls 0 of 0",
            ],
            &["Wake s1 +1000"],
        );
    case("and while the turn is interrupted")
        .policy(Policy { recovery: RecoveryPolicy { resume: Resume::Ask }, ..Policy::default() })
        .approval(|approval| approval.expires_after_ms = Some(1000))
        .given([say("hi"), asks([read("r1"), shell("s1", "ls")])])
        .when(crash())
        .then(&["turn_interrupted t1 r1=unknown"], &["Wake s1 +1000"]);
    case("the time survives a restart")
        .given([say("hi"), asks([shell("s1", "ls")]), wait(600)])
        .when(crash())
        .then(&[], &["Wake s1 +400"]);
    crate::case::case("by default it never does")
        .given([say("hi"), asks([shell("s1", "ls")]), wait(1 << 40)])
        .when(woke("s1"))
        .refused("stale");
}

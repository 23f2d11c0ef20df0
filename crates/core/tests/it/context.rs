//! What the model is shown: a fold of the log, with every call answered before the next word.

use std::sync::Arc;

use tenure_core::{
    context::{ChatMessage, Transcript},
    event::{ContextSeeded, SeedFile, SeedSource, ToolsOffered},
    message::{Part, joined_text},
    model::FaultKind,
    tool::{OfferedTool, ToolKind, ToolSpec, VerifyPlan, VerifySource},
};

use crate::{
    attachments::attach,
    case::case,
    steps::*,
    world::{World, call_name},
};

pub fn transcript(world: &World) -> Transcript {
    let mut transcript = Transcript::default();
    for event in &world.events {
        transcript.push(event);
    }
    supplied(transcript, world)
}

/// The same as a daemon reads it that was started just now: only from where the context begins.
pub fn reloaded(world: &World) -> Transcript {
    let mut transcript = Transcript::default();
    let from = world.session.context_from;
    let seed = world.session.seed.as_ref().map(|seed| seed.seq).filter(|seq| *seq < from);
    for event in world.events.iter().filter(|event| event.seq >= from || Some(event.seq) == seed) {
        transcript.push(event);
    }
    supplied(transcript, world)
}

fn supplied(mut transcript: Transcript, world: &World) -> Transcript {
    let missing: Vec<u64> = transcript.missing().collect();
    for seq in missing {
        transcript.supply(&world.events[seq as usize - 1]);
    }
    assert_eq!(transcript.missing().count(), 0, "what was missing is there");
    transcript
}

pub fn show<'a>(messages: impl Iterator<Item = &'a ChatMessage>) -> Vec<String> {
    let line = |message: &ChatMessage| match message {
        ChatMessage::System { parts } => format!("system: {}", joined_text(parts)),
        ChatMessage::User { parts } => format!("user: {}", joined_text(parts)),
        ChatMessage::Assistant { text, calls, .. } => {
            let calls: String = calls.iter().map(|call| format!(" {}", call_name(call.id))).collect();
            format!("assistant: {text}{calls}")
        }
        ChatMessage::Tool { call, provider_id, ok, parts, .. } => {
            assert_eq!(provider_id.as_deref(), Some(format!("toolu_{}", call_name(*call)).as_str()));
            format!("tool {} {}: {}", call_name(*call), if *ok { "ok" } else { "failed" }, joined_text(parts))
        }
    };
    messages.map(line).collect()
}

fn check(name: &'static str, script: Vec<Step>, expected: &[&str]) {
    check_in(case(name), script, expected);
}

fn check_in(case: crate::case::Case, mut script: Vec<Step>, expected: &[&str]) {
    let last = script.pop().expect("a script has a line");
    let world = case.given(script).when(last).world;
    assert_eq!(show(transcript(&world).messages()), expected);
}

#[test]
fn the_conversation_is_what_turns_took_in() {
    check("one message", vec![say("hi")], &["user: hi"]);
    check("and its reply", vec![say("hi"), reply()], &["user: hi", "assistant: text"]);
    check("appended messages enter with their turn", vec![append("a")], &[]);
    check("in order", vec![append("a"), say("b")], &["user: a", "user: b"]);
    check("queued messages enter when their turn starts", vec![say("a"), say("b")], &["user: a"]);
    check("then", vec![say("a"), say("b"), reply()], &["user: a", "assistant: text", "user: b"]);
    check("a steer enters when it is delivered", vec![say("a"), steer("b")], &["user: a"]);
    check("then", vec![say("a"), steer("b"), reply()], &["user: a", "assistant: text", "user: b"]);
    check(
        "a steer comes after the results",
        vec![say("a"), asks([read("r1")]), steer("b"), done("r1")],
        &["user: a", "assistant: text r1", "tool r1 ok: result of r1", "user: b"],
    );
    check(
        "failed attempts leave no trace",
        vec![say("a"), fault(FaultKind::StreamCut), reply()],
        &["user: a", "assistant: text"],
    );
    check(
        "a retried turn says its messages again",
        vec![say("a"), fault(FaultKind::Auth), retry("t1")],
        &["user: a", "user: a"],
    );
}

#[test]
fn every_call_is_answered() {
    check(
        "a denied one",
        vec![say("a"), asks([shell("s1", "ls")]), deny("s1")],
        &["user: a", "assistant: text s1", "tool s1 failed: denied by the user"],
    );
    check(
        "a malformed one",
        vec![say("a"), asks([malformed("x1")])],
        &["user: a", "assistant: text x1", "tool x1 failed: no such tool"],
    );
    check(
        "those of a canceled turn",
        vec![say("a"), asks([read("r1"), write("w1")]), cancel(), gone(), say("b")],
        &[
            "user: a",
            "assistant: text r1 w1",
            "tool r1 failed: stopped while it ran: the turn was canceled; it may have taken effect in part",
            "tool w1 failed: not run: the turn was canceled",
            "user: b",
        ],
    );
    check_in(
        case("those of a superseded turn").policy(crate::recover::asking()),
        vec![say("a"), asks([read("r1")]), crash(), say("b")],
        &["user: a", "assistant: text r1", "tool r1 failed: not run: the turn gave way to a new one", "user: b"],
    );
}

#[test]
fn verification_comes_as_a_note() {
    let wrote = |last: Step| vec![say("a"), asks([write("w1")]), prepared("w1"), done("w1"), reply(), last];
    let case = |name| case(name).policy(crate::verification::trusted(&["make test"]));
    let before = ["user: a", "assistant: text w1", "tool w1 ok: result of w1", "assistant: text"];
    let with = |note: &'static str| [&before[..], &[note]].concat();
    check_in(
        case("passed"),
        wrote(done("verify")),
        &with("user: Verification after your changes passed.\nresult of verify"),
    );
    check_in(
        case("failed"),
        wrote(broke("verify")),
        &with("user: Verification after your changes failed.\nverify broke"),
    );
    let asked = crate::case::case("denied").given([found(VerifySource::AgentsMd, &["make test"])]);
    check_in(
        asked,
        wrote(deny("verify")),
        &with("user: Verification after your changes was not run.\ndenied by the user"),
    );
}

#[test]
fn a_request_is_built_for_the_step_that_is_awaited() {
    let world = case("first step").when(say("hi")).world;
    let request = transcript(&world).request(&world.session, Arc::from([])).expect("the model is awaited");
    assert_eq!((request.model.as_str(), request.meta.step, request.meta.attempt), ("model", 1, 1));
    assert_eq!((request.meta.session_id, request.meta.turn_id), (world.session.id, world.open_turn()));
    assert_eq!(show(request.messages.iter().map(|message| &**message)), ["user: hi"]);
    assert_eq!(request.system.len(), 0);
    let world = case("second attempt").given([say("hi")]).when(fault(FaultKind::Server)).world;
    let request = transcript(&world).request(&world.session, Arc::from([])).expect("the model is awaited");
    assert_eq!((request.meta.step, request.meta.attempt), (1, 2));
    let nothing: [(&str, Vec<Step>); 4] = [
        ("idle", vec![append("a")]),
        ("a tool runs", vec![say("a"), asks([read("r1")])]),
        ("being stopped", vec![say("a"), cancel()]),
        ("settled", vec![say("a"), reply()]),
    ];
    for (name, mut script) in nothing {
        let last = script.pop().unwrap();
        let world = case(name).given(script).when(last).world;
        assert!(transcript(&world).request(&world.session, Arc::from([])).is_none(), "{name}");
    }
}

fn seed(source: SeedSource, text: &str) -> ContextSeeded {
    let files = match text {
        "" => vec![],
        text => vec![SeedFile { path: "AGENTS.md".into(), text: text.into(), truncated: false }],
    };
    ContextSeeded { source, files, verify: None, bundle: None }
}

#[test]
fn what_the_workspace_says_is_recorded_when_it_changes() {
    let first = || seeded(seed(SeedSource::New, "be kind"));
    case("first").when(first()).then(&["context_seeded"], &[]);
    case("nothing found").when(seeded(seed(SeedSource::New, ""))).then(&[], &[]);
    case("the same again").given([first()]).when(first()).then(&[], &[]);
    case("the same, read at another time")
        .given([first()])
        .when(seeded(seed(SeedSource::Resume, "be kind")))
        .then(&[], &[]);
    case("changed").given([first()]).when(seeded(seed(SeedSource::New, "be brief"))).then(&["context_seeded"], &[]);
    case("gone").given([first()]).when(seeded(seed(SeedSource::New, ""))).then(&["context_seeded"], &[]);
    let plan = VerifyPlan { source: VerifySource::Makefile, commands: vec!["make test".into()] };
    case("only a plan")
        .when(seeded(ContextSeeded { verify: Some(plan), ..seed(SeedSource::New, "") }))
        .then(&["context_seeded"], &[]);
    case("within a turn it belongs to it")
        .given([say("hi")])
        .when(first())
        .then(&["context_seeded"], &["CallModel 1.1"]);
}

#[test]
fn the_stable_part_is_the_prompt_then_the_workspace() {
    let mut created = crate::world::plain();
    created.settings.system_prompt = Some("You help.".into());
    let mut world = World::new(created);
    for step in [seeded(seed(SeedSource::New, "be kind")), say("hi")] {
        let Step::Tell(input) = step else { unreachable!() };
        world.tell(input(&world)).unwrap();
    }
    let request = transcript(&world).request(&world.session, Arc::from([])).unwrap();
    let system: Vec<&str> = request.system.iter().map(|text| &**text).collect();
    assert_eq!(system, ["You help.", "The workspace says of itself:\n\n--- AGENTS.md ---\nbe kind\n"]);
}

#[test]
fn a_system_message_stays_one() {
    use tenure_core::{
        command::Command,
        message::{Delivery, Role},
    };
    let message = command(Command::SendMessage {
        role: Role::System,
        parts: vec![Part::text("be short")],
        delivery: Delivery::Queue,
        auto_run: None,
    });
    check("system", vec![message], &["system: be short"]);
}

#[test]
fn what_was_attached_to_a_refused_request_is_only_named_afterwards() {
    use tenure_core::{
        command::Command,
        message::{Delivery, Role},
    };
    let image = || Part::Image { r#ref: "attachments/a.png".into(), mime_type: "image/png".into() };
    let shows = || {
        let parts = vec![Part::text("see"), image()];
        command(Command::SendMessage { role: Role::User, parts, delivery: Delivery::Queue, auto_run: None })
    };
    let images = |world: &World| -> Vec<bool> {
        let messages = transcript(world);
        assert_eq!(show(messages.messages()), show(reloaded(world).messages()), "a restart changes nothing");
        let parts = |message: &ChatMessage| match message {
            ChatMessage::User { parts } => Some(parts.contains(&image())),
            _ => None,
        };
        messages.messages().filter_map(parts).collect()
    };
    let refused = || vec![shows(), fault(FaultKind::BadRequest)];
    let after = |mut script: Vec<Step>, last: Step| {
        script.insert(0, attach("a.png"));
        case("after it").given(script).when(last).world
    };
    let world = after(refused(), say("and now?"));
    assert_eq!(images(&world), [false, false]);
    let told = "user: see(a part of type 'image' (image/png), attachments/a.png: left out, since a request with it was refused)";
    assert_eq!(show(transcript(&world).messages())[0], told);
    assert_eq!(images(&after(refused(), retry("t1"))), [false, true], "who tries again sends it again");
    let world = after(vec![shows(), reply(), say("b")], fault(FaultKind::BadRequest));
    assert_eq!(images(&world), [true, false], "what was taken before is shown as before");
    let world = after(vec![shows(), fault(FaultKind::Auth)], say("b"));
    assert_eq!(images(&world), [true, false], "another fault says nothing of it");
}

fn offer(names: &[&str]) -> ToolsOffered {
    let tool = |name: &&str| OfferedTool {
        source: "mcp:docs".into(),
        spec: ToolSpec {
            name: (*name).to_owned(),
            description: "d".into(),
            input_schema: serde_json::json!({"type": "object"}),
            kind: ToolKind::Network,
        },
    };
    ToolsOffered { tools: names.iter().map(tool).collect() }
}

#[test]
fn what_is_offered_beside_the_built_in_tools_is_recorded_when_it_changes() {
    let one = || offered(offer(&["a"]));
    case("first").when(one()).then(&["tools_offered"], &[]);
    case("nothing to offer").when(offered(offer(&[]))).then(&[], &[]);
    case("the same again").given([one()]).when(one()).then(&[], &[]);
    case("another").given([one()]).when(offered(offer(&["b"]))).then(&["tools_offered"], &[]);
    case("more").given([one()]).when(offered(offer(&["a", "b"]))).then(&["tools_offered"], &[]);
    case("gone").given([one()]).when(offered(offer(&[]))).then(&["tools_offered"], &[]);
    case("in a turn").given([say("hi")]).when(one()).then(&["tools_offered"], &["CallModel 1.1"]);
    case("after the end").given([end()]).when(one()).then(&[], &[]);
}

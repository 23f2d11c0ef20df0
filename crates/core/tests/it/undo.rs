//! Undo: what a turn did to files is kept when it ends, and taken back once, all of it, when nothing else runs.

use tenure_core::{
    command::{Command, Update},
    context::{ChatMessage, Transcript},
    event::{Body, CheckpointCreated, SessionForked},
    message::joined_text,
    model::FaultKind,
    session::{CHECKPOINTS_MAX, Restoring},
    time::{Moment, Timestamp},
    tool::CallClass,
};

use crate::{
    case::{Case, case},
    recover::asking,
    steps::*,
    world::World,
};

/// A session whose first turn has changed a file.
fn changed(name: &'static str) -> Case {
    case(name).policy(quiet()).given(change())
}

/// One turn that changes a file and ends.
fn change() -> [Step; 5] {
    [say("hi"), asks([write("w1")]), prepared("w1"), done("w1"), reply()]
}

/// Nothing is verified.
fn quiet() -> tenure_core::policy::Policy {
    let mut policy = tenure_core::policy::Policy::default();
    policy.verify.auto_verify = false;
    policy
}

fn checkpoint(world: &World) -> &CheckpointCreated {
    let found = world.events.iter().rev().find_map(|event| match &event.body {
        Body::CheckpointCreated(checkpoint) => Some(checkpoint),
        _ => None,
    });
    found.expect("a checkpoint")
}

#[test]
fn every_end_of_a_turn_keeps_what_it_changed() {
    let given = || [say("hi"), asks([write("w1")]), prepared("w1"), done("w1")];
    let kept = "checkpoint_created t1 a.txt";
    let end = "turn_completed t1 not_needed";
    case("completed")
        .policy(quiet())
        .given(given())
        .when(reply())
        .then(&["model_output_completed 2.1", kept, end], &[]);
    case("failed")
        .policy(quiet())
        .given(given())
        .when(fault(FaultKind::Auth))
        .then(&["model_attempt_failed 2.1 auth", kept, "turn_failed t1 auth"], &[]);
    case("canceled")
        .policy(quiet())
        .given(given())
        .given([cancel()])
        .when(gone())
        .then(&[kept, "turn_canceled t1"], &[]);
    case("superseded")
        .policy(asking())
        .given(given())
        .given([crash()])
        .when(say("more"))
        .then(&["message_added m2 t2", kept, "turn_failed t1 superseded", "turn_started t2 m2"], &["CallModel 1.1"]);
}

#[test]
fn a_call_that_did_nothing_leaves_no_checkpoint() {
    let end: &[&str] = &["model_output_completed 2.1", "turn_completed t1 not_needed"];
    case("it failed")
        .policy(quiet())
        .given([say("hi"), asks([write("w1")]), prepared("w1"), broke("w1")])
        .when(reply())
        .then(end, &[]);
    case("it was not prepared")
        .policy(quiet())
        .given([say("hi"), asks([write("w1")]), unprepared("w1")])
        .when(reply())
        .then(end, &[]);
    case("only read").policy(quiet()).given([say("hi"), asks([read("r1")]), done("r1")]).when(reply()).then(end, &[]);
}

#[test]
fn calls_of_a_turn_are_taken_together() {
    let world = case("two calls on one file, and one that comes and goes")
        .policy(quiet())
        .given([say("hi"), asks([write("w1")]), prepared_as("w1", "x", "A", "B"), done("w1")])
        .given([asks([write("w2")]), prepared_as("w2", "y", "-", "C"), done("w2")])
        .given([asks([write("w3")]), prepared_as("w3", "x", "B", "D"), done("w3")])
        .given([asks([write("w4")]), prepared_as("w4", "y", "C", "-"), done("w4"), reply()])
        .world();
    let files = &checkpoint(&world).files;
    assert_eq!(files.len(), 1, "what was made and deleted again is no change");
    assert_eq!((files[0].before.as_deref(), files[0].after.as_deref()), (Some("A"), Some("D")));
    assert_eq!(files[0].old_bytes.as_deref(), Some("artifacts/A"), "the bytes of the first touch");
}

#[test]
fn a_call_that_nobody_can_class_is_named() {
    let world = case("one known, one unknown")
        .policy(quiet())
        .given([say("hi"), asks([write("w1")]), prepared_as("w1", "x", "A", "B"), done("w1")])
        .given([asks([write("w2")]), prepared_as("w2", "y", "A", "B")])
        .given([crash_with([("w2", CallClass::Unknown)], ""), resume("t1"), reply()])
        .world();
    let checkpoint = checkpoint(&world);
    assert_eq!(checkpoint.files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["x"]);
    assert_eq!(checkpoint.unknown.iter().map(|call| call.paths.join(",")).collect::<Vec<_>>(), ["y"]);
}

#[test]
fn an_undo_is_looked_at_then_begun_then_done() {
    changed("asked").when(undo()).then(&["undo_requested t1 at 8"], &["PrepareRestore 10"]).answers("undoing t1 10");
    changed("named").when(undo_turn("t1")).then(&["undo_requested t1 at 8"], &["PrepareRestore 10"]);
    changed("begun").given([undo()]).when(restorable()).then(&["restore_started t1"], &["RestoreWorkspace 10"]);
    changed("done").given([undo(), restorable()]).when(put_back()).then(&["workspace_restored t1 restored a.txt"], &[]);
    changed("drifted").given([undo()]).when(drifted()).then(&["workspace_restored t1 refused a.txt"], &[]);
    changed("failed midway")
        .given([undo(), restorable()])
        .when(not_put_back())
        .then(&["workspace_restored t1 refused a.txt"], &[]);
    changed("refused, and asked for again")
        .given([undo(), drifted()])
        .when(undo())
        .then(&["undo_requested t1 at 8"], &["PrepareRestore 12"]);
}

#[test]
fn what_is_not_undone() {
    case("nothing was changed").given([say("hi"), reply()]).when(undo()).refused("no_checkpoint");
    case("nor in that turn").given([say("hi"), reply()]).when(undo_turn("t1")).refused("no_checkpoint");
    changed("unknown").when(undo_turn("t9")).refused("unknown_turn");
    changed("a turn is open").given([say("more")]).when(undo()).refused("turn_open");
    case("an interrupted one too")
        .policy(asking())
        .given(change())
        .given([say("more"), crash()])
        .when(undo_turn("t1"))
        .refused("turn_open");
    changed("one is under way").given([undo()]).when(undo()).refused("undo_running");
    changed("twice").given([undo(), restorable(), put_back()]).when(undo_turn("t1")).refused("already_undone");
    changed("none is left").given([undo(), restorable(), put_back()]).when(undo()).refused("no_checkpoint");
    changed("the session has ended")
        .given([command(Command::End { reason: None })])
        .when(undo())
        .refused("session_ended");
    let elsewhere = Update { workspace_path: Some("/elsewhere".into()), ..Update::default() };
    changed("another folder")
        .given([command(Command::Update(Box::new(elsewhere)))])
        .when(undo())
        .refused("other_workspace");
}

#[test]
fn a_later_turn_that_changed_the_same_file_comes_first() {
    let both = || changed("two turns").given(change());
    let refused = both().when(undo_turn("t1")).refused("later_changes");
    assert_eq!(refused.refusal().detail["turn_id"], refused.world.turn("t2").to_string());
    assert_eq!(refused.refusal().detail["files"], serde_json::json!(["a.txt"]));
    both().when(undo()).answers("undoing t2 18");
    both().given([undo(), restorable(), put_back()]).when(undo()).answers("undoing t1 21");
    changed("another file")
        .given([say("more"), asks([write("w2")]), prepared_as("w2", "x", "A", "B"), done("w2"), reply()])
        .when(undo_turn("t1"))
        .answers("undoing t1 18");
}

#[test]
fn nothing_else_begins_while_files_are_put_back() {
    changed("a message waits")
        .given([undo()])
        .when(say("more"))
        .then(&["message_added m2 t2", "turn_queued t2 m2"], &["PrepareRestore 10"]);
    changed("and its turn starts then")
        .given([undo(), say("more"), restorable()])
        .when(put_back())
        .then(&["workspace_restored t1 restored a.txt", "turn_started t2 m2"], &["CallModel 1.1"]);
    changed("also where nothing was put back")
        .given([undo(), say("more")])
        .when(drifted())
        .then(&["workspace_restored t1 refused a.txt", "turn_started t2 m2"], &["CallModel 1.1"]);
    changed("the session does not end")
        .given([undo()])
        .when(command(Command::End { reason: None }))
        .refused("undo_running");
    let elsewhere = || Update { workspace_path: Some("/elsewhere".into()), ..Update::default() };
    changed("nor move").given([undo()]).when(command(Command::Update(Box::new(elsewhere())))).refused("undo_running");
}

#[test]
fn a_crash_in_the_middle_is_classed() {
    let started = |name| changed(name).given([undo(), restorable()]);
    changed("not begun").given([undo()]).when(crash_restoring(None)).then(&[], &["PrepareRestore 10"]);
    started("none was put back").when(crash_restoring(Some(CallClass::NotStarted))).then(&[], &["RestoreWorkspace 10"]);
    started("all were")
        .when(crash_restoring(Some(CallClass::Finished)))
        .then(&["workspace_restored t1 restored a.txt"], &[]);
    started("nobody can tell")
        .when(crash_restoring(Some(CallClass::Unknown)))
        .then(&["workspace_restored t1 unknown a.txt"], &[]);
    started("a message waits")
        .given([say("more")])
        .when(crash_restoring(Some(CallClass::Finished)))
        .then(&["workspace_restored t1 restored a.txt", "turn_started t2 m2"], &["CallModel 1.1"]);
}

#[test]
fn late_answers_are_stale() {
    changed("of no undo").when(put_back()).refused("stale");
    changed("before it was begun").given([undo()]).when(put_back()).refused("stale");
    changed("twice").given([undo(), restorable()]).when(restorable()).refused("stale");
    changed("after the end").given([undo(), restorable(), put_back()]).when(put_back()).refused("stale");
}

#[test]
fn the_same_key_is_the_same_undo() {
    changed("repeated")
        .given([keyed("k", undo())])
        .when(keyed("k", undo()))
        .then(&[], &["PrepareRestore 10"])
        .answers("undoing t1 10");
    changed("after its end, and never another turn")
        .given(change())
        .given([keyed("k", undo()), restorable(), put_back()])
        .when(keyed("k", undo()))
        .then(&[], &[])
        .answers("undoing t2 18");
    changed("for another turn").given([keyed("k", undo())]).when(keyed("k", undo_turn("t1"))).refused("key_reused");
}

#[test]
fn the_model_is_told_and_only_of_what_happened() {
    let told = |steps: Vec<Step>| {
        let world = changed("told").given(steps).world();
        let mut transcript = Transcript::default();
        world.events.iter().for_each(|event| transcript.push(event));
        let last = transcript.messages().last().cloned();
        match last {
            Some(ChatMessage::User { parts }) => Some(joined_text(&parts)),
            _ => None,
        }
    };
    let text = told(vec![undo(), restorable(), put_back()]).unwrap();
    assert!(text.starts_with("The user took back the changes") && text.contains("- a.txt\n"), "{text}");
    assert_eq!(told(vec![undo(), drifted()]), None);
}

#[test]
fn what_commands_changed_is_told_with_the_end() {
    let world = changed("told").given([undo(), restorable(), put_back()]).world();
    let Some(Body::WorkspaceRestored(ended)) = world.events.last().map(|event| &event.body) else { panic!() };
    assert_eq!(ended.not_undone, ["log"]);
}

#[test]
fn a_fork_can_undo_where_its_folder_is_the_same() {
    let world = changed("forked").given([undo()]).world();
    let forked = |folder: Option<&str>| {
        let forked = SessionForked {
            from: world.session.id,
            at_seq: world.session.seq,
            title: None,
            model: None,
            workspace_path: folder.map(str::to_owned),
            labels: vec![],
        };
        let mut moment = Moment::new(Timestamp::from_ms(crate::world::START_MS), 7);
        tenure_core::session::fork(&world.session, forked, tenure_core::event::Actor::user("test"), &mut moment).state
    };
    let judged = |state: &tenure_core::session::Session| {
        let command = Command::Undo { turn_id: None };
        let actor = tenure_core::event::Actor::user("test");
        let input = tenure_core::command::Input::Command { command, actor, key: None };
        state.decide(input, &mut Moment::new(Timestamp::from_ms(crate::world::START_MS), 9)).map(|d| d.events.len())
    };
    let same = forked(None);
    assert_eq!(same.restoring, None::<Restoring>, "what is under way goes on over there");
    assert_eq!(judged(&same).unwrap(), 1);
    assert_eq!(judged(&forked(Some("/elsewhere"))).unwrap_err().code, "other_workspace");
}

#[test]
fn only_the_last_turns_are_remembered() {
    let mut steps = vec![];
    for _ in 0..=CHECKPOINTS_MAX {
        steps.extend(change());
    }
    let world = case("many").policy(quiet()).given(steps).world();
    assert_eq!(world.session.checkpoints.len(), CHECKPOINTS_MAX);
    assert_eq!(world.session.checkpoints[0].turn, world.turn("t2"));
}

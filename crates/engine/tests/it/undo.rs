//! Undo through the engine, with the real write tools: what the log says is what the workspace is, also after a crash.

use std::{fs, path::Path, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tenure_core::{
    command::{Answer, Command, Update},
    event::{Body, RestoreOutcome, WorkspaceRestored},
    ids::{SessionId, TurnId},
    tool::ToolKind,
};
use tenure_engine::{Error, NewFork, NewImport, RecordStatus};
use tenure_store::MemoryStore;
use tenure_testkit::{Rig, RigSetup, TestTool, UnwillingStore, user};

/// Each turn writes `a` anew and makes or edits something else.
fn steps() -> Value {
    let call = |name: &str, input: Value| json!({"call": {"name": name, "input": input}});
    let patch = "*** Begin Patch\n*** Delete File: gone\n*** Add File: sub/new\n+x\n*** End Patch";
    json!([
        {"do": [call("write_file", json!({"path": "a", "content": "two"})), call("apply_patch", json!({"patch": patch}))]},
        {"do": [{"text": "done"}]},
        {"do": [call("edit_file", json!({"path": "a", "old": "two", "new": "three"}))]},
        {"do": [{"text": "done"}]},
        {"do": [{"text": "nothing more"}]},
    ])
}

fn setup() -> RigSetup {
    Rig::steps(steps()).real_tool("write_file").real_tool("edit_file").real_tool("apply_patch")
}

fn fill(rig: &Rig) {
    fs::write(rig.workspace().join("a"), "one").unwrap();
    fs::write(rig.workspace().join("gone"), "bye\r\n").unwrap();
}

async fn create(rig: &Rig) -> SessionId {
    fill(rig);
    rig.create_with(|new| new.policy.verify.auto_verify = false).await
}

/// All files of the workspace.
fn files(rig: &Rig) -> Vec<(String, String)> {
    fn walk(folder: &Path, root: &Path, found: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => {
                    found.push((name, "/".into()));
                    walk(&path, root, found);
                }
                false => found.push((name, fs::read_to_string(&path).unwrap())),
            }
        }
    }
    let mut found = vec![];
    walk(&rig.workspace(), &rig.workspace(), &mut found);
    found.sort();
    found
}

fn told(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

const BEFORE: [(&str, &str); 2] = [("a", "one"), ("gone", "bye\r\n")];
const AFTER_ONE: [(&str, &str); 3] = [("a", "two"), ("sub", "/"), ("sub/new", "x\n")];

async fn ended(rig: &Rig, session: SessionId) -> WorkspaceRestored {
    rig.until(session, "the undo ends", |state| state.restoring.is_none()).await;
    let events = rig.events(session).await;
    let last = events.into_iter().rev().find_map(|event| match event.body {
        Body::WorkspaceRestored(restored) => Some(*restored),
        _ => None,
    });
    last.expect("an undo has an end")
}

async fn undo(rig: &Rig, session: SessionId, turn_id: Option<TurnId>) -> WorkspaceRestored {
    rig.command(session, Command::Undo { turn_id }).await.unwrap();
    ended(rig, session).await
}

#[track_caller]
fn code(answer: Result<Answer, Error>) -> &'static str {
    match answer {
        Err(Error::Refused(refusal)) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn turns_are_taken_back_one_by_one() {
    let rig = setup().start().await;
    let session = create(&rig).await;
    let one = rig.ask(session, "go").await.id;
    assert_eq!(files(&rig), told(&AFTER_ONE));
    let two = rig.ask(session, "go on").await.id;
    assert_eq!(fs::read_to_string(rig.workspace().join("a")).unwrap(), "three");
    assert_eq!(code(rig.command(session, Command::Undo { turn_id: Some(one) }).await), "later_changes");
    let done = undo(&rig, session, None).await;
    assert_eq!((done.turn_id, done.outcome, done.restored), (two, RestoreOutcome::Restored, vec!["a".to_owned()]));
    assert_eq!(files(&rig), told(&AFTER_ONE));
    let done = undo(&rig, session, Some(one)).await;
    assert_eq!(done.restored, ["a", "gone", "sub/new"]);
    assert_eq!(files(&rig), told(&BEFORE), "and the folder that the turn made is gone");
    assert_eq!(code(rig.command(session, Command::Undo { turn_id: Some(one) }).await), "already_undone");
    assert_eq!(code(rig.command(session, Command::Undo { turn_id: None }).await), "no_checkpoint");
    assert_eq!(rig.ask(session, "more").await.status, RecordStatus::Completed);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_file_that_somebody_changed_refuses_it_and_nothing_is_touched() {
    let rig = setup().start().await;
    let session = create(&rig).await;
    rig.ask(session, "go").await;
    fs::write(rig.workspace().join("sub/new"), "mine").unwrap();
    let before = files(&rig);
    let done = undo(&rig, session, None).await;
    assert_eq!((done.outcome, done.restored.len()), (RestoreOutcome::Refused, 0));
    assert_eq!((done.refused[0].path.as_str(), done.refused[0].why.as_str()), ("sub/new", "it was changed since"));
    assert_eq!(files(&rig), before);
    // As the turn left it, it can be taken back after all.
    fs::write(rig.workspace().join("sub/new"), "x\n").unwrap();
    assert_eq!(undo(&rig, session, None).await.outcome, RestoreOutcome::Restored);
    assert_eq!(files(&rig), told(&BEFORE));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_outlives_a_restart_an_eviction_and_a_copy() {
    let mut rig = setup().config(|config| config.idle_evict = Duration::from_secs(5)).start().await;
    let session = create(&rig).await;
    let turn = rig.ask(session, "go").await.id;
    tokio::time::sleep(Duration::from_secs(6)).await;
    rig.crash_and_restart().await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    // A fork shares it, for it works in the same folder; elsewhere it does not.
    let fork = rig.engine.fork(session, NewFork::default(), None, user()).await.unwrap();
    assert!(fork.missing.is_empty());
    let elsewhere = NewFork { workspace_path: Some("/elsewhere".into()), ..NewFork::default() };
    let elsewhere = rig.engine.fork(session, elsewhere, None, user()).await.unwrap().session_id;
    assert_eq!(code(rig.command(elsewhere, Command::Undo { turn_id: None }).await), "other_workspace");
    let done = undo(&rig, fork.session_id, None).await;
    assert_eq!((done.turn_id, done.outcome), (turn, RestoreOutcome::Restored));
    assert_eq!(files(&rig), told(&BEFORE));
    // The one that was forked finds the files as they were before: that is not what its turn left.
    assert_eq!(undo(&rig, session, None).await.outcome, RestoreOutcome::Refused);
    assert_eq!(files(&rig), told(&BEFORE));
}

#[test]
fn a_checkpoint_goes_along_with_an_export() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (rig, session, packed) = runtime.block_on(async {
        let rig = setup().start().await;
        let session = create(&rig).await;
        rig.ask(session, "go").await;
        let mut export = rig.engine.export(session).await.unwrap();
        let mut packed = vec![];
        while let Some(piece) = export.next().await {
            packed.extend_from_slice(&piece.unwrap());
        }
        (rig, session, packed)
    });
    let new = NewImport { as_new: true, bytes_max: 1 << 20 };
    let imported = rig.engine.import(packed.as_slice(), new, None, user(), runtime.handle()).unwrap().session_id;
    assert_ne!(imported, session);
    runtime.block_on(async {
        assert_eq!(undo(&rig, imported, None).await.outcome, RestoreOutcome::Restored);
        assert_eq!(files(&rig), told(&BEFORE));
        drop(rig);
    });
}

#[tokio::test(start_paused = true)]
async fn one_key_is_one_undo_and_two_clients_do_not_both_get_it() {
    let rig = setup().start().await;
    let session = create(&rig).await;
    let one = rig.ask(session, "go").await.id;
    let two = rig.ask(session, "go on").await.id;
    let command = || Command::Undo { turn_id: None };
    let (first, second) = tokio::join!(rig.command(session, command()), rig.command(session, command()));
    let taken = [first, second].into_iter().filter(Result::is_ok).count();
    assert_eq!(taken, 1, "the other one is told that one is under way");
    assert_eq!(ended(&rig, session).await.turn_id, two);
    let (first, again) = tokio::join!(rig.keyed(session, "k", command()), rig.keyed(session, "k", command()));
    let first = first.unwrap();
    assert_eq!(again.unwrap(), first);
    assert_eq!(ended(&rig, session).await.turn_id, one);
    assert_eq!(rig.keyed(session, "k", command()).await.unwrap(), first, "also after its end");
    let types = rig.types(session).await;
    assert_eq!(types.iter().filter(|kind| **kind == "workspace_restored").count(), 2);
    assert_eq!(files(&rig), told(&BEFORE));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn while_a_turn_is_open_nothing_is_taken_back() {
    let act = TestTool::new("act", ToolKind::Read).gated().shared();
    let call = json!({"call": {"name": "act", "input": {}}});
    let write = json!({"call": {"name": "write_file", "input": {"path": "a", "content": "two"}}});
    let steps = json!([{"do": [write, call]}, {"do": [{"text": "done"}]}]);
    let rig = Rig::steps(steps).real_tool("write_file").tool(&act).start().await;
    let session = create(&rig).await;
    let turn = rig.say(session, "go").await;
    act.gate().reached(1).await;
    assert_eq!(code(rig.command(session, Command::Undo { turn_id: None }).await), "turn_open");
    act.gate().open();
    rig.settled(session, turn).await;
    assert_eq!(undo(&rig, session, None).await.outcome, RestoreOutcome::Restored);
    assert_eq!(files(&rig), told(&BEFORE));
}

#[tokio::test(start_paused = true)]
async fn another_folder_is_not_taken_for_the_turn_s() {
    let rig = setup().start().await;
    let session = create(&rig).await;
    rig.ask(session, "go").await;
    let update = Update { workspace_path: Some("/elsewhere".into()), ..Update::default() };
    rig.command(session, Command::Update(Box::new(update))).await.unwrap();
    assert_eq!(code(rig.command(session, Command::Undo { turn_id: None }).await), "other_workspace");
    assert_eq!(files(&rig), told(&AFTER_ONE));
}

/// The files were put back, but that could not be recorded when the daemon died.
async fn cut_undo(refuse: &'static str) -> (Rig, Arc<UnwillingStore>, SessionId) {
    let store = UnwillingStore::over(MemoryStore::new());
    let rig = setup().store(store.clone()).start().await;
    let session = create(&rig).await;
    rig.ask(session, "go").await;
    store.refuse_decisions(session, refuse, 1);
    rig.command(session, Command::Undo { turn_id: None }).await.unwrap();
    store.refused(1).await;
    rig.crash().await;
    (rig, store, session)
}

async fn starts(rig: &Rig, session: SessionId) -> usize {
    rig.types(session).await.into_iter().filter(|kind| *kind == "restore_started").count()
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_is_found_done_is_finished() {
    let (mut rig, _, session) = cut_undo("workspace_restored").await;
    assert_eq!(files(&rig), told(&BEFORE));
    rig.restart().await;
    assert_eq!(ended(&rig, session).await.outcome, RestoreOutcome::Restored);
    assert_eq!((files(&rig), starts(&rig, session).await), (told(&BEFORE), 1));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_had_not_begun_begins_again() {
    let (mut rig, _, session) = cut_undo("restore_started").await;
    assert_eq!(files(&rig), told(&AFTER_ONE), "nothing is touched before it is recorded");
    rig.restart().await;
    assert_eq!(ended(&rig, session).await.outcome, RestoreOutcome::Restored);
    assert_eq!(files(&rig), told(&BEFORE));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_is_found_half_done_is_rolled_back_and_done() {
    let (mut rig, _, session) = cut_undo("workspace_restored").await;
    // As if only the first file had been put back.
    fs::remove_file(rig.workspace().join("gone")).unwrap();
    fs::create_dir(rig.workspace().join("sub")).unwrap();
    fs::write(rig.workspace().join("sub/new"), "x\n").unwrap();
    rig.restart().await;
    assert_eq!(ended(&rig, session).await.outcome, RestoreOutcome::Restored);
    assert_eq!(files(&rig), told(&BEFORE));
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn an_undo_whose_file_is_neither_is_told_and_left_alone() {
    let (mut rig, _, session) = cut_undo("workspace_restored").await;
    fs::write(rig.workspace().join("a"), "somebody else's").unwrap();
    let before = files(&rig);
    rig.restart().await;
    assert_eq!(ended(&rig, session).await.outcome, RestoreOutcome::Unknown);
    assert_eq!(files(&rig), before);
    assert_eq!(rig.ask(session, "go on").await.status, RecordStatus::Completed);
    rig.sound(session).await;
}

#[tokio::test(start_paused = true)]
async fn the_next_request_says_that_it_was_taken_back() {
    let rig = setup().start().await;
    let session = create(&rig).await;
    rig.ask(session, "go").await;
    undo(&rig, session, None).await;
    let events = rig.events(session).await;
    let mut transcript = tenure_core::context::Transcript::default();
    events.iter().for_each(|event| transcript.push(event));
    let last = format!("{:?}", transcript.messages().last());
    assert!(last.contains("took back the changes") && last.contains("- sub/new"), "{last}");
}

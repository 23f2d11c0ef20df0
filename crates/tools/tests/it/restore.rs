//! Taking back what turns did to files: the same bytes and modes again, or nothing at all.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use proptest::prelude::*;
use serde_json::{Value, json};
use tenure_core::{
    command::FailedRestore,
    event::{
        Actor, Body, CallOrigin, CheckpointCreated, Event, ModelOutputCompleted, RefusedFile, SessionCreated,
        ToolCallCompleted, ToolCallStarted, TurnStarted,
    },
    ids::{CallId, SessionId, TurnId},
    model::{StopReason, Usage},
    session::Session,
    time::{Moment, Timestamp},
    tool::{CallClass, Intent, Outcome, Runner, ToolCall, ToolKind},
};
use tenure_tools::{Blobs, Restore};
use tokio::runtime::Runtime;

use crate::rig::Rig;

/// A workspace in which turns change files, and what the core makes of that.
struct Turns {
    rig: Rig,
    runtime: Runtime,
    session: Session,
    moment: Moment,
    undos: u32,
}

/// Every file below a folder with its bytes and mode, and every folder.
type Tree = BTreeMap<String, Option<(Vec<u8>, u32)>>;

fn tree(folder: &Path) -> Tree {
    let (mut found, mut folders) = (Tree::new(), vec![folder.to_owned()]);
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap().flatten() {
            let name = entry.path().strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            let about = entry.metadata().unwrap();
            if about.is_dir() {
                folders.push(entry.path());
                found.insert(name, None);
            } else if about.is_file() {
                let mode = about.permissions().mode() & 0o7777;
                found.insert(name, Some((fs::read(entry.path()).unwrap(), mode)));
            }
        }
    }
    found
}

impl Turns {
    fn new() -> Self {
        let mut moment = Moment::new(Timestamp::from_ms(1_735_689_600_000), 1);
        let created =
            SessionCreated { settings: Default::default(), policy: Default::default(), budgets: Default::default() };
        let born = event(moment.session_id(), 1, None, created.into());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { rig: Rig::new(), runtime, session: Session::born(&born).unwrap(), moment, undos: 0 }
    }

    fn tell(&mut self, body: impl Into<Body>) {
        let turn = self.session.turn.as_ref().map(|turn| turn.id);
        let told = event(self.session.id, self.session.seq + 1, turn, body.into());
        self.session.apply(&told);
    }

    fn begin(&mut self) {
        let turn = self.moment.turn_id();
        let started = TurnStarted { messages: vec![], retry_of: None, model: "m".into() };
        self.session.apply(&event(self.session.id, self.session.seq + 1, Some(turn), started.into()));
    }

    /// One call, as the engine does it; one that cannot be done changes nothing.
    fn call(&mut self, tool: &str, input: &Value) -> bool {
        let id = self.moment.call_id();
        self.rig.context.call_id = id;
        let Ok(intent) = self.runtime.block_on(self.rig.prepare(tool, input)) else { return false };
        let asked = ToolCall {
            id,
            provider_id: None,
            name: tool.into(),
            kind: ToolKind::Write,
            input: input.clone(),
            subject: String::new(),
            secrets: vec![],
            problem: None,
        };
        self.tell(output(&mut self.moment.clone(), asked));
        self.tell(started(id, tool, input, &intent));
        let invoked = self.runtime.block_on(self.rig.invoke(tool, input, &intent));
        let ok = invoked.result.ok;
        self.tell(ToolCallCompleted {
            tool_call_id: id,
            name: tool.into(),
            origin: CallOrigin::Model,
            outcome: Outcome::Finished,
            result: invoked.result,
            duration_ms: 1,
        });
        ok
    }

    /// What the turn did so far, as its checkpoint tells it.
    fn end(&self) -> CheckpointCreated {
        let written = self.session.turn.as_ref().unwrap().written.clone();
        CheckpointCreated {
            workspace_path: self.rig.workspace.to_str().unwrap().into(),
            started_at: Timestamp::from_ms(0),
            files: written.files,
            folders: written.folders,
            unknown: written.unknown,
            commands: written.commands,
            incomplete: written.incomplete,
            secrets: written.secrets,
        }
    }

    fn restore(&mut self, checkpoint: &CheckpointCreated) -> Restore {
        self.undos += 1;
        let blobs = Arc::clone(&self.rig.blobs) as Arc<dyn Blobs>;
        Restore::new(checkpoint, blobs, format!("artifacts/t/undo-{}", self.undos))
    }

    fn prepare(&self, restore: &Restore) -> Result<Intent, Vec<RefusedFile>> {
        self.runtime.block_on(restore.prepare())
    }

    fn run(&self, restore: &Restore, intent: &Intent) -> Result<(), FailedRestore> {
        self.runtime.block_on(restore.run(intent))
    }

    fn undo(&mut self, checkpoint: &CheckpointCreated) {
        let restore = self.restore(checkpoint);
        let intent = self.prepare(&restore).unwrap();
        self.run(&restore, &intent).unwrap();
    }

    fn tree(&self) -> Tree {
        tree(&self.rig.workspace)
    }

    fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.rig.workspace.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// What stands in the way of an undo, which changes nothing.
    #[track_caller]
    fn refused(&mut self, checkpoint: &CheckpointCreated) -> Vec<(String, String)> {
        let before = self.tree();
        let restore = self.restore(checkpoint);
        let refused = self.prepare(&restore).unwrap_err();
        assert_eq!(self.tree(), before, "a refused undo changed something");
        refused.into_iter().map(|file| (file.path, file.why)).collect()
    }
}

fn event(session_id: SessionId, seq: u64, turn_id: Option<TurnId>, body: Body) -> Event {
    Event { seq, ts: Timestamp::from_ms(1_735_689_600_000), session_id, turn_id, actor: Actor::AGENT, key: None, body }
}

fn output(moment: &mut Moment, call: ToolCall) -> ModelOutputCompleted {
    ModelOutputCompleted {
        message_id: moment.message_id(),
        step: 1,
        attempt: 1,
        model: "m".into(),
        text: String::new(),
        order: vec![],
        thinking: vec![],
        tool_calls: vec![call],
        stop_reason: StopReason::ToolUse,
        usage: Usage::default(),
        cost_micro_usd: Some(0),
    }
}

fn started(tool_call_id: CallId, name: &str, input: &Value, intent: &Intent) -> ToolCallStarted {
    ToolCallStarted {
        tool_call_id,
        name: name.into(),
        kind: ToolKind::Write,
        input: input.clone(),
        runner: Runner::default(),
        origin: CallOrigin::Model,
        run: 1,
        intent: intent.clone(),
    }
}

const PATHS: [&str; 6] = ["a", "b.sh", "d/c", "d/e/f", "new/x", "new/deep/y"];

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&PATHS[..])
}

/// Lines with either end, some of them not whole, and a character that is none.
fn text() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec!["one", "two", "\n", "\r\n", "\t", "ü", "\0", " ", "x\n", "x\r\n"]);
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// What files hold before: no UTF-8 need be in them.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    (text(), prop::bool::weighted(0.3)).prop_map(|(text, latin)| {
        let mut bytes = text.into_bytes();
        bytes.extend(latin.then_some(0xe9));
        bytes
    })
}

fn call() -> impl Strategy<Value = (&'static str, Value)> {
    let word = || prop::sample::select(vec!["one", "two", "x", "\n", "ü"]);
    let patch = |body: String| ("apply_patch", json!({"patch": format!("*** Begin Patch\n{body}*** End Patch\n")}));
    prop_oneof![
        3 => (path(), text()).prop_map(|(path, content)| ("write_file", json!({"path": path, "content": content}))),
        3 => (path(), word(), text(), any::<bool>())
            .prop_map(|(path, old, new, all)| ("edit_file", json!({"path": path, "old": old, "new": new, "all": all}))),
        1 => path().prop_map(move |path| patch(format!("*** Delete File: {path}\n"))),
        1 => (path(), word()).prop_map(move |(path, word)| {
            patch(format!("*** Add File: {path}\n+{}\n+end\n", word.trim()))
        }),
        2 => (path(), path()).prop_map(move |(from, to)| patch(format!("*** Update File: {from}\n*** Move to: {to}\n"))),
        1 => (path(), path(), path()).prop_map(move |(one, two, three)| {
            patch(format!("*** Delete File: {one}\n*** Add File: {two}\n+n\n*** Update File: {three}\n@@\n-x\n+y\n"))
        }),
        1 => path().prop_map(|path| {
            ("apply_patch", json!({"patch": format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1,2 @@\n x\n+more\n")}))
        }),
    ]
}

fn beginning() -> impl Strategy<Value = BTreeMap<&'static str, (Vec<u8>, u32)>> {
    let mode = prop::sample::select(vec![0o644, 0o600, 0o755, 0o4755, 0o640]);
    prop::collection::btree_map(path(), (bytes(), mode), 0..5)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(96) })]

    #[test]
    fn any_turns_and_their_undo_give_back_the_same_bytes_and_modes(
        beginning in beginning(),
        calls in prop::collection::vec(prop::collection::vec(call(), 1..6), 1..4),
        drift in any::<prop::sample::Index>(),
    ) {
        let mut turns = Turns::new();
        for (path, (bytes, mode)) in &beginning {
            turns.rig.put(path, bytes);
            turns.mode(path, *mode);
        }
        let mut done: Vec<(Tree, CheckpointCreated)> = vec![];
        for calls in &calls {
            let before = turns.tree();
            turns.begin();
            for (tool, input) in calls {
                turns.call(tool, input);
            }
            done.push((before, turns.end()));
        }
        // Somebody's change to any file that the last turn left stops its undo, which touches nothing.
        let (_, last) = done.last().unwrap();
        if !last.files.is_empty() {
            let file = &last.files[drift.index(last.files.len())];
            let (path, kept) = (turns.rig.workspace.join(&file.path), turns.tree().get(&file.path).cloned());
            fs::write(&path, "somebody's own").unwrap();
            let refused = turns.refused(last);
            prop_assert_eq!(refused.len(), 1);
            prop_assert_eq!(&refused[0].0, &file.path);
            match kept {
                Some(Some((bytes, mode))) => {
                    fs::write(&path, bytes).unwrap();
                    turns.mode(&file.path, mode);
                }
                _ => fs::remove_file(&path).unwrap(),
            }
        }
        for (before, checkpoint) in done.iter().rev() {
            turns.undo(checkpoint);
            prop_assert_eq!(&turns.tree(), before);
        }
    }

    /// A crash between any two steps of an undo: finished, or rolled back and then done.
    #[test]
    fn a_half_done_undo_is_finished_or_begins_again(
        beginning in beginning(),
        calls in prop::collection::vec(call(), 1..6),
    ) {
        let mut turns = Turns::new();
        for (path, (bytes, mode)) in &beginning {
            turns.rig.put(path, bytes);
            turns.mode(path, *mode);
        }
        let before = turns.tree();
        turns.begin();
        for (tool, input) in &calls {
            turns.call(tool, input);
        }
        let (after, checkpoint) = (turns.tree(), turns.end());
        // Where only a mode or a folder was changed the bytes cannot tell how far it came.
        let telling = |file: &tenure_core::tool::FileChange| file.before != file.after;
        prop_assume!(!checkpoint.files.is_empty() && checkpoint.files.iter().all(telling));
        let restore = turns.restore(&checkpoint);
        let intent = turns.prepare(&restore).unwrap();
        let all = 1usize << checkpoint.files.len();
        for mask in 0..all {
            for (at, file) in checkpoint.files.iter().enumerate() {
                let state = if mask >> at & 1 == 1 { &before } else { &after };
                put(&turns.rig.workspace.join(&file.path), state.get(&file.path).and_then(Option::as_ref));
            }
            let class = turns.runtime.block_on(restore.class(&intent));
            match mask + 1 == all {
                true => prop_assert_eq!((class, &turns.tree()), (CallClass::Finished, &before)),
                false => prop_assert_eq!((class, &turns.tree()), (CallClass::NotStarted, &after)),
            }
        }
        // Put back as the turn left it, it can be run once more.
        for file in &checkpoint.files {
            put(&turns.rig.workspace.join(&file.path), after.get(&file.path).and_then(Option::as_ref));
        }
        turns.run(&restore, &intent).unwrap();
        prop_assert_eq!(&turns.tree(), &before);
    }
}

fn put(path: &Path, state: Option<&(Vec<u8>, u32)>) {
    match state {
        None => drop(fs::remove_file(path)),
        Some((bytes, mode)) => {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
        }
    }
}

/// One turn that changes `a`, makes `d/n` and deletes `gone/g`.
fn changed() -> (Turns, CheckpointCreated) {
    let mut turns = Turns::new();
    turns.rig.put("a", "1\n");
    turns.rig.put("gone/g", "bye\n");
    turns.begin();
    assert!(turns.call("write_file", &json!({"path": "a", "content": "2\n"})));
    assert!(turns.call("write_file", &json!({"path": "d/n", "content": "new\n"})));
    assert!(turns.call("apply_patch", &json!({"patch": "*** Begin Patch\n*** Delete File: gone/g\n*** End Patch"})));
    let checkpoint = turns.end();
    (turns, checkpoint)
}

#[test]
fn what_is_not_as_the_turn_left_it_is_named_and_nothing_is_touched() {
    let why = |change: &dyn Fn(&Path)| {
        let (mut turns, checkpoint) = changed();
        change(&turns.rig.workspace);
        turns.refused(&checkpoint)
    };
    let named = |path: &str, why: &str| vec![(path.to_owned(), why.to_owned())];
    assert_eq!(why(&|at| fs::write(at.join("a"), "mine\n").unwrap()), named("a", "it was changed since"));
    assert_eq!(why(&|at| fs::remove_file(at.join("a")).unwrap()), named("a", "it was deleted since"));
    assert_eq!(why(&|at| fs::write(at.join("gone/g"), "").unwrap()), named("gone/g", "it was made anew since"));
    assert_eq!(why(&|at| fs::remove_dir_all(at.join("d")).unwrap()), named("d/n", "it was deleted since"));
    assert_eq!(why(&|at| fs::remove_dir(at.join("gone")).unwrap()), named("gone/g", "its folder is gone"));
    let several = why(&|at| {
        fs::write(at.join("a"), "mine\n").unwrap();
        fs::remove_file(at.join("d/n")).unwrap();
    });
    assert_eq!(several.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["a", "d/n"]);
}

#[test]
fn symlinks_and_folders_in_a_file_s_place_are_refused() {
    let (mut turns, checkpoint) = changed();
    let at = |path: &str| turns.rig.workspace.join(path);
    // The same bytes, by way of a symlink.
    fs::rename(at("a"), at("moved")).unwrap();
    std::os::unix::fs::symlink("moved", at("a")).unwrap();
    fs::rename(at("d"), at("other")).unwrap();
    std::os::unix::fs::symlink("other", at("d")).unwrap();
    fs::create_dir(at("gone/g")).unwrap();
    let refused = turns.refused(&checkpoint);
    assert_eq!(refused.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["a", "d/n", "gone/g"]);
    assert!(refused[0].1.contains("symlink") && refused[1].1 == "a symlink leads elsewhere now", "{refused:?}");
    assert!(refused[2].1.contains("directory"), "{refused:?}");
}

#[test]
fn a_file_behind_a_symlink_that_was_there_before_is_restored() {
    let mut turns = Turns::new();
    turns.rig.put("real/f", "1\n");
    std::os::unix::fs::symlink("real", turns.rig.workspace.join("link")).unwrap();
    turns.begin();
    assert!(turns.call("edit_file", &json!({"path": "link/f", "old": "1", "new": "2"})));
    assert!(turns.call("edit_file", &json!({"path": "real/f", "old": "2", "new": "3"})));
    let checkpoint = turns.end();
    assert_eq!(checkpoint.files.len(), 1, "one file under two names");
    turns.undo(&checkpoint);
    assert_eq!(turns.rig.get("real/f").unwrap(), "1\n");
}

#[test]
fn what_somebody_put_beside_it_stays() {
    let (mut turns, checkpoint) = changed();
    turns.rig.put("d/mine", "mine\n");
    turns.mode("a", 0o600);
    turns.undo(&checkpoint);
    assert_eq!(turns.rig.tree(), ["a", "d", "d/mine", "gone", "gone/g"]);
    assert_eq!(turns.rig.get("a").unwrap(), "1\n");
    let mode = turns.rig.workspace.join("a").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "a mode that was changed since stays");
}

#[test]
fn old_bytes_that_are_gone_or_damaged_refuse_it() {
    for damage in [None, Some("damaged")] {
        let (mut turns, checkpoint) = changed();
        let name = checkpoint.files[0].old_bytes.clone().unwrap();
        match damage {
            None => drop(turns.rig.blobs.0.lock().unwrap().remove(&name)),
            Some(text) => drop(turns.rig.blobs.0.lock().unwrap().insert(name, text.into())),
        }
        let refused = turns.refused(&checkpoint);
        assert_eq!((refused.len(), refused[0].0.as_str()), (1, "a"));
    }
}

#[test]
fn a_change_after_the_look_stops_it_before_the_first_file() {
    let (mut turns, checkpoint) = changed();
    let restore = turns.restore(&checkpoint);
    let intent = turns.prepare(&restore).unwrap();
    turns.rig.put("d/n", "mine\n");
    let before = turns.tree();
    let failed = turns.run(&restore, &intent).unwrap_err();
    assert!(matches!(&failed, FailedRestore::Nothing(files) if files[0].path == "d/n"), "{failed:?}");
    assert_eq!(turns.tree(), before);
}

/// The first file is back when the second cannot be: its folder takes no new names.
#[test]
fn a_failure_midway_is_rolled_back() {
    let (mut turns, checkpoint) = changed();
    let restore = turns.restore(&checkpoint);
    let intent = turns.prepare(&restore).unwrap();
    let before = turns.tree();
    // The bytes of the last file are lost after they were looked at.
    let name = checkpoint.files[2].old_bytes.clone().unwrap();
    turns.rig.blobs.0.lock().unwrap().remove(&name);
    let failed = turns.run(&restore, &intent).unwrap_err();
    assert!(matches!(&failed, FailedRestore::Nothing(files) if files[0].path == "gone/g"), "{failed:?}");
    assert_eq!(turns.tree(), before);
}

#[test]
fn files_that_changed_in_a_span_of_time_are_found_but_for_ignored_ones() {
    let rig = Rig::new();
    for path in [".gitignore", "by_command", "d/too", "known", "ignored", ".git/index", "old"] {
        rig.put(path, if path == ".gitignore" { "ignored\n" } else { "x" });
    }
    let at = |path: &str| rig.workspace.join(path);
    let set = |path: &str, secs: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(secs);
        fs::File::open(at(path)).unwrap().set_modified(time).unwrap();
    };
    for path in ["by_command", "d/too", "known", "ignored", ".git/index"] {
        set(path, 1000);
    }
    set("old", 10);
    let span = (Timestamp::from_ms(999_000), Timestamp::from_ms(1_001_000));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let known = std::iter::once("known".to_owned()).collect();
    let found = runtime.block_on(tenure_tools::changed_meanwhile(rig.workspace.clone(), span, known));
    assert_eq!(found.paths, ["by_command", "d/too"]);
    assert!(!found.more);
}

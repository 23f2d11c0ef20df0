//! What a model may ask for, and what a workspace may say: never a panic, never a file outside, all of it or nothing.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};
use tenure_fuzzkit::target;
use tenure_tools::{find_verify_plan, sweep_leftovers};
use tokio::runtime::Runtime;

use crate::rig::Rig;

/// Commands that a file may name.
const COMMANDS_MAX: usize = 32;
/// How many of the accepted patches are also given to git: starting it takes time.
const GIT_EVERY: usize = 3;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn fill(rig: &Rig) {
    rig.put("mod", "1\n2\n3\n");
    rig.put("gone", "bye\n");
    rig.put("open", "first\nlast");
    rig.put("crlf", "one\r\ntwo\r\n");
    rig.put("blank", "a\n\nb\n");
    rig.put("long", (1..=20).map(|n| format!("line {n}\n")).collect::<String>());
}

/// Every file below a folder, with its bytes.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap().flatten() {
            let name = entry.path().strip_prefix(folder).unwrap().to_string_lossy().into_owned();
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => drop(found.insert(name, fs::read(entry.path()).unwrap())),
            }
        }
    }
    found
}

/// What lies beside the workspace.
fn outside(rig: &Rig) -> BTreeMap<String, Vec<u8>> {
    files(rig.outside()).into_iter().filter(|(name, _)| !name.starts_with("workspace/")).collect()
}

fn empty(rig: &Rig) {
    fs::remove_dir_all(&rig.workspace).unwrap();
    fs::create_dir(&rig.workspace).unwrap();
}

#[test]
fn patch() {
    let (rig, runtime) = (Rig::new(), runtime());
    let (beside, has_git) = (outside(&rig), git(rig.outside(), &["--version"], b"").is_some());
    let mut accepted = 0;
    target!("patch").cases(400).run(|input| {
        let patch = String::from_utf8_lossy(input).into_owned();
        empty(&rig);
        fill(&rig);
        let before = files(&rig.workspace);
        let call = json!({ "patch": patch });
        if rig.registry.check("apply_patch", &call).is_err() {
            return;
        }
        let _ = rig.registry.subject("apply_patch", &call, None);
        let invoked = runtime.block_on(rig.call("apply_patch", call));
        let after = files(&rig.workspace);
        assert_eq!(outside(&rig), beside, "a file outside of the workspace was written");
        if !invoked.result.ok {
            assert_eq!(after, before, "a refused patch changed something");
            return;
        }
        accepted += 1;
        if has_git && accepted % GIT_EVERY == 0 {
            agrees_with_git(&rig, patch.as_bytes(), &after);
        }
    });
}

/// The format that agents write: taken or refused as a whole, and what is taken says what it did.
#[test]
fn agent_patch() {
    let (rig, runtime) = (Rig::new(), runtime());
    let beside = outside(&rig);
    target!("agent_patch").cases(600).run(|input| {
        let patch = String::from_utf8_lossy(input).into_owned();
        empty(&rig);
        fill(&rig);
        let before = files(&rig.workspace);
        let call = json!({ "patch": patch });
        if rig.registry.check("apply_patch", &call).is_err() {
            return;
        }
        let subject = rig.registry.subject("apply_patch", &call, None);
        let invoked = runtime.block_on(rig.call("apply_patch", call));
        let after = files(&rig.workspace);
        assert_eq!(outside(&rig), beside, "a file outside of the workspace was written");
        if !invoked.result.ok {
            assert_eq!(after, before, "a refused patch changed something");
            return;
        }
        let changed = before.keys().chain(after.keys()).filter(|path| before.get(*path) != after.get(*path));
        let named: Vec<&str> = invoked.result.detail["files"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|file| file["path"].as_str())
            .collect();
        for path in changed {
            assert!(named.contains(&path.as_str()), "{path} was changed and is not told");
        }
        assert!(!subject.is_empty(), "a rule could not match on what was changed");
        // A file that only has CRLF never gets a bare line feed.
        if let Some(crlf) = after.get("crlf").filter(|_| before.contains_key("crlf")) {
            let bare = crlf.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || crlf[at - 1] != b'\r'));
            assert!(
                !bare || patch.contains("*** Delete File: crlf") || patch.contains("*** Move to: crlf"),
                "{crlf:?}"
            );
        }
    });
}

/// Where git takes the patch too, it makes the same of it.
fn agrees_with_git(rig: &Rig, patch: &[u8], ours: &BTreeMap<String, Vec<u8>>) {
    empty(rig);
    fill(rig);
    let crlf = "crlf".to_owned();
    // git takes the first part of a name away whatever it is; the tool takes only `a/` and `b/`.
    let plain = |line: &[u8]| {
        let names = [b"--- a/".as_slice(), b"+++ b/", b"--- /dev/null", b"+++ /dev/null"];
        !(line.starts_with(b"--- ") || line.starts_with(b"+++ ")) || names.iter().any(|name| line.starts_with(name))
    };
    if !patch.split(|byte| *byte == b'\n').all(plain) {
        return;
    }
    let taken = git(&rig.workspace, &["apply", "-p1", "--unidiff-zero", "--whitespace=nowarn", "-"], patch).is_some();
    let theirs = files(&rig.workspace);
    // Where nonsense follows the announcement of a new file, git makes an empty one; ours holds to the lines `---`, `+++`.
    let nonsense = theirs.iter().any(|(name, bytes)| bytes.is_empty() && !ours.contains_key(name));
    // Keeping CRLF where the patch has LF is ours alone.
    if taken && !nonsense && theirs.get(&crlf) == ours.get(&crlf) {
        let differing = ours.keys().chain(theirs.keys()).find(|name| ours.get(*name) != theirs.get(*name));
        let text = |files: &BTreeMap<String, Vec<u8>>, name: &String| {
            files.get(name).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        };
        let shown = differing.map(|name| (name, text(ours, name), text(&theirs, name)));
        assert_eq!(shown, None, "git makes something else of it");
    }
}

fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Option<()> {
    use std::io::Write as _;
    let mut child = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CEILING_DIRECTORIES", "/")
        .env("GIT_DIR", "/nonexistent")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // A git that ends before it has read everything has refused.
    let _ = child.stdin.take()?.write_all(input);
    child.wait().ok()?.success().then_some(())
}

#[test]
fn input() {
    let (rig, runtime) = (Rig::new(), runtime());
    let beside = outside(&rig);
    target!("input").cases(400).run(|input| {
        let text = String::from_utf8_lossy(input);
        let Some((tool, call)) = text.split_once('\n') else { return };
        let Ok(call) = serde_json::from_str::<Value>(call) else { return };
        empty(&rig);
        fill(&rig);
        let fits = rig.registry.check(tool, &call).is_ok();
        let _ = rig.registry.subject(tool, &call, None);
        // Commands are not run: what a changed one does is nobody's business.
        if fits && ["read_file", "write_file", "edit_file", "apply_patch"].contains(&tool) {
            let before = files(&rig.workspace);
            let invoked = runtime.block_on(rig.call(tool, call));
            assert_eq!(outside(&rig), beside, "a file outside of the workspace was written");
            assert!(invoked.result.ok || files(&rig.workspace) == before, "a refused call changed something");
        }
    });
}

#[test]
fn agents() {
    let folder = tempfile::tempdir().unwrap();
    target!("agents").cases(400).run(|input| {
        for name in ["AGENTS.md", "Makefile"] {
            fs::write(folder.path().join(name), input).unwrap();
        }
        let Some(plan) = find_verify_plan(folder.path(), None) else { return };
        let text = String::from_utf8_lossy(input);
        assert!((1..=COMMANDS_MAX).contains(&plan.commands.len()));
        for command in plan.commands {
            assert!(!command.trim().is_empty() && !command.contains('\n'), "{command:?}");
            assert!(command == "make test" || text.contains(&command), "{command:?} is not in the file");
        }
    });
}

#[test]
fn ledger() {
    let folder = tempfile::tempdir().unwrap();
    target!("ledger").cases(40).run(|input| {
        let ledger = folder.path().join("processes");
        fs::create_dir_all(&ledger).unwrap();
        fs::write(ledger.join("call_01J00000000000000000000003"), input).unwrap();
        // No process that lives fits what the corpus says, so none is ended; least of all this one.
        assert_eq!(sweep_leftovers(&ledger, "a mark that no process carries"), Vec::<String>::new());
        assert_eq!(fs::read_dir(&ledger).unwrap().count(), 0);
    });
}

/// What a supervisor is told on its pipe. Commands other than the one of the corpus are not given to it.
#[test]
fn supervisor() {
    target!("supervisor").cases(40).at_most(2000).run(|input| {
        if names_another_command(input) {
            return;
        }
        let output = supervise(input);
        assert!(output.status.code().is_some_and(|code| code != 101), "{:?}", output.status);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.lines().count() <= 1, "more than one report: {said}");
        for report in said.lines() {
            let report: Value = serde_json::from_str(report).unwrap();
            assert!(report["exit"].is_object() || report["exit"].is_string(), "{report}");
        }
    });
}

fn names_another_command(input: &[u8]) -> bool {
    let first = input.split(|byte| *byte == b'\n').next().unwrap_or_default();
    // Whatever could be taken for an order after all is not worth the risk.
    let text = String::from_utf8_lossy(first);
    !text.contains(r#""command":["true"]"#) && text.contains("command") || text.matches("command").count() > 1
}

fn supervise(input: &[u8]) -> std::process::Output {
    use std::io::Write as _;
    let mut child = Command::new(env!("CARGO_BIN_EXE_tenure-supervise"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // One that ends before it has read everything has refused; closing the pipe ends the others.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

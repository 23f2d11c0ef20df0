//! What the scripted models play and what a workspace holds at first. A message asks for one of the wishes by its tag; the model does it, and closes with a text.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::chance::Chance;

/// Each shell call leaves its id here, first thing.
pub const CALLS_FILE: &str = "calls.txt";
/// Each verification leaves its id here.
pub const VERIFIED_FILE: &str = "verified.txt";
/// Part of every command that has to be stopped from outside, or by its time-out.
pub const LONG_SLEEP: &str = "sleep 600";

/// What a message can ask for. The more often one is named, the more often it is wished.
const WISHES: [&str; 22] = [
    "talk",
    "talk",
    "talk-long",
    "think",
    "read",
    "read",
    "write-0",
    "write-1",
    "write-2",
    "write-3",
    "patch-two",
    "patch-one",
    "shell",
    "shell",
    "shell-output",
    "shell-children",
    "shell-children",
    "mixed",
    "break",
    "fail",
    "shell-chain",
    "big-output",
];

/// The text of a message that asks for something.
pub fn wish(chance: &mut Chance, number: u64) -> String {
    let tag = chance.one_of(&WISHES).copied().unwrap_or("talk");
    format!("Message {number}: please <{tag}>, grüße 🐢.")
}

/// The script files below the soak's folder.
#[derive(Debug, Clone)]
pub struct Scripts {
    wishes: PathBuf,
    flaky: PathBuf,
}

impl Scripts {
    pub fn write(folder: &Path) -> io::Result<Scripts> {
        let (wishes, flaky) = (folder.join("wishes.json"), folder.join("flaky.json"));
        fs::write(&wishes, wishes_script().to_string())?;
        fs::write(&flaky, flaky_script().to_string())?;
        Ok(Scripts { wishes, flaky })
    }

    /// The model's name for a session.
    pub fn model(&self, flaky: bool) -> String {
        format!("scripted:{}", if flaky { &self.flaky } else { &self.wishes }.display())
    }
}

fn text(words: &str, chunk: usize, pause_ms: u64) -> Value {
    json!({"text": words, "chunk": chunk, "pause_ms": pause_ms})
}

fn call(name: &str, input: Value) -> Value {
    json!({"call": {"name": name, "input": input}, "chunk": 24, "pause_ms": 1})
}

fn shell(command: &str, timeout_ms: u64) -> Value {
    let command = format!("echo \"$TENURE_CALL\" >> {CALLS_FILE}; {command}");
    call("shell", json!({"command": command, "timeout_ms": timeout_ms}))
}

fn write(path: &str, content: &str) -> Value {
    call("write_file", json!({"path": path, "content": content}))
}

fn patch(from: &str, to: &str) -> Value {
    let patch = format!("--- a/patched.txt\n+++ b/patched.txt\n@@ -1,1 +1,1 @@\n-{from}\n+{to}\n");
    call("apply_patch", json!({"patch": patch}))
}

/// One step, repeated for ever; which of its cases is played depends on what came since the last reply.
fn wishes_script() -> Value {
    let prose = "Ein Satz mit Umlauten, and some more words for the stream. ".repeat(3);
    let quiet = || text("Let me see. ", 6, 2);
    // Children of each kind: plain, in a session of its own, and one without any mark in its environment.
    let children = format!(
        "{LONG_SLEEP} & setsid {LONG_SLEEP} & env -i sh -c \": $TENURE_CALL; {LONG_SLEEP}; :\" & (trap '' TERM; {LONG_SLEEP}) & wait"
    );
    let mut cases: Vec<(String, Vec<Value>)> = vec![
        ("mend".into(), vec![text("It failed; mending. ", 6, 2), write("state.txt", "good\n")]),
        ("talk".into(), vec![text(&prose, 8, 5)]),
        ("talk-long".into(), vec![text(&prose.repeat(5), 4, 5)]),
        ("think".into(), vec![json!({"thinking": prose, "chunk": 16, "pause_ms": 3}), text("Thought about it.", 4, 3)]),
        (
            "read".into(),
            vec![
                quiet(),
                call("read_file", json!({"path": "README.md"})),
                call("read_file", json!({"path": "state.txt"})),
            ],
        ),
        ("patch-two".into(), vec![quiet(), patch("state one", "state two")]),
        ("patch-one".into(), vec![quiet(), patch("state two", "state one")]),
        ("shell".into(), vec![quiet(), shell("echo done", 20_000)]),
        (
            "shell-output".into(),
            vec![quiet(), shell("for i in 1 2 3 4 5 6 7 8 9 10; do echo \"line $i żółw\"; sleep 0.03; done", 20_000)],
        ),
        ("shell-chain".into(), vec![quiet(), shell("echo 'next: <mixed>'", 20_000)]),
        (
            "mixed".into(),
            vec![
                quiet(),
                call("read_file", json!({"path": "patched.txt"})),
                write("mixed.txt", "mixed\n"),
                shell("echo both", 20_000),
            ],
        ),
        ("big-output".into(), vec![quiet(), shell("seq 1 20000", 20_000)]),
        ("break".into(), vec![quiet(), write("state.txt", "bad\n")]),
        ("fail".into(), vec![quiet(), json!({"error": {"kind": "bad_request", "message": "as the script says"}})]),
        // The last: a cancelled one would otherwise be played again with each next message.
        ("shell-children".into(), vec![quiet(), shell(&children, 1500)]),
    ];
    let writes =
        (0..4).map(|n| (format!("write-{n}"), vec![quiet(), write("notes.txt", &format!("note {n}\n").repeat(40))]));
    cases.splice(1..1, writes);
    let mut cases: Vec<Value> =
        cases.into_iter().map(|(tag, actions)| json!({"seen": format!("<{tag}>"), "do": actions})).collect();
    cases.push(json!({"do": [text("All of this is done. ", 5, 4)]}));
    json!({"name": "wishes", "steps": [{"cases": cases}], "after": "repeat"})
}

/// Attempts that fail in the middle and at once, then a call, then a text.
fn flaky_script() -> Value {
    let late = json!({"error": {"kind": "overloaded", "message": "busy", "retry_after_ms": 30}});
    json!({"name": "flaky", "after": "repeat", "steps": [
        {"attempts": [
            {"do": [text("This will break off in the middle", 4, 4), {"drop": true}]},
            {"do": [late]},
            {"do": [text("Third time lucky. ", 4, 4), shell("echo flaky", 20_000)]},
        ]},
        {"do": [text("And that was all there was to do here. ", 4, 6)]},
    ]})
}

/// A folder for the tools of one session to act in.
pub fn furnish(workspace: &Path) -> io::Result<()> {
    fs::create_dir_all(workspace)?;
    fs::write(workspace.join("README.md"), "# A workspace\n\nNothing to see.\n")?;
    fs::write(workspace.join("patched.txt"), "state one\n")?;
    fs::write(workspace.join("state.txt"), "good\n")?;
    fs::write(workspace.join("check.sh"), "grep -q good state.txt || { echo '<mend>'; exit 1; }\n")
}

/// The request that makes a session; its policy is one of many.
pub fn create_body(scripts: &Scripts, workspace: &Path, chance: &mut Chance) -> Value {
    let resume = chance.one_of(&["ask", "safe", "always"]).copied().unwrap_or("safe");
    let verify = format!("echo \"$TENURE_CALL\" >> {VERIFIED_FILE}; sh check.sh");
    let mut approval = json!({});
    if chance.percent(25) {
        approval["require_for_kinds"] = json!([]);
    }
    if chance.percent(15) {
        approval["expires_after_ms"] = json!(1500);
    }
    json!({
        "workspace_path": workspace,
        "model": scripts.model(chance.percent(12)),
        "title": "soak",
        "policy": {
            "approval": approval,
            "verify": {"commands": [verify], "auto_verify": chance.percent(70)},
            "recovery": {"resume": resume},
        },
    })
}

//! A disk that fills up while the daemon runs: whoever waits is told why, and all goes on when there is space.

use std::process::Command;

use serde_json::json;

use crate::rig::{Folder, Ran};

/// Runs on a small disk of its own; 77 where such a one cannot be had. `told FILE TEXT` waits for a text.
const SCRIPT: &str = r#"
    mount -t tmpfs -o size=8m tmpfs "$DATA" 2>/dev/null || exit 77
    trap '"$TENURE" stop >/dev/null 2>&1' EXIT
    told() { n=0; until grep -q "$2" "$1"; do n=$((n + 1)); [ $n -lt 600 ] || { cat "$1"; exit 9; }; sleep 0.1; done; }
    fill() { cat /dev/zero > "$DATA/ballast" 2>/dev/null; }
    set -e
    "$TENURE" sessions > /dev/null 2>&1
    fill || true
    "$TENURE" ask hi > out1 2> err1 &
    told err1 "refused a write.*free some space. Trying again for 60 s"
    "$TENURE" doctor > doctor || true
    rm "$DATA/ballast"
    wait $!
    "$TENURE" ask --model "$MODEL" go > out2 2> err2 &
    until [ -e begun ]; do sleep 0.1; done
    fill || true
    touch gate
    told err2 "disk is full and refuses writes (no space left): the turn waits until there is space"
    rm "$DATA/ballast"
    wait $!
"#;

#[test]
fn a_full_disk_is_told_and_waited_for() {
    let folder = Folder::new();
    std::fs::create_dir(folder.data()).unwrap();
    let gate = folder.workspace().join("gate");
    let begins = json!({"do": [{"call": {"name": "write_file", "input": {"path": "begun", "content": ""}}}]});
    let says = json!({"do": [{"wait_for": gate}, {"text": "x".repeat(50_000)}]});
    let model = folder.script(&json!({"name": "s", "steps": [begins, says]}));
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "sh", "-c", SCRIPT]).current_dir(folder.workspace());
    command.env("DATA", folder.data()).env("TENURE_DATA", folder.data()).env("MODEL", model);
    let Ok(output) = command.env("TENURE", env!("CARGO_BIN_EXE_tenure")).output() else { return };
    let ran = Ran::of(output);
    if ran.code == Some(77) || ran.stderr.contains("unshare failed") {
        eprintln!("skipped: a file system cannot be mounted here");
        return;
    }
    let read = |name: &str| std::fs::read_to_string(folder.workspace().join(name)).unwrap_or_default();
    assert_eq!(ran.code, Some(0), "{ran:?}\n{}\n{}", read("err1"), read("err2"));
    assert!(!read("err1").contains("The daemon is back."), "{}", read("err1"));
    assert!(read("out1").contains("You wrote: “hi”"), "{}", read("out1"));
    assert_eq!(read("out2").trim().len(), 50_000, "{}", read("err2"));
    assert!(read("doctor").contains("free some space on its disk"), "{}", read("doctor"));
}

//! `repo_tree`: what is shown, what is left out, and that it is said.

use serde_json::json;
use tenure_tools::OUTPUT_BYTES_MAX;

use crate::rig::Rig;

#[tokio::test]
async fn a_tree_with_its_rules_respected() {
    let rig = Rig::new();
    for path in ["src/lib.rs", "src/deep/er/x.rs", "README.md", "target/big", "notes.log", ".hidden/x", ".git/config"] {
        rig.put(path, "x");
    }
    rig.put(".gitignore", "/target\n*.log\n");
    rig.put("data.bin", vec![0; 300 * 1024]);
    std::os::unix::fs::symlink("/etc", rig.workspace.join("link")).unwrap();
    let expected =
        ".: 5 files in 3 folders\nsrc/\n  deep/\n    er/\n      x.rs\n  lib.rs\nREADME.md\ndata.bin (300 KB)\nlink@";
    assert_eq!(rig.text("repo_tree", json!({})).await, expected);
    let all = rig.text("repo_tree", json!({"hidden": true, "ignored": true})).await;
    assert!(["target/", "notes.log", ".hidden/", ".gitignore"].iter().all(|name| all.contains(name)), "{all}");
    assert!(!all.contains("config"), "{all}");
    let expected = "src: 2 files in 2 folders\ndeep/ (1 file in 1 folder)\nlib.rs\n[folders with a count are not opened here: ask for one by its path]";
    assert_eq!(rig.text("repo_tree", json!({"path": "src", "depth": 1})).await, expected);
    // What is asked for by name is shown, ignored or not.
    assert_eq!(rig.text("repo_tree", json!({"path": "target"})).await, "target: 1 file\nbig");
}

#[tokio::test]
async fn a_large_tree_is_shown_as_deep_as_fits() {
    let rig = Rig::new();
    for folder in 0..40 {
        for file in 0..60 {
            rig.put(&format!("folder{folder:02}/file{file:02}"), "");
        }
    }
    let text = rig.text("repo_tree", json!({})).await;
    assert!(text.starts_with(".: 2400 files in 40 folders\nfolder00/ (60 files)\nfolder01/"), "{text}");
    assert!(text.ends_with("[folders with a count are not opened here: ask for one by its path]"), "{text}");
    let cut = rig.text("repo_tree", json!({"depth": 2})).await;
    assert!(
        cut.len() <= OUTPUT_BYTES_MAX && cut.contains("[there is more than fits: ask for a folder by its path"),
        "{cut}"
    );
    for file in 0..500 {
        rig.put(&format!("one/{file:03}"), "");
    }
    let one = rig.text("repo_tree", json!({"path": "one"})).await;
    assert!(one.ends_with("199\n… 300 more files here"), "{one}");
}

#[tokio::test]
async fn it_does_not_lead_out_of_the_workspace() {
    let rig = Rig::new();
    std::os::unix::fs::symlink("/", rig.workspace.join("out")).unwrap();
    rig.put("file", "");
    for (path, expected) in [
        ("..", ".. is outside the workspace; use a path relative to it"),
        ("/etc", "/etc is outside the workspace; use a path relative to it"),
        ("out", "out is a symlink; name the file or folder itself"),
        ("out/etc", "out/etc leads through a symlink; name the file or folder itself"),
        ("none", "there is no file or folder none"),
        ("file", "file is a file; read_file shows it"),
    ] {
        assert_eq!(rig.error("repo_tree", json!({"path": path})).await, expected);
    }
    for path in [".", "./", rig.workspace.to_str().unwrap()] {
        assert!(rig.text("repo_tree", json!({"path": path})).await.starts_with(".: 2 files"));
    }
}

#[tokio::test]
async fn a_call_that_nobody_wants_ends() {
    let rig = Rig::new();
    rig.put("a", "x");
    rig.context.cancel.cancel();
    assert_eq!(rig.error("repo_tree", json!({})).await, "stopped");
    assert_eq!(rig.error("search", json!({"pattern": "x"})).await, "stopped");
}

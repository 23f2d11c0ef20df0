//! `write_file`: the intent says what will be, the call does just that.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;
use tenure_core::tool::{FileChange, Intent};

use crate::rig::Rig;

fn digest(bytes: &str) -> Option<String> {
    Some(blake3::hash(bytes.as_bytes()).to_hex().to_string())
}

#[tokio::test]
async fn a_new_file_gets_its_folders_and_no_blob() {
    let rig = Rig::new();
    let input = json!({"path": "a/b/c.txt", "content": "hello\n"});
    let intent = rig.prepare("write_file", &input).await.unwrap();
    let change = FileChange { path: "a/b/c.txt".into(), after: digest("hello\n"), ..FileChange::default() };
    assert_eq!(intent, Intent { files: vec![change], folders: vec!["a".into(), "a/b".into()] });
    assert_eq!(rig.tree(), Vec::<String>::new(), "prepare changes nothing");
    let invoked = rig.invoke("write_file", &input, &intent).await;
    assert_eq!(invoked.result.detail, json!({"files": [{"path": "a/b/c.txt", "added": 1, "removed": 0}]}));
    assert_eq!(rig.get("a/b/c.txt").unwrap(), "hello\n");
    assert_eq!(rig.tree(), ["a", "a/b", "a/b/c.txt"]);
    assert!(rig.blobs.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_old_file_keeps_its_mode_and_its_old_bytes_are_kept() {
    let rig = Rig::new();
    rig.put("x.sh", "old\n");
    let path = rig.workspace.join("x.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    let input = json!({"path": "x.sh", "content": "new\n"});
    let intent = rig.prepare("write_file", &input).await.unwrap();
    let blob = "artifacts/turn_01J00000000000000000000002/call_01J00000000000000000000003-0.old";
    let change = FileChange {
        path: "x.sh".into(),
        before: digest("old\n"),
        after: digest("new\n"),
        old_bytes: Some(blob.into()),
        mode: Some(0o750),
        ..FileChange::default()
    };
    assert_eq!(intent, Intent { files: vec![change], folders: vec![] });
    let invoked = rig.invoke("write_file", &input, &intent).await;
    let text = tenure_core::message::joined_text(&invoked.result.parts);
    assert_eq!(text, "changed x.sh (+1 -1)\n@@ -1 +1 @@\n-old\n+new");
    assert_eq!(rig.get("x.sh").unwrap(), "new\n");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(rig.blobs.0.lock().unwrap()[blob], "old\n");
}

#[tokio::test]
async fn a_file_that_changed_since_is_left_alone() {
    let rig = Rig::new();
    rig.put("f", "one");
    let input = json!({"path": "f", "content": "two"});
    let intent = rig.prepare("write_file", &input).await.unwrap();
    for now in [Some("someone else"), None] {
        match now {
            Some(text) => rig.put("f", text),
            None => std::fs::remove_file(rig.workspace.join("f")).unwrap(),
        }
        let invoked = rig.invoke("write_file", &input, &intent).await;
        assert!(invoked.result.error.unwrap().contains("changed since"));
        assert_eq!(rig.get("f").as_deref(), now);
    }
}

#[tokio::test]
async fn a_cancelled_call_changes_nothing() {
    let rig = Rig::new();
    let input = json!({"path": "f", "content": "two"});
    let intent = rig.prepare("write_file", &input).await.unwrap();
    rig.context.cancel.cancel();
    assert!(!rig.invoke("write_file", &input, &intent).await.result.ok);
    assert_eq!(rig.get("f"), None);
}

#[tokio::test]
async fn a_hard_link_outside_keeps_its_content() {
    let rig = Rig::new();
    rig.put("f", "one");
    std::fs::hard_link(rig.workspace.join("f"), rig.outside().join("linked")).unwrap();
    rig.text("write_file", json!({"path": "f", "content": "two"})).await;
    assert_eq!(std::fs::read_to_string(rig.outside().join("linked")).unwrap(), "one");
}

#[tokio::test]
async fn odd_targets_are_refused() {
    let rig = Rig::new();
    rig.put("d/x", "");
    assert_eq!(rig.error("write_file", json!({"path": "d", "content": ""})).await, "d is a directory, not a file");
    let error = rig.error("write_file", json!({"path": "d/x/y", "content": ""})).await;
    assert_eq!(error, "d/x is not a folder, so d/x/y cannot be in it");
    for path in [".git/hooks/pre-commit", "sub/.git/config", ".GIT/config"] {
        assert!(rig.error("write_file", json!({"path": path, "content": ""})).await.contains("belongs to git"));
    }
    assert_eq!(rig.tree(), ["d", "d/x"]);
}

//! `apply_patch`: all files or none.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::rig::Rig;

const THREE: &str = "\
--- a/mod
+++ b/mod
@@ -1,3 +1,3 @@
 1
-2
+two
 3
--- /dev/null
+++ b/sub/new
@@ -0,0 +1,2 @@
+a
+b
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-bye
";

fn rig() -> Rig {
    let rig = Rig::new();
    rig.put("mod", "1\n2\n3\n");
    rig.put("gone", "bye\n");
    rig
}

#[tokio::test]
async fn several_files_are_changed_created_and_deleted() {
    let rig = rig();
    let text = rig.text("apply_patch", json!({"patch": THREE})).await;
    assert_eq!(text, "changed mod (+1 -1)\ncreated sub/new (+2 -0)\ndeleted gone (+0 -1)");
    assert_eq!(rig.tree(), ["mod", "sub", "sub/new"]);
    assert_eq!((rig.get("mod").unwrap().as_str(), rig.get("sub/new").unwrap().as_str()), ("1\ntwo\n3\n", "a\nb\n"));
    let blobs: Vec<String> = rig.blobs.0.lock().unwrap().keys().cloned().collect();
    assert!(blobs[0].ends_with("-0.old") && blobs[1].ends_with("-2.old") && blobs.len() == 2, "{blobs:?}");
    assert_eq!(rig.registry.subject("apply_patch", &json!({"patch": THREE}), None), "mod\nsub/new\ngone");
}

#[tokio::test]
async fn a_second_file_that_does_not_fit_keeps_the_first_as_it_was() {
    let rig = rig();
    rig.put("gone", "other\n");
    let error = rig.error("apply_patch", json!({"patch": THREE})).await;
    assert!(error.starts_with("gone: hunk #1 does not fit"), "{error}");
    assert_eq!(rig.get("mod").unwrap(), "1\n2\n3\n");
    assert_eq!(rig.tree(), ["gone", "mod"]);
}

/// The plan fits, but writing the last file fails: its parent became a file on the way.
#[tokio::test]
async fn a_failure_midway_puts_everything_back() {
    let rig = rig();
    let path = rig.workspace.join("mod");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o701)).unwrap();
    let patch = format!(
        "{THREE}--- /dev/null\n+++ b/deep/er/x\n@@ -0,0 +1 @@\n+x\n--- /dev/null\n+++ b/p\n@@ -0,0 +1 @@\n+x\n\
         --- /dev/null\n+++ b/p/q\n@@ -0,0 +1 @@\n+x\n"
    );
    let error = rig.error("apply_patch", json!({"patch": patch})).await;
    assert!(error.ends_with("; nothing was changed"), "{error}");
    assert_eq!(rig.tree(), ["gone", "mod"]);
    assert_eq!((rig.get("mod").unwrap().as_str(), rig.get("gone").unwrap().as_str()), ("1\n2\n3\n", "bye\n"));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o701);
}

#[tokio::test]
async fn a_drifted_file_stops_the_whole_call() {
    let rig = rig();
    let input = json!({"patch": THREE});
    let intent = rig.prepare("apply_patch", &input).await.unwrap();
    // Drift that the patch would still fit, and drift that it would not.
    for (path, text) in [("mod", "0\n1\n2\n3\n"), ("gone", "hello\n")] {
        rig.put(path, text);
        let invoked = rig.invoke("apply_patch", &input, &intent).await;
        assert!(invoked.result.error.unwrap().contains("changed since"));
        assert_eq!(rig.tree(), ["gone", "mod"]);
        assert_eq!(rig.get(path).unwrap(), text);
    }
}

#[tokio::test]
async fn the_wrong_state_of_a_file_is_named() {
    let rig = rig();
    let create = "--- /dev/null\n+++ b/mod\n@@ -0,0 +1 @@\n+x\n";
    assert_eq!(
        rig.error("apply_patch", json!({"patch": create})).await,
        "mod exists already; the patch would create it"
    );
    let absent = "--- a/none\n+++ b/none\n@@ -1 +1 @@\n-x\n+y\n";
    assert_eq!(rig.error("apply_patch", json!({"patch": absent})).await, "there is no file none");
    let part = "--- a/mod\n+++ /dev/null\n@@ -1 +0,0 @@\n-1\n";
    assert!(rig.error("apply_patch", json!({"patch": part})).await.contains("does not remove all of its lines"));
}

#[tokio::test]
async fn one_file_under_two_names_is_refused() {
    let rig = Rig::new();
    rig.put("d/x", "1\n");
    std::os::unix::fs::symlink("d", rig.workspace.join("e")).unwrap();
    for (one, other) in [("d/x", "e/x"), ("d/x", "d/x"), ("d/x", "d/../d/x")] {
        let part = |path| format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-1\n+2\n");
        let error = rig.error("apply_patch", json!({"patch": part(one) + &part(other)})).await;
        assert!(error.ends_with("is named twice"), "{error}");
    }
    assert_eq!(rig.get("d/x").unwrap(), "1\n");
}

#[tokio::test]
async fn endings_and_the_executable_bit() {
    let rig = Rig::new();
    rig.put("crlf", "a\r\nb\r\n");
    rig.text("apply_patch", json!({"patch": "--- a/crlf\n+++ b/crlf\n@@ -1,2 +1,3 @@\n a\n+new\n b\n"})).await;
    assert_eq!(rig.get("crlf").unwrap(), "a\r\nnew\r\nb\r\n");
    let patch = "diff --git a/run b/run\nnew file mode 100755\n--- /dev/null\n+++ b/run\n@@ -0,0 +1 @@\n+#!/bin/sh\n";
    rig.text("apply_patch", json!({"patch": patch})).await;
    assert!(rig.workspace.join("run").metadata().unwrap().permissions().mode() & 0o100 != 0);
}

#[tokio::test]
async fn the_agents_format_changes_makes_moves_and_deletes_all_or_nothing() {
    let rig = rig();
    rig.put("run", "#!/bin/sh\r\necho 1\r\n");
    std::fs::set_permissions(rig.workspace.join("run"), std::fs::Permissions::from_mode(0o751)).unwrap();
    let patch = "*** Begin Patch\n*** Update File: run\n*** Move to: bin/run\n@@ #!/bin/sh\n-echo 1\n+echo 2\n\
                 *** Add File: sub/new\n+a\n*** Delete File: gone\n*** Update File: mod\n@@\n-2\n+two\n*** End Patch";
    let broken = patch.replace("\n-2\n", "\n-9\n");
    let error = rig.error("apply_patch", json!({"patch": broken})).await;
    assert!(error.starts_with("mod: hunk #1 does not fit"), "{error}");
    assert_eq!(rig.tree(), ["gone", "mod", "run"]);
    let text = rig.text("apply_patch", json!({"patch": patch})).await;
    assert_eq!(
        text,
        "created bin/run (+2 -0)\ndeleted run (+0 -2)\ncreated sub/new (+1 -0)\ndeleted gone (+0 -1)\nchanged mod (+1 -1)"
    );
    assert_eq!(rig.tree(), ["bin", "bin/run", "mod", "sub", "sub/new"]);
    assert_eq!(rig.get("bin/run").unwrap(), "#!/bin/sh\r\necho 2\r\n");
    assert_eq!(rig.workspace.join("bin/run").metadata().unwrap().permissions().mode() & 0o7777, 0o751);
    let subject = rig.registry.subject("apply_patch", &json!({"patch": patch}), None);
    assert_eq!(subject, "run\nbin/run\nsub/new\ngone\nmod", "a rule sees where a file goes");
}

#[tokio::test]
async fn a_move_never_takes_another_file_s_place() {
    let rig = rig();
    let patch = "*** Begin Patch\n*** Update File: mod\n*** Move to: gone\n*** End Patch";
    assert!(rig.error("apply_patch", json!({"patch": patch})).await.starts_with("gone exists already"));
    let out = "*** Begin Patch\n*** Update File: mod\n*** Move to: ../gone\n*** End Patch";
    assert!(rig.error("apply_patch", json!({"patch": out})).await.contains("outside the workspace"));
    assert_eq!(rig.tree(), ["gone", "mod"]);
}

#[tokio::test]
async fn what_was_adjusted_is_told() {
    let rig = rig();
    let text = rig.text("apply_patch", json!({"patch": "--- a/mod\n+++ b/mod\n@@ -7,9 +7,9 @@\n 1\n-2\n+two\n"})).await;
    assert_eq!(
        text,
        "changed mod (+1 -1)\n  note: hunk #1 was found at line 1, not at line 7\n  \
         note: the line counts of hunk #1 did not fit and were passed over"
    );
}

//! `edit_file`: one place, and nothing beside it.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use crate::rig::Rig;

#[tokio::test]
async fn one_place_is_replaced_and_the_mode_is_kept() {
    let rig = Rig::new();
    rig.put("run.sh", "#!/bin/sh\necho one\n");
    let path = rig.workspace.join("run.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    let text = rig.text("edit_file", json!({"path": "run.sh", "old": "one", "new": "two"})).await;
    assert_eq!(text, "changed run.sh (+1 -1)\n@@ -1,2 +1,2 @@\n #!/bin/sh\n-echo one\n+echo two");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(rig.registry.subject("edit_file", &json!({"path": "run.sh", "old": "a", "new": "b"}), None), "run.sh");
}

#[tokio::test]
async fn all_places_are_replaced_when_asked() {
    let rig = Rig::new();
    rig.put("f", "a b a\r\na\r\n");
    let error = rig.error("edit_file", json!({"path": "f", "old": "a", "new": "c"})).await;
    assert!(error.contains("3 times, at lines 1, 1, 2"), "{error}");
    let text = rig.text("edit_file", json!({"path": "f", "old": "a", "new": "c", "all": true})).await;
    assert!(text.contains("note: replaced in 3 places"), "{text}");
    assert_eq!(rig.get("f").unwrap(), "c b c\r\nc\r\n");
}

#[tokio::test]
async fn what_cannot_be_edited_stays_as_it_is() {
    let rig = Rig::new();
    rig.put("f", "one\n");
    for (input, why) in [
        (json!({"path": "f", "old": "two", "new": "x"}), "old is not in the file"),
        (json!({"path": "f", "old": "one", "new": "one"}), "the same text"),
        (json!({"path": "none", "old": "one", "new": "x"}), "write_file makes one"),
        (json!({"path": "../f", "old": "one", "new": "x"}), "outside the workspace"),
        (json!({"path": ".git/config", "old": "one", "new": "x"}), "belongs to git"),
    ] {
        let error = rig.error("edit_file", input).await;
        assert!(error.contains(why), "{error}");
    }
    assert_eq!(rig.get("f").unwrap(), "one\n");
}

#[tokio::test]
async fn a_file_that_changed_since_is_left_alone() {
    let rig = Rig::new();
    rig.put("f", "one\n");
    let input = json!({"path": "f", "old": "one", "new": "two"});
    let intent = rig.prepare("edit_file", &input).await.unwrap();
    rig.put("f", "one more\n");
    let invoked = rig.invoke("edit_file", &input, &intent).await;
    assert!(invoked.result.error.unwrap().contains("changed since"));
    assert_eq!(rig.get("f").unwrap(), "one more\n");
}

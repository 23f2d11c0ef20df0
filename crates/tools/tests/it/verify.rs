//! `verify`: the plan's commands in order, up to the first that fails.

use serde_json::json;
use tenure_core::message::joined_text;
use tenure_tools::OUTPUT_BYTES_MAX;

use crate::rig::Rig;

#[tokio::test]
async fn all_commands_are_named_with_their_exit_code() {
    let rig = Rig::new().verifying(&["echo one", "echo two; echo three"]);
    let invoked = rig.call("verify", json!({})).await;
    assert!(invoked.result.ok);
    let text = "$ echo one\none\n[exit code 0]\n$ echo two; echo three\ntwo\nthree\n[exit code 0]";
    assert_eq!(joined_text(&invoked.result.parts), text);
    assert_eq!(rig.shown(), "$ echo one\none\n$ echo two; echo three\ntwo\nthree\n");
    let codes: Vec<i64> = invoked.result.detail["commands"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["exit_code"].as_i64().unwrap())
        .collect();
    assert_eq!(codes, [0, 0]);
    assert_eq!(
        rig.registry.subject("verify", &json!({}), rig.context.verify.as_ref()),
        "echo one\necho two; echo three"
    );
}

#[tokio::test]
async fn the_first_failure_ends_it() {
    let rig = Rig::new().verifying(&["true", "echo bad; exit 2", "touch never"]);
    let invoked = rig.call("verify", json!({})).await;
    assert_eq!(invoked.result.error.as_deref(), Some("verification failed: echo bad; exit 2: exit code 2"));
    assert!(joined_text(&invoked.result.parts).ends_with("$ echo bad; exit 2\nbad\n[exit code 2]"));
    assert_eq!(rig.get("never"), None);
}

#[tokio::test]
async fn long_output_is_bounded_and_kept() {
    let flood = "yes some long line of output | head -c 200000";
    let rig = Rig::new().verifying(&[flood, flood, "yes the end | head -c 300000; exit 1"]);
    let invoked = rig.call("verify", json!({})).await;
    let text = joined_text(&invoked.result.parts);
    assert!(text.len() <= OUTPUT_BYTES_MAX && text.ends_with("[exit code 1]"), "{}", text.len());
    assert_eq!(invoked.result.artifacts.len(), 3);
    let kept: Vec<usize> = rig.blobs.0.lock().unwrap().values().map(|bytes| bytes.len()).collect();
    assert_eq!(kept, [200_000, 200_000, 300_000]);
}

#[tokio::test]
async fn without_a_plan_it_says_so() {
    let rig = Rig::new();
    assert!(rig.error("verify", json!({})).await.starts_with("there are no verification commands"));
    let rig = Rig::new().verifying(&[]);
    assert!(rig.error("verify", json!({})).await.starts_with("there are no verification commands"));
}

#[tokio::test]
async fn a_stop_ends_it() {
    let rig = Rig::new().verifying(&["true"]);
    rig.context.cancel.cancel();
    assert_eq!(rig.error("verify", json!({})).await, "verification failed: true: stopped");
}

async fn repository(commands: &[&str]) -> Rig {
    let mut rig = Rig::new().verifying(commands);
    rig.put("tracked", "1\n");
    rig.put("other", "1\n");
    let set_up = "git init -q . && git add . && \
                  git -c user.name=t -c user.email=t@t -c commit.gpgsign=false commit -qm one && echo 2 > other";
    rig.text("shell", json!({"command": set_up})).await;
    rig.context.require_clean = true;
    rig
}

#[tokio::test]
async fn where_clean_is_required_tracked_files_must_stay() {
    let rig = repository(&["echo 2 > tracked"]).await;
    let error = rig.error("verify", json!({})).await;
    assert_eq!(error, "verification failed: the commands left tracked files changed:  M tracked");
    // A file that was changed before, and is changed further.
    let rig = repository(&["echo 3 > other"]).await;
    assert!(rig.error("verify", json!({})).await.contains("left tracked files changed:  M other"));
}

#[tokio::test]
async fn untracked_files_and_earlier_changes_are_no_fault_of_the_commands() {
    let rig = repository(&["echo x > untracked", "touch tracked"]).await;
    rig.text("verify", json!({})).await;
    let mut rig = Rig::new().verifying(&["echo x > file"]);
    rig.context.require_clean = true;
    rig.text("verify", json!({})).await;
}

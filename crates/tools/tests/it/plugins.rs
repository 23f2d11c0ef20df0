//! A workspace's plugins: the examples of both SDKs, and ones that go wrong, run as the daemon runs them.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::json;
use tenure_core::tool::ToolKind;
use tenure_fuzzkit::target;

use crate::{
    foreign::World,
    rig::{alive, unique},
};

fn sdk(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sdk").join(path)
}

fn plugin_folder(world: &World, name: &str) -> PathBuf {
    let folder = world.rig.workspace.join(".agents/tools").join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// A plugin that is a shell script.
fn script(world: &World, name: &str, text: &str) {
    let path = plugin_folder(world, name).join("tool");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

const DESCRIBE: &str = r#"describe() { echo '{"type":"tools","tools":[{"name":"go","input_schema":{"type":"object"}}]}'; }
read -r line; case "$line" in *describe*) describe; exit;; esac; id=$(echo "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/')"#;

#[tokio::test]
async fn the_python_example_works_after_a_yes_to_its_bytes() {
    let world = World::new(vec![]);
    let folder = plugin_folder(&world, "words");
    fs::copy(sdk("python/examples/word_count/tool"), folder.join("tool")).unwrap();
    fs::copy(sdk("python/tenure_tool.py"), folder.join("tenure_tool.py")).unwrap();
    world.rig.put("a.txt", "one two two three three three");
    assert_eq!(world.names().await, ["plugin_connect__words"]);
    assert!(world.foreign.tool(&world.rig.workspace, "plugin__words__word_count").await.is_none());
    assert_eq!(
        world.text("plugin_connect__words", json!({})).await,
        "1 tool of plugin:words can be called from your next step on"
    );
    assert_eq!(world.names().await, ["plugin__words__word_count"]);
    let tool = world.foreign.tool(&world.rig.workspace, "plugin__words__word_count").await.unwrap();
    assert_eq!(tool.spec().kind, ToolKind::Exec);
    let counted = world.text("plugin__words__word_count", json!({"path": "a.txt", "top": 2})).await;
    assert_eq!(counted, "6 words\n3 three\n2 two");
    assert_eq!(world.rig.shown(), "reading a.txt\n");
    let error = world.error("plugin__words__word_count", json!({"path": "none"})).await;
    assert!(error.contains("No such file"), "{error}");

    // One changed byte is another plugin.
    fs::write(folder.join("tenure_tool.py"), "print('gotcha')").unwrap();
    assert_eq!(world.names().await, ["plugin_connect__words"]);
    assert!(world.foreign.tool(&world.rig.workspace, "plugin__words__word_count").await.is_none());
}

#[tokio::test]
async fn the_rust_example_works() {
    let world = World::new(vec![]);
    let target = sdk("../target/sdk-rust");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--example", "longest_line", "--manifest-path"])
        .arg(sdk("rust/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .status()
        .unwrap();
    assert!(built.success());
    fs::copy(target.join("debug/examples/longest_line"), plugin_folder(&world, "lines").join("tool")).unwrap();
    world.rig.put("a.txt", "short\nthe longest\nmiddle");
    world.text("plugin_connect__lines", json!({})).await;
    assert_eq!(world.text("plugin__lines__longest_line", json!({"path": "a.txt"})).await, "the longest");
    assert!(world.rig.shown().starts_with("reading "));
}

#[tokio::test]
async fn plugins_that_go_wrong_are_results_and_leave_nothing_behind() {
    let world = World::new(vec![]);
    let mark = unique().to_string();
    script(&world, "dies", &format!("{DESCRIBE}\necho 'out of luck' >&2; exit 4"));
    script(&world, "babbles", &format!("{DESCRIBE}\necho 'hello there'; sleep {mark}"));
    script(
        &world,
        "leaves",
        &format!("{DESCRIBE}\nsetsid sleep {mark} & echo '{{\"type\":\"result\",\"id\":\"'$id'\",\"text\":\"bye\"}}'"),
    );
    script(&world, "mute", "exit 0");
    script(
        &world,
        "fails",
        &format!(
            "{DESCRIBE}\necho '{{\"type\":\"other\"}}'; echo; echo '{{\"type\":\"result\",\"id\":\"'$id'\",\"ok\":false,\"text\":\"no\"}}'"
        ),
    );
    for name in ["dies", "babbles", "leaves", "fails"] {
        world.text(&format!("plugin_connect__{name}"), json!({})).await;
    }
    let error = world.error("plugin_connect__mute", json!({})).await;
    assert!(error.contains("it ended with exit code 0"), "{error}");
    let error = world.error("plugin__dies__go", json!({})).await;
    assert!(error.contains("exit code 4; it said: out of luck") && error.contains("The outcome is unknown"), "{error}");
    let error = world.error("plugin__babbles__go", json!({})).await;
    assert!(error.contains("a line that is not JSON"), "{error}");
    assert_eq!(world.text("plugin__leaves__go", json!({})).await, "bye");
    assert_eq!(world.error("plugin__fails__go", json!({})).await, "no");
    assert!(alive(&mark).is_empty(), "nothing is left of them");
}

#[tokio::test]
async fn a_canceled_plugin_hears_of_it_and_is_ended() {
    let world = World::new(vec![]);
    let mark = unique().to_string();
    let marker = world.rig.outside().join("marker");
    let script_text = format!(
        "{DESCRIBE}\necho '{{\"type\":\"progress\",\"id\":\"'$id'\",\"text\":\"begun\"}}'; read -r line; echo \"$line\" > {}; sleep {mark}",
        marker.display()
    );
    script(&world, "slow", &script_text);
    world.text("plugin_connect__slow", json!({})).await;
    let cancel = async {
        while world.rig.shown() != "begun" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        world.rig.context.cancel.cancel();
    };
    let (invoked, ()) = tokio::join!(world.call("plugin__slow__go", json!({})), cancel);
    assert!(!invoked.result.ok);
    assert!(fs::read_to_string(&marker).unwrap().contains(r#""type":"cancel""#));
    assert!(alive(&mark).is_empty());
}

/// Whatever a workspace says of servers: never a panic, and nothing that nobody approved is offered as more than a question.
#[test]
fn any_mcp_json_is_only_ever_a_question() {
    let world = World::new(vec![]);
    target!("mcp_json").cases(400).run(|bytes| {
        world.rig.put(".mcp.json", bytes);
        let found = world.found();
        let offer = world.foreign.known(&found).expect("nothing has to be started");
        for (offered, _) in offer.tools {
            assert!(offered.spec.name.starts_with("mcp_connect__") && offered.spec.name.len() <= 64);
        }
    });
}

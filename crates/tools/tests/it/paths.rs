//! No tool leads out of the workspace, and none waits for a file that is no file.

use std::os::unix::{fs::symlink, net::UnixListener};

use serde_json::json;

use crate::rig::Rig;

/// Every way out, with a file outside that must neither be shown nor changed.
fn rig_with_ways_out() -> (Rig, Vec<String>) {
    let rig = Rig::new();
    let secret = rig.outside().join("secret");
    std::fs::write(&secret, "secret").unwrap();
    rig.put("d/inner", "inner");
    symlink(&secret, rig.workspace.join("absolute_link")).unwrap();
    symlink("../secret", rig.workspace.join("relative_link")).unwrap();
    symlink("..", rig.workspace.join("folder_link")).unwrap();
    symlink(rig.outside(), rig.workspace.join("d/absolute_folder_link")).unwrap();
    symlink("relative_link", rig.workspace.join("link_to_link")).unwrap();
    symlink("/proc/self/root", rig.workspace.join("magic")).unwrap();
    symlink("loop", rig.workspace.join("loop")).unwrap();
    let ways = [
        "../secret",
        "d/../../secret",
        "./../workspace/../secret",
        "/etc/passwd",
        secret.to_str().unwrap(),
        "absolute_link",
        "relative_link",
        "folder_link/secret",
        "d/absolute_folder_link/secret",
        "link_to_link",
        "magic/etc/passwd",
        "loop",
        "..",
        ".",
        "/",
    ];
    let ways = ways.map(str::to_owned).to_vec();
    (rig, ways)
}

#[tokio::test]
async fn nothing_outside_is_read() {
    let (rig, ways) = rig_with_ways_out();
    for path in ways {
        let error = rig.error("read_file", json!({"path": path})).await;
        assert!(error.contains("workspace"), "{path}: {error}");
    }
}

#[tokio::test]
async fn nothing_outside_is_written() {
    let (rig, ways) = rig_with_ways_out();
    let before = rig.tree();
    for path in ways {
        rig.error("write_file", json!({"path": path, "content": "gotcha"})).await;
        let patch = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-secret\n+gotcha\n");
        rig.error("apply_patch", json!({"patch": patch})).await;
        if path != "." {
            rig.error("write_file", json!({"path": format!("{path}/new/file"), "content": "gotcha"})).await;
        }
    }
    assert_eq!(std::fs::read_to_string(rig.outside().join("secret")).unwrap(), "secret");
    let mut outside: Vec<_> = std::fs::read_dir(rig.outside()).unwrap().map(|file| file.unwrap().file_name()).collect();
    outside.sort();
    assert_eq!(outside, ["secret", "workspace"]);
    assert_eq!(rig.tree(), before);
}

#[tokio::test]
async fn symlinks_that_stay_inside_are_followed_for_reading_only() {
    let rig = Rig::new();
    rig.put("d/real", "text");
    symlink("real", rig.workspace.join("d/link")).unwrap();
    symlink("d", rig.workspace.join("e")).unwrap();
    for path in ["d/link", "e/real", "e/link"] {
        assert_eq!(rig.text("read_file", json!({"path": path})).await, "text");
    }
    let error = rig.error("write_file", json!({"path": "d/link", "content": "x"})).await;
    assert_eq!(error, "d/link is a symlink to real; write to the file itself, if it is in the workspace");
    rig.text("write_file", json!({"path": "e/real", "content": "new"})).await;
    assert_eq!(rig.get("d/real").unwrap(), "new");
    assert!(rig.workspace.join("d/link").is_symlink());
}

#[tokio::test]
async fn pipes_sockets_and_devices_are_refused_at_once() {
    let rig = Rig::new();
    nix::unistd::mkfifo(&rig.workspace.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(rig.workspace.join("socket")).unwrap();
    for path in ["fifo", "socket"] {
        let expected = format!("{path} is not a regular file (it is a pipe, a socket or a device)");
        assert_eq!(rig.error("read_file", json!({"path": path})).await, expected);
        assert_eq!(rig.error("write_file", json!({"path": path, "content": ""})).await, expected);
    }
}

#[tokio::test]
async fn the_workspace_itself_may_be_a_symlink() {
    let mut rig = Rig::new();
    let link = rig.outside().join("link");
    symlink(&rig.workspace, &link).unwrap();
    rig.context.workspace = link.clone();
    rig.text("write_file", json!({"path": "a", "content": "1"})).await;
    for path in [link.join("a"), rig.workspace.join("a")] {
        assert_eq!(rig.text("read_file", json!({"path": path})).await, "1");
    }
}

#[tokio::test]
async fn a_workspace_that_is_gone_is_an_error_not_a_panic() {
    let rig = Rig::new();
    std::fs::remove_dir(&rig.workspace).unwrap();
    for (tool, input) in [
        ("read_file", json!({"path": "a"})),
        ("write_file", json!({"path": "a", "content": ""})),
        ("shell", json!({"command": "true"})),
    ] {
        assert!(rig.error(tool, input).await.contains("workspace"), "{tool}");
    }
}

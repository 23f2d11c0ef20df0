//! The map of a workspace: ranked, bounded, and never of anything outside.

use serde_json::json;

use crate::rig::Rig;

fn filled() -> Rig {
    let rig = Rig::with(|config| config.outline_cache = Some(tempfile::tempdir().unwrap().keep()));
    rig.put("src/engine.py", "class CoreEngine:\n    def start_engine(self):\n        pass\n");
    rig.put("src/user.py", "def use_it():\n    CoreEngine().start_engine()\n");
    rig.put("web/page.ts", "export function showPage(): void {}\n");
    rig
}

#[tokio::test]
async fn all_of_a_small_workspace() {
    let text = filled().text("repo_map", json!({})).await;
    let expected = "src/engine.py:\n  1: class CoreEngine\n    2: def start_engine(self)\nsrc/user.py:\n  1: def use_it()\n\
                    web/page.ts:\n  1: export function showPage(): void\n";
    assert_eq!(text, expected);
}

#[tokio::test]
async fn a_part_and_a_focus() {
    let rig = filled();
    let page = "web/page.ts:\n  1: export function showPage(): void\n";
    for path in ["web", "web/", "./web/page.ts"] {
        assert_eq!(rig.text("repo_map", json!({ "path": path })).await, page, "{path}");
    }
    for focus in [json!("where is showPage?"), json!(["web/page.ts"])] {
        let text = rig.text("repo_map", json!({ "focus": focus, "max_tokens": 20 })).await;
        let (map, note) = text.split_once('[').unwrap();
        assert_eq!(map, page, "{focus}");
        assert_eq!(
            note,
            "1 of 4 symbols in 1 of 3 files; to see others name a path or a focus, or raise max_tokens]\n"
        );
    }
}

#[tokio::test]
async fn what_is_left_out_is_told() {
    let rig = Rig::new();
    assert_eq!(rig.text("repo_map", json!({})).await, "[no source files of a known language here]\n");
    rig.put("large.py", "#".repeat(600 * 1024));
    rig.put("secrets.py", "KEY = 1\n");
    rig.put("a.py", "def a(): pass\n");
    let text = rig.text("repo_map", json!({ "path": "." })).await;
    let note = "[not looked at: 1 source files larger than 512 KiB; 1 that may hold secrets]\n";
    assert_eq!(text, format!("a.py:\n  1: def a()\n{note}"));
}

#[tokio::test]
async fn nothing_outside_is_looked_at() {
    let rig = filled();
    std::fs::write(rig.outside().join("out.py"), "def outside(): pass\n").unwrap();
    std::os::unix::fs::symlink(rig.outside(), rig.workspace.join("link")).unwrap();
    assert!(!rig.text("repo_map", json!({})).await.contains("outside"));
    for (path, why) in [
        ("..", "is outside the workspace"),
        ("/", "is outside the workspace"),
        ("link", "leads out of the workspace through a symlink"),
        ("link/out.py", "leads out of the workspace through a symlink"),
        ("gone", "there is no file or folder gone"),
    ] {
        let error = rig.error("repo_map", json!({ "path": path })).await;
        assert!(error.contains(why), "{path}: {error}");
    }
}

#[tokio::test]
async fn a_stop_is_heard() {
    let rig = filled();
    rig.context.cancel.cancel();
    assert_eq!(rig.error("repo_map", json!({})).await, "stopped before it was done");
}

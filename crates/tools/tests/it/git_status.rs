//! `git_status`: what git says, in plain words; and a repository made hostile in every way that is known makes it run
//! nothing and show nothing from elsewhere.

use std::{os::unix::fs::symlink, path::Path, process::Command};

use serde_json::json;
use tenure_tools::OUTPUT_BYTES_MAX;

use crate::rig::Rig;

/// Git as a user would run it, with nobody's settings.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "protocol.file.allow=always", "-c", "commit.gpgsign=false"])
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_NOSYSTEM", "1")])
        .envs([("GIT_AUTHOR_NAME", "Ann"), ("GIT_AUTHOR_EMAIL", "a@b"), ("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")])
        .envs([
            ("GIT_COMMITTER_NAME", "Ann"),
            ("GIT_COMMITTER_EMAIL", "a@b"),
            ("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z"),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn repository() -> Rig {
    // Settings of whoever runs the tests are none of theirs.
    let rig = Rig::with(|config| {
        config.environment.retain(|(name, _)| name != "HOME");
        config.environment.push(("HOME".into(), "/nonexistent".into()));
    });
    git(&rig.workspace, &["init", "-q", "-b", "main"]);
    rig.put("a.txt", "one\ntwo\n");
    rig.put("src/b.txt", "b\n");
    git(&rig.workspace, &["add", "."]);
    git(&rig.workspace, &["commit", "-q", "-m", "first commit"]);
    rig
}

#[tokio::test]
async fn status_diff_and_log_in_plain_words() {
    let rig = repository();
    let commit: String = git(&rig.workspace, &["rev-parse", "HEAD"]).chars().take(10).collect();
    assert_eq!(rig.text("git_status", json!({})).await, format!("On branch main at {commit}.\nNothing is changed."));
    rig.put("a.txt", "one\n2\n");
    rig.put("new file.txt", "x");
    git(&rig.workspace, &["mv", "src/b.txt", "src/c.txt"]);
    let expected = format!(
        "On branch main at {commit}.\nStaged:\n  src/c.txt (renamed from src/b.txt)\nChanged, not staged:\n  a.txt (modified)\nNew, not tracked:\n  new file.txt"
    );
    assert_eq!(rig.text("git_status", json!({"what": "status"})).await, expected);
    let diff = rig.text("git_status", json!({"what": "diff"})).await;
    assert!(diff.starts_with("diff --git a/a.txt b/a.txt\n") && diff.contains("-two\n+2\n"), "{diff}");
    let staged = rig.text("git_status", json!({"what": "diff", "staged": true})).await;
    assert!(staged.contains("rename to src/c.txt") && !staged.contains("a.txt\n+++"), "{staged}");
    assert!(
        rig.text("git_status", json!({"what": "diff", "path": "src"})).await.starts_with("no tracked file differs")
    );
    let log = rig.text("git_status", json!({"what": "log"})).await;
    assert!(log.contains(" 2026-01-02T03:04:05") && log.contains(" Ann (HEAD -> main)\n    first commit"), "{log}");
    git(&rig.workspace, &["commit", "-q", "-m", "second"]);
    assert!(!rig.text("git_status", json!({"what": "log", "count": 1})).await.contains("first commit"));
    assert!(!rig.text("git_status", json!({"what": "log", "path": "a.txt"})).await.contains("second"));
}

#[tokio::test]
async fn branches_conflicts_and_beginnings() {
    let rig = repository();
    let home = rig.outside().join("clone");
    git(rig.outside(), &["clone", "-q", rig.workspace.to_str().unwrap(), home.to_str().unwrap()]);
    let mut clone = repository();
    clone.context.workspace = home.clone();
    assert!(clone.text("git_status", json!({})).await.contains(", even with origin/main."));
    std::fs::write(home.join("a.txt"), "mine\n").unwrap();
    git(&home, &["commit", "-qam", "mine"]);
    assert!(clone.text("git_status", json!({})).await.contains(", 1 commit ahead of origin/main."));
    git(&home, &["checkout", "-q", "-b", "other", "HEAD~1"]);
    std::fs::write(home.join("a.txt"), "theirs\n").unwrap();
    git(&home, &["commit", "-qam", "theirs"]);
    let merge = Command::new("git")
        .args(["-c", "user.name=a", "-c", "user.email=b", "merge", "-q", "main"])
        .current_dir(&home)
        .output()
        .unwrap();
    assert!(!merge.status.success());
    let status = clone.text("git_status", json!({})).await;
    assert!(status.contains("\nGit is in the middle of a merge.\nIn conflict:\n  a.txt"), "{status}");

    let empty = repository();
    std::fs::remove_dir_all(empty.workspace.join(".git")).unwrap();
    let told = "the workspace is not in a git repository: there is no .git here or above";
    assert_eq!(empty.error("git_status", json!({})).await, told);
    git(&empty.workspace, &["init", "-q", "-b", "main"]);
    assert!(empty.text("git_status", json!({})).await.starts_with("On branch main, without any commit yet.\nNew"));
    assert_eq!(empty.text("git_status", json!({"what": "log"})).await, "there are no commits yet");
    let without = Rig::with(|config| {
        config.environment.retain(|(name, _)| name != "PATH");
        config.environment.push(("PATH".into(), "/nonexistent".into()));
    });
    git(&without.workspace, &["init", "-q"]);
    assert!(without.error("git_status", json!({})).await.starts_with("there is no git program in the daemon's PATH"));
}

#[tokio::test]
async fn a_folder_of_a_repository_and_a_further_work_tree() {
    let mut rig = repository();
    rig.put("src/b.txt", "changed\n");
    rig.put("a.txt", "changed too\n");
    rig.context.workspace = rig.workspace.join("src");
    let status = rig.text("git_status", json!({})).await;
    assert!(status.ends_with("Changed, not staged:\n  b.txt (modified)"), "{status}");
    let diff = rig.text("git_status", json!({"what": "diff"})).await;
    assert!(diff.starts_with("diff --git a/b.txt b/b.txt\n") && !diff.contains("a.txt"), "{diff}");
    let further = rig.outside().join("further");
    git(&rig.workspace, &["worktree", "add", "-q", "-b", "side", further.to_str().unwrap()]);
    rig.context.workspace = further.clone();
    assert!(rig.text("git_status", json!({})).await.starts_with("On branch side at "));
    // One that points to a repository which does not know of it.
    let stranger = rig.outside().join("stranger");
    std::fs::create_dir(&stranger).unwrap();
    for target in [rig.workspace.join(".git"), rig.workspace.join(".git/worktrees/further")] {
        std::fs::write(stranger.join(".git"), format!("gitdir: {}\n", target.display())).unwrap();
        rig.context.workspace = stranger.clone();
        let error = rig.error("git_status", json!({"what": "log"})).await;
        assert!(error.contains("which does not point back"), "{error}");
    }
    std::fs::remove_file(stranger.join(".git")).unwrap();
    symlink(rig.workspace.join(".git"), stranger.join(".git")).unwrap();
    assert!(rig.error("git_status", json!({})).await.contains("is a symlink"));
}

/// Runs all there is and sees whether anything was started.
async fn stays_quiet(rig: &Rig, what: &str) {
    for input in [
        json!({}),
        json!({"what": "diff"}),
        json!({"what": "diff", "staged": true}),
        json!({"what": "diff", "path": "a.txt"}),
        json!({"what": "log"}),
        json!({"what": "log", "path": "a.txt"}),
    ] {
        let invoked = rig.call("git_status", input.clone()).await;
        assert!(!rig.outside().join("ran").exists(), "{what} was run by {input}");
        assert!(invoked.result.ok, "{what}: {invoked:?}");
    }
}

/// The same commands as a user would run them: shows that the trap works.
fn springs(rig: &Rig, arguments: &[&str]) -> bool {
    let ran = rig.outside().join("ran");
    let _ = Command::new("git").args(arguments).current_dir(&rig.workspace).output().unwrap();
    std::fs::remove_file(ran).is_ok()
}

#[tokio::test]
async fn no_setting_of_a_repository_runs_a_program() {
    let script = |rig: &Rig| {
        use std::os::unix::fs::PermissionsExt as _;
        let path = rig.outside().join("trap");
        std::fs::write(&path, format!("#!/bin/sh\ntouch {}\ncat\n", rig.outside().join("ran").display())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let all: &[(&[&str], &str, &[&str])] = &[
        (&["core.fsmonitor"], "", &["status"]),
        (&["diff.external"], "", &["diff"]),
        (&["diff.x.command"], "* diff=x", &["diff"]),
        (&["diff.x.textconv"], "* diff=x", &["diff"]),
        (&["filter.x.clean"], "* filter=x", &["status"]),
        (&["filter.x.process"], "* filter=x", &["status"]),
        (&["filter.x.smudge", "filter.x.clean"], "* filter=x", &["diff"]),
        (&["core.pager", "pager.status", "pager.diff", "pager.log"], "", &[]),
        (
            &[
                "core.sshCommand",
                "core.gitProxy",
                "core.askPass",
                "core.editor",
                "sequence.editor",
                "credential.helper",
            ],
            "",
            &[],
        ),
        (&["gpg.program", "gpg.openpgp.program", "gpg.ssh.program", "gpg.x509.program", "trailer.x.command"], "", &[]),
        (
            &[
                "core.alternateRefsCommand",
                "interactive.diffFilter",
                "merge.x.driver",
                "difftool.x.cmd",
                "uploadpack.packObjectsHook",
            ],
            "* merge=x",
            &[],
        ),
        (&["alias.status", "alias.diff", "alias.log", "alias.config", "alias.ls-files"], "", &[]),
    ];
    for (keys, attributes, springing) in all {
        let rig = repository();
        let trap = script(&rig);
        for key in *keys {
            let value = if key.starts_with("alias.") { format!("!{trap}") } else { trap.clone() };
            git(&rig.workspace, &["config", key, &value]);
        }
        git(&rig.workspace, &["config", "log.showSignature", "true"]);
        git(&rig.workspace, &["config", "filter.x.required", "true"]);
        std::fs::write(rig.workspace.join(".git/info/attributes"), attributes).unwrap();
        rig.put(".gitattributes", attributes);
        rig.put("a.txt", "changed\n");
        if !springing.is_empty() {
            assert!(springs(&rig, springing), "{keys:?} is no trap");
        }
        stays_quiet(&rig, keys[0]).await;
    }
}

#[tokio::test]
async fn no_hook_included_setting_submodule_or_missing_object_runs_a_program() {
    let trap = |rig: &Rig| format!("touch {}; false", rig.outside().join("ran").display());
    // Hooks, by place and by setting.
    let rig = repository();
    for name in ["post-index-change", "fsmonitor-watchman", "pre-commit", "reference-transaction", "query-watchman"] {
        use std::os::unix::fs::PermissionsExt as _;
        let hook = rig.workspace.join(".git/hooks").join(name);
        std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
        std::fs::write(&hook, format!("#!/bin/sh\n{}\n", trap(&rig))).unwrap();
        std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    git(&rig.workspace, &["config", "core.hooksPath", rig.workspace.join(".git/hooks").to_str().unwrap()]);
    // The index is stale now, and git would like to write it.
    rig.put("a.txt", "one\ntwo\n");
    assert!(springs(&rig, &["status"]), "the hook is no trap");
    rig.put("a.txt", "one\ntwo\n");
    stays_quiet(&rig, "a hook").await;

    // A setting in another file.
    let rig = repository();
    std::fs::write(rig.workspace.join("evil.cfg"), format!("[core]\n\tfsmonitor = \"{}\"\n", trap(&rig))).unwrap();
    git(&rig.workspace, &["config", "include.path", "../evil.cfg"]);
    git(&rig.workspace, &["config", "extensions.worktreeConfig", "true"]);
    std::fs::write(rig.workspace.join(".git/config.worktree"), format!("[core]\n\tfsmonitor = \"{}\"\n", trap(&rig)))
        .unwrap();
    assert!(springs(&rig, &["status"]), "the included setting is no trap");
    stays_quiet(&rig, "an included setting").await;

    // A submodule has settings of its own.
    let rig = repository();
    let inner = rig.outside().join("inner");
    git(rig.outside(), &["clone", "-q", rig.workspace.to_str().unwrap(), inner.to_str().unwrap()]);
    git(&rig.workspace, &["submodule", "--quiet", "add", inner.to_str().unwrap(), "sub"]);
    git(&rig.workspace, &["commit", "-q", "-m", "sub"]);
    git(&rig.workspace.join("sub"), &["config", "core.fsmonitor", &trap(&rig)]);
    git(&rig.workspace, &["config", "diff.submodule", "log"]);
    git(&rig.workspace, &["config", "submodule.recurse", "true"]);
    rig.put("sub/a.txt", "dirty\n");
    assert!(springs(&rig, &["status"]), "the submodule is no trap");
    stays_quiet(&rig, "a submodule").await;
    // It works as a workspace of its own, too.
    let mut rig = rig;
    rig.context.workspace = rig.workspace.join("sub");
    assert!(rig.text("git_status", json!({})).await.contains("a.txt (modified)"));
    stays_quiet(&rig, "in a submodule").await;

    // An object that would be fetched when it is missed.
    let rig = repository();
    let remote = format!("ext::touch {}", rig.outside().join("ran").display());
    let settings = [
        ("remote.o.url", remote.as_str()),
        ("remote.o.promisor", "true"),
        ("extensions.partialClone", "o"),
        ("core.repositoryFormatVersion", "1"),
        ("protocol.ext.allow", "always"),
    ];
    for (key, value) in settings {
        git(&rig.workspace, &["config", key, value]);
    }
    let object = git(&rig.workspace, &["rev-parse", "HEAD:a.txt"]);
    let (folder, name) = object.trim().split_at(2);
    std::fs::remove_file(rig.workspace.join(".git/objects").join(folder).join(name)).unwrap();
    rig.put("a.txt", "changed\n");
    assert!(springs(&rig, &["diff"]), "the missing object is no trap");
    let invoked = rig.call("git_status", json!({"what": "diff"})).await;
    assert!(!invoked.result.ok && !rig.outside().join("ran").exists(), "{invoked:?}");
}

#[tokio::test]
async fn a_git_program_in_the_workspace_is_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |rig: &Rig| {
        std::env::join_paths(
            [rig.workspace.join("bin"), ".".into(), "".into()]
                .into_iter()
                .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap())),
        )
        .unwrap()
    };
    drop(folder);
    let rig = repository();
    let wanted = path(&rig);
    let workspace = rig.workspace.clone();
    let mut hostile = Rig::with(|config| {
        config.environment.retain(|(name, _)| name != "PATH");
        config.environment.push(("PATH".into(), wanted));
    });
    hostile.context.workspace = workspace;
    for place in ["bin/git", "git"] {
        use std::os::unix::fs::PermissionsExt as _;
        rig.put(place, format!("#!/bin/sh\ntouch {}\n", rig.outside().join("ran").display()));
        std::fs::set_permissions(rig.workspace.join(place), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert!(hostile.text("git_status", json!({})).await.starts_with("On branch main at "));
    assert!(!rig.outside().join("ran").exists());
}

#[tokio::test]
async fn nothing_from_elsewhere_is_shown() {
    // An index that names a file beside the workspace.
    let rig = repository();
    std::fs::write(rig.outside().join("secret"), "SECRET\n").unwrap();
    let blob = git(&rig.workspace, &["rev-parse", "HEAD:a.txt"]);
    let index = index_with("../secret", blob.trim());
    std::fs::write(rig.workspace.join(".git/index"), index).unwrap();
    assert!(git(&rig.workspace, &["diff"]).contains("SECRET"), "the index is no trap");
    for what in ["status", "diff", "log"] {
        let error = rig.error("git_status", json!({"what": what})).await;
        assert!(error.contains("names ../secret, which cannot be a file of it"), "{error}");
    }
    // A work tree that is set to be elsewhere.
    let rig = repository();
    std::fs::write(rig.outside().join("a.txt"), "SECRET\n").unwrap();
    git(&rig.workspace, &["config", "core.worktree", rig.outside().to_str().unwrap()]);
    let diff = rig.text("git_status", json!({"what": "diff"})).await;
    assert!(!diff.contains("SECRET"), "{diff}");
    // Files of git that are symlinks: git would complain of their content, and quote it.
    for name in ["packed-refs", "HEAD", "index", "shallow", "info/exclude"] {
        let rig = repository();
        std::fs::write(rig.outside().join("secret"), "SECRET\n").unwrap();
        let place = rig.workspace.join(".git").join(name);
        let _ = std::fs::remove_file(&place);
        symlink(rig.outside().join("secret"), &place).unwrap();
        let error = rig.error("git_status", json!({})).await;
        assert!(error.contains("is a symlink") && !error.contains("SECRET"), "{name}: {error}");
    }
}

/// An index of one file, as no git writes it.
fn index_with(path: &str, blob: &str) -> Vec<u8> {
    let mut index = [&b"DIRC"[..], &2u32.to_be_bytes(), &1u32.to_be_bytes()].concat();
    let mut entry = vec![0; 40];
    entry[24..28].copy_from_slice(&0o100_644_u32.to_be_bytes());
    let digest = (0..20).map(|at| u8::from_str_radix(&blob[at * 2..at * 2 + 2], 16).unwrap());
    entry.extend(digest);
    entry.extend((path.len() as u16).to_be_bytes());
    entry.extend(path.as_bytes());
    entry.resize(entry.len() / 8 * 8 + 8, 0);
    index.extend(entry);
    // A sum of zeros is one that is not looked at.
    index.extend([0; 20]);
    index
}

#[tokio::test]
async fn a_large_difference_is_bounded_and_kept_whole() {
    let rig = repository();
    rig.put("a.txt", "line of text\n".repeat(20_000));
    let diff = rig.text("git_status", json!({"what": "diff"})).await;
    assert!(diff.len() <= OUTPUT_BYTES_MAX && diff.contains("the whole is in artifacts/"), "{}", diff.len());
    let whole = rig.blobs.0.lock().unwrap().values().next().unwrap().clone();
    assert_eq!(String::from_utf8_lossy(&whole).matches("+line of text\n").count(), 20_000);
    for file in 0..500 {
        rig.put(&format!("new{file}"), "");
    }
    assert!(rig.text("git_status", json!({})).await.contains("[300 more: ask for a path]"));
    rig.context.cancel.cancel();
    assert_eq!(rig.error("git_status", json!({})).await, "stopped");
}

/// Git tells such a change only by the index's own time, which a copy must have too.
#[tokio::test]
async fn a_change_of_the_same_size_in_the_same_second_is_seen() {
    for _ in 0..5 {
        let rig = repository();
        rig.put("a.txt", "ONE\nTWO\n");
        assert!(rig.text("git_status", json!({})).await.contains("a.txt (modified)"));
    }
}

#[tokio::test]
async fn it_changes_nothing() {
    let rig = repository();
    rig.put("a.txt", "changed\n");
    let state = || {
        let index = std::fs::read(rig.workspace.join(".git/index")).unwrap();
        (rig.tree(), index, std::fs::metadata(rig.workspace.join(".git/index")).unwrap().modified().unwrap())
    };
    let before = state();
    stays_quiet(&rig, "nothing").await;
    assert_eq!(state(), before);
}

//! Real repositories, and settings in them that want to start programs.

use std::fs;

use super::*;

struct Repository {
    folder: tempfile::TempDir,
    cancel: CancellationToken,
}

impl Repository {
    fn new() -> Self {
        let new = Self { folder: tempfile::tempdir().unwrap(), cancel: CancellationToken::new() };
        new.git(&["init", "-q", "-b", "main"]);
        new
    }

    fn git(&self, arguments: &[&str]) {
        let identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
        let status = Command::new("git").args(identity).args(arguments).current_dir(self.folder.path()).status();
        assert!(status.unwrap().success(), "git {arguments:?}");
    }

    fn put(&self, path: &str, text: &str) {
        fs::write(self.folder.path().join(path), text).unwrap();
    }

    fn state_until(&self, deadline: Instant) -> Option<String> {
        let program_path = std::env::var_os("PATH").unwrap();
        let (workspace, cancel) = (self.folder.path(), &self.cancel);
        git_state(&Git { workspace, program_path: &program_path, cancel, deadline })
    }

    fn state(&self) -> Option<String> {
        self.state_until(Instant::now() + Duration::from_secs(60))
    }
}

#[test]
fn a_repository_in_a_few_lines() {
    let repository = Repository::new();
    assert_eq!(repository.state().as_deref(), Some("branch main\nno commit yet\nno changes\n"));
    repository.put("a.txt", "1\n");
    repository.git(&["add", "a.txt"]);
    repository.git(&["commit", "-q", "-m", "first: begins"]);
    repository.put("a.txt", "2\n");
    repository.put("b\nb.txt", "new\n");
    let state = repository.state().unwrap();
    let lines: Vec<&str> = state.lines().collect();
    assert_eq!((lines[0], &lines[2..]), ("branch main", &[" M a.txt", "?? b?b.txt"][..]));
    assert!(lines[1].starts_with("head ") && lines[1].ends_with(" first: begins"), "{state}");
    for at in 0..100 {
        repository.put(&format!("n{at}"), "");
    }
    assert!(repository.state().unwrap().ends_with("and 72 more changed files\n"));
}

#[test]
fn elsewhere_there_is_nothing() {
    let none = Repository { folder: tempfile::tempdir().unwrap(), cancel: CancellationToken::new() };
    assert_eq!(none.state(), None);
    none.put(".git", "no repository");
    assert_eq!(none.state(), None);
}

#[test]
fn no_program_of_the_repository_is_run() {
    let repository = Repository::new();
    repository.put("a.txt", "1\n");
    repository.put(".gitattributes", "*.txt filter=evil diff=evil\n");
    repository.git(&["add", "."]);
    repository.git(&["commit", "-q", "-m", "first"]);
    let mark = repository.folder.path().join("ran");
    let evil = format!("touch {}; cat", mark.display());
    for key in [
        "core.fsmonitor",
        "filter.evil.clean",
        "filter.evil.process",
        "filter.evil.smudge",
        "diff.external",
        "diff.evil.textconv",
        "core.pager",
        "gpg.program",
        "core.sshCommand",
        "core.alternateRefsCommand",
    ] {
        repository.git(&["config", key, &evil]);
    }
    repository.git(&["config", "filter.evil.required", "true"]);
    repository.git(&["config", "log.showSignature", "true"]);
    let hook = repository.folder.path().join(".git/hooks/post-index-change");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
    fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    // The same length, so that git has to read it.
    repository.put("a.txt", "2\n");
    let state = repository.state().unwrap();
    assert!(state.contains(" M a.txt"), "{state}");
    assert!(!mark.exists(), "something was run");
    // And this is what would have run it.
    repository.git(&["config", "core.fsmonitor", "false"]);
    repository.git(&["config", "--unset", "filter.evil.process"]);
    repository.git(&["status", "--short"]);
    assert!(mark.exists(), "the test can fail");
}

#[test]
fn it_ends_when_told() {
    let repository = Repository::new();
    assert_eq!(repository.state_until(Instant::now()), None);
    repository.cancel.cancel();
    assert_eq!(repository.state(), None);
}

#[test]
fn columns_of_other_kinds_of_change() {
    let conflict = "u UU N... 100644 100644 100644 100644 a b c dir/x y.txt";
    assert_eq!(change(conflict).as_deref(), Some("UU dir/x y.txt"));
    assert_eq!(change("1 A. N... 0 100644 100644 0 abc new file").as_deref(), Some("A  new file"));
    assert_eq!((change(""), change("! ignored"), change("1 M")), (None, None, None));
}

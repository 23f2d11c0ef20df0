//! The small git repository that the demo's agent works in.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context as _;

use crate::exit::Problem;

struct Source {
    name: &'static str,
    text: &'static str,
    mode: u32,
}

macro_rules! sources {
    ($($name:literal $mode:literal,)*) => {
        &[$(Source { name: $name, text: include_str!(concat!("../../../demo-repo/", $name)), mode: $mode },)*]
    };
}

const SOURCES: &[Source] = sources! {
    "AGENTS.md" 0o644,
    "Makefile" 0o644,
    "README.md" 0o644,
    "greet.sh" 0o755,
    "release.sh" 0o755,
    "test.sh" 0o755,
};

/// Writes the files and commits them, whatever this machine's git is set to.
pub fn make(repo: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(repo)?;
    for source in SOURCES {
        let path = repo.join(source.name);
        fs::write(&path, source.text).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(source.mode))?;
    }
    git(repo, &["-c", "init.defaultBranch=main", "init", "--quiet"])?;
    git(repo, &["config", "user.name", "Tenure demo"])?;
    git(repo, &["config", "user.email", "demo@tenure.invalid"])?;
    git(repo, &["add", "--all"])?;
    git(repo, &["commit", "--quiet", "--message", "A greeting"])
}

fn git(repo: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("git");
    command.arg("-C").arg(repo).args(arguments).stdin(Stdio::null());
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.output().map_err(|error| {
        Problem::failed("git", format!("git cannot be run: {error}"), "the demo needs git; install it")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Problem::failed("git", format!("git {} failed: {}", arguments.join(" "), said.trim()), "").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_real_and_clean() {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path()).unwrap();
        let status = Command::new("git").arg("-C").arg(folder.path()).args(["status", "--porcelain"]).output().unwrap();
        assert!(status.status.success());
        assert_eq!(String::from_utf8_lossy(&status.stdout), "");
    }

    #[test]
    fn no_file_is_forgotten() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/demo-repo");
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, SOURCES.iter().map(|source| source.name).collect::<Vec<_>>());
    }
}

//! The text files of the repository, as git knows them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub struct File {
    /// From the root, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    pub fn is_manifest(&self) -> bool {
        self.path == "Cargo.toml" || self.path.ends_with("/Cargo.toml")
    }

    /// Places that hold one of the needles, as `path:line: text`.
    pub fn lines_with(&self, needles: &[String]) -> Vec<String> {
        let lines = self.text.lines().enumerate();
        let hits = lines.filter(|(_, line)| needles.iter().any(|needle| line.contains(needle.as_str())));
        hits.map(|(index, line)| format!("{}:{}: {}", self.path, index + 1, line.trim())).collect()
    }
}

/// All text files: tracked ones, and new ones that nothing ignores. Without git, all that lies there.
pub fn files() -> Vec<File> {
    let root = root();
    let paths = listed_by_git(&root).unwrap_or_else(|| walked(&root));
    let read = |path: String| fs::read_to_string(root.join(&path)).ok().map(|text| File { path, text });
    let files: Vec<File> = paths.into_iter().filter_map(read).collect();
    // A listing that went wrong would make every test here pass.
    assert!(files.iter().any(|file| file.path == "xtask/src/main.rs"), "the listing does not hold this repository");
    files
}

/// Fails with every finding, not just the first.
pub fn assert_none(rule: &str, findings: impl IntoIterator<Item = String>) {
    let findings: Vec<String> = findings.into_iter().collect();
    assert!(findings.is_empty(), "{rule}:\n  {}\n", findings.join("\n  "));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
    let listed = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
    Some(listed.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

fn walked(root: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap_or_default();
            if path.is_dir() && name != ".git" && name != "target" {
                folders.push(path);
            } else if path.is_file() {
                paths.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    paths
}

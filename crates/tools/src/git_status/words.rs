//! What `git status --porcelain=v2 -z` prints, in plain words. It knows nothing of processes.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::walk::counted;

/// Names of one kind that are told; the others are counted.
const NAMES_MAX: usize = 200;

/// Whether a name of an index can be a file below the top: git itself would write no other.
pub(super) fn is_plain_path(name: &[u8]) -> bool {
    let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.eq_ignore_ascii_case(b".git");
    // A folder of a sparse index ends in a slash.
    name.strip_suffix(b"/").unwrap_or(name).split(|byte| *byte == b'/').all(is_plain)
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Status {
    branch: Option<String>,
    commit: Option<String>,
    upstream: Option<String>,
    ahead: u64,
    behind: u64,
    staged: Vec<String>,
    unstaged: Vec<String>,
    conflicts: Vec<String>,
    untracked: Vec<String>,
}

impl Status {
    /// `prefix`: what stands before the workspace's own paths.
    pub(super) fn read(output: &[u8], prefix: &str) -> Self {
        let text = String::from_utf8_lossy(output);
        let mut status = Self::default();
        let mut records = text.split('\0');
        while let Some(record) = records.next() {
            match record.split_once(' ') {
                Some(("#", header)) => status.header(header),
                Some(("1", rest)) => status.changed(rest, 7, None, prefix),
                Some(("2", rest)) => status.changed(rest, 8, records.next(), prefix),
                Some(("u", rest)) => {
                    status.conflicts.extend(rest.splitn(10, ' ').nth(9).map(|path| below(path, prefix)))
                }
                Some(("?", path)) => status.untracked.push(below(path, prefix)),
                _ => {}
            }
        }
        status
    }

    fn header(&mut self, header: &str) {
        match header.split_once(' ') {
            Some(("branch.oid", oid)) => self.commit = (oid != "(initial)").then(|| oid.chars().take(10).collect()),
            Some(("branch.head", head)) => self.branch = (head != "(detached)").then(|| head.to_owned()),
            Some(("branch.upstream", upstream)) => self.upstream = Some(upstream.to_owned()),
            Some(("branch.ab", counts)) => {
                let mut counts =
                    counts.split(' ').map(|count| count.trim_start_matches(['+', '-']).parse().unwrap_or(0));
                (self.ahead, self.behind) = (counts.next().unwrap_or(0), counts.next().unwrap_or(0));
            }
            _ => {}
        }
    }

    /// `XY sub …` and, after some fields of no use here, the path.
    fn changed(&mut self, record: &str, fields: usize, from: Option<&str>, prefix: &str) {
        let mut states = record.chars();
        let (Some(staged), Some(unstaged)) = (states.next(), states.next()) else { return };
        let Some(path) = record.splitn(fields + 1, ' ').nth(fields) else { return };
        let submodule = record.get(3..4) == Some("S");
        let path = below(path, prefix);
        let told = |state: char| {
            let from = from.map(|from| below(from, prefix)).unwrap_or_default();
            let what = match state {
                'M' if submodule => "moved to another commit",
                'M' => "modified",
                'T' => "type changed",
                'A' => "added",
                'D' => "deleted",
                'R' => return format!("{path} (renamed from {from})"),
                'C' => return format!("{path} (copied from {from})"),
                _ => "changed",
            };
            format!("{path} ({what})")
        };
        self.staged.extend((staged != '.').then(|| told(staged)));
        self.unstaged.extend((unstaged != '.').then(|| told(unstaged)));
    }

    pub(super) fn text(&self, under_way: Option<&str>) -> String {
        let mut text = self.place();
        if let Some(what) = under_way {
            let _ = write!(text, "\nGit is in the middle of {what}.");
        }
        let groups = [
            ("In conflict", &self.conflicts),
            ("Staged", &self.staged),
            ("Changed, not staged", &self.unstaged),
            ("New, not tracked", &self.untracked),
        ];
        for (title, names) in groups.iter().filter(|(_, names)| !names.is_empty()) {
            let _ = write!(text, "\n{title}:");
            for name in names.iter().take(NAMES_MAX) {
                let _ = write!(text, "\n  {name}");
            }
            if names.len() > NAMES_MAX {
                let _ = write!(text, "\n  [{} more: ask for a path]", names.len() - NAMES_MAX);
            }
        }
        if groups.iter().all(|(_, names)| names.is_empty()) {
            text.push_str("\nNothing is changed.");
        }
        text
    }

    fn place(&self) -> String {
        let mut text = match (&self.branch, &self.commit) {
            (Some(branch), Some(commit)) => format!("On branch {branch} at {commit}"),
            (Some(branch), None) => format!("On branch {branch}, without any commit yet"),
            (None, Some(commit)) => format!("On no branch, at {commit}"),
            (None, None) => "On no branch".to_owned(),
        };
        if let Some(upstream) = &self.upstream {
            let _ = match (self.ahead, self.behind) {
                (0, 0) => write!(text, ", even with {upstream}"),
                (ahead, 0) => write!(text, ", {} ahead of {upstream}", counted(ahead, "commit", "commits")),
                (0, behind) => write!(text, ", {} behind {upstream}", counted(behind, "commit", "commits")),
                (ahead, behind) => write!(text, ", {ahead} ahead of {upstream} and {behind} behind"),
            };
        }
        text + "."
    }

    pub(super) fn detail(&self) -> Value {
        json!({
            "branch": self.branch,
            "staged": self.staged.len(),
            "unstaged": self.unstaged.len(),
            "conflicts": self.conflicts.len(),
            "untracked": self.untracked.len(),
        })
    }
}

/// A path as the workspace knows it.
fn below(path: &str, prefix: &str) -> String {
    path.strip_prefix(prefix).unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_become_words() {
        let output = "# branch.oid 0123456789abcdef\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +2 -1\0\
                      1 MD N... 100644 100644 100644 aa bb src/a b.rs\0\
                      2 R. N... 100644 100644 100644 aa bb R100 src/new.rs\0src/old.rs\0\
                      1 .M SC.. 160000 160000 160000 aa bb src/sub\0\
                      u UU N... 100644 100644 100644 100644 aa bb cc src/both.rs\0\
                      ? src/fresh\0";
        let status = Status::read(output.as_bytes(), "src/");
        let expected = "On branch main at 0123456789, 2 ahead of origin/main and 1 behind.\n\
                        Git is in the middle of a merge.\n\
                        In conflict:\n  both.rs\n\
                        Staged:\n  a b.rs (modified)\n  new.rs (renamed from old.rs)\n\
                        Changed, not staged:\n  a b.rs (deleted)\n  sub (moved to another commit)\n\
                        New, not tracked:\n  fresh";
        assert_eq!(status.text(Some("a merge")), expected);
        assert_eq!(Status::read(b"", "").text(None), "On no branch.\nNothing is changed.");
        assert_eq!(Status::read(b"junk\0 \0 1\x002 x\0u\0", "").text(None), "On no branch.\nNothing is changed.");
    }

    #[test]
    fn an_index_names_files_below_the_top() {
        for good in ["a", "a/b", "..a", "a..", ".gitignore", "d/", "a/.github/x"] {
            assert!(is_plain_path(good.as_bytes()), "{good}");
        }
        for bad in ["../a", "a/../../b", "/etc/passwd", ".git/config", "a/.GIT/x", "", "./a", "a//b"] {
            assert!(!is_plain_path(bad.as_bytes()), "{bad}");
        }
    }
}

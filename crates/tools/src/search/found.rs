//! What was found in all files, in the order of their paths: the first ones as text, the others as a number. Files come
//! in any order and from several threads; what is kept does not depend on it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::lines::Matched;

pub(super) struct Found {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    files: BTreeMap<PathBuf, Matched>,
    /// Results in `files`: each file is at least one, also where only its name is wanted.
    results: usize,
    /// All there are, kept or not.
    all_files: u64,
    all_lines: u64,
    /// No path from here on can be among the first.
    end: Option<PathBuf>,
}

impl Found {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nothing panics while it is held that would leave it half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many lines of this file could be among the first.
    pub(super) fn room(&self, path: &Path) -> usize {
        let beyond = self.kept().end.as_deref().is_some_and(|end| path >= end);
        if beyond { 0 } else { self.limit }
    }

    pub(super) fn add(&self, path: &Path, matched: Matched) {
        if matched.count == 0 {
            return;
        }
        let mut kept = self.kept();
        kept.all_files += 1;
        kept.all_lines += matched.count;
        if kept.end.as_deref().is_some_and(|end| path >= end) {
            return;
        }
        kept.results += results(&matched);
        kept.files.insert(path.to_owned(), matched);
        // The last file goes when those before it are enough.
        while let Some(last) = kept.files.last_entry() {
            let count = results(last.get());
            let without = kept.results - count;
            if without < self.limit {
                break;
            }
            // Borrowed above; taken here.
            if let Some((path, _)) = kept.files.pop_last() {
                kept.end = Some(path);
            }
            kept.results = without;
        }
    }

    pub(super) fn files(&self) -> u64 {
        self.kept().all_files
    }

    pub(super) fn lines(&self) -> u64 {
        self.kept().all_lines
    }

    /// The first lines under their files' names, and how many they are.
    pub(super) fn text(&self, with_context: bool) -> (String, u64) {
        let (kept, mut text, mut shown) = (self.kept(), String::new(), 0);
        for (path, matched) in &kept.files {
            let count = matched.ends.len().min(self.limit - shown);
            if count == 0 {
                break;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&path.to_string_lossy());
            text.push('\n');
            let lines = matched.first(count);
            text.push_str(if with_context { lines.trim_end_matches("--\n") } else { lines });
            shown += count;
        }
        (text, shown as u64)
    }

    /// The first files, and how many they are.
    pub(super) fn names(&self) -> (String, u64) {
        let kept = self.kept();
        let names: Vec<String> =
            kept.files.keys().take(self.limit).map(|path| path.to_string_lossy() + "\n").map(String::from).collect();
        (names.concat(), names.len() as u64)
    }
}

fn results(matched: &Matched) -> usize {
    matched.ends.len().max(1)
}

//! Which files of a workspace changed in a span of time, by their own word: what commands did while a turn ran. It reads no
//! file's content and changes nothing.

use std::{collections::HashSet, path::PathBuf, time::UNIX_EPOCH};

use tenure_core::time::Timestamp;

use crate::tool::on_disk;

/// Entries that are looked at; what a larger workspace has beyond them is not.
const ENTRIES_MAX: usize = 200_000;
/// Files that are named.
const NAMED_MAX: usize = 100;

/// Files that changed, relative to the workspace, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meanwhile {
    pub paths: Vec<String>,
    /// There are more, or not all of the workspace was looked at.
    pub more: bool,
}

/// Files whose time of change lies in the span and that are not `known`. What ignore rules leave out is left out, and so is
/// what was deleted, changed again since, or given another time. A workspace that cannot be read has none.
pub async fn changed_meanwhile(workspace: PathBuf, span: (Timestamp, Timestamp), known: HashSet<String>) -> Meanwhile {
    on_disk(move || Ok(walk(&workspace, span, &known))).await.unwrap_or_default()
}

fn walk(workspace: &std::path::Path, (from, to): (Timestamp, Timestamp), known: &HashSet<String>) -> Meanwhile {
    let mut found = Meanwhile::default();
    let walk = ignore::WalkBuilder::new(workspace)
        .hidden(false)
        .require_git(false)
        .follow_links(false)
        .same_file_system(true)
        .sort_by_file_name(|one, other| one.cmp(other))
        .filter_entry(|entry| entry.file_name() != ".git")
        .build();
    for (at, entry) in walk.enumerate() {
        if at >= ENTRIES_MAX || found.paths.len() >= NAMED_MAX {
            found.more = true;
            break;
        }
        let Ok(entry) = entry else { continue };
        let changed = entry.metadata().ok().filter(|about| about.is_file()).and_then(|about| about.modified().ok());
        let ms = changed.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map(|since| since.as_millis() as u64);
        if !ms.is_some_and(|ms| (from.ms()..=to.ms()).contains(&ms)) {
            continue;
        }
        let path = entry.path().strip_prefix(workspace).unwrap_or(entry.path()).to_string_lossy().into_owned();
        if !known.contains(&path) {
            found.paths.push(path);
        }
    }
    found
}

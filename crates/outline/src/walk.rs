//! Which files of a repository are its sources. It honours ignore rules, follows no symlink and opens no file but those
//! that hold the rules.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use ignore::WalkBuilder;

use crate::{FILE_BYTES_MAX, FILES_MAX, Stop, Stopped, language::Language, secret::looks_secret, survey::Skipped};

/// Entries of all kinds that a walk looks at before it gives up.
const ENTRIES_MAX: usize = 200_000;
/// Folders in folders.
const DEPTH_MAX: usize = 64;
/// What is nobody's source, and is not always named in the rules.
const FOREIGN: [&str; 2] = ["node_modules", "__pycache__"];

/// A source file as the walk found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Below the root, with slashes.
    pub(crate) path: String,
    pub(crate) language: Language,
    pub(crate) stamp: Stamp,
}

/// What changes whenever a file's bytes do, as far as a file system can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) size: u64,
    pub(crate) modified_ns: i64,
    pub(crate) changed_ns: i64,
    pub(crate) inode: u64,
}

impl Stamp {
    pub(crate) fn of(metadata: &std::fs::Metadata) -> Stamp {
        let ns = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        Stamp {
            size: metadata.size(),
            modified_ns: ns(metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: ns(metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
        }
    }
}

/// The sources below a folder of the root, sorted by path.
pub(crate) fn candidates(root: &Path, below: &str, stop: &Stop) -> Result<(Vec<Candidate>, Skipped), Stopped> {
    let mut walk = WalkBuilder::new(root.join(below));
    // The rules of the workspace hold, also where it is no repository; those of the person's own folders are not read.
    walk.require_git(false).git_global(false).follow_links(false).same_file_system(true).max_depth(Some(DEPTH_MAX));
    walk.sort_by_file_name(std::ffi::OsStr::cmp);
    walk.filter_entry(|entry| !entry.file_name().to_str().is_some_and(|name| FOREIGN.contains(&name)));
    let (mut found, mut skipped) = (vec![], Skipped::default());
    for (count, entry) in walk.build().enumerate() {
        if count >= ENTRIES_MAX {
            skipped.walk_cut = true;
            break;
        }
        stop.check()?;
        // A folder that cannot be read has no sources for us.
        let Ok(entry) = entry else { continue };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        let path = entry.path().strip_prefix(root).ok().and_then(Path::to_str);
        let Some((path, language)) = path.and_then(|path| Some((path, Language::of_path(path)?))) else { continue };
        let Ok(metadata) = entry.metadata() else { continue };
        let stamp = Stamp::of(&metadata);
        match () {
            () if looks_secret(path) => skipped.secret += 1,
            () if stamp.size > FILE_BYTES_MAX => skipped.large += 1,
            () if found.len() >= FILES_MAX => skipped.beyond += 1,
            () => found.push(Candidate { path: path.to_owned(), language, stamp }),
        }
    }
    found.sort_unstable_by(|one: &Candidate, other| one.path.cmp(&other.path));
    Ok((found, skipped))
}

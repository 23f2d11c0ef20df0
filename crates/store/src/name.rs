//! Names of blobs: which relative names are safe to put beside a log. It never touches a disk.

use std::path::{Component, Path};

use crate::{Error, Result};

/// Longest name of a blob, in bytes.
pub(crate) const BLOB_NAME_BYTES_MAX: usize = 1024;
/// Longest part of a name between two slashes, as most file systems have it.
const PART_BYTES_MAX: usize = 240;
/// Names that belong to the store itself.
const RESERVED: [&str; 5] = ["events.ndjson", "session.json", "turns", "logs", "damaged"];
/// What files under way are called; a blob may not look like one.
pub(crate) const TEMPORARY: &str = ".tmp-";

/// Whether a file beside a log may have this name: what an event says is not to be believed blindly.
pub fn is_blob_name(name: &str) -> bool {
    check_blob(name).is_ok()
}

/// Refuses every name that could leave the session's folder or touch the store's own files.
pub(crate) fn check_blob(name: &str) -> Result<()> {
    let refuse = |why: &str| Err(Error::Other(format!("'{}' cannot name a blob: {why}", name.escape_debug())));
    if name.is_empty() || name.len() > BLOB_NAME_BYTES_MAX {
        return refuse("it is empty or too long");
    }
    if name.bytes().any(|byte| byte == 0) {
        return refuse("it holds a NUL");
    }
    for part in name.split('/') {
        // `Path` passes over empty parts and single dots; one blob should have one spelling.
        if part.is_empty() || part == "." || part.len() > PART_BYTES_MAX || part.starts_with(TEMPORARY) {
            return refuse("one of its parts is empty, too long or not plain");
        }
    }
    if !Path::new(name).components().all(|part| matches!(part, Component::Normal(_))) {
        return refuse("it must be relative and stay below the session's folder");
    }
    let first = name.split('/').next().unwrap_or_default();
    if RESERVED.contains(&first) || first.starts_with("cut-") || first.starts_with("damaged-") {
        return refuse("that name belongs to the store");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_relative_names_pass() {
        for good in ["artifacts/turn_1/x.txt", "attachments/ä b.png", "a", "...", "a/..b"] {
            assert!(check_blob(good).is_ok(), "{good}");
        }
        let long = "x".repeat(PART_BYTES_MAX + 1);
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "../a",
            "a/..",
            "./a",
            "a/./b",
            "a//b",
            "a/",
            "a\0b",
            ".tmp-1",
            "a/.tmp-x",
            "events.ndjson",
            "session.json",
            "turns/x",
            "logs/x",
            "cut-0-0.bin",
            "damaged-1.ndjson",
            "damaged/x",
            &long,
        ] {
            assert!(check_blob(bad).is_err(), "{bad:?}");
        }
    }
}

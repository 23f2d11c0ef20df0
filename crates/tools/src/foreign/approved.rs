//! Which foreign commands people have said yes to: once for each workspace and exact text. One line each in a file of
//! the data folder; taking a line out takes the yes back. Nothing is approved here: a line is written when an approved
//! call runs.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};

const FILE: &str = "approved.ndjson";
/// Longer files are not read; nothing is approved then.
const BYTES_MAX: u64 = 16 << 20;

pub(crate) struct Approved {
    path: PathBuf,
    keys: Mutex<Option<BTreeSet<String>>>,
}

/// What was approved. The key alone counts, and no turned bit makes another key of it; the rest is for people.
#[derive(Serialize, Deserialize)]
struct Line {
    key: String,
    source: String,
    workspace: String,
    text: String,
}

impl Approved {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { path: folder.join(FILE), keys: Mutex::new(None) }
    }

    pub(crate) fn has(&self, workspace: &Path, source: &str, text: &str) -> bool {
        let key = key(workspace, source, text);
        self.keys.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| self.read()).contains(&key)
    }

    /// Kept for good before it returns. Where that fails, the yes holds until the daemon ends.
    pub(crate) fn add(&self, workspace: &Path, source: &str, text: &str) {
        let key = key(workspace, source, text);
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if !keys.get_or_insert_with(|| self.read()).insert(key.clone()) {
            return;
        }
        let (workspace, source, text) = (workspace.to_string_lossy().into_owned(), source.to_owned(), text.to_owned());
        if let Err(error) = self.write(&Line { key, source, workspace, text }) {
            tracing::warn!("an approval holds until the daemon ends: {}: {error}", self.path.display());
        }
    }

    fn read(&self) -> BTreeSet<String> {
        let small = fs::metadata(&self.path).is_ok_and(|metadata| metadata.len() <= BYTES_MAX);
        let text = if small { fs::read(&self.path).unwrap_or_default() } else { vec![] };
        let lines = text.split(|byte| *byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice::<Line>(line).ok()).map(|line| line.key).collect()
    }

    fn write(&self, line: &Line) -> std::io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = fs::File::options().append(true).create(true).open(&self.path)?;
        // A line that a crash cut must not swallow this one.
        file.write_all(format!("\n{}\n", serde_json::to_string(line)?).as_bytes())?;
        file.sync_all()
    }
}

fn key(workspace: &Path, source: &str, text: &str) -> String {
    let mut digest = blake3::Hasher::new();
    for part in [workspace.as_os_str().as_encoded_bytes(), source.as_bytes(), text.as_bytes()] {
        digest.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    digest.finalize().to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_yes_is_for_one_workspace_and_one_text_and_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("foreign");
        let approved = Approved::new(&folder);
        let (here, there) = (Path::new("/w"), Path::new("/v"));
        assert!(!approved.has(here, "mcp:a", "npx x"));
        approved.add(here, "mcp:a", "npx x");
        for approved in [&approved, &Approved::new(&folder)] {
            assert!(approved.has(here, "mcp:a", "npx x"));
            assert!(!approved.has(here, "mcp:a", "npx x "));
            assert!(!approved.has(here, "mcp:b", "npx x"));
            assert!(!approved.has(there, "mcp:a", "npx x"));
        }
    }

    #[test]
    fn a_torn_line_takes_nothing_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let approved = Approved::new(folder.path());
        approved.add(Path::new("/w"), "mcp:a", "1");
        let path = folder.path().join(FILE);
        let whole = fs::read(&path).unwrap();
        fs::write(&path, [&whole[..], &whole[..whole.len() / 2]].concat()).unwrap();
        let approved = Approved::new(folder.path());
        approved.add(Path::new("/w"), "mcp:a", "2");
        let again = Approved::new(folder.path());
        assert!(again.has(Path::new("/w"), "mcp:a", "1") && again.has(Path::new("/w"), "mcp:a", "2"));
    }
}

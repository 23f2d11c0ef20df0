//! Reads what a workspace tells agents about itself. It never reads outside the workspace, and never more than the limit.

use std::{io::Read as _, path::Path};

use tenure_core::event::SeedFile;

use crate::workspace::Workspace;

/// What is taken of one file.
const SEED_BYTES_MAX: usize = 32 * 1024;

/// AGENTS.md, or CLAUDE.md where there is none.
pub fn find_context(workspace: &Path) -> Vec<SeedFile> {
    let Ok(workspace) = Workspace::open(workspace) else { return vec![] };
    ["AGENTS.md", "CLAUDE.md"].iter().find_map(|name| seed(&workspace, name)).into_iter().collect()
}

fn seed(workspace: &Workspace, name: &str) -> Option<SeedFile> {
    let file = workspace.inside(name).and_then(|path| workspace.open_file(&path)).ok()??;
    let mut bytes = vec![];
    file.take(SEED_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).ok()?;
    let truncated = bytes.len() > SEED_BYTES_MAX;
    bytes.truncate(SEED_BYTES_MAX);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if truncated {
        // The cut may have gone through a character.
        text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
    }
    Some(SeedFile { path: name.to_owned(), text, truncated })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_md_first_then_claude_md_bounded() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find_context(folder.path()), vec![]);
        let long = "ä".repeat(SEED_BYTES_MAX);
        std::fs::write(folder.path().join("CLAUDE.md"), &long).unwrap();
        let expected = "ä".repeat(SEED_BYTES_MAX / 2);
        assert_eq!(
            find_context(folder.path()),
            [SeedFile { path: "CLAUDE.md".into(), text: expected, truncated: true }]
        );
        std::fs::write(folder.path().join("AGENTS.md"), "short").unwrap();
        let short = SeedFile { path: "AGENTS.md".into(), text: "short".into(), truncated: false };
        assert_eq!(find_context(folder.path()), [short]);
    }

    #[test]
    fn a_symlink_out_of_the_workspace_is_not_read() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(outside.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("AGENTS.md")).unwrap();
        assert_eq!(find_context(folder.path()), vec![]);
    }
}

//! Reads what a workspace tells agents about itself. It never reads more than the limits, and outside the workspace
//! only such files of the folders above it, up to the root of its repository.

use std::{
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use tenure_core::event::SeedFile;

use crate::workspace::Workspace;

/// What is taken of one file.
const SEED_BYTES_MAX: usize = 32 * 1024;
/// What is taken of all of them; the nearest come first.
const SEED_BYTES_TOTAL: usize = 64 * 1024;
/// Folders above a workspace that are looked at.
const ABOVE_MAX: usize = 16;

/// AGENTS.md of the workspace, then those of the folders above it in the same repository, the nearest first. CLAUDE.md
/// stands in where a folder has no AGENTS.md.
pub fn find_context(workspace: &Path) -> Vec<SeedFile> {
    let mut files = vec![];
    let mut room = SEED_BYTES_TOTAL;
    for (up, folder) in std::iter::once(workspace.to_owned()).chain(above(workspace)).enumerate() {
        let Ok(folder) = Workspace::open(&folder) else { continue };
        let found = ["AGENTS.md", "CLAUDE.md"].iter().find_map(|name| seed(&folder, name, room.min(SEED_BYTES_MAX)));
        let Some(mut file) = found else { continue };
        file.path = "../".repeat(up) + &file.path;
        room -= file.text.len();
        files.push(file);
        if room == 0 {
            break;
        }
    }
    files
}

/// The root of the repository that a folder is in: the nearest one that git knows.
pub(crate) fn repository_of(workspace: &Path) -> Option<PathBuf> {
    let mut folders = own_line(workspace).into_iter();
    folders.find(|folder| folder.join(".git").symlink_metadata().is_ok())
}

/// The folders above a workspace up to its repository's root, from the inside out; none where it is in no repository.
fn above(workspace: &Path) -> Vec<PathBuf> {
    let Some(root) = repository_of(workspace) else { return vec![] };
    own_line(workspace).into_iter().skip(1).take_while(|folder| folder.starts_with(&root)).collect()
}

/// A folder and those above it, as long as they have the same owner: in a folder that is open to all, anybody could put
/// a file that speaks to agents.
fn own_line(workspace: &Path) -> Vec<PathBuf> {
    let owner = |path: &Path| path.metadata().ok().map(|metadata| metadata.uid());
    let Ok(workspace) = workspace.canonicalize() else { return vec![] };
    let own = owner(&workspace);
    let line = workspace.ancestors().take(ABOVE_MAX + 1);
    line.take_while(|folder| own.is_some() && owner(folder) == own).map(Path::to_owned).collect()
}

fn seed(folder: &Workspace, name: &str, bytes_max: usize) -> Option<SeedFile> {
    let file = folder.inside(name).and_then(|path| folder.open_file(&path)).ok()??;
    let mut bytes = vec![];
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).ok()?;
    let truncated = bytes.len() > bytes_max;
    bytes.truncate(bytes_max);
    let mut text = String::from_utf8_lossy(&bytes).into_owned();
    if truncated {
        // The cut may have gone through a character.
        text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
    }
    // What is no text can be longer as text.
    text.truncate(text.floor_char_boundary(bytes_max));
    Some(SeedFile { path: name.to_owned(), text, truncated })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(path: &str, text: &str) -> SeedFile {
        SeedFile { path: path.into(), text: text.into(), truncated: false }
    }

    #[test]
    fn agents_md_first_then_claude_md_bounded() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find_context(folder.path()), vec![]);
        let long = "ä".repeat(SEED_BYTES_MAX);
        fs::write(folder.path().join("CLAUDE.md"), &long).unwrap();
        let expected = "ä".repeat(SEED_BYTES_MAX / 2);
        assert_eq!(
            find_context(folder.path()),
            [SeedFile { path: "CLAUDE.md".into(), text: expected, truncated: true }]
        );
        fs::write(folder.path().join("AGENTS.md"), "short").unwrap();
        assert_eq!(find_context(folder.path()), [file("AGENTS.md", "short")]);
    }

    #[test]
    fn a_symlink_out_of_the_workspace_is_not_read() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), folder.path().join("AGENTS.md")).unwrap();
        assert_eq!(find_context(folder.path()), vec![]);
    }

    /// The workspace is `top/repo/a/b`; the repository's root is `top/repo`.
    fn nested() -> (tempfile::TempDir, PathBuf) {
        let top = tempfile::tempdir().unwrap();
        let workspace = top.path().join("repo/a/b");
        fs::create_dir_all(&workspace).unwrap();
        for (path, text) in [("AGENTS.md", "not ours"), ("repo/AGENTS.md", "root"), ("repo/CLAUDE.md", "hidden")] {
            fs::write(top.path().join(path), text).unwrap();
        }
        fs::write(top.path().join("repo/a/CLAUDE.md"), "middle").unwrap();
        fs::write(workspace.join("AGENTS.md"), "own").unwrap();
        (top, workspace)
    }

    #[test]
    fn the_nearest_comes_first_and_the_root_is_the_last() {
        let (top, workspace) = nested();
        assert_eq!(find_context(&workspace), [file("AGENTS.md", "own")], "in no repository, nothing above counts");
        // As in a linked worktree, where it is a file.
        fs::write(top.path().join("repo/.git"), "gitdir: elsewhere\n").unwrap();
        let expected = [file("AGENTS.md", "own"), file("../CLAUDE.md", "middle"), file("../../AGENTS.md", "root")];
        assert_eq!(find_context(&workspace), expected);
        assert_eq!(find_context(&top.path().join("repo")), [file("AGENTS.md", "root")]);
        // Through a symlink it is the true place that counts.
        std::os::unix::fs::symlink(&workspace, top.path().join("link")).unwrap();
        assert_eq!(find_context(&top.path().join("link")), expected);
    }

    #[test]
    fn all_of_them_together_are_bounded() {
        let (top, workspace) = nested();
        fs::create_dir(top.path().join("repo/.git")).unwrap();
        for path in ["repo/AGENTS.md", "repo/a/AGENTS.md", "repo/a/b/AGENTS.md"] {
            fs::write(top.path().join(path), "x".repeat(SEED_BYTES_MAX + 5)).unwrap();
        }
        let found = find_context(&workspace);
        assert_eq!(found.iter().map(|file| file.text.len()).sum::<usize>(), SEED_BYTES_TOTAL);
        assert!(found.iter().all(|file| file.truncated));
    }
}

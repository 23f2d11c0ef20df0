//! Which repository a workspace belongs to, found without asking git. A `.git` that leads elsewhere must be pointed back
//! from there, or a workspace could show any repository of the machine.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Files that git writes itself and that hold one path.
const POINTER_BYTES_MAX: u64 = 16 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Repository {
    /// The folder with `.git` in it.
    pub(super) top: PathBuf,
    /// Where its `HEAD` and index are.
    pub(super) git: PathBuf,
    /// Where its objects, names and settings are; the same but for a further work tree.
    pub(super) common: PathBuf,
    /// The way from the top to the workspace.
    pub(super) prefix: PathBuf,
}

impl Repository {
    /// `workspace`: its real path.
    pub(super) fn around(workspace: &Path) -> Result<Option<Self>, String> {
        for top in workspace.ancestors() {
            let git = top.join(".git");
            let Ok(metadata) = git.symlink_metadata() else { continue };
            // What is below is below, so this cannot fail.
            let prefix = workspace.strip_prefix(top).unwrap_or(Path::new("")).to_owned();
            let (git, common) = match metadata.file_type() {
                kind if kind.is_dir() => (git.clone(), git),
                kind if kind.is_file() => linked(top, &git)?,
                _ => return Err(format!("{} is a symlink; git_status does not follow it", git.display())),
            };
            if !common.join("objects").is_dir() || !git.join("HEAD").exists() {
                return Err(format!("{} is no git repository: it is not whole", top.display()));
            }
            return Ok(Some(Self { top: top.to_owned(), git, common, prefix }));
        }
        Ok(None)
    }

    /// What git is in the middle of.
    pub(super) fn under_way(&self) -> Option<&'static str> {
        let all = [
            ("MERGE_HEAD", "a merge"),
            ("rebase-merge", "a rebase"),
            ("rebase-apply", "a rebase"),
            ("CHERRY_PICK_HEAD", "a cherry-pick"),
            ("REVERT_HEAD", "a revert"),
            ("BISECT_LOG", "a bisection"),
        ];
        all.iter().find(|(file, _)| self.git.join(file).exists()).map(|(_, what)| *what)
    }
}

/// The folders that a `.git` file names: those of a further work tree, or of a submodule.
fn linked(top: &Path, file: &Path) -> Result<(PathBuf, PathBuf), String> {
    let named = pointer(file).ok().and_then(|text| text.strip_prefix("gitdir: ").map(str::to_owned));
    let named = named.ok_or_else(|| format!("{} is not a file that git has written", file.display()))?;
    let gone = |error: io::Error| format!("{} points to {named}, which cannot be opened: {error}", file.display());
    let git = top.join(&named).canonicalize().map_err(gone)?;
    let work_tree = pointer(&git.join("gitdir")).ok().and_then(|back| git.join(back).canonicalize().ok());
    if work_tree.as_deref() == Some(file) {
        let common = pointer(&git.join("commondir")).ok().and_then(|common| git.join(common).canonicalize().ok());
        if let Some(common) = common.filter(|common| git.parent() == Some(&common.join("worktrees"))) {
            return Ok((git, common));
        }
    }
    if is_submodule(&git, top) {
        return Ok((git.clone(), git));
    }
    Err(format!(
        "{} points to {}, which does not point back; git_status does not look there",
        file.display(),
        git.display()
    ))
}

/// A submodule's settings name its work tree.
fn is_submodule(git: &Path, top: &Path) -> bool {
    let text = fs::read_to_string(git.join("config")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.trim().strip_prefix("worktree"));
    let named = lines.filter_map(|rest| rest.trim_start().strip_prefix('=')).map(str::trim);
    named.into_iter().any(|path| git.join(path.trim_matches('"')).canonicalize().is_ok_and(|real| real == top))
}

fn pointer(file: &Path) -> io::Result<String> {
    let metadata = file.symlink_metadata()?;
    if !metadata.is_file() || metadata.len() > POINTER_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(fs::read_to_string(file)?.trim_end().to_owned())
}

//! The sources of a workspace, for what needs to know all of them. Every file is opened below the workspace.

use std::{
    io,
    path::{Path, PathBuf},
    time::Instant,
};

use tenure_outline::{PARSE_TIME_MAX, Repository, Skipped, Stop, Stopped, Survey, survey};
use tokio_util::sync::CancellationToken;

use crate::workspace::Workspace;

/// Where to look, and for how long.
pub(crate) struct Look<'a> {
    pub(crate) workspace: &'a Path,
    /// A folder or file of it; empty for all.
    pub(crate) below: &'a str,
    pub(crate) cache: Option<&'a Path>,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) deadline: Instant,
}

/// Why there is no survey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NoSurvey {
    Stopped(Stopped),
    /// In words for a model.
    Refused(String),
}

impl Look<'_> {
    pub(crate) fn survey(&self) -> Result<Survey, NoSurvey> {
        let workspace = Workspace::open(self.workspace).map_err(NoSurvey::Refused)?;
        let root = self.root().map_err(NoSurvey::Refused)?;
        let open = |path: &str| {
            let opened = workspace.inside(path).and_then(|path| workspace.open_file(&path));
            opened.map_err(io::Error::other)?.ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        let is_cancelled = || self.cancel.is_cancelled();
        let stop = Stop { is_cancelled: &is_cancelled, deadline: Some(self.deadline) };
        let parse_time = PARSE_TIME_MAX;
        let repository = Repository { root: &root, below: self.below, open: &open, cache: self.cache, parse_time };
        survey(&repository, &stop).map_err(NoSurvey::Stopped)
    }

    /// The workspace in its true spelling; what is asked for has to be in it.
    fn root(&self) -> Result<PathBuf, String> {
        let below = self.below;
        let none = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => format!("there is no file or folder {below}"),
            _ => format!("{below} cannot be opened: {error}"),
        };
        let root = self.workspace.canonicalize().map_err(none)?;
        let place = root.join(below).canonicalize().map_err(none)?;
        match place.starts_with(&root) {
            true => Ok(root),
            false => Err(format!("{below} leads out of the workspace through a symlink")),
        }
    }
}

/// What a survey has not looked at, in words; empty where that is nothing.
pub(crate) fn left_out(skipped: &Skipped) -> Vec<String> {
    let count = |number: usize, what: &str| (number > 0).then(|| format!("{number} {what}"));
    let walk_cut = skipped.walk_cut.then(|| "what lies beyond the first 200,000 entries".to_owned());
    [
        count(skipped.large, "source files larger than 512 KiB"),
        count(skipped.unreadable, "that are no text or cannot be read"),
        count(skipped.too_slow, "that took the parser too long"),
        count(skipped.secret, "that may hold secrets"),
        count(skipped.beyond, "beyond the first 10,000"),
        walk_cut,
    ]
    .into_iter()
    .flatten()
    .collect()
}

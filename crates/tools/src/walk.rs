//! How a workspace is walked: ignore rules respected, symlinks not followed, ended when it is no longer wanted or takes
//! too long. It never opens a file itself.

use std::time::{Duration, Instant};

use ignore::{WalkBuilder, overrides::Override};
use tokio_util::sync::CancellationToken;

use crate::workspace::Spot;

/// How long one walk may take. A folder on a dead network drive must not hold a turn for ever.
pub(crate) const WALK_TIME_MAX: Duration = Duration::from_secs(60);

/// What a walk leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// Names that begin with a dot.
    pub(crate) hidden: bool,
    /// What `.gitignore`, `.ignore` and the user's own rules name.
    pub(crate) ignored: bool,
}

/// A walk that respects ignore rules. Git's own folder is left out in any case: it is no part of what people write.
pub(crate) fn walk(spot: &Spot, left: Left, globs: Option<Override>) -> WalkBuilder {
    let mut builder = WalkBuilder::new(spot.path());
    builder
        .hidden(left.hidden)
        .parents(left.ignored)
        .ignore(left.ignored)
        .git_ignore(left.ignored)
        .git_global(left.ignored)
        .git_exclude(left.ignored)
        // A folder that was unpacked from an archive has its rules without a repository around them.
        .require_git(false)
        .follow_links(false)
        .filter_entry(|entry| entry.file_name() != ".git");
    if let Some(globs) = globs {
        builder.overrides(globs);
    }
    builder
}

/// When to stop, asked often.
#[derive(Clone)]
pub(crate) struct Stop {
    cancel: CancellationToken,
    deadline: Instant,
}

/// Why a walk did not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    Canceled,
    TimedOut,
}

impl Stop {
    pub(crate) fn new(cancel: &CancellationToken) -> Self {
        Self { cancel: cancel.clone(), deadline: Instant::now() + WALK_TIME_MAX }
    }

    pub(crate) fn reason(&self) -> Option<Stopped> {
        match () {
            () if self.cancel.is_cancelled() => Some(Stopped::Canceled),
            () if Instant::now() >= self.deadline => Some(Stopped::TimedOut),
            () => None,
        }
    }

    /// Runs a walk on a thread of its own. One that hangs in the file system is left behind, and the call ends.
    pub(crate) async fn or<T: Send + 'static>(
        self,
        work: impl FnOnce(Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let (cancel, deadline) = (self.cancel.clone(), self.deadline);
        let working = crate::tool::on_disk(move || work(self));
        tokio::pin!(working);
        tokio::select! {
            done = &mut working => return done,
            () = cancel.cancelled() => {}
            () = tokio::time::sleep_until((deadline + GRACE).into()) => {}
        }
        // What notices that it is to stop has something to say; the rest does not come back.
        tokio::time::timeout(GRACE, working)
            .await
            .unwrap_or_else(|_| Err(format!("the file system did not answer within {} s", WALK_TIME_MAX.as_secs())))
    }
}

/// What a walk gets to notice that it is to stop.
const GRACE: Duration = Duration::from_secs(2);

/// Counts read better with their noun.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

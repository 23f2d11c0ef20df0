//! A ranked outline of a repository's symbols within a token budget. It reads files and keeps a cache; it never runs
//! anything, never follows a symlink, and keeps nothing in memory between two calls.

mod cache;
mod chunk;
mod focus;
mod language;
mod parse;
mod rank;
mod render;
mod secret;
mod survey;
mod tags;
mod walk;

use std::time::{Duration, Instant};

pub use chunk::{Chunk, choose};
pub use focus::Focus;
pub use rank::{Ranked, rank};
pub use render::{Outline, outline};
pub use secret::looks_secret;
pub use survey::{Repository, Skipped, SourceFile, Survey, survey};
pub use tags::{Definition, Shape, Tags};

/// Larger files are made by programs more often than by people.
pub const FILE_BYTES_MAX: u64 = 512 * 1024;
/// Files of one survey; what a repository has beyond that is counted and left out.
pub const FILES_MAX: usize = 10_000;
/// What the parser may take for one file, as time of its thread: a busy machine makes no file slow.
pub const PARSE_TIME_MAX: Duration = Duration::from_millis(500);
/// Threads that parse; each holds one file at a time.
pub const THREADS_MAX: usize = 4;

const BYTES_PER_TOKEN: usize = 3;

/// What a text takes of a budget: a guess on the high side, since the budget is to be held with any model.
pub fn tokens(text: &str) -> usize {
    text.len().div_ceil(BYTES_PER_TOKEN)
}

/// When to give up.
#[derive(Clone, Copy)]
pub struct Stop<'a> {
    /// Asked often, from several threads.
    pub is_cancelled: &'a (dyn Fn() -> bool + Sync),
    pub deadline: Option<Instant>,
}

/// Why there is no answer. What was parsed until then is in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    Cancelled,
    Late,
}

impl Stop<'_> {
    pub(crate) fn check(&self) -> Result<(), Stopped> {
        if (self.is_cancelled)() {
            return Err(Stopped::Cancelled);
        }
        match self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            true => Err(Stopped::Late),
            false => Ok(()),
        }
    }
}

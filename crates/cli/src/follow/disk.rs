//! A daemon whose disk refuses writes says nothing on a stream: when nothing comes, it is asked for its notices.

use std::time::Duration;

use tokio::time::Instant;

use super::Follow;
use crate::{hint, terminal};

/// When nothing has come for this long, the daemon is asked; then less and less often.
const LOOK_AFTER: Duration = Duration::from_secs(2);
const LOOK_AFTER_MAX: Duration = Duration::from_secs(16);

/// When to look, and what was told.
pub(super) struct Look {
    pub(super) at: Instant,
    after: Duration,
    is_told: bool,
}

impl Look {
    pub(super) fn new() -> Self {
        Self { at: Instant::now() + LOOK_AFTER, after: LOOK_AFTER, is_told: false }
    }

    /// Something came.
    pub(super) fn put_off(&mut self) {
        self.after = LOOK_AFTER;
        self.at = Instant::now() + self.after;
    }
}

impl Follow<'_> {
    /// Tells once that the disk refuses what this session writes, and once that it takes it again.
    pub(super) async fn look_at_disk(&mut self) -> anyhow::Result<()> {
        self.disk.after = (self.disk.after * 2).min(LOOK_AFTER_MAX);
        let ready = self.seat.client.ready().await;
        self.disk.at = Instant::now() + self.disk.after;
        // That the daemon is gone is told elsewhere.
        let Ok(ready) = ready else { return Ok(()) };
        let told = match (refused(&ready.notices, &self.seat.session), self.disk.is_told) {
            (Some(why), false) => hint::of_disk(why),
            (None, true) => "The disk takes writes again.".to_owned(),
            _ => return Ok(()),
        };
        self.disk.is_told = !self.disk.is_told;
        let pieces = self.printer.finish();
        self.show(pieces)?;
        terminal::tell(&told);
        Ok(())
    }
}

/// Why the disk refuses what a session writes; `None` where the last notice of it says something else.
fn refused<'n>(notices: &'n [String], session: &str) -> Option<&'n str> {
    let of_session = |notice: &'n String| notice.strip_prefix("session ")?.strip_prefix(session);
    let last = notices.iter().rev().find_map(of_session)?;
    [" is closed for writing: ", " takes no commands: "].iter().find_map(|begin| last.strip_prefix(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_notice_of_a_session_counts() {
        let of = |notices: &[&str]| {
            let notices: Vec<String> = notices.iter().map(ToString::to_string).collect();
            refused(&notices, "sess_1").map(str::to_owned)
        };
        let full = "session sess_1 is closed for writing: the disk refused to write x: No space left on device";
        assert!(of(&[full, "session sess_2 is open for writing again"]).unwrap().ends_with("No space left on device"));
        assert_eq!(of(&[full, "session sess_1 is open for writing again"]), None);
        assert_eq!(of(&["session sess_2 takes no commands: no"]), None);
    }
}

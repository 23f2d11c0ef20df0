//! Standard input that something was piped or redirected into. It is read once, and never waited for without an end.

use std::{
    io::{self, Read as _},
    os::{fd::AsFd as _, unix::fs::FileTypeExt as _},
    time::Duration,
};

use anyhow::Context as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{exit::Problem, terminal};

/// Whoever starts a program may leave it a pipe that nobody writes to.
pub const FIRST_WITHIN: Duration = Duration::from_secs(3);

/// All of it as text, at most so many bytes and one more.
pub fn text(bytes_max: usize) -> anyhow::Result<String> {
    String::from_utf8(bytes(bytes_max)?).map_err(|_| {
        Problem::usage("what came from stdin is not UTF-8", "send plain text, or attach it with --attach -").into()
    })
}

/// All of it, at most so many bytes and one more.
pub fn bytes(bytes_max: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![];
    let limited = io::stdin().lock().take(bytes_max as u64 + 1).read_to_end(&mut bytes);
    limited.context("cannot read from stdin")?;
    Ok(bytes)
}

/// What goes along with a text that was given: a file or a pipe that is not silent. A terminal and `/dev/null` have nothing.
pub fn beside(bytes_max: usize) -> anyhow::Result<Option<String>> {
    if !is_fed() {
        return Ok(None);
    }
    if !comes_within(FIRST_WITHIN) {
        let seconds = FIRST_WITHIN.as_secs();
        terminal::tell(&format!(
            "Nothing came from stdin for {seconds} s: the text is sent alone. `< /dev/null` saves the wait."
        ));
        return Ok(None);
    }
    Ok(Some(text(bytes_max)?).filter(|text| !text.trim().is_empty()))
}

fn is_fed() -> bool {
    let Ok(own) = io::stdin().as_fd().try_clone_to_owned() else { return false };
    let Ok(kind) = std::fs::File::from(own).metadata().map(|found| found.file_type()) else { return false };
    kind.is_file() || kind.is_fifo() || kind.is_socket()
}

/// Whether anything comes, an end too.
fn comes_within(time: Duration) -> bool {
    let stdin = io::stdin();
    let mut asked = [PollFd::new(&stdin, PollFlags::IN)];
    let limit = Timespec::try_from(time).unwrap_or_default();
    poll(&mut asked, Some(&limit)).is_ok_and(|count| count > 0)
}

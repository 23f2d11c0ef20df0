//! Goes through a log once when it is opened, in bounded memory, and finds its last whole decision. It changes nothing.

use std::io;

use super::lines::{Lines, Next};
use crate::{
    disk::DiskFile,
    line::{Checked, LINE_BYTES_MAX, LINE_OPENS, Line, Place},
};

/// Places in one bad line that are tried as the start of another.
const STARTS_MAX: usize = 16;

/// What stands behind the last whole decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tail {
    Clean,
    /// Bytes that a crash left: nothing valid of a later decision follows them, so they may be cut.
    Torn,
    /// A bad line, and valid ones of later decisions after it: nothing may be cut.
    Bad {
        why: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Where the last whole decision ends.
    pub tip: Place,
    pub tail: Tail,
}

/// Checks all lines from a decision's end `from` up to `end`.
pub(crate) fn scan(file: &dyn DiskFile, from: Place, end: u64) -> io::Result<Scan> {
    let mut lines = Lines::new(file, from.offset, end, LINE_BYTES_MAX);
    let mut walk = Walk { tip: from, place: from, left: 0 };
    loop {
        let why = match lines.next()? {
            Next::End if walk.left == 0 => return Ok(Scan { tip: walk.tip, tail: Tail::Clean }),
            Next::End | Next::Torn { .. } => return Ok(Scan { tip: walk.tip, tail: Tail::Torn }),
            Next::TooLong { .. } => "it is longer than any line can be".to_owned(),
            Next::Line { bytes, .. } => match walk.step(bytes) {
                Ok(()) => continue,
                Err(why) if holds_later_line(bytes, walk.decision_ends()) => {
                    return Ok(Scan { tip: walk.tip, tail: Tail::Bad { why } });
                }
                Err(why) => why,
            },
        };
        let tail = match later_line(&mut lines, walk.decision_ends())? {
            true => Tail::Bad { why },
            false => Tail::Torn,
        };
        return Ok(Scan { tip: walk.tip, tail });
    }
}

/// How far the checking has come.
struct Walk {
    /// The end of the last whole decision.
    tip: Place,
    /// The end of the last good line.
    place: Place,
    /// Lines still to come of the decision under way.
    left: u64,
}

impl Walk {
    fn step(&mut self, bytes: &[u8]) -> Checked<()> {
        let line = Line::parse(bytes).ok_or("it has not the form of a line")?;
        let next = line.follow(&self.place)?;
        if self.left > 0 && line.more != self.left - 1 {
            return Err(format!("it says that {} lines follow in its decision, not {}", line.more, self.left - 1));
        }
        self.place = next;
        self.left = line.more;
        if self.left == 0 {
            self.tip = next;
        }
        Ok(())
    }

    /// The last number known to belong to the same decision as the next line. Later ones were written after a sync of
    /// it. Only lines whose sum was checked are asked: what a bad line says of itself counts for nothing.
    fn decision_ends(&self) -> u64 {
        self.place.seq + self.left.max(1)
    }
}

/// Whether anything that looks like a line numbered above `seq` is still to come. Its sum cannot be checked when the
/// line before it is gone, so its form decides: to keep too much is the safe mistake.
fn later_line(lines: &mut Lines<'_>, seq: u64) -> io::Result<bool> {
    loop {
        match lines.next()? {
            Next::End | Next::Torn { .. } => return Ok(false),
            Next::Line { bytes, .. } if looks_later(bytes, seq) || holds_later_line(bytes, seq) => return Ok(true),
            Next::Line { .. } | Next::TooLong { .. } => {}
        }
    }
}

/// Whether a bad line is two, with the line end between them gone.
fn holds_later_line(bytes: &[u8], seq: u64) -> bool {
    let starts = bytes.windows(LINE_OPENS.len()).enumerate().skip(1).filter(|(_, window)| *window == LINE_OPENS);
    starts.take(STARTS_MAX).any(|(start, _)| looks_later(&bytes[start..], seq))
}

fn looks_later(bytes: &[u8], seq: u64) -> bool {
    Line::parse(bytes).is_some_and(|line| line.seq > seq)
        && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

//! Goes through a log once when it is opened, in bounded memory, and finds its last whole decision. It changes nothing.

use std::io;

use super::lines::{Lines, Next};
use crate::{
    disk::DiskFile,
    line::{Checked, LINE_BYTES_MAX, Line, Place},
};

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
    let mut tip = from;
    let mut place = from;
    // Lines still to come of the decision under way.
    let mut left = 0;
    loop {
        let (why, more) = match lines.next()? {
            Next::End if left == 0 => return Ok(Scan { tip, tail: Tail::Clean }),
            Next::End | Next::Torn { .. } => return Ok(Scan { tip, tail: Tail::Torn }),
            Next::TooLong { .. } => ("it is longer than any line can be".to_owned(), None),
            Next::Line { bytes, .. } => {
                let line = Line::parse(bytes);
                match judge(line, &place, left) {
                    Ok((next, more)) => {
                        place = next;
                        left = more;
                        if left == 0 {
                            tip = place;
                        }
                        continue;
                    }
                    Err(why) => (why, line.map(|line| line.more)),
                }
            }
        };
        // The last number that can belong to the same decision as the bad line: later ones were written after a sync.
        let decision_ends = place.seq + if left > 0 { left } else { 1 + more.unwrap_or(0) };
        let tail = match later_line(&mut lines, decision_ends)? {
            true => Tail::Bad { why },
            false => Tail::Torn,
        };
        return Ok(Scan { tip, tail });
    }
}

fn judge(line: Option<Line<'_>>, place: &Place, left: u64) -> Checked<(Place, u64)> {
    let line = line.ok_or("it has not the form of a line")?;
    let next = line.follow(place)?;
    if left > 0 && line.more != left - 1 {
        return Err(format!("it says {} more lines belong to its decision, not {}", line.more, left - 1));
    }
    Ok((next, line.more))
}

/// Whether anything that looks like a line numbered above `seq` is still to come. Its sum cannot be checked when the
/// line before it is gone, so its form decides: to keep too much is the safe mistake.
fn later_line(lines: &mut Lines<'_>, seq: u64) -> io::Result<bool> {
    loop {
        match lines.next()? {
            Next::End | Next::Torn { .. } => return Ok(false),
            Next::TooLong { .. } => {}
            Next::Line { bytes, .. } => {
                let later = Line::parse(bytes).is_some_and(|line| line.seq > seq);
                if later && serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok() {
                    return Ok(true);
                }
            }
        }
    }
}

//! Goes through a log once when it is opened, in bounded memory, and finds its last whole decision. It changes nothing.

use std::io;

use super::{
    lines::{Lines, Next},
    upkeep::flip,
};
use crate::{
    disk::DiskFile,
    line::{Checked, LINE_BYTES_MAX, LINE_OPENS, Line, Place},
};

/// Places in one bad line that are tried as the start of another.
const STARTS_MAX: usize = 16;
/// Of longer lines a bit is only looked for at their ends when a log is opened: all of them would take too long.
const ROTTED_BYTES_MAX: usize = 16 * 1024;
/// Holds all that a line is known by at its end.
const EDGE_BYTES: usize = 128;
/// What a disk writes as a whole or not at all.
const SECTOR_BYTES: u64 = 512;

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
        let (why, mut unfinished, cut) = match lines.next()? {
            Next::End if walk.left == 0 => return Ok(Scan { tip: walk.tip, tail: Tail::Clean }),
            Next::End => return Ok(Scan { tip: walk.tip, tail: Tail::Torn }),
            Next::Torn { offset } => return Ok(Scan { tip: walk.tip, tail: torn(file, offset, end, &walk.place)? }),
            Next::TooLong { .. } => ("it is longer than any line can be".to_owned(), walk.unfinished(false), None),
            Next::Line { offset, bytes } => match walk.step(bytes) {
                Ok(()) => continue,
                Err(why) => {
                    let hole = has_hole(bytes, offset, walk.tip.offset);
                    let mut unfinished = walk.unfinished(hole);
                    if unfinished.ends_within(bytes) || !hole && has_rotted(bytes, &walk.place) {
                        return Ok(Scan { tip: walk.tip, tail: Tail::Bad { why } });
                    }
                    (why, unfinished, Some(bytes.to_vec()))
                }
            },
        };
        let tail = match unfinished.ends_before_end(&mut lines, cut, &walk.place)? {
            true => Tail::Bad { why },
            false => Tail::Torn,
        };
        return Ok(Scan { tip: walk.tip, tail });
    }
}

/// What bytes without a line end are. A crash does not leave a whole line whose end became another byte.
fn torn(file: &dyn DiskFile, offset: u64, end: u64, place: &Place) -> io::Result<Tail> {
    let Some(length) = usize::try_from(end - offset).ok().filter(|length| *length <= LINE_BYTES_MAX + 1) else {
        return Ok(Tail::Torn);
    };
    let mut bytes = vec![0; length];
    let read = file.read_full_at(&mut bytes, offset)?;
    match bytes[..read].split_last() {
        Some((last, line)) if flip::is_near_line_end(*last) && follows(line, place) => {
            Ok(Tail::Bad { why: "its line end has changed".into() })
        }
        _ => Ok(Tail::Torn),
    }
}

fn follows(bytes: &[u8], place: &Place) -> bool {
    Line::parse(bytes).is_some_and(|line| line.follow(place).is_ok())
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

    /// What is known of the decision that the next line, a bad one, belongs to. Only lines whose sum was checked are
    /// asked: what a bad line says of itself counts for nothing.
    fn unfinished(&self, hole: bool) -> Unfinished {
        Unfinished { last: self.place.seq.saturating_add(self.left.max(1)), hole: hole && self.left == 0 }
    }
}

/// A decision with a bad line. What was written after it was written after a sync of it.
struct Unfinished {
    /// The last number known to belong to it.
    last: u64,
    /// It starts with a hole that a power cut left, so that only its later lines can tell where it ends.
    hole: bool,
}

impl Unfinished {
    /// Whether anything that looks like a line of a later decision is still to come. Its sum cannot be checked when the
    /// line before it is gone, so its form decides: to keep too much is the safe mistake. The same where the first bad
    /// piece, which follows `place`, was `cut` from the next one by a byte that became a line end.
    fn ends_before_end(&mut self, lines: &mut Lines<'_>, mut cut: Option<Vec<u8>>, place: &Place) -> io::Result<bool> {
        loop {
            let first = cut.take();
            match lines.next()? {
                Next::End | Next::Torn { .. } => return Ok(false),
                Next::Line { bytes, .. } if self.ends_before(bytes) || self.ends_within(bytes) => return Ok(true),
                Next::Line { bytes, .. } if first.is_some_and(|first| flip::joined(&first, bytes, place).is_some()) => {
                    return Ok(true);
                }
                Next::Line { .. } | Next::TooLong { .. } => {}
            }
        }
    }

    /// Whether a bad line is two, with the line end between them gone, and the second belongs to a later decision.
    fn ends_within(&mut self, bytes: &[u8]) -> bool {
        let starts = bytes.windows(LINE_OPENS.len()).enumerate().skip(1).filter(|(_, window)| *window == LINE_OPENS);
        starts.take(STARTS_MAX).any(|(start, _)| self.ends_before(&bytes[start..]))
    }

    /// Whether these bytes look like a line of a later decision.
    fn ends_before(&mut self, bytes: &[u8]) -> bool {
        let Some(line) = Line::parse(bytes).filter(|line| line.seq > self.last) else { return false };
        if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err() {
            return false;
        }
        if !self.hole {
            return true;
        }
        // The first line behind the hole speaks for the decision; no second one may.
        self.hole = false;
        self.last = line.seq.saturating_add(line.more);
        false
    }
}

/// Whether a whole line stood here, in which no sector is missing: from its first byte to its last it is of this number,
/// or it is but for one bit. No crash leaves that: the disk changed what was written.
fn has_rotted(bytes: &[u8], place: &Place) -> bool {
    let has_form = Line::parse(bytes).is_some_and(|line| line.seq == place.seq + 1);
    // A line whose end became another byte, with the next one behind it.
    let ends =
        (1..bytes.len()).filter(|at| flip::is_near_line_end(bytes[at - 1]) && bytes[*at..].starts_with(LINE_OPENS));
    has_form
        || ends.take(STARTS_MAX).any(|at| follows(&bytes[..at - 1], place))
        || match bytes.len() <= ROTTED_BYTES_MAX {
            true => flip::mend_line(bytes, place).is_some(),
            // A bit in what a line is known by at its beginning or at its end; any other leaves it its form.
            false => {
                opens_nearly(bytes, place) || flip::mend_line_from(bytes, bytes.len() - EDGE_BYTES, place).is_some()
            }
        }
}

/// Whether the line begins as the one behind `place` does, but for one bit.
fn opens_nearly(bytes: &[u8], place: &Place) -> bool {
    let mut opens = LINE_OPENS.to_vec();
    opens.extend_from_slice(format!("{},", place.seq + 1).as_bytes());
    let differ = flip::differing_bits(&bytes[..opens.len()], &opens) == 1;
    differ && follows(&[&opens, &bytes[opens.len()..]].concat(), place)
}

/// Whether a sector is missing in a bad line that starts at `offset`: bytes of an unsynced write reach a disk in any
/// order, and where one sector did not, there are zeros from the file's old end or the sector's start to its end.
pub(crate) fn has_hole(bytes: &[u8], offset: u64, tip: u64) -> bool {
    let mut at = 0;
    while let Some(found) = bytes[at..].iter().position(|byte| *byte == 0) {
        let start = at + found;
        let length = bytes[start..].iter().take_while(|byte| **byte == 0).count();
        let (from, to) = (offset + start as u64, offset + (start + length) as u64);
        let missing = if from == tip { tip } else { from.next_multiple_of(SECTOR_BYTES) };
        if to >= (missing / SECTOR_BYTES + 1) * SECTOR_BYTES {
            return true;
        }
        at = start + length;
    }
    false
}

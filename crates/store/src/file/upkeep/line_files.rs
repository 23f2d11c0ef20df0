//! The files whose lines stand alone: keys, listing, spools; and records of turns. Which of their lines are damaged, and
//! which can be mended.

use std::{io, path::Path, thread, time::Duration};

use tenure_core::ids::TurnId;

use super::flip;
use crate::{
    delta_line,
    file::{folder::Folder, keys, lines::position_of_line_end, listing},
    seal::{self, Sealed},
};

/// These files are small; what is larger is none of them.
const BYTES_MAX: u64 = 1 << 30;

/// What a file of lines holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    pub good: u64,
    /// Where the first bad line starts, and how many there are.
    pub bad: Option<(u64, u64)>,
    /// Bytes behind the last line end.
    pub torn: u64,
    pub bytes: u64,
}

/// Looks at each line of a file; `None` if there is none. A torn end is given time to become whole.
pub(super) fn look(
    folder: &Folder,
    path: &Path,
    is_good: &dyn Fn(&[u8]) -> bool,
    patience: Duration,
) -> io::Result<Option<Lines>> {
    let read = || folder.read_if_there(path, BYTES_MAX);
    let Some(mut content) = read()? else { return Ok(None) };
    if !patience.is_zero() && content.last().is_some_and(|last| *last != b'\n') {
        thread::sleep(patience);
        content = read()?.unwrap_or_default();
    }
    let mut found = Lines { bytes: content.len() as u64, ..Lines::default() };
    for (offset, line) in pieces(&content) {
        match line.strip_suffix(b"\n") {
            None => found.torn = line.len() as u64,
            Some(line) if is_good(line) => found.good += 1,
            Some(_) => {
                let (_, count) = found.bad.get_or_insert((offset as u64, 0));
                *count += 1;
            }
        }
    }
    Ok(Some(found))
}

pub(super) fn is_key(line: &[u8]) -> bool {
    keys::read_line(line).is_some()
}

pub(super) fn is_row(line: &[u8]) -> bool {
    listing::read_line(line).is_some()
}

pub(super) fn is_delta(line: &[u8], turn: TurnId) -> bool {
    delta_line::decode(line, turn).is_some()
}

/// Whether a record of a turn is as it was written.
pub(super) fn is_record(content: &[u8]) -> bool {
    !seal::check(content).is_bad() && serde_json::from_slice::<serde::de::IgnoredAny>(content).is_ok()
}

/// A part of the keys, with its line end but perhaps the last.
pub(in crate::file) enum Piece<'a> {
    Good(&'a [u8]),
    /// What stood there once, in whole lines: one bit had changed.
    Mended(Vec<u8>),
    Lost(&'a [u8]),
}

/// The keys piece by piece, every damaged one mended where one bit does it.
pub(in crate::file) fn key_pieces(content: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = content;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let end = position_of_line_end(rest).map_or(rest.len(), |at| at + 1);
        let (piece, after) = rest.split_at(end);
        if piece.strip_suffix(b"\n").is_some_and(is_key) {
            rest = after;
            return Some(Piece::Good(piece));
        }
        let mended = mend_key(piece, after);
        rest = &rest[mended.as_ref().map_or(end, |(_, used)| *used)..];
        Some(mended.map_or(Piece::Lost(piece), |(lines, _)| Piece::Mended(lines)))
    })
}

/// The lines of the keys that are good or can be mended; and how many were mended and are lost.
pub(super) fn mend_keys(content: &[u8]) -> (Vec<u8>, u64, u64) {
    let (mut out, mut mended, mut lost) = (Vec::new(), 0, 0);
    for piece in key_pieces(content) {
        match piece {
            Piece::Good(line) => out.extend_from_slice(line),
            Piece::Mended(lines) => {
                out.extend_from_slice(&lines);
                mended += 1;
            }
            Piece::Lost(_) => lost += 1,
        }
    }
    (out, mended, lost)
}

/// One line of the keys without its end, mended by one bit.
pub(in crate::file) fn mend_key_line(line: &[u8]) -> Option<Vec<u8>> {
    mend_sealed(line).filter(|line| is_sealed_key(line))
}

/// Mends the first of some lines by one bit; gives whole lines and how many bytes they stand for.
fn mend_key(piece: &[u8], after: &[u8]) -> Option<(Vec<u8>, usize)> {
    let line = piece.strip_suffix(b"\n").unwrap_or(piece);
    if let Some(line) = mend_key_line(line) {
        return Some(([&line[..], b"\n"].concat(), piece.len()));
    }
    // A line end that became another byte: two lines in one, or the last line of the file.
    for at in (0..line.len()).filter(|at| flip::is_near_line_end(line[*at])) {
        let (first, second) = (&line[..at], &line[at + 1..]);
        if is_sealed_key(first) && (second.is_empty() || is_sealed_key(second)) {
            let mut lines = [first, b"\n"].concat();
            if !second.is_empty() {
                lines.extend_from_slice(&[second, b"\n"].concat());
            }
            return Some((lines, piece.len()));
        }
    }
    // Another byte that became a line end: one line in two.
    let end = position_of_line_end(after).map_or(after.len(), |at| at + 1);
    let second = after[..end].strip_suffix(b"\n").unwrap_or(&after[..end]);
    (0..8).find_map(|bit| {
        let joined = [line, &[b'\n' ^ (1 << bit)], second].concat();
        is_sealed_key(&joined).then(|| ([&joined[..], b"\n"].concat(), piece.len() + end))
    })
}

fn is_sealed_key(line: &[u8]) -> bool {
    matches!(seal::check(line), Sealed::Good(_)) && is_key(line)
}

/// An object with one bit turned such that its sum fits.
fn mend_sealed(object: &[u8]) -> Option<Vec<u8>> {
    let (body, suffix) = seal::parts(object)?;
    let right = seal::suffix_of(body);
    if flip::differing_bits(suffix, right.as_bytes()) == 1 {
        return Some([body, right.as_bytes()].concat());
    }
    let mended = flip::find(body, 0, &|hash| seal::suffix_with(hash).as_bytes() == suffix)?;
    Some([&mended[..], suffix].concat())
}

/// The pieces of a content, each with its line end but perhaps the last, and where they start.
fn pieces(content: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut offset = 0;
    content.split_inclusive(|byte| *byte == b'\n').map(move |line| {
        offset += line.len();
        (offset - line.len(), line)
    })
}

//! What is left of a damaged log: every line that is proven by its sum wherever it lies, lines that one turned bit makes
//! whole again, and for each event in between that is gone a place of its own. Pure.

use std::collections::BTreeMap;

use tenure_core::ids::SessionId;

use super::{flip, logs::event_of};
use crate::{
    file::scan::has_hole,
    line::{LINE_OPENS, Line, Place, SUFFIX_BYTES, Sum, suffix_sum},
};

/// Events that may be lost between two that are left; a number further on is taken for damage itself.
const LOST_MAX: u64 = 100_000;
/// Places in one piece that are tried as the start of a line.
const STARTS_MAX: usize = 16;

/// Sums that are tried where nobody knows which is right.
const SUMS_MAX: usize = 64;

/// One event of the log that is written anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Slot {
    Kept { json: Vec<u8>, more: u64 },
    Lost { why: &'static str, more: u64 },
}

#[derive(Debug, Default)]
pub(super) struct Salvaged {
    pub slots: Vec<Slot>,
    /// Lines that one turned bit made whole.
    pub mended: u64,
    pub lost: u64,
    /// Lines whose sum could not be checked, since the one before them is gone.
    pub unproven: u64,
    /// Bytes at the end of which nothing is kept.
    pub cut_bytes: u64,
}

/// What lies between two line ends.
#[derive(Debug, Clone, Copy)]
struct Piece {
    start: usize,
    end: usize,
    /// With a line end behind it.
    ended: bool,
}

/// Bytes that have the form of a line.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    start: usize,
    end: usize,
    piece: usize,
}

/// `expected_seq` is the last event that the log is known to have held.
pub(super) fn salvage(content: &[u8], session: SessionId, expected_seq: u64) -> Salvaged {
    let pieces = pieces(content);
    let candidates = candidates(content, &pieces);
    let mut walk = Walk {
        content,
        session,
        pieces,
        candidates,
        seq: 0,
        before: vec![Place::START.sum],
        proven: true,
        next: 0,
        left: 0,
        expected_seq,
        out: Salvaged::default(),
    };
    while walk.step() {}
    walk.out
}

fn pieces(content: &[u8]) -> Vec<Piece> {
    let mut start = 0;
    let split = content.split_inclusive(|byte| *byte == b'\n');
    split
        .map(|line| {
            let ended = line.ends_with(b"\n");
            let piece = Piece { start, end: start + line.len() - usize::from(ended), ended };
            start += line.len();
            piece
        })
        .collect()
}

/// All that has the form of a line, by the number it gives itself: also two lines whose line end became another byte.
fn candidates(content: &[u8], pieces: &[Piece]) -> BTreeMap<u64, Vec<Candidate>> {
    let mut found: BTreeMap<u64, Vec<Candidate>> = BTreeMap::new();
    for (piece, Piece { start, end, ended }) in pieces.iter().copied().enumerate() {
        let starts = starts(&content[start..end]);
        for (at, from) in starts.iter().enumerate() {
            let mut ends = vec![end];
            match starts.get(at + 1) {
                Some(next) => ends.extend([start + next - 1, start + next]),
                None if !ended && end > start && flip::is_near_line_end(content[end - 1]) => ends.push(end - 1),
                None => {}
            }
            for end in ends {
                let from = start + from;
                if let Some(line) = content.get(from..end).and_then(Line::parse) {
                    found.entry(line.seq).or_default().push(Candidate { start: from, end, piece });
                }
            }
        }
    }
    found
}

fn starts(bytes: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(LINE_OPENS.len()).enumerate();
    windows.filter(|(_, window)| *window == LINE_OPENS).map(|(at, _)| at).take(STARTS_MAX).collect()
}

/// A line that was accepted.
struct Accepted {
    json: Vec<u8>,
    more: u64,
    sum: Sum,
    /// Which piece comes next.
    next: usize,
}

struct Walk<'c> {
    content: &'c [u8],
    session: SessionId,
    pieces: Vec<Piece>,
    candidates: BTreeMap<u64, Vec<Candidate>>,
    /// The last event that has a slot.
    seq: u64,
    /// What its sum may be; one where it is known.
    before: Vec<Sum>,
    proven: bool,
    /// The first piece that is not used yet.
    next: usize,
    /// Events still to come of the decision under way.
    left: u64,
    /// The last event that is known to have been there.
    expected_seq: u64,
    out: Salvaged,
}

impl Walk<'_> {
    /// Fills the next slot; false at the end.
    fn step(&mut self) -> bool {
        if let Some(line) = self.exact() {
            self.keep(line);
        } else if let Some(line) = self.mended() {
            self.out.mended += 1;
            self.keep(line);
        } else if let Some(line) = self.plausible(self.seq + 1).filter(|_| !self.proven) {
            self.out.unproven += 1;
            self.keep(line);
        } else if self.goes_on() {
            self.lose();
        } else {
            self.end();
            return false;
        }
        true
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        self.before.iter().map(|sum| Place { seq: self.seq, offset: 0, sum: *sum })
    }

    fn of(&self, seq: u64) -> &[Candidate] {
        self.candidates.get(&seq).map_or(&[], Vec::as_slice)
    }

    /// The next line by its sum, wherever it lies.
    fn exact(&self) -> Option<Accepted> {
        self.of(self.seq + 1).iter().find_map(|candidate| {
            let line = Line::parse(&self.content[candidate.start..candidate.end])?;
            self.places().find_map(|place| line.follow(&place).ok())?;
            Some(self.accepted(&line, candidate.piece + 1))
        })
    }

    /// The next line after one bit of what stands there was turned.
    fn mended(&self) -> Option<Accepted> {
        let piece = self.pieces.get(self.next)?;
        let bytes = &self.content[piece.start..piece.end];
        for place in self.places() {
            if let Some(mended) = flip::mend_line(bytes, &place) {
                return Some(self.accepted(&Line::parse(&mended)?, self.next + 1));
            }
        }
        // A byte that became a line end: one line in two pieces.
        let second = self.pieces.get(self.next + 1)?;
        let second = &self.content[second.start..second.end];
        let joined = self.places().find_map(|place| flip::joined(bytes, second, &place))?;
        Some(self.accepted(&Line::parse(&joined)?, self.next + 2))
    }

    /// A line of this number that looks like one, for when the one before it is gone and its sum proves nothing.
    fn plausible(&self, seq: u64) -> Option<Accepted> {
        self.of(seq).iter().find_map(|candidate| {
            let line = Line::parse(&self.content[candidate.start..candidate.end])?;
            let event = event_of(&line.json()).ok()?;
            let ours = event.seq == seq && event.session_id == self.session;
            ours.then(|| self.accepted(&line, candidate.piece + 1))
        })
    }

    fn accepted(&self, line: &Line<'_>, next: usize) -> Accepted {
        Accepted { json: line.json(), more: line.more, sum: line.sum, next: self.next.max(next) }
    }

    fn keep(&mut self, line: Accepted) {
        self.seq += 1;
        (self.before, self.proven, self.next, self.left) = (vec![line.sum], true, line.next, line.more);
        self.out.slots.push(Slot::Kept { json: line.json, more: line.more });
    }

    /// Whether any later event is left.
    fn goes_on(&self) -> bool {
        let later = self.seq.saturating_add(2)..=self.seq.saturating_add(LOST_MAX);
        self.candidates.range(later).any(|(seq, _)| self.plausible(*seq).is_some())
    }

    fn lose(&mut self) {
        let wreck = self.pieces.get(self.next).map(|piece| &self.content[piece.start..piece.end]);
        let number = wreck.and_then(Line::parse).map(|line| line.seq);
        // What the sum may have been: that of the wreck, and of all that say they are this event.
        let candidates = self.of(self.seq + 1).iter().map(|candidate| &self.content[candidate.start..candidate.end]);
        let is_wreck = number.is_none_or(|number| number <= self.seq + 1);
        let said: Vec<Sum> = candidates.chain(wreck.filter(|_| is_wreck)).filter_map(sum_in).collect();
        // What two lines became may end with the sum of a later one, so those said before are kept.
        if std::mem::replace(&mut self.proven, false) {
            self.before.clear();
        }
        self.before.extend(said);
        self.before.truncate(SUMS_MAX);
        let why = match wreck {
            Some(_) if is_wreck => {
                self.next += 1;
                "its line is damaged"
            }
            _ => "its line is gone",
        };
        self.push_lost(why);
    }

    fn push_lost(&mut self, why: &'static str) {
        self.seq += 1;
        self.left = self.left.saturating_sub(1);
        self.out.lost += 1;
        self.out.slots.push(Slot::Lost { why, more: self.left });
    }

    /// Nothing valid comes any more. What a crash left is cut, as the daemon does; what rotted is lost.
    fn end(&mut self) {
        if let Some(piece) = self.pieces.get(self.next).copied()
            && self.is_rot(&piece)
        {
            for _ in 0..self.left.max(1) {
                self.push_lost("its line is damaged");
            }
            self.next += 1;
        }
        // Where nothing is left at all, no numbers of lost events make a session of it.
        let missing = self.expected_seq.saturating_sub(self.seq);
        if missing <= LOST_MAX && self.out.slots.iter().any(|slot| matches!(slot, Slot::Kept { .. })) {
            for _ in 0..missing {
                self.push_lost("the end of the log is lost");
            }
        }
        // A decision that is not whole never was one.
        while self.left > 0 && self.out.slots.pop().is_some() {
            self.left = match self.out.slots.last() {
                Some(Slot::Kept { more, .. } | Slot::Lost { more, .. }) => *more,
                None => 0,
            };
        }
        self.out.lost = self.out.slots.iter().filter(|slot| matches!(slot, Slot::Lost { .. })).count() as u64;
        let from = self.pieces.get(self.next).map_or(self.content.len(), |piece| piece.start);
        self.out.cut_bytes = (self.content.len() - from) as u64;
        normalize(&mut self.out.slots);
    }

    /// Whether a whole line stood here once, rather than a write that a crash cut.
    fn is_rot(&self, piece: &Piece) -> bool {
        let bytes = &self.content[piece.start..piece.end];
        let whole = Line::parse(bytes).is_some_and(|line| line.seq == self.seq + 1);
        piece.ended && (self.left > 0 || whole) && !has_hole(bytes, piece.start as u64, piece.start as u64)
    }
}

fn sum_in(bytes: &[u8]) -> Option<Sum> {
    suffix_sum(bytes.get(bytes.len().checked_sub(SUFFIX_BYTES)?..)?)
}

/// Makes the counts of lines to come fit: where they contradict each other, a decision ends.
fn normalize(slots: &mut [Slot]) {
    let mut from = 0;
    for at in 0..slots.len() {
        let more = more_of(&mut slots[at]);
        let (this, next) = (*more, slots.get_mut(at + 1).map(|slot| *more_of(slot)));
        let goes_on = this > 0 && next.is_some_and(|next| next + 1 == this);
        if !goes_on {
            for (count, slot) in slots[from..=at].iter_mut().rev().enumerate() {
                *more_of(slot) = count as u64;
            }
            from = at + 1;
        }
    }
}

fn more_of(slot: &mut Slot) -> &mut u64 {
    match slot {
        Slot::Kept { more, .. } | Slot::Lost { more, .. } => more,
    }
}

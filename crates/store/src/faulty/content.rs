//! The content of one file on the faulty disk: what the operating system shows, and what a power cut would leave.

use super::power::Chance;

/// What a disk writes as a whole or not at all; what lies in another sector may come earlier, later or never.
const SECTOR_BYTES: usize = 512;
/// What an operating system hands to the disk at once.
const PAGE_BYTES: usize = 4096;

/// A change that is not synced yet.
#[derive(Debug, Clone)]
pub(super) enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    SetLen(usize),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    /// What every reader sees.
    pub live: Vec<u8>,
    /// What the last sync made safe.
    pub durable: Vec<u8>,
    /// What happened since then, in order.
    pub unsynced: Vec<Change>,
    pub locked: bool,
}

impl Content {
    pub fn change(&mut self, change: Change) {
        apply(&mut self.live, &change);
        self.unsynced.push(change);
    }

    pub fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            apply(&mut self.durable, &change);
        }
    }

    /// A sync that failed before it wrote anything. As on Linux, the bytes it should have written are taken for written:
    /// the operating system goes on showing them, and no later sync tries again. Lengths are not bytes: they stay due.
    pub fn drop_unsynced(&mut self) {
        let lengths = self.lengths();
        self.unsynced = lengths[1..].iter().map(|len| Change::SetLen(*len)).collect();
    }

    /// A sync that failed on the way: every second sector was written, the others are taken for written.
    pub fn sync_half(&mut self) {
        let count = self.unsynced.len();
        let mut sector = 0;
        self.durable = self.pick(self.live.len(), SECTOR_BYTES, || {
            sector += 1;
            if sector % 2 == 0 { count } else { 0 }
        });
        self.unsynced.clear();
    }

    /// What is left when the power goes: the synced bytes, and of the rest what chance gives.
    pub fn after_power_cut(&self, chance: &mut Chance) -> Content {
        let left = if self.unsynced.is_empty() { self.durable.clone() } else { self.torn(chance) };
        Content { live: left.clone(), durable: left, ..Content::default() }
    }

    /// The ways in which real file systems lose what was not synced.
    fn torn(&self, chance: &mut Chance) -> Vec<u8> {
        let count = self.unsynced.len();
        match chance.below(5) {
            // All up to some instant, and a part of what came next.
            0 => {
                let whole = chance.below(count + 1);
                self.first(whole, chance)
            }
            // Each change for itself: a later one without an earlier one.
            1 => {
                let mut left = self.durable.clone();
                self.unsynced.iter().filter(|_| chance.below(2) == 0).for_each(|change| apply(&mut left, change));
                left
            }
            // Each sector or page as it was at an instant of its own; zeros where the length went ahead of the data.
            mode => {
                let unit = if mode == 2 { PAGE_BYTES } else { SECTOR_BYTES };
                let len = self.length_after(chance);
                // Often all or nothing of each, since a mix of two instants is rarer than a sector that is missing.
                let extremes = chance.below(2) == 0;
                self.pick(len, unit, || match extremes {
                    true => count * chance.below(2),
                    false => chance.below(count + 1),
                })
            }
        }
    }

    fn first(&self, whole: usize, chance: &mut Chance) -> Vec<u8> {
        let mut left = self.durable.clone();
        self.unsynced[..whole].iter().for_each(|change| apply(&mut left, change));
        if let Some(Change::Write { offset, bytes }) = self.unsynced.get(whole) {
            let mut end = offset + chance.below(bytes.len() + 1);
            if end < left.len() {
                // Over old bytes a sector is written as a whole; behind them it is the length that is torn.
                end = end / SECTOR_BYTES * SECTOR_BYTES;
            }
            let mut bytes = bytes[..end.saturating_sub(*offset)].to_vec();
            if *offset >= left.len() && chance.below(4) == 0 {
                // The length got through, the content did not.
                bytes.fill(0);
            }
            apply(&mut left, &Change::Write { offset: *offset, bytes });
        }
        left
    }

    /// The length at some instant; where a write made the file longer, also one inside that write.
    fn length_after(&self, chance: &mut Chance) -> usize {
        let lengths = self.lengths();
        let at = chance.below(lengths.len());
        match (lengths[at], lengths.get(at + 1)) {
            (len, Some(next)) if *next > len && chance.below(3) == 0 => len + chance.below(next - len + 1),
            (len, _) => len,
        }
    }

    /// The synced length, and that after each unsynced change.
    fn lengths(&self) -> Vec<usize> {
        let mut lengths = vec![self.durable.len()];
        for change in &self.unsynced {
            let before = lengths[lengths.len() - 1];
            lengths.push(match change {
                Change::SetLen(len) => *len,
                Change::Write { bytes, .. } if bytes.is_empty() => before,
                Change::Write { offset, bytes } => before.max(offset + bytes.len()),
            });
        }
        lengths
    }

    /// A file of `len` bytes, each piece of it as it was after as many of the unsynced changes as `instant` says.
    fn pick(&self, len: usize, unit: usize, mut instant: impl FnMut() -> usize) -> Vec<u8> {
        let instants: Vec<usize> = (0..len.div_ceil(unit)).map(|_| instant()).collect();
        let mut left = vec![0; len];
        let mut then = self.durable.clone();
        for at in 0..=self.unsynced.len() {
            for (piece, _) in instants.iter().enumerate().filter(|(_, chosen)| **chosen == at) {
                let from = (piece * unit).min(then.len());
                let to = (from + unit).min(then.len()).min(len);
                if from < to {
                    left[from..to].copy_from_slice(&then[from..to]);
                }
            }
            if let Some(change) = self.unsynced.get(at) {
                apply(&mut then, change);
            }
        }
        left
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(len) => content.resize(*len, 0),
        Change::Write { bytes, .. } if bytes.is_empty() => {}
        Change::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*offset..end].copy_from_slice(bytes);
        }
    }
}

//! The content of one file on the faulty disk: what the operating system shows, and what a power cut would leave.

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

    /// A sync that failed. As on Linux, what it should have written is taken for written, and is not tried again.
    pub fn fail_sync(&mut self) {
        self.unsynced.clear();
    }

    /// What is left when the power goes: a part of the unsynced changes, the last of them perhaps torn.
    pub fn after_power_cut(&self, chance: &mut impl FnMut(usize) -> usize) -> Content {
        let mut left = self.durable.clone();
        let whole = chance(self.unsynced.len() + 1);
        for change in &self.unsynced[..whole] {
            apply(&mut left, change);
        }
        if let Some(Change::Write { offset, bytes }) = self.unsynced.get(whole) {
            let mut bytes = bytes[..chance(bytes.len() + 1)].to_vec();
            if chance(4) == 0 {
                // The length got through, the content did not.
                bytes.fill(0);
            }
            apply(&mut left, &Change::Write { offset: *offset, bytes });
        }
        Content { live: left.clone(), durable: left, ..Content::default() }
    }
}

fn apply(content: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(len) => content.resize(*len, 0),
        Change::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[*offset..end].copy_from_slice(bytes);
        }
    }
}

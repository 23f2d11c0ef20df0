//! What a finished spool is told by from one that has changed: its length and a short sum, for the record of its turn.
//! Pure.

use serde::{Deserialize, Serialize};

/// So many digits of the hash, as in the sums of other small files.
const DIGITS: usize = 16;

/// A finished spool in a few bytes; in JSON `[bytes, "sum"]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, String)", into = "(u64, String)")]
pub struct SpoolSum {
    bytes: u64,
    sum: String,
}

impl SpoolSum {
    pub(crate) fn new(bytes: u64, hash: &blake3::Hash) -> Self {
        Self { bytes, sum: hash.to_hex()[..DIGITS].to_owned() }
    }

    /// Of the whole content.
    pub(crate) fn of(content: &[u8]) -> Self {
        Self::new(content.len() as u64, &blake3::hash(content))
    }

    /// The length that the spool had.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it is of bytes with this hash, given that they are as many.
    pub(crate) fn fits(&self, hash: &blake3::Hash) -> bool {
        self.sum.len() == DIGITS && hash.to_hex().starts_with(&self.sum)
    }
}

impl From<(u64, String)> for SpoolSum {
    fn from((bytes, sum): (u64, String)) -> Self {
        Self { bytes, sum }
    }
}

impl From<SpoolSum> for (u64, String) {
    fn from(SpoolSum { bytes, sum }: SpoolSum) -> Self {
        (bytes, sum)
    }
}

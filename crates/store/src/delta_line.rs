//! A delta as a line of its turn's spool: lean, and with a short sum. Pure.

use tenure_core::{delta::Delta, ids::TurnId};

use crate::{
    Error, Result,
    seal::{Seal, Sealed},
};

/// The line, with its end.
pub(crate) fn encode(delta: &Delta, turn: TurnId) -> Result<Vec<u8>> {
    let mut line = delta.to_line(turn).map_err(|error| Error::Other(format!("a delta: {error}")))?;
    Seal::LEAN.put(&mut line, 0);
    line.push(b'\n');
    Ok(line)
}

/// What `encode` made for the same turn, given without its end; `None` if it is damaged.
pub(crate) fn decode(line: &[u8], turn: TurnId) -> Option<Delta> {
    match Seal::LEAN.check(line) {
        Sealed::Bad => None,
        Sealed::Good(_) | Sealed::Unsealed => Delta::from_line(line, turn).ok(),
    }
}

//! A delta as a line of its turn's spool: as lean as can be. It has no sum: there are many of them, and they are written
//! while somebody waits. The finished spool has one, in the record of its turn. Pure.

use tenure_core::{delta::Delta, ids::TurnId};

use crate::{Error, Result};

/// The line, with its end.
pub(crate) fn encode(delta: &Delta, turn: TurnId) -> Result<Vec<u8>> {
    let mut line = delta.to_line(turn).map_err(|error| Error::Other(format!("a delta: {error}")))?;
    line.push(b'\n');
    Ok(line)
}

/// What `encode` made for the same turn, given without its end; `None` if it is no delta.
pub(crate) fn decode(line: &[u8], turn: TurnId) -> Option<Delta> {
    Delta::from_line(line, turn).ok()
}

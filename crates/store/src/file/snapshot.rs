//! `session.json`: the snapshot with what is needed to trust it. Damage makes it as good as missing, never an error.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tenure_core::ids::SessionId;

use super::folder::{Folder, Keep};
use crate::{
    Error, Result, Snapshot,
    line::{Place, from_hex, hex_of},
};

const VERSION: u32 = 1;
/// A larger snapshot is taken for damaged.
const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;
/// Between the header and the state, so that the whole file is one JSON object that people can read.
const STATE_FOLLOWS: &[u8] = b",\n\"state\":";
const CLOSES: &[u8] = b"}\n";
const SUM_FOLLOWS: &[u8] = b",\"sum\":\"";

/// The first line of the file, without `sum`.
#[derive(Serialize, Deserialize)]
struct Header {
    v: u32,
    seq: u64,
    /// Where the log stood at an event's end, so that opening it need not start from the beginning.
    log_seq: u64,
    log_bytes: u64,
    log_sum: String,
}

/// A snapshot that was read and found whole.
pub(crate) struct Found {
    pub seq: u64,
    pub state: Bytes,
    pub place: Place,
}

/// Puts the snapshot in place; unsynced, since the log holds the truth.
pub(crate) fn write(folder: &Folder, session: SessionId, snapshot: &Snapshot, place: &Place) -> Result<()> {
    let failed = |error| Error::disk(format_args!("the snapshot of {session}"), &error);
    let header = Header {
        v: VERSION,
        seq: snapshot.seq,
        log_seq: place.seq,
        log_bytes: place.offset,
        log_sum: hex_of(&place.sum),
    };
    let mut head = serde_json::to_vec(&header).map_err(|error| failed(error.into()))?;
    // The closing brace comes at the end of the file.
    head.pop();
    let sum = sum_of(&head, &snapshot.state);
    head.extend_from_slice(SUM_FOLLOWS);
    head.extend_from_slice(sum.as_bytes());
    head.push(b'"');
    head.extend_from_slice(STATE_FOLLOWS);
    let path = folder.layout.snapshot(session);
    folder.replace(&path, &[&head, &snapshot.state, CLOSES], Keep::Unsynced).map_err(failed)
}

/// The snapshot, if it is there and whole.
pub(crate) fn read(folder: &Folder, session: SessionId) -> Option<Found> {
    // What cannot be read is not there: the log tells all of it again.
    let content = Bytes::from(folder.read_if_there(&folder.layout.snapshot(session), SNAPSHOT_BYTES_MAX).ok()??);
    let line = super::lines::position_of_line_end(&content)?;
    let split = line.checked_sub(1)?;
    let (head, rest) = content.split_at(split);
    let state = rest.strip_prefix(STATE_FOLLOWS)?.strip_suffix(CLOSES)?;
    let sum_at = head.len().checked_sub(SUM_FOLLOWS.len() + 33)?;
    let (covered, sum) = head.split_at(sum_at);
    let sum = sum.strip_prefix(SUM_FOLLOWS)?.strip_suffix(b"\"")?;
    if sum != sum_of(covered, state).as_bytes() {
        return None;
    }
    let header: Header = serde_json::from_slice(&[covered, b"}"].concat()).ok()?;
    if header.v != VERSION {
        return None;
    }
    let place = Place { seq: header.log_seq, offset: header.log_bytes, sum: from_hex(header.log_sum.as_bytes())? };
    Some(Found { seq: header.seq, state: content.slice_ref(state), place })
}

fn sum_of(head: &[u8], state: &[u8]) -> String {
    blake3::Hasher::new().update(head).update(state).finalize().to_hex()[..32].to_owned()
}

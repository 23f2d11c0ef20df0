//! Spools against what the records of their turns say of them. A spool that is gone is none: they are swept.

use std::{io, path::Path, time::Duration};

use tenure_core::ids::TurnId;

use super::{flip, line_files};
use crate::{SpoolSum, disk::Open, file::folder::Folder};

/// How a spool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Good,
    /// It is not what its turn's record speaks of.
    Changed(String),
    /// No record speaks of it, and what stands from here on is no delta.
    BadFrom(u64),
}

/// What such damage costs.
const COSTS: &str = "only live deltas are lost, the log has the whole text";

pub(super) fn look(folder: &Folder, path: &Path, turn: TurnId, sum: Option<&SpoolSum>) -> io::Result<State> {
    match sum {
        Some(sum) => held_against(folder, path, sum),
        None => lines(folder, path, turn),
    }
}

fn held_against(folder: &Folder, path: &Path, sum: &SpoolSum) -> io::Result<State> {
    let Some(file) = folder.open_if_there(path, Open::Read)? else { return Ok(State::Good) };
    let (bytes, hash) = file.hash_whole()?;
    let written = sum.bytes();
    if bytes < written {
        // A power cut may do this: spools are not synced.
        return Ok(State::Changed(format!("its end is lost: it has {bytes} of {written} bytes; {COSTS}")));
    }
    if bytes > written || !sum.fits(&hash) {
        return Ok(State::Changed(format!("its bytes are not those that were written; {COSTS}")));
    }
    Ok(State::Good)
}

/// A torn last record is cut by whoever writes next: nobody was promised that it survives.
fn lines(folder: &Folder, path: &Path, turn: TurnId) -> io::Result<State> {
    let lines = line_files::look(folder, path, &|line| line_files::is_delta(line, turn), Duration::ZERO)?;
    Ok(lines.and_then(|lines| lines.bad).map_or(State::Good, |(offset, _)| State::BadFrom(offset)))
}

/// The bytes as they were, if one bit of them changed.
pub(super) fn mended(folder: &Folder, path: &Path, sum: &SpoolSum) -> io::Result<Option<Vec<u8>>> {
    let Some(file) = folder.open_if_there(path, Open::Read)? else { return Ok(None) };
    if file.len()? != sum.bytes() || sum.bytes() > flip::FLIP_BYTES_MAX as u64 {
        return Ok(None);
    }
    Ok(flip::find(&file.read_whole(sum.bytes())?, 0, &|hash| sum.fits(hash)))
}

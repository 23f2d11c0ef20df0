//! Attachments and artifacts against what events say of them.

use std::{io, path::Path};

use super::{flip, logs::Expected};
use crate::{disk::Open, file::folder::Folder};

/// How a blob is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    Good,
    Missing,
    Damaged(String),
}

pub(super) fn look(folder: &Folder, path: &Path, expected: &Expected) -> io::Result<State> {
    let Some(file) = folder.open_if_there(path, Open::Read)? else { return Ok(State::Missing) };
    let bytes = file.len()?;
    if let Some(told) = expected.bytes.filter(|told| *told != bytes) {
        return Ok(State::Damaged(format!("it has {bytes} bytes, and {told} were kept")));
    }
    match &expected.digest {
        Some(digest) if file.hash_whole()?.1.to_hex().as_str() != digest => {
            Ok(State::Damaged("its bytes are not those that were kept".into()))
        }
        _ => Ok(State::Good),
    }
}

/// The bytes as they were, if one bit of them changed.
pub(super) fn mended(folder: &Folder, path: &Path, expected: &Expected) -> io::Result<Option<Vec<u8>>> {
    let Some(digest) = expected.digest.as_deref().and_then(|digest| blake3::Hash::from_hex(digest).ok()) else {
        return Ok(None);
    };
    match folder.read_if_there(path, flip::FLIP_BYTES_MAX as u64) {
        Ok(Some(content)) => Ok(flip::find(&content, 0, &|hash| *hash == digest)),
        // Too large to look for a bit.
        Ok(None) | Err(_) => Ok(None),
    }
}

//! Finds the one bit that changed in some bytes whose hash is known. BLAKE3 hashes pieces of 1 KiB into a tree, so that for
//! each bit only its piece and the way to the root are hashed again.

use blake3::{
    Hash, Hasher,
    hazmat::{ChainingValue, HasherExt, Mode, left_subtree_len, merge_subtrees_non_root, merge_subtrees_root},
};

use crate::line::{Line, Place, SUFFIX_BYTES, seal_suffix, sum_with};

/// Of more bytes than this no bit is looked for: it would take minutes.
pub(super) const FLIP_BYTES_MAX: usize = 8 << 20;

const CHUNK_BYTES: usize = blake3::CHUNK_LEN;

/// What is beside a piece on its way to the root.
#[derive(Clone, Copy)]
enum Beside {
    Left(ChainingValue),
    Right(ChainingValue),
}

/// The bytes with one bit at or behind `from` turned, such that their hash is accepted.
pub(super) fn find(bytes: &[u8], from: usize, accept: &dyn Fn(&Hash) -> bool) -> Option<Vec<u8>> {
    if bytes.len().saturating_sub(from) > FLIP_BYTES_MAX {
        return None;
    }
    let mut bytes = bytes.to_vec();
    let end = bytes.len();
    search(&mut bytes, (0, end), from, &mut Vec::new(), accept).then_some(bytes)
}

/// Looks in the part `(start, end)` of the bytes; leaves the right bit turned. `above` leads to the root, last part first.
fn search(
    bytes: &mut [u8],
    (start, end): (usize, usize),
    from: usize,
    above: &mut Vec<Beside>,
    accept: &dyn Fn(&Hash) -> bool,
) -> bool {
    if end <= from {
        return false;
    }
    if end - start <= CHUNK_BYTES {
        return search_chunk(bytes, (start, end), from, above, accept);
    }
    // Fits: it is a part of the length.
    let middle = start + left_subtree_len((end - start) as u64) as usize;
    above.push(Beside::Right(value_of(bytes, middle, end)));
    let found = search(bytes, (start, middle), from, above, accept);
    above.pop();
    if found {
        return true;
    }
    above.push(Beside::Left(value_of(bytes, start, middle)));
    let found = search(bytes, (middle, end), from, above, accept);
    above.pop();
    found
}

fn search_chunk(
    bytes: &mut [u8],
    (start, end): (usize, usize),
    from: usize,
    above: &[Beside],
    accept: &dyn Fn(&Hash) -> bool,
) -> bool {
    for at in from.max(start)..end {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            let hash = match above {
                [] => blake3::hash(&bytes[start..end]),
                _ => root_of(value_of(bytes, start, end), above),
            };
            if accept(&hash) {
                return true;
            }
            bytes[at] ^= 1 << bit;
        }
    }
    false
}

fn value_of(bytes: &[u8], start: usize, end: usize) -> ChainingValue {
    Hasher::new().set_input_offset(start as u64).update(&bytes[start..end]).finalize_non_root()
}

fn root_of(mut value: ChainingValue, above: &[Beside]) -> Hash {
    for (height, beside) in above.iter().enumerate().rev() {
        let (left, right) = match beside {
            Beside::Left(left) => (left, &value),
            Beside::Right(right) => (&value, right),
        };
        if height == 0 {
            return merge_subtrees_root(left, right, Mode::Hash);
        }
        value = merge_subtrees_non_root(left, right, Mode::Hash);
    }
    // Only reached without anything above, and then the caller hashes as a root.
    Hash::from_bytes(value)
}

/// A line of a log (without its end) with one bit turned, such that it follows `place`.
pub(crate) fn mend_line(bytes: &[u8], place: &Place) -> Option<Vec<u8>> {
    mend_line_from(bytes, 0, place)
}

/// The same where only bits at or behind `from` are tried, which is fast if those are few.
pub(crate) fn mend_line_from(bytes: &[u8], from: usize, place: &Place) -> Option<Vec<u8>> {
    let cut = bytes.len().checked_sub(SUFFIX_BYTES)?;
    let (covered, suffix) = bytes.split_at(cut);
    let right = seal_suffix(&sum_with(&place.sum, covered));
    let mended = match differing_bits(suffix, &right) {
        1 => [covered, &right].concat(),
        _ => mend_covered(covered, suffix, from, place)?,
    };
    Line::parse(&mended)?.follow(place).ok()?;
    Some(mended)
}

fn mend_covered(covered: &[u8], suffix: &[u8], from: usize, place: &Place) -> Option<Vec<u8>> {
    let sum = crate::line::suffix_sum(suffix)?;
    let hashed = [&place.sum[..], covered].concat();
    let mended = find(&hashed, place.sum.len() + from, &|hash| hash.as_bytes().starts_with(&sum))?;
    Some([&mended[place.sum.len()..], suffix].concat())
}

/// The line that was cut in two when one of its bytes became a line end.
pub(crate) fn joined(first: &[u8], second: &[u8], place: &Place) -> Option<Vec<u8>> {
    (0..8).find_map(|bit| {
        let joined = [first, &[b'\n' ^ (1 << bit)], second].concat();
        Line::parse(&joined)?.follow(place).ok()?;
        Some(joined)
    })
}

pub(crate) fn differing_bits(a: &[u8], b: &[u8]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

/// Whether one bit makes this byte a line end.
pub(crate) fn is_near_line_end(byte: u8) -> bool {
    (byte ^ b'\n').count_ones() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turned_bit_is_found_in_bytes_of_any_length() {
        for length in [1, 2, 63, 1024, 1025, 2048, 3000, 5 * 1024 + 7] {
            let good: Vec<u8> = (0..length).map(|at: usize| (at * 31 % 251) as u8).collect();
            let hash = blake3::hash(&good);
            for at in [0, length / 2, length - 1] {
                let mut bad = good.clone();
                bad[at] ^= 1 << (at % 8);
                assert_eq!(find(&bad, 0, &|found| *found == hash), Some(good.clone()), "{length} {at}");
            }
            let mut bad = good.clone();
            bad[0] ^= 3;
            assert_eq!(find(&bad, 0, &|found| *found == hash), None, "two bits are not one");
        }
    }
}

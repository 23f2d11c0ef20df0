//! A sum as the last field of a JSON object that stands alone: lines of the small files, records of turns.
//! An object without one was written before there were sums, and is taken as it is.

/// How a sum stands at the end of an object: so many digits between these.
const DIGITS: usize = 16;
const OPENS: &[u8] = b",\"sum\":\"";
const CLOSES: &[u8] = b"\"}";

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sealed<'a> {
    /// Its sum fits. Holds the object without the sum and without its closing brace.
    Good(&'a [u8]),
    /// It never had one.
    Unsealed,
    Bad,
}

/// Puts the sum at the end of an object. What is no object is left as it is.
pub(crate) fn put(bytes: &mut Vec<u8>) {
    // An empty object has nothing to sum, and no place for a comma.
    if bytes.len() < 3 || bytes.pop_if(|last| *last == b'}').is_none() {
        return;
    }
    let suffix = suffix_of(bytes);
    bytes.extend_from_slice(suffix.as_bytes());
}

/// Looks at an object as it was read.
pub(crate) fn check(object: &[u8]) -> Sealed<'_> {
    let Some((body, suffix)) = parts(object) else { return Sealed::Unsealed };
    let (opens, rest) = suffix.split_at(OPENS.len());
    let (sum, closes) = rest.split_at(DIGITS);
    let frame = differing_bits(opens, OPENS) + differing_bits(closes, CLOSES);
    let digits = sum.iter().all(u8::is_ascii_hexdigit);
    match frame {
        0 if sum == sum_of(body).as_bytes() => Sealed::Good(body),
        0 => Sealed::Bad,
        // One bit away from having a sum: it had one.
        1 if digits => Sealed::Bad,
        _ => Sealed::Unsealed,
    }
}

/// The object without its last part, and that part, where a sum would stand.
pub(crate) fn parts(object: &[u8]) -> Option<(&[u8], &[u8])> {
    let cut = object.len().checked_sub(OPENS.len() + DIGITS + CLOSES.len())?;
    Some(object.split_at(cut))
}

/// How an object with this body ends.
pub(crate) fn suffix_of(body: &[u8]) -> String {
    suffix_with(&blake3::hash(body))
}

/// How an object whose body has this hash ends.
pub(crate) fn suffix_with(hash: &blake3::Hash) -> String {
    let opens = String::from_utf8_lossy(OPENS);
    format!("{opens}{}\"}}", &hash.to_hex()[..DIGITS])
}

fn sum_of(body: &[u8]) -> String {
    blake3::hash(body).to_hex()[..DIGITS].to_owned()
}

impl Sealed<'_> {
    pub fn is_bad(self) -> bool {
        self == Sealed::Bad
    }
}

fn differing_bits(a: &[u8], b: &[u8]) -> u32 {
    a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_that_changed_is_noticed() {
        let mut object = b"{\"a\":\"b\",\"d\":\"12345678\"}".to_vec();
        assert_eq!(check(&object), Sealed::Unsealed);
        put(&mut object);
        assert_eq!(check(&object), Sealed::Good(b"{\"a\":\"b\",\"d\":\"12345678\""));
        for bit in 0..object.len() * 8 {
            let mut bad = object.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&bad).is_bad(), "bit {bit}");
        }
    }

    #[test]
    fn what_is_no_object_is_left_alone() {
        for text in ["", "{}", "[1,2]", "record"] {
            let mut bytes = text.as_bytes().to_vec();
            put(&mut bytes);
            assert_eq!(bytes, text.as_bytes());
            assert_eq!(check(&bytes), Sealed::Unsealed);
        }
    }
}

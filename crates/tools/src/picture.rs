//! Which pictures a model can be shown: told by their bytes, never by their name, and looked through from end to end. A
//! vendor refuses a request with a broken picture, and since the picture stays in the conversation it would refuse every
//! later one too. Nothing is decoded here.

/// Larger ones are refused by vendors, whose limit is 5 MiB as base64.
pub(crate) const PICTURE_BYTES_MAX: usize = 3_900_000;
/// Wider or higher ones are refused by vendors.
const SIDE_MAX: u32 = 8_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Png,
    Jpeg,
    Gif,
    Webp,
}

impl Format {
    /// By the first bytes of a file.
    pub(crate) fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }

    pub(crate) fn mime_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    pub(crate) fn ending(self) -> &'static str {
        match self {
            Self::Png => ".png",
            Self::Jpeg => ".jpg",
            Self::Gif => ".gif",
            Self::Webp => ".webp",
        }
    }

    /// Width and height of a picture that is whole; else what is wrong with it.
    pub(crate) fn measure(self, bytes: &[u8]) -> Result<(u32, u32), String> {
        let sides = match self {
            Self::Png => png(bytes),
            Self::Jpeg => jpeg(bytes),
            Self::Gif => gif(bytes),
            Self::Webp => webp(bytes),
        };
        match sides {
            None => Err("it is damaged or cut off".into()),
            Some((0, _) | (_, 0)) => Err("it has no width or no height".into()),
            Some((width, height)) if width.max(height) > SIDE_MAX => {
                Err(format!("it is {width} × {height} pixels, and models take no side above {SIDE_MAX}"))
            }
            Some(sides) => Ok(sides),
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u32::from(bytes[0]) << 8 | u32::from(bytes[1]))
}

fn le16(bytes: &[u8], at: usize) -> Option<u32> {
    be16(bytes, at).map(|number| number >> 8 | (number & 0xff) << 8)
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(be16(bytes, at)? << 16 | be16(bytes, at + 2)?)
}

fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(le16(bytes, at + 2)? << 16 | le16(bytes, at)?)
}

/// Chunk by chunk to the last one, with their sums.
fn png(bytes: &[u8]) -> Option<(u32, u32)> {
    let (mut at, mut sides, mut has_data) = (8, None, false);
    loop {
        let length = be32(bytes, at)? as usize;
        let body = bytes.get(at + 4..at.checked_add(8)?.checked_add(length)?)?;
        if crc32(body) != be32(bytes, at + 8 + length)? {
            return None;
        }
        match &body[..4] {
            b"IHDR" => sides = Some((be32(body, 4)?, be32(body, 8)?)),
            b"IDAT" => has_data = true,
            b"IEND" => return sides.filter(|_| has_data),
            _ => {}
        }
        at += 12 + length;
    }
}

/// The sum that PNG uses; without a table, since only few pictures come by.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ (0xedb8_8320 & 0u32.wrapping_sub(sum & 1)))
    };
    !bytes.iter().fold(!0, step)
}

/// Segment by segment to the picture's data, which must end with its mark.
fn jpeg(bytes: &[u8]) -> Option<(u32, u32)> {
    let (mut at, mut sides) = (2, None);
    loop {
        let marker = match bytes.get(at..at + 2)? {
            // Any number of these may stand before a marker.
            [0xff, 0xff] => {
                at += 1;
                continue;
            }
            [0xff, marker] => *marker,
            _ => return None,
        };
        match marker {
            // Frames of all kinds, but not the tables that share their range.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                sides = Some((be16(bytes, at + 7)?, be16(bytes, at + 5)?))
            }
            // The data begins. Some cameras pad the end.
            0xda => {
                let end = bytes.iter().rposition(|byte| *byte != 0)?;
                return sides.filter(|_| bytes[at..=end].ends_with(&[0xff, 0xd9]));
            }
            0xd9 => return None,
            _ => {}
        }
        at += 2 + be16(bytes, at + 2)?.max(2) as usize;
    }
}

/// Block by block to the mark at the end.
fn gif(bytes: &[u8]) -> Option<(u32, u32)> {
    let table = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let sides = (le16(bytes, 6)?, le16(bytes, 8)?);
    let (mut at, mut has_picture) = (13 + table(*bytes.get(10)?), false);
    loop {
        match bytes.get(at)? {
            0x3b => return has_picture.then_some(sides),
            0x21 => at = after_blocks(bytes, at + 2)?,
            0x2c => {
                has_picture = true;
                at = after_blocks(bytes, at + 11 + table(*bytes.get(at + 9)?))?;
            }
            _ => return None,
        }
    }
}

fn after_blocks(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            length => at += 1 + usize::from(length),
        }
    }
}

/// The box must be as long as it says; the first chunk tells the sides.
fn webp(bytes: &[u8]) -> Option<(u32, u32)> {
    let length = le32(bytes, 4)? as usize;
    if bytes.len() < length.checked_add(8)? || length < 22 {
        return None;
    }
    let body = bytes.get(20..)?;
    match bytes.get(12..16)? {
        b"VP8 " if body.get(3..6)? == [0x9d, 0x01, 0x2a] => Some((le16(body, 6)? & 0x3fff, le16(body, 8)? & 0x3fff)),
        b"VP8L" if body.first() == Some(&0x2f) => {
            let bits = le32(body, 1)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        b"VP8X" => {
            let side = |at: usize| Some((le16(body, at)? | u32::from(*body.get(at + 2)?) << 16) + 1);
            Some((side(4)?, side(7)?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bytes_that_are_no_picture_are_none() {
        for head in [&b""[..], b"\x89PN", b"GIF88a", b"RIFF1234WAVE", b"\xff\xd8", b"BM"] {
            assert_eq!(Format::of(head), None, "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_looked_through_without_a_panic(bytes: Vec<u8>) {
            for format in [Format::Png, Format::Jpeg, Format::Gif, Format::Webp] {
                let _ = format.measure(&bytes);
            }
        }
    }
}

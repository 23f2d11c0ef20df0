//! How a file's bytes stand for text, as far as that can be told without guessing. Nothing is converted from one to another.

/// What an edit has to respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// With a mark at its beginning or without.
    Utf8,
    Utf16(ByteOrder),
    /// Not UTF-8: an older encoding in which ASCII is ASCII, or no text at all.
    OtherBytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

impl Encoding {
    pub(crate) fn of(bytes: &[u8]) -> Result<Self, String> {
        let order = match bytes {
            [0xff, 0xfe, 0, 0, ..] | [0, 0, 0xfe, 0xff, ..] => {
                return Err("it is UTF-32, which cannot be edited; write it whole, or convert it first".into());
            }
            [0xff, 0xfe, ..] => ByteOrder::Little,
            [0xfe, 0xff, ..] => ByteOrder::Big,
            _ => return Ok(if std::str::from_utf8(bytes).is_ok() { Self::Utf8 } else { Self::OtherBytes }),
        };
        let sound = bytes.len().is_multiple_of(2) && char::decode_utf16(order.read(bytes)).all(|unit| unit.is_ok());
        match sound {
            true => Ok(Self::Utf16(order)),
            false => Err("it begins like UTF-16 and is none; it is not edited".into()),
        }
    }
}

impl ByteOrder {
    /// All units, the mark included.
    pub(crate) fn read(self, bytes: &[u8]) -> Vec<u16> {
        let unit = |pair: &[u8]| match self {
            Self::Little => u16::from_le_bytes([pair[0], pair[1]]),
            Self::Big => u16::from_be_bytes([pair[0], pair[1]]),
        };
        bytes.chunks_exact(2).map(unit).collect()
    }

    pub(crate) fn write(self, units: &[u16]) -> Vec<u8> {
        let bytes = |unit: &u16| match self {
            Self::Little => unit.to_le_bytes(),
            Self::Big => unit.to_be_bytes(),
        };
        units.iter().flat_map(bytes).collect()
    }
}

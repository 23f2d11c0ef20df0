//! Numbers and texts as bytes, and back. Reading never trusts a length.

pub(super) fn put_number(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push((number as u8) | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

pub(super) fn put_text(to: &mut Vec<u8>, text: &str) {
    put_number(to, text.len() as u64);
    to.extend_from_slice(text.as_bytes());
}

/// What is still to be read.
pub(super) struct Taker<'b> {
    rest: &'b [u8],
}

impl<'b> Taker<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    pub(super) fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn text(&mut self) -> Option<&'b str> {
        let count = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.bytes(count)?).ok()
    }
}

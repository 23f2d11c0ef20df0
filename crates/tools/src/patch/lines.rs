//! A file as lines with their ends, so that each can be kept as it is. Bytes that are no UTF-8 stay as they are.

/// Lines of a file.
#[derive(Debug, Default)]
pub(super) struct Lines<'b> {
    all: Vec<(&'b [u8], &'static [u8])>,
}

const LF: &[u8] = b"\n";
const CRLF: &[u8] = b"\r\n";

impl<'b> Lines<'b> {
    pub(super) fn of(bytes: &'b [u8]) -> Self {
        let split = |line: &'b [u8]| match (line.strip_suffix(CRLF), line.strip_suffix(LF)) {
            (Some(body), _) => (body, CRLF),
            (None, Some(body)) => (body, LF),
            (None, None) => (line, &b""[..]),
        };
        Self { all: bytes.split_inclusive(|byte| *byte == b'\n').map(split).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn body(&self, at: usize) -> &'b [u8] {
        self.all[at].0
    }

    pub(super) fn ending(&self, at: usize) -> &'static [u8] {
        self.all[at].1
    }

    pub(super) fn write(&self, at: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.body(at));
        out.extend_from_slice(self.ending(at));
    }

    /// How a new line beside this one ends: as its neighbours do.
    pub(super) fn ending_near(&self, at: usize) -> &'static [u8] {
        let before = self.all[..at.min(self.len())].iter().rev();
        let after = self.all[at.min(self.len())..].iter();
        before.chain(after).map(|(_, ending)| *ending).find(|ending| !ending.is_empty()).unwrap_or(LF)
    }

    /// Whether the file is there and its last line has no end.
    pub(super) fn is_open(&self) -> bool {
        self.all.last().is_some_and(|(_, ending)| ending.is_empty())
    }
}

/// Without spaces, tabs and stray carriage returns at its end.
pub(super) fn trimmed(body: &[u8]) -> &[u8] {
    body.trim_ascii_end()
}

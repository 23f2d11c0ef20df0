//! Reads a file line by line in bounded memory. It never judges what a line says.

use std::io::{self, BufRead};

use crate::disk::DiskFile;

/// How much is read at a time; the memory of a reader unless a single line is longer.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;

/// What stands next in the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<'b> {
    /// A whole line without its line end, and where it starts.
    Line {
        offset: u64,
        bytes: &'b [u8],
    },
    /// A line that is longer than allowed; passed over.
    TooLong {
        offset: u64,
    },
    /// Bytes up to the end without a line end.
    Torn {
        offset: u64,
    },
    End,
}

pub(crate) struct Lines<'a> {
    file: &'a dyn DiskFile,
    /// Reading goes up to here, whatever stands behind it.
    end: u64,
    line_bytes_max: usize,
    buffer: Vec<u8>,
    /// The part of the buffer that is read and not yet handed out.
    from: usize,
    to: usize,
    /// Where `from` is in the file.
    offset: u64,
}

impl<'a> Lines<'a> {
    pub fn new(file: &'a dyn DiskFile, offset: u64, end: u64, line_bytes_max: usize) -> Self {
        let chunk = CHUNK_BYTES.min(usize::try_from(end.saturating_sub(offset)).unwrap_or(CHUNK_BYTES));
        Self { file, end, line_bytes_max, buffer: vec![0; chunk], from: 0, to: 0, offset }
    }

    /// Where the next line starts.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    pub fn next(&mut self) -> io::Result<Next<'_>> {
        let offset = self.offset;
        let mut searched = 0;
        loop {
            if let Some(found) = position_of_line_end(&self.buffer[self.from + searched..self.to]) {
                let length = searched + found;
                let start = self.from;
                self.from += length + 1;
                self.offset += length as u64 + 1;
                // The limit is the same wherever the line lies in what was read at once.
                if length > self.line_bytes_max {
                    return Ok(Next::TooLong { offset });
                }
                return Ok(Next::Line { offset, bytes: &self.buffer[start..start + length] });
            }
            searched = self.to - self.from;
            if searched > self.line_bytes_max {
                return self.pass_over(offset);
            }
            if self.fill()? == 0 {
                return Ok(if searched == 0 { Next::End } else { Next::Torn { offset } });
            }
        }
    }

    /// Reads on to the next line end without keeping what comes before it.
    fn pass_over(&mut self, offset: u64) -> io::Result<Next<'_>> {
        loop {
            self.offset += (self.to - self.from) as u64;
            self.from = self.to;
            if self.fill()? == 0 {
                return Ok(Next::Torn { offset });
            }
            if let Some(found) = position_of_line_end(&self.buffer[self.from..self.to]) {
                self.from += found + 1;
                self.offset += found as u64 + 1;
                return Ok(Next::TooLong { offset });
            }
        }
    }

    /// Reads more behind what is there; the buffer grows only as far as one line needs.
    fn fill(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.from..self.to, 0);
        self.to -= self.from;
        self.from = 0;
        if self.to == self.buffer.len() && !self.buffer.is_empty() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let at = self.offset + self.to as u64;
        let left = usize::try_from(self.end.saturating_sub(at)).unwrap_or(usize::MAX);
        let room = left.min(self.buffer.len() - self.to);
        let read = self.file.read_full_at(&mut self.buffer[self.to..self.to + room], at)?;
        self.to += read;
        Ok(read)
    }
}

/// Where the first line end stands. Goes through `BufRead` because that searches many bytes at a time.
pub(crate) fn position_of_line_end(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes;
    let passed = rest.skip_until(b'\n').ok()?;
    let last = passed.checked_sub(1)?;
    (bytes[last] == b'\n').then_some(last)
}

/// Where the last whole line ends, found from the back.
pub(crate) fn whole_len(file: &dyn DiskFile) -> io::Result<u64> {
    let mut end = file.len()?;
    let mut chunk = vec![0; CHUNK_BYTES.min(usize::try_from(end).unwrap_or(CHUNK_BYTES))];
    while end > 0 {
        let start = end.saturating_sub(chunk.len() as u64);
        // The difference is at most a chunk.
        let wanted = (end - start) as usize;
        let read = file.read_full_at(&mut chunk[..wanted], start)?;
        if let Some(last) = chunk[..read].iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

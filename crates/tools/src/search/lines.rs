//! The matching lines of one file, as far as somebody wants them; the rest is only counted. Binary files have none.

use std::{
    fs::File,
    io::{self, Read},
    ops::Range,
};

use grep_regex::RegexMatcher;
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch};

use crate::walk::Stop;

/// What is shown of one line. Longer ones are not written by people.
const LINE_BYTES_MAX: usize = 500;

/// What was found in one file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Matched {
    /// Matching lines, shown or not.
    pub(super) count: u64,
    pub(super) text: String,
    /// Where in the text each shown matching line ends, with what follows it as context.
    pub(super) ends: Vec<usize>,
}

/// Reads file after file with the same buffers.
pub(super) struct Reader<'q> {
    searcher: Searcher,
    matcher: &'q RegexMatcher,
    only_whether: bool,
    stop: Stop,
}

impl<'q> Reader<'q> {
    pub(super) fn new(matcher: &'q RegexMatcher, context: usize, only_whether: bool, stop: Stop) -> Self {
        let mut builder = SearcherBuilder::new();
        builder.binary_detection(BinaryDetection::quit(0)).line_number(!only_whether);
        builder.before_context(context).after_context(context);
        Self { searcher: builder.build(), matcher, only_whether, stop }
    }

    /// `room`: how many matching lines are kept as text.
    pub(super) fn read(&mut self, file: File, room: usize) -> Matched {
        let mut lines = Lines { matched: Matched::default(), room, only_whether: self.only_whether, is_binary: false };
        let file = Stoppable { file, stop: &self.stop };
        // A file that cannot be read to its end has the matches that were found in it.
        let _ = self.searcher.search_reader(self.matcher, file, &mut lines);
        match lines.is_binary {
            true => Matched::default(),
            false => lines.matched,
        }
    }
}

/// A file that ends when it is no longer wanted.
struct Stoppable<'s> {
    file: File,
    stop: &'s Stop,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.stop.reason() {
            Some(_) => Ok(0),
            None => self.file.read(buffer),
        }
    }
}

struct Lines {
    matched: Matched,
    room: usize,
    only_whether: bool,
    is_binary: bool,
}

impl Lines {
    fn push(&mut self, number: Option<u64>, mark: char, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let head = String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]);
        let text = &mut self.matched.text;
        text.push_str(&number.unwrap_or_default().to_string());
        text.push(mark);
        text.push_str(head.trim_end_matches(char::REPLACEMENT_CHARACTER));
        if line.len() > LINE_BYTES_MAX {
            text.push_str(" [the line goes on]");
        }
        text.push('\n');
    }

    fn is_full(&self) -> bool {
        self.matched.ends.len() >= self.room
    }

    fn close(&mut self) {
        if let Some(end) = self.matched.ends.last_mut() {
            *end = self.matched.text.len();
        }
    }
}

impl Sink for Lines {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, line: &SinkMatch<'_>) -> io::Result<bool> {
        self.matched.count += 1;
        if self.only_whether {
            return Ok(false);
        }
        if !self.is_full() {
            self.push(line.line_number(), ':', line.bytes());
            self.matched.ends.push(self.matched.text.len());
        }
        Ok(true)
    }

    fn context(&mut self, _searcher: &Searcher, line: &SinkContext<'_>) -> io::Result<bool> {
        let follows_last =
            *line.kind() == grep_searcher::SinkContextKind::After && self.matched.count <= self.room as u64;
        if !self.is_full() || follows_last {
            self.push(line.line_number(), '-', line.bytes());
        }
        // What stands before a match belongs to that one; its end is moved when it comes.
        if follows_last {
            self.close();
        }
        Ok(true)
    }

    fn context_break(&mut self, _searcher: &Searcher) -> io::Result<bool> {
        if !self.is_full() {
            self.matched.text.push_str("--\n");
        }
        Ok(true)
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> io::Result<bool> {
        self.is_binary = true;
        Ok(false)
    }
}

/// The text of the first matching lines.
impl Matched {
    pub(super) fn first(&self, lines: usize) -> &str {
        let range: Range<usize> = match lines.checked_sub(1) {
            None => 0..0,
            Some(last) => 0..self.ends.get(last).copied().unwrap_or(self.text.len()),
        };
        &self.text[range]
    }
}

//! Reads the patch format that agents write: files by name, hunks by the lines around them. A patch that is cut is refused.

use super::{Ending, FilePatch, Hunk, Kind, Line, Op, unified};

const BEGIN: &str = "*** Begin Patch";
const END: &str = "*** End Patch";
const ADD: &str = "*** Add File: ";
const UPDATE: &str = "*** Update File: ";
const DELETE: &str = "*** Delete File: ";
const MOVE: &str = "*** Move to: ";
const END_OF_FILE: &str = "*** End of File";

pub(super) fn is_agent(text: &str) -> bool {
    text.lines().map(str::trim).find(|line| !line.is_empty()) == Some(BEGIN)
}

pub(super) fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    let lines: Vec<&str> = text.trim_end().split_inclusive('\n').collect();
    let first = lines.iter().position(|line| line.trim() == BEGIN).map_or(0, |at| at + 1);
    let (last, body) = lines.split_last().unwrap_or((&"", &[]));
    if last.trim() != END || body.len() < first {
        return Err(format!("the patch has no last line `{END}`: it may have been cut"));
    }
    let mut reader = Reader { lines: body, at: first };
    let mut files = vec![];
    while let Some(file) = reader.file()? {
        files.push(file);
    }
    if files.is_empty() { Err("the patch names no file".into()) } else { Ok(files) }
}

struct Reader<'t> {
    lines: &'t [&'t str],
    at: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<&'t str> {
        self.lines.get(self.at).copied()
    }

    fn bad<T>(&self, why: &str) -> Result<T, String> {
        Err(format!("line {} of the patch: {why}", self.at + 1))
    }

    /// What follows a header, if this line is one.
    fn header(&self, header: &str) -> Option<String> {
        self.peek()?.strip_prefix(header).map(|name| name.trim().to_owned())
    }

    fn file(&mut self) -> Result<Option<FilePatch>, String> {
        while self.peek().is_some_and(|line| line.trim().is_empty()) {
            self.at += 1;
        }
        if self.peek().is_none() {
            return Ok(None);
        }
        let named = [(ADD, Kind::Create), (UPDATE, Kind::Modify), (DELETE, Kind::Delete)]
            .into_iter()
            .find_map(|(header, kind)| Some((self.header(header)?, kind)));
        let Some((path, kind)) = named else {
            return self.bad("expected *** Add File:, *** Update File: or *** Delete File:");
        };
        if path.is_empty() {
            return self.bad("the header names no file");
        }
        self.at += 1;
        let mut file = FilePatch { path, kind, move_to: None, executable: false, hunks: vec![], has_crlf: false };
        match kind {
            Kind::Create => file.hunks.push(self.added()?),
            Kind::Modify => self.update(&mut file)?,
            Kind::Delete => {}
        }
        // A patch whose own lines all end in CRLF says nothing about the file's.
        let all = |line: &Line| line.ending == Ending::Crlf;
        file.hunks.iter_mut().flat_map(|hunk| &mut hunk.lines).filter(|line| all(line)).for_each(|line| {
            line.ending = Ending::Lf;
        });
        Ok(Some(file))
    }

    fn added(&mut self) -> Result<Hunk, String> {
        let mut hunk = Hunk::default();
        while let Some(line) = self.peek().filter(|line| !line.starts_with("*** ")) {
            let Some(text) = line.strip_prefix('+') else {
                // Blank lines before the next header are no lines of the file.
                if self.lines[self.at..]
                    .iter()
                    .take_while(|line| !line.starts_with("*** "))
                    .all(|line| line.trim().is_empty())
                {
                    self.at += 1;
                    continue;
                }
                return self.bad("every line of a new file begins with +");
            };
            hunk.lines.push(Line::of(Op::Add, text));
            self.at += 1;
        }
        Ok(hunk)
    }

    fn update(&mut self, file: &mut FilePatch) -> Result<(), String> {
        if let Some(to) = self.header(MOVE) {
            if to.is_empty() {
                return self.bad("*** Move to: names no file");
            }
            file.move_to = Some(to);
            self.at += 1;
        }
        while let Some(hunk) = self.hunk()? {
            file.hunks.push(hunk);
        }
        match file.hunks.is_empty() && file.move_to.is_none() {
            true => self.bad("nothing is said of what to change in the file before"),
            false => Ok(()),
        }
    }

    fn hunk(&mut self) -> Result<Option<Hunk>, String> {
        let mut hunk = Hunk::default();
        while let Some(line) = self.peek().filter(|line| line.starts_with("@@")) {
            let line = line.trim_end();
            match unified::numbers(line) {
                Some(numbers) => hunk.numbers = Some(numbers),
                None => {
                    let anchor = line[2..].trim().trim_end_matches("@@").trim();
                    hunk.anchors.extend((!anchor.is_empty()).then(|| anchor.to_owned()));
                }
            }
            self.at += 1;
        }
        while let Some(line) = self.peek().filter(|line| !line.starts_with("@@")) {
            if line.trim_end() == END_OF_FILE {
                hunk.at_end = true;
                self.at += 1;
                break;
            }
            if line.starts_with("*** ") {
                break;
            }
            let Some(line) = unified::hunk_line(line) else {
                return self.bad("a line of a hunk begins with a space, + or -");
            };
            hunk.lines.push(line);
            self.at += 1;
        }
        self.closed(hunk)
    }

    /// A blank line before the next header may be a space between files, so it does not count as context.
    fn closed(&self, mut hunk: Hunk) -> Result<Option<Hunk>, String> {
        if !hunk.at_end {
            while hunk.lines.last().is_some_and(|line| line.op == Op::Keep && line.body.is_empty()) {
                hunk.lines.pop();
            }
        }
        if hunk.lines.iter().any(|line| line.op != Op::Keep) {
            return Ok(Some(hunk));
        }
        match hunk == Hunk::default() {
            true => Ok(None),
            false => self.bad("the hunk before it changes nothing"),
        }
    }
}

//! A patch over one or more files, in either format: what it asks of each, read and applied. It guesses only where one
//! place fits, says what it guessed, and never touches a file itself.

mod agent;
mod lines;
mod place;
mod unified;

use lines::Lines;

/// The changes to one file that a patch asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FilePatch {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    /// Where the file goes.
    pub(crate) move_to: Option<String>,
    pub(crate) executable: bool,
    hunks: Vec<Hunk>,
    /// The hunks' lines come with CRLF, so theirs are as they are to be.
    has_crlf: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    /// Its hunks must remove every line; without hunks it just goes.
    Delete,
    Modify,
}

/// One place of a file and what is to become of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Hunk {
    /// From the header, where it says so.
    numbers: Option<Numbers>,
    /// Lines that come before it, the outer ones first.
    anchors: Vec<String>,
    lines: Vec<Line>,
    /// It ends with the file.
    at_end: bool,
    /// The header's counts did not fit, and there was only one way to read it.
    counts_wrong: bool,
}

/// Of a header such as `@@ -1,2 +3,4 @@`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    old_start: usize,
    new_start: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Line {
    op: Op,
    /// Without its end.
    body: String,
    ending: Ending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Keep,
    Remove,
    Add,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Lf,
    Crlf,
    /// The patch says that the file ends there without one.
    None,
}

/// A file's new bytes, and what was adjusted to get them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) bytes: Vec<u8>,
    pub(crate) notes: Vec<String>,
}

/// Every file of a patch, in its order.
pub(crate) fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    if agent::is_agent(text) { agent::parse(text) } else { unified::parse(text) }
}

impl FilePatch {
    /// The file's new bytes. CRLF is kept where the patch has LF.
    pub(crate) fn apply(&self, before: &[u8]) -> Result<Applied, String> {
        let file = Lines::of(before);
        place::apply(&file, &self.hunks, self.has_crlf).map_err(|error| format!("{}: {error}", self.path))
    }

    /// Whether a file that goes must be empty afterwards.
    pub(crate) fn removes_by_lines(&self) -> bool {
        !self.hunks.is_empty()
    }
}

impl Line {
    /// A line as it stands in a patch, behind its first character.
    fn of(op: Op, text: &str) -> Self {
        let (body, ending) = match (text.strip_suffix("\r\n"), text.strip_suffix('\n')) {
            (Some(body), _) => (body, Ending::Crlf),
            (None, Some(body)) => (body, Ending::Lf),
            // The patch itself ends there.
            (None, None) => (text, Ending::Lf),
        };
        Self { op, body: body.to_owned(), ending }
    }
}

#[cfg(test)]
mod tests;

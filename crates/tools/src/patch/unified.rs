//! Reads a unified diff. Counts in a hunk's header are held to where they fit; where they do not, a hunk goes as far as its
//! lines can be told from what follows.

use super::{Ending, FilePatch, Hunk, Kind, Line, Numbers, Op};

pub(super) fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    let mut reader = Reader {
        lines: text.split_inclusive('\n').collect(),
        at: 0,
        files: vec![],
        executable: false,
        announced: None,
    };
    reader.read()?;
    if reader.files.is_empty() {
        return Err(
            "the patch names no file: it must be a unified diff with lines --- a/path and +++ b/path, or begin \
                    with *** Begin Patch"
                .into(),
        );
    }
    match reader.files.iter().find(|file| file.hunks.is_empty()) {
        Some(file) => Err(format!("{}: the patch has no hunks for it", file.path)),
        None => Ok(reader.files),
    }
}

const RENAMES: &str = "renames are not supported in a diff; use `*** Move to:` of the *** Begin Patch format, or delete the \
                       one file and create the other";

/// Walks the diff line by line.
struct Reader<'t> {
    lines: Vec<&'t str>,
    at: usize,
    files: Vec<FilePatch>,
    /// From the extended header of the file to come.
    executable: bool,
    /// The line that says that a file is made or deleted, until the lines of that file come.
    announced: Option<(usize, Kind)>,
}

/// A hunk's lines, and where they end in the patch.
struct Body {
    lines: Vec<Line>,
    end: usize,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(line) = self.lines.get(self.at).copied() {
            if self.is_file_header(self.at) {
                self.file_header()?;
            } else if line.starts_with("@@") {
                self.hunk(line)?;
            } else {
                self.other(line)?;
                self.at += 1;
            }
        }
        self.nothing_announced()
    }

    fn is_file_header(&self, at: usize) -> bool {
        let starts = |at: usize, with: &str| self.lines.get(at).is_some_and(|line| line.starts_with(with));
        starts(at, "--- ") && starts(at + 1, "+++ ")
    }

    /// A file without any lines has no hunks, so a diff can only announce it; nothing here makes or deletes one.
    fn nothing_announced(&self) -> Result<(), String> {
        match self.announced {
            None => Ok(()),
            Some((at, _)) => {
                Err(format!("line {} of the patch: empty files are not made or deleted by a patch", at + 1))
            }
        }
    }

    fn file_header(&mut self) -> Result<(), String> {
        let (old, new) = (name_in(self.lines[self.at])?, name_in(self.lines[self.at + 1])?);
        self.announced.take_if(|(_, kind)| match kind {
            Kind::Create => old == "/dev/null",
            Kind::Delete => new == "/dev/null",
            Kind::Modify => true,
        });
        self.nothing_announced()?;
        let (path, kind) = match (old.as_str(), new.as_str()) {
            ("/dev/null", new) => (strip(new, "b/"), Kind::Create),
            (old, "/dev/null") => (strip(old, "a/"), Kind::Delete),
            (old, new) => (one_path(old, new)?, Kind::Modify),
        };
        self.files.push(FilePatch {
            path: path.to_owned(),
            kind,
            move_to: None,
            executable: std::mem::take(&mut self.executable),
            hunks: vec![],
            has_crlf: false,
        });
        self.at += 2;
        Ok(())
    }

    /// A line between hunks: an extended header, or a sign that something is wrong.
    fn other(&mut self, line: &str) -> Result<(), String> {
        let bad = |why: &str| Err(format!("line {} of the patch: {why}", self.at + 1));
        if line.starts_with("rename ") || line.starts_with("copy ") {
            return bad(RENAMES);
        }
        if line.starts_with("old mode ") || line.starts_with("new mode ") {
            return bad("changes of a file's mode are not supported");
        }
        if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            return bad("binary patches are not supported");
        }
        if line.starts_with("diff --git ") {
            self.nothing_announced()?;
            self.executable = false;
        }
        if line.starts_with("deleted file mode ") {
            self.announced = Some((self.at, Kind::Delete));
        }
        if let Some(mode) = line.strip_prefix("new file mode ") {
            self.announced = Some((self.at, Kind::Create));
            match mode.trim() {
                "100644" => self.executable = false,
                "100755" => self.executable = true,
                _ => return bad("only regular files can be created"),
            }
        }
        Ok(())
    }

    fn hunk(&mut self, header: &str) -> Result<(), String> {
        let bad = |why: String| format!("line {} of the patch: {why}", self.at + 1);
        let (numbers, counts) = match read_header(header) {
            Some((numbers, counts)) => (Some(numbers), Some(counts)),
            None if matches!(header.trim_end(), "@@" | "@@ @@") => (None, None),
            None => return Err(bad(format!("not a hunk header: {}", header.trim()))),
        };
        if self.files.is_empty() {
            return Err(bad("a hunk before any file header".into()));
        }
        // Counts that fit settle what could be read in two ways, such as a removed line `-- x`.
        let counted = counts.and_then(|counts| self.counted(counts)).filter(|body| !self.goes_on(body.end));
        let counts_wrong = counted.is_none() && counts.is_some();
        let Body { lines, end } = match counted {
            Some(body) => body,
            None => self.open_ended().map_err(bad)?,
        };
        // The last element exists: it was looked at above.
        if let Some(file) = self.files.last_mut() {
            file.has_crlf |= lines.iter().any(|line| line.ending == Ending::Crlf);
            file.hunks.push(Hunk { numbers, lines, counts_wrong, ..Hunk::default() });
        }
        self.at = end;
        Ok(())
    }

    /// The hunk's lines, if there are as many as its header says.
    fn counted(&self, (mut old, mut new): (usize, usize)) -> Option<Body> {
        let (mut lines, mut at) = (vec![], self.at + 1);
        while old > 0 || new > 0 {
            let line = self.lines.get(at).copied()?;
            at += 1;
            match line.as_bytes()[0] {
                b'\\' if is_no_newline(line) => mark_no_newline(&mut lines),
                _ => {
                    let line = read_line(line)?;
                    old = old.checked_sub(usize::from(line.op != Op::Add))?;
                    new = new.checked_sub(usize::from(line.op != Op::Remove))?;
                    lines.push(line);
                }
            }
        }
        if self.lines.get(at).is_some_and(|line| is_no_newline(line)) {
            mark_no_newline(&mut lines);
            at += 1;
        }
        Some(Body { lines, end: at })
    }

    /// Whether more lines of a hunk follow.
    fn goes_on(&self, at: usize) -> bool {
        let line = self.lines.get(at).copied().unwrap_or_default();
        line.starts_with(['+', '-', ' ']) && !self.is_end(at)
    }

    /// Whether a hunk has ended here: another one, another file, or a mail's signature.
    fn is_end(&self, at: usize) -> bool {
        let Some(line) = self.lines.get(at) else { return true };
        let header = self.is_file_header(at) && self.lines.get(at + 2).is_none_or(|line| line.starts_with("@@"));
        header
            || line.starts_with("@@")
            || line.starts_with("diff --git ")
            || line.trim_end_matches(['\r', '\n']) == "-- "
    }

    /// All lines up to what cannot be one of a hunk. A blank line at its end may be a space between files, so it does not
    /// count as context.
    fn open_ended(&self) -> Result<Body, String> {
        let (mut lines, mut at) = (vec![], self.at + 1);
        while !self.is_end(at) {
            let line = self.lines[at];
            match (is_no_newline(line), read_line(line)) {
                (true, _) => mark_no_newline(&mut lines),
                (false, Some(line)) => lines.push(line),
                (false, None) => {
                    return Err(format!("line {} of the patch is not part of a hunk: {}", at + 1, line.trim_end()));
                }
            }
            at += 1;
        }
        let blank = |line: &Line| line.op == Op::Keep && line.body.is_empty() && line.ending != Ending::None;
        while lines.last().is_some_and(blank) {
            lines.pop();
        }
        match lines.iter().any(|line| line.op != Op::Keep) {
            true => Ok(Body { lines, end: at }),
            false => Err("the hunk changes nothing".into()),
        }
    }
}

/// A line of a hunk. A blank context line often loses its one space on the way.
fn read_line(line: &str) -> Option<Line> {
    match line.as_bytes()[0] {
        b'-' => Some(Line::of(Op::Remove, &line[1..])),
        b'+' => Some(Line::of(Op::Add, &line[1..])),
        b' ' => Some(Line::of(Op::Keep, &line[1..])),
        b'\n' => Some(Line::of(Op::Keep, line)),
        b'\r' if line == "\r\n" => Some(Line::of(Op::Keep, line)),
        _ => None,
    }
}

fn mark_no_newline(lines: &mut [Line]) {
    if let Some(last) = lines.last_mut() {
        last.ending = Ending::None;
    }
}

/// Whether a line says that the one before it has no line end. As in git its words do not count, but there must be some.
fn is_no_newline(line: &str) -> bool {
    line.starts_with("\\ ") && line.len() >= 12
}

/// The numbers and the old and new line counts of `@@ -1,2 +3,4 @@`.
fn read_header(header: &str) -> Option<(Numbers, (usize, usize))> {
    let (ranges, _) = header.strip_prefix("@@ ")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(' ')?;
    let range = |range: &str| match range.split_once(',') {
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
        None => Some((range.parse().ok()?, 1)),
    };
    let (old_start, old) = range(old.strip_prefix('-')?)?;
    let (new_start, new) = range(new.strip_prefix('+')?)?;
    Some((Numbers { old_start, new_start }, (old, new)))
}

/// The name behind `--- ` or `+++ `: up to a tab, after which a time may stand.
fn name_in(line: &str) -> Result<String, String> {
    let name = line[4..].split('\t').next().unwrap_or_default().trim_end_matches(['\r', '\n']);
    if name.starts_with('"') {
        return Err(format!("the name {name} is quoted; write it as it is"));
    }
    match name.is_empty() {
        true => Err("a file header without a name".into()),
        false => Ok(name.to_owned()),
    }
}

fn strip<'n>(name: &'n str, prefix: &str) -> &'n str {
    name.strip_prefix(prefix).unwrap_or(name)
}

fn one_path<'n>(old: &'n str, new: &'n str) -> Result<&'n str, String> {
    match (old.strip_prefix("a/"), new.strip_prefix("b/")) {
        (Some(old), Some(new)) if old == new => Ok(new),
        _ if old == new => Ok(new),
        _ => Err(format!("{old} and {new} differ: {RENAMES}")),
    }
}

/// For the other format, whose hunks may have such headers too.
pub(super) fn numbers(header: &str) -> Option<Numbers> {
    read_header(header).map(|(numbers, _)| numbers)
}

/// For the other format, whose lines begin the same way.
pub(super) fn hunk_line(line: &str) -> Option<Line> {
    read_line(line)
}

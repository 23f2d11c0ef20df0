//! Reads a unified diff over one or more files and applies it strictly. It never guesses: a hunk whose line counts or
//! context do not fit is an error, and nothing here touches a file.

use diffy::Patch;

/// The changes to one file that a diff asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FilePatch {
    pub(crate) path: String,
    pub(crate) kind: Kind,
    /// The file headers and hunks alone.
    text: String,
    pub(crate) executable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Create,
    Delete,
    Modify,
}

/// Every file of a diff, in its order.
pub(crate) fn parse(text: &str) -> Result<Vec<FilePatch>, String> {
    let mut reader = Reader {
        lines: text.split_inclusive('\n').collect(),
        at: 0,
        sections: vec![],
        executable: false,
        announced: None,
    };
    reader.read()?;
    if reader.sections.is_empty() {
        return Err("the patch names no file: it must be a unified diff with lines --- a/path and +++ b/path".into());
    }
    reader.sections.into_iter().map(Section::into_file).collect()
}

impl FilePatch {
    /// The file's new bytes. Where all its lines end in CRLF and the patch has only LF, CRLF is kept.
    pub(crate) fn apply(&self, before: &[u8]) -> Result<Vec<u8>, String> {
        let crlf = ends_in_crlf(before) && !self.text.contains("\r\n");
        let base = if crlf { without_cr(before) } else { before.to_vec() };
        let patch = Patch::from_bytes(self.text.as_bytes()).map_err(|error| format!("{}: {error}", self.path))?;
        self.check_insertions(&base, &patch)?;
        let after = diffy::apply_bytes(&base, &patch).map_err(|error| {
            format!(
                "{}: {error}: the lines it expects are not in the file. Read the file again and make the patch anew.",
                self.path
            )
        })?;
        Ok(if crlf { with_cr(&after) } else { after })
    }
}

impl FilePatch {
    /// A hunk that only adds lines has no context to be found by: its numbers alone say where, so they must agree.
    fn check_insertions(&self, base: &[u8], patch: &Patch<'_, [u8]>) -> Result<(), String> {
        let lines = base.split_inclusive(|byte| *byte == b'\n').count();
        // How many lines the hunks before have added, modulo a number that no file reaches.
        let mut added = 0usize;
        for hunk in patch.hunks().iter().filter(|_| lines > 0) {
            let (old, new) = (hunk.old_range(), hunk.new_range());
            let agree = old.start() <= lines && new.start() == old.start().wrapping_add(1).wrapping_add(added);
            if old.is_empty() && !agree {
                return Err(format!("{}: a hunk without context needs exact line numbers; add context", self.path));
            }
            added = added.wrapping_add(new.len()).wrapping_sub(old.len());
        }
        Ok(())
    }
}

/// The lines of one file's part, before its names are looked at.
struct Section {
    text: String,
    executable: bool,
}

impl Section {
    fn into_file(self) -> Result<FilePatch, String> {
        let patch = Patch::from_bytes(self.text.as_bytes()).map_err(|error| format!("not a valid patch: {error}"))?;
        let name = |name: Option<&[u8]>| String::from_utf8_lossy(name.unwrap_or_default()).into_owned();
        let (old, new) = (name(patch.original()), name(patch.modified()));
        let (path, kind) = match (old.as_str(), new.as_str()) {
            ("/dev/null", new) => (strip(new, "b/"), Kind::Create),
            (old, "/dev/null") => (strip(old, "a/"), Kind::Delete),
            (old, new) => (one_path(old, new)?, Kind::Modify),
        };
        if patch.hunks().is_empty() {
            return Err(format!("{path}: the patch has no hunks for it"));
        }
        Ok(FilePatch { path: path.to_owned(), kind, executable: self.executable, text: self.text })
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

const NO_NEWLINE: &str = "\\ No newline at end of file\n";

const RENAMES: &str = "renames are not supported; delete the one file and create the other";

/// Walks the diff line by line and holds every hunk to its header's counts.
struct Reader<'t> {
    lines: Vec<&'t str>,
    at: usize,
    sections: Vec<Section>,
    /// From the extended header of the file to come.
    executable: bool,
    /// The line that says that a file is made or deleted, until the lines of that file come.
    announced: Option<(usize, Kind)>,
}

impl Reader<'_> {
    fn read(&mut self) -> Result<(), String> {
        while let Some(line) = self.lines.get(self.at).copied() {
            let next_is_new = self.lines.get(self.at + 1).is_some_and(|next| next.starts_with("+++ "));
            if line.starts_with("--- ") && next_is_new {
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
        let (old, new) = (self.lines[self.at], self.lines[self.at + 1]);
        self.announced.take_if(|(_, kind)| match kind {
            Kind::Create => old.starts_with("--- /dev/null"),
            Kind::Delete => new.starts_with("+++ /dev/null"),
            Kind::Modify => true,
        });
        self.nothing_announced()?;
        let text = with_newline(old) + &with_newline(new);
        self.sections.push(Section { text, executable: std::mem::take(&mut self.executable) });
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
        if !self.sections.is_empty() && line.starts_with(['+', '-', ' ']) {
            return bad("the hunk before it has more lines than its @@ header says");
        }
        Ok(())
    }

    fn hunk(&mut self, header: &str) -> Result<(), String> {
        let number = self.at + 1;
        let bad = |why: String| format!("line {number} of the patch: {why}");
        let (mut old, mut new) = counts(header).ok_or_else(|| bad(format!("not a hunk header: {}", header.trim())))?;
        let section = self.sections.last_mut().ok_or_else(|| bad("a hunk before any file header".into()))?;
        section.text.push_str(&with_newline(header));
        self.at += 1;
        while old > 0 || new > 0 {
            let line = self.lines.get(self.at).copied().unwrap_or("@");
            let (takes_old, takes_new) = match line.as_bytes()[0] {
                b'-' => (1, 0),
                b'+' => (0, 1),
                // A blank context line often loses its one space on the way.
                b' ' | b'\n' | b'\r' => (1, 1),
                b'\\' if is_no_newline(line) => (0, 0),
                _ => return Err(bad(format!("the hunk ends with {old} old and {new} new lines still to come"))),
            };
            if takes_old > old || takes_new > new {
                return Err(bad(format!("the hunk's lines do not fit the counts in its header {}", header.trim())));
            }
            (old, new) = (old - takes_old, new - takes_new);
            if line.starts_with(['\n', '\r']) {
                section.text.push(' ');
            }
            // It is written in the language of whoever made the diff.
            section.text.push_str(&if is_no_newline(line) { NO_NEWLINE.to_owned() } else { with_newline(line) });
            self.at += 1;
        }
        if self.lines.get(self.at).is_some_and(|line| is_no_newline(line)) {
            section.text.push_str(NO_NEWLINE);
            self.at += 1;
        }
        Ok(())
    }
}

/// The old and new line counts of `@@ -1,2 +3,4 @@`.
fn counts(header: &str) -> Option<(usize, usize)> {
    let (ranges, _) = header.strip_prefix("@@ ")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(' ')?;
    let count = |range: &str| match range.split_once(',') {
        Some((_, count)) => count.parse().ok(),
        None => Some(1),
    };
    Some((count(old.strip_prefix('-')?)?, count(new.strip_prefix('+')?)?))
}

/// Whether a line says that the one before it has no line end. As in git its words do not count, but there must be some.
fn is_no_newline(line: &str) -> bool {
    line.starts_with("\\ ") && line.len() >= 12
}

fn with_newline(line: &str) -> String {
    if line.ends_with('\n') { line.to_owned() } else { format!("{line}\n") }
}

fn ends_in_crlf(bytes: &[u8]) -> bool {
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")).peekable();
    lines.peek().is_some() && lines.all(|line| line.ends_with(b"\r\n"))
}

fn without_cr(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(line) => out.extend([line, b"\n"].concat()),
            None => out.extend_from_slice(line),
        }
    }
    out
}

fn with_cr(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + bytes.len() / 16);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\n") {
            Some(line) => out.extend([line, b"\r\n"].concat()),
            None => out.extend_from_slice(line),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn applied(patch: &str, before: &str) -> String {
        let files = parse(patch).unwrap();
        String::from_utf8(files[0].apply(before.as_bytes()).unwrap()).unwrap()
    }

    #[track_caller]
    fn refused(patch: &str, why: &str) {
        let error = parse(patch).unwrap_err();
        assert!(error.contains(why), "{error}");
    }

    #[test]
    fn one_hunk_with_context() {
        let patch = "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n";
        assert_eq!(applied(patch, "one\ntwo\nthree\n"), "one\n2\nthree\n");
    }

    #[test]
    fn a_patch_without_a_last_newline_and_a_blank_context_line_that_lost_its_space() {
        let patch = "--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n one\n\n-two\n+2";
        assert_eq!(applied(patch, "one\n\ntwo\n"), "one\n\n2\n");
    }

    #[test]
    fn line_endings_are_kept() {
        let patch = "--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n";
        assert_eq!(applied(patch, "one\r\ntwo\r\n"), "one\r\n2\r\n3\r\n");
        let no_end =
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n\\ No newline at end of file\n+1\n\\ No newline at end of file\n";
        assert_eq!(applied(no_end, "one"), "1");
        let translated = no_end.replace("No newline at end of file", "Kein Zeilenumbruch am Dateiende.");
        assert_eq!(applied(&translated, "one"), "1");
    }

    #[test]
    fn an_insertion_without_context_goes_where_its_numbers_say_or_nowhere() {
        let insertion = |range: &str| format!("--- a/x\n+++ b/x\n@@ {range} @@\n+new\n");
        for (range, after) in [("-0,0 +1", "new\n1\n2\n"), ("-1,0 +2", "1\nnew\n2\n"), ("-2,0 +3", "1\n2\nnew\n")] {
            assert_eq!(applied(&insertion(range), "1\n2\n"), after, "{range}");
        }
        for range in ["-3,0 +4", "-110,0 +1", "-1,0 +1", "-0,0 +2"] {
            let files = parse(&insertion(range)).unwrap();
            assert!(files[0].apply(b"1\n2\n").unwrap_err().contains("exact line numbers"), "{range}");
        }
        let second = "--- a/x\n+++ b/x\n@@ -1 +1,2 @@\n 1\n+a\n@@ -2,0 +4 @@\n+b\n";
        assert_eq!(applied(second, "1\n2\n3\n"), "1\na\n2\nb\n3\n");
    }

    #[test]
    fn an_empty_file_is_refused_and_not_passed_over() {
        let other = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-one\n+1\n";
        for mode in ["new file mode 100755\nindex 0..1", "deleted file mode 100644"] {
            let announced = format!("diff --git a/e b/e\n{mode}\n");
            refused(&format!("{announced}diff --git a/x b/x\n{other}"), "empty files");
            refused(&format!("{other}{announced}"), "empty files");
            refused(&format!("{announced}{other}"), "empty files");
        }
    }

    #[test]
    fn counts_that_no_file_has_are_refused() {
        let most = usize::MAX;
        refused(&format!("--- a/x\n+++ b/x\n@@ -1,{most} +1,{most} @@\n one\n"), "still to come");
    }

    #[test]
    fn names_and_kinds() {
        let patch = "diff --git a/n b/n\nnew file mode 100755\nindex 0..1\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n\
                     diff --git a/d b/d\ndeleted file mode 100644\n--- a/d\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
                     --- src/a/p\t2020\n+++ src/a/p\t2021\n@@ -1 +1 @@\n-x\n+y\n";
        let files = parse(patch).unwrap();
        let seen: Vec<_> = files.iter().map(|file| (file.path.as_str(), file.kind, file.executable)).collect();
        assert_eq!(seen, [("n", Kind::Create, true), ("d", Kind::Delete, false), ("src/a/p", Kind::Modify, false)]);
    }

    #[test]
    fn what_is_refused() {
        refused("hello", "names no file");
        refused("", "names no file");
        refused("*** Begin Patch\n*** Update File: x\n", "names no file");
        refused("@@ -1 +1 @@\n-x\n+y\n", "before any file header");
        refused("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-x\n+y\n", "renames are not supported");
        refused("diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n", "renames are not supported");
        refused("diff --git a/x b/x\nold mode 100644\nnew mode 100755\n", "mode");
        refused("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n-x\n+y\n", "1 old and 1 new lines still to come");
        refused("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\n+z\n", "more lines than its @@ header says");
        refused("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n-w\n+z\n", "do not fit the counts");
        refused("--- a/x\n+++ b/x\n", "no hunks");
        refused("--- a/x\n+++ b/x\n@@ nonsense\n", "not a hunk header");
        refused(
            "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+x\n",
            "regular files",
        );
    }

    #[test]
    fn context_that_is_not_there_is_named_by_hunk() {
        let patch = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n@@ -5 +5 @@\n-nope\n+y\n";
        let error = parse(patch).unwrap()[0].apply(b"a\nb\nc\nd\ne\n").unwrap_err();
        assert!(error.contains("hunk #2"), "{error}");
    }
}

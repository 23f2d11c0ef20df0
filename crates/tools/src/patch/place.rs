//! Finds where each hunk belongs and makes the new file. A hunk goes where its line number says if it fits there, else to the
//! one place that fits; where two fit, or none, it is refused with what would help.

use super::{
    Applied, Ending, Hunk, Line, Op,
    lines::{Lines, trimmed},
};

/// Places that are named where several fit.
const PLACES_SHOWN_MAX: usize = 5;
/// Lines that are compared for one file; only a file that repeats itself endlessly needs more.
const COMPARED_MAX: usize = 50_000_000;

/// How closely lines have to fit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Exact,
    /// Whitespace at line ends does not count, nor whether the file's last line has an end.
    LineEnds,
}

pub(super) fn apply(file: &Lines<'_>, hunks: &[Hunk], has_crlf: bool) -> Result<Applied, String> {
    let mut maker = Maker { file, has_crlf, done: 0, shift: 0, compared: 0, out: Applied::default() };
    for (at, hunk) in hunks.iter().enumerate() {
        maker.hunk(hunk, at + 1).map_err(|why| format!("hunk #{} {why}", at + 1))?;
    }
    maker.copy_to(file.len());
    Ok(maker.out)
}

struct Maker<'f> {
    file: &'f Lines<'f>,
    has_crlf: bool,
    /// Lines of the file that are behind us.
    done: usize,
    /// How many lines the hunks before have added, modulo a number that no file reaches.
    shift: usize,
    compared: usize,
    out: Applied,
}

impl Maker<'_> {
    fn hunk(&mut self, hunk: &Hunk, number: usize) -> Result<(), String> {
        let old: Vec<&Line> = hunk.lines.iter().filter(|line| line.op != Op::Add).collect();
        let (at, fit) = match old.is_empty() {
            true => (self.insertion(hunk)?, Fit::Exact),
            false => self.find(hunk, &old, number)?,
        };
        if hunk.counts_wrong {
            self.out.notes.push(format!("the line counts of hunk #{number} did not fit and were passed over"));
        }
        self.copy_to(at);
        self.write(hunk, fit, old.len());
        let added = hunk.lines.iter().filter(|line| line.op == Op::Add).count();
        let removed = hunk.lines.iter().filter(|line| line.op == Op::Remove).count();
        self.shift = self.shift.wrapping_add(added).wrapping_sub(removed);
        Ok(())
    }

    /// A hunk that only adds lines has no context to be found by: something else must say where, and only one thing.
    fn insertion(&self, hunk: &Hunk) -> Result<usize, String> {
        let lines = self.file.len();
        if lines == 0 {
            return Ok(0);
        }
        if let Some(numbers) = hunk.numbers {
            let (old, new) = (numbers.old_start, numbers.new_start);
            let agree = old >= self.done && old <= lines && new == old.wrapping_add(1).wrapping_add(self.shift);
            return if agree { Ok(old) } else { Err("needs exact line numbers or context: it only adds lines".into()) };
        }
        match (hunk.anchors.is_empty(), hunk.at_end) {
            (_, true) => Ok(lines),
            (false, _) => self.after_anchors(hunk),
            (true, false) => {
                Err("only adds lines: say where, by lines around them, an @@ line or *** End of File".into())
            }
        }
    }

    /// The first line after the hunk's anchors. Each of them must be there once.
    fn after_anchors(&self, hunk: &Hunk) -> Result<usize, String> {
        let mut from = self.done;
        for anchor in &hunk.anchors {
            let wanted = anchor.trim().as_bytes();
            let fits = |at: &usize| self.file.body(*at).trim_ascii() == wanted;
            let found: Vec<usize> = (from..self.file.len()).filter(fits).take(PLACES_SHOWN_MAX).collect();
            match found[..] {
                [one] => from = one + 1,
                [] => return Err(format!("has the line `@@ {anchor}`, and there is no such line in the file")),
                _ => {
                    return Err(format!(
                        "has the line `@@ {anchor}`, which is there more than once: {}",
                        at_lines(&found)
                    ));
                }
            }
        }
        Ok(from)
    }

    fn find(&mut self, hunk: &Hunk, old: &[&Line], number: usize) -> Result<(usize, Fit), String> {
        let from = self.after_anchors(hunk)?;
        for fit in [Fit::Exact, Fit::LineEnds] {
            if let Some(at) = self.find_as(hunk, old, from, fit)? {
                self.note_place(hunk, at, fit, number);
                return Ok((at, fit));
            }
        }
        Err(self.not_found(old, from))
    }

    fn find_as(&mut self, hunk: &Hunk, old: &[&Line], from: usize, fit: Fit) -> Result<Option<usize>, String> {
        let last = self.file.len().checked_sub(old.len()).filter(|last| *last >= from);
        let Some(last) = last else { return Ok(None) };
        if hunk.at_end {
            return Ok(self.fits(old, last, fit).then_some(last));
        }
        let said = hunk.numbers.map(|numbers| numbers.old_start.saturating_sub(1));
        if let Some(said) = said.filter(|said| (from..=last).contains(said))
            && self.fits(old, said, fit)
        {
            return Ok(Some(said));
        }
        let mut found = vec![];
        for at in from..=last {
            if self.compared > COMPARED_MAX {
                return Err("cannot be placed: the file repeats itself too often".into());
            }
            if self.fits(old, at, fit) {
                found.push(at);
                // An anchor says which: the first one behind it.
                if found.len() == PLACES_SHOWN_MAX || !hunk.anchors.is_empty() {
                    break;
                }
            }
        }
        match found[..] {
            [] => Ok(None),
            [one] => Ok(Some(one)),
            _ => Err(format!("fits in more than one place ({}); add lines around it", at_lines(&found))),
        }
    }

    fn fits(&mut self, old: &[&Line], at: usize, fit: Fit) -> bool {
        for (offset, line) in old.iter().enumerate() {
            self.compared += 1;
            if !self.line_fits(line, at + offset, fit) {
                return false;
            }
        }
        true
    }

    fn line_fits(&self, line: &Line, at: usize, fit: Fit) -> bool {
        let (body, ending) = (self.file.body(at), self.file.ending(at));
        match fit {
            Fit::LineEnds => trimmed(body) == trimmed(line.body.as_bytes()),
            Fit::Exact => {
                let same_end = match line.ending {
                    Ending::None => ending.is_empty(),
                    Ending::Crlf => ending == b"\r\n",
                    Ending::Lf => !ending.is_empty() && (!self.has_crlf || ending == b"\n"),
                };
                body == line.body.as_bytes() && same_end
            }
        }
    }

    fn note_place(&mut self, hunk: &Hunk, at: usize, fit: Fit, number: usize) {
        if let Some(numbers) = hunk.numbers.filter(|numbers| numbers.old_start.saturating_sub(1) != at) {
            let (found, said) = (at + 1, numbers.old_start);
            self.out.notes.push(format!("hunk #{number} was found at line {found}, not at line {said}"));
        }
        if fit == Fit::LineEnds {
            self.out.notes.push(format!("hunk #{number} fits but for whitespace at line ends"));
        }
    }

    fn copy_to(&mut self, at: usize) {
        (self.done..at).for_each(|line| self.file.write(line, &mut self.out.bytes));
        self.done = self.done.max(at);
    }

    /// Lines that stay are the file's own bytes; new ones end as the lines around them do.
    fn write(&mut self, hunk: &Hunk, fit: Fit, old: usize) {
        let ends_file = self.done + old == self.file.len() && self.file.is_open();
        let near = self.file.ending_near(self.done + old);
        for line in &hunk.lines {
            match line.op {
                Op::Remove => self.done += 1,
                Op::Keep => {
                    self.close_line(near);
                    self.file.write(self.done, &mut self.out.bytes);
                    self.done += 1;
                }
                Op::Add => {
                    self.close_line(near);
                    self.out.bytes.extend_from_slice(line.body.as_bytes());
                    self.out.bytes.extend_from_slice(match line.ending {
                        Ending::None => b"",
                        Ending::Crlf => b"\r\n",
                        Ending::Lf if self.has_crlf => b"\n",
                        Ending::Lf => near,
                    });
                }
            }
        }
        // The patch does not speak of the end that the file never had: it stays without.
        let says_so = hunk.lines.iter().any(|line| line.ending == Ending::None);
        if ends_file && fit == Fit::LineEnds && !says_so {
            let open = self.out.bytes.strip_suffix(b"\n").map(|line| line.strip_suffix(b"\r").unwrap_or(line).len());
            self.out.bytes.truncate(open.unwrap_or(self.out.bytes.len()));
        }
    }

    /// A last line without an end gets one when another line follows it.
    fn close_line(&mut self, near: &[u8]) {
        if self.out.bytes.last().is_some_and(|byte| *byte != b'\n') {
            self.out.bytes.extend_from_slice(near);
        }
    }

    /// Where most of the hunk's lines are, and the first that differs there.
    fn not_found(&self, old: &[&Line], from: usize) -> String {
        let wanted: Vec<&[u8]> = old.iter().map(|line| line.body.as_bytes()).collect();
        let file: Vec<&[u8]> = (from..self.file.len()).map(|at| self.file.body(at)).collect();
        let near = crate::nearest::nearest(&file, &wanted, from);
        format!(
            "does not fit: the lines it expects are not in the file. {near}Read the file again and make the patch anew."
        )
    }
}

fn at_lines(found: &[usize]) -> String {
    let lines: Vec<String> = found.iter().map(|at| (at + 1).to_string()).collect();
    let more = if found.len() >= PLACES_SHOWN_MAX { " and perhaps more" } else { "" };
    format!("lines {}{more}", lines.join(", "))
}

//! Where a text that was looked for almost is, to help whoever looked for it. It is a hint and never decides anything.

/// Lines of a file that are looked at, and of the text that is looked for.
const FILE_LINES_MAX: usize = 20_000;
const WANTED_LINES_MAX: usize = 50;
/// What is shown of a line.
const LINE_CHARS_MAX: usize = 120;

/// A sentence on the place where most of the lines stand, and on the first that differs there; empty where none does.
/// `first` is the number of lines before `file`.
pub(crate) fn nearest(file: &[&[u8]], wanted: &[&[u8]], first: usize) -> String {
    let wanted = &wanted[..wanted.len().min(WANTED_LINES_MAX)];
    let file = &file[..file.len().min(FILE_LINES_MAX)];
    let same = |at: usize, offset: usize| {
        file.get(at + offset).is_some_and(|line| line.trim_ascii() == wanted[offset].trim_ascii())
    };
    // A line of nothing but space tells nothing.
    let telling: Vec<usize> = (0..wanted.len()).filter(|offset| !wanted[*offset].trim_ascii().is_empty()).collect();
    let score = |at: usize| telling.iter().filter(|offset| same(at, **offset)).count();
    let best = (0..file.len()).map(|at| (score(at), at)).max_by_key(|(score, at)| (*score, std::cmp::Reverse(*at)));
    let Some((score, at)) = best.filter(|(score, _)| *score > 0) else { return String::new() };
    let differs = (0..wanted.len()).find(|offset| file.get(at + offset) != Some(&wanted[*offset]));
    let place =
        format!("The nearest place is at line {} ({score} of {} lines are alike)", first + at + 1, telling.len());
    match differs {
        None => format!("{place}. "),
        Some(offset) => {
            let found = file.get(at + offset).map_or("the end of the file".to_owned(), |line| shown(line));
            format!("{place}; line {} is {found} and not {}. ", first + at + offset + 1, shown(wanted[offset]))
        }
    }
}

/// A line between backquotes, cut where it is long; spaces that would not be seen are spelt.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let cut: String = text.chars().take(LINE_CHARS_MAX).collect();
    let more = if text.chars().count() > LINE_CHARS_MAX { "…" } else { "" };
    let cut = cut.replace('\t', "\\t").replace('\r', "\\r");
    format!("`{cut}{more}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        let file = [&b"fn a() {"[..], b"    one();", b"    two();", b"}"];
        let told = nearest(&file, &[b"fn a() {", b"    uno();", b"    two();"], 10);
        assert_eq!(
            told,
            "The nearest place is at line 11 (2 of 3 lines are alike); line 12 is `    one();` and not `    uno();`. "
        );
        assert_eq!(nearest(&file, &[b"nothing of this"], 0), "");
        assert_eq!(nearest(&[], &[b"x"], 0), "");
    }
}

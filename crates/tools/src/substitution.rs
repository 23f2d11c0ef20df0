//! One text in place of another, in units of any width. Line ends count as equal whether or not they have a carriage return,
//! unless the text that is looked for has one.

use crate::nearest::nearest;

/// Places that are named where several are found.
const PLACES_SHOWN_MAX: usize = 10;

/// What a text is made of: bytes, or the two-byte units of UTF-16.
pub(crate) trait Units: Copy + Eq + Sized {
    fn of_ascii(byte: u8) -> Self;

    /// As UTF-8, to be shown.
    fn shown(all: &[Self]) -> Vec<u8>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// It must be there once.
    One,
    All,
}

#[derive(Debug)]
pub(crate) struct Edited<U = u8> {
    pub(crate) bytes: Vec<U>,
    pub(crate) notes: Vec<String>,
    /// Where what was replaced began.
    pub(crate) starts: Vec<usize>,
}

/// A part of the file that is to be replaced.
#[derive(Clone, Copy)]
struct Span {
    from: usize,
    to: usize,
}

pub(crate) fn substitute<U: Units>(file: &[U], old: &[U], new: &[U], extent: Extent) -> Result<Edited<U>, String> {
    let (cr, lf) = (U::of_ascii(b'\r'), U::of_ascii(b'\n'));
    let literal = old.contains(&cr);
    let mut notes = vec![];
    let mut found = find(file, old, literal);
    let mut new = new;
    if found.is_empty()
        && let (Some(short), [.., last]) = (open_end(file, old, literal), old)
        && *last == lf
    {
        found.push(short);
        new = new.strip_suffix(&[lf]).unwrap_or(new);
        notes.push("the file has no line end at its end, and still has none".to_owned());
    }
    let line_of = |at: usize| file[..at].iter().filter(|unit| **unit == lf).count() + 1;
    match (found.len(), extent) {
        (0, _) => return Err(not_found(file, old)),
        (1, _) | (_, Extent::All) => {}
        (times, Extent::One) => {
            let lines: Vec<String> =
                found.iter().take(PLACES_SHOWN_MAX).map(|span| line_of(span.from).to_string()).collect();
            let more = if times > PLACES_SHOWN_MAX { " and more" } else { "" };
            return Err(format!(
                "old must be there once, and it is there {times} times, at lines {}{more}; give more lines around it, or \
                 all: true",
                lines.join(", ")
            ));
        }
    }
    let spans = without_overlap(found);
    if spans.len() > 1 {
        notes.push(format!("replaced in {} places", spans.len()));
    }
    let (mut bytes, mut done) = (Vec::with_capacity(file.len()), 0);
    for span in &spans {
        bytes.extend_from_slice(&file[done..span.from]);
        write_new(file, *span, new, literal, &mut bytes);
        done = span.to;
    }
    bytes.extend_from_slice(&file[done..]);
    Ok(Edited { bytes, notes, starts: spans.iter().map(|span| span.from).collect() })
}

/// Every place where it stands, also where two of them overlap.
fn find<U: Units>(file: &[U], old: &[U], literal: bool) -> Vec<Span> {
    let starts = (0..file.len()).filter(|at| file[*at] == old[0] || (!literal && file[*at] == U::of_ascii(b'\r')));
    starts.filter_map(|from| match_at(file, from, old, literal).map(|to| Span { from, to })).collect()
}

/// Where a match that begins here ends.
fn match_at<U: Units>(file: &[U], from: usize, old: &[U], literal: bool) -> Option<usize> {
    let (cr, lf) = (U::of_ascii(b'\r'), U::of_ascii(b'\n'));
    // Inside of a line end nothing begins.
    if !literal && from > 0 && file[from] == lf && file[from - 1] == cr {
        return None;
    }
    let mut at = from;
    for unit in old {
        if !literal && *unit == lf && file.get(at) == Some(&cr) && file.get(at + 1) == Some(&lf) {
            at += 1;
        }
        if file.get(at) != Some(unit) {
            return None;
        }
        at += 1;
    }
    Some(at)
}

/// The text without its last line end, where that is how the file ends.
fn open_end<U: Units>(file: &[U], old: &[U], literal: bool) -> Option<Span> {
    let short = old.split_last().map(|(_, short)| short).filter(|short| !short.is_empty())?;
    find(file, short, literal).into_iter().find(|span| span.to == file.len())
}

fn without_overlap(found: Vec<Span>) -> Vec<Span> {
    let mut spans: Vec<Span> = vec![];
    for span in found {
        if spans.last().is_none_or(|last| last.to <= span.from) {
            spans.push(span);
        }
    }
    spans
}

/// The new text with the line ends that stood there, one by one; further ones are as the last, or as that of the line.
fn write_new<U: Units>(file: &[U], span: Span, new: &[U], literal: bool, out: &mut Vec<U>) {
    let (cr, lf) = (U::of_ascii(b'\r'), U::of_ascii(b'\n'));
    let has_cr = |at: usize| at > 0 && file[at - 1] == cr;
    let ends = |range: std::ops::Range<usize>| range.filter(|at| file[*at] == lf).map(has_cr);
    let stood: Vec<bool> = ends(span.from..span.to).collect();
    let near = ends(span.to..file.len()).next().or_else(|| ends(0..span.from).last()).unwrap_or(false);
    let mut count = 0;
    for (at, unit) in new.iter().enumerate() {
        if *unit == lf && !literal && !(at > 0 && new[at - 1] == cr) {
            let crlf = stood.get(count).or(stood.last()).copied().unwrap_or(near);
            out.extend(crlf.then_some(cr));
            count += 1;
        }
        out.push(*unit);
    }
}

fn not_found<U: Units>(file: &[U], old: &[U]) -> String {
    let (file, old) = (U::shown(file), U::shown(old));
    let lines = |text: &'_ [u8]| -> Vec<Vec<u8>> {
        text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec()).collect()
    };
    let (file, old) = (lines(&file), lines(&old));
    let file: Vec<&[u8]> = file.iter().map(Vec::as_slice).collect();
    let old: Vec<&[u8]> = old.iter().map(Vec::as_slice).collect();
    let near = nearest(&file, &old, 0);
    format!("old is not in the file as it is given. {near}Read the file again and take the text from there.")
}

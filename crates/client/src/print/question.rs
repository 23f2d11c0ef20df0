//! What a person is shown of a call that waits for a yes: the command, or the change line by line. It reads no files.

use serde_json::Value;

use super::{Look, Tone, subject, tamed};

/// How much of a call is shown when it is asked about.
const CHARS_MAX: usize = 8000;
/// The head of what is longer than this may be out of sight when its end is read.
const HEAD_LOST_LINES: usize = 12;
/// Longer texts are not compared.
pub const COMPARED_BYTES_MAX: usize = 64 * 1024;

/// What a call that writes a file would replace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Before {
    /// There is no such file.
    Nothing,
    Text(String),
    /// There is something that cannot be shown: what it is.
    Hidden(String),
    /// Nobody could look.
    Unseen,
}

/// All of what is asked about. It is not cut to the width: a person must see what they allow.
pub fn question(data: &Value, before: &Before, look: &Look) -> String {
    let lines = asked_about(data, before);
    let shown = bounded(&lines, look);
    match shown.lines().count() > HEAD_LOST_LINES {
        true => format!("{shown}{}\n", look.paint(Tone::Ask, &look.line(&summary(data, &lines), 0))),
        false => shown,
    }
}

/// All in one line: tool, subject, and how many lines come and go.
fn summary(data: &Value, lines: &[Line]) -> String {
    let count =
        |sign: char| lines.iter().filter(|(tone, line)| *tone != Some(Tone::Name) && line.starts_with(sign)).count();
    let is_change = data["proposed"].is_object() || data["input"]["patch"].is_string();
    let counts = match is_change || data["input"]["content"].is_string() {
        true => format!("  +{} -{}", count('+'), count('-')),
        false => String::new(),
    };
    format!("{}  {}{counts}", data["name"].as_str().unwrap_or_default(), subject(data))
}

fn asked_about(data: &Value, before: &Before) -> Vec<Line> {
    // What the daemon has worked out itself is better than what a call says of itself.
    if let Some(diff) = data["proposed"]["diff"].as_str().filter(|diff| !diff.is_empty()) {
        return change(diff);
    }
    let input = &data["input"];
    match (&input["patch"], &input["path"], &input["content"]) {
        (Value::String(patch), _, _) => change(patch),
        (_, Value::String(path), Value::String(content)) => written(path, content, before),
        _ => subject(data).lines().map(|line| (None, line.to_owned())).collect(),
    }
}

type Line = (Option<Tone>, String);

fn change(patch: &str) -> Vec<Line> {
    patch.lines().map(|line| (tone_of_change(line), line.to_owned())).collect()
}

/// A file that is written whole: against what it holds now, where that is known.
fn written(path: &str, content: &str, before: &Before) -> Vec<Line> {
    let whole = || content.lines().map(|line| (Some(Tone::Good), format!("+{line}"))).collect();
    let (what, lines): (String, Vec<Line>) = match before {
        Before::Text(text) if text == content => ("nothing changes".into(), vec![]),
        Before::Text(text) if text.len().max(content.len()) <= COMPARED_BYTES_MAX => {
            ("changes".into(), difference(text, content))
        }
        Before::Text(_) => ("replaces what is there".into(), whole()),
        Before::Nothing => ("new file".into(), whole()),
        Before::Hidden(what) => (format!("replaces what is there: {what}"), whole()),
        Before::Unseen => ("replaces the file if there is one".into(), whole()),
    };
    let head = (Some(Tone::Name), format!("{path} ({what})"));
    std::iter::once(head).chain(lines).collect()
}

fn difference(before: &str, after: &str) -> Vec<Line> {
    let patch = diffy::create_patch(before, after).to_string();
    // Its head names no file; the line above does.
    patch.find("@@ ").map(|at| change(&patch[at..])).unwrap_or_default()
}

fn bounded(lines: &[Line], look: &Look) -> String {
    let (mut shown, mut room) = (String::new(), CHARS_MAX);
    for (at, (tone, line)) in lines.iter().enumerate() {
        let part: String = line.chars().take(room).collect();
        room -= part.chars().count();
        let tame = tamed(&part);
        shown.push_str(&format!("  {}\n", tone.map_or(tame.clone(), |tone| look.paint(tone, &tame))));
        if room == 0 {
            shown.push_str(&match lines.len() - at - 1 {
                0 if part.len() == line.len() => String::new(),
                0 => "  … the rest of this line is left out\n".into(),
                1 => "  … 1 more line is left out\n".into(),
                more => format!("  … {more} more lines are left out\n"),
            });
            break;
        }
    }
    shown
}

fn tone_of_change(line: &str) -> Option<Tone> {
    match line.as_bytes().first() {
        _ if line.starts_with("+++") || line.starts_with("---") => Some(Tone::Name),
        Some(b'+') => Some(Tone::Good),
        Some(b'-') => Some(Tone::Bad),
        Some(b'@') => Some(Tone::Faint),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn asked(content: &str, before: Before, expected: &str) {
        let data = json!({"name": "write_file", "input": {"path": "a.txt", "content": content}});
        assert_eq!(question(&data, &before, &Look::PLAIN), expected);
    }

    #[test]
    fn a_file_is_shown_against_what_it_replaces() {
        asked("one\n", Before::Nothing, "  a.txt (new file)\n  +one\n");
        asked("one\n", Before::Unseen, "  a.txt (replaces the file if there is one)\n  +one\n");
        asked("one\n", Before::Hidden("no text".into()), "  a.txt (replaces what is there: no text)\n  +one\n");
        asked("one\n", Before::Text("one\n".into()), "  a.txt (nothing changes)\n");
        asked(
            "one\n2\nthree\n",
            Before::Text("one\ntwo\nthree\n".into()),
            "  a.txt (changes)\n  @@ -1,3 +1,3 @@\n   one\n  -two\n  +2\n   three\n",
        );
    }

    #[test]
    fn a_long_question_is_told_again_at_its_end() {
        let (old, new) = ("old\n".repeat(30), "new\n".repeat(3));
        let data = json!({"name": "write_file", "input": {"path": "a.txt", "content": new}});
        let shown = question(&data, &Before::Text(old), &Look::PLAIN);
        assert_eq!(shown.lines().last(), Some("write_file  a.txt  +3 -30"));
        let patch = format!("--- a/b\n+++ b/b\n@@ -0,0 +1,20 @@\n{}", "+x\n".repeat(20));
        let data = json!({"name": "apply_patch", "input": {"patch": patch}});
        let shown = question(&data, &Before::Unseen, &Look::PLAIN);
        assert_eq!(shown.lines().last(), Some("apply_patch  b  +20 -0"));
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let line = "x".repeat(99);
        let text = format!("{line}\n").repeat(100);
        let data = json!({"input": {"path": "a", "content": text}});
        let shown = question(&data, &Before::Nothing, &Look::PLAIN);
        // The head has twelve characters, each line a hundred with its sign: the eightieth is cut.
        assert_eq!(shown.lines().count(), 83);
        assert_eq!(shown.lines().nth(81), Some("  … 20 more lines are left out"));
        let data = json!({"input": {"command": "y".repeat(9000)}});
        let shown = question(&data, &Before::Unseen, &Look::PLAIN);
        assert_eq!(shown.lines().last(), Some("  … the rest of this line is left out"));
    }
}

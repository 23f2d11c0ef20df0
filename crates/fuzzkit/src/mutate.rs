//! Ways in which an input goes wrong: bytes, lines and values. Every way is chosen by chance and knows no format.

use crate::{Dice, json};

/// Changes made to one input.
const CHANGES_MAX: usize = 4;
/// The largest input that is made.
const INPUT_BYTES_MAX: usize = 1 << 20;

/// A seed with some changes.
pub fn mutated(dice: &mut Dice, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = dice.pick(seeds).clone();
    for _ in 0..1 + dice.below(CHANGES_MAX) {
        match dice.below(10) {
            0..=2 => change_bytes(dice, &mut input),
            3 => change_lines(dice, &mut input),
            4 => change_text(dice, &mut input),
            5 => splice(dice, &mut input, seeds),
            _ => change_value(dice, &mut input),
        }
        input.truncate(INPUT_BYTES_MAX);
    }
    input
}

fn change_bytes(dice: &mut Dice, input: &mut Vec<u8>) {
    let range = dice.range(input.len(), 24);
    match dice.below(8) {
        0 if !range.is_empty() => input[range.start] ^= 1 << dice.below(8),
        1 => {
            input.drain(range);
        }
        2 => {
            let again = input[range.clone()].to_vec();
            input.splice(range.start..range.start, again);
        }
        3 => {
            let bytes: Vec<u8> = (0..1 + dice.below(8)).map(|_| dice.number() as u8).collect();
            input.splice(range.start..range.start, bytes);
        }
        4 => input.truncate(range.start),
        5 => input[range].fill(0),
        6 => {
            let long = vec![input.get(range.start).copied().unwrap_or(b'x'); *dice.pick(&[100, 600, 5000, 70_000])];
            input.splice(range.start..range.start, long);
        }
        _ if !range.is_empty() => input[range.start] = dice.number() as u8,
        _ => {}
    }
}

fn change_lines(dice: &mut Dice, input: &mut Vec<u8>) {
    let mut lines: Vec<Vec<u8>> = input.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    if lines.is_empty() {
        return;
    }
    let (one, other) = (dice.below(lines.len()), dice.below(lines.len()));
    match dice.below(6) {
        0 => lines.swap(one, other),
        1 => {
            lines.remove(one);
        }
        2 => lines.insert(other, lines[one].clone()),
        // The line end is gone, or was made elsewhere.
        3 => {
            lines[one].pop();
        }
        4 => lines = lines.iter().map(|line| [line.strip_suffix(b"\n").unwrap_or(line), b"\r\n"].concat()).collect(),
        _ => lines.rotate_left(one),
    }
    *input = lines.concat();
}

fn change_text(dice: &mut Dice, input: &mut Vec<u8>) {
    let at = dice.below(input.len() + 1);
    let text: &[u8] = match dice.below(3) {
        0 => b"\xef\xbb\xbf",
        1 => nasty_text(dice).as_bytes(),
        _ => {
            dice.pick::<&[u8]>(&[b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\0", b"\r", b"\n\n", b"\xe2\x80\xa8", b"\\"])
        }
    };
    let at = if text == b"\xef\xbb\xbf" { 0 } else { at };
    input.splice(at..at, text.iter().copied());
}

fn splice(dice: &mut Dice, input: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    let other = dice.pick(seeds).clone();
    let (here, there) = (dice.below(input.len() + 1), dice.below(other.len() + 1));
    input.truncate(here);
    input.extend_from_slice(&other[there..]);
}

/// Changes a value, its key, or the member that both make.
fn change_value(dice: &mut Dice, input: &mut Vec<u8>) {
    let values = json::values(input);
    if values.is_empty() {
        return change_bytes(dice, input);
    }
    let value = dice.pick(&values).clone();
    let other = dice.pick(&values).clone();
    let member = value.key.as_ref().map_or(value.span.start, |key| key.start)..value.span.end;
    match dice.below(8) {
        0..=2 => {
            input.splice(value.span, nasty_value(dice).into_bytes());
        }
        3 => {
            let comma = usize::from(input.get(member.end) == Some(&b','));
            input.drain(member.start..member.end + comma);
        }
        // The same key twice.
        4 => {
            let again = [&input[member.clone()], b","].concat();
            input.splice(member.start..member.start, again);
        }
        5 => {
            let copy = input[other.span].to_vec();
            input.splice(value.span, copy);
        }
        6 => {
            let new = format!("\"{}\":{},", nasty_text(dice).escape_default(), nasty_value(dice));
            input.splice(member.start..member.start, new.into_bytes());
        }
        _ => {
            let key = value.key.unwrap_or(value.span);
            input.splice(key, format!("\"{}\"", nasty_text(dice).escape_default()).into_bytes());
        }
    }
}

/// A JSON value at an edge of something.
pub fn nasty_value(dice: &mut Dice) -> String {
    let plain = [
        "null",
        "true",
        "false",
        "0",
        "-0",
        "-1",
        "1",
        "1.5",
        "1e2",
        "1e999",
        "-1e308",
        "0.1e-400",
        "\"\"",
        "[]",
        "{}",
        "255",
        "256",
        "65536",
        "4294967295",
        "4294967296",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "340282366920938463463374607431768211456",
        "\"1\"",
        "\"\\u0000\"",
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "[null]",
        "[[]]",
        "{\"\":{}}",
        "{\"a\":1,\"a\":2}",
        "\"2025-01-01T00:00:00Z\"",
        "\"9999-12-31T23:59:60Z\"",
        "NaN",
        "Infinity",
    ];
    match dice.below(12) {
        0 => format!("\"{}\"", nasty_text(dice).escape_default()),
        1 => nested(*dice.pick(&[20, 126, 127, 128, 129, 500, 20_000]), "[", "]"),
        2 => nested(*dice.pick(&[20, 126, 127, 128, 129, 500, 20_000]), "{\"a\":", "}"),
        3 => format!("\"{}\"", "x".repeat(*dice.pick(&[255, 256, 4096, 70_000]))),
        4 => dice.number().to_string(),
        _ => (*dice.pick(&plain)).to_owned(),
    }
}

fn nested(depth: usize, opens: &str, closes: &str) -> String {
    format!("{}0{}", opens.repeat(depth), closes.repeat(depth))
}

/// A text that has hurt somebody before.
pub fn nasty_text(dice: &mut Dice) -> &'static str {
    const TEXTS: &[&str] = &[
        "",
        " ",
        "\0",
        "..",
        "../../etc/passwd",
        "/etc/passwd",
        "a/../b",
        "C:\\x",
        "~",
        "$HOME",
        "`id`",
        "%00",
        "%2e%2e%2f",
        "\u{202e}",
        "\u{feff}",
        "é",
        "e\u{301}",
        "😀",
        "\u{10ffff}",
        "\u{2028}",
        "${secret:X}",
        "null",
        "true",
        "-1",
        "0x10",
        "1_000",
        "sess_",
        "sess_00000000000000000000000000",
        "sess_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
        "turn_01JGFJJZ000000000100000000",
        "call_01jgfjjz000000000100000000",
        "type",
        "seq",
        "id",
        "__proto__",
        "a\nb",
        "a\rb",
        "\u{1b}[31m",
        "\"",
        "\\",
    ];
    TEXTS[dice.below(TEXTS.len())]
}

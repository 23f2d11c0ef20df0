//! Finds the values in anything that looks a little like JSON, without asking whether it is. Bytes outside of them stay
//! as they are when one is changed.

use std::ops::Range;

/// A value in a text, and the key before it if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Value {
    pub span: Range<usize>,
    pub key: Option<Range<usize>>,
}

/// All values, outer ones too, in the order of their ends.
pub(crate) fn values(text: &[u8]) -> Vec<Value> {
    let mut found = Vec::new();
    let mut open: Vec<(usize, Option<Range<usize>>)> = Vec::new();
    let mut key = None;
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'{' | b'[' => {
                open.push((at, key.take()));
                at += 1;
            }
            b'}' | b']' => {
                at += 1;
                if let Some((start, key)) = open.pop() {
                    found.push(Value { span: start..at, key });
                }
            }
            b'"' => {
                let span = at..string_end(text, at);
                at = span.end;
                match text.get(at) {
                    Some(b':') => key = Some(span),
                    _ => found.push(Value { span, key: key.take() }),
                }
            }
            b'0'..=b'9' | b'-' | b'a'..=b'z' => {
                let length = text[at..].iter().take_while(|byte| is_plain(**byte)).count();
                found.push(Value { span: at..at + length, key: key.take() });
                at += length;
            }
            _ => at += 1,
        }
    }
    found
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.' | b'_')
}

fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            b'\n' => return at,
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_their_keys_are_found() {
        let text = br#"{"a":[1,"x\"y"],"b":null}"#;
        let found: Vec<_> = values(text)
            .into_iter()
            .map(|value| {
                let part = |span: Range<usize>| std::str::from_utf8(&text[span]).unwrap();
                (value.key.map(part), part(value.span))
            })
            .collect();
        let expected = [
            (None, "1"),
            (None, r#""x\"y""#),
            (Some("\"a\""), r#"[1,"x\"y"]"#),
            (Some("\"b\""), "null"),
            (None, std::str::from_utf8(text).unwrap()),
        ];
        assert_eq!(found, expected);
    }
}

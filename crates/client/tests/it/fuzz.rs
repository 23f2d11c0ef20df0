//! What a daemon, or something in its place, may send: read the same wherever it is cut, and as the standard says.

use tenure_client::{
    discover,
    sse::{Frame, Parser},
};
use tenure_fuzzkit::{Dice, target};

#[test]
fn sse() {
    target!("sse").cases(600).run_with(|input, dice| {
        let expected = reference(input);
        assert_eq!(parsed([input].into_iter()), expected, "not as the standard says");
        assert_eq!(parsed(input.chunks(1)), expected, "byte by byte");
        assert_eq!(parsed(pieces(input, dice).into_iter()), expected, "in pieces");
    });
}

fn parsed<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Frame> {
    let mut parser = Parser::default();
    let mut all = vec![];
    for chunk in chunks {
        parser.push(chunk).unwrap();
        all.extend(std::iter::from_fn(|| parser.take()));
    }
    all
}

fn pieces<'a>(mut input: &'a [u8], dice: &mut Dice) -> Vec<&'a [u8]> {
    let mut pieces = vec![];
    while !input.is_empty() {
        let (piece, rest) = input.split_at(1 + dice.below(input.len().min(40)));
        pieces.push(piece);
        input = rest;
    }
    pieces
}

/// The standard's algorithm, over the whole text at once.
fn reference(input: &[u8]) -> Vec<Frame> {
    let input = input.strip_prefix(b"\xef\xbb\xbf").unwrap_or(input);
    let text = String::from_utf8_lossy(input).replace("\r\n", "\n").replace('\r', "\n");
    let Some((whole, _)) = text.rsplit_once('\n') else { return vec![] };
    let (mut frames, mut id, mut event, mut data) = (vec![], None, String::new(), Vec::<&str>::new());
    for line in whole.split('\n') {
        if line.is_empty() {
            let name = std::mem::take(&mut event);
            let event = if name.is_empty() { "message".into() } else { name };
            let lines = std::mem::take(&mut data);
            let id = id.take();
            if !lines.is_empty() {
                frames.push(Frame { id, event, data: lines.join("\n") });
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => event = value.into(),
            "data" => data.push(value),
            "id" if !value.contains('\0') => id = Some(value.into()),
            _ => {}
        }
    }
    frames
}

#[test]
fn note() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join(discover::TOKEN_FILE), "abc\n").unwrap();
    target!("note").cases(500).run(|input| {
        std::fs::write(data.path().join(discover::NOTE_FILE), input).unwrap();
        match discover::read(data.path()) {
            // Nothing in the corpus was written by a process that lives.
            Ok(running) => assert!(discover::is_current(&running.note)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

#[test]
fn fingerprint() {
    target!("fingerprint").cases(1000).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let Ok(trust) = tenure_client::Trust::fingerprint(text) else { return };
        let plain: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        assert_eq!(tenure_client::Trust::fingerprint(&plain), Ok(trust), "the digits alone say the same");
    });
}

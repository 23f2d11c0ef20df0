//! What a peer may send: read the same wherever it is cut, and as the standard says.

use tenure_fuzzkit::{Dice, target};
use tenure_sse::{Frame, Parser};

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

//! OpenAI's public vocabulary. It takes a good part of a second to load and some 40 MB as long as it lives.

use tiktoken_rs::CoreBPE;

/// Text is counted in pieces of this many bytes: the time for a piece may grow with its square.
const PIECE_BYTES: usize = 4 * 1024;

pub(super) struct Vocabulary(CoreBPE);

impl Vocabulary {
    pub(super) fn load() -> Self {
        Self(tiktoken_rs::o200k_base().expect("the vocabulary is a part of the program"))
    }

    /// Tokens of a text; those that a cut splits count twice.
    pub(super) fn count(&self, text: &str) -> u64 {
        pieces(text).map(|piece| self.0.encode_ordinary(piece).len() as u64).sum()
    }
}

/// Pieces that end before a space, where there is one: no token goes across it.
fn pieces(mut text: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let mut end = text.floor_char_boundary(PIECE_BYTES);
        if end < text.len() {
            end = text[..end].rfind(char::is_whitespace).filter(|at| *at > 0).unwrap_or(end);
        }
        let (piece, rest) = text.split_at(end);
        text = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_text_and_none_is_long() {
        let words = "some words ".repeat(2_000);
        for text in ["", "short", &words, &"é".repeat(9_000), &" ".repeat(9_000), &format!(" {}", "x".repeat(9_000))] {
            let all: Vec<&str> = pieces(text).collect();
            assert_eq!(all.concat(), *text);
            assert!(all.iter().all(|piece| piece.len() <= PIECE_BYTES));
        }
        assert!(pieces(&words).skip(1).all(|piece| piece.starts_with(' ')));
    }

    #[test]
    fn cuts_hardly_show() {
        let vocabulary = Vocabulary::load();
        let source = include_str!("counter.rs").repeat(4);
        let whole = vocabulary.0.encode_ordinary(&source).len() as u64;
        let counted = vocabulary.count(&source);
        assert!(whole.abs_diff(counted) * 500 < whole, "{counted} for {whole}");
    }
}

//! What a text is about: the paths and names it mentions, and its words. Nothing is looked up here.

use std::collections::BTreeSet;

/// What is read of a text.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Different words that are taken from it.
const WORDS_MAX: usize = 400;
const WORD_CHARS_MIN: usize = 3;

/// Words that say nothing about code, beside those that are too short.
const EMPTY_WORDS: &[&str] = &[
    "about", "add", "after", "all", "also", "and", "any", "are", "because", "been", "before", "but", "can", "change",
    "code", "could", "does", "file", "files", "fix", "for", "from", "has", "have", "how", "into", "its", "let", "like",
    "make", "more", "must", "new", "not", "now", "off", "one", "only", "other", "our", "out", "please", "should",
    "some", "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "too", "under", "use",
    "want", "was", "way", "were", "what", "when", "where", "which", "who", "why", "will", "with", "work", "would",
    "you", "your",
];

/// What a text mentions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Focus {
    /// As they stand in the text, without what surrounds them.
    mentions: BTreeSet<String>,
    /// Names as code has them.
    names: BTreeSet<String>,
    /// Lower-case parts of names, and plain words.
    words: BTreeSet<String>,
}

impl Focus {
    pub fn of_text(text: &str) -> Focus {
        let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
        let mut focus = Focus::default();
        for piece in text.split(|c: char| c.is_whitespace() || "()[]{}<>\"'`,;|".contains(c)) {
            let piece = piece.trim_matches(|c: char| ".:!?*#".contains(c)).trim_start_matches("./");
            if focus.words.len() >= WORDS_MAX {
                break;
            }
            if piece.contains(['/', '.']) {
                focus.mentions.insert(piece.trim_end_matches('/').to_owned());
            }
            for name in piece.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|name| long_enough(name)) {
                focus.names.insert(name.to_owned());
                focus.words.extend(words_of(name).filter(|word| !EMPTY_WORDS.contains(&word.as_str())));
            }
        }
        focus
    }

    pub fn is_empty(&self) -> bool {
        self.words.is_empty() && self.mentions.is_empty()
    }

    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.words.iter().map(String::as_str)
    }

    /// Whether the text speaks of this name as it is written.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Whether the text speaks of this file: by its path, the end of it, a folder above it, or its name without ending.
    pub(crate) fn mentions(&self, path: &str) -> bool {
        let whole_end = |mention: &str| {
            path.strip_suffix(mention).is_some_and(|before| before.is_empty() || before.ends_with('/'))
                || path.strip_prefix(mention).is_some_and(|after| after.starts_with('/'))
        };
        self.mentions.iter().any(|mention| !mention.is_empty() && whole_end(mention))
            || stem(path).is_some_and(|stem| long_enough(stem) && self.names.contains(stem))
    }
}

fn stem(path: &str) -> Option<&str> {
    path.rsplit('/').next()?.split('.').next()
}

fn long_enough(name: &str) -> bool {
    name.chars().take(WORD_CHARS_MIN).count() == WORD_CHARS_MIN
}

/// The words of a name, in lower case: those between underscores, and those that a capital letter begins.
pub(crate) fn words_of(name: &str) -> impl Iterator<Item = String> {
    let mut words: Vec<String> = vec![];
    let mut word = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if !c.is_alphanumeric() || (c.is_uppercase() && before.is_lowercase()) {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.push(word);
    words.into_iter().filter(|word| long_enough(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_names_and_words_are_found() {
        let focus = Focus::of_text("Please fix `parseHeader` in ./src/net/http.rs, see retry_policy (and tools/).");
        assert!(focus.mentions("src/net/http.rs") && focus.mentions("crates/a/src/net/http.rs"));
        assert!(focus.mentions("tools/x.py") && focus.mentions("x/retry_policy.go"));
        assert!(!focus.mentions("src/net/other.rs") && !focus.mentions("mytools/x.py"));
        assert!(focus.names("parseHeader") && !focus.names("parse"));
        let words: Vec<&str> = focus.words().collect();
        assert_eq!(words, ["header", "http", "net", "parse", "policy", "retry", "see", "src", "tools"]);
    }

    #[test]
    fn any_text_will_do() {
        assert!(Focus::of_text("").is_empty());
        assert!(Focus::of_text("is it ok? ... /").mentions.iter().all(String::is_empty));
        let long = "wörter ".repeat(100_000);
        assert_eq!(Focus::of_text(&long).words().collect::<Vec<_>>(), ["wörter"]);
    }
}

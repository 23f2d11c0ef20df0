//! Keeps known secrets out of everything that is written or shown, also when a stream cuts one in two.

use std::{borrow::Cow, collections::BTreeSet, sync::Arc};

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use serde_json::Value;

/// Shorter values are too common to be taken for secrets.
pub const SECRET_BYTES_MIN: usize = 8;

/// A key that a user has given to a vendor is one for sure; but what is shorter still stands in every text.
pub const KEY_BYTES_MIN: usize = 4;

/// Longer secrets are looked for with a smaller table.
const TABLE_BYTES_MAX: usize = 1024;

/// Known secrets by name. Written as `${secret:NAME}`; put back only when a tool starts.
#[derive(Debug, Clone, Default)]
pub struct Secrets(Arc<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The longest first.
    all: Vec<Secret>,
    /// Finds any of them in one pass, whatever their number; not there where there is none.
    finder: Option<AhoCorasick>,
}

#[derive(Clone)]
struct Secret {
    name: String,
    mark: String,
    value: String,
    /// For each beginning of the value, by its length less one: how long the longest shorter beginning is that it ends with.
    borders: Arc<[u32]>,
}

impl Secret {
    fn new(name: String, value: String) -> Self {
        let borders = borders(value.as_bytes()).into();
        Self { mark: format!("${{secret:{name}}}"), name, value, borders }
    }

    /// How many of the last bytes of a text are a beginning of this secret: in one pass, however alike its letters are.
    /// The text is shorter than the secret.
    fn begun_at_end(&self, text: &[u8]) -> usize {
        text.iter().fold(0, |matched, byte| grown(self.value.as_bytes(), &self.borders, matched, *byte))
    }
}

/// How much of a value is matched when one more byte comes: more than before, or what a border leaves.
fn grown(value: &[u8], borders: &[u32], mut matched: usize, byte: u8) -> usize {
    loop {
        match matched {
            _ if value.get(matched) == Some(&byte) => return matched + 1,
            0 => return 0,
            _ => matched = borders[matched - 1] as usize,
        }
    }
}

fn borders(value: &[u8]) -> Vec<u32> {
    let mut borders = Vec::with_capacity(value.len());
    for (at, byte) in value.iter().enumerate() {
        let border = match borders.last() {
            None => 0,
            Some(last) => grown(&value[..at], &borders, *last as usize, *byte),
        };
        // A secret is far shorter than that.
        borders.push(u32::try_from(border).unwrap_or(0));
    }
    borders
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.mark)
    }
}

/// Whether a variable of this name is likely to hold a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let words = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS"];
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|part| words.iter().any(|word| part == *word || part.ends_with(word)))
}

/// The names of all marks that stand in a text.
pub fn marks_in(text: &str) -> impl Iterator<Item = &str> {
    text.split("${secret:").skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name))
}

impl Secrets {
    pub fn new(named: impl IntoIterator<Item = (String, String)>) -> Self {
        let named = named.into_iter().filter(|(_, value)| value.len() >= SECRET_BYTES_MIN);
        Self::of(named.map(|(name, value)| Secret::new(name, value)).collect())
    }

    /// The same, with keys that are known to be some.
    pub fn with_keys(
        named: impl IntoIterator<Item = (String, String)>,
        keys: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let named = named.into_iter().filter(|(_, value)| value.len() >= SECRET_BYTES_MIN);
        let keys = keys.into_iter().filter(|(_, value)| value.len() >= KEY_BYTES_MIN);
        Self::of(named.chain(keys).map(|(name, value)| Secret::new(name, value)).collect())
    }

    fn of(mut all: Vec<Secret>) -> Self {
        // Where one secret holds another, the longer one is named.
        all.sort_by(|a, b| b.value.len().cmp(&a.value.len()).then(a.mark.cmp(&b.mark)));
        all.dedup_by(|a, b| a.value == b.value);
        // The fastest table takes the square of a secret's length to make if its letters are alike.
        let is_long = all.first().is_some_and(|longest| longest.value.len() > TABLE_BYTES_MAX);
        let kind = is_long.then_some(AhoCorasickKind::ContiguousNFA);
        let mut builder = AhoCorasick::builder();
        let builder = builder.match_kind(MatchKind::LeftmostLongest).kind(kind).build(all.iter().map(|one| &one.value));
        // It fails for more text than a machine's environment can hold.
        let finder = builder.ok().filter(|_| !all.is_empty());
        Self(Arc::new(Known { all, finder }))
    }

    pub fn is_empty(&self) -> bool {
        self.0.all.is_empty()
    }

    /// Those of these names alone.
    pub fn only(&self, names: &[String]) -> Secrets {
        Self::of(self.0.all.iter().filter(|secret| names.contains(&secret.name)).cloned().collect())
    }

    /// The same secrets, also as they are spelled inside a JSON string: for arguments that stream in as text.
    pub fn in_json(&self) -> Secrets {
        let spelled = |secret: &Secret| {
            let quoted = Value::from(secret.value.as_str()).to_string();
            Secret::new(secret.name.clone(), quoted[1..quoted.len() - 1].to_owned())
        };
        Self::of(self.0.all.iter().flat_map(|secret| [spelled(secret), secret.clone()]).collect())
    }

    /// Every secret in a text, from its first byte to behind its last.
    fn found_in<'a>(&'a self, text: &'a str) -> impl Iterator<Item = (usize, usize, &'a Secret)> {
        let found = self.0.finder.as_ref().map(|finder| finder.find_iter(text));
        found.into_iter().flatten().map(|found| (found.start(), found.end(), &self.0.all[found.pattern().as_usize()]))
    }

    /// The names of the secrets whose values stand in a text.
    pub fn names_in(&self, text: &str) -> BTreeSet<String> {
        self.found_in(text).map(|(_, _, secret)| secret.name.clone()).collect()
    }

    /// The same for every string inside a JSON value.
    pub fn names_in_json(&self, value: &Value) -> BTreeSet<String> {
        match value {
            Value::String(text) => self.names_in(text),
            Value::Array(items) => items.iter().flat_map(|item| self.names_in_json(item)).collect(),
            Value::Object(fields) => fields
                .iter()
                .flat_map(|(key, field)| [self.names_in(key), self.names_in_json(field)])
                .flatten()
                .collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => BTreeSet::new(),
        }
    }

    /// The text with every known secret replaced by its mark.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let (mut out, mut done) = (String::new(), 0);
        for (start, end, secret) in self.found_in(text) {
            out.push_str(&text[done..start]);
            out.push_str(&secret.mark);
            done = end;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        out.push_str(&text[done..]);
        Cow::Owned(out)
    }

    /// Redacts every string inside a JSON value, object keys included.
    pub fn redact_json(&self, value: &mut Value) {
        self.map_strings(value, &|text| match self.redact(text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted),
        });
    }

    /// Puts the secrets back: only for the input of a tool that is about to start.
    pub fn restore_json(&self, value: &mut Value) {
        self.map_strings(value, &|text| {
            let mut out = Cow::Borrowed(text);
            for secret in &self.0.all {
                if out.contains(&secret.mark) {
                    out = Cow::Owned(out.replace(&secret.mark, &secret.value));
                }
            }
            match out {
                Cow::Borrowed(_) => None,
                Cow::Owned(restored) => Some(restored),
            }
        });
    }

    fn map_strings(&self, value: &mut Value, change: &dyn Fn(&str) -> Option<String>) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Some(changed) = change(text) {
                    *text = changed;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.map_strings(item, change)),
            Value::Object(fields) => {
                let keys: Vec<(String, String)> =
                    fields.keys().filter_map(|key| change(key).map(|new| (key.clone(), new))).collect();
                for (old, new) in keys {
                    if let Some(field) = fields.remove(&old) {
                        fields.insert(new, field);
                    }
                }
                fields.values_mut().for_each(|field| self.map_strings(field, change));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Redacts a stream: text that may be the beginning of a secret is held back until it is clear.
#[derive(Debug, Default)]
pub struct StreamRedactor {
    secrets: Secrets,
    held: String,
}

impl StreamRedactor {
    pub fn new(secrets: Secrets) -> Self {
        Self { secrets, held: String::new() }
    }

    /// What can be shown now that `chunk` has come.
    pub fn push(&mut self, chunk: &str) -> String {
        if self.secrets.is_empty() {
            return chunk.to_owned();
        }
        self.held.push_str(chunk);
        let (mut out, mut done, mut unclear) = (String::new(), 0, self.unclear_from(0));
        for (start, end, secret) in self.secrets.found_in(&self.held) {
            if unclear < done {
                unclear = self.unclear_from(done);
            }
            // A longer secret may begin before this match, or with it, and still be growing.
            if unclear <= start {
                break;
            }
            out.push_str(&self.held[done..start]);
            out.push_str(&secret.mark);
            done = end;
        }
        let clear = self.unclear_from(done);
        out.push_str(&self.held[done..clear]);
        self.held.drain(..clear);
        out
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// What was held back, at the stream's end.
    pub fn finish(&mut self) -> String {
        let held = std::mem::take(&mut self.held);
        self.secrets.redact(&held).into_owned()
    }

    /// The first byte, from `start` on, of the longest tail that a longer secret begins with.
    fn unclear_from(&self, start: usize) -> usize {
        let tail = |secret: &Secret| {
            let from = start.max(self.held.len().saturating_sub(secret.value.len() - 1));
            secret.begun_at_end(&self.held.as_bytes()[from..])
        };
        self.held.len() - self.secrets.0.all.iter().map(tail).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_kept_out_from_four_bytes_on() {
        let of = |value: &str| vec![("A_KEY".to_owned(), value.to_owned())];
        assert_eq!(Secrets::with_keys([], of("k7x2")).redact("bad key k7x2!"), "bad key ${secret:A_KEY}!");
        assert_eq!(Secrets::with_keys([], of("abc")).redact("abc"), "abc");
        assert_eq!(Secrets::with_keys(of("abc1234"), []).redact("abc1234"), "abc1234");
    }

    fn secrets() -> Secrets {
        let named = [("API_KEY", "sk-abcdef123"), ("LONG_KEY", "sk-abcdef123-long"), ("SHORT_KEY", "abc")];
        Secrets::new(named.map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn the_longest_secret_is_named_and_short_ones_are_left() {
        assert_eq!(secrets().redact("a sk-abcdef123-long b abc"), "a ${secret:LONG_KEY} b abc");
        assert_eq!(secrets().redact("sk-abcdef123sk-abcdef123"), "${secret:API_KEY}${secret:API_KEY}");
    }

    #[test]
    fn json_comes_back_as_it_was() {
        let before = serde_json::json!({"command": "curl -H sk-abcdef123", "list": ["x", {"sk-abcdef123": 1}]});
        let mut value = before.clone();
        secrets().redact_json(&mut value);
        assert!(!value.to_string().contains("sk-abc"));
        secrets().restore_json(&mut value);
        assert_eq!(value, before);
    }

    #[test]
    fn a_secret_is_known_as_json_spells_it() {
        let secrets = Secrets::new([("KEY".to_owned(), "pa\"ss\\word".to_owned())]);
        let spelled = serde_json::json!({ "x": "pa\"ss\\word" }).to_string();
        assert_eq!(secrets.in_json().redact(&spelled), r#"{"x":"${secret:KEY}"}"#);
        assert_eq!(secrets.in_json().redact("pa\"ss\\word"), "${secret:KEY}");
    }

    #[test]
    fn names() {
        for (name, secret) in [
            ("OPENAI_API_KEY", true),
            ("GITHUB_TOKEN", true),
            ("DB_PASSWORD", true),
            ("MYAPIKEY", true),
            ("KEYBOARD", false),
            ("PATH", false),
            ("TOKENIZERS_PARALLELISM", false),
        ] {
            assert_eq!(is_secret_name(name), secret, "{name}");
        }
    }

    /// Every tail would be compared to its end if it were not for the borders: hours.
    #[test]
    fn a_long_secret_of_equal_letters_is_found_in_one_pass() {
        let secret = "a".repeat(1 << 20);
        let mut stream = StreamRedactor::new(Secrets::new([("KEY".to_owned(), secret.clone())]));
        let text = format!("{}b{}", &secret[1..], &secret[2..]);
        assert_eq!(stream.push(&text), text[..1 << 20]);
        assert_eq!(stream.push("aa."), "${secret:KEY}.");
        assert_eq!(stream.finish(), "");
    }

    #[test]
    fn borders_are_the_longest() {
        for (value, expected) in [("aabaaab", [0, 1, 0, 1, 2, 2, 3]), ("abcdabc", [0, 0, 0, 0, 1, 2, 3])] {
            assert_eq!(borders(value.as_bytes()), expected, "{value}");
        }
    }

    proptest! {
        /// Over two letters nearly every tail is the beginning of some secret.
        #[test]
        fn secrets_of_few_letters_are_found_in_pieces(
            text in "[ab]{0,60}", known in proptest::collection::vec("[ab]{8,12}", 1..4), size in 1usize..9,
        ) {
            let secrets = Secrets::new(known.into_iter().enumerate().map(|(at, value)| (format!("K{at}"), value)));
            let mut stream = StreamRedactor::new(secrets.clone());
            let mut shown: String = text.as_bytes().chunks(size).map(|part| stream.push(str::from_utf8(part).unwrap())).collect();
            shown.push_str(&stream.finish());
            prop_assert_eq!(shown, secrets.redact(&text));
        }

        #[test]
        fn a_stream_cut_anywhere_shows_what_the_whole_would(cuts in proptest::collection::vec(0usize..60, 0..8)) {
            let text = "ä sk-abcdef12 sk-abcdef123 x sk-abcdef123-lon sk-abcdef123-long!";
            let mut at: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut)).collect();
            at.push(0);
            at.push(text.len());
            at.sort_unstable();
            let mut stream = StreamRedactor::new(secrets());
            let mut shown = String::new();
            for pair in at.windows(2) {
                shown.push_str(&stream.push(&text[pair[0]..pair[1]]));
            }
            shown.push_str(&stream.finish());
            prop_assert_eq!(shown, secrets().redact(text));
        }
    }
}

//! Chooses the pieces of files that a task is most likely about: symbols whose names, signatures and paths have the
//! task's words, rare words more than common ones. It reads no file.

use std::collections::{HashMap, HashSet};

use crate::{
    focus::{Focus, words_of},
    rank::Ranked,
    survey::Survey,
    tags::Shape,
};

/// Lines of one chunk; what a symbol has beyond is left out.
const LINES_MAX: u32 = 80;
const CHUNKS_MAX: usize = 24;
const CHUNKS_OF_FILE_MAX: usize = 3;
/// A chunk that fits so much worse than the best one is about something else.
const WORTH_MIN: f64 = 0.4;
/// The usual constants of this way of scoring: how soon more of a word stops helping, how much long texts lose.
const SATURATION: f64 = 1.2;
const LENGTH: f64 = 0.75;
/// A word in the name counts for so many in the signature or the path.
const IN_NAME: f64 = 3.0;
const NAMED: f64 = 2.0;
const MENTIONED: f64 = 1.5;

/// Lines of a file, counted from 1, both ends included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub path: String,
    pub name: String,
    pub first_line: u32,
    pub last_line: u32,
    /// The symbol goes on after the last line.
    pub cut: bool,
}

/// The chunks for a task, the best first.
pub fn choose(survey: &Survey, ranked: &Ranked, focus: &Focus) -> Vec<Chunk> {
    let wanted: HashSet<&str> = focus.words().collect();
    let texts = texts(survey, &wanted);
    let rarity = rarity(&texts);
    let length = texts.iter().map(|text| text.length).sum::<f64>() / texts.len().max(1) as f64;
    let most = ranked.files.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let score = |text: &Text| {
        let source = &survey.files[text.file];
        let definition = &source.tags.definitions[text.definition];
        let named = if focus.names(&definition.name) { NAMED } else { 1.0 };
        let mentioned = if focus.mentions(&source.path) { MENTIONED } else { 1.0 };
        let rank = ranked.files.get(text.file).copied().unwrap_or(0.0) / most;
        text.score(&rarity, length) * named * mentioned * (1.0 + rank / 2.0)
    };
    let mut scored: Vec<(f64, &Text)> =
        texts.iter().map(|text| (score(text), text)).filter(|(s, _)| *s > 0.0).collect();
    scored.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let best = scored.first().map_or(0.0, |(score, _)| *score);
    pick(survey, scored.into_iter().filter(|(score, _)| *score >= best * WORTH_MIN).map(|(_, text)| text))
}

/// Takes them in order, none inside another, and not too many of one file.
fn pick<'t>(survey: &Survey, texts: impl Iterator<Item = &'t Text<'t>>) -> Vec<Chunk> {
    let mut chosen: Vec<Chunk> = vec![];
    for text in texts {
        let source = &survey.files[text.file];
        let definition = &source.tags.definitions[text.definition];
        let last_line = definition.last_line.min(definition.first_line.saturating_add(LINES_MAX - 1));
        let of_file: Vec<&Chunk> = chosen.iter().filter(|chunk| chunk.path == source.path).collect();
        let overlaps = |chunk: &&Chunk| chunk.first_line <= last_line && definition.first_line <= chunk.last_line;
        if of_file.len() >= CHUNKS_OF_FILE_MAX || of_file.iter().any(overlaps) {
            continue;
        }
        chosen.push(Chunk {
            path: source.path.clone(),
            name: definition.name.to_string(),
            first_line: definition.first_line,
            last_line,
            cut: last_line < definition.last_line,
        });
        if chosen.len() >= CHUNKS_MAX {
            break;
        }
    }
    chosen
}

/// What is known of a symbol in words, as far as they are wanted.
struct Text<'w> {
    file: usize,
    definition: usize,
    counts: HashMap<&'w str, f64>,
    /// In words, wanted or not.
    length: f64,
}

impl Text<'_> {
    fn score(&self, rarity: &HashMap<&str, f64>, length: f64) -> f64 {
        let one = |(word, count): (&&str, &f64)| {
            let norm = SATURATION * (1.0 - LENGTH + LENGTH * self.length / length);
            rarity.get(word).copied().unwrap_or(0.0) * count * (SATURATION + 1.0) / (count + norm)
        };
        // In one order, since sums of fractions depend on it.
        let mut parts: Vec<f64> = self.counts.iter().map(one).collect();
        parts.sort_by(f64::total_cmp);
        parts.into_iter().sum()
    }
}

fn texts<'w>(survey: &Survey, wanted: &HashSet<&'w str>) -> Vec<Text<'w>> {
    let mut texts = vec![];
    for (file, source) in survey.files.iter().enumerate() {
        let path: Vec<String> = words_of(&source.path).collect();
        for (at, definition) in source.tags.definitions.iter().enumerate().filter(|(_, one)| one.shape != Shape::Group)
        {
            let mut text = Text { file, definition: at, counts: HashMap::new(), length: 0.0 };
            let mut add = |word: &str, weight: f64| {
                text.length += 1.0;
                if let Some(word) = wanted.get(word) {
                    *text.counts.entry(word).or_default() += weight;
                }
            };
            path.iter().for_each(|word| add(word, 1.0));
            words_of(&definition.name).for_each(|word| add(&word, IN_NAME));
            words_of(&definition.signature).for_each(|word| add(&word, 1.0));
            texts.push(text);
        }
    }
    texts
}

fn rarity<'w>(texts: &[Text<'w>]) -> HashMap<&'w str, f64> {
    let mut having: HashMap<&str, f64> = HashMap::new();
    texts.iter().flat_map(|text| text.counts.keys()).for_each(|word| *having.entry(*word).or_default() += 1.0);
    let all = texts.len() as f64;
    having.into_iter().map(|(word, count)| (word, (1.0 + (all - count + 0.5) / (count + 0.5)).ln())).collect()
}

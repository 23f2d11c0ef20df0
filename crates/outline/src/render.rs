//! Writes the outline: paths, and below each the signatures of its chosen symbols, as many as the budget holds.

use std::collections::{BTreeSet, HashMap};

use crate::{rank::Ranked, survey::Survey, tokens};

/// What one symbol takes at least: its line number and a name.
const SYMBOL_TOKENS_MIN: usize = 2;

/// An outline, and what it is of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outline {
    pub text: String,
    pub symbols_shown: usize,
    pub files_shown: usize,
    pub symbols: usize,
    pub files: usize,
}

/// The most important symbols, cut to the budget.
pub fn outline(survey: &Survey, ranked: &Ranked, tokens_max: usize) -> Outline {
    // The most that can fit, by halving: one symbol more never makes it shorter.
    let (mut fits, mut beyond) = (0, ranked.symbols.len().min(tokens_max / SYMBOL_TOKENS_MIN) + 1);
    while beyond - fits > 1 {
        let middle = fits + (beyond - fits) / 2;
        match tokens(&text(survey, ranked, middle).0) <= tokens_max {
            true => fits = middle,
            false => beyond = middle,
        }
    }
    let (text, files_shown) = text(survey, ranked, fits);
    let (symbols, files) = (ranked.symbols.len(), survey.files.len());
    Outline { text, symbols_shown: fits, files_shown, symbols, files }
}

/// The first symbols, by file; files in the order of their best symbol, symbols in the order of the file.
fn text(survey: &Survey, ranked: &Ranked, count: usize) -> (String, usize) {
    let mut order: Vec<usize> = vec![];
    let mut chosen: HashMap<usize, BTreeSet<usize>> = HashMap::new();
    for symbol in &ranked.symbols[..count] {
        let of_file = chosen.entry(symbol.file).or_insert_with(|| {
            order.push(symbol.file);
            BTreeSet::new()
        });
        of_file.insert(symbol.definition);
        // What a symbol is in is shown with it.
        of_file.extend(around(survey, symbol.file, symbol.definition));
    }
    let mut text = String::new();
    for file in &order {
        let source = &survey.files[*file];
        text.push_str(&format!("{}:\n", source.path));
        for at in &chosen[file] {
            let definition = &source.tags.definitions[*at];
            let indent = "  ".repeat(1 + around(survey, *file, *at).count());
            text.push_str(&format!("{indent}{}: {}\n", definition.first_line, definition.signature));
        }
    }
    (text, order.len())
}

/// The definitions around one, from the inside out. A parent stands before what it holds, so this ends.
fn around(survey: &Survey, file: usize, definition: usize) -> impl Iterator<Item = usize> + '_ {
    let definitions = &survey.files[file].tags.definitions;
    let parent = move |at: &usize| definitions.get(*at).and_then(|one| one.parent).map(|parent| parent as usize);
    std::iter::successors(parent(&definition), parent)
}

//! Which files and symbols matter: a walk from file to file along the names they use, as a reader would follow them.
//! The same survey and focus always give the same order.

use std::collections::HashMap;

use crate::{
    focus::Focus,
    language::Family,
    survey::Survey,
    tags::{Definition, Shape},
};

/// A reader who gets bored begins somewhere else with this chance's rest.
const DAMPING: f64 = 0.85;
const ROUNDS: usize = 20;
/// A name that so many files define, such as `new`, tells nothing about where to look.
const DEFINERS_MAX: usize = 20;
/// How much more often a walk begins at a file that the focus mentions, or that defines what it names.
const MENTIONED: f64 = 50.0;
const DEFINES_NAMED: f64 = 20.0;
/// How much more a name weighs that the focus has.
const NAMED: f64 = 10.0;
/// How much less one that is private or hardly a name.
const MINOR: f64 = 0.1;
/// What a symbol has of its file's rank without being used by others, as a share of all of them.
const OWN_SHARE: f64 = 0.1;

/// All symbols of a survey, the most important first.
#[derive(Debug, Clone, Default)]
pub struct Ranked {
    pub symbols: Vec<Symbol>,
    /// Of each file, in the survey's order; together they are 1.
    pub(crate) files: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Symbol {
    pub file: usize,
    pub definition: usize,
    pub score: f64,
}

/// Ranks what a survey found.
pub fn rank(survey: &Survey, focus: &Focus) -> Ranked {
    let names = Names::of(survey);
    let edges = edges(survey, focus, &names);
    let files = walk(&edges, &beginnings(survey, focus));
    let mut scores = own_scores(survey, focus, &files);
    for (from, edges) in edges.iter().enumerate() {
        let total: f64 = edges.iter().map(|edge| edge.weight).sum();
        for edge in edges {
            let share = files[from] * edge.weight / total;
            edge.definitions.iter().for_each(|at| scores[edge.to][*at] += share / edge.definitions.len() as f64);
        }
    }
    let mut symbols = vec![];
    for (file, scores) in scores.iter().enumerate() {
        let definitions = &survey.files[file].tags.definitions;
        let own = definitions.iter().zip(scores).enumerate().filter(|(_, (one, _))| one.shape != Shape::Group);
        symbols.extend(own.map(|(definition, (_, score))| Symbol { file, definition, score: *score }));
    }
    // The survey is sorted by path and a file's definitions by line, so that equals have their order too.
    symbols.sort_by(|one, other| other.score.total_cmp(&one.score));
    Ranked { symbols, files }
}

/// Who defines and who uses each name.
struct Names<'s> {
    by_name: HashMap<(Family, &'s str), Known>,
}

#[derive(Default)]
struct Known {
    /// Files with the places of their definitions.
    definers: Vec<(usize, Vec<usize>)>,
    users: usize,
}

impl<'s> Names<'s> {
    fn of(survey: &'s Survey) -> Self {
        let mut by_name: HashMap<(Family, &str), Known> = HashMap::new();
        for (file, source) in survey.files.iter().enumerate() {
            let shown = source.tags.definitions.iter().enumerate().filter(|(_, one)| one.shape != Shape::Group);
            for (at, definition) in shown {
                let known = by_name.entry((source.family, &definition.name)).or_default();
                match known.definers.last_mut().filter(|(last, _)| *last == file) {
                    Some((_, places)) => places.push(at),
                    None => known.definers.push((file, vec![at])),
                }
            }
        }
        for source in &survey.files {
            for (name, _) in &source.tags.references {
                if let Some(known) = by_name.get_mut(&(source.family, &**name)) {
                    known.users += 1;
                }
            }
        }
        Self { by_name }
    }
}

/// That a file uses what another one defines.
struct Edge {
    to: usize,
    definitions: Vec<usize>,
    weight: f64,
}

fn edges(survey: &Survey, focus: &Focus, names: &Names) -> Vec<Vec<Edge>> {
    let of_file = |(file, source): (usize, &crate::SourceFile)| {
        let mut edges = vec![];
        for (name, count) in &source.tags.references {
            let Some(known) = names.by_name.get(&(source.family, &**name)) else { continue };
            // What a file defines itself it need not look for elsewhere.
            let is_own = known.definers.iter().any(|(definer, _)| *definer == file);
            if is_own || known.definers.len() > DEFINERS_MAX {
                continue;
            }
            let weight = weight(name, *count, known, survey.files.len(), focus) / known.definers.len() as f64;
            let to = known.definers.iter().cloned();
            edges.extend(to.map(|(to, definitions)| Edge { to, definitions, weight }));
        }
        edges
    };
    survey.files.iter().enumerate().map(of_file).collect()
}

/// A rare name says more than a common one, and the tenth use less than the first.
fn weight(name: &str, count: u32, known: &Known, files: usize, focus: &Focus) -> f64 {
    let rarity = (1.0 + files as f64 / known.users.max(1) as f64).ln();
    let named = if focus.names(name) { NAMED } else { 1.0 };
    let minor = if name.starts_with('_') || name.len() < 4 { MINOR } else { 1.0 };
    f64::from(count).sqrt() * rarity * named * minor
}

/// Where a walk begins, as chances.
fn beginnings(survey: &Survey, focus: &Focus) -> Vec<f64> {
    let one = |source: &crate::SourceFile| {
        let mut chance = 1.0;
        if !focus.is_empty() {
            chance += if focus.mentions(&source.path) { MENTIONED } else { 0.0 };
            let defines = source.tags.definitions.iter().any(|one| focus.names(&one.name) && one.name.len() > 3);
            chance += if defines { DEFINES_NAMED } else { 0.0 };
        }
        chance
    };
    let chances: Vec<f64> = survey.files.iter().map(one).collect();
    let total: f64 = chances.iter().sum();
    chances.into_iter().map(|chance| chance / total).collect()
}

fn walk(edges: &[Vec<Edge>], beginnings: &[f64]) -> Vec<f64> {
    let totals: Vec<f64> = edges.iter().map(|edges| edges.iter().map(|edge| edge.weight).sum()).collect();
    let mut ranks = beginnings.to_vec();
    for _ in 0..ROUNDS {
        let stranded: f64 = ranks.iter().zip(&totals).filter(|(_, total)| **total == 0.0).map(|(rank, _)| rank).sum();
        let anew = 1.0 - DAMPING + DAMPING * stranded;
        let mut next: Vec<f64> = beginnings.iter().map(|chance| chance * anew).collect();
        for (from, edges) in edges.iter().enumerate() {
            for edge in edges {
                next[edge.to] += DAMPING * ranks[from] * edge.weight / totals[from];
            }
        }
        ranks = next;
    }
    ranks
}

fn own_scores(survey: &Survey, focus: &Focus, ranks: &[f64]) -> Vec<Vec<f64>> {
    let of_file = |(source, rank): (&crate::SourceFile, &f64)| {
        let definitions = &source.tags.definitions;
        let mentioned = if focus.mentions(&source.path) { NAMED } else { 1.0 };
        let share = rank * OWN_SHARE * mentioned / definitions.len().max(1) as f64;
        let one = |one: &Definition| share * if focus.names(&one.name) { NAMED } else { 1.0 };
        definitions.iter().map(one).collect()
    };
    survey.files.iter().zip(ranks).map(of_file).collect()
}

//! Feeds parsers with inputs that went wrong: seeds from a small folder, changed by chance. It knows no parser, and only
//! tests use it.

use std::{
    fmt::Write,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
};

mod dice;
mod json;
mod mutate;

pub use dice::Dice;
pub use mutate::{mutated, nasty_text, nasty_value};

/// How much of a failing input is printed.
const PRINTED_BYTES_MAX: usize = 4096;
/// Tries at making a failing input smaller.
const SHRINKS_MAX: usize = 400;

/// One parser and what it is fed.
pub struct Target {
    name: &'static str,
    package: &'static str,
    seeds: Vec<Vec<u8>>,
    cases: u64,
    cases_max: u64,
}

/// What `FUZZ_CASES` says, or the number of cases of an ordinary run.
pub fn cases(ordinary: u64) -> u64 {
    number("FUZZ_CASES").unwrap_or(ordinary)
}

/// A target with the seeds in `tests/corpus/<name>` of the crate that calls it.
#[macro_export]
macro_rules! target {
    ($name:literal) => {
        $crate::Target::new($name, env!("CARGO_PKG_NAME"), env!("CARGO_MANIFEST_DIR"))
    };
}

impl Target {
    pub fn new(name: &'static str, package: &'static str, manifest_dir: &str) -> Target {
        let folder: PathBuf = [manifest_dir, "tests", "corpus", name].iter().collect();
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("the corpus of {name}: {error}"));
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let seeds: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
        assert!(!seeds.is_empty(), "the corpus of {name} is empty");
        Target { name, package, seeds, cases: 200, cases_max: u64::MAX }
    }

    /// Cases in an ordinary run; `FUZZ_CASES` asks for more.
    pub fn cases(self, cases: u64) -> Target {
        Target { cases, ..self }
    }

    /// The most cases of any run, for targets that start a process for each.
    pub fn at_most(self, cases_max: u64) -> Target {
        Target { cases_max, ..self }
    }

    /// Another name than that of the corpus, for a second target that shares it.
    pub fn named(self, name: &'static str) -> Target {
        Target { name, ..self }
    }

    /// The seeds as they are, then changed ones. A check that panics ends the run with the input and how to repeat it.
    pub fn run(self, mut check: impl FnMut(&[u8])) {
        self.run_with(|input, _| check(input));
    }

    /// The same for checks that need chance themselves.
    pub fn run_with(self, check: impl FnMut(&[u8], &mut Dice)) {
        self.run_made(mutated, check);
    }

    /// The same with inputs that the caller makes from the seeds.
    pub fn run_made(self, make: impl Fn(&mut Dice, &[Vec<u8>]) -> Vec<u8>, mut check: impl FnMut(&[u8], &mut Dice)) {
        let mut done = 0;
        if let Some(case) = number("FUZZ_SEED") {
            self.case(case, &make, &mut check);
            done = 1;
        } else {
            for seed in &self.seeds {
                self.checked(None, seed, &mut check);
            }
            let first = number("FIRST_SEED").unwrap_or(1);
            for case in first..first + cases(self.cases).min(self.cases_max) {
                self.case(case, &make, &mut check);
                done += 1;
            }
        }
        println!("fuzz: target={} cases={done}", self.name);
    }

    fn case(
        &self,
        case: u64,
        make: &impl Fn(&mut Dice, &[Vec<u8>]) -> Vec<u8>,
        check: &mut impl FnMut(&[u8], &mut Dice),
    ) {
        let mut dice = Dice::new(case);
        let input = make(&mut dice, &self.seeds);
        self.checked(Some(case), &input, check);
    }

    fn checked(&self, case: Option<u64>, input: &[u8], check: &mut impl FnMut(&[u8], &mut Dice)) {
        // The chance of a check is the same for every form of its input, so that a smaller one can be found.
        let mut fails =
            |input: &[u8]| catch_unwind(AssertUnwindSafe(|| check(input, &mut Dice::new(case.unwrap_or(0))))).is_err();
        if !fails(input) {
            return;
        }
        // The first panic has said what is wrong; those on the way to a smaller input only repeat it.
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let smallest = shrunk(input, &mut fails);
        std::panic::set_hook(loud);
        println!("fuzz: target={} failed on {} bytes: {}", self.name, smallest.len(), printed(&smallest));
        let test = format!("cargo nextest run -p {} fuzz::{}", self.package, self.name);
        match case {
            Some(case) => println!("repeat with: FUZZ_SEED={case} {test}"),
            None => println!("repeat with: {test}"),
        }
        panic!("{} failed on the input above", self.name);
    }
}

/// The same failure from fewer bytes, as far as a few tries can tell.
fn shrunk(input: &[u8], fails: &mut impl FnMut(&[u8]) -> bool) -> Vec<u8> {
    let mut smallest = input.to_vec();
    let mut piece = smallest.len() / 2;
    let mut tries = 0;
    while piece > 0 && tries < SHRINKS_MAX {
        let mut at = 0;
        while at < smallest.len() && tries < SHRINKS_MAX {
            let mut smaller = smallest.clone();
            smaller.drain(at..(at + piece).min(smallest.len()));
            tries += 1;
            if fails(&smaller) {
                smallest = smaller;
            } else {
                at += piece;
            }
        }
        piece /= 2;
    }
    smallest
}

fn printed(input: &[u8]) -> String {
    let mut text = String::new();
    for piece in input[..input.len().min(PRINTED_BYTES_MAX)].utf8_chunks() {
        text.extend(piece.valid().escape_debug());
        for byte in piece.invalid() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

fn number(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_case_gives_the_same_input() {
        let seeds = [b"{\"a\":1,\"b\":[true,\"x\"]}\n".to_vec(), b"one\ntwo\nthree\n".to_vec()];
        let made = |case| mutated(&mut Dice::new(case), &seeds);
        assert!((0..500).all(|case| made(case) == made(case)));
        let distinct: std::collections::HashSet<_> = (0..500).map(made).collect();
        assert!(distinct.len() > 400, "only {} different inputs", distinct.len());
    }

    #[test]
    fn a_failing_input_is_made_small() {
        let input = b"many bytes before it, BAD, and many after it".to_vec();
        let small = shrunk(&input, &mut |input| input.windows(3).any(|window| window == b"BAD"));
        assert_eq!(small, b"BAD");
    }
}

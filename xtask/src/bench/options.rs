//! What `cargo xtask bench` is told on its command line. It measures nothing.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

pub const HELP: &str = "\
Measures a release-built daemon from outside and compares with the numbers to reach.

Usage: cargo xtask bench [flags]

Flags:
  --quick             fewer repetitions, 1,000 sessions in place of 10,000, no 1 GB log
  --only <name,…>     only these: start turn long tools search deltas provider memory create
                      sessions written appends biglog fanout outline
  --json              the result as JSON on stdout (progress goes to stderr either way)
  --baseline <file>   what to compare with [default: docs/bench-baseline.json]
  --save              write the result to the baseline file, and the table to docs/bench.md
  --help              this text

Exits with 0 also where a bound is missed: times on a shared machine are no test.
";

/// The names that `--only` takes, in the order in which they are measured.
pub const SECTIONS: [&str; 15] = [
    "start", "turn", "long", "tools", "search", "deltas", "provider", "memory", "create", "sessions", "written",
    "appends", "biglog", "fanout", "outline",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub quick: bool,
    pub only: Vec<String>,
    pub json: bool,
    /// `None`: the one in `docs/`.
    pub baseline: Option<PathBuf>,
    pub save: bool,
    pub help: bool,
}

impl Options {
    pub fn parse(words: &[&str]) -> Result<Options> {
        let mut options = Options { quick: false, only: vec![], json: false, baseline: None, save: false, help: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value; see --help"));
            match *word {
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--save" => options.save = true,
                "--help" | "-h" => options.help = true,
                "--baseline" => options.baseline = Some(PathBuf::from(value()?)),
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                other => bail!("bench does not know `{other}`; see cargo xtask bench --help"),
            }
        }
        if let Some(unknown) = options.only.iter().find(|name| !SECTIONS.contains(&name.as_str())) {
            bail!("there is nothing called `{unknown}` to measure; there are {}", SECTIONS.join(", "));
        }
        if options.save && (options.quick || !options.only.is_empty()) {
            bail!("only a whole run can be saved: leave out --quick and --only");
        }
        Ok(options)
    }

    pub fn wants(&self, section: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == section)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_and_unknown_ones_refused() {
        let options = Options::parse(&["--quick", "--only", "turn,tools", "--baseline", "x.json"]).unwrap();
        assert!(options.quick && options.wants("turn") && !options.wants("start"));
        assert_eq!(options.baseline, Some(PathBuf::from("x.json")));
        for bad in [&["--fast"][..], &["--only", "nothing"], &["--baseline"], &["--save", "--quick"]] {
            assert!(Options::parse(bad).is_err(), "{bad:?}");
        }
        assert!(Options::parse(&[]).unwrap().wants("fanout"));
    }
}

//! The chore `simulate`: the seeded trials of the tests in their full form, with the release build. A failing seed is told in one line that repeats it.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use crate::{daemon::root, test::cargo};

pub const HELP: &str = "\
Runs the seeded trials of the tests in their full form.

Usage: cargo xtask simulate [options]

  --seeds N    lives of the engine's simulator (default 10000; 0: none)
  --power N    lives of the store with power cuts (default 5000; 0: none)
  --cases N    inputs for each parser (default 20000; 0: none)

The tests run the same with a few hundred lives and inputs. A failing seed prints the line
that repeats it.
";

/// How much of each is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    seeds: u64,
    power: u64,
    cases: u64,
}

impl Request {
    pub fn parse(words: &[&str]) -> Result<Request> {
        let mut request = Request { seeds: 10_000, power: 5_000, cases: 20_000 };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let target = match *word {
                "--seeds" => &mut request.seeds,
                "--power" => &mut request.power,
                "--cases" => &mut request.cases,
                other => bail!("simulate does not know `{other}`; see cargo xtask simulate --help"),
            };
            let value = words.next().with_context(|| format!("{word} needs a number"))?;
            *target = value.parse().with_context(|| format!("{word} takes a number, not `{value}`"))?;
        }
        Ok(request)
    }
}

/// One kind of trial: where its tests are, what they are called, and the variable that says how many.
struct Trial {
    name: &'static str,
    packages: &'static [&'static str],
    variable: &'static str,
    count: u64,
}

pub fn run(request: Request) -> Result<()> {
    let trials = [
        Trial {
            name: "simulation",
            packages: &["--package", "tenure-engine"],
            variable: "SEEDS",
            count: request.seeds,
        },
        Trial { name: "power", packages: &["--package", "tenure-store"], variable: "SEEDS", count: request.power },
        Trial { name: "fuzz", packages: &["--workspace"], variable: "FUZZ_CASES", count: request.cases },
    ];
    let began = Instant::now();
    if request.cases > 0 {
        // The parsers of HTTP are tried in a daemon of their own, which no test builds in release mode.
        let built = Command::new(cargo())
            .args(["build", "--quiet", "--release", "--examples", "--package", "tenure-server"])
            .current_dir(root()?)
            .status()
            .context("could not start cargo")?;
        if !built.success() {
            bail!("the examples of tenure-server could not be built");
        }
    }
    let mut told = Vec::new();
    for trial in trials.iter().filter(|trial| trial.count > 0) {
        told.extend(trial.run()?);
    }
    println!("\n{}\nxtask: all seeds held ({} s)", told.join("\n"), began.elapsed().as_secs());
    Ok(())
}

impl Trial {
    /// Shows all that the tests print, and gives back their closing lines.
    fn run(&self) -> Result<Vec<String>> {
        let mut command = Command::new(cargo());
        command.args(["test", "--quiet", "--release", "--test", "it"]).args(self.packages);
        // The name alone would fit other tests too; a module's tests all hold its name and two colons.
        command.args([&format!("{}::", self.name), "--", "--nocapture"]);
        command.env(self.variable, self.count.to_string()).current_dir(root()?).stdout(Stdio::piped());
        println!("\nxtask: {} with {}={}", self.name, self.variable, self.count);
        let mut child = command.spawn().context("could not start cargo")?;
        let out = child.stdout.take().context("cargo has no output")?;
        let mut closing = Vec::new();
        for line in BufReader::new(out).lines() {
            let line = line?;
            println!("{line}");
            // Libtest writes its dots before it.
            if let Some(at) = line.find(&format!("{}: ", self.name))
                && line[at..].contains('=')
            {
                closing.push(line[at..].to_owned());
            }
        }
        let status = child.wait()?;
        if !status.success() {
            bail!("{} failed ({status}); what repeats it is printed above", self.name);
        }
        if closing.is_empty() {
            bail!("no test of {} has said how much it tried", self.name);
        }
        Ok(closing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_others_refused() {
        let request = Request::parse(&["--seeds", "7", "--cases", "0"]).unwrap();
        assert_eq!(request, Request { seeds: 7, power: 5_000, cases: 0 });
        for bad in [&["--seeds"][..], &["--seeds", "x"], &["--sedes", "1"]] {
            assert!(Request::parse(bad).is_err(), "{bad:?}");
        }
    }
}

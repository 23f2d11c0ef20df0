//! The chore `test`: the same commands in the same order here and in CI.

use std::{
    env,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{crash, daemon::root, install, mcp_tools, real_model, schemathesis};

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    All,
    /// Everything but the docs.
    Quick,
}

struct Stage {
    what: &'static str,
    arguments: &'static [&'static str],
    setting: Option<(&'static str, &'static str)>,
}

const FORMAT: Stage = Stage { what: "format", arguments: &["fmt", "--all", "--check"], setting: None };
const LINTS: Stage = Stage {
    what: "lints",
    arguments: &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
    setting: None,
};
const DOCS: Stage = Stage {
    what: "docs",
    arguments: &["doc", "--workspace", "--no-deps"],
    setting: Some(("RUSTDOCFLAGS", "-D warnings")),
};
const TESTS: Stage = Stage { what: "tests", arguments: &["nextest", "run", "--workspace"], setting: None };
const DOC_TESTS: Stage = Stage { what: "doc tests", arguments: &["test", "--doc", "--workspace"], setting: None };

pub fn run(extent: Extent) -> Result<()> {
    let root = root()?;
    install::all_that_is_missing()?;
    let stages: &[Stage] = match extent {
        Extent::All => &[FORMAT, LINTS, DOCS, DOC_TESTS, TESTS],
        Extent::Quick => &[FORMAT, LINTS, DOC_TESTS, TESTS],
    };
    let mut times: Vec<(&str, Duration)> = Vec::new();
    for stage in stages {
        let start = Instant::now();
        stage.run(root)?;
        times.push((stage.what, start.elapsed()));
    }
    let start = Instant::now();
    println!("\nxtask: crash matrix: cargo xtask crash --short");
    crash::run(&crash::Request::SHORT)?;
    times.push(("crash matrix", start.elapsed()));
    let start = Instant::now();
    println!("\nxtask: schemathesis: cargo xtask schemathesis --examples 10 --seed 1");
    schemathesis::run(schemathesis::Request::SHORT)?;
    times.push(("schemathesis", start.elapsed()));
    let start = Instant::now();
    println!("\nxtask: MCP servers: cargo xtask mcp-tools");
    mcp_tools::run()?;
    times.push(("MCP servers", start.elapsed()));
    let start = Instant::now();
    println!("\nxtask: real model: cargo xtask real-model");
    real_model::run()?;
    times.push(("real model", start.elapsed()));
    let times: Vec<String> = times.iter().map(|(what, time)| format!("{what} {} s", time.as_secs())).collect();
    println!("\nxtask: all green ({})", times.join(", "));
    Ok(())
}

impl Stage {
    fn run(&self, root: &Path) -> Result<()> {
        println!("\nxtask: {}: {}", self.what, self.shown());
        let mut command = Command::new(cargo());
        command.args(self.arguments).envs(self.setting).current_dir(root);
        let status = command.status().with_context(|| format!("could not start `{}`", self.shown()))?;
        if !status.success() {
            bail!("{} failed ({status}); the command was:\n\n    {}\n", self.what, self.shown());
        }
        Ok(())
    }

    /// The command as a person would type it.
    fn shown(&self) -> String {
        let setting = self.setting.map(|(name, value)| format!("{name}=\"{value}\" ")).unwrap_or_default();
        format!("{setting}cargo {}", self.arguments.join(" "))
    }
}

/// The cargo that runs us, so that a toolchain named on the command line holds for every stage.
pub fn cargo() -> String {
    env::var("CARGO").unwrap_or_else(|_| "cargo".into())
}

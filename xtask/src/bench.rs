//! The chore `bench`: measures a release-built daemon from outside, beside what the machine itself needs in the same run.
//! It builds, then starts itself anew as a release build, so that a slow client does not distort what it measures.

mod appends;
mod biglog;
mod deltas;
mod fanout;
mod idle;
mod memory;
mod options;
mod outline;
mod provider;
mod raw;
mod report;
mod search;
mod sessions;
mod stand;
mod start;
mod times;
mod tools;
mod turn;
mod vendor;
mod written;

use std::{
    fs,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    daemon::{Build, built, root},
    test::cargo,
};
use options::{HELP, Options};
use report::Report;
use stand::Stand;

/// How the release build of this program is told that everything is built.
pub const BUILT_WORD: &str = "__bench";

/// Builds, and hands on to the release build.
pub fn run(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    if options.help {
        print!("{HELP}");
        return Ok(());
    }
    eprintln!("bench: building in release mode");
    let binaries = built(Build::Release, &["tenure-cli", "xtask"])?;
    build_example()?;
    if !options.quick {
        let_the_disk_rest();
    }
    let status = Command::new(binaries.join("xtask")).arg(BUILT_WORD).args(words).status()?;
    if !status.success() {
        bail!("the measurement failed ({status})");
    }
    Ok(())
}

/// An ext4 without a journal looks at every inode freed in the last minute (five, until that is on the disk) before it
/// makes a file. A build frees thousands, and each file of a turn would cost a millisecond that is not ours.
const DISK_REST: Duration = Duration::from_secs(65);

fn let_the_disk_rest() {
    eprintln!("bench: lets the disk come to rest ({} s)", DISK_REST.as_secs());
    nix::unistd::sync();
    thread::sleep(DISK_REST);
}

fn build_example() -> Result<()> {
    let mut command = Command::new(cargo());
    command.args(["build", "--quiet", "--release", "--package", "tenure-store", "--example", "appends"]);
    let status = command.current_dir(root()?).status().context("could not start cargo")?;
    if !status.success() {
        bail!("the build failed ({status})");
    }
    Ok(())
}

type Measure = fn(&Stand, &mut Report) -> Result<()>;

/// In the order of `options::SECTIONS`.
const MEASURES: [Measure; options::SECTIONS.len()] = [
    start::measure,
    turn::measure,
    turn::measure_late,
    tools::measure,
    search::measure,
    deltas::measure,
    provider::measure,
    idle::measure,
    sessions::measure_create,
    sessions::measure_many,
    written::measure,
    appends::measure,
    biglog::measure,
    fanout::measure,
    outline::measure,
];

/// Measures; everything is built and lies beside this program.
pub fn measure(words: &[&str]) -> Result<()> {
    let options = Options::parse(words)?;
    let baseline = options
        .baseline
        .clone()
        .map_or_else(|| Ok(root()?.join("docs/bench-baseline.json")), Ok::<PathBuf, anyhow::Error>)?;
    let mut report = Report::new(&baseline)?;
    let own = std::env::current_exe()?;
    let stand = Stand::new(own.parent().context("this program has no folder")?, options.quick)?;
    let start = Instant::now();
    for (name, measure) in options::SECTIONS.iter().zip(MEASURES).filter(|(name, _)| options.wants(name)) {
        if options.quick && *name == "biglog" {
            continue;
        }
        eprintln!("bench: {name} ({} s)", start.elapsed().as_secs());
        measure(&stand, &mut report).with_context(|| format!("while measuring {name}"))?;
    }
    eprintln!("bench: {} bounds missed; took {} s\n", report.missed(), start.elapsed().as_secs());
    match options.json {
        true => println!("{:#}", report.json()),
        false => print!("{}", report.table()),
    }
    if options.save {
        report.save(&baseline)?;
        let page = root()?.join("docs/bench.md");
        fs::write(&page, format!("{}{}", include_str!("bench/page.md"), report.table()))?;
        eprintln!("bench: wrote {} and {}", baseline.display(), page.display());
    }
    Ok(())
}

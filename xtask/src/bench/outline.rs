//! A map of a repository of two thousand files: cold, warm, and beside just reading them all. It asks the library, not a
//! daemon: what a daemon adds to it is measured elsewhere.

use std::{
    fs::{self, File},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use tenure_outline::{Focus, PARSE_TIME_MAX, Repository, Stop, outline, rank, survey};

use super::{
    report::{Bound, Report, Row},
    stand::Stand,
    times::{Times, shown},
};

const FILES: usize = 2_000;
/// Functions of one file, which makes it about 8 KB long.
const FUNCTIONS: usize = 24;
/// The number to reach, in milliseconds.
const COLD_MS: f64 = 1_000.0;
/// What a warm one may take of the cold one of the same run.
const WARM_SHARE: f64 = 0.25;
/// Stamps of files are trusted after this long.
const SETTLE: Duration = Duration::from_millis(1_200);
const TOKENS: usize = 2_000;

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let (root, cache) = (stand.path("outline-repo"), stand.path("outline-cache"));
    let bytes = generate(&root)?;
    thread::sleep(SETTLE);
    let (mut cold, mut warm, mut reading) = (Times::default(), Times::default(), Times::default());
    for _ in 0..stand.rounds(5, 2) {
        if cache.exists() {
            fs::remove_dir_all(&cache)?;
        }
        reading.add(timed(|| read_all(&root))?);
        cold.add(timed(|| map(&root, &cache, FILES))?);
        for _ in 0..3 {
            warm.add(timed(|| map(&root, &cache, 0))?);
        }
    }
    let (cold_ms, warm_ms, read_ms) = (cold.median(), warm.median(), reading.median());
    let made_of = format!("{FILES} files, {:.1} MB; reading them all: {} ms", bytes as f64 / 1e6, shown(read_ms));
    let row = |key, what: &str, value, unit, bound, beside| Row { key, what: what.into(), value, unit, bound, beside };
    let cold_beside = format!("{}; {made_of}", cold.spread());
    report.add(row(
        "outline_cold",
        "map of 2,000 files, cold",
        cold_ms,
        "ms",
        Some(Bound::below(COLD_MS)),
        cold_beside,
    ));
    let bound = Bound::below_with(cold_ms * WARM_SHARE, "a quarter of cold");
    report.add(row("outline_warm", "map of 2,000 files, warm", warm_ms, "ms", Some(bound), warm.spread()));
    let ratio = format!("warm: {} times", shown(warm_ms / read_ms));
    report.add(row("outline_cold_by_reading", "cold map by just reading", cold_ms / read_ms, "times", None, ratio));
    Ok(())
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed())
}

fn read_all(root: &Path) -> Result<()> {
    for folder in fs::read_dir(root)? {
        for file in fs::read_dir(folder?.path())? {
            std::hint::black_box(fs::read(file?.path())?);
        }
    }
    Ok(())
}

fn map(root: &Path, cache: &Path, parsed: usize) -> Result<()> {
    let open = |path: &str| File::open(root.join(path));
    let repository = Repository { root, below: "", open: &open, cache: Some(cache), parse_time: PARSE_TIME_MAX };
    let found = match survey(&repository, &Stop { is_cancelled: &|| false, deadline: None }) {
        Ok(found) => found,
        Err(stopped) => bail!("the survey stopped: {stopped:?}"),
    };
    ensure!(
        (found.files.len(), found.parsed) == (FILES, parsed),
        "{} files, {} parsed",
        found.files.len(),
        found.parsed
    );
    let text = outline(&found, &rank(&found, &Focus::default()), TOKENS).text;
    ensure!(!text.is_empty(), "the map is empty");
    Ok(())
}

/// Files in four languages that use each other; tells how many bytes they are.
fn generate(root: &Path) -> Result<usize> {
    let mut bytes = 0;
    for file in 0..FILES {
        let folder = root.join(format!("part{}", file % 40));
        fs::create_dir_all(&folder)?;
        let (ending, text) = source(file);
        bytes += text.len();
        fs::write(folder.join(format!("module_{file}.{ending}")), text)?;
    }
    Ok(bytes)
}

fn source(file: usize) -> (&'static str, String) {
    // Some modules are used by many, as in any repository.
    let used = |function: usize| (file * 7 + function * 13) % (50 + file % 400);
    let body = |line: &dyn Fn(usize) -> String| (0..FUNCTIONS).map(line).collect::<String>();
    match file % 4 {
        0 => (
            "rs",
            body(&|n| {
                let other = used(n) / 4 * 4;
                format!(
                    "/// Step {n} of module {file}.\npub fn step_{file}_{n}(items: &[Item{file}], limit: usize) -> Option<u64> {{\n    \
                 let mut total = 0;\n    for item in items.iter().take(limit) {{\n        total += item.weight * {n};\n    }}\n    \
                 if total > 10 {{ step_{other}_{n}(&[], total as usize) }} else {{ None }}\n}}\n\n"
                )
            }) + &format!("pub struct Item{file} {{\n    pub weight: u64,\n}}\n"),
        ),
        1 => (
            "py",
            body(&|n| {
                let other = used(n) / 4 * 4 + 1;
                format!(
                    "def step_{file}_{n}(items, limit=10):\n    \"\"\"Step {n} of module {file}.\"\"\"\n    total = 0\n    \
                 for item in items[:limit]:\n        total += item.weight * {n}\n    if total > 10:\n        \
                 return step_{other}_{n}(items, total)\n    return None\n\n\n"
                )
            }),
        ),
        2 => (
            "ts",
            body(&|n| {
                let other = used(n) / 4 * 4 + 2;
                format!(
                    "export function step_{file}_{n}(items: Item[], limit: number): number | undefined {{\n  let total = 0;\n  \
                 for (const item of items.slice(0, limit)) {{\n    total += item.weight * {n};\n  }}\n  \
                 return total > 10 ? step_{other}_{n}(items, total) : undefined;\n}}\n\n"
                )
            }),
        ),
        _ => (
            "go",
            format!(
                "package part\n\n{}",
                body(&|n| {
                    let other = used(n) / 4 * 4 + 3;
                    format!(
                        "// Step{file}x{n} is a step.\nfunc Step{file}x{n}(items []Item, limit int) int {{\n\ttotal := 0\n\t\
                 for _, item := range items[:limit] {{\n\t\ttotal += item.Weight * {n}\n\t}}\n\tif total > 10 {{\n\t\t\
                 return Step{other}x{n}(items, total)\n\t}}\n\treturn 0\n}}\n\n"
                    )
                })
            ),
        ),
    }
}

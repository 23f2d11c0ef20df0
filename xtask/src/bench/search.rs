//! A search of a large tree by the `search` tool, beside the program `rg` on the same tree in the same run.

use std::{fs, path::Path, process::Command, time::Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    report::{Bound, Report, Row},
    stand::{Durability, Stand},
    times::{Times, shown},
};

/// So many that reading them outweighs what a call costs besides.
const FILES: usize = 24_000;
const FILES_QUICK: usize = 6_000;
const LINES: usize = 220;
const CALLS: usize = 10;
/// The number to reach: times of `rg`.
const RATIO: f64 = 1.3;
/// In few files, and no plain text: each line has to be looked at.
const PATTERN: &str = r"needle_[0-9]+\b";

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let tree = stand.path("search-tree");
    grow(&tree, stand.rounds(FILES, FILES_QUICK))?;
    let call = json!({ "do": [{ "call": { "name": "search", "input": { "pattern": PATTERN } } }] });
    let mut steps: Vec<Value> = vec![call; CALLS];
    steps.push(json!({ "do": [{ "text": "Done." }] }));
    let model = stand.model("search-model", &Value::Array(steps))?;
    let served = stand.start("search", Durability::Process)?;
    let mut body = stand.session_body(&model);
    body["workspace_path"] = json!(tree);
    let (mut ours, mut theirs) = (Times::default(), Times::default());
    for round in 0..=stand.rounds(5, 2) {
        let mut client = served.client()?;
        let session = client.create(&body)?;
        let mut follow = client.follow(&session)?;
        let took = client.turn(&mut follow, &session, "Search.")?.done;
        let rg: Vec<_> = (0..CALLS).map(|_| rg(&tree)).collect::<Result<_>>()?;
        // The first round brings the files into memory.
        if round > 0 {
            ours.add(took / u32::try_from(CALLS)?);
            rg.into_iter().for_each(|time| theirs.add(time));
        }
    }
    served.stop()?;
    fs::remove_dir_all(&tree)?;
    report.add(Row {
        key: "search",
        what: "`search` of a large tree in a turn, in times of `rg`".into(),
        value: ours.median() / theirs.median(),
        unit: "×",
        bound: Some(Bound::below(RATIO)),
        beside: format!("a call {} ms; raw: rg {} ms", shown(ours.median()), shown(theirs.median())),
    });
    Ok(())
}

fn rg(tree: &Path) -> Result<std::time::Duration> {
    let begun = Instant::now();
    let output = Command::new("rg").args(["--smart-case", "--line-number", PATTERN, "."]).current_dir(tree).output();
    let output = output.context("`rg` is needed to compare with; on Debian: apt install ripgrep")?;
    let took = begun.elapsed();
    ensure!(output.status.success() && !output.stdout.is_empty(), "rg found nothing");
    Ok(took)
}

/// Files as people write them: words and numbers in lines of some length, and a few with what is looked for.
fn grow(tree: &Path, files: usize) -> Result<()> {
    const WORDS: [&str; 8] = ["let", "session", "needle", "return", "value_17", "{", "// and so on", "self.state"];
    for file in 0..files {
        let folder = tree.join(format!("d{}/e{}", file % 40, file % 17));
        fs::create_dir_all(&folder)?;
        let mut text = String::new();
        for line in 0..LINES {
            let words = (0..5).map(|word| WORDS[(file * 31 + line * 7 + word * 3) % WORDS.len()]);
            text.push_str(&words.collect::<Vec<_>>().join(" "));
            text.push('\n');
        }
        if file % 200 == 0 {
            text.push_str(&format!("needle_{file}\n"));
        }
        fs::write(folder.join(format!("f{file}.rs")), text)?;
    }
    Ok(())
}

//! The result as a table that people read: `docs/crash-matrix.md`, and a few lines for the terminal.

use std::{fmt::Write, fs};

use anyhow::Result;

use super::{
    full_disk,
    matrix::{Cell, Kind, Matrix},
    promises::PROMISES,
};
use crate::daemon::root;

fn mark(cell: &Cell, promise: usize) -> &'static str {
    match cell.broken[promise] {
        None => "✓",
        Some(_) => "✗",
    }
}

/// Lines for the terminal; the last one is for programs.
pub fn summary(matrix: &Matrix, disk: &full_disk::Result) -> String {
    let mut text = String::new();
    for kind in Kind::ALL {
        let (points, lives) = (matrix.points(kind), matrix.lives(kind));
        if lives > 0 {
            let _ = writeln!(text, "crash: {:13} {points:4} points, {lives:5} lives", kind.word());
        }
    }
    if let Some(why) = &disk.skipped {
        let _ = writeln!(text, "crash: full disk skipped: {why}");
    }
    let faults: u32 = Kind::ALL[1..].iter().map(|kind| matrix.lives(*kind)).sum();
    let _ = write!(
        text,
        "crash: points={} kills={} second_kills={} faults={faults} full_disk={} passes={} failed={}",
        matrix.points(Kind::Kill),
        matrix.lives(Kind::Kill),
        matrix.second_kills,
        disk.rows.len(),
        matrix.passes,
        matrix.failed_cells() + disk.failed(),
    );
    text
}

pub fn write(matrix: &Matrix, disk: &full_disk::Result) -> Result<()> {
    let path = root()?.join("docs/crash-matrix.md");
    fs::write(&path, page(matrix, disk)?)?;
    println!("crash: written to docs/crash-matrix.md");
    Ok(())
}

fn page(matrix: &Matrix, disk: &full_disk::Result) -> Result<String> {
    let mut page = String::new();
    let faults: u32 = Kind::ALL[1..].iter().map(|kind| matrix.lives(*kind)).sum();
    let failed = matrix.failed_cells() + disk.failed();
    writeln!(page, "# Crash matrix\n")?;
    writeln!(
        page,
        "Made by `cargo xtask crash`, which repeats all of it and ends with an error if a single cell fails.\n"
    )?;
    writeln!(
        page,
        "**{} kill points, {} kills (in {} of them the recovering daemon was killed once more), {faults} injected faults, \
         {} times a full disk: {failed} cells failed.**\n",
        matrix.points(Kind::Kill),
        matrix.lives(Kind::Kill),
        matrix.second_kills,
        disk.rows.len(),
    )?;
    writeln!(page, "{HOW}")?;
    writeln!(page, "| promise | what is checked after every kill and fault |\n|---|---|")?;
    for promise in PROMISES {
        writeln!(page, "| {} | {} |", promise.title, promise.text)?;
    }
    kills(&mut page, matrix)?;
    harms(&mut page, matrix)?;
    full(&mut page, disk)?;
    Ok(page)
}

const HOW: &str = "\
A real daemon runs a reference turn with two clients that read and one that commands: a message, a model's stream, two \
reads, a write, a patch, a command that needs a yes, verification, completion, snapshot and eviction; then a turn that is \
cancelled while its command runs, a last one, a shorter context, the session's end and the daemon's stop. It is killed on \
entry of a system call of any of its threads, started again, and the clients go on: they reconnect at their cursor and \
send a command again with the same key. When all is done the daemon is started once more and every promise is checked \
against what the clients had been told.

A kill point is named by the system call, the class of file, the phase and the last number in the log. Passes over all \
names are repeated until three in a row bring no new name; later passes kill at later calls of the same name, and every \
second pass kills the recovering daemon too.
";

fn head(page: &mut String, first: &[&'static str], rest: impl Iterator<Item = &'static str>) -> Result<()> {
    let titles: Vec<&str> = first.iter().copied().chain(rest).collect();
    writeln!(page, "| {} |\n|{}", titles.join(" | "), "---|".repeat(titles.len()))?;
    Ok(())
}

fn kills(page: &mut String, matrix: &Matrix) -> Result<()> {
    writeln!(page, "\n## Kills\n")?;
    head(page, &["seq", "phase", "file", "call", "kills"], PROMISES.iter().map(|promise| promise.title))?;
    let mut missed = Vec::new();
    for name in matrix.names.keys() {
        match matrix.cells.get(&(name.clone(), Kind::Kill)) {
            Some(cell) => {
                let marks: Vec<&str> = (0..PROMISES.len()).map(|promise| mark(cell, promise)).collect();
                let (seq, phase, class, call) = (name.seq, name.phase, name.class, name.call);
                writeln!(page, "| {seq} | {phase} | {class} | {call} | {} | {} |", cell.lives, marks.join(" | "))?;
            }
            None => missed.push(name.to_string()),
        }
    }
    if !missed.is_empty() {
        writeln!(page, "\nMet in some run and not again when a kill was to be made there: {}.", missed.join("; "))?;
    }
    Ok(())
}

fn harms(page: &mut String, matrix: &Matrix) -> Result<()> {
    writeln!(page, "\n## Faults\n\n{FAULTS}")?;
    let kinds = &Kind::ALL[1..];
    head(page, &["seq", "phase", "file", "call"], kinds.iter().map(|kind| kind.word()))?;
    for name in matrix.names.keys() {
        let cells: Vec<Option<&Cell>> = kinds.iter().map(|kind| matrix.cells.get(&(name.clone(), *kind))).collect();
        if cells.iter().all(Option::is_none) {
            continue;
        }
        let marks = cells.iter().map(|cell| match cell {
            None => "–",
            Some(cell) if cell.broken.iter().all(Option::is_none) => "✓",
            Some(_) => "✗",
        });
        let marks: Vec<&str> = marks.collect();
        let (seq, phase, class, call) = (name.seq, name.phase, name.class, name.call);
        writeln!(page, "| {seq} | {phase} | {class} | {call} | {} |", marks.join(" | "))?;
    }
    Ok(())
}

const FAULTS: &str = "\
The same life, with a fault put into one system call on a file below the data folder. ✓: all promises held. \
`tear`: half of the bytes are written, then the daemon is killed. `enospc`, `eio`: the call fails once. `short`: half of the \
bytes are written. `stays-…`: from this call on every change of the session's files fails; meanwhile the daemon must \
report it and serve another session, and when it is over this one goes on.
";

fn full(page: &mut String, disk: &full_disk::Result) -> Result<()> {
    writeln!(page, "\n## A full disk\n\n{FULL}")?;
    if let Some(why) = &disk.skipped {
        writeln!(page, "Not tried: {why}.")?;
        return Ok(());
    }
    head(page, &["full from"], PROMISES.iter().map(|promise| promise.title))?;
    for (at, verdicts) in &disk.rows {
        let marks: Vec<&str> = verdicts.iter().map(|verdict| if verdict.is_none() { "✓" } else { "✗" }).collect();
        writeln!(page, "| {at} | {} |", marks.join(" | "))?;
    }
    Ok(())
}

const FULL: &str = "\
The data folder lies on a small file system of its own, which is filled to the last byte at the first such event and freed \
when the daemon has reported it; meanwhile another session can be read.
";

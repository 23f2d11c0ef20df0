//! Ends processes that an earlier life of the daemon left behind. It never ends this process or those it descends from,
//! nor any process that is neither recorded nor marked as ours.

use std::{
    collections::BTreeMap,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use crate::{
    MARK_VARIABLE, STOP_LIMIT,
    ledger::{self, Recorded},
    process::{self, Process},
};

const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// At the daemon's start, before anything is started: ends what is recorded in the ledger (pid and start time must both
/// fit) or carries this data folder's mark, waits until it is gone, and clears the ledger. Returns a line for each
/// process ended, or not. Blocks for at most ten seconds.
pub fn sweep_leftovers(ledger_dir: &Path, mark: &str) -> Vec<String> {
    let recorded = ledger::read(ledger_dir);
    // An empty mark would fit processes that carry none.
    let entries: Vec<String> = (!mark.is_empty()).then(|| format!("{MARK_VARIABLE}={mark}")).into_iter().collect();
    let lines = kill_until_gone(|| leftovers(&recorded, &entries));
    ledger::clear(ledger_dir);
    lines
}

/// Ends every process with all of these entries in its environment; returns those that did not end.
pub(crate) fn kill_marked(entries: &[String]) -> Vec<String> {
    let find = || leftovers(&[], entries);
    kill_until_gone(find);
    find().iter().map(Process::to_string).collect()
}

fn kill_until_gone(find: impl Fn() -> Vec<Process>) -> Vec<String> {
    let deadline = Instant::now() + STOP_LIMIT;
    let mut met: BTreeMap<i32, String> = BTreeMap::new();
    loop {
        let now = find();
        for process in &now {
            process.signal(Signal::KILL);
            met.insert(process.pid, process.to_string());
        }
        if now.is_empty() || Instant::now() > deadline {
            let stuck = |pid: &i32| now.iter().any(|process| process.pid == *pid);
            let line = |(pid, name): (&i32, &String)| match stuck(pid) {
                true => format!("could not end a leftover process: {name}"),
                false => format!("ended a leftover process: {name}"),
            };
            return met.iter().map(line).collect();
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

/// What descends from the recorded ones that still live, then these themselves, and the marked ones. A recorded one is
/// kept to the last: while it lives, whatever loses its parent becomes its child and can still be found.
fn leftovers(recorded: &[Recorded], entries: &[String]) -> Vec<Process> {
    let mut found: Vec<Process> = vec![];
    for process in recorded.iter().filter_map(Recorded::find) {
        let mut below = process::descendants(process.pid);
        if below.is_empty() {
            // One that changes its parent in the middle of a look may be missed by it, but not by the next.
            below = process::descendants(process.pid);
        }
        match below.is_empty() {
            true => found.push(process),
            false => found.extend(below),
        }
    }
    if !entries.is_empty() {
        found.extend(process::marked(entries));
    }
    let spared = process::own_line();
    found.retain(|process| process.is_alive() && !spared.contains(&process.pid));
    found.sort_by_key(|process| process.pid);
    found.dedup_by_key(|process| process.pid);
    found
}

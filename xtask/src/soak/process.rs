//! What `/proc` tells of the daemon and of the processes its calls started. It never ends one.

use std::{
    collections::HashMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// One process whose environment or command line we may look at.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: i32,
    parent: i32,
    /// In ticks since the system started.
    pub start_time: u64,
    name: String,
    environment: Vec<u8>,
    line: Vec<u8>,
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let line = String::from_utf8_lossy(&self.line).replace('\0', " ");
        write!(f, "{} (pid {}, started at tick {}): {line}", self.name, self.pid, self.start_time)
    }
}

impl Process {
    /// `None`: there is none, or it has ended and only waits to be collected.
    pub fn read(pid: i32) -> Option<Process> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // The name stands in brackets and may hold brackets itself. Behind it: state, parent, …, field 22 the start.
        let (before, after) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        if matches!(*fields.first()?, "Z" | "X") {
            return None;
        }
        Some(Process {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
            name: before.split_once('(')?.1.to_owned(),
            environment: fs::read(format!("/proc/{pid}/environ")).unwrap_or_default(),
            line: fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default(),
        })
    }

    fn has(&self, entry: &str) -> bool {
        self.environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    }

    fn says(&self, word: &str) -> bool {
        self.line.windows(word.len().max(1)).any(|part| part == word.as_bytes())
    }
}

fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(Process::read).collect()
}

/// Living processes of these calls: by their mark, or by the call's id on their command line.
pub fn of_calls(calls: &[String]) -> Vec<Process> {
    let belongs = |process: &Process, call: &String| process.has(&format!("TENURE_CALL={call}")) || process.says(call);
    all().into_iter().filter(|process| calls.iter().any(|call| belongs(process, call))).collect()
}

/// Living processes that carry this data folder's mark.
pub fn marked(data: &Path) -> Vec<Process> {
    let entry = format!("TENURE_MARK={}", data.display());
    all().into_iter().filter(|process| process.has(&entry)).collect()
}

/// How many processes descend from this one.
pub fn descendants(of: i32) -> usize {
    let parents: HashMap<i32, i32> = all().into_iter().map(|process| (process.pid, process.parent)).collect();
    let descends = |pid: &i32| {
        let mut up = *pid;
        for _ in 0..parents.len() {
            match parents.get(&up) {
                Some(parent) if *parent == of => return true,
                Some(parent) => up = *parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().filter(|pid| descends(pid)).count()
}

/// Looks until nothing is found any more; what is still there when the time is over.
pub fn wait_gone(limit: Duration, find: impl Fn() -> Vec<Process>) -> Vec<Process> {
    let deadline = Instant::now() + limit;
    loop {
        let found = find();
        if found.is_empty() || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! What `/proc` says of processes, and signals that reach exactly the process meant. It never signals by number alone: the start time must fit too.

use std::{
    collections::HashMap,
    fs::{self, File},
    io::Read as _,
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal},
};

/// What stands in `/proc/<pid>/stat` is far shorter; the kernel makes it with the first read.
const STAT_BYTES: usize = 4096;
/// Most environments fit; longer ones are read all the same.
const ENVIRONMENT_BYTES: usize = 16 * 1024;

/// A process, told from a later one with the same number by its start time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    /// In ticks since the system started.
    pub(crate) start_time: u64,
    pub(crate) name: String,
    state: char,
}

impl Process {
    /// `None`: there is no such process.
    pub(crate) fn read(pid: i32) -> Option<Self> {
        // One read: at every start there is one of these for each process of the machine.
        let mut stat = [0; STAT_BYTES];
        let count = File::open(format!("/proc/{pid}/stat")).and_then(|mut file| file.read(&mut stat)).ok()?;
        Self::parse(pid, &String::from_utf8_lossy(&stat[..count]))
    }

    /// The name stands in brackets and may hold brackets and spaces itself.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let (before, after) = stat.rsplit_once(')')?;
        let name = before.split_once('(')?.1.to_owned();
        // From here: field 3 is the state, 4 the parent, 22 the start time.
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        let state = fields.first()?.chars().next()?;
        Some(Self { pid, parent: fields.get(1)?.parse().ok()?, start_time: fields.get(19)?.parse().ok()?, name, state })
    }

    /// A zombie has ended already; only its parent has not looked yet.
    pub(crate) fn is_alive(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Looks again: whether this very process has not ended yet.
    pub(crate) fn is_still_alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.start_time == self.start_time && now.is_alive())
    }

    /// Sends a signal to this process, never to another that has its number now. False: it is gone, or not ours.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let Some(pid) = Pid::from_raw(self.pid) else { return false };
        let same = || Self::read(self.pid).is_some_and(|now| now.start_time == self.start_time);
        match pidfd_open(pid, PidfdFlags::empty()) {
            // The handle is fixed first, then checked: after that the number cannot change hands unnoticed.
            Ok(fd) => same() && pidfd_send_signal(&fd, signal).is_ok(),
            // An old kernel knows no handles.
            Err(Errno::NOSYS) => same() && kill_process(pid, signal).is_ok(),
            Err(_) => false,
        }
    }

    /// Whether its environment, as it was started, holds exactly these entries among others.
    fn has_in_environment(&self, entries: &[String]) -> bool {
        environment_holds(self.pid, entries)
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// Every process there is, by pid.
fn all() -> HashMap<i32, Process> {
    pids().into_iter().filter_map(|pid| Some((pid, Process::read(pid)?))).collect()
}

fn pids() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return vec![] };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Every process whose environment holds all of these entries. Only those that do are looked at more closely, and then
/// once more: in between the number may have changed hands.
pub(crate) fn marked(entries: &[String]) -> Vec<Process> {
    let marked = pids().into_iter().filter(|pid| environment_holds(*pid, entries));
    marked.filter_map(Process::read).filter(|process| process.has_in_environment(entries)).collect()
}

fn environment_holds(pid: i32, entries: &[String]) -> bool {
    let mut environment = Vec::with_capacity(ENVIRONMENT_BYTES);
    let Ok(file) = File::open(format!("/proc/{pid}/environ")) else { return false };
    // Without `take` the file would be asked for its length first, which is 0 for all of them.
    if file.take(u64::MAX).read_to_end(&mut environment).is_err() {
        return false;
    }
    let holds = |entry: &String| environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes());
    entries.iter().all(holds)
}

/// The living descendants of a process, itself not included.
pub(crate) fn descendants(of: i32) -> Vec<Process> {
    let all = all();
    let mut found: Vec<Process> = all.values().filter(|one| descends(&all, one, of)).cloned().collect();
    found.retain(Process::is_alive);
    found.sort_by_key(|one| one.pid);
    found
}

fn descends(all: &HashMap<i32, Process>, one: &Process, from: i32) -> bool {
    let mut parent = one.parent;
    // The list is read while processes come and go, so a loop in it is possible; the depth bounds it.
    for _ in 0..all.len() {
        if parent == from {
            return true;
        }
        match all.get(&parent) {
            Some(up) if up.parent != parent => parent = up.parent,
            _ => return false,
        }
    }
    false
}

/// This process and those it descends from.
pub(crate) fn own_line() -> Vec<i32> {
    let mut line = vec![];
    let mut pid = std::process::id() as i32;
    while pid > 0 && !line.contains(&pid) {
        line.push(pid);
        pid = Process::read(pid).map_or(0, |process| process.parent);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_is_read_whole() {
        let stat = "42 (a) (b c) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 98765 1 1";
        let expected = Process { pid: 42, parent: 7, start_time: 98765, name: "a) (b c".into(), state: 'S' };
        assert_eq!(Process::parse(42, stat), Some(expected));
        assert_eq!(Process::parse(42, "nonsense"), None);
    }

    #[test]
    fn another_process_with_the_same_number_is_not_signalled() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let real = Process::read(child.id() as i32).unwrap();
        let older = Process { start_time: real.start_time - 1, ..real.clone() };
        assert!(!older.signal(Signal::KILL));
        assert!(child.try_wait().unwrap().is_none());
        assert!(real.signal(Signal::KILL));
        child.wait().unwrap();
        assert!(!real.signal(Signal::KILL));
    }

    #[test]
    fn own_line_begins_here_and_holds_the_parent() {
        let line = own_line();
        assert_eq!(line[0], std::process::id() as i32);
        assert_eq!(line[1], std::os::unix::process::parent_id() as i32);
    }
}

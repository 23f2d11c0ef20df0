//! How much memory a process has, as the kernel counts it.

use std::fs;

use anyhow::{Context, Result};

/// In bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All that is resident, the program's own file included.
    pub rss: u64,
    /// The same, with shared pages counted by their share.
    pub pss: u64,
    /// What the process itself has made: heap and stacks.
    pub anonymous: u64,
}

impl Memory {
    pub fn of(pid: i32) -> Result<Memory> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("the daemon's memory")?;
        let field = |name| field(&text, name);
        Ok(Memory { rss: field("Rss:")?, pss: field("Pss:")?, anonymous: field("Anonymous:")? })
    }

    pub fn beside(&self) -> String {
        format!("Pss {:.1} MB, anonymous {:.1} MB", mb(self.pss), mb(self.anonymous))
    }
}

/// The most that was resident since the start, or since it was last forgotten.
pub fn peak(pid: i32) -> Result<u64> {
    field(&fs::read_to_string(format!("/proc/{pid}/status"))?, "VmHWM:")
}

/// Begins to count the peak anew.
pub fn forget_peak(pid: i32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").context("the peak could not be reset")
}

fn field(text: &str, name: &str) -> Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().with_context(|| format!("{name}{line}"))?;
    Ok(kib * 1024)
}

pub fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        let here = i32::try_from(std::process::id()).unwrap();
        let memory = Memory::of(here).unwrap();
        assert!(memory.rss > 0 && memory.anonymous > 0 && memory.pss <= memory.rss);
        assert!(peak(here).unwrap() > 0);
    }
}

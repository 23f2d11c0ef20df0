//! What the daemon takes of the machine, and whether that grows.

use std::{fs, path::Path};

use super::process;

/// Growth of more than this is too much …
pub const GROWTH_PERCENT_MAX: f64 = 5.0;
/// … unless it is below what an allocator, which gives memory back in large pieces and late, makes of an even load.
pub const RSS_FLOOR_BYTES: f64 = 1024.0 * 1024.0;
/// Files, threads and processes: one of each kind may be under way at any moment, such as a reload of a log or an idle thread that has not ended yet.
pub const COUNT_FLOOR: f64 = 4.0;
/// In a short run the allocator has not found its level yet: with fewer points of rest than this, more is noise.
const RESTS_FOR_RSS: usize = 8;
const RSS_FLOOR_SHORT_BYTES: f64 = 4.0 * RSS_FLOOR_BYTES;
/// So many logs the daemon keeps open on purpose; with fewer sessions than this, each new one adds a file.
const LOGS_OPEN: f64 = 256.0;
/// Kept on purpose for each session that was ever made: its row in the list and its create key.
pub const KEPT_BYTES_PER_SESSION: f64 = 1024.0;

#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    /// Anonymous memory that is resident.
    pub rss_bytes: f64,
    pub fds: f64,
    pub threads: f64,
    /// Processes below the daemon.
    pub processes: f64,
    /// Sessions ever made.
    pub sessions: f64,
}

impl Sample {
    /// `None`: the daemon is not there.
    pub fn of(pid: i32, sessions: usize) -> Option<Sample> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| -> Option<f64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        Some(Sample {
            rss_bytes: field("RssAnon:")? * 1024.0,
            fds: count(Path::new(&format!("/proc/{pid}/fd"))) as f64,
            threads: field("Threads:")?,
            processes: process::descendants(pid) as f64,
            sessions: sessions as f64,
        })
    }
}

/// Entries of a folder.
pub fn count(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Bytes of all files below a folder.
pub fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_below(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

/// The third and the last quarter of some samples, compared.
#[derive(Debug, Clone, Copy, Default)]
pub struct Growth {
    pub third: f64,
    pub last: f64,
    /// How much more is no finding.
    pub allowed: f64,
}

impl Growth {
    fn of(samples: &[Sample], pick: impl Fn(&Sample) -> f64, floor: f64, kept: f64) -> Growth {
        let (half, quarter) = (samples.len() / 2, samples.len() / 4);
        let (third, last) = samples[half..].split_at(samples.len() - half - quarter);
        let made = median(last, &|sample| sample.sessions) - median(third, &|sample| sample.sessions);
        let (third, last) = (median(third, &pick), median(last, &pick));
        Growth { third, last, allowed: (third * GROWTH_PERCENT_MAX / 100.0).max(floor) + kept * made.max(0.0) }
    }

    pub fn percent(&self) -> f64 {
        if self.third == 0.0 { 0.0 } else { (self.last / self.third - 1.0) * 100.0 }
    }

    pub fn is_fine(&self) -> bool {
        self.last - self.third <= self.allowed
    }
}

/// By name: what is judged.
pub fn growths(samples: &[Sample]) -> [(&'static str, Growth); 4] {
    let rss_floor = if samples.len() < RESTS_FOR_RSS { RSS_FLOOR_SHORT_BYTES } else { RSS_FLOOR_BYTES };
    let few = samples.get(samples.len() / 2).is_some_and(|sample| sample.sessions < LOGS_OPEN);
    let logs = if few { 1.0 } else { 0.0 };
    [
        ("rss", Growth::of(samples, |sample| sample.rss_bytes, rss_floor, KEPT_BYTES_PER_SESSION)),
        ("fds", Growth::of(samples, |sample| sample.fds, COUNT_FLOOR, logs)),
        ("threads", Growth::of(samples, |sample| sample.threads, COUNT_FLOOR, 0.0)),
        ("processes", Growth::of(samples, |sample| sample.processes, COUNT_FLOOR, 0.0)),
    ]
}

fn median(samples: &[Sample], pick: &dyn Fn(&Sample) -> f64) -> f64 {
    let mut values: Vec<f64> = samples.iter().map(pick).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rss(megabytes: &[f64]) -> Vec<Sample> {
        let sample = |mb: &f64| Sample { rss_bytes: mb * 1024.0 * 1024.0, ..Sample::default() };
        megabytes.iter().map(sample).collect()
    }

    #[test]
    fn only_the_last_half_is_judged() {
        let [(_, growth), ..] = growths(&rss(&[10.0, 20.0, 40.0, 40.0, 50.0, 50.0, 50.0, 50.0]));
        assert!(growth.is_fine() && growth.percent() == 0.0);
        let [(_, growth), ..] = growths(&rss(&[50.0, 50.0, 50.0, 50.0, 50.0, 50.0, 53.0, 53.0]));
        assert!(!growth.is_fine() && growth.percent().round() == 6.0);
    }

    #[test]
    fn small_growth_is_noise_and_sessions_may_cost_their_rows() {
        let [(_, growth), ..] = growths(&rss(&[4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.9, 4.9]));
        assert!(growth.is_fine());
        let mut samples = rss(&[4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 6.0, 6.0]);
        assert!(!growths(&samples)[0].1.is_fine());
        samples[6..].iter_mut().for_each(|sample| sample.sessions = 2000.0);
        assert!(growths(&samples)[0].1.is_fine());
    }
}

//! How a soak went: a table for people, and one line for machines.

use std::{collections::BTreeMap, time::Duration};

use super::{
    conductor::Tally,
    sample::{Growth, Sample, bytes_below, count, growths},
    world::{World, read},
};

/// Warnings of the daemon that are shown, the most frequent first.
const WARNINGS_MAX: usize = 8;

pub struct Report<'w> {
    pub world: &'w World,
    pub tally: &'w Tally,
    pub lasted: Duration,
    pub at_rest: &'w [Sample],
    pub under_load: &'w [Sample],
}

impl Report<'_> {
    /// Growth beyond what is allowed becomes findings.
    pub fn judge_growth(&self) {
        for (name, growth) in growths(self.at_rest) {
            self.world.check(growth.is_fine(), || {
                format!(
                    "{name} at rest grew from {:.0} in the third to {:.0} in the last quarter of the calm phase; {:.0} more is allowed",
                    growth.third, growth.last, growth.allowed
                )
            });
        }
    }

    /// What the daemon printed must hold no panic and no error.
    pub fn judge_log(&self) {
        let log = self.world.setup.log();
        let bad: Vec<&str> =
            log.lines().filter(|line| line.contains("panicked at") || line.contains(" ERROR ")).take(5).collect();
        self.world.check(bad.is_empty(), || format!("the daemon printed: {bad:?}"));
    }

    pub fn table(&self) -> String {
        let (counts, data) = (&self.world.counts, &self.world.setup.data);
        let settled = read(&counts.settled).max(1);
        let bytes = bytes_below(data);
        let keys = std::fs::metadata(data.join("keys.ndjson")).map_or(0, |about| about.len());
        let sessions = self.world.all_books().len();
        let mut out = String::new();
        let mut row = |name: &str, value: String| out.push_str(&format!("  {name:<42} {value}\n"));
        row("sessions made, alive at the end", format!("{sessions}, {}", self.world.live()));
        row("turns settled", settled.to_string());
        row(
            "commands taken, refused, resent",
            format!("{}, {}, {}", read(&counts.commands), read(&counts.refused), read(&counts.resent)),
        );
        row("connections, items they were given", format!("{}, {}", read(&counts.connections), read(&counts.events)));
        row(
            "SIGKILL, of these early, SIGTERM",
            format!("{}, {}, {}", self.tally.kills, self.tally.early_kills, self.tally.stops),
        );
        row("slowest start until it answers", format!("{:.0} ms", self.tally.start_max.as_secs_f64() * 1e3));
        row(
            "data folder, per turn",
            format!("{:.1} MB, {:.1} KB", bytes as f64 / 1e6, bytes as f64 / 1e3 / settled as f64),
        );
        row("keys.ndjson, per session", format!("{:.1} KB, {} B", keys as f64 / 1e3, keys / sessions.max(1) as u64));
        row(
            "entries in open/, processes/",
            format!("{}, {}", count(&data.join("open")), count(&data.join("processes"))),
        );
        for (when, samples) in [("at rest", self.at_rest), ("under load", self.under_load)] {
            for (name, growth) in growths(samples) {
                row(&format!("{name} {when}, third and last quarter"), shown(name, &growth));
            }
        }
        out
    }

    /// One line, always with the same words.
    pub fn line(&self, minutes: f64, seed: u64) -> String {
        let counts = &self.world.counts;
        let growth: Vec<String> = growths(self.at_rest)
            .iter()
            .map(|(name, growth)| format!("{name}_growth={:.1}%", growth.percent()))
            .collect();
        format!(
            "soak: minutes={minutes} seed={seed} seconds={:.0} sessions={} turns={} kills={} stops={} commands={} events={} \
             checks={} failed={} {}",
            self.lasted.as_secs_f64(),
            self.world.all_books().len(),
            read(&counts.settled),
            self.tally.kills,
            self.tally.stops,
            read(&counts.commands),
            read(&counts.events),
            read(&counts.checks),
            self.world.found(),
            growth.join(" "),
        )
    }

    /// What the logs hold, so that it can be seen what was tried.
    pub fn kinds(&self) -> String {
        let kinds: Vec<String> = self.world.kinds().iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        kinds.chunks(4).map(|row| format!("    {}\n", row.join(", "))).collect()
    }

    /// The daemon's warnings, counted without their numbers and names.
    pub fn warnings(&self) -> String {
        let log = self.world.setup.log();
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for line in log.lines() {
            if let Some((_, text)) = line.split_once(" WARN ") {
                *kinds.entry(without_names(text)).or_default() += 1;
            }
        }
        let mut kinds: Vec<(String, usize)> = kinds.into_iter().collect();
        kinds.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        kinds.truncate(WARNINGS_MAX);
        kinds.into_iter().map(|(kind, count)| format!("  {count:>6} × {kind}\n")).collect()
    }
}

fn shown(name: &str, growth: &Growth) -> String {
    let (scale, unit) = if name == "rss" { (1e6, " MB") } else { (1.0, "") };
    format!("{:.1}{unit}, {:.1}{unit} ({:+.1} %)", growth.third / scale, growth.last / scale, growth.percent())
}

/// Words with digits in them are names or numbers.
fn without_names(text: &str) -> String {
    let word =
        |word: &str| if word.contains(|c: char| c.is_ascii_digit()) { "…".to_owned() } else { word.to_owned() };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ").chars().take(120).collect()
}

//! Runs the daemon through the phases of a soak: killed every few seconds, then left alive and measured, then killed again.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use super::{
    chance::Chance,
    process::{self, Process},
    sample::{Sample, count},
    settle::settle,
    world::{World, read},
};
use crate::daemon::{Daemon, is_alive};

/// An idle session leaves the daemon's memory after this long.
pub const IDLE_EVICT: Duration = Duration::from_millis(700);
/// At a point of rest all sessions have been put out of memory, and all that follows from it is done: every ten seconds
/// the daemon gives memory back, and after as many idle threads and supervisors end.
const REST: Duration = Duration::from_millis(12_500);
/// Between two rests.
const LOAD_MIN: Duration = Duration::from_secs(4);
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
const LOAD_SAMPLE_EVERY: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub struct Tally {
    pub kills: u64,
    /// Kills within a fifth of a second of the start before them, while the daemon recovered.
    pub early_kills: u64,
    pub stops: u64,
    pub start_max: Duration,
}

pub struct Conductor<'w> {
    world: &'w World,
    chance: Chance,
    daemon: Option<Daemon>,
    told_at: Instant,
    pub tally: Tally,
}

impl<'w> Conductor<'w> {
    pub fn start(world: &'w World, chance: Chance) -> Result<Self> {
        let mut this = Self { world, chance, daemon: None, told_at: Instant::now(), tally: Tally::default() };
        this.start_daemon()?;
        Ok(this)
    }

    fn start_daemon(&mut self) -> Result<()> {
        let began = Instant::now();
        let daemon = self.world.setup.start()?;
        self.tally.start_max = self.tally.start_max.max(began.elapsed());
        self.check_leftovers(daemon.pid());
        self.daemon = Some(daemon);
        Ok(())
    }

    /// A daemon that answers has ended all that an earlier life left behind.
    fn check_leftovers(&self, pid: i32) {
        let Some(daemon) = Process::read(pid) else { return };
        let mut left = process::marked(&self.world.setup.data);
        left.retain(|process| process.start_time < daemon.start_time);
        self.world.check(left.is_empty(), || {
            let left: Vec<String> = left.iter().map(ToString::to_string).collect();
            format!("the daemon {pid} answers, and processes of an earlier life are alive: {left:?}")
        });
    }

    pub fn pid(&self) -> Result<i32> {
        Ok(self.daemon.as_ref().context("no daemon runs")?.pid())
    }

    /// Kills and stops at random instants until the time is over.
    pub fn kill_phase(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let next = self.chance.between(2000, 6000);
            self.wait(Instant::now() + next.min(until.saturating_duration_since(Instant::now())), |_| {})?;
            match self.chance.below(100) {
                0..12 => self.stop_in_order()?,
                12..30 => {
                    self.kill()?;
                    let young = self.world.setup.spawn()?;
                    thread::sleep(self.chance.between(0, 200));
                    young.kill9()?;
                    (self.tally.kills, self.tally.early_kills) = (self.tally.kills + 1, self.tally.early_kills + 1);
                }
                _ => self.kill()?,
            }
            self.start_daemon()?;
        }
        Ok(())
    }

    pub fn kill(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("no daemon runs")?;
        daemon.kill9()?;
        self.tally.kills += 1;
        Ok(())
    }

    pub fn restart_killed(&mut self) -> Result<()> {
        self.kill()?;
        self.start_daemon()
    }

    /// SIGTERM. Afterwards nobody may find it, and nothing of it may be left.
    pub fn stop_in_order(&mut self) -> Result<()> {
        let daemon = self.daemon.take().context("no daemon runs")?;
        let pid = daemon.pid();
        if let Err(error) = daemon.stop() {
            self.world.find(format!("the daemon {pid} was told to stop: {error:#}"));
        }
        self.tally.stops += 1;
        let note = self.world.setup.data.join("daemon.json");
        self.world.check(!note.exists(), || format!("{} is left after an orderly stop", note.display()));
        Ok(())
    }

    /// One life of the daemon under the same load, with points of rest at equal distances. Gives the samples taken at rest and those taken under load.
    pub fn calm_phase(&mut self, time: Duration, rests: u32) -> Result<(Vec<Sample>, Vec<Sample>)> {
        let (mut at_rest, mut under_load) = (Vec::new(), Vec::new());
        let (began, mut rest_took) = (Instant::now(), REST);
        for number in 0..rests {
            let mut sampled = Instant::now();
            // The rests are part of the time, but between two of them there is always some load.
            let due = began + time * (number + 1) / rests;
            let until = (due.checked_sub(rest_took).unwrap_or(due)).max(Instant::now() + LOAD_MIN);
            self.wait(until, |this| {
                if sampled.elapsed() > LOAD_SAMPLE_EVERY {
                    sampled = Instant::now();
                    under_load.extend(this.sample());
                }
            })?;
            let resting = Instant::now();
            at_rest.push(self.sample_at_rest()?);
            rest_took = resting.elapsed();
        }
        Ok((at_rest, under_load))
    }

    fn sample(&self) -> Option<Sample> {
        Sample::of(self.daemon.as_ref()?.pid(), self.world.all_books().len())
    }

    fn sample_at_rest(&mut self) -> Result<Sample> {
        self.world.rest(true);
        // Visits come to their end, then what they left open does.
        while self.world.all_books().iter().any(|book| book.busy.load(std::sync::atomic::Ordering::Acquire)) {
            self.wait(Instant::now() + LOOK, |_| {})?;
        }
        settle(self.world);
        self.wait(Instant::now() + REST, |_| {})?;
        let sample = self.sample().context("the daemon is gone")?;
        let ledger = self.world.setup.data.join("processes");
        let (entries, marked) = (count(&ledger), process::marked(&self.world.setup.data));
        self.world.check(entries == 0, || format!("{entries} entries in {} at rest", ledger.display()));
        self.world.check(marked.is_empty(), || {
            let marked: Vec<String> = marked.iter().map(ToString::to_string).collect();
            format!("processes are alive at rest: {marked:?}")
        });
        self.world.rest(false);
        Ok(sample)
    }

    /// Waits, tells how it goes, and notices a daemon that ended by itself.
    fn wait(&mut self, until: Instant, mut meanwhile: impl FnMut(&Self)) -> Result<()> {
        while Instant::now() < until {
            if self.world.is_interrupted() {
                bail!("interrupted");
            }
            let pid = self.pid()?;
            if !is_alive(pid) {
                bail!("the daemon {pid} ended by itself; it printed:\n{}", self.world.setup.log_end());
            }
            meanwhile(self);
            self.tell();
            thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    fn tell(&mut self) {
        if self.told_at.elapsed() < PROGRESS_EVERY {
            return;
        }
        self.told_at = Instant::now();
        let (world, counts) = (self.world, &self.world.counts);
        let sample = self.sample().unwrap_or_default();
        println!(
            "soak: {:5.0} s  sessions {} of {}  turns {}  kills {}  commands {} ({} resent)  events {}  connections {}  \
             rss {:.1} MB  fds {}  threads {}  processes {}  findings {}",
            world.began.elapsed().as_secs_f64(),
            world.live(),
            world.all_books().len(),
            read(&counts.turns),
            self.tally.kills,
            read(&counts.commands),
            read(&counts.resent),
            read(&counts.events),
            read(&counts.connections),
            sample.rss_bytes / 1e6,
            sample.fds,
            sample.threads,
            sample.processes,
            world.found(),
        );
    }
}

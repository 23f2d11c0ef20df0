//! `cargo xtask soak`: many sessions, many clients, a daemon that is killed again and again, and a check of all of it against the clients' own records.

mod book;
mod chance;
mod check;
mod command;
mod conductor;
mod driver;
mod interrupt;
mod options;
mod process;
mod report;
mod sample;
mod script;
mod seat;
mod settle;
mod silent;
mod watcher;
mod world;

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, bail};

use chance::Chance;
use conductor::{Conductor, IDLE_EVICT};
use driver::Driver;
pub use options::HELP;
use options::Options;
use report::Report;
use sample::Sample;
use script::Scripts;
use world::World;

use crate::daemon::{Build, Setup, tenure};

/// Clients that work with sessions, and clients that only watch.
const DRIVERS: u64 = 24;
const WATCHERS: u64 = 10;
/// Shares of the time: kills first, then calm; what is left is for kills again.
const KILLS_SHARE: f64 = 0.45;
const CALM_SHARE: f64 = 0.50;
/// The calm phase has a point of rest about this often, and no fewer than the quarters that are compared.
const REST_EVERY: Duration = Duration::from_secs(35);
const RESTS_MIN: u32 = 4;
const RESTS_MAX: u32 = 40;
/// What a stopped daemon's processes may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(2);

pub fn run(words: &[&str]) -> Result<()> {
    let options = Options::read(words)?;
    let seed = options.seed.unwrap_or_else(fresh_seed);
    println!("soak: seed {seed}");
    let binary = match &options.binary {
        Some(binary) => binary.canonicalize()?,
        None => tenure(Build::Release)?,
    };
    let folder = tempfile::Builder::new().prefix("tenure-soak-").tempdir()?;
    let world = world(&binary, &folder.path().canonicalize()?, options.sessions)?;
    interrupt::watch()?;
    let soaked = soak(&world, options.minutes, seed);
    if world.is_interrupted() {
        bail!("interrupted; nothing was judged");
    }
    if soaked.is_err() || world.found() > 0 {
        let kept = folder.keep();
        soaked?;
        bail!("{} findings; all files are kept in {}", world.found(), kept.display());
    }
    Ok(())
}

fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.subsec_nanos().into())
}

fn world(binary: &Path, folder: &Path, population: usize) -> Result<World> {
    let setup = Setup::new(binary, &folder.join("data"));
    fs::create_dir_all(&setup.data)?;
    fs::write(setup.data.join("config.toml"), format!("idle_evict_ms = {}\n", IDLE_EVICT.as_millis()))?;
    let scripts = Scripts::write(folder)?;
    Ok(World::new(setup, folder.to_owned(), scripts, population))
}

fn soak(world: &World, minutes: f64, seed: u64) -> Result<()> {
    let mut conductor = Conductor::start(world, Chance::new(seed, 0))?;
    let loaded = thread::scope(|scope| {
        for number in 0..DRIVERS {
            scope.spawn(move || Driver::new(world, Chance::new(seed, 1 + number)).run());
        }
        for number in 0..WATCHERS {
            scope.spawn(move || watcher::run(world, Chance::new(seed, 1001 + number)));
        }
        let loaded = load(world, &mut conductor, minutes);
        world.end_load();
        loaded
    });
    let (at_rest, under_load) = loaded?;
    println!("soak: the load is over; settling and checking every session");
    settle::settle(world);
    conductor.restart_killed()?;
    check::check_all(world);
    conductor.stop_in_order()?;
    let left = process::wait_gone(GONE_MAX, || process::marked(&world.setup.data));
    world.check(left.is_empty(), || {
        format!("alive after the end: {:?}", left.iter().map(ToString::to_string).collect::<Vec<_>>())
    });
    let lasted = world.began.elapsed();
    let report = Report { world, tally: &conductor.tally, lasted, at_rest: &at_rest, under_load: &under_load };
    report.judge_growth();
    report.judge_log();
    tell(&report, minutes, seed);
    Ok(())
}

/// The three phases. Gives the samples taken at rest and under load.
fn load(world: &World, conductor: &mut Conductor<'_>, minutes: f64) -> Result<(Vec<Sample>, Vec<Sample>)> {
    let whole = Duration::from_secs_f64(minutes * 60.0);
    let (kills, calm) = (whole.mul_f64(KILLS_SHARE), whole.mul_f64(CALM_SHARE));
    conductor.kill_phase(kills)?;
    let rests = (calm.as_secs_f64() / REST_EVERY.as_secs_f64()) as u32 / 4 * 4;
    let began = Instant::now();
    let samples = conductor.calm_phase(calm, rests.clamp(RESTS_MIN, RESTS_MAX))?;
    println!("soak: the calm phase took {:.0} s", began.elapsed().as_secs_f64());
    world.rest(true);
    let each = silent::check(world, conductor.pid()?)?;
    world.rest(false);
    println!("soak: a watcher that reads nothing of a long reply costs {:.0} KB", each / 1e3);
    conductor.kill_phase(whole - kills - calm)?;
    Ok(samples)
}

fn tell(report: &Report<'_>, minutes: f64, seed: u64) {
    println!("\n{}", report.table());
    println!("  In the logs:\n{}", report.kinds());
    let warnings = report.warnings();
    if !warnings.is_empty() {
        println!("  The daemon warned:\n{warnings}");
    }
    let findings = report.world.findings();
    if !findings.is_empty() {
        println!("  Findings:");
        findings.iter().for_each(|finding| println!("  - {finding}"));
    }
    println!("{}", report.line(minutes, seed));
}

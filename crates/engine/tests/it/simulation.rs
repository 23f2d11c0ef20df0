//! The simulator: from a seed a whole life of the engine is made (commands of several clients, weather, crashes, watchers), and everything promised is looked at after every act. A failure prints how to repeat it.

use std::{
    ops::Range,
    sync::Mutex,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

mod acts;
mod checks;
mod commands;
mod compactions;
mod dice;
mod faults;
mod forks;
mod issued;
mod life;
mod looks;
mod readers;
mod record;
mod rules;
mod script;
mod step_checks;
mod undos;
mod work;
mod world;

use life::Life;
use world::Sum;

/// How many lives the tests live through, unless `SEEDS` says otherwise. `SEED` picks one, `FIRST_SEED` where to begin;
/// `STORY=1` tells what happens, and all that a life that went wrong had written.
const SEEDS: u64 = 300;
/// They are shared between so many tests, which run side by side.
const SHARES: u64 = 6;
/// Lives that go through places where something was wrong once: a cancel in the instant in which its turn starts work, an
/// approval whose time is over while its turn waits for a budget.
const KEPT: &[u64] = &[11, 63, 138, 285];
/// How often a long run says how far it is.
const PROGRESS: Duration = Duration::from_secs(5);

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

/// Lives one life; a fault comes with the one line that repeats it.
fn live(seed: u64) -> Result<Sum, String> {
    let mut life = Life::new(seed);
    let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| life.live()));
    let fault = match lived {
        Ok(Ok(sum)) => return Ok(sum),
        Ok(Err(fault)) => fault,
        Err(_) => "it panicked, see above".to_owned(),
    };
    if number("STORY").is_some() {
        life.story().iter().for_each(|line| eprintln!("{line}"));
    }
    Err(format!("{fault}\nrepeat with: SEED={seed} cargo nextest run -p tenure-engine simulation"))
}

fn live_well(seed: u64) {
    if let Err(fault) = live(seed) {
        panic!("{fault}");
    }
}

/// A part of what the test command runs; with `SEED` or `SEEDS` the first part does it all.
fn share(index: u64) {
    let first = number("FIRST_SEED").unwrap_or(0);
    match (number("SEED"), number("SEEDS")) {
        (Some(seed), _) if index == 0 => run(seed..seed + 1),
        (None, Some(seeds)) if index == 0 => run(first..first + seeds),
        (None, None) => {
            let each = SEEDS / SHARES;
            for seed in first + index * each..first + (index + 1) * each {
                live_well(seed);
            }
        }
        _ => {}
    }
}

/// All seeds, on every core; says how far it is, and in the end what it did, on one line for machines.
fn run(seeds: Range<u64>) {
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let (sum, said) = (Mutex::new(Sum::default()), Mutex::new(Instant::now()));
    let all = seeds.end - seeds.start;
    let work = || loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds.end {
            return;
        }
        match live(seed) {
            Ok(lived) => sum.lock().unwrap().add(&lived),
            Err(fault) => {
                eprintln!("{fault}");
                failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        let mut said = said.lock().unwrap();
        if said.elapsed() >= PROGRESS {
            *said = Instant::now();
            let Sum { lives, acts, crashes, .. } = *sum.lock().unwrap();
            println!("simulation: {lives} of {all} lives, {acts} acts, {crashes} crashes");
        }
    };
    std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..cores {
            scope.spawn(work);
        }
    });
    let Sum { lives, acts, crashes, commands, acknowledged, events, checks } = *sum.lock().unwrap();
    let failed = failed.into_inner();
    println!(
        "simulation: lives={lives} acts={acts} crashes={crashes} commands={commands} acknowledged={acknowledged} \
         events={events} checks={checks} failed={failed}"
    );
    assert_eq!(failed, 0, "some lives broke a promise");
}

#[test]
fn whatever_happens_the_promises_hold_1() {
    share(0);
}

#[test]
fn whatever_happens_the_promises_hold_2() {
    share(1);
}

#[test]
fn whatever_happens_the_promises_hold_3() {
    share(2);
}

#[test]
fn whatever_happens_the_promises_hold_4() {
    share(3);
}

#[test]
fn whatever_happens_the_promises_hold_5() {
    share(4);
}

#[test]
fn whatever_happens_the_promises_hold_6() {
    share(5);
}

#[test]
fn lives_that_went_wrong_once_go_well() {
    for seed in KEPT {
        live_well(*seed);
    }
}

#[test]
fn the_same_seed_is_the_same_life() {
    for seed in 0..8 {
        let story = |seed| {
            let mut life = Life::new(seed);
            (life.live(), life.story())
        };
        let (first, second) = (story(seed), story(seed));
        assert_eq!(first.1, second.1, "the logs of two lives of seed {seed}");
        assert_eq!(first.0, second.0);
    }
}

/// The lives would prove nothing of undo if there were none.
#[test]
fn undos_of_every_kind_happen() {
    happen(vec![
        r#""type":"checkpoint_created""#,
        r#""outcome":"restored""#,
        r#""outcome":"refused""#,
        r#""refused":[{"path":"file"#,
    ]);
}

/// The lives would prove nothing of compactions if there were none.
#[test]
fn compactions_of_every_kind_happen() {
    happen(vec![
        r#""type":"compaction_started","actor":{"kind":"policy"},"data":{"trigger":"threshold","blocking":false"#,
        r#""type":"compaction_started","actor":{"kind":"policy"},"data":{"trigger":"threshold","blocking":true"#,
        r#""type":"compaction_started","actor":{"kind":"policy"},"data":{"trigger":"overflow","blocking":true"#,
        r#""type":"context_compacted","actor":{"kind":"agent"},"data":{"trigger":"threshold""#,
        r#""type":"context_compacted","actor":{"kind":"agent"},"data":{"trigger":"overflow""#,
        r#""type":"context_compacted","actor":{"kind":"agent"},"data":{"trigger":"asked""#,
        r#""type":"compaction_failed","actor":{"kind":"system"},"data":{"reason":{"kind":"interrupted""#,
        r#""type":"compaction_failed","actor":{"kind":"system"},"data":{"reason":{"kind":"stream_stalled""#,
        r#""type":"compaction_failed","actor":{"kind":"system"},"data":{"reason":{"kind":"canceled""#,
        r#""type":"compaction_failed","actor":{"kind":"system"},"data":{"reason":{"kind":"bad_request""#,
        r#""type":"turn_failed","actor":{"kind":"system"},"data":{"code":"context_overflow""#,
    ]);
}

fn happen(mut missing: Vec<&str>) {
    for seed in 0..200 {
        let mut life = Life::new(seed);
        life.live().expect("a life goes well");
        let story = life.story();
        missing.retain(|mark| !story.iter().any(|line| line.contains(mark)));
        if missing.is_empty() {
            return;
        }
    }
    panic!("these never happened: {missing:#?}");
}

//! Lives by seed: the power goes at a random instant, again and again, and nothing acknowledged is ever lost.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use super::life::{Tally, live};

/// Lives in an ordinary run; `SEEDS` asks for more.
const LIVES: u64 = 200;
/// Seeds that once failed: holes in a last decision (170), syncs that failed before (33, 46, 183), a decision in parts (32),
/// folders whose names were not safe (2, 8), rows of sessions that never came to be (328), a session settled before its
/// log was cut back (5063).
const KEPT: [u64; 9] = [2, 8, 32, 33, 46, 170, 183, 328, 5063];
/// A run with more failures than this has said enough.
const FAILURES_MAX: usize = 5;
const THREADS_MAX: usize = 4;
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

fn number(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

fn seeds() -> Vec<u64> {
    if let Some(seed) = number("SEED") {
        return vec![seed];
    }
    let first = number("FIRST_SEED").unwrap_or(1);
    KEPT.into_iter().chain(first..first + number("SEEDS").unwrap_or(LIVES)).collect()
}

/// What all lives came to so far.
#[derive(Default)]
struct Sum {
    lives: usize,
    tally: Tally,
    failed: Vec<u64>,
}

#[test]
fn no_cut_takes_back_what_was_acknowledged() {
    let seeds = seeds();
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Sum::default()));
    std::thread::scope(|scope| {
        // Each life has its own disk, so they do not know of each other.
        for _ in 0..std::thread::available_parallelism().map_or(1, |count| count.get().min(THREADS_MAX)) {
            scope.spawn(|| live_all(&seeds, &next, &sum));
        }
    });
    let Sum { lives, tally: Tally { cuts, changes, acknowledged }, failed } = sum.into_inner().unwrap();
    let failures = failed.len();
    println!("power: lives={lives} cuts={cuts} changes={changes} acknowledged={acknowledged} failed={failures}");
    assert!(failed.is_empty(), "lives that failed: {failed:?}");
}

fn live_all(seeds: &[u64], next: &AtomicUsize, sum: &Mutex<Sum>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut shown = Instant::now();
    while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
        let lived = catch_unwind(AssertUnwindSafe(|| runtime.block_on(live(*seed))));
        let mut sum = sum.lock().unwrap();
        sum.lives += 1;
        match lived {
            Ok(tally) => {
                sum.tally.cuts += tally.cuts;
                sum.tally.changes += tally.changes;
                sum.tally.acknowledged += tally.acknowledged;
            }
            Err(_) => {
                println!("repeat with: SEED={seed} cargo nextest run -p tenure-store power");
                sum.failed.push(*seed);
            }
        }
        if sum.failed.len() >= FAILURES_MAX {
            return;
        }
        if shown.elapsed() >= PROGRESS_EVERY {
            shown = Instant::now();
            println!("power: {} of {} lives", sum.lives, seeds.len());
        }
    }
}

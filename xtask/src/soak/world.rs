//! What all threads of a soak share: where the daemon is, every session's records, the counts and the findings.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    book::{Book, lock},
    chance::Chance,
    interrupt,
    script::Scripts,
};
use crate::daemon::Setup;

/// More findings than this are only counted.
const FINDINGS_MAX: usize = 60;
/// A finding is cut after this many characters when it is printed.
const FINDING_CHARS_MAX: usize = 1200;

#[derive(Debug, Default)]
pub struct Counts {
    pub commands: AtomicU64,
    /// Sent once more under the same key because the connection broke or the daemon was stopping.
    pub resent: AtomicU64,
    pub refused: AtomicU64,
    pub events: AtomicU64,
    pub connections: AtomicU64,
    /// Turns that drivers saw settled.
    pub turns: AtomicU64,
    /// Turns that the logs say are settled.
    pub settled: AtomicU64,
    pub checks: AtomicU64,
}

pub fn add(count: &AtomicU64, more: usize) {
    count.fetch_add(more as u64, Ordering::Relaxed);
}

pub fn read(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

pub struct World {
    pub setup: Setup,
    pub folder: PathBuf,
    pub scripts: Scripts,
    /// How many sessions live at one time.
    pub population: usize,
    pub began: Instant,
    pub books: Mutex<Vec<Arc<Book>>>,
    pub counts: Counts,
    /// What the logs hold, by kind: what was tried at all.
    kinds: Mutex<BTreeMap<String, usize>>,
    findings: Mutex<Vec<String>>,
    found: AtomicU64,
    numbers: AtomicU64,
    making: AtomicU64,
    /// Drivers and watchers end.
    over: AtomicBool,
    /// Drivers and watchers leave and wait.
    resting: AtomicBool,
}

impl World {
    pub fn new(setup: Setup, folder: PathBuf, scripts: Scripts, population: usize) -> World {
        World {
            setup,
            folder,
            scripts,
            population,
            began: Instant::now(),
            books: Mutex::default(),
            counts: Counts::default(),
            kinds: Mutex::default(),
            findings: Mutex::default(),
            found: AtomicU64::new(0),
            numbers: AtomicU64::new(0),
            making: AtomicU64::new(0),
            over: AtomicBool::new(false),
            resting: AtomicBool::new(false),
        }
    }

    /// A number that nobody else in this run has: for keys and names.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Something that was promised and not kept; told at once.
    pub fn find(&self, finding: String) {
        let count = self.found.fetch_add(1, Ordering::Relaxed);
        if count < FINDINGS_MAX as u64 {
            let shown: String = finding.chars().take(FINDING_CHARS_MAX).collect();
            eprintln!("soak: FINDING at {:.1} s: {shown}", self.began.elapsed().as_secs_f64());
            lock(&self.findings).push(shown);
        }
    }

    pub fn found(&self) -> u64 {
        read(&self.found)
    }

    pub fn findings(&self) -> Vec<String> {
        lock(&self.findings).clone()
    }

    /// Counts a check, and finds what it found wrong.
    pub fn check(&self, holds: bool, wrong: impl FnOnce() -> String) {
        add(&self.counts.checks, 1);
        if !holds {
            self.find(wrong());
        }
    }

    pub fn is_interrupted(&self) -> bool {
        interrupt::is_told()
    }

    pub fn end_load(&self) {
        self.over.store(true, Ordering::Release);
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || self.is_interrupted()
    }

    pub fn rest(&self, resting: bool) {
        self.resting.store(resting, Ordering::Release);
    }

    pub fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Acquire)
    }

    /// Whether visits go on.
    pub fn is_open(&self) -> bool {
        !self.is_over() && !self.is_resting()
    }

    /// Waits; less long if all is over.
    pub fn pause(&self, time: Duration) {
        let deadline = Instant::now() + time;
        while !self.is_over() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20).min(deadline.saturating_duration_since(Instant::now())));
        }
    }

    pub fn count_kind(&self, kind: String) {
        *lock(&self.kinds).entry(kind).or_default() += 1;
    }

    pub fn kinds(&self) -> BTreeMap<String, usize> {
        lock(&self.kinds).clone()
    }

    pub fn all_books(&self) -> Vec<Arc<Book>> {
        lock(&self.books).clone()
    }

    pub fn live(&self) -> usize {
        lock(&self.books).iter().filter(|book| !book.ended.load(Ordering::Relaxed)).count()
    }

    /// Whether one more session is to be made; who is told yes makes it.
    pub fn wants_session(&self) -> bool {
        let books = lock(&self.books);
        let live = books.iter().filter(|book| !book.ended.load(Ordering::Relaxed)).count();
        let making = self.making.load(Ordering::Relaxed);
        let wanted = live as u64 + making < self.population as u64;
        if wanted {
            self.making.store(making + 1, Ordering::Relaxed);
        }
        wanted
    }

    pub fn made(&self, book: Option<Arc<Book>>) {
        let mut books = lock(&self.books);
        books.extend(book);
        self.making.fetch_sub(1, Ordering::Relaxed);
    }

    /// A live session that no driver works on; it is the caller's until `busy` is taken back.
    pub fn take_free(&self, chance: &mut Chance) -> Option<Arc<Book>> {
        let books = lock(&self.books);
        let free: Vec<&Arc<Book>> = books
            .iter()
            .filter(|book| !book.ended.load(Ordering::Relaxed) && !book.busy.load(Ordering::Acquire))
            .collect();
        let book = Arc::clone(chance.one_of(&free)?);
        book.busy.store(true, Ordering::Release);
        Some(book)
    }

    /// Any session, ended ones too.
    pub fn any(&self, chance: &mut Chance) -> Option<Arc<Book>> {
        chance.one_of(&lock(&self.books)).map(Arc::clone)
    }
}

//! Goes through all names and harms with a few lives at a time, and keeps what each showed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use nix::errno::Errno;

use super::{
    name::Name,
    promises::PROMISES,
    trial::{Harm, Outcome, Plan, Stage},
};

/// A pass that brings no new name is quiet; the search ends after this many in a row.
const QUIET_PASSES: u32 = 3;
const PASSES_MAX: u32 = 16;
/// A call that a run did not make this time is looked for this often in one pass.
const LOOKS: u32 = 3;
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// What is done at a name, as the table heads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Kill,
    Tear,
    Full,
    Broken,
    Short,
    StaysFull,
    StaysBroken,
}

impl Kind {
    pub const ALL: [Kind; 7] =
        [Kind::Kill, Kind::Tear, Kind::Full, Kind::Broken, Kind::Short, Kind::StaysFull, Kind::StaysBroken];

    pub fn word(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Tear => "tear",
            Kind::Full => "enospc",
            Kind::Broken => "eio",
            Kind::Short => "short",
            Kind::StaysFull => "stays-enospc",
            Kind::StaysBroken => "stays-eio",
        }
    }

    fn harm(self) -> Harm {
        match self {
            Kind::Kill => Harm::Kill,
            Kind::Tear => Harm::Tear,
            Kind::Full => Harm::Once(Errno::ENOSPC),
            Kind::Broken => Harm::Once(Errno::EIO),
            Kind::Short => Harm::Short,
            Kind::StaysFull => Harm::Lasting(Errno::ENOSPC),
            Kind::StaysBroken => Harm::Lasting(Errno::EIO),
        }
    }

    /// Whether it can happen to such a call.
    pub fn fits(self, name: &Name) -> bool {
        // What the daemon prints goes to a file in the data folder when it runs in the background.
        let in_data = !matches!(name.class, "socket" | "pipe to a tool" | "workspace" | "elsewhere");
        let in_session =
            matches!(name.class, "log" | "spool" | "snapshot" | "turn record" | "artifact" | "session folder");
        let writes = matches!(name.call, "write" | "pwrite64");
        match self {
            Kind::Kill => true,
            Kind::Tear | Kind::Short => in_data && writes,
            Kind::Full => in_data && !matches!(name.call, "unlink" | "unlinkat" | "ftruncate"),
            Kind::Broken => in_data,
            // Before the session is there, its files cannot be told from others'.
            Kind::StaysFull | Kind::StaysBroken => in_session && name.seq > 0 && matches!(name.class, "log" | "spool"),
        }
    }
}

/// What one kind of harm at one name showed.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    /// Lives in which the harm was done.
    pub lives: u32,
    /// For each promise what broke it first.
    pub broken: [Option<String>; PROMISES.len()],
}

#[derive(Debug, Default)]
pub struct Matrix {
    /// Every name met, and the most calls of that name in one life.
    pub names: BTreeMap<Name, u32>,
    pub cells: BTreeMap<(Name, Kind), Cell>,
    pub passes: u32,
    pub second_kills: u32,
}

impl Matrix {
    pub fn lives(&self, kind: Kind) -> u32 {
        self.cells.iter().filter(|((_, of), _)| *of == kind).map(|(_, cell)| cell.lives).sum()
    }

    /// Names at which this was done.
    pub fn points(&self, kind: Kind) -> usize {
        self.cells.iter().filter(|((_, of), cell)| *of == kind && cell.lives > 0).count()
    }

    pub fn failed_cells(&self) -> usize {
        self.cells.values().flat_map(|cell| &cell.broken).flatten().count()
    }
}

/// Work for one life.
#[derive(Debug, Clone)]
struct Job {
    plan: Plan,
    kind: Kind,
    looks: u32,
}

pub struct Runner<'a> {
    pub stage: &'a Stage,
    pub jobs: usize,
    matrix: Mutex<Matrix>,
    queue: Mutex<VecDeque<Job>>,
    /// New names join the pass under way.
    pass: Mutex<Option<(u32, BTreeSet<Name>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that looks like chance and is the same each time.
fn scatter(name: &Name, pass: u32) -> u32 {
    let text = format!("{name} {pass}");
    text.bytes().fold(2_166_136_261, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

/// A daemon that recovers makes about this many calls; a second kill falls somewhere among them.
const RECOVERY_CALLS: u32 = 40;

impl<'a> Runner<'a> {
    pub fn new(stage: &'a Stage, jobs: usize) -> Runner<'a> {
        Runner { stage, jobs, matrix: Mutex::default(), queue: Mutex::default(), pass: Mutex::default() }
    }

    pub fn finish(self) -> Matrix {
        self.matrix.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// One life without harm; it gives the first names.
    pub fn explore(&self) -> Result<()> {
        let outcome = self.stage.live(None)?;
        if let Some(broken) = outcome.verdicts.iter().flatten().next() {
            anyhow::bail!("a life without any harm breaks a promise: {broken}");
        }
        self.learn(&outcome);
        Ok(())
    }

    /// Kills at every name, again and again, until no pass brings a new one.
    pub fn kill_everywhere(&self) -> Result<()> {
        let mut quiet = 0;
        for pass in 1..=PASSES_MAX {
            let known: BTreeSet<Name> = lock(&self.matrix).names.keys().cloned().collect();
            let before = known.len();
            known.iter().for_each(|name| self.want_kill(name, pass));
            *lock(&self.pass) = Some((pass, known));
            self.work(&format!("pass {pass}"))?;
            *lock(&self.pass) = None;
            let mut matrix = lock(&self.matrix);
            matrix.passes = pass;
            let new = matrix.names.len() - before;
            println!("crash: pass {pass}: {} kill points, {new} of them new", matrix.names.len());
            quiet = if new == 0 { quiet + 1 } else { 0 };
            if quiet == QUIET_PASSES {
                return Ok(());
            }
        }
        println!("crash: there were new names even in the last of {PASSES_MAX} passes");
        Ok(())
    }

    /// Later passes kill at later calls of the same name, and every second pass kills the recovering daemon too.
    fn want_kill(&self, name: &Name, pass: u32) {
        let most = lock(&self.matrix).names.get(name).copied().unwrap_or(1);
        let harm = match pass % 2 {
            0 => Harm::KillTwice(1 + scatter(name, pass) % RECOVERY_CALLS),
            _ => Harm::Kill,
        };
        let plan = Plan { at: name.clone(), nth: 1 + (pass - 1) % most, harm };
        lock(&self.queue).push_back(Job { plan, kind: Kind::Kill, looks: LOOKS });
    }

    /// One harm at each of these names.
    pub fn harm(&self, kind: Kind, names: &[Name]) -> Result<()> {
        for name in names.iter().filter(|name| kind.fits(name)) {
            // In the middle of those with this name: of a stream, something has been shown by then.
            let nth = lock(&self.matrix).names.get(name).map_or(1, |most| most.div_ceil(2));
            let plan = Plan { at: name.clone(), nth, harm: kind.harm() };
            lock(&self.queue).push_back(Job { plan, kind, looks: LOOKS });
        }
        self.work(kind.word())
    }

    pub fn names(&self) -> Vec<Name> {
        lock(&self.matrix).names.keys().cloned().collect()
    }

    /// Empties the queue.
    fn work(&self, what: &str) -> Result<()> {
        let progress = Mutex::new((Instant::now(), 0_u32));
        thread::scope(|scope| {
            let worker = || -> Result<()> {
                loop {
                    let Some(job) = lock(&self.queue).pop_front() else { return Ok(()) };
                    self.job(job)?;
                    let mut progress = lock(&progress);
                    progress.1 += 1;
                    if progress.0.elapsed() > PROGRESS_EVERY {
                        println!("crash: {what}: {} lives, {} to go", progress.1, lock(&self.queue).len());
                        progress.0 = Instant::now();
                    }
                }
            };
            let workers: Vec<_> = (0..self.jobs).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().try_for_each(|worker| match worker.join() {
                Ok(done) => done,
                Err(_) => anyhow::bail!("a worker panicked"),
            })
        })
    }

    fn job(&self, mut job: Job) -> Result<()> {
        let outcome = self.stage.live(Some(&job.plan))?;
        self.learn(&outcome);
        let failed = outcome.verdicts.iter().any(Option::is_some);
        if !outcome.hit && !failed {
            job.looks -= 1;
            // Perhaps the life made fewer calls of that name this time.
            job.plan.nth = 1;
            if job.looks > 0 {
                lock(&self.queue).push_back(job);
            }
            return Ok(());
        }
        if failed {
            report(&job, &outcome);
        }
        let mut matrix = lock(&self.matrix);
        if matches!(job.plan.harm, Harm::KillTwice(_)) {
            matrix.second_kills += 1;
        }
        let cell = matrix.cells.entry((job.plan.at, job.kind)).or_default();
        cell.lives += 1;
        for (first, verdict) in cell.broken.iter_mut().zip(outcome.verdicts) {
            if first.is_none() {
                *first = verdict;
            }
        }
        Ok(())
    }

    fn learn(&self, outcome: &Outcome) {
        let mut new = Vec::new();
        let mut matrix = lock(&self.matrix);
        for (name, count) in &outcome.names {
            let most = matrix.names.entry(name.clone()).or_insert_with(|| {
                new.push(name.clone());
                0
            });
            *most = (*most).max(*count);
        }
        drop(matrix);
        let mut pass = lock(&self.pass);
        if let Some((number, known)) = &mut *pass {
            for name in new {
                if known.insert(name.clone()) {
                    self.want_kill(&name, *number);
                }
            }
        }
    }
}

/// What went wrong and the one line that tries it again.
fn report(job: &Job, outcome: &Outcome) {
    println!("crash: FAILED: {:?} at {} (call {})", job.plan.harm, job.plan.at, job.plan.nth);
    for (promise, verdict) in PROMISES.iter().zip(&outcome.verdicts) {
        if let Some(verdict) = verdict {
            println!("crash:   {}: {verdict}", promise.title);
        }
    }
    println!("crash:   again: cargo xtask crash --only '{}' --harm {} --times 10", job.plan.at, job.kind.word());
}

//! One life of the clients with one harm done to the daemon at a named instant, and what the promises say of it afterwards.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{
    full_disk::Disk,
    name::{Grounds, Name, Progress},
    promises::{Evidence, PROMISES, check},
    story::{self, Story},
    tracer::{Call, Fate, Judge, Memory, follow},
};
use crate::{
    daemon::{PATIENCE, Setup},
    http::Item,
    reader::{Reader, read_all},
};

const POLL: Duration = Duration::from_millis(2);

/// What is done, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// SIGKILL at the entry of the call.
    Kill,
    /// SIGKILL, and another one at this call of the daemon that recovers.
    KillTwice(u32),
    /// Half of the bytes are written, then SIGKILL.
    Tear,
    /// The call fails once.
    Once(Errno),
    /// Half of the bytes are written.
    Short,
    /// From this call on, every change of the session's files fails, until it is seen that others are served.
    Lasting(Errno),
}

/// The harm at the n-th call with this name.
#[derive(Debug, Clone)]
pub struct Plan {
    pub at: Name,
    pub nth: u32,
    pub harm: Harm,
}

/// The n-th event of a kind, in the session's stream.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    pub kind: &'static str,
    pub nth: usize,
}

/// What all lives begin with: a data folder with a session that only looks on.
pub struct Stage {
    binary: PathBuf,
    folder: TempDir,
    bystander: String,
    bystander_before: Vec<Item>,
}

/// What a life showed.
pub struct Outcome {
    /// Names met before the harm, and how often.
    pub names: BTreeMap<Name, u32>,
    pub hit: bool,
    /// For each promise what broke it.
    pub verdicts: [Option<String>; PROMISES.len()],
}

impl Stage {
    pub fn set(binary: &Path) -> Result<Stage> {
        let folder = TempDir::with_prefix("tenure-crash-")?;
        let setup = Setup::new(binary, &folder.path().join("data"));
        fs::create_dir_all(&setup.data)?;
        fs::write(setup.data.join("config.toml"), story::CONFIG)?;
        fs::write(folder.path().join("script.json"), story::script().to_string())?;
        let workspace = folder.path().join("quiet");
        fs::create_dir_all(&workspace)?;
        let daemon = setup.start()?;
        let bystander = say_to_new(&setup, &workspace)?;
        let bystander_before = read_all(&setup, &bystander)?;
        daemon.stop()?;
        Ok(Stage { binary: binary.to_owned(), folder, bystander, bystander_before })
    }

    /// Lives once, with this harm.
    pub fn live(&self, plan: Option<&Plan>) -> Result<Outcome> {
        let folder = TempDir::with_prefix("tenure-crash-life-")?;
        let (data, workspace) = (folder.path().join("data"), folder.path().join("workspace"));
        copy(&self.folder.path().join("data"), &data)?;
        story::lay_out(&workspace)?;
        let setup = Setup::new(&self.binary, &data);
        let disk_fails = plan.is_some_and(|plan| matches!(plan.harm, Harm::Once(_) | Harm::Lasting(_)));
        let life = Life { stage: self, setup: &setup, workspace: &workspace, disk_fails };
        Ok(kept_if_broken(folder, life.run(plan)?))
    }

    /// Lives once on a disk that is full for a while from this moment on.
    pub fn live_on(&self, disk: &Disk<'_>, moment: &Moment) -> Result<Outcome> {
        let folder = TempDir::with_prefix("tenure-crash-life-")?;
        let workspace = folder.path().join("workspace");
        copy(&self.folder.path().join("data"), &disk.data())?;
        story::lay_out(&workspace)?;
        let setup = Setup::new(&self.binary, &disk.data());
        let life = Life { stage: self, setup: &setup, workspace: &workspace, disk_fails: true };
        let daemon = setup.start()?;
        let signs = Signs::default();
        let (story, served) = thread::scope(|scope| {
            let filler = scope.spawn(|| life.full_for_a_while(disk, moment, &signs));
            let story = story::live(&setup, &workspace, &life.model(), &signs.session);
            signs.over.store(true, Ordering::Release);
            (story, filler.join())
        });
        daemon.kill9()?;
        let verdicts = life.verdicts(story, served.map_err(|_| anyhow!("the filler panicked"))?)?;
        let hit = signs.hit.load(Ordering::Acquire);
        Ok(kept_if_broken(folder, Outcome { names: BTreeMap::new(), hit, verdicts }))
    }
}

/// The folder of a life that broke a promise is kept, and the verdicts name it.
fn kept_if_broken(folder: TempDir, mut outcome: Outcome) -> Outcome {
    if outcome.verdicts.iter().any(Option::is_some) {
        let kept = folder.keep();
        for verdict in outcome.verdicts.iter_mut().flatten() {
            verdict.push_str(&format!(" (kept: {})", kept.display()));
        }
    }
    outcome
}

/// Makes a session, has one plain turn in it and gives its id.
fn say_to_new(setup: &Setup, workspace: &Path) -> Result<String> {
    let create = json!({ "workspace_path": workspace });
    let id = setup.ask("POST", "/v1/sessions", None, Some(&create))?.json()?["session_id"].clone();
    let id = id.as_str().context("no session was made")?.to_owned();
    say_to(setup, &id, "hello")?;
    Ok(id)
}

/// A plain turn, to its end.
fn say_to(setup: &Setup, session: &str, text: &str) -> Result<()> {
    let message = json!({ "parts": [{ "type": "text", "text": text }] });
    let answer = setup.ask("POST", &format!("/v1/sessions/{session}/messages"), None, Some(&message))?;
    ensure!(answer.is_success(), "a message to {session} got {answer}");
    let turn = answer.json()?["turn_id"].as_str().context("no turn")?.to_owned();
    let turn = setup.ask("GET", &format!("/v1/sessions/{session}/turns/{turn}?wait_ms=20000"), None, None)?.json()?;
    ensure!(turn["status"] == "completed", "the turn of {session} is {turn}");
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

/// Flags between the clients and the tracer.
#[derive(Default)]
struct Signs {
    hit: AtomicBool,
    /// The lasting harm is over.
    lifted: AtomicBool,
    /// The clients are done, or have given up.
    over: AtomicBool,
    pid: AtomicI32,
    /// The session under trial, once it is made.
    session: OnceLock<String>,
}

struct Life<'a> {
    stage: &'a Stage,
    setup: &'a Setup,
    workspace: &'a Path,
    disk_fails: bool,
}

impl Life<'_> {
    fn run(&self, plan: Option<&Plan>) -> Result<Outcome> {
        let signs = Arc::new(Signs::default());
        let (story, served, names) = thread::scope(|scope| {
            let host = scope.spawn(|| self.host(plan, &signs));
            let witness = scope.spawn(|| self.witness(plan, &signs));
            let story = story::live(self.setup, self.workspace, &self.model(), &signs.session);
            signs.over.store(true, Ordering::Release);
            let served = witness.join().map_err(|_| anyhow!("the witness panicked"))?;
            let names = host.join().map_err(|_| anyhow!("the host panicked"))??;
            anyhow::Ok((story, served, names))
        })?;
        let hit = signs.hit.load(Ordering::Acquire);
        let verdicts = self.verdicts(story, served)?;
        Ok(Outcome { names, hit, verdicts })
    }

    fn model(&self) -> String {
        format!("scripted:{}", self.stage.folder.path().join("script.json").display())
    }

    /// What broke each promise. How others were served meanwhile belongs to the last but one.
    fn verdicts(&self, story: Result<Story>, served: Result<()>) -> Result<[Option<String>; PROMISES.len()]> {
        let mut verdicts = match story {
            Ok(story) => self.judge(&story)?,
            Err(error) => {
                let mut verdicts = [(); PROMISES.len()].map(|()| Some("not reached".to_owned()));
                let told = format!("{error:#}; the daemon printed: {}", self.setup.log_end());
                verdicts[PROMISES.len() - 1] = Some(told);
                verdicts
            }
        };
        if let (Err(error), None) = (served, &verdicts[PROMISES.len() - 2]) {
            verdicts[PROMISES.len() - 2] = Some(format!("{error:#}"));
        }
        Ok(verdicts)
    }

    /// The promises, asked of a daemon that starts anew.
    fn judge(&self, story: &Story) -> Result<[Option<String>; PROMISES.len()]> {
        let daemon = match self.setup.start() {
            Ok(daemon) => daemon,
            Err(error) => return Ok([(); PROMISES.len()].map(|()| Some(format!("no restart: {error:#}")))),
        };
        let evidence = Evidence {
            setup: self.setup,
            workspace: self.workspace,
            story,
            bystander: &self.stage.bystander,
            bystander_before: &self.stage.bystander_before,
            disk_failed: self.disk_fails,
        };
        let verdicts = check(&evidence).map(|verdict| verdict.err().map(|error| format!("{error:#}")));
        daemon.kill9()?;
        Ok(verdicts)
    }

    /// Runs daemons until the clients are done: the first one under the plan, then one after the other.
    fn host(&self, plan: Option<&Plan>, signs: &Signs) -> Result<BTreeMap<Name, u32>> {
        let mut watch = Watch {
            grounds: Grounds { data: &self.setup.data, workspace: self.workspace, bystander: &self.stage.bystander },
            plan,
            signs,
            progress: Progress::START,
            entered: Vec::new(),
            unfinished: Vec::new(),
            names: BTreeMap::new(),
        };
        self.traced(signs, &mut watch)?;
        if let Some(Plan { harm: Harm::KillTwice(nth), .. }) = plan
            && signs.hit.load(Ordering::Acquire)
            && !signs.over.load(Ordering::Acquire)
        {
            self.traced(signs, &mut Countdown(*nth))?;
        }
        while !signs.over.load(Ordering::Acquire) {
            let daemon = self.setup.start()?;
            while !signs.over.load(Ordering::Acquire) && crate::daemon::is_alive(daemon.pid()) {
                thread::sleep(POLL);
            }
            daemon.kill9()?;
        }
        Ok(watch.names)
    }

    /// One daemon under the tracer; it is asked to stop when the clients are done.
    fn traced(&self, signs: &Signs, judge: &mut dyn Judge) -> Result<()> {
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !signs.over.load(Ordering::Acquire) && !ended.load(Ordering::Acquire) {
                    thread::sleep(POLL);
                }
                stop(signs, &ended);
            });
            let followed = follow(self.setup.command()?, &signs.pid, judge);
            ended.store(true, Ordering::Release);
            followed.map(drop)
        })
    }

    /// While a lasting harm is on: others are served, and it is reported. Then it ends.
    fn witness(&self, plan: Option<&Plan>, signs: &Signs) -> Result<()> {
        let Some(Plan { harm: Harm::Lasting(_), at, .. }) = plan else { return Ok(()) };
        while !signs.hit.load(Ordering::Acquire) {
            if signs.over.load(Ordering::Acquire) {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        let served = say_to(self.setup, &self.stage.bystander, "are you there?");
        let reported = self.wait_for_notice();
        // A spool that cannot be written holds the stream up, a log all that comes.
        let closed = if at.class == "log" { self.is_closed(signs) } else { Ok(()) };
        signs.lifted.store(true, Ordering::Release);
        served.context("another session was not served")?;
        reported.and(closed)
    }

    /// Nothing is taken that could not be recorded.
    fn is_closed(&self, signs: &Signs) -> Result<()> {
        let Some(session) = signs.session.get() else { return Ok(()) };
        let body = json!({ "parts": [{ "type": "text", "text": "while it is closed" }] });
        let path = format!("/v1/sessions/{session}/messages");
        let answer = self.setup.ask("POST", &path, Some("closed"), Some(&body))?;
        ensure!(answer.status == 503, "a message to a session that cannot be written got {answer}");
        Ok(())
    }

    /// Fills the disk at the moment, sees that the daemon reports it and that others can be read, and frees it.
    fn full_for_a_while(&self, disk: &Disk<'_>, moment: &Moment, signs: &Signs) -> Result<()> {
        let session = loop {
            match signs.session.get() {
                Some(session) => break session,
                None if signs.over.load(Ordering::Acquire) => return Ok(()),
                None => thread::sleep(POLL),
            }
        };
        let reader = Reader::start(self.setup, session);
        while reader.look(|seen| seen.iter().filter(|item| item.kind == moment.kind).count() < moment.nth) {
            if signs.over.load(Ordering::Acquire) {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        disk.fill()?;
        signs.hit.store(true, Ordering::Release);
        let reported = self.wait_for_notice();
        let readable = read_all(self.setup, &self.stage.bystander);
        disk.free()?;
        let readable = readable.context("another session could not be read")?;
        ensure!(readable == self.stage.bystander_before, "another session reads differently");
        reported
    }

    fn wait_for_notice(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE / 4;
        while Instant::now() < deadline {
            let ready: Value = self.setup.ask("GET", "/readyz", None, None)?.json()?;
            if ready["notices"].as_array().is_some_and(|notices| !notices.is_empty()) {
                return Ok(());
            }
            thread::sleep(POLL);
        }
        bail!("the daemon did not report it")
    }
}

/// A graceful stop; if that takes too long, none. The pid is only used while its process cannot have been replaced.
fn stop(signs: &Signs, ended: &AtomicBool) {
    let began = Instant::now();
    let mut asked = false;
    while !ended.load(Ordering::Acquire) {
        let pid = signs.pid.load(Ordering::Acquire);
        if pid > 0 && !asked {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            asked = true;
        }
        if pid > 0 && began.elapsed() > PATIENCE / 4 {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        thread::sleep(POLL);
    }
}

/// Names each call and does the planned harm at the planned one.
struct Watch<'a> {
    grounds: Grounds<'a>,
    plan: Option<&'a Plan>,
    signs: &'a Signs,
    progress: Progress,
    /// Bytes of the log that a write under way would write.
    entered: Vec<u8>,
    /// The beginning of a line whose end is not written yet.
    unfinished: Vec<u8>,
    names: BTreeMap<Name, u32>,
}

impl Judge for Watch<'_> {
    fn entry(&mut self, call: &Call, memory: &Memory) -> Fate {
        let class = self.grounds.class(&call.on);
        if class == "log"
            && let Some(bytes) = call.bytes
        {
            self.entered = memory.read(bytes);
        }
        if self.signs.hit.load(Ordering::Acquire) {
            return self.after_hit(call);
        }
        let name = Name { seq: self.progress.seq, phase: self.progress.phase, class, call: call.name };
        let count = self.names.entry(name.clone()).or_default();
        *count += 1;
        match self.plan {
            Some(plan) if plan.at == name && plan.nth == *count => {
                self.signs.hit.store(true, Ordering::Release);
                match plan.harm {
                    Harm::Kill | Harm::KillTwice(_) => Fate::Kill,
                    Harm::Tear => Fate::Tear,
                    Harm::Short => Fate::Short,
                    Harm::Once(errno) | Harm::Lasting(errno) => Fate::Fail(errno),
                }
            }
            _ => Fate::Pass,
        }
    }

    fn exit(&mut self, call: &Call, result: i64) {
        if self.grounds.class(&call.on) != "log" {
            return;
        }
        if call.name == "ftruncate" {
            self.unfinished.clear();
        }
        if let (Some(_), Ok(written)) = (call.bytes, usize::try_from(result)) {
            let written = written.min(self.entered.len());
            self.unfinished.extend_from_slice(&self.entered[..written]);
            if let Some(end) = self.unfinished.iter().rposition(|byte| *byte == b'\n') {
                let rest = self.unfinished.split_off(end + 1);
                self.progress = self.progress.after(&self.unfinished);
                self.unfinished = rest;
            }
        }
    }
}

impl Watch<'_> {
    fn after_hit(&self, call: &Call) -> Fate {
        match self.plan {
            Some(Plan { harm: Harm::Lasting(errno), .. })
                if !self.signs.lifted.load(Ordering::Acquire) && self.grounds.is_in_session(&call.on) =>
            {
                Fate::Fail(*errno)
            }
            _ => Fate::Pass,
        }
    }
}

/// Kills at the n-th call, whatever it is.
struct Countdown(u32);

impl Judge for Countdown {
    fn entry(&mut self, _: &Call, _: &Memory) -> Fate {
        self.0 = self.0.saturating_sub(1);
        if self.0 == 0 { Fate::Kill } else { Fate::Pass }
    }

    fn exit(&mut self, _: &Call, _: i64) {}
}

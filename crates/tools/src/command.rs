//! Runs a command under a supervisor and waits for its end: the daemon's side of the pipes. It never starts a command
//! before its supervisor is recorded, and never returns while it could still be running unnoticed.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::ErrorKind,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::process::Signal;
use tenure_core::ids::CallId;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::unix::pipe,
    process::{Child, ChildStderr, ChildStdin, Command},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    CALL_VARIABLE, MARK_VARIABLE, OutputSink, STOP_LIMIT, ToolsConfig,
    ledger::{Entry, Recorded},
    order::{Exit, LINE_BYTES_MAX, Order, Report, STOP},
    output::Capture,
    plain,
    process::{self, Process},
    sweep,
};

const CHUNK_BYTES: usize = 32 * 1024;
/// The end of the stop limit is kept for ending by force what the supervisor did not.
const FORCE_TIME: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// A supervisor that has reported has nothing left to do but to exit.
const REAP_LIMIT: Duration = Duration::from_secs(1);

/// A supervisor that waits for its order is ended when nothing has asked for one for this long.
const SPARE_KEPT: Duration = Duration::from_secs(10);

/// Starts commands; one for all tools.
pub(crate) struct Commands {
    pub(crate) launcher: Arc<Launcher>,
    ledger: PathBuf,
    mark: String,
    pub(crate) namespaces: bool,
    shell: &'static str,
    /// The environment gives a shell nothing but variables.
    ordinary: bool,
}

/// Starts supervisors. Most of what a short command costs is the start of its supervisor, so while commands come one
/// after the other the next one is started while a command runs. It knows nothing of what it will be told to run.
pub(crate) struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    spare: Mutex<Option<Running>>,
}

/// One command of one call.
pub(crate) struct Job<'c> {
    pub(crate) call_id: CallId,
    pub(crate) workspace: &'c Path,
    /// A command line for the shell.
    pub(crate) line: &'c str,
    pub(crate) timeout: Duration,
    pub(crate) cancel: &'c CancellationToken,
    /// Who watches the output as it comes.
    pub(crate) sink: Option<&'c dyn OutputSink>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) exit: Exit,
    /// What did not end within the limit.
    pub(crate) left: Vec<String>,
    pub(crate) duration: Duration,
}

impl Commands {
    pub(crate) fn new(config: &ToolsConfig) -> Self {
        let environment = config.scrubbed_environment();
        let shell = if has_program(&environment, "bash") { "bash" } else { "sh" };
        let ordinary = plain::is_ordinary(&environment);
        let launcher = Launcher {
            program: config.supervisor.clone(),
            arguments: config.supervisor_args.clone(),
            environment,
            spare: Mutex::default(),
        };
        Self {
            launcher: Arc::new(launcher),
            ledger: config.ledger.clone(),
            mark: config.mark.clone(),
            shell,
            ordinary,
            namespaces: config.namespaces,
        }
    }

    pub(crate) async fn run(&self, job: &Job<'_>, capture: &mut Capture) -> Ended {
        let started = Instant::now();
        let (exit, left) = match job.cancel.is_cancelled() {
            true => (Exit::Stopped, vec![]),
            false => self.supervised(job, capture).await.unwrap_or_else(|error| (Exit::Failed(error), vec![])),
        };
        Ended { exit, left, duration: started.elapsed() }
    }

    async fn supervised(&self, job: &Job<'_>, capture: &mut Capture) -> Result<(Exit, Vec<String>), String> {
        if !job.workspace.is_dir() {
            return Err(format!("the workspace {} is gone", job.workspace.display()));
        }
        let mut running = self.launcher.take()?;
        // The gate: recorded first, then told what to run.
        let entry = match self.record(&job.call_id.to_string(), running.pid) {
            Ok(entry) => entry,
            Err(error) => {
                running.let_go().await;
                return Err(format!("the process could not be recorded, so the command was not run: {error}"));
            }
        };
        let order = Order {
            command: [self.shell, "-c", "--", job.line].map(String::from).to_vec(),
            without_shell: if self.ordinary { plain::words(job.line).unwrap_or_default() } else { vec![] },
            folder: job.workspace.to_owned(),
            call_id: job.call_id.to_string(),
            timeout_ms: u64::try_from(job.timeout.as_millis()).unwrap_or(u64::MAX),
            namespaces: self.namespaces,
            environment: BTreeMap::new(),
            streams: None,
        };
        let reported = running.see_through(&order, job, capture, &self.launcher).await;
        let answer = match reported {
            Seen::Reported(report) => {
                // It has nothing left to do but to exit.
                tokio::spawn(async move { running.let_go().await });
                (report.exit, report.left)
            }
            Seen::Lost(why) => {
                running.let_go().await;
                (Exit::Failed(why), self.end_marked(&job.call_id.to_string()).await)
            }
            Seen::GivenUp(left) => {
                running.let_go().await;
                (Exit::Stopped, left)
            }
        };
        entry.remove();
        Ok(answer)
    }

    /// Without a supervisor the call's processes are found by their marks.
    pub(crate) async fn end_marked(&self, call_id: &str) -> Vec<String> {
        let entries = vec![format!("{MARK_VARIABLE}={}", self.mark), format!("{CALL_VARIABLE}={call_id}")];
        tokio::task::spawn_blocking(move || sweep::kill_marked(&entries)).await.unwrap_or_default()
    }

    pub(crate) fn record(&self, call_id: &str, pid: i32) -> Result<Entry, String> {
        // Not reaped yet, so the number is its own.
        let process = Process::read(pid).ok_or("the supervisor ended at once")?;
        Entry::write(&self.ledger, call_id, &Recorded::of(&process)).map_err(|error| error.to_string())
    }
}

impl Launcher {
    /// One that waits for its order.
    fn take(&self) -> Result<Running, String> {
        let spare = lock(&self.spare).take();
        // One that somebody has killed meanwhile is of no use.
        let living = spare.and_then(|mut spare| matches!(spare.child.try_wait(), Ok(None)).then_some(spare));
        living.map_or_else(|| self.start(), Ok)
    }

    fn start(&self) -> Result<Running, String> {
        self.start_with(|_| ())
    }

    pub(crate) fn start_with(&self, prepare: impl FnOnce(&mut Command)) -> Result<Running, String> {
        let mut command = Command::new(&self.program);
        prepare(&mut command);
        let mut child = command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            // A workspace that somebody wants to unmount must not be held by one that has no part in it.
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("the supervisor {} cannot be started: {error}", self.program.display()))?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take(), child.id());
        let (Some(control), Some(output), Some(status), Some(pid)) = pipes else {
            return Err("the supervisor ended at once".into());
        };
        let output =
            output.into_owned_fd().and_then(pipe::Receiver::from_owned_fd).map_err(|error| error.to_string())?;
        Ok(Running { child, pid: pid as i32, control: Some(control), output, status: BufReader::new(status) })
    }

    /// Starts the next one beside the command that runs now.
    fn prepare(self: &Arc<Self>) {
        if lock(&self.spare).is_some() {
            return;
        }
        let launcher = Arc::clone(self);
        let runtime = tokio::runtime::Handle::current();
        tokio::task::spawn_blocking(move || {
            // One that cannot be started now is started, or complained of, when it is needed.
            let Ok(spare) = launcher.start() else { return };
            let pid = spare.pid;
            *lock(&launcher.spare) = Some(spare);
            runtime.spawn(async move {
                tokio::time::sleep(SPARE_KEPT).await;
                let mut spare = lock(&launcher.spare);
                if spare.as_ref().is_some_and(|spare| spare.pid == pid) {
                    // Its pipe closes with it, and it ends.
                    *spare = None;
                }
            });
        });
    }
}

fn lock(spare: &Mutex<Option<Running>>) -> MutexGuard<'_, Option<Running>> {
    spare.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A supervisor that was started.
pub(crate) struct Running {
    child: Child,
    pub(crate) pid: i32,
    /// Closed by dropping it: then the supervisor ends everything, as it does when this daemon dies.
    pub(crate) control: Option<ChildStdin>,
    pub(crate) output: pipe::Receiver,
    pub(crate) status: BufReader<ChildStderr>,
}

pub(crate) enum Seen {
    Reported(Report),
    /// The supervisor went without a word.
    Lost(String),
    /// It did not report in time after it was told to stop; these are still there.
    GivenUp(Vec<String>),
}

impl Running {
    /// Gives the order and stays until the report is there and all output is read.
    async fn see_through(
        &mut self,
        order: &Order,
        job: &Job<'_>,
        capture: &mut Capture,
        launcher: &Arc<Launcher>,
    ) -> Seen {
        let ended = CancellationToken::new();
        let (pid, output) = (self.pid, &self.output);
        let (control, status) = (&mut self.control, &mut self.status);
        let pump = pump(output, capture, job.sink, &ended);
        let follow = async {
            // A pipe that is closed already shows below as a missing report.
            give(control, order).await;
            launcher.prepare();
            let seen = follow(pid, control, status, job.cancel).await;
            ended.cancel();
            seen
        };
        tokio::pin!(pump, follow);
        let mut pumped = false;
        let seen = loop {
            tokio::select! {
                seen = &mut follow => break seen,
                () = &mut pump, if !pumped => pumped = true,
            }
        };
        if !pumped {
            tokio::select! {
                () = &mut pump => {}
                // A watcher that takes nothing more must not hold up the end of a call that nobody wants.
                () = cancelled_for(job.cancel, STOP_LIMIT) => {}
            }
        }
        seen
    }

    /// Closes the control pipe and collects the process.
    pub(crate) async fn let_go(&mut self) {
        drop(self.control.take());
        // One that stays is collected by the runtime when it ends.
        let _ = timeout(REAP_LIMIT, self.child.wait()).await;
    }
}

async fn cancelled_for(cancel: &CancellationToken, time: Duration) {
    cancel.cancelled().await;
    tokio::time::sleep(time).await;
}

pub(crate) async fn follow(
    pid: i32,
    control: &mut Option<ChildStdin>,
    status: &mut BufReader<ChildStderr>,
    cancel: &CancellationToken,
) -> Seen {
    let report = read_report(status);
    tokio::pin!(report);
    tokio::select! {
        seen = &mut report => return seen,
        () = cancel.cancelled() => {}
    }
    say(control, STOP).await;
    match timeout(STOP_LIMIT - FORCE_TIME, &mut report).await {
        Ok(seen) => seen,
        Err(_) => end_by_force(pid, report).await,
    }
}

/// The supervisor does not act, so its work is done for it; what even that does not end is named.
async fn end_by_force(supervisor: i32, report: impl Future<Output = Seen>) -> Seen {
    let mut all = process::descendants(supervisor);
    all.extend(Process::read(supervisor));
    let deadline = Instant::now() + FORCE_TIME;
    while !all.is_empty() && Instant::now() < deadline {
        for process in &all {
            process.signal(Signal::KILL);
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
        all.retain(Process::is_still_alive);
    }
    match timeout(Duration::ZERO, report).await {
        Ok(Seen::Reported(report)) => Seen::Reported(report),
        _ => Seen::GivenUp(all.iter().map(Process::to_string).collect()),
    }
}

/// Gives a supervisor its order.
pub(crate) async fn give(control: &mut Option<ChildStdin>, order: &Order) {
    say(control, &(serde_json::to_string(order).unwrap_or_default() + "\n")).await;
}

async fn say(control: &mut Option<ChildStdin>, line: &str) {
    if let Some(pipe) = control {
        let _ = pipe.write_all(line.as_bytes()).await;
        let _ = pipe.flush().await;
    }
}

async fn read_report(status: &mut BufReader<ChildStderr>) -> Seen {
    let mut line = String::new();
    let read = status.take(LINE_BYTES_MAX as u64).read_line(&mut line).await;
    match (read, serde_json::from_str(&line)) {
        (Ok(_), Ok(report)) => Seen::Reported(report),
        (_, _) if line.trim().is_empty() => {
            Seen::Lost("the supervisor was killed; what became of the command is not known".into())
        }
        // What a program says when it fails before it can report.
        (_, _) => Seen::Lost(format!("the supervisor failed: {}", line.trim())),
    }
}

/// Hands on output as it comes; once everything has ended, takes what is still in the pipe and stops, even if someone
/// outside keeps the pipe open.
async fn pump(
    output: &pipe::Receiver,
    capture: &mut Capture,
    sink: Option<&dyn OutputSink>,
    ended: &CancellationToken,
) {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let all_ended = ended.is_cancelled();
        let read = match all_ended {
            true => rustix::io::read(output, &mut chunk).map_err(std::io::Error::from),
            false => {
                tokio::select! {
                    _ = output.readable() => {}
                    () = ended.cancelled() => {}
                }
                output.try_io(|| Ok(rustix::io::read(output, &mut chunk)?))
            }
        };
        match read {
            Ok(0) => break,
            Ok(count) => show(sink, capture.push(&chunk[..count])).await,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && !all_ended => {}
            Err(_) => break,
        }
    }
    show(sink, capture.finish()).await;
}

async fn show(sink: Option<&dyn OutputSink>, text: String) {
    if let (Some(sink), false) = (sink, text.is_empty()) {
        sink.write(text).await;
    }
}

fn has_program(environment: &[(OsString, OsString)], name: &str) -> bool {
    let path = environment.iter().find(|(variable, _)| variable == "PATH").map(|(_, path)| path.clone());
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).any(|folder| {
        let metadata = folder.join(name).metadata();
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    })
}

//! Finds the daemon of a data folder for a command, or starts one in the background. The command itself never is the daemon.

use std::{
    fs,
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tenure_client::{
    Client, Find,
    discover::{self, Absent},
    stream::{MISSED_AFTER, PATIENCE},
};

use tenure_wire::DaemonInfo;
use tokio::sync::watch;

use crate::{
    commands::Context,
    data,
    exit::{Exit, Problem},
    hint, terminal,
};

/// A background daemon ends this long after its last client and turn.
pub const IDLE_END: Duration = Duration::from_secs(10 * 60);
/// What a background daemon writes, in the data folder.
pub const LOG_FILE: &str = "daemon.log";
/// How long a daemon may take until it answers: it may have leftovers of an earlier life to end.
const START_MAX: Duration = Duration::from_secs(20);
/// How long to wait for the other one when ours found the folder taken.
const RIVAL_MAX: Duration = Duration::from_secs(5);
/// How a background daemon ends that found the folder taken.
pub const TAKEN: Exit = Exit::NoDaemon;
const POLL: Duration = Duration::from_millis(20);
/// Between two tries of a call to a daemon that is gone for a moment.
const INSIST_PAUSE: Duration = Duration::from_millis(200);
/// How much of a failed start's log is shown.
const LOG_LINES_SHOWN: usize = 5;

/// A client of the daemon that was named, or of the folder's daemon, which is started if there is none.
pub async fn connect(context: &Context) -> anyhow::Result<Client> {
    match &context.remote {
        // Not asked whether it is there: the first request tells, and nobody is patient with one that never answered.
        Some(target) => Ok(Client::new(target.clone())),
        None => {
            let (client, started) = reach(&context.data).await?;
            if let Some(DaemonInfo { pid, address, .. }) = started {
                terminal::tell(&format!("Started a daemon in the background: process {pid} at {address}."));
            }
            Ok(client)
        }
    }
}

/// The folder's daemon; its note where it had to be started.
async fn reach(data: &Path) -> anyhow::Result<(Client, Option<DaemonInfo>)> {
    match discover::find(data).await {
        Ok((client, _)) => return Ok((client, None)),
        Err(Absent::NoNote { .. } | Absent::Gone { .. }) => {}
        // It may be about to end or to answer.
        Err(Absent::Silent { .. }) => match wait_for_daemon(data, RIVAL_MAX).await {
            Ok(client) => return Ok((client, None)),
            Err(silent @ Absent::Silent { .. }) => return Err(absent(&silent)),
            Err(_) => {}
        },
        Err(other) => return Err(absent(&other)),
    }
    start(data).await
}

fn absent(why: &Absent) -> anyhow::Error {
    Problem::no_daemon(why.to_string(), hint::of_absence(why)).into()
}

/// The way to a daemon that may go away.
#[derive(Clone)]
pub struct Way {
    /// How to look up where it is now.
    pub find: Find,
    /// The folder that another one is started in when it stays away; elsewhere it is waited for.
    start_in: Option<PathBuf>,
}

impl Way {
    /// A daemon that is waited for.
    pub fn waiting(find: Find) -> Self {
        Self { find, start_in: None }
    }

    /// One that is started again, unless it was named and so is not ours to start.
    pub fn restarting(context: &Context) -> Self {
        let start_in = context.remote.is_none().then(|| context.data.clone());
        Self { find: finder(context), start_in }
    }
}

/// How a stream looks up where the daemon is now.
pub fn finder(context: &Context) -> Find {
    match context.remote.clone() {
        Some(target) => Arc::new(move || Some(target.clone())),
        None => finder_here(&context.data),
    }
}

pub fn finder_here(data: &Path) -> Find {
    let data = data.to_owned();
    Arc::new(move || discover::read(&data).ok().map(|running| running.target))
}

/// Tells that the daemon is being looked for, or that it is back, whenever that changes. Never ends.
pub async fn tell_missed(missed: &mut watch::Receiver<bool>, way: &Way) -> bool {
    if missed.changed().await.is_err() {
        return std::future::pending().await;
    }
    let is_missed = *missed.borrow_and_update();
    let seconds = PATIENCE.as_secs();
    match (is_missed, &way.start_in) {
        (true, Some(data)) => {
            terminal::note("\n");
            start_again(data).await;
        }
        (true, None) => {
            terminal::note("\n");
            terminal::tell(&format!(
                "The daemon is gone. Waiting up to {seconds} s for it to come back; `tenure sessions` in another \
                 terminal starts one."
            ));
        }
        (false, Some(_)) => {}
        (false, None) => terminal::tell("The daemon is back."),
    }
    is_missed
}

/// Starts another daemon, as the first one was, and tells it in one line.
async fn start_again(data: &Path) {
    match reach(data).await {
        Ok((_, Some(DaemonInfo { pid, address, .. }))) => {
            terminal::tell(&format!("The daemon is gone; started another one: process {pid} at {address}."));
        }
        Ok((_, None)) => terminal::tell("The daemon is back."),
        Err(error) => {
            terminal::tell(&format!("The daemon is gone, and {error:#}"));
            let seconds = PATIENCE.as_secs();
            terminal::tell(&format!("Waiting up to {seconds} s for one to come back; Ctrl-C leaves."));
        }
    }
}

async fn wait_for_daemon(data: &Path, at_most: Duration) -> Result<Client, Absent> {
    let deadline = Instant::now() + at_most;
    loop {
        match discover::find(data).await {
            Ok((client, _)) => return Ok(client),
            Err(absent) if Instant::now() > deadline => return Err(absent),
            Err(_) => tokio::time::sleep(POLL).await,
        }
    }
}

async fn start(data: &Path) -> anyhow::Result<(Client, Option<DaemonInfo>)> {
    let prepared = data::make(data).and_then(|()| open_log(data));
    let (log, log_begin) = prepared.map_err(|error| {
        let kind = error.downcast_ref().map_or(io::ErrorKind::Other, io::Error::kind);
        Problem::no_daemon(format!("{error:#}"), hint::of_system(kind).1)
    })?;
    let mut child = spawn(data, log).context("cannot start a daemon in the background")?;
    let deadline = Instant::now() + START_MAX;
    while Instant::now() < deadline {
        if let Ok((client, note)) = discover::find(data).await {
            // Another one may have been faster: the folder's lock let it in, and ours ends.
            let is_ours = note.pid == child.id();
            return Ok((client, is_ours.then_some(note)));
        }
        if let Some(ended) = child.try_wait()? {
            // Another command may have started one at the same moment: the folder's lock let one of them in.
            let patience = if ended.code() == Some(TAKEN as i32) { RIVAL_MAX } else { Duration::ZERO };
            return match wait_for_daemon(data, patience).await {
                Ok(client) => Ok((client, None)),
                Err(_) => Err(not_started(data, log_begin, "it ended at once").into()),
            };
        }
        tokio::time::sleep(POLL).await;
    }
    Err(not_started(data, log_begin, "it does not answer").into())
}

fn spawn(data: &Path, log: fs::File) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("serve").args(["--listen", "127.0.0.1:0", "--end-when-idle-ms"]).arg(IDLE_END.as_millis().to_string());
    command.arg("--data").arg(data).arg("--log-file").arg(data.join(LOG_FILE));
    // A command run by a tool may start a daemon; that one is not the tool's to be swept away.
    command.env_remove(tenure_tools::MARK_VARIABLE).env_remove(tenure_tools::CALL_VARIABLE);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn()
}

/// The log to append to, and where the new daemon's part begins.
fn open_log(data: &Path) -> anyhow::Result<(fs::File, u64)> {
    let path = data.join(LOG_FILE);
    let open = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
    let file = open.with_context(|| format!("cannot write {}", path.display()))?;
    let begin = file.metadata()?.len();
    Ok((file, begin))
}

fn not_started(data: &Path, log_begin: u64, what: &str) -> Problem {
    let path = data.join(LOG_FILE);
    let read = || -> std::io::Result<String> {
        let mut file = fs::File::open(&path)?;
        file.seek(SeekFrom::Start(log_begin))?;
        let mut bytes = vec![];
        file.take(64 * 1024).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let said = read().unwrap_or_default();
    if is_full(data) {
        let message = format!("no daemon could be started: the disk of {} is full", data.display());
        return Problem::no_daemon(message, hint::of_system(io::ErrorKind::StorageFull).1);
    }
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n  ");
    let last = if last.is_empty() { String::new() } else { format!("; it said:\n  {last}") };
    Problem::no_daemon(
        format!("no daemon could be started: {what}{last}"),
        format!("`tenure doctor` looks for what is wrong; the whole log is {}", path.display()),
    )
}

/// Whether nothing more can be written there: the daemon could not even say so in its log.
fn is_full(data: &Path) -> bool {
    rustix::fs::statvfs(data).is_ok_and(|disk| disk.f_bavail == 0)
}

/// Whether no daemon is there: one that refuses for now is.
fn is_away(error: &tenure_client::Error) -> bool {
    error.code().is_none_or(|code| code == "shutting_down")
}

/// Repeats a call while a daemon that has answered is gone for a moment, and looks up where it is. Only for calls that may
/// be said twice.
pub async fn insist<T, F>(client: &Client, way: &Way, call: impl Fn() -> F) -> Result<T, tenure_client::Error>
where
    F: Future<Output = Result<T, tenure_client::Error>>,
{
    let began = Instant::now();
    let mut told = false;
    loop {
        match call().await {
            Err(error) if error.may_pass() && client.has_answered() && began.elapsed() < PATIENCE => {
                if !told && began.elapsed() >= MISSED_AFTER {
                    told = true;
                    match &way.start_in {
                        Some(data) if is_away(&error) => start_again(data).await,
                        _ => {
                            let (why, seconds) = (hint::of_waiting(&error), PATIENCE.as_secs());
                            terminal::tell(&format!("{why}. Trying again for {seconds} s; Ctrl-C gives up."));
                        }
                    }
                }
                tokio::time::sleep(INSIST_PAUSE).await;
                if let Some(target) = (way.find)() {
                    client.retarget(target);
                }
            }
            answered => return answered,
        }
    }
}

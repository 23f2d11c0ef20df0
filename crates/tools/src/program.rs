//! A program of this machine that a tool runs by itself: found on the `PATH`, never in the workspace, given bytes to
//! read and bounded in time and output. It never goes through a shell, and nothing it started outlives the call.

use std::{
    ffi::OsString,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{CALL_VARIABLE, CallContext, MARK_VARIABLE, STOP_LIMIT, ToolsConfig};

/// What is kept of what a program complains of.
const COMPLAINT_BYTES_MAX: usize = 4 * 1024;

/// Where programs are looked for, and what marks their processes as ours.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    path: OsString,
    home: Option<OsString>,
    mark: String,
}

/// One run of a program.
pub(crate) struct Task<'c> {
    pub(crate) program: &'c Path,
    pub(crate) arguments: Vec<OsString>,
    /// Beside what every run is given; nothing is inherited.
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) folder: &'c Path,
    pub(crate) input: Vec<u8>,
    pub(crate) timeout: Duration,
    pub(crate) output_max: usize,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Code(i32),
    Signal,
    TimedOut,
    Stopped,
    /// It printed more than is kept, and was ended.
    Full,
}

pub(crate) struct Ran {
    pub(crate) end: End,
    pub(crate) output: Vec<u8>,
    pub(crate) complaint: String,
}

impl Programs {
    pub(crate) fn new(config: &ToolsConfig) -> Self {
        let environment = config.scrubbed_environment();
        let find = |wanted: &str| environment.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
        let path = find("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        Self { path, home: find("HOME"), mark: config.mark.clone() }
    }

    /// A program by its name. One that lies in the workspace is not meant: the `PATH` may lead there.
    pub(crate) fn find(&self, name: &str, workspace: &Path) -> Option<PathBuf> {
        let workspace = workspace.canonicalize().ok();
        let folders = std::env::split_paths(&self.path).filter(|folder| folder.is_absolute());
        let is_program = |path: &PathBuf| {
            let metadata = path.metadata();
            let elsewhere = |real: &PathBuf| workspace.as_ref().is_none_or(|workspace| !real.starts_with(workspace));
            metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
                && path.canonicalize().is_ok_and(|real| elsewhere(&real))
        };
        folders.map(|folder| folder.join(name)).find(is_program)
    }

    /// Runs it to its end. An error: it could not be started.
    pub(crate) async fn run(&self, context: &CallContext, task: Task<'_>) -> Result<Ran, String> {
        if context.cancel.is_cancelled() {
            return Ok(Ran { end: End::Stopped, output: vec![], complaint: String::new() });
        }
        let cannot = |error| format!("{} cannot be started: {error}", task.program.display());
        let mut child = self.command(context, &task).spawn().map_err(cannot)?;
        let (input, output, complaints) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let mut complaint = vec![];
        let (mut kept, mut end) = (vec![], None);
        let work = async {
            let feed = async {
                if let Some(mut pipe) = input {
                    // One that does not want to read it all has its reasons.
                    let _ = pipe.write_all(&task.input).await;
                }
            };
            let listen = read_to(complaints, &mut complaint, COMPLAINT_BYTES_MAX, Rest::Drop);
            let read = read_to(output, &mut kept, task.output_max, Rest::Refuse);
            tokio::pin!(read);
            let beside = async { tokio::join!(feed, listen) };
            tokio::pin!(beside);
            let mut beside_done = false;
            let fits = loop {
                tokio::select! {
                    fits = &mut read => break fits,
                    _ = &mut beside, if !beside_done => beside_done = true,
                }
            };
            if fits && !beside_done {
                beside.await;
            }
            fits
        };
        tokio::select! {
            fits = timeout(task.timeout, work) => match fits {
                Ok(true) => {}
                Ok(false) => end = Some(End::Full),
                Err(_) => end = Some(End::TimedOut),
            },
            () = context.cancel.cancelled() => end = Some(End::Stopped),
        }
        let end = finish(&mut child, end, task.timeout, &context.cancel).await;
        Ok(Ran { end, output: kept, complaint: String::from_utf8_lossy(&complaint).trim().to_owned() })
    }

    fn command(&self, context: &CallContext, task: &Task<'_>) -> Command {
        let mut command = Command::new(task.program);
        command
            .args(&task.arguments)
            .env_clear()
            .env("PATH", &self.path)
            .envs(self.home.iter().map(|home| ("HOME", home)))
            .env("LC_ALL", "C.UTF-8")
            // What a daemon that was killed left behind is found by these when the next one starts.
            .env(MARK_VARIABLE, &self.mark)
            .env(CALL_VARIABLE, context.call_id.to_string())
            .envs(task.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(task.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        command
    }
}

enum Rest {
    /// Read and forgotten.
    Drop,
    /// A reason to stop.
    Refuse,
}

/// Reads to the end. False: there was more than the limit, and the rest is refused.
async fn read_to(pipe: Option<impl AsyncRead + Unpin>, kept: &mut Vec<u8>, bytes_max: usize, rest: Rest) -> bool {
    let Some(mut pipe) = pipe else { return true };
    let mut chunk = vec![0; 32 * 1024];
    loop {
        let Ok(count @ 1..) = pipe.read(&mut chunk).await else { return true };
        let room = bytes_max - kept.len();
        kept.extend_from_slice(&chunk[..count.min(room)]);
        if count > room && matches!(rest, Rest::Refuse) {
            return false;
        }
    }
}

/// Ends the whole group where that is wanted, and collects the program.
async fn finish(child: &mut Child, end: Option<End>, limit: Duration, cancel: &CancellationToken) -> End {
    if end.is_none() {
        // Its output is closed; it may still take its time to go.
        let waited = tokio::select! {
            waited = timeout(limit, child.wait()) => waited,
            () = cancel.cancelled() => {
                kill_group(child);
                let _ = timeout(STOP_LIMIT, child.wait()).await;
                return End::Stopped;
            }
        };
        if let Ok(Ok(status)) = waited {
            return status.code().map_or(End::Signal, End::Code);
        }
    }
    kill_group(child);
    let _ = timeout(STOP_LIMIT, child.wait()).await;
    end.unwrap_or(End::TimedOut)
}

fn kill_group(child: &Child) {
    // Not collected yet, so the number is its own; and it leads its group.
    let group = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

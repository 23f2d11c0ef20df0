//! A command that is spoken with for as long as it runs, under a supervisor like every other: what it reads and what it
//! prints are pipes of its own, and what it complains of is kept for people. It never outlives the daemon.

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::{AsRawFd as _, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::pipe::PipeFlags;
use tokio::{io::AsyncReadExt as _, net::unix::pipe, sync::watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{
    command::{Commands, Seen},
    order::{Exit, Order, Streams},
};

/// What is kept of a command's complaints: the end of them.
const COMPLAINT_BYTES_MAX: usize = 4 * 1024;
/// How long a command may run that has no other limit.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// What to run, and as what it is known.
pub(crate) struct Post<'c> {
    /// Tells its processes and its record from all others.
    pub(crate) id: String,
    pub(crate) command: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    pub(crate) folder: &'c Path,
}

/// A command that runs. Dropping it ends the command and all that came from it.
pub(crate) struct Service {
    /// What the command reads.
    pub(crate) input: pipe::Sender,
    /// What it prints.
    pub(crate) output: pipe::Receiver,
    pub(crate) life: Life,
}

/// Whether a command still runs, and how to end it.
pub(crate) struct Life {
    ended: watch::Receiver<Option<String>>,
    complaints: Complaints,
    stop: DropGuard,
}

impl Life {
    /// Waits until everything of it is gone; tells how it came to its end.
    pub(crate) async fn ended(&self) -> String {
        let mut ended = self.watch();
        let how = ended.wait_for(Option::is_some).await.ok().and_then(|how| how.clone());
        how.unwrap_or_else(|| "it was let go".into())
    }

    /// Tells when everything of it is gone, without holding it.
    pub(crate) fn watch(&self) -> watch::Receiver<Option<String>> {
        self.ended.clone()
    }

    /// Ends it and all that came from it, and waits for that.
    pub(crate) async fn stop(self) {
        let Self { mut ended, stop, .. } = self;
        drop(stop);
        let _ = ended.wait_for(Option::is_some).await;
    }

    /// The end of what it complained of.
    pub(crate) fn complaints(&self) -> String {
        self.complaints.text()
    }
}

/// The last bytes that a command printed beside its answers.
#[derive(Clone, Default)]
struct Complaints(Arc<Mutex<VecDeque<u8>>>);

impl Complaints {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let surplus = kept.len().saturating_sub(COMPLAINT_BYTES_MAX);
        kept.drain(..surplus);
    }

    fn text(&self) -> String {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(kept.make_contiguous()).trim().to_owned()
    }
}

impl Commands {
    /// Starts a command that is spoken with. Its supervisor is recorded before it is told what to run.
    pub(crate) async fn serve(self: &Arc<Self>, post: Post<'_>) -> Result<Service, String> {
        if !post.folder.is_dir() {
            return Err(format!("the workspace {} is gone", post.folder.display()));
        }
        let told = |error: std::io::Error| error.to_string();
        let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|error| error.to_string());
        let ((theirs_in, ours_in), (ours_out, theirs_out)) = (pipe()?, pipe()?);
        let streams = Streams { input: theirs_in.as_raw_fd(), output: theirs_out.as_raw_fd() };
        let mut running = self.start_for(&[&theirs_in, &theirs_out])?;
        drop((theirs_in, theirs_out));
        let entry = match self.record(&post.id, running.pid) {
            Ok(entry) => entry,
            Err(error) => {
                running.let_go().await;
                return Err(format!("the process could not be recorded, so it was not run: {error}"));
            }
        };
        let order = Order {
            command: post.command,
            without_shell: vec![],
            folder: post.folder.to_owned(),
            call_id: post.id.clone(),
            timeout_ms: FOR_EVER.as_millis() as u64,
            namespaces: self.namespaces,
            environment: post.environment,
            streams: Some(streams),
        };
        let (stop, complaints, (told_ended, ended)) =
            (CancellationToken::new(), Complaints::default(), watch::channel(None));
        let life = Life { ended, complaints: complaints.clone(), stop: stop.clone().drop_guard() };
        let (input, output) = (
            pipe::Sender::from_owned_fd(ours_in).map_err(told)?,
            pipe::Receiver::from_owned_fd(ours_out).map_err(told)?,
        );
        let commands = Arc::clone(self);
        tokio::spawn(async move {
            let seen = {
                let (pid, control, status, output) =
                    (running.pid, &mut running.control, &mut running.status, &mut running.output);
                crate::command::give(control, &order).await;
                let follow = crate::command::follow(pid, control, status, &stop);
                let listen = async {
                    let mut chunk = vec![0; 4096];
                    while let Ok(count @ 1..) = output.read(&mut chunk).await {
                        complaints.push(&chunk[..count]);
                    }
                };
                let mut follow = std::pin::pin!(follow);
                tokio::select! {
                    seen = &mut follow => seen,
                    () = listen => follow.await,
                }
            };
            running.let_go().await;
            let how = match seen {
                Seen::Reported(report) => told_exit(&report.exit),
                Seen::Lost(why) => {
                    commands.end_marked(&post.id).await;
                    why
                }
                Seen::GivenUp(left) => format!("it did not end: {}", left.join(", ")),
            };
            entry.remove();
            told_ended.send_replace(Some(how));
        });
        Ok(Service { input, output, life })
    }

    /// A supervisor that inherits these ends of pipes under their own numbers.
    fn start_for(&self, ends: &[&OwnedFd]) -> Result<crate::command::Running, String> {
        let numbers: Vec<i32> = ends.iter().map(|end| end.as_raw_fd()).collect();
        self.launcher.start_with(|command| {
            // SAFETY: only plain system calls, which a child may make between fork and exec; the numbers are open in it,
            // since they are in us until it has started.
            unsafe {
                command.pre_exec(move || {
                    for number in &numbers {
                        let end = std::os::fd::BorrowedFd::borrow_raw(*number);
                        rustix::io::fcntl_setfd(end, rustix::io::FdFlags::empty())?;
                    }
                    Ok(())
                });
            }
        })
    }
}

fn told_exit(exit: &Exit) -> String {
    match exit {
        Exit::Code(code) => format!("it ended with exit code {code}"),
        Exit::Signal(signal) => format!("it was ended by signal {signal}"),
        Exit::TimedOut | Exit::Stopped => "it was stopped".into(),
        Exit::Failed(why) => why.clone(),
    }
}

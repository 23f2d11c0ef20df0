//! The process between the daemon and a command: it starts the command when told, and sees to it that the command and
//! all that came from it are gone when it reports, whatever the command did. It never outlives the daemon by more than
//! the time that takes, and it never runs threads.

mod child;
mod init;
mod lines;

use std::{
    io::Write as _,
    os::fd::{AsFd, BorrowedFd},
    process::ExitCode,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd,
};

use crate::{
    STOP_GRACE, STOP_LIMIT,
    order::{Exit, Order, Report, STOP},
};
use child::{Child, Namespace};
use lines::Lines;

/// The argument by which the daemon's binary is told to be a supervisor.
pub const SUPERVISE_ARG: &str = "__supervise";

/// How often those that are being ended are looked at: not every end among them is told to us.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Ends before the daemon's own patience does, so that what is left can still be named.
const GIVE_UP_AFTER: Duration = STOP_LIMIT.saturating_sub(Duration::from_secs(2));

/// Serves as supervisor on this process's standard streams: orders come in on the first, the command's output goes to
/// the second, the report to the third. To be called first thing in `main`, before any thread is started.
pub fn supervise() -> ExitCode {
    match Supervisor::wait_for_order() {
        Ok(Some((supervisor, order))) => supervisor.run(&order),
        // The daemon was gone before it gave an order, or had no need of us: nothing was started.
        Ok(None) => {}
        Err(error) => tell(&failed(format!("the supervisor could not begin: {error}"))),
    }
    ExitCode::SUCCESS
}

/// A report that is not plain data or a daemon that is gone: nobody is there to be told.
fn tell(report: &Report) {
    let line = serde_json::to_string(report).unwrap_or_default() + "\n";
    let _ = std::io::stderr().write_all(line.as_bytes());
}

fn failed(why: String) -> Report {
    Report { exit: Exit::Failed(why), left: vec![], namespaced: false }
}

struct Supervisor {
    control: Lines,
    signals: SignalFd,
    namespace: Option<Namespace>,
}

/// Why everything is being ended.
#[derive(Clone, Copy, PartialEq)]
enum Cause {
    CommandEnded,
    TimedOut,
    /// The daemon said so, or is gone, or somebody sent us a signal.
    Stopped,
}

/// Everything is being ended, for this cause, since then.
#[derive(Clone, Copy)]
struct Ending {
    cause: Cause,
    since: Instant,
}

impl Supervisor {
    fn wait_for_order() -> Result<Option<(Self, Order)>, String> {
        // Its own session, so that a key press in the daemon's terminal does not reach it. Fails only if it has one.
        let _ = unistd::setsid();
        prctl::set_child_subreaper(true).map_err(|error| format!("no subreaper: {error}"))?;
        let mut mask = SigSet::empty();
        [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().for_each(|one| mask.add(one));
        mask.thread_block().map_err(|error| error.to_string())?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .map_err(|error| error.to_string())?;
        let control = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
        let mut control = Lines::new(control);
        let namespace = Namespace::prepare();
        let Some(line) = control.wait_for_line()? else {
            namespace.into_iter().for_each(Namespace::discard);
            return Ok(None);
        };
        let order = serde_json::from_str(&line).map_err(|error| format!("bad order: {error}"))?;
        Ok(Some((Self { control, signals, namespace }, order)))
    }

    fn run(mut self, order: &Order) {
        let mut child = match Child::start(order, self.namespace.take()) {
            Ok(child) => child,
            Err(why) => return tell(&failed(why)),
        };
        let deadline = Instant::now() + Duration::from_millis(order.timeout_ms);
        let mut ending: Option<Ending> = None;
        loop {
            if child.reap() {
                return tell(&report(&child, ending, vec![]));
            }
            if child.is_over() {
                // Nobody has to wait while the kernel takes the namespace down.
                tell(&report(&child, ending, vec![]));
                return child.collect();
            }
            let cause = self.cause_to_end(&child, deadline);
            match (ending, cause) {
                (None, Some(cause)) => {
                    ending = Some(Ending { cause, since: Instant::now() });
                    child.ask_to_end();
                }
                (Some(now), _) if now.since.elapsed() > GIVE_UP_AFTER => {
                    return tell(&report(&child, ending, child.left()));
                }
                (Some(now), _) if now.since.elapsed() > STOP_GRACE => child.kill(),
                _ => {}
            }
            self.wait(&child, deadline, ending);
        }
    }

    fn cause_to_end(&mut self, child: &Child, deadline: Instant) -> Option<Cause> {
        let told = match self.control.next_line() {
            Ok(None) => false,
            Ok(Some(line)) => line == STOP.trim_end(),
            // The pipe was closed: the daemon is gone.
            Err(_) => true,
        };
        let mut signalled = false;
        while let Ok(Some(signal)) = self.signals.read_signal() {
            signalled |= signal.ssi_signo != Signal::SIGCHLD as u32;
        }
        if child.exit().is_some() {
            Some(Cause::CommandEnded)
        } else if told || signalled {
            Some(Cause::Stopped)
        } else if Instant::now() >= deadline {
            Some(Cause::TimedOut)
        } else {
            None
        }
    }

    /// Until something happens that has to be looked at.
    fn wait(&self, child: &Child, deadline: Instant, ending: Option<Ending>) {
        let patience = match ending {
            Some(_) => LOOK_INTERVAL,
            None => deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1),
        };
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut watched: Vec<BorrowedFd<'_>> = vec![self.signals.as_fd()];
        watched.extend(child.reports());
        if !self.control.is_closed() {
            watched.push(self.control.as_fd());
        }
        let mut fds: Vec<PollFd<'_>> = watched.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            // Not to be expected; looking again after a while still ends what has to end.
            Err(_) => std::thread::sleep(LOOK_INTERVAL),
        }
    }
}

fn report(child: &Child, ending: Option<Ending>, left: Vec<String>) -> Report {
    let exit = match ending.map(|ending| ending.cause) {
        Some(Cause::TimedOut) => Exit::TimedOut,
        Some(Cause::Stopped) => Exit::Stopped,
        Some(Cause::CommandEnded) | None => {
            child.exit().cloned().unwrap_or_else(|| Exit::Failed("the command was ended by someone else".into()))
        }
    };
    Report { exit, left, namespaced: child.is_namespaced() }
}

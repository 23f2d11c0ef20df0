//! The command and all that comes from it, with or without a pid namespace around. It never signals anything else.

use std::{
    io::Write as _,
    os::{
        fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Command, Stdio},
};

use nix::{
    errno::Errno,
    sched::{CloneFlags, clone},
    sys::{
        prctl,
        signal::{SigSet, Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{self, Pid},
};

use super::{init, lines::Lines};
use crate::{
    CALL_VARIABLE,
    order::{Exit, Order},
    process::{self, Process},
};

/// The namespace's first process runs on this; it calls only shallow functions.
const INIT_STACK_BYTES: usize = 1024 * 1024;

pub(super) struct Child {
    kind: Kind,
    exit: Option<Exit>,
    /// Nothing was left beside the command when it ended.
    alone: bool,
}

enum Kind {
    /// The command runs below the first process of a pid namespace: when that one dies, the kernel ends all the others.
    Namespaced { init: Pid, reports: Lines },
    /// The command is our child, and what it leaves behind becomes our child.
    Plain { command: Pid },
}

/// A pid namespace in which nothing runs yet but its first process, made before it is known what for: that takes longer
/// than the start of a command in it.
pub(super) struct Namespace {
    init: Pid,
    orders: OwnedFd,
    reports: Lines,
}

impl Namespace {
    /// `None`: a namespace cannot be had here.
    pub(super) fn prepare() -> Option<Self> {
        let user = if unistd::geteuid().is_root() { CloneFlags::empty() } else { CloneFlags::CLONE_NEWUSER };
        let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).ok();
        let (theirs, orders) = pipe()?;
        let (reports, to_us) = pipe()?;
        let mut stack = vec![0; INIT_STACK_BYTES];
        let ids = (unistd::geteuid(), unistd::getegid());
        let mut ends = Some((theirs, orders, reports, to_us));
        let started = {
            let ends = &mut ends;
            let main = Box::new(move || match ends.take() {
                Some((theirs, orders, reports, to_us)) => {
                    drop((orders, reports));
                    init::main(Lines::new(theirs), &to_us, (!user.is_empty()).then_some(ids))
                }
                None => 1,
            });
            // SAFETY: this process has one thread, so the copy that `clone` makes without sharing memory may do all
            // that a fresh fork may, and the stack it runs on is part of that copy and large enough.
            unsafe { clone(main, &mut stack, CloneFlags::CLONE_NEWPID | user, Some(Signal::SIGCHLD as i32)) }
        };
        let (Ok(init), Some((_, orders, reports, _))) = (started, ends) else { return None };
        Some(Self { init, orders, reports: Lines::new(reports) })
    }

    /// `None`: the namespace is of no use, and the command was not started.
    fn start(mut self, order: &Order) -> Result<Option<Child>, String> {
        let line = serde_json::to_string(order).unwrap_or_default() + "\n";
        let told = std::fs::File::from(self.orders).write_all(line.as_bytes());
        if told.is_err() {
            // It was gone before it could hear of the order.
            reap_one(self.init);
            return Ok(None);
        }
        match self.reports.wait_for_line()?.as_deref().map(init::Word::parse) {
            Some(init::Word::Started) => {
                let kind = Kind::Namespaced { init: self.init, reports: self.reports };
                Ok(Some(Child { kind, exit: None, alone: false }))
            }
            Some(init::Word::CannotStart(why)) => {
                reap_one(self.init);
                Err(why)
            }
            Some(_) => {
                reap_one(self.init);
                Ok(None)
            }
            // It was killed with the order in its hands: the command may have begun, and must not begin again.
            None => {
                reap_one(self.init);
                Err("the command's process namespace was killed; what became of the command is not known".into())
            }
        }
    }

    /// Its first process ends when the pipe is closed.
    pub(super) fn discard(self) {
        drop(self.orders);
        reap_one(self.init);
    }
}

impl Child {
    /// Starts the command, in the namespace where that is wanted.
    pub(super) fn start(order: &Order, namespace: Option<Namespace>) -> Result<Self, String> {
        let namespaced = match namespace {
            Some(namespace) if order.namespaces => namespace.start(order)?,
            other => {
                other.into_iter().for_each(Namespace::discard);
                None
            }
        };
        let child = match namespaced {
            Some(child) => {
                // The namespace's first process has its own.
                drop(Handed::take(order));
                child
            }
            None => Self::start_plain(order)?,
        };
        release_output();
        Ok(child)
    }

    fn start_plain(order: &Order) -> Result<Self, String> {
        let supervisor = unistd::getpid();
        // To start a program here means to fork first, and a fork runs a file that is no program with another shell than
        // ours. So a shell decides.
        let command = spawn([&order.command], order, |command| {
            // SAFETY: all of them are plain system calls, which a child may make between fork and exec.
            unsafe {
                command.pre_exec(move || {
                    // The signals that we take from a pipe are blocked here; the command must hear them.
                    SigSet::empty().thread_set_mask()?;
                    // Should we be killed, the command at least goes with us.
                    prctl::set_pdeathsig(Signal::SIGKILL)?;
                    match unistd::getppid() == supervisor {
                        true => Ok(()),
                        false => Err(std::io::ErrorKind::BrokenPipe.into()),
                    }
                });
            }
        })?;
        Ok(Self { kind: Kind::Plain { command }, exit: None, alone: false })
    }

    pub(super) fn is_namespaced(&self) -> bool {
        matches!(self.kind, Kind::Namespaced { .. })
    }

    /// How the command itself ended, once it has.
    pub(super) fn exit(&self) -> Option<&Exit> {
        self.exit.as_ref()
    }

    /// The command has ended and left nothing behind, though the namespace's first process may not be collected yet.
    pub(super) fn is_over(&self) -> bool {
        self.alone && self.exit.is_some()
    }

    /// Waits for what has nothing left to do but to end.
    pub(super) fn collect(&self) {
        while matches!(waitpid(None, None), Ok(_) | Err(Errno::EINTR)) {}
    }

    /// The pipe on which the namespace's first process tells of the command's end.
    pub(super) fn reports(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Namespaced { reports, .. } if !reports.is_closed() => Some(reports.as_fd()),
            _ => None,
        }
    }

    /// Takes note of those that ended. True: none is left.
    pub(super) fn reap(&mut self) -> bool {
        let all_gone = loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break false,
                Ok(status) => self.note(status),
                Err(Errno::EINTR) => {}
                Err(_) => break true,
            }
        };
        if let Kind::Namespaced { reports, .. } = &mut self.kind {
            while let Ok(Some(line)) = reports.next_line() {
                match init::Word::parse(&line) {
                    init::Word::Ended(exit) => self.exit = Some(exit),
                    init::Word::Empty => self.alone = true,
                    _ => {}
                }
            }
        }
        all_gone
    }

    fn note(&mut self, status: WaitStatus) {
        if let Kind::Plain { command } = self.kind
            && status.pid() == Some(command)
            && let Some(exit) = exit_of(status)
        {
            self.exit = Some(exit);
        }
    }

    /// Politely: a chance to clean up.
    pub(super) fn ask_to_end(&self) {
        if self.alone {
            // Only the namespace's first process is left, and that is about to end by itself.
            return;
        }
        for process in self.living() {
            process.signal(rustix::process::Signal::TERM);
            // One that is stopped could not hear it.
            process.signal(rustix::process::Signal::CONT);
        }
    }

    /// For good. Called again until none is left, since one may start another while we look.
    pub(super) fn kill(&self) {
        match &self.kind {
            // It is our child and not reaped yet, so the number is still its own.
            Kind::Namespaced { init, .. } => drop(kill(*init, Signal::SIGKILL)),
            Kind::Plain { .. } => {
                for process in self.living() {
                    process.signal(rustix::process::Signal::KILL);
                }
            }
        }
    }

    /// What is still there, by name and pid.
    pub(super) fn left(&self) -> Vec<String> {
        let mut left = self.living();
        if let (Kind::Namespaced { init, .. }, true) = (&self.kind, left.is_empty()) {
            left.extend(Process::read(init.as_raw()));
        }
        left.iter().map(Process::to_string).collect()
    }

    fn living(&self) -> Vec<Process> {
        match &self.kind {
            Kind::Namespaced { init, .. } => process::descendants(init.as_raw()),
            Kind::Plain { .. } => process::descendants(unistd::getpid().as_raw()),
        }
    }
}

/// The ends of pipes that the daemon handed down for the command, as this process's own: closed when dropped.
struct Handed {
    input: OwnedFd,
    output: OwnedFd,
}

impl Handed {
    /// To be called once in a process: then it has them no more.
    fn take(order: &Order) -> Option<Self> {
        let streams = order.streams?;
        // SAFETY: the daemon opened these numbers for this process, and nothing else here knows of them.
        let own = |number| unsafe { OwnedFd::from_raw_fd(number) };
        let handed = Self { input: own(streams.input), output: own(streams.output) };
        for end in [&handed.input, &handed.output] {
            // The command gets them as its standard streams and under no other number.
            let _ = rustix::io::fcntl_setfd(end, rustix::io::FdFlags::CLOEXEC);
        }
        Some(handed)
    }

    fn hand_on(&self) -> std::io::Result<(Stdio, Stdio)> {
        Ok((self.input.try_clone()?.into(), self.output.try_clone()?.into()))
    }
}

/// Starts the first of these commands that can be started: on the streams that the order names, or on this process's
/// output with nothing to read.
pub(super) fn spawn<'o>(
    tries: impl IntoIterator<Item = &'o Vec<String>>,
    order: &Order,
    prepare: impl Fn(&mut Command),
) -> Result<Pid, String> {
    let mut failure = "the order names no command".to_owned();
    let handed = Handed::take(order);
    for words in tries {
        let Some((program, arguments)) = words.split_first() else { continue };
        let output = || std::io::stdout().as_fd().try_clone_to_owned().map(Stdio::from);
        let (Ok(out), Ok(err)) = (output(), output()) else {
            return Err("the output pipe cannot be handed on".into());
        };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err);
        if let Some(handed) = &handed {
            let (input, output) = handed.hand_on().map_err(|error| format!("a pipe cannot be handed on: {error}"))?;
            command.stdin(input).stdout(output);
        }
        command.envs(&order.environment).current_dir(&order.folder).env(CALL_VARIABLE, &order.call_id);
        // As a shell does it; ours may be the daemon's.
        command.env("PWD", order.folder.canonicalize().as_ref().unwrap_or(&order.folder));
        prepare(&mut command);
        match command.spawn() {
            Ok(child) => return Ok(Pid::from_raw(child.id() as i32)),
            Err(error) => failure = format!("{program} cannot be started: {error}"),
        }
    }
    Err(failure)
}

/// Lets go of the output pipe, so that its reader sees the end when the command's processes are gone.
pub(super) fn release_output() {
    if let Ok(null) = std::fs::File::options().write(true).open("/dev/null") {
        let _ = unistd::dup2_stdout(&null);
    }
}

pub(super) fn exit_of(status: WaitStatus) -> Option<Exit> {
    match status {
        WaitStatus::Exited(_, code) => Some(Exit::Code(code)),
        WaitStatus::Signaled(_, signal, _) => Some(Exit::Signal(signal as i32)),
        _ => None,
    }
}

fn reap_one(pid: Pid) {
    while waitpid(pid, None) == Err(Errno::EINTR) {}
}

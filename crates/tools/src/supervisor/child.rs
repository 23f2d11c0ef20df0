//! The command and all that comes from it, with or without a pid namespace around. It never signals anything else.

use std::{
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
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

impl Child {
    /// Starts the command, in a namespace where that is wanted and allowed.
    pub(super) fn start(order: &Order) -> Result<Self, String> {
        let namespaced = if order.namespaces { Self::start_namespaced(order)? } else { None };
        let child = match namespaced {
            Some(child) => child,
            None => Self::start_plain(order)?,
        };
        release_output();
        Ok(child)
    }

    /// `None`: a namespace cannot be had here. An error: it can, but the command cannot be started.
    fn start_namespaced(order: &Order) -> Result<Option<Self>, String> {
        let user = if unistd::geteuid().is_root() { CloneFlags::empty() } else { CloneFlags::CLONE_NEWUSER };
        let flags = CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS | user;
        let Ok((reader, writer)) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC) else { return Ok(None) };
        let mut stack = vec![0; INIT_STACK_BYTES];
        let ids = (unistd::geteuid(), unistd::getegid());
        let mut ends: Option<(OwnedFd, OwnedFd)> = Some((reader, writer));
        let started = {
            let ends = &mut ends;
            let main = Box::new(move || match ends.take() {
                Some((reader, writer)) => {
                    drop(reader);
                    init::main(order, &writer, (!user.is_empty()).then_some(ids))
                }
                None => 1,
            });
            // SAFETY: this process has one thread, so the copy that `clone` makes without sharing memory may do all
            // that a fresh fork may, and the stack it runs on is part of that copy and large enough.
            unsafe { clone(main, &mut stack, flags, Some(Signal::SIGCHLD as i32)) }
        };
        let (Ok(init), Some((reader, writer))) = (started, ends) else { return Ok(None) };
        drop(writer);
        let mut reports = Lines::new(reader);
        match reports.wait_for_line()?.as_deref().map(init::Word::parse) {
            Some(init::Word::Started) => {
                Ok(Some(Self { kind: Kind::Namespaced { init, reports }, exit: None, alone: false }))
            }
            Some(init::Word::CannotStart(why)) => {
                reap_one(init);
                Err(why)
            }
            _ => {
                reap_one(init);
                Ok(None)
            }
        }
    }

    fn start_plain(order: &Order) -> Result<Self, String> {
        let supervisor = unistd::getpid();
        let mut command = command_of(order)?;
        // SAFETY: both calls are plain system calls, which a child may make between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // Should we be killed, the command at least goes with us.
                prctl::set_pdeathsig(Signal::SIGKILL)?;
                match unistd::getppid() == supervisor {
                    true => Ok(()),
                    false => Err(std::io::ErrorKind::BrokenPipe.into()),
                }
            });
        }
        let child = command.spawn().map_err(|error| cannot_start(order, &error))?;
        Ok(Self { kind: Kind::Plain { command: Pid::from_raw(child.id() as i32) }, exit: None, alone: false })
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

/// The command on this process's output, with nothing to read.
pub(super) fn command_of(order: &Order) -> Result<Command, String> {
    let (program, arguments) = order.command.split_first().ok_or("the order names no command")?;
    let output = || std::io::stdout().as_fd().try_clone_to_owned().map(Stdio::from);
    let (out, err) = (output(), output());
    let (Ok(out), Ok(err)) = (out, err) else { return Err("the output pipe cannot be handed on".into()) };
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(out).stderr(err);
    command.current_dir(&order.folder).env(CALL_VARIABLE, &order.call_id);
    // SAFETY: one plain system call, which a child may make between fork and exec.
    unsafe {
        // The signals that we take from a pipe are blocked here; the command must hear them.
        command.pre_exec(|| Ok(SigSet::empty().thread_set_mask()?));
    }
    Ok(command)
}

pub(super) fn cannot_start(order: &Order, error: &std::io::Error) -> String {
    format!("{} cannot be started: {error}", order.command.first().map_or("the command", String::as_str))
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

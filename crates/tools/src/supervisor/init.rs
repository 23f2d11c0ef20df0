//! The first process of a command's pid namespace: starts the command, collects what ends, and tells how the command
//! ended. The namespace lives as long as it does, and it never lives longer than the supervisor.

use std::{fs, os::fd::OwnedFd};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::{SigSet, Signal},
        wait::{WaitPidFlag, WaitStatus, wait, waitpid},
    },
    unistd::{self, Gid, Uid},
};

use super::{
    child::{exit_of, release_output, spawn},
    lines::Lines,
};
use crate::order::{Exit, Order};

/// What it tells the supervisor, a line each.
pub(super) enum Word {
    /// There is no namespace to be had; the command was not started.
    NoNamespace,
    Started,
    CannotStart(String),
    Ended(Exit),
    /// With the command everything in the namespace has ended.
    Empty,
}

impl Word {
    pub(super) fn parse(line: &str) -> Self {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = rest.parse().unwrap_or(-1);
        match word {
            "started" => Word::Started,
            "cannot-start" => Word::CannotStart(rest.to_owned()),
            "code" => Word::Ended(Exit::Code(number)),
            "signal" => Word::Ended(Exit::Signal(number)),
            "empty" => Word::Empty,
            _ => Word::NoNamespace,
        }
    }

    fn line(&self) -> String {
        match self {
            Word::NoNamespace => "no-namespace\n".into(),
            Word::Started => "started\n".into(),
            Word::CannotStart(why) => format!("cannot-start {}\n", why.replace('\n', " ")),
            Word::Ended(Exit::Code(code)) => format!("code {code}\n"),
            Word::Ended(Exit::Signal(signal)) => format!("signal {signal}\n"),
            Word::Ended(_) => "code -1\n".into(),
            Word::Empty => "empty\n".into(),
        }
    }
}

/// Runs as the first process of a fresh pid namespace and waits for the order. `ids`: whose ids to keep, where a user
/// namespace came with it.
pub(super) fn main(mut orders: Lines, supervisor: &OwnedFd, ids: Option<(Uid, Gid)>) -> isize {
    let tell = |word: Word| unistd::write(supervisor, word.line().as_bytes());
    let prepared = prepare(ids);
    // None: there is no need of us.
    let Ok(Some(line)) = orders.wait_for_line() else { return 0 };
    let order: Order = match (prepared.and_then(|()| own_mounts()), serde_json::from_str(&line)) {
        (Ok(()), Ok(order)) => order,
        _ => {
            let _ = tell(Word::NoNamespace);
            return 1;
        }
    };
    let command = match spawn([&order.without_shell, &order.command], &order, |_| ()) {
        Ok(command) => command,
        Err(why) => {
            let _ = tell(Word::CannotStart(why));
            return 1;
        }
    };
    release_output();
    // The pipe breaks if the supervisor died before its death could be a signal to us.
    if tell(Word::Started).is_err() {
        return 1;
    }
    loop {
        match wait() {
            Ok(status) if status.pid() == Some(command) => {
                let Some(exit) = exit_of(status) else { continue };
                let ended = Word::Ended(exit).line();
                // Said in one breath, so that nobody looks for others where there are none.
                let line = if is_empty() { ended + &Word::Empty.line() } else { ended };
                let _ = unistd::write(supervisor, line.as_bytes());
            }
            Ok(_) | Err(Errno::EINTR) => {}
            // No child is left, so nothing is left in the namespace.
            Err(_) => return 0,
        }
    }
}

/// Collects what has ended. True: nothing is left in the namespace, since all of it descends from this process.
fn is_empty() -> bool {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return false,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return true,
        }
    }
}

fn prepare(ids: Option<(Uid, Gid)>) -> std::io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if let Some((user, group)) = ids {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    // The command inherits it. To this process itself, as the first of its namespace, only a kill is a signal.
    SigSet::empty().thread_set_mask()?;
    Ok(())
}

/// Taken when the order is there and not before: what is mounted meanwhile must be seen, and what is unmounted meanwhile
/// must not be held.
fn own_mounts() -> std::io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Private first: what is mounted here must not show anywhere else.
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, none)?;
    Ok(())
}

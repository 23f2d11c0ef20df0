//! Runs a daemon under ptrace and asks, at the entry of each system call of any of its threads that changes a file or sends on a socket, what is to become of it. Tools that the daemon starts are not followed: only threads are.

use std::{
    collections::HashMap,
    fs,
    os::unix::{fs::FileExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command},
    sync::atomic::{AtomicI32, Ordering},
};

use anyhow::{Context, Result, bail};
use nix::{
    errno::Errno,
    libc,
    sys::{
        ptrace::{self, Options},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// A system call at its entry.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: &'static str,
    pub on: Object,
    /// What a write would write, as far as it was asked for.
    pub bytes: Option<Span>,
}

/// What a system call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Object {
    File(PathBuf),
    Socket,
    Pipe,
}

/// Where in the daemon's memory the bytes lie.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    address: u64,
    length: u64,
}

/// What becomes of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Pass,
    /// It does not happen, and the whole daemon is gone.
    Kill,
    /// It does not happen and reports this error.
    Fail(Errno),
    /// Only the first half of the bytes is written.
    Short,
    /// The first half is written, and the whole daemon is gone.
    Tear,
}

/// Decides over the daemon's system calls.
pub trait Judge {
    fn entry(&mut self, call: &Call, memory: &Memory) -> Fate;
    /// The call has been made and this many bytes or nothing came of it.
    fn exit(&mut self, call: &Call, result: i64);
}

/// The daemon's memory, readable while it stands still.
pub struct Memory(fs::File);

impl Memory {
    pub fn read(&self, span: Span) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(span.length).unwrap_or(0)];
        let read = self.0.read_at(&mut bytes, span.address).unwrap_or(0);
        bytes.truncate(read);
        bytes
    }

    fn text(&self, address: u64) -> PathBuf {
        let bytes = self.read(Span { address, length: libc::PATH_MAX as u64 });
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        PathBuf::from(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    fn word(&self, address: u64) -> u64 {
        self.read(Span { address, length: 8 }).try_into().map_or(0, u64::from_ne_bytes)
    }
}

/// A call under way, between its entry and its exit.
struct Pending {
    call: Call,
    fate: Fate,
}

pub struct Tracer<'j> {
    /// Reaped by `waitpid` here; kept so that nothing else takes its number.
    _child: Child,
    daemon: Pid,
    memory: Memory,
    pending: HashMap<Pid, Option<Pending>>,
    judge: &'j mut dyn Judge,
}

/// Starts the daemon and follows it to its end, on this thread alone. `running` holds its pid meanwhile. True if it was killed here.
pub fn follow(mut command: Command, running: &AtomicI32, judge: &mut dyn Judge) -> Result<bool> {
    // SAFETY: `traceme` is one system call that touches no memory of this process.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(Into::into)) };
    let child = command.spawn().context("could not start the daemon under ptrace")?;
    let daemon = Pid::from_raw(child.id().cast_signed());
    waitpid(daemon, Some(WaitPidFlag::__WALL))?;
    // The tracer's end is the daemon's end, so that none is left over.
    let options = Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::setoptions(daemon, options)?;
    let memory = Memory(fs::File::open(format!("/proc/{daemon}/mem"))?);
    let mut tracer = Tracer { _child: child, daemon, memory, pending: HashMap::new(), judge };
    running.store(daemon.as_raw(), Ordering::Release);
    ptrace::syscall(daemon, None)?;
    let killed = tracer.run();
    running.store(0, Ordering::Release);
    killed
}

impl Tracer<'_> {
    fn run(&mut self) -> Result<bool> {
        let mut killed = false;
        loop {
            // Only what this thread traces: others may trace daemons of their own beside it.
            let status = match waitpid(None, Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD)) {
                Err(Errno::EINTR) => continue,
                status => status?,
            };
            match status {
                WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                    self.pending.remove(&pid);
                    if pid == self.daemon {
                        return Ok(killed);
                    }
                }
                WaitStatus::PtraceSyscall(thread) => {
                    killed |= self.stop(thread)?;
                    resume(thread, None)?;
                }
                WaitStatus::PtraceEvent(thread, ..) | WaitStatus::Stopped(thread, Signal::SIGSTOP) => {
                    resume(thread, None)?;
                }
                WaitStatus::Stopped(thread, signal) => resume(thread, Some(signal))?,
                other => bail!("the tracer does not know {other:?}"),
            }
        }
    }

    /// At the entry or exit of a system call; true if the daemon was killed.
    fn stop(&mut self, thread: Pid) -> Result<bool> {
        let info = match ptrace::syscall_info(thread) {
            Ok(info) => info,
            Err(Errno::ESRCH) => return Ok(false),
            Err(error) => return Err(error).context("PTRACE_GET_SYSCALL_INFO"),
        };
        // SAFETY: `op` says which part of the union the kernel has filled in.
        unsafe {
            match info.op {
                libc::PTRACE_SYSCALL_INFO_ENTRY => self.entry(thread, info.u.entry.nr, &info.u.entry.args),
                libc::PTRACE_SYSCALL_INFO_EXIT => self.exit(thread, info.u.exit.sval),
                _ => Ok(false),
            }
        }
    }

    fn entry(&mut self, thread: Pid, number: u64, arguments: &[u64; 6]) -> Result<bool> {
        let Some(call) = read_call(self.daemon, &self.memory, number, arguments) else {
            self.pending.insert(thread, None);
            return Ok(false);
        };
        let fate = self.judge.entry(&call, &self.memory);
        match fate {
            Fate::Pass => {}
            Fate::Kill => return self.kill(),
            Fate::Fail(_) => set_register(thread, Register::Number, u64::MAX)?,
            Fate::Short | Fate::Tear => {
                let half = call.bytes.map_or(1, |bytes| bytes.length.div_ceil(2));
                set_register(thread, Register::Third, half)?;
            }
        }
        self.pending.insert(thread, Some(Pending { call, fate }));
        Ok(false)
    }

    fn exit(&mut self, thread: Pid, result: i64) -> Result<bool> {
        let Some(Pending { call, fate }) = self.pending.insert(thread, None).flatten() else { return Ok(false) };
        match fate {
            Fate::Fail(errno) => {
                set_register(thread, Register::Result, (-i64::from(errno as i32)).cast_unsigned())?;
                return Ok(false);
            }
            Fate::Tear => return self.kill(),
            Fate::Pass | Fate::Short | Fate::Kill => self.judge.exit(&call, result),
        }
        Ok(false)
    }

    /// The whole thread group at once, as `kill -9` does it. A call that was only entered is not made any more.
    fn kill(&self) -> Result<bool> {
        kill(self.daemon, Signal::SIGKILL)?;
        Ok(true)
    }
}

/// A thread that was killed while it stood still is gone, which its end will tell.
fn resume(thread: Pid, signal: Option<Signal>) -> Result<()> {
    match ptrace::syscall(thread, signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).context("PTRACE_SYSCALL"),
    }
}

enum Register {
    Number,
    Third,
    Result,
}

#[cfg(target_arch = "x86_64")]
fn set_register(thread: Pid, register: Register, value: u64) -> Result<()> {
    let mut registers = match ptrace::getregs(thread) {
        Err(Errno::ESRCH) => return Ok(()),
        registers => registers?,
    };
    match register {
        Register::Number => registers.orig_rax = value,
        Register::Third => registers.rdx = value,
        Register::Result => registers.rax = value,
    }
    match ptrace::setregs(thread, registers) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).context("PTRACE_SETREGS"),
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn set_register(_: Pid, _: Register, _: u64) -> Result<()> {
    bail!("faults can be injected on x86-64 only")
}

/// The call, if it is one that changes a file or sends something.
fn read_call(daemon: Pid, memory: &Memory, number: u64, arguments: &[u64; 6]) -> Option<Call> {
    let [first, second, third, fourth, ..] = *arguments;
    let at = |folder: u64, path: u64| Object::File(resolve(daemon, folder, &memory.text(path)));
    let here = libc::AT_FDCWD.cast_unsigned().into();
    let creates = |flags: u64| flags & libc::O_CREAT as u64 != 0;
    let span = Span { address: second, length: third };
    let (name, on, bytes) = match number.cast_signed() {
        libc::SYS_write => ("write", descriptor(daemon, first)?, Some(span)),
        libc::SYS_pwrite64 => ("pwrite64", descriptor(daemon, first)?, Some(span)),
        libc::SYS_writev => ("writev", descriptor(daemon, first)?, None),
        libc::SYS_fsync => ("fsync", descriptor(daemon, first)?, None),
        libc::SYS_fdatasync => ("fdatasync", descriptor(daemon, first)?, None),
        libc::SYS_ftruncate => ("ftruncate", descriptor(daemon, first)?, None),
        libc::SYS_sendto => ("sendto", descriptor(daemon, first)?, None),
        libc::SYS_sendmsg => ("sendmsg", descriptor(daemon, first)?, None),
        libc::SYS_openat if creates(third) => ("openat", at(first, second), None),
        // The first field of `open_how` is the flags.
        libc::SYS_openat2 if creates(memory.word(third)) => ("openat2", at(first, second), None),
        libc::SYS_renameat => ("renameat", at(third, fourth), None),
        libc::SYS_renameat2 => ("renameat2", at(third, fourth), None),
        libc::SYS_linkat => ("linkat", at(third, fourth), None),
        libc::SYS_unlinkat => ("unlinkat", at(first, second), None),
        libc::SYS_mkdirat => ("mkdirat", at(first, second), None),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open if creates(second) => ("open", at(here, first), None),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rename => ("rename", at(here, second), None),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_link => ("link", at(here, second), None),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_unlink => ("unlink", at(here, first), None),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_rmdir => ("rmdir", at(here, first), None),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_mkdir => ("mkdir", at(here, first), None),
        _ => return None,
    };
    Some(Call { name, on, bytes })
}

/// What a descriptor stands for. The runtime's own wake-ups (eventfd, epoll) are neither files nor sockets.
fn descriptor(daemon: Pid, number: u64) -> Option<Object> {
    let link = fs::read_link(format!("/proc/{daemon}/fd/{number}")).ok()?;
    let text = link.to_string_lossy();
    match () {
        () if text.starts_with("socket:") => Some(Object::Socket),
        () if text.starts_with("pipe:") => Some(Object::Pipe),
        () if text.starts_with('/') && !text.starts_with("/dev/") => Some(Object::File(link)),
        () => None,
    }
}

fn resolve(daemon: Pid, folder: u64, path: &Path) -> PathBuf {
    if path.is_absolute() {
        return path.to_owned();
    }
    let folder = match folder as i32 {
        libc::AT_FDCWD => fs::read_link(format!("/proc/{daemon}/cwd")),
        number => fs::read_link(format!("/proc/{daemon}/fd/{number}")),
    };
    folder.unwrap_or_default().join(path)
}

/// Whether a process can be followed here.
pub fn is_possible() -> bool {
    struct Idle;
    impl Judge for Idle {
        fn entry(&mut self, _: &Call, _: &Memory) -> Fate {
            Fate::Pass
        }
        fn exit(&mut self, _: &Call, _: i64) {}
    }
    cfg!(target_arch = "x86_64") && follow(Command::new("true"), &AtomicI32::new(0), &mut Idle).is_ok()
}

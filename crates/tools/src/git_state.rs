//! Branch, head and changed files of a workspace, in a few lines. Git runs nothing that the repository's own settings
//! name, takes no locks, speaks to no other machine, and is ended when its time is up.

use std::{
    ffi::{OsStr, OsString},
    io::Read as _,
    os::{fd::AsFd as _, unix::process::CommandExt as _},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio_util::sync::CancellationToken;

use crate::seed::repository_of;

/// Changed files that are named.
const CHANGES_SHOWN_MAX: usize = 30;
/// What is read of one answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Filters that a repository may have; with more, its files are not compared.
const FILTERS_MAX: usize = 32;
const LINE_CHARS_MAX: usize = 200;
/// How often a wait looks whether it should end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How git is started and when it is ended.
pub(crate) struct Git<'a> {
    pub(crate) workspace: &'a Path,
    /// Where programs are looked for.
    pub(crate) program_path: &'a OsStr,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) deadline: Instant,
}

/// `None`: it is no repository, or git does not answer.
pub(crate) fn git_state(git: &Git) -> Option<String> {
    repository_of(git.workspace)?;
    let filters = git.filters()?;
    let status = git.ask(
        &[
            "status",
            "--porcelain=v2",
            "--branch",
            "-z",
            "--no-renames",
            "--untracked-files=normal",
            "--ignore-submodules=all",
        ],
        &filters,
    )?;
    let status = Status::read(&String::from_utf8_lossy(&status));
    let head = git.ask(&["log", "-1", "--no-show-signature", "--format=%h %s"], &[]).unwrap_or_default();
    Some(status.told(String::from_utf8_lossy(&head).trim()))
}

/// Settings over those of the repository: what would start a program, or take long for nothing.
const SETTINGS: [(&str, &str); 5] = [
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.untrackedCache", "false"),
    ("log.showSignature", "false"),
    ("status.submoduleSummary", "false"),
];

impl Git<'_> {
    /// Settings that switch off the programs through which the repository wants its files to be read.
    fn filters(&self) -> Option<Vec<(String, String)>> {
        let asked = ["config", "-z", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process|required)$"];
        let answer = self.ask(&asked, &[]).unwrap_or_default();
        let answer = String::from_utf8_lossy(&answer);
        let off = |name: &str| (name.to_owned(), if name.ends_with(".required") { "false" } else { "" }.to_owned());
        let filters: Vec<(String, String)> = answer.split('\0').filter(|name| !name.is_empty()).map(off).collect();
        (filters.len() <= FILTERS_MAX).then_some(filters)
    }

    /// What a command says, if it ends well and in time.
    fn ask(&self, arguments: &[&str], more: &[(String, String)]) -> Option<Vec<u8>> {
        let mut command = Command::new("git");
        command.arg("--no-optional-locks").arg("--no-pager").args(arguments).current_dir(self.workspace);
        command.env_clear().envs(self.environment(more));
        command.stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().ok()?;
        let answer = child.stdout.take().and_then(|mut out| self.read(&mut out));
        let ended_well = answer.is_some() && self.wait(&mut child);
        if !ended_well {
            end(&mut child);
        }
        answer.filter(|_| ended_well)
    }

    fn environment(&self, more: &[(String, String)]) -> Vec<(String, OsString)> {
        let given = |name: &str, value: &str| (name.to_owned(), OsString::from(value));
        let mut all = vec![
            ("PATH".to_owned(), self.program_path.to_owned()),
            given("LC_ALL", "C.UTF-8"),
            given("GIT_CONFIG_NOSYSTEM", "1"),
            given("GIT_CONFIG_GLOBAL", "/dev/null"),
            given("GIT_OPTIONAL_LOCKS", "0"),
            given("GIT_TERMINAL_PROMPT", "0"),
            given("GIT_NO_LAZY_FETCH", "1"),
            given("GIT_NO_REPLACE_OBJECTS", "1"),
            // No way to another machine has this name.
            given("GIT_ALLOW_PROTOCOL", "none"),
        ];
        let fixed = SETTINGS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let settings: Vec<(String, String)> = fixed.chain(more.iter().cloned()).collect();
        all.push(given("GIT_CONFIG_COUNT", &settings.len().to_string()));
        for (at, (name, value)) in settings.into_iter().enumerate() {
            all.push((format!("GIT_CONFIG_KEY_{at}"), name.into()));
            all.push((format!("GIT_CONFIG_VALUE_{at}"), value.into()));
        }
        all
    }

    fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || Instant::now() >= self.deadline
    }

    /// All of an answer, or nothing when it is too long or does not end.
    fn read(&self, out: &mut ChildStdout) -> Option<Vec<u8>> {
        let mut answer = vec![];
        let mut buffer = [0; 16 * 1024];
        while !self.is_over() && answer.len() <= ANSWER_BYTES_MAX {
            let wait = PollTimeout::try_from(LOOK_EVERY).unwrap_or(PollTimeout::ZERO);
            let ready = poll(&mut [PollFd::new(out.as_fd(), PollFlags::POLLIN)], wait);
            match ready {
                Ok(0) | Err(nix::errno::Errno::EINTR) => continue,
                Ok(_) => {}
                Err(_) => return None,
            }
            match out.read(&mut buffer).ok()? {
                0 => return Some(answer),
                count => answer.extend_from_slice(&buffer[..count]),
            }
        }
        None
    }

    fn wait(&self, child: &mut Child) -> bool {
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if !self.is_over() => std::thread::sleep(Duration::from_millis(1)),
                Ok(None) | Err(_) => return false,
            }
        }
    }
}

/// Ends a child and all that it started.
fn end(child: &mut Child) {
    if let Ok(pid) = i32::try_from(child.id()) {
        // It may have ended by itself.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// What `git status` says.
#[derive(Debug, Default, PartialEq, Eq)]
struct Status {
    branch: String,
    upstream: Option<String>,
    ahead: u64,
    behind: u64,
    /// As in the short form: two letters and a path.
    changes: Vec<String>,
}

impl Status {
    fn read(answer: &str) -> Status {
        let mut status = Status::default();
        for record in answer.split('\0').filter(|record| !record.is_empty()) {
            if let Some(said) = record.strip_prefix("# branch.") {
                status.take_branch(said);
            } else if let Some(path) = record.strip_prefix("? ") {
                status.changes.push(format!("?? {path}"));
            } else {
                status.changes.extend(change(record));
            }
        }
        status
    }

    fn take_branch(&mut self, said: &str) {
        match said.split_once(' ') {
            Some(("head", name)) => self.branch = name.to_owned(),
            Some(("upstream", name)) => self.upstream = Some(name.to_owned()),
            Some(("ab", counts)) => {
                let mut counts =
                    counts.split(' ').map(|count| count.trim_start_matches(['+', '-']).parse().unwrap_or(0));
                (self.ahead, self.behind) = (counts.next().unwrap_or(0), counts.next().unwrap_or(0));
            }
            _ => {}
        }
    }

    fn told(&self, head: &str) -> String {
        let branch = match self.branch.as_str() {
            "(detached)" => "no branch (detached head)".to_owned(),
            branch => format!("branch {branch}"),
        };
        let head = if head.is_empty() { "no commit yet".to_owned() } else { format!("head {}", one_line(head)) };
        let upstream = self
            .upstream
            .as_ref()
            .map(|upstream| format!(", {} ahead of and {} behind {upstream}", self.ahead, self.behind));
        let mut text = format!("{branch}{}\n{head}\n", upstream.unwrap_or_default());
        if self.changes.is_empty() {
            text.push_str("no changes\n");
        }
        for change in self.changes.iter().take(CHANGES_SHOWN_MAX) {
            text.push_str(&format!("{}\n", one_line(change)));
        }
        if self.changes.len() > CHANGES_SHOWN_MAX {
            text.push_str(&format!("and {} more changed files\n", self.changes.len() - CHANGES_SHOWN_MAX));
        }
        text
    }
}

/// `1 XY sub mH mI mW hH hI path`, and `u XY …` with two more columns.
fn change(record: &str) -> Option<String> {
    let columns = match record.get(..2)? {
        "1 " => 9,
        "u " => 11,
        _ => return None,
    };
    let mut parts = record.splitn(columns, ' ');
    let letters = parts.nth(1)?.replace('.', " ");
    Some(format!("{letters} {}", parts.last()?))
}

/// A name may hold anything; a line has an end.
fn one_line(text: &str) -> String {
    text.chars().take(LINE_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;

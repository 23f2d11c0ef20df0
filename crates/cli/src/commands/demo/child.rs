//! The daemon of the demo: `tenure serve` as a child process that can be killed and started again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use tenure_client::{Client, discover};

use crate::{daemon::LOG_FILE, data, exit::Problem};

const START_MAX: Duration = Duration::from_secs(20);
const STOP_MAX: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(10);
/// Should the demo itself be killed, its daemon ends by itself.
const IDLE_END_MS: &str = "30000";

pub struct Daemon {
    data: PathBuf,
    child: Option<Child>,
}

impl Daemon {
    pub fn new(data: &Path) -> Self {
        Self { data: data.to_owned(), child: None }
    }

    /// Starts it on a free port and waits until it answers.
    pub async fn start(&mut self) -> anyhow::Result<(Client, u32)> {
        data::make(&self.data)?;
        let log = fs::OpenOptions::new().append(true).create(true).open(self.data.join(LOG_FILE))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--listen", "127.0.0.1:0", "--end-when-idle-ms", IDLE_END_MS]);
        command.arg("--data").arg(&self.data);
        // The demo shows what the defaults do, whatever this shell is set to.
        for name in ["TENURE_LISTEN", "TENURE_DEFAULT_MODEL", "TENURE_DURABILITY", "TENURE_MARK", "TENURE_CALL"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = self.child.insert(command.spawn().context("cannot start the daemon")?);
        let deadline = Instant::now() + START_MAX;
        loop {
            if let Ok((client, note)) = discover::find(&self.data).await
                && note.pid == child.id()
            {
                return Ok((client, note.pid));
            }
            if child.try_wait()?.is_some() || Instant::now() > deadline {
                let said = fs::read_to_string(self.data.join(LOG_FILE)).unwrap_or_default();
                return Err(Problem::failed("no_daemon", format!("the daemon did not start:\n{said}"), "").into());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// SIGKILL: no handler runs, nothing is written any more.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// SIGTERM, and waits for its end.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(child) = &mut self.child else { return Ok(()) };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        let deadline = Instant::now() + STOP_MAX;
        while child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                return Err(Problem::failed("not_stopped", "the daemon did not stop in time", "").into());
            }
            tokio::time::sleep(POLL).await;
        }
        self.child = None;
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its supervisors notice and end whatever runs for it.
        let _ = self.kill();
    }
}

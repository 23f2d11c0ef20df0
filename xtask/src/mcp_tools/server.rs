//! A server that is reached over HTTP, and which processes of servers there are.

use std::{
    fs,
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::daemon::is_alive;

const POLL: Duration = Duration::from_millis(20);

/// Ended when it is dropped.
pub struct HttpServer {
    child: Child,
    pub url: String,
}

impl HttpServer {
    pub fn start(program: &Path, patience: Duration) -> Result<HttpServer> {
        // Free now; nobody else here takes one at the same time.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(program);
        command.arg("streamableHttp").env("PORT", port.to_string());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.with_context(|| format!("could not start {}", program.display()))?;
        let server = HttpServer { child, url: format!("http://127.0.0.1:{port}/mcp") };
        until("the server listens", patience, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(server)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command lines of living processes that hold a text.
pub fn processes(mark: &str) -> Vec<String> {
    pids(mark).into_iter().map(line_of).collect()
}

pub fn pids(mark: &str) -> Vec<i32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| line_of(*pid).contains(mark) && is_alive(*pid)).collect()
}

fn line_of(pid: i32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default()).replace('\0', " ")
}

pub fn until(what: &str, patience: Duration, holds: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + patience;
    while !holds() {
        if Instant::now() > deadline {
            bail!("this did not come: {what}");
        }
        thread::sleep(POLL);
    }
    Ok(())
}

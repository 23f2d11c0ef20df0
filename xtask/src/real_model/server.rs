//! The process that serves the real model. It ends with whoever started it, however that ends.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{
    daemon::root,
    http::{Connection, Target},
    install::RealModel,
};

const POLL: Duration = Duration::from_millis(100);

pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts it and waits until the model is loaded.
    pub fn start(model: &RealModel, patience: Duration) -> Result<Server> {
        let mut command = Command::new(&model.python);
        command.arg(root()?.join("xtask/real-model/serve.py")).arg(&model.weights);
        // Its input stays open as long as this process lives.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        command.env("PYTHONDONTWRITEBYTECODE", "1");
        let mut server =
            Server { child: command.spawn().context("could not start the model's server")?, address: String::new() };
        let deadline = Instant::now() + patience;
        server.address = server.greeting(patience)?;
        while !server.is_well() {
            if let Some(status) = server.child.try_wait()? {
                bail!("the model's server ended at its start ({status})");
            }
            if Instant::now() > deadline {
                bail!("the model's server is not ready after {} s", patience.as_secs());
            }
            thread::sleep(POLL);
        }
        Ok(server)
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The address that it prints.
    fn greeting(&mut self, patience: Duration) -> Result<String> {
        let output = self.child.stdout.take().context("the model's server has no output")?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let Some(address) = line.strip_prefix("http://") {
                    let _ = sender.send(address.trim_end_matches('/').to_owned());
                }
            }
        });
        receiver.recv_timeout(patience).context("the model's server did not say where it listens")
    }

    fn is_well(&self) -> bool {
        let Ok(address) = self.address.parse::<SocketAddr>() else { return false };
        let target = Target { address, token: String::new() };
        let asked = Connection::open(&target).and_then(|mut to| to.ask("GET", "/health", None, None));
        asked.is_ok_and(|answer| answer.is_success())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

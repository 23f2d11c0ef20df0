//! What a daemon and systemd tell each other: a socket that is open already, that we are ready, that we live.

use std::{
    net::{SocketAddr, TcpListener},
    os::fd::FromRawFd as _,
};

use anyhow::Context as _;
use sd_notify::NotifyState;

use crate::exit::Problem;

/// What systemd tells us alone; tools must not take it for theirs.
pub const VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// The socket that we were given, and its address.
pub fn listener() -> anyhow::Result<Option<(TcpListener, SocketAddr)>> {
    let mut given = sd_notify::listen_fds().context("what systemd says of its sockets")?;
    let Some(first) = given.next() else { return Ok(None) };
    if given.len() > 0 {
        return Err(Problem::usage("systemd gives more than one socket", "name one ListenStream= alone").into());
    }
    // SAFETY: systemd opened it for this very process, which LISTEN_PID names, and nobody else here takes it.
    let listener = unsafe { TcpListener::from_raw_fd(first) };
    let hint = "use ListenStream= with an address such as 127.0.0.1:8787";
    let no_tcp = |error| Problem::usage(format!("the socket that systemd gives is no TCP socket: {error}"), hint);
    let address = listener.local_addr().map_err(no_tcp)?;
    listener.set_nonblocking(true)?;
    Ok(Some((listener, address)))
}

/// Tells that requests are answered from now on, and goes on telling that we live if that is wanted.
pub fn ready(address: SocketAddr) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("listens on {address}"))]);
    if let Some(within) = sd_notify::watchdog_enabled() {
        tokio::spawn(async move {
            loop {
                tell(&[NotifyState::Watchdog]);
                tokio::time::sleep(within / 2).await;
            }
        });
    }
}

pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("systemd is not told: {error}");
    }
}

//! The daemon's doors, and the conversions between the wire and the core. A door translates and refuses; it never touches the store and never judges what may happen in a session.

mod access;
mod http;
mod limits;
mod listen;
mod patient;

use std::{io, sync::Arc};

use tenure_engine::Engine;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use access::Access;
pub use limits::{Limits, TextLimits};

/// What `/readyz` tells about this daemon beside its state.
#[derive(Debug, Clone)]
pub struct About {
    /// `power`, `process` or `memory`: what an acknowledged event survives.
    pub durability: String,
}

/// Serves the HTTP API until `stop`. It then takes no new connection, ends the event streams, lets requests under way finish within `limits.stop_grace`, and returns.
pub async fn serve(
    listener: TcpListener,
    engine: Engine,
    access: Access,
    limits: Limits,
    about: About,
    stop: CancellationToken,
) -> io::Result<()> {
    let port = listener.local_addr()?.port();
    let app = http::App::new(engine, access.guard(port), limits.clone(), about, stop.clone());
    listen::until_stopped(listener, http::router(Arc::new(app)), &limits, stop).await;
    Ok(())
}

//! The daemon's doors, and the conversions between the wire and the core. A door translates and refuses; it never touches the store and never judges what may happen in a session.

mod access;
mod http;
mod limits;
mod listen;
mod mute;
mod patient;
mod refusals;
mod tls;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tenure_core::policy::Policy;
use tenure_engine::Engine;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

pub use access::{
    Access, Earlier, Forgetful, Keeper, Kept, MEND_BYTES_MAX, NamedToken, OWNER, mend_bit, mend_tokens, random_hex,
    read_tokens, sum_of,
};
pub use limits::{Limits, TextLimits};
pub use tls::{Made, Tls, TlsError};

/// What the doors know of this daemon beside its state.
#[derive(Debug, Clone, Default)]
pub struct About {
    /// `power`, `process` or `memory`: what an acknowledged event survives.
    pub durability: String,
    /// What a new session's policy is laid over.
    pub policy: Policy,
    pub visits: Visits,
}

/// Counts requests of clients, for a daemon that ends when none come any more. Health checks are none.
#[derive(Debug, Clone, Default)]
pub struct Visits(Arc<AtomicU64>);

impl Visits {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
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
    let tls = access.tls.clone();
    let guard = access.guard(port, &limits, stop.clone());
    let app = Arc::new(http::App::new(engine, guard, limits.clone(), about, stop.clone()));
    let expiring = tokio::spawn({
        let (app, stop) = (Arc::clone(&app), stop.clone());
        async move { app.guard.end_expired(stop).await }
    });
    let (refusals, imports) = (Arc::clone(&app.refusals), Arc::clone(&app.imports));
    // Imports that were cut take back what they had put down.
    let (places, grace) = (u32::try_from(limits.imports_max).unwrap_or(u32::MAX), limits.stop_grace.max(UNDO_MIN));
    let door = listen::Door { router: http::router(app), limits, refusals, tls };
    listen::until_stopped(listener, door, stop).await;
    expiring.abort();
    if tokio::time::timeout(grace, imports.acquire_many(places)).await.is_err() {
        tracing::warn!("an import did not end in time; `tenure store gc` removes what it left");
    }
    Ok(())
}

/// How long imports that were cut have at least to take back what they had put down.
const UNDO_MIN: Duration = Duration::from_secs(2);

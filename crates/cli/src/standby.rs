//! What `ask` and `chat` do while the daemon of its folder is away: they respect a stop, and try again to start one that fell.

use std::{
    convert::Infallible,
    time::{Duration, Instant},
};

use tenure_client::discover::{self, Absent};

use crate::{commands::Context, daemon};

/// Between two tries to start one.
const TRY_EVERY: Duration = Duration::from_secs(8);
/// One that is stopped only to be started again, as by a service, is back within this.
const BACK_WITHIN: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(50);

/// Whether the folder's daemon was stopped: in good order it takes its note along, and one that falls leaves it.
fn is_stopped(context: &Context) -> bool {
    context.remote.is_none() && matches!(discover::note(&context.data), Err(Absent::NoNote { .. }))
}

/// Whether it was stopped and nobody starts it again.
pub async fn stays_stopped(context: &Context) -> bool {
    let deadline = Instant::now() + BACK_WITHIN;
    while is_stopped(context) {
        if Instant::now() > deadline {
            return true;
        }
        tokio::time::sleep(POLL).await;
    }
    false
}

/// Does what needs the daemon, and meanwhile tries again and again to start one that does not start.
pub async fn while_starting<T>(context: &Context, work: impl Future<Output = T>) -> T {
    tokio::select! {
        done = work => done,
        never = keep_starting(context) => match never {},
    }
}

/// Starts the folder's daemon whenever there is none. Never ends.
pub async fn keep_starting(context: &Context) -> Infallible {
    loop {
        tokio::time::sleep(TRY_EVERY).await;
        if context.remote.is_none() && discover::read(&context.data).is_err() {
            // Why it does not start was told at the first try.
            let _ = daemon::connect(context).await;
        }
    }
}

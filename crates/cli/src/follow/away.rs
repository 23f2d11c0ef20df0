//! What following does while the daemon is away: it is started again, unless somebody stopped it.

use tokio::sync::watch;

use crate::{
    commands::Context,
    daemon::{Way, tell_missed},
    standby,
};

/// What became of the daemon.
pub(super) enum Daemon {
    Away,
    Back,
    Stopped,
}

/// What becomes of a daemon that is looked for. That somebody stopped it is not undone.
pub(super) async fn told_missed(missed: &mut watch::Receiver<bool>, way: &Way, context: &Context) -> Daemon {
    let mut ahead = missed.clone();
    if ahead.changed().await.is_err() {
        return std::future::pending().await;
    }
    let is_missed = *ahead.borrow();
    if is_missed && standby::stays_stopped(context).await {
        return Daemon::Stopped;
    }
    if tell_missed(missed, way).await { Daemon::Away } else { Daemon::Back }
}

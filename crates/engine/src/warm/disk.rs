//! A disk that says no: what could not be written is held and tried again, in order, and nothing overtakes it.

use std::time::Duration;

use tokio::time::Instant;

use super::{News, Warm};
use crate::Error;

/// The first wait after the disk refused something; it doubles up to the second.
const DISK_WAIT: Duration = Duration::from_millis(200);
const DISK_WAIT_MAX: Duration = Duration::from_secs(10);

/// Whether the disk takes what is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Disk {
    Fine,
    Refusing { until: Instant, wait: Duration },
}

impl Warm {
    /// When the disk is tried again, while that is still to come.
    pub(super) fn disk_retry_at(&self) -> Option<Instant> {
        match self.disk {
            Disk::Refusing { until, .. } if until > Instant::now() => Some(until),
            Disk::Fine | Disk::Refusing { .. } => None,
        }
    }

    pub(super) async fn retry_held(&mut self) {
        if !self.held.is_empty() && self.lost.is_none() && self.disk_retry_at().is_none() {
            self.write_held().await;
        }
    }

    /// Writes what waits, in order; stops where the disk refuses.
    pub(super) async fn write_held(&mut self) {
        while let Some(next) = self.held.pop_front() {
            let written = match next {
                News::Delta(fragment) => self.show_all(fragment).await,
                News::Done(done) => self.finish(*done).await,
            };
            if let Err((kept, error)) = written {
                self.held.push_front(kept);
                self.disk_refused(&error);
                return;
            }
        }
    }

    pub(super) fn disk_refused(&mut self, error: &Error) {
        if self.lost.is_some() {
            return;
        }
        let wait = match self.disk {
            Disk::Fine => {
                self.shared.notice(format!("session {} is closed for writing: {error}", self.id));
                DISK_WAIT
            }
            Disk::Refusing { wait, .. } => (wait * 2).min(DISK_WAIT_MAX),
        };
        self.disk = Disk::Refusing { until: Instant::now() + wait, wait };
    }

    /// A command that the disk did not take is its sender's to repeat; people should know of it all the same.
    pub(super) fn command_refused(&mut self, error: &Error) {
        let by_disk = matches!(error, Error::Store(tenure_store::Error::Disk { .. }));
        if by_disk && self.disk == Disk::Fine && !self.refusal_told {
            self.refusal_told = true;
            self.shared.notice(format!("session {} takes no commands: {error}", self.id));
        }
    }

    /// Whatever is not the disk's mood will not be mended by waiting: this task gives up.
    pub(super) fn lose(&mut self, error: &Error) {
        if !matches!(error, Error::Store(tenure_store::Error::Disk { .. })) && self.lost.is_none() {
            self.shared.notice(format!("session {} was let go: {error}", self.id));
            self.lost = Some(error.clone());
        }
    }

    pub(super) fn disk_took(&mut self) {
        if std::mem::take(&mut self.refusal_told) {
            self.shared.notice(format!("session {} takes commands again", self.id));
        }
        if self.disk != Disk::Fine {
            self.shared.notice(format!("session {} is open for writing again", self.id));
            self.disk = Disk::Fine;
        }
    }
}

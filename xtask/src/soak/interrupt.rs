//! Ctrl-C and SIGTERM end a soak in good order, its daemon too.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_: i32) {
    INTERRUPTED.store(true, Ordering::Release);
}

/// Takes the signals from here on. Processes started later get them as usual: a handler does not outlive an exec, as a blocked signal would.
pub fn watch() -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::SA_RESTART, SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        // SAFETY: the handler does nothing but store into an atomic.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

pub fn is_told() -> bool {
    INTERRUPTED.load(Ordering::Acquire)
}

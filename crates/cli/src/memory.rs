//! Gives back to the system what sessions needed that have left the memory. It frees nothing that is in use.

use std::time::Duration;

use tenure_engine::Engine;

/// How often it looks: sessions leave in waves, and one look serves a whole wave.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Runs as long as the daemon does.
pub async fn give_back(engine: Engine) {
    let mut seen = engine.retired();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let retired = engine.retired();
        if retired != seen {
            seen = retired;
            // A failure to join only says that the daemon is ending.
            let _ = tokio::task::spawn_blocking(trim).await;
        }
    }
}

/// The allocator keeps freed memory for later, in each of its arenas: after ten thousand sessions that is most of it.
#[cfg(target_env = "gnu")]
fn trim() {
    unsafe extern "C" {
        // Takes the allocator's own locks and touches only what is free.
        safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    malloc_trim(0);
}

/// Other allocators give back by themselves.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

//! What the daemon asks of the allocator: few pools, and that what sessions needed which have left the memory goes back
//! to the system. It frees nothing that is in use.

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

/// Every thread would get a pool of its own, up to eight for each processor, each with holes that the others cannot use.
/// One for each of those that compute is enough: what is small and short-lived does not touch a pool at all. To be called
/// before there are threads.
#[cfg(target_env = "gnu")]
pub fn limit_pools(workers: usize) {
    const M_ARENA_MAX: std::ffi::c_int = -8;
    unsafe extern "C" {
        // Sets a number inside the allocator, under its own lock.
        safe fn mallopt(parameter: std::ffi::c_int, value: std::ffi::c_int) -> std::ffi::c_int;
    }
    // A refusal leaves the default.
    mallopt(M_ARENA_MAX, workers.try_into().unwrap_or(std::ffi::c_int::MAX));
}

/// Other allocators have pools of another kind.
#[cfg(not(target_env = "gnu"))]
pub fn limit_pools(_workers: usize) {}

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

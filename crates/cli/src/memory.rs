//! What the daemon asks of the allocator: few pools, and that what sessions needed which have left the memory goes back
//! to the system. It frees nothing that is in use.

use std::time::Duration;

use tenure_engine::Engine;

/// How often it looks: sessions leave in waves, and one look serves a whole wave.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// From here on a piece is taken from the system and given back by itself.
#[cfg(target_env = "gnu")]
const LARGE_BYTES: std::ffi::c_int = 256 << 10;
/// What a pool keeps at its end for what comes next.
#[cfg(target_env = "gnu")]
const SPARE_BYTES: std::ffi::c_int = 1 << 20;

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

/// Every thread would get a pool of its own, up to eight for each processor, each with holes that the others cannot use:
/// one for each of those that compute is enough, since what is small and short-lived does not touch a pool at all. And
/// large pieces would come to lie in the pools after the first of them: they go back to the system when they are freed.
/// To be called before there are threads.
#[cfg(target_env = "gnu")]
pub fn set_up(workers: usize) {
    use std::ffi::c_int;
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_MMAP_THRESHOLD: c_int = -3;
    const M_ARENA_MAX: c_int = -8;
    unsafe extern "C" {
        // Sets a number inside the allocator, under its own lock.
        safe fn mallopt(parameter: c_int, value: c_int) -> c_int;
    }
    // A refusal leaves the default.
    mallopt(M_ARENA_MAX, workers.try_into().unwrap_or(c_int::MAX));
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    mallopt(M_TRIM_THRESHOLD, SPARE_BYTES);
}

/// Other allocators have pools of another kind.
#[cfg(not(target_env = "gnu"))]
pub fn set_up(_workers: usize) {}

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

//! The supervisor as a program of its own, for this crate's tests. The daemon is its own supervisor and does not use this.

fn main() -> std::process::ExitCode {
    tenure_tools::supervise()
}

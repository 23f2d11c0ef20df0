//! The supervisor and the drawer as a program of its own, for this crate's tests. The daemon is both itself and does not
//! use this.

fn main() -> std::process::ExitCode {
    if std::env::args_os().nth(1).is_some_and(|first| first == tenure_tools::DRAW_ARG) {
        return tenure_tools::draw();
    }
    tenure_tools::supervise()
}

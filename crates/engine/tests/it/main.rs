//! All tests of the crate through its public face, in one binary.

mod approvals;
mod budgets;
mod bundle;
mod cancel;
mod crash;
mod crash_tools;
mod deltas;
mod disk;
mod eviction;
mod failures;
mod keys;
mod many;
mod queue;
mod review;
mod secrets;
mod simulation;
mod steps;
mod subscriptions;
mod turn;
mod undo;
mod vendors;
mod verification;

/// A test file that nobody names would never run.
#[test]
fn every_file_here_is_a_module() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = include_str!("main.rs");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(name == "main" || main.contains(&format!("mod {name};")), "{} is not named in main.rs", path.display());
    }
}

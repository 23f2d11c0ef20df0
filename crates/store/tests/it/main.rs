//! All tests of the store that go through its door, in one binary.

mod contract;
mod cuts;
mod damage;
mod files;
mod fuzz;
mod golden;
mod keys;
mod power;
mod purge;
mod refusing_disk;
mod sample;
mod scale;
mod stage;
mod upkeep;

/// A test file that nobody named above would never run.
#[test]
fn every_test_file_is_named_here() {
    let main = include_str!("main.rs");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it");
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.trim_end_matches(".rs");
        assert!(module == "main" || main.contains(&format!("mod {module};")), "{name} is forgotten");
    }
}

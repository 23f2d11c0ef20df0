//! All tests of the crate through its public face, in one binary.

mod actions;
mod bad_scripts;
mod bodies;
mod catalog;
mod choice;
mod contract;
mod decoders;
mod demo;
mod faults;
mod fuzz;
mod names;
mod request;
mod schema_mode;
mod tokens;
mod usage;

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

//! The outline as its caller meets it: real folders, real files, a real cache.

mod bounds;
mod cache;
mod fixture;
mod fuzz;
mod golden;
mod hostile;
mod ranking;

#[test]
fn every_file_here_is_part_of_this_binary() {
    let own = include_str!("main.rs");
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        assert!(module == "main" || own.contains(&format!("\nmod {module};")), "{name} is not declared in main.rs");
    }
}

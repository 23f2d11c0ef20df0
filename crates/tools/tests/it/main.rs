//! The tools as their caller meets them: real files, real processes, the real supervisor.

mod apply_patch;
mod crash;
mod diagram;
mod edit_file;
mod fetch_url;
mod foreign;
mod fuzz;
mod git_status;
mod paths;
mod plugins;
mod processes;
mod read_file;
mod repo_map;
mod repo_tree;
mod restore;
mod rig;
mod search;
mod shell;
mod sweep;
mod verify;
mod write_file;

#[test]
fn every_file_here_is_part_of_this_binary() {
    let own = include_str!("main.rs");
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        assert!(module == "main" || own.contains(&format!("\nmod {module};")), "{name} is not declared in main.rs");
    }
}

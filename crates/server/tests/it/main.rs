//! The HTTP door as clients meet it: a real listener, the real engine, scripted models, real tools.

mod acceptance;
mod access;
mod attachments;
mod bad_input;
mod browser;
mod commands;
mod connections;
mod copies;
mod damage;
mod deltas;
mod description;
mod documented;
mod fuzz;
mod gaps;
mod imports;
mod limits;
mod lists;
mod logins;
mod models;
mod purge;
mod rig;
mod s1_api;
mod s1_data;
mod s1_events;
mod s1_loop;
mod sessions;
mod streams;
mod tls;
mod tokens;

#[test]
fn every_file_here_is_part_of_this_binary() {
    let own = include_str!("main.rs");
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        assert!(module == "main" || own.contains(&format!("\nmod {module};")), "{name} is not declared in main.rs");
    }
}

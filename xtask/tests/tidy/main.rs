//! The tidiness of the repository as a test: module docs, leftovers, names, crate arrows, and dependencies that are accounted for.

mod arrows;
mod tree;

use std::{collections::BTreeSet, path::Path};

use tree::{File, assert_none, files};

/// The needles are put together here, so that this file does not find itself.
fn needle(parts: [&str; 2]) -> String {
    parts.concat()
}

#[test]
fn rust_files_open_with_module_docs() {
    let bad = files().into_iter().filter(|file| file.is_rust() && !file.text.starts_with("//!"));
    assert_none("a file says first, in `//!`, what it is for", bad.map(|file| file.path));
}

#[test]
fn nothing_is_left_over() {
    let needles =
        [["to", "do!("], ["unimple", "mented!("], ["db", "g!("], ["FIX", "ME"], ["XX", "X"], ["#[ign", "ore"]];
    let needles = needles.map(needle);
    let lines = files().into_iter().filter(File::is_rust).flat_map(|file| file.lines_with(&needles));
    assert_none("finish it, or say in an issue what is open", lines);
}

#[test]
fn files_are_named_by_their_noun() {
    let bad = files().into_iter().map(|file| file.path).filter(|path| path.ends_with(".rs") && has_no_room(path));
    assert_none("a name such as `utils` says nothing; `name.rs` stands beside `name/`, not in it as mod.rs", bad);
}

fn has_no_room(path: &str) -> bool {
    path.split('/').any(|part| {
        let stem = part.strip_suffix(".rs").unwrap_or(part);
        matches!(stem, "mod" | "util" | "utils" | "helper" | "helpers" | "common" | "manager")
    })
}

#[test]
fn no_path_of_one_machine() {
    let needles = [["/wo", "rk/"], ["/ro", "ot/"], ["/ho", "me/"]].map(needle);
    let lines = files().into_iter().flat_map(|file| file.lines_with(&needles));
    assert_none("a path of one machine means nothing on another", lines);
}

#[test]
fn crates_point_only_where_they_may() {
    let mut bad = Vec::new();
    for file in files().into_iter().filter(|file| file.path.starts_with("crates/") && file.is_manifest()) {
        let name = Path::new(&file.path).parent().and_then(Path::file_name).unwrap().to_str().unwrap();
        match arrows::allowed(name) {
            None => bad.push(format!("{name}: a crate that nobody has given arrows yet")),
            Some(allowed) => {
                let ours = arrows::dependencies(&file.text).into_iter().filter(|one| one.section != "dev-dependencies");
                let ours = ours.filter_map(|one| one.name.strip_prefix("tenure-").map(str::to_owned));
                bad.extend(ours.filter(|to| !allowed.contains(&to.as_str())).map(|to| format!("{name} → {to}")));
            }
        }
    }
    assert_none("an arrow that ARCHITECTURE.md does not have", bad);
}

#[test]
fn every_dependency_is_accounted_for() {
    let all = files();
    let architecture = all.iter().find(|file| file.path == "ARCHITECTURE.md").expect("there is an ARCHITECTURE.md");
    let manifests = all.iter().filter(|file| file.is_manifest() && file.path != "Cargo.toml");
    let names: BTreeSet<String> =
        manifests.flat_map(|file| arrows::dependencies(&file.text)).map(|one| one.name).collect();
    let foreign = names.into_iter().filter(|name| !name.starts_with("tenure-"));
    let missing = foreign.filter(|name| !architecture.text.contains(&format!("`{name}`")));
    assert_none("a dependency needs a line in ARCHITECTURE.md that says what it is for", missing);
}

#[test]
fn decisions_are_numbered_without_gaps() {
    let paths = files().into_iter().map(|file| file.path);
    let mut names: Vec<String> =
        paths.filter_map(|path| path.strip_prefix("docs/decisions/").map(str::to_owned)).collect();
    names.sort();
    let bad = names.iter().enumerate().filter(|(index, name)| !is_decision(name, index + 1));
    assert_none("decisions are named NNNN-title.md, from 0001, without gaps", bad.map(|(_, name)| name.clone()));
}

fn is_decision(name: &str, number: usize) -> bool {
    let title = name.strip_prefix(&format!("{number:04}-")).and_then(|rest| rest.strip_suffix(".md"));
    title.is_some_and(|title| {
        !title.is_empty() && title.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    })
}

//! Which crate may use which, and what a manifest says it uses.

/// What each crate may have in its dependencies, or `None` for one that has no place yet. Tests may lean on any crate.
pub fn allowed(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "core" | "wire" | "sse" | "outline" | "fuzzkit" => Some(&[]),
        "store" => Some(&["core"]),
        "tools" => Some(&["core", "outline"]),
        "models" => Some(&["core", "sse"]),
        "engine" => Some(&["core", "store", "models", "tools"]),
        "server" => Some(&["engine", "core", "wire", "store", "models"]),
        "client" => Some(&["wire", "sse"]),
        "cli" => Some(&["core", "store", "models", "tools", "engine", "wire", "server", "client"]),
        "testkit" => Some(&["core", "store", "models", "tools", "engine", "wire", "server", "client"]),
        _ => None,
    }
}

#[derive(Debug, PartialEq)]
pub struct Dependency {
    /// `dependencies`, `dev-dependencies` or `build-dependencies`.
    pub section: &'static str,
    pub name: String,
}

/// The names in a manifest's dependency tables, those for one platform too. It knows just the TOML that manifests are written in.
pub fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut section = None;
    for line in manifest.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let (table, name) = table(header);
            section = if name.is_none() { table } else { None };
            if let (Some(section), Some(name)) = (table, name) {
                found.push(Dependency { section, name });
            }
        } else if let (Some(section), Some(name)) = (section, key(line)) {
            found.push(Dependency { section, name });
        }
    }
    found
}

/// The dependency table that a header opens, and the one crate it is about where it names one.
fn table(header: &str) -> (Option<&'static str>, Option<String>) {
    for section in ["dev-dependencies", "build-dependencies", "dependencies"] {
        if header == section || header.ends_with(&format!(".{section}")) && header.starts_with("target.") {
            return (Some(section), None);
        }
        if let Some(name) = header.strip_prefix(&format!("{section}.")) {
            return (Some(section), Some(name.to_owned()));
        }
    }
    (None, None)
}

/// The crate's name in `name = …` and `name.workspace = …`.
fn key(line: &str) -> Option<String> {
    let name = line.split(['=', '.', ' ']).next()?.trim_matches('"');
    (!name.is_empty() && !name.starts_with('#')).then(|| name.to_owned())
}

#[test]
fn manifests_are_read() {
    let manifest = "[package]\nname = \"x\"\n[dependencies]\n# why\na.workspace = true\nb = \"1\"\n\n\
                    [target.'cfg(unix)'.dependencies]\nc = { version = \"1\" }\n[dev-dependencies.d]\nversion = \"1\"\n\
                    [build-dependencies]\ne = \"1\"\n[lints]\nworkspace = true\n";
    let found: Vec<(&str, String)> = dependencies(manifest).into_iter().map(|one| (one.section, one.name)).collect();
    let expected = [
        ("dependencies", "a"),
        ("dependencies", "b"),
        ("dependencies", "c"),
        ("dev-dependencies", "d"),
        ("build-dependencies", "e"),
    ];
    assert_eq!(found, expected.map(|(section, name)| (section, name.to_owned())));
}

//! Which settings git is shown: those that say how files are compared and which branch follows which. All that names a
//! program is left out, known or not, because only what is listed here gets in.

use std::fmt::Write as _;

/// How files lie on the disk and how they are compared.
const OWN: &[&str] = &[
    "core.repositoryformatversion",
    "core.filemode",
    "core.ignorecase",
    "core.symlinks",
    "core.precomposeunicode",
    "core.autocrlf",
    "core.eol",
    "core.trustctime",
    "core.checkstat",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "extensions.objectformat",
    "extensions.refstorage",
];
/// What the user has set for all repositories.
const USERS: &[&str] = &["core.excludesfile", "core.autocrlf", "core.eol"];
/// By section and name: between them stands a branch or a remote. An address is not among them.
const NAMED: &[(&str, &str)] = &[("branch.", ".remote"), ("branch.", ".merge"), ("remote.", ".fetch")];

/// The settings as a file. Both are listed as `git config -z --list` does it; the repository's own come last and win.
pub(super) fn kept(users: &[u8], own: &[u8]) -> String {
    let mut file = String::new();
    for (key, value) in entries(users).filter(|(key, _)| USERS.contains(&key.as_str())) {
        add(&mut file, &key, &value);
    }
    for (key, value) in entries(own).filter(|(key, _)| is_own(key)) {
        add(&mut file, &key, &value);
    }
    // Even where a repository says otherwise: its work tree is the one that we name.
    file + "[core]\n\tbare = false\n"
}

fn is_own(key: &str) -> bool {
    OWN.contains(&key)
        || NAMED.iter().any(|(section, name)| {
            key.starts_with(section) && key.ends_with(name) && key.len() > section.len() + name.len()
        })
}

fn entries(listed: &[u8]) -> impl Iterator<Item = (String, String)> {
    listed.split(|byte| *byte == 0).filter_map(|entry| {
        let entry = std::str::from_utf8(entry).ok()?;
        // A key without a value means yes.
        let (key, value) = entry.split_once('\n').unwrap_or((entry, "true"));
        (!key.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    })
}

fn add(file: &mut String, key: &str, value: &str) {
    let (Some((section, _)), Some((_, name))) = (key.split_once('.'), key.rsplit_once('.')) else { return };
    let between = key.get(section.len() + 1..key.len().saturating_sub(name.len() + 1)).unwrap_or_default();
    let head = match between {
        "" => format!("[{section}]"),
        // It may hold anything but a line break.
        between if between.contains('\n') => return,
        between => format!("[{section} \"{}\"]", between.replace('\\', "\\\\").replace('"', "\\\"")),
    };
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\t', "\\t");
    let _ = writeln!(file, "{head}\n\t{name} = \"{value}\"");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_gets_in_and_nothing_breaks_out_of_its_place() {
        let users = b"core.excludesfile\n~/.ignore\0core.pager\nevil\0filter.lfs.clean\nevil\0";
        let own = b"core.filemode\ntrue\0core.fsmonitor\nevil\0core.bare\0branch.a\"]b.merge\nrefs/heads/x\"\n[core]\n\tpager = evil\0remote.o.fetch\n+refs/*:refs/*\0remote.o.url\next::evil\0branch.remote\nx\0core.worktree\n/\0";
        let expected = "[core]\n\texcludesfile = \"~/.ignore\"\n[core]\n\tfilemode = \"true\"\n[branch \"a\\\"]b\"]\n\tmerge = \"refs/heads/x\\\"\\n[core]\\n\\tpager = evil\"\n[remote \"o\"]\n\tfetch = \"+refs/*:refs/*\"\n[core]\n\tbare = false\n";
        assert_eq!(kept(users, own), expected);
    }
}

//! Finds the commands that verify a workspace. It never runs them, and says where they came from, so that those the
//! workspace itself names can be asked about first.

use std::{io::Read as _, path::Path};

use tenure_core::tool::{VerifyPlan, VerifySource};

use crate::workspace::Workspace;

/// A file that is read for this is not read further than this.
const READ_BYTES_MAX: u64 = 256 * 1024;
/// More commands than this are taken for a mistake in the file.
const COMMANDS_MAX: usize = 32;

/// The user's own commands, else those of AGENTS.md, else `make test` where the Makefile has such a target.
pub fn find_verify_plan(workspace: &Path, config: Option<&[String]>) -> Option<VerifyPlan> {
    let plan = |source, commands: Vec<String>| (!commands.is_empty()).then_some(VerifyPlan { source, commands });
    if let Some(found) = config.and_then(|commands| plan(VerifySource::Config, commands.to_vec())) {
        return Some(found);
    }
    let workspace = Workspace::open(workspace).ok()?;
    let agents = read(&workspace, "AGENTS.md").map(|text| commands_in(&text)).unwrap_or_default();
    plan(VerifySource::AgentsMd, agents).or_else(|| {
        // The order in which make itself looks.
        let makefile = ["GNUmakefile", "makefile", "Makefile"].iter().find_map(|name| read(&workspace, name))?;
        has_test_target(&makefile)
            .then(|| VerifyPlan { source: VerifySource::Makefile, commands: vec!["make test".into()] })
    })
}

fn read(workspace: &Workspace, name: &str) -> Option<String> {
    let file = workspace.inside(name).and_then(|path| workspace.open_file(&path)).ok()??;
    let mut bytes = vec![];
    file.take(READ_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The commands under headings about verification: lines of fenced blocks, or lines that are one `command` in backticks.
fn commands_in(markdown: &str) -> Vec<String> {
    let mut commands = vec![];
    let mut wanted_level = None;
    let mut fence: Option<&str> = None;
    for line in markdown.lines() {
        let trimmed = line.trim();
        match fence {
            Some(mark) if trimmed.starts_with(mark) && trimmed.trim_matches(['`', '~']).is_empty() => fence = None,
            Some(_) if wanted_level.is_some() => commands.extend(command_line(trimmed)),
            Some(_) => {}
            None if trimmed.starts_with("```") => fence = Some("```"),
            None if trimmed.starts_with("~~~") => fence = Some("~~~"),
            None => match heading(line) {
                Some((level, title)) => wanted_level = section(wanted_level, level, title),
                None if wanted_level.is_some() => commands.extend(backticked(trimmed)),
                None => {}
            },
        }
    }
    commands.truncate(COMMANDS_MAX);
    commands
}

/// Whether the section that begins here, or the one it belongs to, is about verification.
fn section(current: Option<usize>, level: usize, title: &str) -> Option<usize> {
    match current {
        Some(outer) if level > outer => Some(outer),
        _ => is_about_verification(title).then_some(level),
    }
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let level = line.bytes().take_while(|byte| *byte == b'#').count();
    let title = line[level..].strip_prefix([' ', '\t'])?;
    (1..=6).contains(&level).then_some((level, title))
}

fn is_about_verification(title: &str) -> bool {
    let words = title.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.into_iter().any(|word| matches!(word.as_str(), "verify" | "verification" | "verifying"))
}

fn command_line(line: &str) -> Option<String> {
    let command = line.strip_prefix("$ ").unwrap_or(line).trim();
    (!command.is_empty() && !command.starts_with('#')).then(|| command.to_owned())
}

/// `- `make check`` or the same without the list mark.
fn backticked(line: &str) -> Option<String> {
    let item = line.strip_prefix(['-', '*', '+']).map(str::trim_start).unwrap_or(line);
    let item = numbered(item).unwrap_or(item);
    let command = item.strip_prefix('`')?.strip_suffix('`')?;
    if command.contains('`') { None } else { command_line(command.trim()) }
}

fn numbered(item: &str) -> Option<&str> {
    let rest = item.trim_start_matches(|c: char| c.is_ascii_digit());
    (rest.len() < item.len()).then_some(rest)?.strip_prefix(['.', ')'])?.strip_prefix(' ').map(str::trim_start)
}

/// A rule whose targets include `test`; a mere `.PHONY: test` is none.
fn has_test_target(makefile: &str) -> bool {
    makefile.lines().any(|line| {
        if line.starts_with(['\t', ' ', '#']) {
            return false;
        }
        let Some((targets, rest)) = line.split_once(':') else { return false };
        // `test := x` sets a variable.
        !rest.starts_with('=')
            && !rest.starts_with(":=")
            && targets.split_ascii_whitespace().any(|target| target == "test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(markdown: &str, expected: &[&str]) {
        assert_eq!(commands_in(markdown), expected);
    }

    #[test]
    fn fenced_blocks_under_the_heading() {
        check(
            "# Project\n```\nnot this\n```\n## Verification\nRun:\n```sh\n$ make check\n# a comment\n\ncargo test\n```\n",
            &["make check", "cargo test"],
        );
        check("## How to VERIFY\n~~~\na\n~~~\n### details\n```\nb\n```\n## Other\n```\nc\n```\n", &["a", "b"]);
    }

    #[test]
    fn list_items_and_lines_of_one_backticked_command() {
        check(
            "# Verifying changes\n- `make lint`\n* `$ make test`\n1. `make e2e`\n`make doc`\nUse `x` and `y`.\n- `a` or `b`\n",
            &["make lint", "make test", "make e2e", "make doc"],
        );
    }

    #[test]
    fn other_headings_and_a_hash_in_a_block_do_not_count() {
        check("## Testing\n```\nmake test\n```\n", &[]);
        check("## Verify\n```\n## not a heading\nx\n```\n", &["x"]);
        check("## Unverified claims\n`rm -rf x`\n", &[]);
    }

    #[test]
    fn makefiles() {
        for (text, expected) in [
            ("test:\n\tcargo test\n", true),
            (".PHONY: test\n", false),
            (".PHONY: all test\ntest: build\n\techo\n", true),
            ("all test: x\n", true),
            ("test := 1\n", false),
            ("test ::= 1\n", false),
            ("test:: x\n", true),
            ("\ttest: x\n", false),
            ("tests:\n", false),
            ("# test:\n", false),
        ] {
            assert_eq!(has_test_target(text), expected, "{text}");
        }
    }

    #[test]
    fn the_users_commands_come_first_then_agents_md_then_make() {
        let folder = tempfile::tempdir().unwrap();
        let find = |config: Option<&[String]>| {
            find_verify_plan(folder.path(), config).map(|plan| (plan.source, plan.commands.join(";")))
        };
        assert_eq!(find(None), None);
        std::fs::write(folder.path().join("Makefile"), "test:\n\ttrue\n").unwrap();
        assert_eq!(find(None), Some((VerifySource::Makefile, "make test".into())));
        std::fs::write(folder.path().join("AGENTS.md"), "# Verify\n`./check`\n").unwrap();
        assert_eq!(find(None), Some((VerifySource::AgentsMd, "./check".into())));
        assert_eq!(find(Some(&[])), Some((VerifySource::AgentsMd, "./check".into())));
        assert_eq!(find(Some(&["mine".into()])), Some((VerifySource::Config, "mine".into())));
    }
}

//! What tools did to the workspace is what the log says: commands ran at most once and never without an intent, files hold what was last written.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
};

use serde_json::Value;

use super::{Fresh, text};
use crate::soak::{
    book::Book,
    script::{CALLS_FILE, VERIFIED_FILE},
    world::World,
};

pub fn check(world: &World, book: &Book, fresh: &Fresh) {
    let calls = calls(fresh);
    for (tool, file) in [("shell", CALLS_FILE), ("verify", VERIFIED_FILE)] {
        ran_as_recorded(world, book, &calls, tool, file);
    }
    written_as_recorded(world, book, &calls);
}

/// A call with an intent, in the order they were started.
struct Call<'f> {
    id: &'f str,
    name: &'f str,
    input: &'f Value,
    outcome: &'f str,
    ok: bool,
}

fn calls(fresh: &Fresh) -> Vec<Call<'_>> {
    let results: HashMap<&str, &Value> =
        fresh.of(&["tool_call_completed"]).map(|(_, data)| (text(&data["tool_call_id"]), data)).collect();
    let mut seen = BTreeSet::new();
    let started = fresh.of(&["tool_call_started"]).filter(|(_, data)| seen.insert(text(&data["tool_call_id"])));
    started
        .map(|(_, data)| {
            let id = text(&data["tool_call_id"]);
            let result = results.get(id).copied().unwrap_or(&Value::Null);
            let (outcome, ok) = (text(&result["outcome"]), result["ok"] == true);
            Call { id, name: text(&data["name"]), input: &data["input"], outcome, ok }
        })
        .collect()
}

/// Each command leaves its id before it does anything else.
fn ran_as_recorded(world: &World, book: &Book, calls: &[Call<'_>], tool: &str, file: &str) {
    let left = fs::read_to_string(book.workspace.join(file)).unwrap_or_default();
    let mut runs: BTreeMap<&str, usize> = BTreeMap::new();
    for id in left.lines() {
        *runs.entry(id).or_default() += 1;
    }
    for call in calls.iter().filter(|call| call.name == tool) {
        let times = runs.remove(call.id).unwrap_or(0);
        let fits = match call.outcome {
            "finished" => times == 1,
            "unknown" | "canceled" => times <= 1,
            _ => times == 0,
        };
        world.check(fits, || {
            format!("{}: {tool} {} with outcome '{}' ran {times} times", book.session, call.id, call.outcome)
        });
    }
    for (id, times) in runs {
        world.find(format!("{}: {tool} {id} ran {times} times without an intent in the log", book.session));
    }
}

/// The last finished write decides, unless a later one was cut: then either may be there.
fn written_as_recorded(world: &World, book: &Book, calls: &[Call<'_>]) {
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for call in calls {
        let Some((path, content)) = written(call) else { continue };
        let possible = expected.entry(path).or_default();
        match call.outcome {
            "finished" if call.ok => *possible = vec![content],
            "unknown" | "canceled" => possible.push(content),
            _ => {}
        }
    }
    for (path, possible) in expected.into_iter().filter(|(_, possible)| !possible.is_empty()) {
        let found = fs::read_to_string(book.workspace.join(&path)).unwrap_or_default();
        // With nothing finished before it, a write that was cut may also have left the file as it was at first.
        let sure = calls.iter().any(|call| {
            call.outcome == "finished" && call.ok && written(call).is_some_and(|(written, _)| written == path)
        });
        world.check(possible.contains(&found) || !sure, || {
            format!("{}: {path} holds {found:?}; the log says one of {possible:?}", book.session)
        });
    }
}

/// Which file a call writes, and what: the patches of the scripts replace the one line of one file.
fn written(call: &Call<'_>) -> Option<(String, String)> {
    match call.name {
        "write_file" => Some((text(&call.input["path"]).to_owned(), text(&call.input["content"]).to_owned())),
        "apply_patch" => {
            let line = text(&call.input["patch"]).lines().rev().find_map(|line| line.strip_prefix('+'))?;
            Some(("patched.txt".to_owned(), format!("{line}\n")))
        }
        _ => None,
    }
}

//! The built-in demo script fits the files of the demo repository, and its story comes out as told.

use std::{fs, path::Path, process::Command, time::Duration};

use serde_json::Value;
use tenure_core::context::ChatMessage;
use tenure_models::{
    ModelEvent,
    scripted::{
        ScriptedModel, parse,
        script::{Action, Pace, Step},
    },
};
use tokio::time::Instant;

use crate::request::{assistant, play, request, tool_result, user};

const SCRIPT: &str = include_str!("../../scripts/demo.json");
const GREET: &str = include_str!("../../../cli/demo-repo/greet.sh");
const TEST: &str = include_str!("../../../cli/demo-repo/test.sh");

/// All the demo's streaming together, so that crash, restart and commands have most of its 30 s.
const STREAMING_MAX: Duration = Duration::from_secs(8);

fn demo() -> ScriptedModel {
    ScriptedModel::new("demo", parse(SCRIPT).unwrap())
}

/// What the model is shown after each of its replies, as in a demo with its crash.
const NEWS: [&str; 6] = [
    GREET,
    "The outcome of this call is unknown.",
    "release 2030-01-01T00:00:00Z",
    "patched",
    "Verification after your changes failed.",
    "patched",
];

/// The calls of each reply, by name and arguments.
async fn story(news: &[&str]) -> Vec<Vec<(String, Value)>> {
    let demo = demo();
    let mut messages: Vec<ChatMessage> = vec![user("Publish, then greet by name.")];
    let mut replies = Vec::new();
    for step in 0..=news.len() {
        replies.push(calls(play(&demo, request(messages.clone())).await.into_iter().map(Result::unwrap)));
        messages.push(assistant(""));
        messages.extend(news.get(step).map(|text| tool_result(text)));
    }
    replies
}

fn calls(events: impl Iterator<Item = ModelEvent>) -> Vec<(String, Value)> {
    let mut calls: Vec<(String, String)> = Vec::new();
    for event in events {
        match event {
            ModelEvent::CallStarted { name, .. } => calls.push((name, String::new())),
            ModelEvent::CallArguments { index, text } => calls[index as usize].1.push_str(&text),
            _ => {}
        }
    }
    calls.into_iter().map(|(name, arguments)| (name, serde_json::from_str(&arguments).unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn the_story_runs_from_start_to_end_in_time() {
    let start = Instant::now();
    let names: Vec<Vec<String>> =
        story(&NEWS).await.into_iter().map(|calls| calls.into_iter().map(|(name, _)| name).collect()).collect();
    assert!(start.elapsed() < STREAMING_MAX, "streams for {:?}", start.elapsed());
    let expected: [&[&str]; 7] = [
        &["read_file", "read_file"],
        &["read_file", "shell", "write_file"],
        &["read_file"],
        &["apply_patch"],
        &[],
        &["apply_patch"],
        &[],
    ];
    assert_eq!(names, expected);
}

#[tokio::test(start_paused = true)]
async fn without_a_crash_the_same_calls_are_made() {
    let calm = [GREET, "All mirrors know.", "", "", "", ""];
    assert_eq!(story(&calm).await, story(&NEWS).await);
}

#[tokio::test(start_paused = true)]
async fn in_a_folder_of_somebodys_own_it_only_looks() {
    let elsewhere = ["there is no file greet.sh", "hello", "and now?", "there is no file greet.sh", "", ""];
    let calls: Vec<_> = story(&elsewhere).await.into_iter().take(3).flatten().map(|(name, _)| name).collect();
    assert_eq!(calls, ["read_file", "read_file"]);
}

#[test]
fn every_step_ends_and_every_choice_can_be_made() {
    for step in &demo().script().steps {
        match step {
            Step::Do(actions) => assert!(actions.iter().all(plays)),
            Step::Cases(cases) => {
                assert!(cases.iter().all(|case| case.actions.iter().all(plays)));
                assert_eq!(cases.last().unwrap().seen, None, "something is always said");
            }
            Step::Attempts(_) => panic!("the demo never fails on purpose"),
        }
    }
}

fn plays(action: &Action) -> bool {
    let paced = |pace: &Pace| matches!(pace, Pace::Chunks { .. });
    match action {
        Action::Text { pace, .. } | Action::Thinking { pace, .. } => paced(pace),
        other => !other.is_last(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_patch_breaks_the_tests_and_the_second_mends_them() {
    let replies = story(&NEWS).await;
    let patches = replies.iter().flatten().filter(|(name, _)| name == "apply_patch");
    let patches: Vec<&str> = patches.map(|(_, input)| input["patch"].as_str().unwrap()).collect();
    let [broken, mended] = patches[..] else { panic!("two patches") };

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("test.sh"), TEST).unwrap();
    assert_eq!(complaints(folder.path(), GREET), "FAIL  greet.sh Ada: wanted 'Hello, Ada!', got 'Hello, world!'");
    let greet = patched(GREET, broken);
    assert_eq!(complaints(folder.path(), &greet), "FAIL  greet.sh: wanted 'Hello, world!', got 'Hello, !'");
    let greet = patched(&greet, mended);
    assert_eq!(complaints(folder.path(), &greet), "");
}

fn patched(text: &str, patch: &str) -> String {
    diffy::apply(text, &diffy::Patch::from_str(patch).unwrap()).unwrap()
}

/// The complaints of the demo repository's tests; none when they pass.
fn complaints(folder: &Path, greet: &str) -> String {
    fs::write(folder.join("greet.sh"), greet).unwrap();
    let output = Command::new("sh").arg("test.sh").current_dir(folder).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = printed.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert_eq!(output.status.success(), lines.is_empty());
    lines.join("\n")
}

//! SIGKILL at instants that chance picks, again and again in one turn. The seed is printed; a failed one is kept in the list.

use std::{collections::HashSet, fs, time::Duration};

use serde_json::{Value, json};
use tenure_wire::Policy;

use crate::{
    reader::Reader,
    rig::{Daemon, Folder, PATIENCE},
};

/// Kills in one turn.
const KILLS: u32 = 6;

fn step(number: usize) -> Value {
    let effect = format!("echo effect-{number} >> effects; sleep 0.05");
    json!({ "do": [
        { "text": format!("This is step {number}, and it says so at some length."), "chunk": 4, "pause_ms": 2 },
        { "call": { "name": "read_file", "input": { "path": "note" } } },
        { "call": { "name": "shell", "input": { "command": effect } } },
        { "call": { "name": "write_file", "input": { "path": format!("file-{number}"), "content": "whole\n" } } },
    ] })
}

fn script() -> Value {
    let mut steps: Vec<Value> = (1..=8).map(step).collect();
    steps.push(json!({ "do": [{ "text": "All steps are done.", "chunk": 3, "pause_ms": 2 }] }));
    json!({ "steps": steps, "after": "stop" })
}

/// A small generator: the same seed gives the same waits.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

async fn survive(seed: u64) {
    println!("seed {seed}");
    let mut chance = Chance(seed);
    let folder = Folder::new();
    fs::write(folder.workspace().join("note"), "a note\n").unwrap();
    let model = folder.script(&script());
    let policy: Policy = serde_json::from_value(json!({
        "approval": { "require_for_kinds": [] }, "verify": { "auto_verify": false }, "recovery": { "resume": "ask" }
    }))
    .unwrap();
    let mut daemon = Daemon::start(folder.data()).await;
    let session = daemon.session_with(&folder.workspace(), &model, policy).await;
    let reader = Reader::start(&daemon, &session);
    let turn = daemon.send(&session, "go").await;
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(chance.below(250))).await;
        daemon.restart().await;
        resume(&daemon, &session, &turn).await;
    }
    reader.wait_kind("turn_completed").await;
    reader.assert_whole(&daemon, &session).await;
    check_effects(&folder, &reader);
}

/// Goes on with the turn if a kill cut it.
async fn resume(daemon: &Daemon, session: &str, turn: &str) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        if daemon.client().ready().await.is_ok_and(|ready| ready.status == "ready") {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "the daemon was never ready: {}", daemon.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let record = daemon.client().turn(session, turn, Duration::ZERO).await.unwrap();
    if record.status == "interrupted" {
        daemon.client().resume(session, turn).await.unwrap();
    }
}

/// No effect happened twice, and none is missing that was told as done.
fn check_effects(folder: &Folder, reader: &Reader) {
    let effects = fs::read_to_string(folder.workspace().join("effects")).unwrap_or_default();
    let lines: Vec<&str> = effects.lines().collect();
    let different: HashSet<&str> = lines.iter().copied().collect();
    assert_eq!(different.len(), lines.len(), "an effect happened twice: {lines:?}");
    for done in reader.of_kind("tool_call_completed").iter().filter(|done| *done.data("outcome") == "finished") {
        assert_eq!(*done.data("ok"), true, "{done:?}");
    }
    let started = reader.of_kind("tool_call_started");
    for call in started.iter().filter(|call| *call.data("name") == "shell") {
        assert_eq!(*call.data("run"), 1, "a command is started once");
        let outcome = reader
            .of_kind("tool_call_completed")
            .into_iter()
            .find(|done| done.data("tool_call_id") == call.data("tool_call_id"));
        let effect = call.data("input")["command"].as_str().unwrap().split_whitespace().nth(1).unwrap().to_owned();
        if *outcome.expect("every call has its result").data("outcome") == "finished" {
            assert!(different.contains(effect.as_str()), "{effect} was told as done and is not there");
        }
    }
    for number in 1..=8 {
        let path = folder.workspace().join(format!("file-{number}"));
        assert_eq!(fs::read_to_string(path).unwrap(), "whole\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_kept_seeds() {
    for seed in [1, 2, 3] {
        survive(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_new_seed() {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    survive(u64::try_from(seed % u128::from(u64::MAX)).unwrap()).await;
}

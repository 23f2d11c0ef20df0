//! What a turn costs must not grow with what came before it. Counted in bytes read and written by the daemon, not in time.

use std::fs;

use serde_json::json;
use tenure_wire::Policy;

use crate::rig::{Daemon, Folder, PATIENCE};

const TURNS: usize = 200;
/// Turns that are looked at together, so that a snapshot now and then does not tip the scales.
const SPAN: usize = 40;

/// Bytes that the daemon has read and written so far, sockets included.
fn moved(daemon: &Daemon) -> u64 {
    let io = fs::read_to_string(format!("/proc/{}/io", daemon.pid())).unwrap();
    let field = |name: &str| -> u64 {
        let line = io.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().parse().unwrap()
    };
    field("rchar:") + field("wchar:")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_turn_moves_no_more_bytes_than_an_early_one() {
    let folder = Folder::new();
    let model = folder.script(&json!({ "steps": [{ "do": [{ "text": "the same each time" }] }], "after": "repeat" }));
    let daemon = Daemon::start_with(folder.data(), &["--durability", "process"]).await;
    let session = daemon.session_with(&folder.workspace(), &model, Policy::default()).await;
    let mut marks = vec![moved(&daemon)];
    for _ in 0..TURNS {
        let turn = daemon.send(&session, "again").await;
        let record = daemon.client().turn(&session, &turn, PATIENCE).await.unwrap();
        assert_eq!(record.status, "completed");
        marks.push(moved(&daemon));
    }
    let early = marks[SPAN] - marks[0];
    let late = marks[TURNS] - marks[TURNS - SPAN];
    assert!(late <= early + early / 4, "{SPAN} turns moved {early} bytes at first and {late} in the end");
}

//! The memory of a daemon that has nothing to do: fresh, and after a hundred turns.

use anyhow::Result;

use super::{
    memory::{Memory, mb},
    report::{Bound, Report, Row},
    stand::{Durability, Stand},
};

const TURNS: usize = 100;
/// The numbers to reach, in megabytes.
const FRESH_MB: f64 = 15.0;
const AFTER_MB: f64 = 25.0;

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let served = stand.start("memory", Durability::Process)?;
    let mut client = served.client()?;
    client.ask("GET", "/v1/sessions", None)?;
    let fresh = Memory::of(served.daemon.pid())?;
    add(report, "memory_idle", "memory idle (RSS)", fresh, FRESH_MB);
    let text = "A sentence as a model might say it, of a few words. ".repeat(8);
    let model = stand.speaker("memory-model", &text, 20, 0)?;
    let session = client.create(&stand.session_body(&model))?;
    let mut follow = client.follow(&session)?;
    for _ in 0..TURNS {
        client.turn(&mut follow, &session, "And then?")?;
    }
    let after = Memory::of(served.daemon.pid())?;
    add(report, "memory_100_turns", "memory after 100 turns (RSS)", after, AFTER_MB);
    served.stop()
}

fn add(report: &mut Report, key: &'static str, what: &str, memory: Memory, limit_mb: f64) {
    report.add(Row {
        key,
        what: what.into(),
        value: mb(memory.rss),
        unit: "MB",
        bound: Some(Bound::below(limit_mb)),
        beside: memory.beside(),
    });
}

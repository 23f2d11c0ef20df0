//! A turn of fifty tool calls, each with a process of its own.

use std::{path::Path, time::Duration};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{
    raw::{self, Appender},
    report::{Bound, Report, Row},
    stand::{Durability, Served, Stand},
    times::{Times, shown},
};

pub const CALLS: usize = 50;
/// The number to reach per call, in milliseconds, beside its syncs.
const CALL_MS: f64 = 4.0;
const SYNCS: f64 = 2.0;
const PROGRAM: &str = "/bin/true";

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let bare = model(stand, "tools-model", PROGRAM)?;
    // The comment makes it a line for a shell.
    let shelled = model(stand, "shell-model", &format!("{PROGRAM} #"))?;
    let (mut spawns, mut shells, mut syncs) = (Times::default(), Times::default(), Times::default());
    let mut each = [
        (Durability::Power, &bare, Times::default()),
        (Durability::Process, &bare, Times::default()),
        (Durability::Process, &shelled, Times::default()),
    ];
    let mut appender = Appender::new(&stand.path("tools-raw"))?;
    let power = stand.start("tools-power", Durability::Power)?;
    let process = stand.start("tools-process", Durability::Process)?;
    for _ in 0..stand.rounds(8, 3) {
        for (durability, model, times) in &mut each {
            let served = if *durability == Durability::Power { &power } else { &process };
            times.add(one_turn(stand, served, model)?);
        }
        for _ in 0..10 {
            spawns.add(raw::spawn(Path::new(PROGRAM), &[])?);
            shells.add(raw::spawn(Path::new("bash"), &["-c", PROGRAM])?);
            syncs.add(appender.append()?);
        }
    }
    let (spawn, shell, sync) = (spawns.median(), shells.median(), syncs.median());
    report.add(Row {
        key: "raw_spawn",
        what: "raw: start and end of `true`".into(),
        value: spawn,
        unit: "ms",
        bound: None,
        beside: format!("the same through `bash -c`: {} ms", shown(shell)),
    });
    let [(_, _, in_power), (_, _, in_process), (_, _, with_shell)] = each;
    let rows = [
        ("tool_power", "durability power", in_power, Some(power_bound(sync))),
        ("tool_process", "durability process", in_process, Some(process_bound())),
        ("tool_shell", "durability process, a line that needs the shell", with_shell, None),
    ];
    for (key, what, times, bound) in rows {
        report.add(Row {
            key,
            what: format!("tool call in a 50-call turn, {what}"),
            value: times.median(),
            unit: "ms",
            bound,
            beside: format!("{}; raw: `true` {}, through bash {}", times.spread(), shown(spawn), shown(shell)),
        });
    }
    power.stop()?;
    process.stop()
}

pub fn power_bound(sync_ms: f64) -> Bound {
    Bound::below_with(CALL_MS + SYNCS * sync_ms, &format!("4 + 2 × {} raw sync", shown(sync_ms)))
}

pub fn process_bound() -> Bound {
    Bound::below(CALL_MS)
}

/// What each call took in a turn of a new session.
pub fn one_turn(stand: &Stand, served: &Served, model: &str) -> Result<Duration> {
    let mut client = served.client()?;
    let session = client.create(&stand.session_body(model))?;
    let mut follow = client.follow(&session)?;
    let took = client.turn(&mut follow, &session, "Work.")?.done;
    let shown = client.ask("GET", &format!("/v1/sessions/{session}"), None)?;
    ensure!(shown["spent"]["tool_calls"] == CALLS, "not all calls were made: {}", shown["spent"]);
    Ok(took / u32::try_from(CALLS)?)
}

/// A model that asks for the same command again and again.
fn model(stand: &Stand, name: &str, command: &str) -> Result<String> {
    let call = json!({ "do": [{ "call": { "name": "shell", "input": { "command": command } } }] });
    let mut steps: Vec<Value> = vec![call; CALLS];
    steps.push(json!({ "do": [{ "text": "Done." }] }));
    stand.model(name, &Value::Array(steps))
}

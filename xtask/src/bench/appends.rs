//! Synced appends per second with 64 sessions at once: through the whole daemon, through the store alone, and the bare disk.

use std::{fs, process::Command, sync::Barrier, thread, time::Instant};

use anyhow::{Context, Result, ensure};

use super::{
    raw,
    report::{Bound, Report, Row},
    stand::{Durability, Served, Stand},
    times::shown,
};

const SESSIONS: usize = 64;
/// Messages that wait for a turn are limited to 256 a session; a session serves one round.
const EACH: usize = 60;
const TEXT: &str = "A message of a usual length, which starts no turn: only its event is written and synced.";

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let served = stand.start("appends", Durability::Power)?;
    let (mut daemon, mut store, mut disk) = (vec![], vec![], vec![]);
    let raw_folder = stand.path("appends-raw");
    fs::create_dir(&raw_folder)?;
    for _ in 0..stand.rounds(5, 2) {
        disk.push(raw::appends_per_second(&raw_folder, SESSIONS, EACH)?);
        store.push(by_store(stand)?);
        daemon.push(by_daemon(stand, &served)?);
    }
    served.stop()?;
    let (disk, store, daemon) = (middle(disk), middle(store), middle(daemon));
    report.add(Row {
        key: "raw_appends",
        what: "raw: 64 threads, a file and an fdatasync each".into(),
        value: disk,
        unit: "a second",
        bound: None,
        beside: "appends of 700 bytes".into(),
    });
    let half = Bound::above_with(disk / 2.0, &format!("half of {}", shown(disk)));
    report.add(Row {
        key: "appends_store",
        what: "synced appends, 64 sessions, the store alone in one process".into(),
        value: store,
        unit: "a second",
        bound: Some(half.clone()),
        beside: format!("{:.2} of raw", store / disk),
    });
    report.add(Row {
        key: "appends_http",
        what: "synced appends, 64 sessions, 64 connections over HTTP".into(),
        value: daemon,
        unit: "a second",
        bound: Some(half),
        beside: format!("{:.2} of raw; the clients share the processors with the daemon", daemon / disk),
    });
    Ok(())
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn by_daemon(stand: &Stand, served: &Served) -> Result<f64> {
    let body = stand.session_body("scripted");
    let begin = Barrier::new(SESSIONS + 1);
    let took = thread::scope(|scope| {
        let work = || -> Result<()> {
            let ready = served.client().and_then(|mut client| client.create(&body).map(|id| (client, id)));
            begin.wait();
            let (mut client, session) = ready?;
            (0..EACH).try_for_each(|_| client.add(&session, TEXT))
        };
        let running: Vec<_> = (0..SESSIONS).map(|_| scope.spawn(work)).collect();
        begin.wait();
        let start = Instant::now();
        running.into_iter().try_for_each(|thread| thread.join().ok().context("a client has panicked")?)?;
        Ok::<_, anyhow::Error>(start.elapsed())
    })?;
    Ok((SESSIONS * EACH) as f64 / took.as_secs_f64())
}

/// The example `appends` of the store prints its rate.
fn by_store(stand: &Stand) -> Result<f64> {
    let folder = stand.path("appends-store");
    let mut command = Command::new(&stand.appends);
    let output = command.arg(&folder).args([SESSIONS.to_string(), EACH.to_string()]).output()?;
    ensure!(output.status.success(), "the store's example failed: {}", String::from_utf8_lossy(&output.stderr));
    fs::remove_dir_all(&folder)?;
    String::from_utf8(output.stdout)?.trim().parse().context("the store's example printed no number")
}

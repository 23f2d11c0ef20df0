//! Many sessions: what one more costs to make, what ten thousand idle ones cost in memory, and a start with all of them on disk.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{
    memory::{Memory, mb},
    raw,
    report::{Bound, Report, Row},
    stand::{Client, Durability, Served, Stand},
    start::{LAUNCH_MS, launch},
    times::{Times, shown},
};
use crate::daemon::PATIENCE;

/// The numbers to reach: milliseconds beside the syncs, kilobytes.
const CREATE_MS: f64 = 1.0;
const SESSION_KB: f64 = 5.0;
const CONNECTIONS: usize = 8;
/// Sessions stay in memory for this long here, so that all are warm when the last is made, and cold soon after.
const EVICT_MS: u64 = 15_000;
/// The daemon gives memory back a while after sessions have left it.
const GIVEN_BACK: Duration = Duration::from_secs(12);
const PAGE: usize = 200;

/// One create after another, each beside a raw one.
pub fn measure_create(stand: &Stand, report: &mut Report) -> Result<()> {
    let served = stand.start("create", Durability::Power)?;
    let mut client = served.client()?;
    let body = stand.session_body("scripted");
    let folder = stand.path("create-raw");
    fs::create_dir(&folder)?;
    let (mut made, mut raw) = (Times::default(), Times::default());
    client.create(&body)?;
    for number in 0..stand.rounds(100, 30) {
        let start = Instant::now();
        client.create(&body)?;
        made.add(start.elapsed());
        raw.add(raw::create_synced(&folder, number)?);
    }
    report.add(Row {
        key: "create",
        what: "create a session".into(),
        value: made.median(),
        unit: "ms",
        bound: Some(Bound::below_with(
            CREATE_MS + raw.median(),
            &format!("1 + {} raw: file, folder, parent synced", shown(raw.median())),
        )),
        beside: format!("{}; raw {}", made.spread(), raw.spread()),
    });
    served.stop()
}

pub fn measure_many(stand: &Stand, report: &mut Report) -> Result<()> {
    let count = stand.rounds(10_000, 1_000);
    let setup = stand.setup("sessions", Durability::Process);
    fs::create_dir_all(&setup.data)?;
    fs::write(setup.data.join("config.toml"), format!("idle_evict_ms = {EVICT_MS}\n"))?;
    let served = Served::start(setup.clone())?;
    let pid = served.daemon.pid();
    served.client()?.ask("GET", "/v1/sessions", None)?;
    let before = Memory::of(pid)?;
    let took = make(stand, &served, count)?;
    let warm = Memory::of(pid)?;
    wait_until_cold(&served)?;
    thread::sleep(GIVEN_BACK);
    let cold = Memory::of(pid)?;
    served.stop()?;

    let mut launches = Times::default();
    let mut lists = Times::default();
    for _ in 0..stand.rounds(15, 5) {
        let times = launch(&setup)?;
        launches.add(times.first_answer);
        lists.add(times.first_list);
    }
    report.add(Row {
        key: "launch_many",
        what: format!("launch to first answer, {count} sessions on disk"),
        value: launches.median(),
        unit: "ms",
        bound: Some(Bound::below(LAUNCH_MS)),
        beside: format!("{}; first page of the list after {} ms", launches.spread(), shown(lists.median())),
    });

    let listed = listed(&setup, count)?;
    let per = |memory: Memory, base: Memory| memory.rss.saturating_sub(base.rss) as f64 / count as f64 / 1000.0;
    report.add(Row {
        key: "session_kb",
        what: format!("memory per idle session, {count} made and put out of memory again"),
        value: per(cold, before),
        unit: "KB",
        bound: Some(Bound::below(SESSION_KB)),
        beside: format!(
            "RSS {:.1} → {:.1} MB, {}; after a restart, all listed: {} KB each",
            mb(before.rss),
            mb(cold.rss),
            cold.beside(),
            shown(per(listed.1, listed.0))
        ),
    });
    report.add(Row {
        key: "session_warm_kb",
        what: format!("memory per session still warm, {count} just made"),
        value: per(warm, before),
        unit: "KB",
        bound: None,
        beside: format!(
            "RSS {:.1} MB; made over {CONNECTIONS} connections without syncs at {:.0} a second",
            mb(warm.rss),
            count as f64 / took.as_secs_f64()
        ),
    });
    fs::remove_dir_all(&setup.data)?;
    Ok(())
}

/// Makes that many sessions over a few connections.
fn make(stand: &Stand, served: &Served, count: usize) -> Result<Duration> {
    let body = stand.session_body("scripted");
    let start = Instant::now();
    thread::scope(|scope| {
        let work = || -> Result<()> {
            let mut client = served.client()?;
            (0..count / CONNECTIONS).try_for_each(|_| client.create(&body).map(drop))
        };
        let running: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(work)).collect();
        running.into_iter().try_for_each(|thread| thread.join().ok().context("a client has panicked")?)
    })?;
    Ok(start.elapsed())
}

/// A session that is put out of memory takes its mark away.
fn wait_until_cold(served: &Served) -> Result<()> {
    let deadline = Instant::now() + Duration::from_millis(EVICT_MS) + PATIENCE;
    while fs::read_dir(served.setup.data.join("open"))?.next().is_some() {
        ensure!(Instant::now() < deadline, "sessions stay in memory");
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The memory of a fresh daemon before and after all its sessions were listed.
fn listed(setup: &crate::daemon::Setup, count: usize) -> Result<(Memory, Memory)> {
    let served = Served::start(setup.clone())?;
    let mut client = served.client()?;
    let before = Memory::of(served.daemon.pid())?;
    ensure!(list_all(&mut client)? == count / CONNECTIONS * CONNECTIONS, "sessions are missing in the list");
    let after = Memory::of(served.daemon.pid())?;
    served.stop()?;
    Ok((before, after))
}

fn list_all(client: &mut Client) -> Result<usize> {
    let mut path = format!("/v1/sessions?limit={PAGE}");
    let mut found = 0;
    loop {
        let page = client.ask("GET", &path, None)?;
        found += page["sessions"].as_array().map_or(0, Vec::len);
        match &page["next"] {
            Value::String(next) => path = format!("/v1/sessions?limit={PAGE}&cursor={next}"),
            _ => return Ok(found),
        }
    }
}

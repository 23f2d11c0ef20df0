//! A session whose log has a gigabyte: it must cost a start nothing, and be opened, read and followed in bounded memory.

use std::{fs, io::Read as _, time::Instant};

use anyhow::{Context, Result, ensure};

use super::{
    memory::{self, Memory, mb},
    report::{Bound, Report, Row},
    stand::{Durability, Served, Stand},
    start::{LAUNCH_MS, launch},
    times::{Times, shown},
};
use crate::http::Connection;

const LOG_BYTES: u64 = 1_000_000_000;
/// Just below the largest body that the daemon takes.
const MESSAGE_BYTES: usize = 1_000_000;
/// Messages that one turn takes in.
const BATCH: usize = 200;
/// Reading a whole log may not take more memory than this above the idle daemon, in megabytes.
const PEAK_MB: f64 = 50.0;

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let setup = stand.setup("biglog", Durability::Process);
    let session = build(stand, &Served::start(setup.clone())?)?;
    let bytes = fs::metadata(setup.data.join("sessions").join(&session).join("events.ndjson"))?.len();
    ensure!(bytes > LOG_BYTES, "the log has only {bytes} bytes");

    let launches = (0..5).map(|_| launch(&setup).map(|times| times.first_answer)).collect::<Result<Times>>()?;
    report.add(Row {
        key: "launch_big",
        what: "launch to first answer, a log of 1 GB on disk".into(),
        value: launches.median(),
        unit: "ms",
        bound: Some(Bound::below(LAUNCH_MS)),
        beside: launches.spread(),
    });

    let served = Served::start(setup.clone())?;
    let pid = served.daemon.pid();
    let idle = Memory::of(pid)?;
    let mut client = served.client()?;
    let start = Instant::now();
    let seq = client.seq(&session)?;
    let opened = start.elapsed();
    let (first_page, tail) = (first_event(&served, &session, 0)?, first_event(&served, &session, seq - 1)?);
    let mut follow = client.follow(&session)?;
    let start = Instant::now();
    client.add(&session, "One more.")?;
    ensure!(follow.next()?.context("the stream ended")?.kind == "message_added", "not what was added");
    let told = start.elapsed();
    drop(follow);
    report.add(Row {
        key: "big_open",
        what: "1 GB log: show the cold session".into(),
        value: opened.as_secs_f64() * 1000.0,
        unit: "ms",
        bound: None,
        beside: format!(
            "first event {} ms, last event {} ms, an append told to a follower {} ms; peak {:.1} MB",
            shown(first_page),
            shown(tail),
            shown(told.as_secs_f64() * 1000.0),
            mb(memory::peak(pid)?)
        ),
    });

    memory::forget_peak(pid)?;
    let start = Instant::now();
    let read = read_all(&served, &session)?;
    let took = start.elapsed();
    let grown = memory::peak(pid)?.saturating_sub(idle.rss);
    report.add(Row {
        key: "big_peak_mb",
        what: "1 GB log: memory that reading all of it adds at its peak".into(),
        value: mb(grown),
        unit: "MB",
        bound: Some(Bound::below(PEAK_MB)),
        beside: format!("{:.0} MB a second; idle {:.1} MB", mb(read) / took.as_secs_f64(), mb(idle.rss)),
    });
    served.stop()?;
    fs::remove_dir_all(&setup.data)?;
    Ok(())
}

/// Through the API: messages that wait, and now and then a turn that takes them in.
fn build(stand: &Stand, served: &Served) -> Result<String> {
    let model = stand.speaker("biglog-model", "Noted.", 6, 0)?;
    let mut client = served.client()?;
    let session = client.create(&stand.session_body(&model))?;
    let mut follow = client.follow(&session)?;
    let text = "All that somebody had to say about it, at length. ".repeat(MESSAGE_BYTES / 50 - 10);
    let wanted = usize::try_from(LOG_BYTES)? / text.len() + 1;
    for number in 1..=wanted {
        client.add(&session, &text)?;
        if number % BATCH == 0 || number == wanted {
            eprintln!("  1 GB log: {number} of {wanted} messages");
            client.turn(&mut follow, &session, "And?")?;
        }
    }
    Ok(session)
}

/// How long the first event after a cursor takes to come, in milliseconds.
fn first_event(served: &Served, session: &str, after: u64) -> Result<f64> {
    let start = Instant::now();
    let path = format!("/v1/sessions/{session}/events?follow=false&after={after}");
    let mut follow = Connection::open(&served.target)?.follow(&path, None)?;
    follow.next()?.context("the log has no events")?;
    Ok(start.elapsed().as_secs_f64() * 1000.0)
}

/// Reads the whole stream as fast as it comes; gives its bytes.
fn read_all(served: &Served, session: &str) -> Result<u64> {
    let path = format!("/v1/sessions/{session}/events?follow=false");
    let follow = Connection::open(&served.target)?.follow(&path, None)?;
    let mut socket = follow.socket()?;
    let (mut chunk, mut all, mut last) = (vec![0; 1 << 20], 0, Vec::new());
    // The end of a body in chunks is a chunk of none.
    while !last.ends_with(b"\r\n0\r\n\r\n") {
        let count = socket.read(&mut chunk)?;
        ensure!(count > 0, "the stream was cut after {all} bytes");
        all += count as u64;
        last.extend_from_slice(&chunk[count.saturating_sub(16)..count]);
        last.drain(..last.len().saturating_sub(16));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_fits_a_body() {
        let body = json!({ "parts": [{ "type": "text", "text": "x".repeat(MESSAGE_BYTES) }] }).to_string();
        assert!(body.len() < 1024 * 1024);
    }
}

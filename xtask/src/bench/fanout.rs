//! A thousand subscribers of one session: how soon all have it, and what those cost who never read.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{
    memory::{Memory, mb},
    report::{Bound, Report, Row},
    stand::{Client, Durability, Served, Stand},
    times::{Times, shown},
};
use crate::daemon::PATIENCE;

const SUBSCRIBERS: usize = 1000;
const DELTAS: usize = 100;
const END: &[u8] = b"event: turn_completed";
/// Those who never read, and what they are sent: more than the system's own buffers take, so that they are really stuck.
const STUCK: usize = 100;
const STUCK_TURNS: usize = 8;
const LONG_TEXT_BYTES: usize = 500_000;
const LONG_CHUNK: usize = 4096;
/// What one that is stuck may add, in kilobytes, beside the one event that it is in the middle of, however long the stream is.
const STUCK_KB: f64 = 250.0;

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let model = stand.speaker("fanout-model", &"word ".repeat(DELTAS), 5, 1)?;
    let served = stand.start("fanout", Durability::Power)?;
    let mut client = served.client()?;
    let session = client.create(&stand.session_body(&model))?;
    let mut follow = client.follow(&session)?;
    let mut alone = Times::default();
    for _ in 0..stand.rounds(8, 4) {
        alone.add(client.turn(&mut follow, &session, "Speak.")?.done);
    }
    all_reading(stand, report, &served, &mut client, &session, alone.median())?;
    drop(follow);
    none_reading(stand, report, &served)?;
    served.stop()
}

fn all_reading(
    stand: &Stand,
    report: &mut Report,
    served: &Served,
    client: &mut Client,
    session: &str,
    alone: f64,
) -> Result<()> {
    let before = Memory::of(served.daemon.pid())?;
    let mut crowd = Crowd::gather(served, client, session, SUBSCRIBERS)?;
    let (mut whole, mut bytes) = (Times::default(), 0);
    for _ in 0..stand.rounds(5, 2) {
        let start = Instant::now();
        let body = r#"{"parts":[{"type":"text","text":"Speak."}]}"#;
        client.connection.begin("POST", &format!("/v1/sessions/{session}/messages"), body)?;
        bytes = crowd.read_turn()?;
        whole.add(start.elapsed());
        ensure!(client.connection.answer()?.is_success(), "the message was refused");
    }
    let after = Memory::of(served.daemon.pid())?;
    report.add(Row {
        key: "fanout",
        what: format!("{DELTAS} deltas to {SUBSCRIBERS} subscribers: the last one has the turn's end"),
        value: whole.median(),
        unit: "ms",
        bound: None,
        beside: format!(
            "{}; one subscriber {} ms; {:.1} MB sent; RSS + {:.1} MB",
            whole.spread(),
            shown(alone),
            mb(bytes),
            mb(after.rss.saturating_sub(before.rss))
        ),
    });
    Ok(())
}

/// A session that says much, and a crowd that takes nothing of it: neither the daemon's memory nor a reader may suffer.
fn none_reading(stand: &Stand, report: &mut Report, served: &Served) -> Result<()> {
    let model = stand.speaker("stuck-model", &"words ".repeat(LONG_TEXT_BYTES / 6), LONG_CHUNK, 0)?;
    let mut client = served.client()?;
    let session = client.create(&stand.session_body(&model))?;
    let mut follow = client.follow(&session)?;
    let (mut alone, mut beside) = (Times::default(), Times::default());
    for _ in 0..STUCK_TURNS {
        alone.add(client.turn(&mut follow, &session, "Speak.")?.done);
    }
    let before = Memory::of(served.daemon.pid())?;
    let crowd = Crowd::gather(served, &mut client, &session, STUCK)?;
    // Until the system's buffers are full they take what they are sent.
    for _ in 0..STUCK_TURNS {
        client.turn(&mut follow, &session, "Speak.")?;
    }
    for _ in 0..STUCK_TURNS {
        beside.add(client.turn(&mut follow, &session, "Speak.")?.done);
    }
    let after = Memory::of(served.daemon.pid())?;
    report.add(Row {
        key: "stuck_kb",
        what: format!("memory for each of {STUCK} subscribers who never read"),
        value: after.rss.saturating_sub(before.rss) as f64 / STUCK as f64 / 1000.0,
        unit: "KB",
        bound: Some(Bound::below_with(STUCK_KB + LONG_TEXT_BYTES as f64 / 1000.0, "250 + one event of 500")),
        beside: format!(
            "{:.0} MB were for each; {}; a reader has a turn of 0.5 MB after {} ms beside them, {} ms alone",
            mb((4 * STUCK_TURNS * LONG_TEXT_BYTES) as u64),
            after.beside(),
            shown(beside.median()),
            shown(alone.median())
        ),
    });
    drop(crowd);
    Ok(())
}

/// Subscribers on sockets that are looked at together.
struct Crowd(Vec<Subscriber>);

struct Subscriber {
    socket: TcpStream,
    /// The end of what was read, in which the mark may have begun.
    last: Vec<u8>,
    has_end: bool,
}

impl Crowd {
    fn gather(served: &Served, client: &mut Client, session: &str, count: usize) -> Result<Crowd> {
        let seq = client.seq(session)?;
        let target = &served.target;
        let request = format!(
            "GET /v1/sessions/{session}/events?after={seq} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            target.address, target.token
        );
        let mut crowd = Vec::with_capacity(count);
        for _ in 0..count {
            let mut socket = TcpStream::connect(target.address)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.write_all(request.as_bytes())?;
            // The head of the answer says that the subscription stands.
            let mut head = [0; 12];
            socket.read_exact(&mut head)?;
            ensure!(&head == b"HTTP/1.1 200", "a subscriber was refused: {}", String::from_utf8_lossy(&head));
            socket.set_nonblocking(true)?;
            crowd.push(Subscriber { socket, last: Vec::new(), has_end: false });
        }
        Ok(Crowd(crowd))
    }

    /// Reads until every one of them has the turn's end; gives all bytes read.
    fn read_turn(&mut self) -> Result<u64> {
        let deadline = Instant::now() + PATIENCE;
        let mut bytes = 0;
        self.0.iter_mut().for_each(|subscriber| subscriber.has_end = false);
        while !self.0.iter().all(|subscriber| subscriber.has_end) {
            ensure!(Instant::now() < deadline, "not every subscriber got the turn's end");
            let mut fds: Vec<PollFd<'_>> =
                self.0.iter().map(|one| PollFd::new(one.socket.as_fd(), PollFlags::POLLIN)).collect();
            poll(&mut fds, PollTimeout::try_from(Duration::from_secs(1))?)?;
            let ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(false)).collect();
            for (one, _) in self.0.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                bytes += one.read()?;
            }
        }
        Ok(bytes)
    }
}

impl Subscriber {
    fn read(&mut self) -> Result<u64> {
        let mut chunk = [0; 16 * 1024];
        let count = match self.socket.read(&mut chunk) {
            Ok(0) => anyhow::bail!("a subscriber was cut off"),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        self.last.extend_from_slice(&chunk[..count]);
        self.has_end |= self.last.windows(END.len()).any(|window| window == END);
        self.last.drain(..self.last.len().saturating_sub(END.len()));
        Ok(count as u64)
    }
}

//! What the daemon adds to a turn, early and late in a session, with and without syncs.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{
    raw::{Appender, Exchange},
    report::{Bound, Report, Row},
    stand::{Client, Durability, Served, Stand, TurnTimes},
    times::{Times, shown},
};
use crate::http::Follow;

/// The numbers to reach, in milliseconds.
const OVERHEAD_MS: f64 = 2.0;
/// Syncs of a plain turn: its message with its start, its reply with its end.
const SYNCS: f64 = 2.0;
/// The late turn of the comparison, and how many on each side of it are taken.
const LATE: usize = 300;
const AROUND: usize = 20;
const MESSAGE: &str = "What is the next thing to look at, and why would it matter to anybody who uses this every day?";
const REPLY: &str = "The next thing is the one that people wait for; it matters because they do it many times a day.";

/// One session, watched.
struct Watched {
    client: Client,
    follow: Follow,
    session: String,
}

impl Watched {
    fn begin(stand: &Stand, served: &Served, model: &str) -> Result<Watched> {
        let mut client = served.client()?;
        let session = client.create(&stand.session_body(model))?;
        let follow = client.follow(&session)?;
        Ok(Watched { client, follow, session })
    }

    fn turn(&mut self) -> Result<TurnTimes> {
        self.client.turn(&mut self.follow, &self.session, MESSAGE)
    }
}

#[derive(Default)]
pub struct Halves {
    first: Times,
    last: Times,
    pub whole: Times,
}

impl Halves {
    fn add(&mut self, times: TurnTimes) {
        self.first.add(times.first_delta);
        self.last.add(times.done.saturating_sub(times.last_delta));
        self.whole.add(times.done);
    }

    pub fn beside(&self) -> String {
        let (first, last) = (shown(self.first.median()), shown(self.last.median()));
        format!("submit → first delta told {first} ms, last delta → end told {last} ms; {}", self.whole.spread())
    }
}

/// Turns with and without syncs, and between them what the machine needs for a sync and for something else.
#[derive(Default)]
pub struct Taken {
    pub synced: Halves,
    pub unsynced: Halves,
    pub raw: Times,
    pub bare: Times,
}

pub fn take(
    stand: &Stand,
    [power, process]: [&Served; 2],
    model: &str,
    mut bare: impl FnMut() -> Result<Duration>,
) -> Result<Taken> {
    let mut with_power = Watched::begin(stand, power, model)?;
    let mut with_process = Watched::begin(stand, process, model)?;
    let mut appender = Appender::new(&stand.path("turn-raw"))?;
    let mut taken = Taken::default();
    // The first turn of a session looks around in its workspace; the second does not find it changed.
    with_power.turn()?;
    with_process.turn()?;
    for _ in 0..stand.rounds(100, 30) {
        taken.synced.add(with_power.turn()?);
        taken.raw.add(appender.append()?);
        taken.unsynced.add(with_process.turn()?);
        taken.bare.add(bare()?);
    }
    Ok(taken)
}

pub fn power_bound(sync_ms: f64) -> Bound {
    Bound::below_with(OVERHEAD_MS + SYNCS * sync_ms, &format!("2 + 2 × {} raw sync", shown(sync_ms)))
}

pub fn process_bound() -> Bound {
    Bound::below(OVERHEAD_MS)
}

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let model = stand.speaker("turn-model", REPLY, REPLY.len(), 0)?;
    let power = stand.start("turn-power", Durability::Power)?;
    let process = stand.start("turn-process", Durability::Process)?;
    let mut client = process.client()?;
    let taken = take(stand, [&power, &process], &model, || {
        let start = Instant::now();
        client.ask("GET", "/healthz", None)?;
        Ok(start.elapsed())
    })?;
    let Taken { synced, unsynced, raw, bare } = taken;
    let (sync, request) = (raw.median(), bare.median());
    report.add(Row {
        key: "raw_sync",
        what: "raw: append and fdatasync, one thread".into(),
        value: sync,
        unit: "ms",
        bound: None,
        beside: raw.spread(),
    });
    report.add(Row {
        key: "raw_request",
        what: "raw: GET /healthz over loopback".into(),
        value: request,
        unit: "ms",
        bound: None,
        beside: bare.spread(),
    });
    report.add(Row {
        key: "turn_power",
        what: "turn overhead, durability power".into(),
        value: synced.whole.median(),
        unit: "ms",
        bound: Some(power_bound(sync)),
        beside: synced.beside(),
    });
    report.add(Row {
        key: "turn_process",
        what: "turn overhead, durability process".into(),
        value: unsynced.whole.median(),
        unit: "ms",
        bound: Some(process_bound()),
        beside: format!("{}; raw request {} ms", unsynced.beside(), shown(request)),
    });
    power.stop()?;
    process.stop()
}

/// Turns around the 300th of a session beside those around the 2nd, taken in turn from an old session and from new ones.
pub fn measure_late(stand: &Stand, report: &mut Report) -> Result<()> {
    let model = stand.speaker("long-model", REPLY, REPLY.len(), 0)?;
    let served = stand.start("long", Durability::Process)?;
    let mut old = Watched::begin(stand, &served, &model)?;
    for _ in 0..LATE - AROUND / 2 {
        old.turn()?;
    }
    let (mut early, mut late, mut bare_small, mut bare_large) =
        (Times::default(), Times::default(), Times::default(), Times::default());
    let turn_bytes = MESSAGE.len() + REPLY.len();
    let (mut small, mut large) = (Exchange::new(turn_bytes)?, Exchange::new(turn_bytes * LATE)?);
    for _ in 0..AROUND {
        let mut new = Watched::begin(stand, &served, &model)?;
        new.turn()?;
        early.add(new.turn()?.done);
        late.add(old.turn()?.done);
        bare_small.add(small.once()?);
        bare_large.add(large.once()?);
    }
    let longer = (bare_large.median() - bare_small.median()).max(0.0);
    // What a turn takes differs from one to the next by more than the rule allows: the middle half is the tolerance.
    let tolerance = (early.p90() - early.min()) / 2.0;
    let words = format!(
        "turn 2 {} + longer request {} + its spread {}",
        shown(early.median()),
        shown(longer),
        shown(tolerance)
    );
    report.add(Row {
        key: "turn_300",
        what: "turn 300 of a session, durability process".into(),
        value: late.median(),
        unit: "ms",
        bound: Some(Bound::below_with(early.median() + longer + tolerance, &words)),
        beside: format!("{}; turn 2: {}; request of {} KB", late.spread(), early.spread(), turn_bytes * LATE / 1000),
    });
    served.stop()
}

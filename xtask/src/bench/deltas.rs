//! Five thousand deltas that a model sends as fast as they are taken, each in the spool before it is shown.

use anyhow::Result;

use super::{
    report::{Bound, Report, Row},
    stand::{Durability, Stand},
    times::{Times, shown},
};

pub const DELTAS: usize = 5000;
const CHARS: usize = 5;
/// The number to reach, in milliseconds.
pub const LAST_MS: f64 = 60.0;

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let model = stand.speaker("deltas-model", &"word ".repeat(DELTAS), CHARS, 0)?;
    let served = stand.start("deltas", Durability::Power)?;
    let mut client = served.client()?;
    let (mut last, mut streamed, mut pieces) = (Times::default(), Times::default(), 0);
    for _ in 0..stand.rounds(20, 6) {
        let session = client.create(&stand.session_body(&model))?;
        let mut follow = client.follow(&session)?;
        let times = client.turn(&mut follow, &session, "Speak.")?;
        last.add(times.last_delta);
        streamed.add(times.last_delta.saturating_sub(times.first_delta));
        pieces = times.deltas;
    }
    report.add(Row {
        key: "deltas_5000",
        what: "5,000 deltas at once: submit to the last at the client".into(),
        value: last.median(),
        unit: "ms",
        bound: Some(Bound::below(LAST_MS)),
        beside: format!(
            "{}; first to last {} ms; what waits together is joined: {pieces} records in the last run",
            last.spread(),
            shown(streamed.median())
        ),
    });
    served.stop()
}

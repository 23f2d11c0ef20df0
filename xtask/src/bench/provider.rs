//! The same turns through a provider: the model is a vendor behind HTTP, on loopback.

use anyhow::Result;

use super::{
    deltas,
    raw::Appender,
    report::{Bound, Report, Row},
    stand::{Durability, Served, Stand},
    times::{Times, shown},
    tools, turn,
    vendor::{RUSHER, SPEAKER, Vendor, WORKER},
};

pub fn measure(stand: &Stand, report: &mut Report) -> Result<()> {
    let vendor = Vendor::start()?;
    let start = |name, durability| -> Result<Served> {
        let mut setup = stand.setup(name, durability);
        setup.variables = vendor.variables();
        Served::start(setup)
    };
    let power = start("provider-power", Durability::Power)?;
    let process = start("provider-process", Durability::Process)?;
    turns(stand, report, &vendor, [&power, &process])?;
    calls(stand, report, [&power, &process])?;
    rush(stand, report, &vendor, &power)?;
    power.stop()?;
    process.stop()
}

fn named(model: &str) -> String {
    format!("openai/{model}")
}

fn turns(stand: &Stand, report: &mut Report, vendor: &Vendor, [power, process]: [&Served; 2]) -> Result<()> {
    let mut bare = vendor.bare()?;
    let taken = turn::take(stand, [power, process], &named(SPEAKER), || bare.once())?;
    let asked = taken.bare.median();
    report.add(Row {
        key: "raw_vendor",
        what: "raw: one reply of the loopback vendor".into(),
        value: asked,
        unit: "ms",
        bound: None,
        beside: taken.bare.spread(),
    });
    let beside = |halves: &turn::Halves| format!("{}; of it the vendor {} ms", halves.beside(), shown(asked));
    let rows = [
        ("turn_http_power", "power", &taken.synced, turn::power_bound(taken.raw.median())),
        ("turn_http_process", "process", &taken.unsynced, turn::process_bound()),
    ];
    for (key, durability, halves, bound) in rows {
        report.add(Row {
            key,
            what: format!("turn overhead over HTTP through a provider, durability {durability}"),
            value: halves.whole.median(),
            unit: "ms",
            bound: Some(bound),
            beside: beside(halves),
        });
    }
    Ok(())
}

fn calls(stand: &Stand, report: &mut Report, served: [&Served; 2]) -> Result<()> {
    let (mut times, mut syncs) = ([Times::default(), Times::default()], Times::default());
    let mut appender = Appender::new(&stand.path("provider-raw"))?;
    for _ in 0..stand.rounds(8, 3) {
        for (served, times) in served.iter().zip(&mut times) {
            times.add(tools::one_turn(stand, served, &named(WORKER))?);
        }
        for _ in 0..10 {
            syncs.add(appender.append()?);
        }
    }
    let [in_power, in_process] = times;
    let rows = [
        ("tool_http_power", "power", in_power, tools::power_bound(syncs.median())),
        ("tool_http_process", "process", in_process, tools::process_bound()),
    ];
    for (key, durability, times, bound) in rows {
        report.add(Row {
            key,
            what: format!("tool call in a 50-call turn over HTTP through a provider, durability {durability}"),
            value: times.median(),
            unit: "ms",
            bound: Some(bound),
            beside: times.spread(),
        });
    }
    Ok(())
}

fn rush(stand: &Stand, report: &mut Report, vendor: &Vendor, served: &Served) -> Result<()> {
    let mut client = served.client()?;
    let (mut last, mut pieces) = (Times::default(), 0);
    for _ in 0..stand.rounds(20, 6) {
        let session = client.create(&stand.session_body(&named(RUSHER)))?;
        let mut follow = client.follow(&session)?;
        let times = client.turn(&mut follow, &session, "Speak.")?;
        last.add((times.began + times.last_delta).saturating_duration_since(vendor.began()?));
        pieces = times.deltas;
    }
    report.add(Row {
        key: "deltas_http_5000",
        what: "5,000 deltas at once over HTTP: the vendor's first byte to the last at the client".into(),
        value: last.median(),
        unit: "ms",
        bound: Some(Bound::below(deltas::LAST_MS)),
        beside: format!(
            "{}; {} µs for each delta; what waits together is joined: {pieces} records in the last run",
            last.spread(),
            shown(last.median() * 1000.0 / deltas::DELTAS as f64)
        ),
    });
    Ok(())
}

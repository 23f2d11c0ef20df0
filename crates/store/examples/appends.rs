//! Synced appends per second that the store reaches alone: `appends <folder> <sessions> <appends each>` prints one number.
//! Used by `cargo xtask bench`, beside the same through HTTP and the bare disk.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use tenure_core::{
    event::{Actor, Event, MessageAdded},
    ids::SessionId,
    message::{Delivery, Part, Role},
    time::{Moment, Timestamp},
};
use tenure_store::{Epoch, FileStore, Options, Store};

/// About what one decision of a plain turn takes in the log.
const TEXT_BYTES: usize = 400;

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, sessions, each] = &arguments[..] else {
        return Err("usage: appends <folder> <sessions> <appends each>".into());
    };
    let (sessions, each): (u64, u64) = (sessions.parse()?, each.parse()?);
    let store = FileStore::open(folder, Options::default())?;
    let mut logs = Vec::new();
    for number in 0..sessions {
        let id = session(number)?;
        let (epoch, _) = store.create(id, &[message(id, 1)?]).await?;
        logs.push((id, epoch));
    }
    let start = Instant::now();
    let running: Vec<_> =
        logs.into_iter().map(|(id, epoch)| tokio::spawn(append(store.clone(), id, epoch, each))).collect();
    for one in running {
        one.await??;
    }
    println!("{}", (sessions * each) as f64 / start.elapsed().as_secs_f64());
    Ok(())
}

async fn append(store: Arc<FileStore>, id: SessionId, epoch: Epoch, each: u64) -> Result<(), Failed> {
    for seq in 1..=each {
        store.append(id, epoch, seq, &[message(id, seq + 1)?]).await?;
    }
    Ok(())
}

fn session(number: u64) -> Result<SessionId, Failed> {
    Ok(moment(number)?.session_id())
}

fn message(session_id: SessionId, seq: u64) -> Result<Event, Failed> {
    let mut moment = moment(seq)?;
    let parts = vec![Part::text("x".repeat(TEXT_BYTES))];
    let message_id = moment.message_id();
    let added = MessageAdded { message_id, role: Role::User, parts, delivery: Delivery::Queue, auto_run: false };
    let body = added.into();
    Ok(Event { seq, ts: moment.at, session_id, turn_id: None, actor: Actor::user("bench"), key: None, body })
}

fn moment(number: u64) -> Result<Moment, Failed> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    // The low sixteen bits are the moment's own counter.
    Ok(Moment::new(Timestamp::from_ms(u64::try_from(since_1970.as_millis())?), u128::from(number) << 16))
}

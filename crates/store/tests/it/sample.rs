//! Values for tests: ids, events and deltas that are the same in every run.

use std::{path::Path, sync::Arc};

use tenure_core::{
    budget::Spent,
    delta::{Delta, Stream},
    event::{Actor, Body, Event, MessageAdded, SessionCreated},
    ids::{SessionId, TurnId},
    message::{Delivery, Part, Role},
    session::Settings,
    time::{Moment, Timestamp},
};
use tenure_store::{Durability, FileStore, Limit, Options, Row, Store};

pub const START_MS: u64 = 1_735_689_600_000;

pub fn moment(n: u64) -> Moment {
    Moment::new(Timestamp::from_ms(START_MS + n), u128::from(n + 1) << 40)
}

pub fn session(n: u64) -> SessionId {
    moment(n).session_id()
}

pub fn turn(n: u64) -> TurnId {
    moment(n).turn_id()
}

pub fn event(session_id: SessionId, seq: u64, body: impl Into<Body>) -> Event {
    Event {
        seq,
        ts: Timestamp::from_ms(START_MS + seq),
        session_id,
        turn_id: None,
        actor: Actor::user("test"),
        key: None,
        body: body.into(),
    }
}

pub fn created(session_id: SessionId) -> Event {
    let settings =
        Settings { workspace_path: "/tmp/work".into(), title: Some("A title".into()), ..Settings::default() };
    event(session_id, 1, SessionCreated { settings, policy: Default::default(), budgets: Default::default() })
}

pub fn message(session_id: SessionId, seq: u64, text: &str) -> Event {
    let body = MessageAdded {
        message_id: moment(seq).message_id(),
        role: Role::User,
        parts: vec![Part::text(text)],
        delivery: Delivery::Queue,
        auto_run: true,
    };
    event(session_id, seq, body)
}

/// Messages `from..=to`, as one decision.
pub fn messages(session_id: SessionId, from: u64, to: u64) -> Vec<Event> {
    (from..=to).map(|seq| message(session_id, seq, &format!("message {seq}, ä\n\"quoted\""))).collect()
}

pub fn delta(offset: u64, text: &str) -> Delta {
    Delta {
        seq: 1,
        ts: Timestamp::from_ms(START_MS),
        step: 1,
        attempt: 1,
        stream: Stream::Text,
        offset,
        text: text.into(),
    }
}

pub fn row(n: u64, status: &str) -> Row {
    let at = Timestamp::from_ms(START_MS + n);
    Row {
        id: session(n),
        created_at: at,
        updated_at: at,
        status: status.into(),
        workspace_path: "/tmp/work".into(),
        title: None,
        last_turn_id: None,
        role: Some("reviewer".into()),
        labels: ["one".into(), "two".into()].into(),
        spent: Spent { steps: 3, micro_usd: 7, ..Spent::default() },
    }
}

/// Every event of a session, read page by page.
pub async fn read_all(store: &dyn Store, session: SessionId) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    loop {
        let after = events.last().map_or(0, |event| event.seq);
        let page = store.read(session, after, Limit { events: 3, bytes: 1 << 20 }).await.unwrap();
        if page.is_empty() {
            return events;
        }
        events.extend(page.iter().map(|stored| stored.parse().unwrap()));
    }
}

pub fn open(path: &Path) -> Arc<FileStore> {
    FileStore::open(path, Options::default()).unwrap()
}

/// A folder for tests that make thousands of files: in memory where that can be had.
pub fn fast_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Without syncs, for tests that open a store a thousand times and cut no power.
pub fn open_unsynced(path: &Path) -> Arc<FileStore> {
    FileStore::open(path, Options { durability: Durability::Process, ..Options::default() }).unwrap()
}

/// How much of a spool a delta takes: its line, a short sum and the line's end.
pub fn delta_bytes(delta: &Delta, turn: TurnId) -> u64 {
    (delta.to_line(turn).unwrap().len() + 1) as u64
}

//! Brings a session's state back: the snapshot, then the tail of the log. The same for warming, looking and recovery.

use bytes::Bytes;
use tenure_core::{
    context::Transcript,
    delta::{Delta, Stream},
    event::Event,
    ids::{SessionId, TurnId},
    session::{Session, Turn},
    time::Timestamp,
};
use tenure_store::{Head, Limit, Snapshot, SpoolPage, Store};

use crate::{Error, TurnRecord};

/// How much of a spool is looked at in one piece.
const SPOOL_BYTES: usize = 256 * 1024;

/// The state, where the log ends, and how long the log was at the last snapshot.
pub(crate) async fn state(store: &dyn Store, id: SessionId) -> Result<(Session, Head, u64), Error> {
    let head = store.head(id).await?;
    state_at(store, id, head).await
}

/// The same at an earlier end of the log.
pub(crate) async fn state_at(store: &dyn Store, id: SessionId, head: Head) -> Result<(Session, Head, u64), Error> {
    let kept = store.snapshot_get(id).await?.and_then(|snapshot| read(&snapshot));
    let mut state = kept.filter(|state| state.id == id && state.seq <= head.seq);
    let mut after = state.as_ref().map_or(0, |state| state.seq);
    let mut since = 0;
    while after < head.seq {
        let page = store.read(id, after, Limit::default()).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for stored in page.iter().filter(|stored| stored.seq <= head.seq) {
            since += stored.json.len() as u64;
            let event = stored.parse()?;
            match &mut state {
                Some(state) => state.apply(&event),
                None => state = Session::born(&event),
            }
        }
    }
    let state = state.ok_or(Error::NoSession(id))?;
    Ok((state, head, head.bytes.saturating_sub(since)))
}

/// A snapshot that does not fit this version's state is no snapshot.
fn read(snapshot: &Snapshot) -> Option<Session> {
    serde_json::from_slice::<Session>(&snapshot.state).ok().filter(|state| state.seq == snapshot.seq)
}

pub(crate) fn snapshot(state: &Session) -> Option<Snapshot> {
    let json = serde_json::to_vec(state).ok()?;
    Some(Snapshot { seq: state.seq, state: Bytes::from(json) })
}

/// The conversation up to now, from the first event that the context still holds.
pub(crate) async fn transcript(store: &dyn Store, state: &Session) -> Result<Transcript, Error> {
    let mut transcript = Transcript::default();
    // What the workspace says of itself holds on, however much of the conversation is gone.
    if let Some(seed) = state.seed.as_ref().filter(|seed| seed.seq < state.context_from) {
        transcript.push_old_seed(&event(store, state, seed.seq).await?);
    }
    let mut after = state.context_from.saturating_sub(1);
    while after < state.seq {
        let page = store.read(state.id, after, Limit::default()).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        for stored in page.iter().filter(|stored| stored.seq <= state.seq) {
            transcript.push(&stored.parse()?);
        }
    }
    Ok(transcript)
}

/// Fetches the bodies that a conversation lacks because they stand before its beginning.
pub(crate) async fn supply(store: &dyn Store, state: &Session, transcript: &mut Transcript) -> Result<(), Error> {
    let missing: Vec<u64> = transcript.missing().collect();
    for seq in missing {
        transcript.supply(&event(store, state, seq).await?);
    }
    Ok(())
}

pub(crate) async fn event(store: &dyn Store, state: &Session, seq: u64) -> Result<Event, Error> {
    let page = store.read(state.id, seq - 1, Limit { events: 1, ..Limit::default() }).await?;
    let found = page.iter().find(|stored| stored.seq == seq);
    let stored = found.ok_or_else(|| Error::Bug(format!("event {seq} is not in the log of {}", state.id)))?;
    Ok(stored.parse()?)
}

/// A turn's record: as it was put down if nothing can have come since, or brought up to the log's end, or made from
/// the part of the log in which the turn is.
pub(crate) async fn record(store: &dyn Store, state: &Session, turn: TurnId) -> Result<Option<TurnRecord>, Error> {
    let kept = store.turn_get(state.id, turn).await?;
    let kept = kept.and_then(|bytes| serde_json::from_slice::<TurnRecord>(&bytes).ok());
    match kept.filter(|record| record.id == turn) {
        Some(record) if record.status.is_settled() => Ok(Some(record)),
        kept => {
            let after = kept.as_ref().map_or_else(|| before(state, turn), |record| record.seq);
            TurnRecord::from_log(store, state.id, turn, after, kept).await
        }
    }
}

/// A number before all events of the turn, as late as the state can tell.
fn before(state: &Session, turn: TurnId) -> u64 {
    let open = state.turn.iter().map(|open| (open.id, &open.messages));
    let queued = state.queue.iter().map(|queued| (queued.id, &queued.messages));
    let settled = state.settled.iter().map(|settled| (settled.id, &settled.messages));
    let messages = open.chain(queued).chain(settled).find(|(id, _)| *id == turn).map(|(_, messages)| messages);
    // A turn comes after the message it was made for.
    messages.and_then(|messages| messages.iter().map(|message| message.seq).min()).unwrap_or(0)
}

/// What clients were shown of the step that a crash cut, and when the turn last showed anything.
pub(crate) async fn shown(
    store: &dyn Store,
    id: SessionId,
    turn: &Turn,
) -> Result<(Vec<Delta>, Option<Timestamp>), Error> {
    let (mut shown, mut seen) = (Vec::new(), None);
    let mut pos = 0;
    loop {
        let SpoolPage::Records(records) = store.spool_read(id, turn.id, pos, SPOOL_BYTES).await? else {
            return Ok((shown, seen));
        };
        let Some(last) = records.last() else { return Ok((shown, seen)) };
        (pos, seen) = (last.pos, Some(last.delta.ts));
        let of_step = |delta: &Delta| match delta.stream {
            Stream::Output(_) => false,
            Stream::Text | Stream::Thinking | Stream::Arguments(_) => {
                delta.step == turn.next_step() && delta.attempt == turn.next_attempt()
            }
        };
        shown.extend(records.into_iter().map(|record| record.delta).filter(of_step));
    }
}

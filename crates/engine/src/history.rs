//! The conversation of a session as pages of messages, read from the log.

use tenure_core::{
    event::{Body, Event},
    ids::SessionId,
    session::Lost,
};
use tenure_store::{Limit, Store, StoredEvent};

use crate::{Damage, Error};

/// The types of event that hold what people and models say.
pub(crate) const SAID: &[&str] = &["message_added", "model_output_completed"];
/// The types of event that hold a message of the conversation.
pub(crate) const MESSAGES: &[&str] = &["message_added", "model_output_completed", "tool_call_completed"];

const EVENT_LOST: &str = "event_lost";
/// A page ends when it holds this much, whatever was asked for.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// A part of a conversation.
#[derive(Debug)]
pub struct Messages {
    /// The events that hold the messages.
    pub events: Vec<Event>,
    /// Whether there may be more behind them.
    pub more: bool,
    /// What is missing between them, and behind the last.
    pub damage: Vec<Damage>,
    /// How much of the log was read for it.
    pub(crate) read_bytes: usize,
}

/// Up to `limit` events of these types, after `after`, in order; in bounded memory.
pub(crate) async fn messages(
    store: &dyn Store,
    session: SessionId,
    mut after: u64,
    limit: usize,
    types: &[&str],
) -> Result<Messages, Error> {
    let mut found = Messages { events: Vec::new(), more: true, damage: Vec::new(), read_bytes: 0 };
    let (mut held, mut lost, mut lost_since) = (0, None, None);
    loop {
        let page = store.read(session, after, Limit::default()).await?;
        let Some(last) = page.last() else {
            found.more = false;
            found.damage = lost_since.unwrap_or(lost).map(Damage::Lost).into_iter().collect();
            return Ok(found);
        };
        after = last.seq;
        for stored in &page {
            found.read_bytes += stored.json.len();
            let wire_type = wire_type(&stored.json);
            if wire_type == EVENT_LOST {
                // Those behind the page's last message are the next page's.
                lose(stored, lost_since.get_or_insert_with(|| lost.clone()))?;
            }
            if !types.contains(&wire_type) {
                continue;
            }
            if found.events.len() == limit || held > PAGE_BYTES_MAX {
                found.damage = lost.map(Damage::Lost).into_iter().collect();
                return Ok(found);
            }
            lost = lost_since.take().unwrap_or(lost);
            held += stored.json.len();
            found.events.push(stored.parse()?);
        }
    }
}

fn lose(stored: &StoredEvent, lost: &mut Option<Lost>) -> Result<(), Error> {
    if let Body::EventLost(event) = stored.parse()?.body {
        Lost::add(lost, stored.seq, &event.reason);
    }
    Ok(())
}

/// The type in an envelope, which stands before anything that somebody else has written.
fn wire_type(json: &[u8]) -> &str {
    const OPENS: &[u8] = b"\"type\":\"";
    let Some(start) = json.windows(OPENS.len()).position(|window| window == OPENS) else { return "" };
    let rest = &json[start + OPENS.len()..];
    let end = rest.iter().position(|byte| *byte == b'"').unwrap_or(0);
    std::str::from_utf8(&rest[..end]).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_the_envelopes() {
        let json = br#"{"seq":2,"turn_id":"turn_1","type":"message_added","data":{"parts":[{"type":"text"}]}}"#;
        assert_eq!(wire_type(json), "message_added");
        assert_eq!((wire_type(b"{}"), wire_type(b"\"type\":\"x")), ("", ""));
    }
}

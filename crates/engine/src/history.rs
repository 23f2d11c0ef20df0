//! The conversation of a session as pages of messages, read from the log.

use tenure_core::{event::Event, ids::SessionId};
use tenure_store::{Limit, Store};

use crate::Error;

/// The types of event that hold a message of the conversation.
const MESSAGES: [&str; 3] = ["message_added", "model_output_completed", "tool_call_completed"];

/// Up to `limit` events that hold a message, after `after`, in order; in bounded memory.
pub(crate) async fn messages(
    store: &dyn Store,
    session: SessionId,
    mut after: u64,
    limit: usize,
) -> Result<Vec<Event>, Error> {
    let mut found = Vec::new();
    loop {
        let page = store.read(session, after, Limit::default()).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.seq;
        for stored in page.iter().filter(|stored| MESSAGES.contains(&wire_type(&stored.json))) {
            found.push(stored.parse()?);
            if found.len() == limit {
                return Ok(found);
            }
        }
    }
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

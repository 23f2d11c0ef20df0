//! Texts that come from outside: what is read is written the same way again, and one thing has one spelling.

use serde_json::Value;
use tenure_core::{
    cursor::Cursor,
    delta::Delta,
    event::Event,
    ids::{ArtifactId, CallId, MessageId, RunId, SessionId, TurnId},
    policy::matches_pattern,
    time::Timestamp,
};
use tenure_fuzzkit::target;
use ulid::Ulid;

#[test]
fn id() {
    target!("id").cases(1000).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let printed = [
            text.parse::<SessionId>().map(|id| id.to_string()).ok(),
            text.parse::<TurnId>().map(|id| id.to_string()).ok(),
            text.parse::<MessageId>().map(|id| id.to_string()).ok(),
            text.parse::<CallId>().map(|id| id.to_string()).ok(),
            text.parse::<RunId>().map(|id| id.to_string()).ok(),
            text.parse::<ArtifactId>().map(|id| id.to_string()).ok(),
        ];
        let found: Vec<String> = printed.into_iter().flatten().collect();
        assert!(found.len() <= 1, "two kinds of one id");
        assert!(found.iter().all(|printed| printed == text), "an id with two spellings");
        assert!(found.iter().all(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')));
    });
}

#[test]
fn cursor() {
    target!("cursor").cases(1000).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let Ok(cursor) = text.parse::<Cursor>() else {
            // A refusal is a sentence of bounded length.
            assert!(text.parse::<Cursor>().unwrap_err().to_string().len() < 500);
            return;
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        assert!(text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
        let json = serde_json::to_string(&cursor).unwrap();
        assert_eq!(serde_json::from_str::<Cursor>(&json).unwrap(), cursor);
    });
}

#[test]
fn time() {
    target!("time").cases(1000).run(|input| {
        let Ok(time) = serde_json::from_slice::<Timestamp>(input) else { return };
        let again = serde_json::to_string(&time).unwrap();
        assert_eq!(serde_json::from_str::<Timestamp>(&again).unwrap(), time, "{again}");
        let later = time.plus_ms(u64::MAX);
        assert_eq!(serde_json::from_str::<Timestamp>(&serde_json::to_string(&later).unwrap()).unwrap(), later);
    });
}

#[test]
fn event() {
    target!("event").cases(1500).run(|input| {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let Ok(event) = Event::from_json(text) else { return };
        let written = serde_json::to_string(&event).unwrap();
        let again = Event::from_json(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
        assert_eq!(again, event, "an event that changes when it is written");
        assert!(!written.contains('\n'));
        assert_eq!(serde_json::to_string(&again).unwrap(), written);
    });
}

#[test]
fn delta() {
    let turn = TurnId::new(Ulid::from_parts(1_735_689_600_000, 1));
    target!("delta").cases(1000).run(|input| {
        let Ok(delta) = Delta::from_line(input, turn) else { return };
        let written = delta.to_line(turn).unwrap();
        assert_eq!(Delta::from_line(&written, turn).unwrap(), delta);
        assert!(serde_json::from_slice::<Value>(&written).unwrap().is_object());
    });
}

#[test]
fn pattern() {
    target!("pattern").cases(1500).run(|input| {
        let text = String::from_utf8_lossy(input);
        let Some((pattern, subject)) = text.split_once('\n') else { return };
        // The reference takes time that grows fast with the stars and the length.
        let (pattern, subject) = (first_chars(pattern, 20), first_chars(subject, 40));
        let chained = subject.contains(['\n', ';', '&', '|', '`', '>', '<']) || subject.contains("$(");
        let expected = match (pattern.contains('*'), chained && pattern != "*") {
            (true, true) => false,
            _ => fits(pattern.as_bytes(), subject.as_bytes()),
        };
        assert_eq!(matches_pattern(&pattern, &subject), expected, "{pattern:?} and {subject:?}");
    });
}

fn first_chars(text: &str, count: usize) -> String {
    text.chars().take(count).collect()
}

/// Tries everything.
fn fits(pattern: &[u8], subject: &[u8]) -> bool {
    match pattern.split_first() {
        None => subject.is_empty(),
        Some((b'*', rest)) => (0..=subject.len()).any(|at| fits(rest, &subject[at..])),
        Some((byte, rest)) => subject.first() == Some(byte) && fits(rest, &subject[1..]),
    }
}

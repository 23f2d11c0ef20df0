//! A vendor that refuses what is too long: the context is compacted, and the turn comes to its end.

use std::time::Duration;

use serde_json::json;
use tenure_core::{
    command::Command,
    event::{Body, CompactTrigger},
    model::StopReason,
    session::Session,
};
use tenure_engine::RecordStatus;
use tenure_models::{
    catalog::ModelConfig,
    entry::{Prices, Rates},
};
use tenure_testkit::{
    Rig,
    vendor::{Answer, Asked, FakeVendor, Format, Piece, Speech},
};

use super::{far_away, plain, rig, says};

const SUMMARY: &str = "They spoke of apples.";

fn wants_summary(asked: &Asked) -> bool {
    String::from_utf8_lossy(&asked.body).contains("Now write the summary.")
}

/// A vendor whose window is so many bytes.
async fn narrow(format: Format, bytes_max: usize) -> FakeVendor {
    FakeVendor::with(move |asked, _| {
        if asked.body.len() > bytes_max {
            let message = "prompt is too long: many tokens > few maximum";
            return Answer::json(400, &json!({ "error": { "type": "invalid_request_error", "message": message } }));
        }
        says(format, if wants_summary(asked) { SUMMARY } else { "Yes." })
    })
    .await
}

fn long(what: &str) -> String {
    format!("{what} {}", "apples and pears, ".repeat(60))
}

/// Why compactions came to nothing.
async fn failures_of(rig: &Rig, session: tenure_core::ids::SessionId) -> Vec<String> {
    let events = rig.events(session).await;
    let failed = events.iter().filter_map(|event| match &event.body {
        Body::CompactionFailed(failed) => Some(failed.reason.message.clone()),
        _ => None,
    });
    failed.collect()
}

/// A session of three long rounds: there is something to compact.
async fn three_rounds(rig: &Rig) -> tenure_core::ids::SessionId {
    let session = rig.create().await;
    for round in 0..3 {
        rig.ask(session, &long(&format!("round {round}"))).await;
    }
    session
}

fn summaries_asked(vendor: &FakeVendor) -> usize {
    vendor.asked().iter().filter(|asked| wants_summary(asked)).count()
}

async fn compact(rig: &Rig, session: tenure_core::ids::SessionId) {
    rig.command(session, Command::Compact).await.expect("it is asked for");
    rig.until(session, "no summary is under way", |state| state.compaction.is_none()).await;
}

async fn trigger_of(rig: &Rig, session: tenure_core::ids::SessionId) -> Vec<CompactTrigger> {
    let events = rig.events(session).await;
    let compacted = events.iter().filter_map(|event| match &event.body {
        Body::ContextCompacted(compacted) => Some(compacted.trigger),
        _ => None,
    });
    compacted.collect()
}

#[tokio::test]
async fn what_is_too_long_is_compacted_and_the_turn_goes_on() {
    for format in Format::ALL {
        let vendor = narrow(format, 6_000).await;
        let mut rig = plain(&vendor, format).await;
        let session = rig.create().await;
        for round in 0..12 {
            let record = rig.ask(session, &long(&format!("round {round}"))).await;
            assert_eq!(record.status, RecordStatus::Completed, "{format:?} {round}: {:?}", record.error);
            if round == 7 {
                rig.crash_and_restart().await;
            }
        }
        let triggers = trigger_of(&rig, session).await;
        assert!(triggers.len() > 1, "{format:?}: {triggers:?}");
        assert!(triggers.iter().all(|trigger| *trigger == CompactTrigger::Overflow), "{format:?}: {triggers:?}");
        rig.sound(session).await;
        let last = String::from_utf8(vendor.asked().pop().unwrap().body).unwrap();
        assert!(last.contains(SUMMARY) && last.contains("round 11"), "{format:?}: {last}");
        assert!(!last.contains("round 0 "), "{format:?}: {last}");
    }
}

#[tokio::test]
async fn one_message_that_is_too_long_ends_its_turn_and_no_other() {
    let format = Format::Anthropic;
    let vendor = narrow(format, 6_000).await;
    let rig = plain(&vendor, format).await;
    let session = rig.create().await;
    assert_eq!(rig.ask(session, "first").await.status, RecordStatus::Completed);
    let record = rig.ask(session, &"far too long ".repeat(1_000)).await;
    assert_eq!(record.status, RecordStatus::Failed);
    let reason = record.error.expect("a reason");
    assert_eq!(reason.code, "context_overflow");
    for part in ["prompt is too long", "there is nothing to compact", "a model with a larger window"] {
        assert!(reason.message.contains(part), "{part}: {reason:?}");
    }
    assert_eq!(summaries_asked(&vendor), 0, "what would not help is not paid for");
    // What cannot be shown whole is quoted in part from now on.
    let record = rig.ask(session, "and now?").await;
    assert_eq!(record.status, RecordStatus::Completed, "{:?}", record.error);
    rig.sound(session).await;
}

#[tokio::test]
async fn a_window_that_fills_is_compacted_in_time() {
    let format = Format::Chat;
    let vendor = FakeVendor::with(move |asked, _| {
        let mut speech = Speech::text(if wants_summary(asked) { SUMMARY } else { "Yes." });
        // The vendor counts three bytes as a token.
        speech.usage.input_tokens = asked.body.len() as u64 / 3;
        Answer::events(speech.events(format))
    })
    .await;
    let model = ModelConfig { window: Some(2_000), ..ModelConfig::default() };
    let rig = rig(&vendor, format, model).start().await;
    let session = rig.create().await;
    for round in 0..12 {
        let record = rig.ask(session, &long(&format!("round {round}"))).await;
        assert_eq!(record.status, RecordStatus::Completed, "{round}: {:?}", record.error);
        rig.until(session, "no summary is under way", |state| state.compaction.is_none()).await;
    }
    let longest = vendor.asked().iter().map(|asked| asked.body.len()).max().unwrap();
    assert!(longest / 3 < 2_000, "a request of {longest} bytes");
    assert!(trigger_of(&rig, session).await.contains(&CompactTrigger::Threshold));
    rig.sound(session).await;
}

#[tokio::test]
async fn a_person_can_ask_for_it() {
    let format = Format::Gemini;
    let vendor = narrow(format, usize::MAX).await;
    let rig = plain(&vendor, format).await;
    let session = three_rounds(&rig).await;
    compact(&rig, session).await;
    assert_eq!(trigger_of(&rig, session).await, [CompactTrigger::Asked]);
    let record = rig.ask(session, "and now?").await;
    assert_eq!(record.status, RecordStatus::Completed);
    let last = String::from_utf8(vendor.asked().pop().unwrap().body).unwrap();
    assert!(last.contains(SUMMARY) && !last.contains("round 0"), "{last}");
    // The last request that went is quoted.
    assert!(last.contains("round 2"), "{last}");
}

#[tokio::test]
async fn what_is_short_already_is_left_alone() {
    let format = Format::Responses;
    let vendor = narrow(format, usize::MAX).await;
    let rig = plain(&vendor, format).await;
    let session = rig.create().await;
    for round in 0..3 {
        rig.ask(session, &format!("round {round}")).await;
    }
    compact(&rig, session).await;
    let told = failures_of(&rig, session).await;
    assert!(told.len() == 1 && told[0].starts_with("there is nothing to compact"), "{told:?}");
    assert_eq!(summaries_asked(&vendor), 0, "nothing is paid for it");
    rig.ask(session, "and now?").await;
    let last = String::from_utf8(vendor.asked().pop().unwrap().body).unwrap();
    assert!((0..3).all(|round| last.contains(&format!("round {round}"))), "{last}");
}

#[tokio::test]
async fn a_summary_is_not_summarized_again_for_a_few_words() {
    let format = Format::Anthropic;
    let vendor = narrow(format, usize::MAX).await;
    let rig = plain(&vendor, format).await;
    let session = three_rounds(&rig).await;
    compact(&rig, session).await;
    rig.ask(session, "and now?").await;
    compact(&rig, session).await;
    assert_eq!((trigger_of(&rig, session).await.len(), summaries_asked(&vendor)), (1, 1));
    rig.ask(session, &long("something new")).await;
    compact(&rig, session).await;
    assert_eq!((trigger_of(&rig, session).await.len(), summaries_asked(&vendor)), (2, 2));
}

/// A vendor whose summaries are longer than anything that was said, and whose window is so many bytes.
async fn wordy(format: Format, bytes_max: usize) -> FakeVendor {
    FakeVendor::with(move |asked, _| {
        if !wants_summary(asked) && asked.body.len() > bytes_max {
            let message = "prompt is too long: many tokens > few maximum";
            return Answer::json(400, &json!({ "error": { "type": "invalid_request_error", "message": message } }));
        }
        let summary = "and they said this, and then they said that, ".repeat(400);
        says(format, if wants_summary(asked) { &summary } else { "Yes." })
    })
    .await
}

#[tokio::test]
async fn a_summary_that_is_longer_than_what_it_tells_is_not_taken() {
    let format = Format::Chat;
    let vendor = wordy(format, usize::MAX).await;
    let rig = plain(&vendor, format).await;
    let session = three_rounds(&rig).await;
    let before = rig.state(session).await.spent().usage;
    compact(&rig, session).await;
    let told = failures_of(&rig, session).await;
    assert!(told.len() == 1 && told[0].starts_with("the summary is no shorter"), "{told:?}");
    assert!(rig.state(session).await.spent().usage.output_tokens > before.output_tokens, "it is counted");
    rig.ask(session, "and now?").await;
    let last = String::from_utf8(vendor.asked().pop().unwrap().body).unwrap();
    assert!(last.contains("round 0") && !last.contains("then they said that"), "{last}");
    rig.sound(session).await;
}

#[tokio::test]
async fn half_a_summary_is_not_taken() {
    for format in Format::ALL {
        let vendor = FakeVendor::with(move |asked, _| match wants_summary(asked) {
            true => Answer::events(Speech { stop: StopReason::MaxTokens, ..Speech::text("half a") }.events(format)),
            false => says(format, "Yes."),
        })
        .await;
        let rig = plain(&vendor, format).await;
        let session = three_rounds(&rig).await;
        compact(&rig, session).await;
        let told = failures_of(&rig, session).await;
        assert!(told.len() == 1 && told[0].contains("reached its output limit"), "{format:?}: {told:?}");
        assert_eq!(trigger_of(&rig, session).await, [], "{format:?}");
    }
}

#[tokio::test]
async fn a_summary_that_breaks_after_its_beginning_is_not_for_nothing() {
    for format in Format::ALL {
        let vendor = FakeVendor::with(move |asked, _| match wants_summary(asked) {
            true => {
                let events = Speech::text("half a summary").events(format);
                let at = events.find("half").expect("the word is there");
                let at = at + events[at..].find("\n\n").expect("its event ends") + 2;
                let mut answer = Answer::events(events).until(at, Piece::Pause(Duration::ZERO));
                answer.pieces.push(Piece::Bytes("data: {\"nonsense\n\n".into()));
                answer
            }
            false => says(format, "Yes."),
        })
        .await;
        let rates = Rates { input: 1.0, output: 1.0, cache_read: None, cache_write: None };
        let prices = Some(Prices { rates, long: None });
        let rig = far_away(&vendor, format, ModelConfig { prices, ..ModelConfig::default() }).start().await;
        let session = three_rounds(&rig).await;
        let before = rig.state(session).await.spent();
        assert_eq!(before.cost(), Some(45), "{format:?}");
        rig.command(session, Command::Compact).await.expect("it is asked for");
        let failed = |state: &Session| state.compaction.as_ref().is_some_and(|under_way| under_way.attempts.failed > 0);
        rig.until(session, "an attempt has failed", failed).await;
        assert_eq!(rig.state(session).await.spent().cost(), None, "{format:?}");
    }
}

#[tokio::test]
async fn a_session_that_comes_back_knows_how_its_vendor_counts() {
    let format = Format::Chat;
    let vendor = FakeVendor::with(move |asked, _| {
        let mut speech = Speech::text(if wants_summary(asked) { SUMMARY } else { "Yes." });
        // Four times as many as a plain guess.
        speech.usage.input_tokens = asked.body.len() as u64;
        Answer::events(speech.events(format))
    })
    .await;
    let model = ModelConfig { window: Some(5_000), ..ModelConfig::default() };
    let mut rig = rig(&vendor, format, model).start().await;
    let session = three_rounds(&rig).await;
    assert_eq!(trigger_of(&rig, session).await, [], "the window is not full yet");
    rig.crash_and_restart().await;
    // By its bytes alone this would be a quarter of the window.
    rig.ask(session, &long("round 3")).await;
    rig.until(session, "no summary is under way", |state| state.compaction.is_none()).await;
    assert_eq!(trigger_of(&rig, session).await, [CompactTrigger::Threshold]);
}

#[tokio::test]
async fn an_overflow_that_no_summary_mends_ends_its_turn() {
    let format = Format::Gemini;
    let vendor = wordy(format, 6_000).await;
    let rig = plain(&vendor, format).await;
    let session = rig.create().await;
    let mut failed = None;
    for round in 0..8 {
        let record = rig.ask(session, &long(&format!("round {round}"))).await;
        failed = failed.or(record.error);
    }
    let reason = failed.expect("the window is full at last");
    assert_eq!(reason.code, "context_overflow");
    assert!(reason.message.contains("the summary is no shorter"), "{reason:?}");
    assert!(summaries_asked(&vendor) <= 8, "one try for each turn");
    rig.sound(session).await;
}

//! A vendor that dies in the middle of its reply: the turn is completed when it is back, and nothing is said twice.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use futures::future::join_all;
use tenure_core::{event::Body, model::FaultKind};
use tenure_engine::RecordStatus;
use tenure_testkit::{
    trusting,
    vendor::{Answer, Asked, FakeVendor, Format, Piece, Speech},
    within,
};

use super::{plain, replies, says};

const REPLY: &str = "One two three four five.";

/// Where a reply can be cut between two events, and where its closing mark begins.
fn boundaries(events: &str) -> Vec<usize> {
    let ends = events.match_indices("\n\n").map(|(at, _)| at + 2);
    std::iter::once(0).chain(ends).collect()
}

/// The number in `cut here: N.`
fn cut_of(asked: &Asked) -> usize {
    let text = String::from_utf8_lossy(&asked.body);
    // A look at what there is has none.
    let Some((_, rest)) = text.rsplit_once("cut here: ") else { return usize::MAX };
    rest.split('.').next().and_then(|number| number.parse().ok()).expect("a number")
}

#[tokio::test]
async fn a_reply_cut_anywhere_is_begun_again() {
    for format in Format::ALL {
        let events = Speech::text(REPLY).events(format);
        let cuts = boundaries(&events);
        let broken = Mutex::new(BTreeSet::new());
        let told = events.clone();
        let vendor = FakeVendor::with(move |asked, _| {
            let at = cut_of(asked);
            let is_first = broken.lock().unwrap_or_else(PoisonError::into_inner).insert(at);
            let answer = Answer::events(told.clone());
            if is_first { answer.until(at, Piece::Cut) } else { answer }
        })
        .await;
        let rig = plain(&vendor, format).await;
        let rig = &rig;
        let turns = cuts.iter().map(|at| async move {
            let session = rig.create_with(trusting).await;
            let record = rig.ask(session, &format!("cut here: {at}.")).await;
            let how = format!("{format:?} at {at}");
            assert_eq!(record.status, RecordStatus::Completed, "{how}: {:?}", record.error);
            rig.sound(session).await;
            let log = rig.events(session).await;
            assert_eq!(replies(&log), [REPLY], "{how}");
            let failed = log.iter().filter_map(|event| match &event.body {
                Body::ModelAttemptFailed(failed) => Some((failed.reason.kind, failed.text.clone())),
                _ => None,
            });
            let failed: Vec<_> = failed.collect();
            for (kind, text) in &failed {
                assert_eq!(*kind, FaultKind::StreamCut, "{how}");
                assert!(REPLY.starts_with(text.as_str()), "{how}: {text}");
            }
            failed.len()
        });
        let failed: Vec<usize> = join_all(turns).await;
        // Behind the closing mark there is nothing left to lose.
        let whole = failed.iter().rev().take_while(|count| **count == 0).count();
        let expected = match format {
            Format::Anthropic | Format::Responses | Format::Gemini => 1,
            Format::Chat => 3,
        };
        assert_eq!(whole, expected, "{format:?}: {failed:?}");
        assert!(failed[..failed.len() - whole].iter().all(|count| *count == 1), "{format:?}: {failed:?}");
    }
}

#[tokio::test]
async fn a_vendor_that_is_gone_for_a_while_is_waited_for() {
    for format in Format::ALL {
        let vendor = FakeVendor::start().await;
        let events = Speech::text(REPLY).events(format);
        vendor.plan(Answer::events(events.clone()).until(events.len() / 2, Piece::Cut));
        let rig = plain(&vendor, format).await;
        let session = rig.create().await;
        let mut watcher = rig.watch(session, tenure_core::cursor::Cursor::START).await;
        let turn = rig.say(session, "hi").await;
        let address = vendor.address();
        watcher.until("model_attempt_failed").await;
        drop(vendor);
        watcher.until("model_attempt_failed").await;
        let _vendor = within("the port is free", FakeVendor::at(address, move |_, _| says(format, REPLY))).await;
        let record = rig.settled(session, turn).await;
        assert_eq!(record.status, RecordStatus::Completed, "{format:?}: {:?}", record.error);
        assert_eq!(replies(&rig.events(session).await), [REPLY]);
        rig.sound(session).await;
    }
}

#[tokio::test]
async fn five_thousand_fragments_arrive_in_order() {
    let format = Format::Chat;
    let words: Vec<String> = (0..5_000).map(|number| format!("{number} ")).collect();
    let text = words.concat();
    let events = Speech::text(&text).events(format);
    let vendor = FakeVendor::start().await;
    vendor.plan(Answer::events(events.clone()));
    let pieces = events.split_inclusive("\n\n").map(|event| Piece::Bytes(event.into())).collect();
    vendor.plan(Answer { pieces, ..Answer::events("") });
    let rig = plain(&vendor, format).await;
    for how in ["at once", "one by one"] {
        let session = rig.create().await;
        let recorder = rig.record(session).await;
        let record = rig.ask(session, how).await;
        assert_eq!(record.response.expect("a reply").text, text, "{how}");
        let items = rig.sound(session).await;
        let live = recorder.up_to(items.last().expect("items").cursor).await;
        tenure_testkit::assert_sound(&live);
        let shown = live.iter().filter(|item| item.wire_type == "model_output_delta");
        let shown: String =
            shown.map(|item| tenure_testkit::as_json(item)["data"]["text"].as_str().unwrap().to_owned()).collect();
        assert_eq!(shown, text, "{how}");
    }
}

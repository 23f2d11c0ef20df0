//! Token counts: the vendor's vocabulary, guesses until it is there, and the gauge that corrects both.

use std::{sync::Arc, time::Duration};

use proptest::{collection::vec, prelude::*};
use tenure_core::{context::ChatMessage, message::Part};
use tenure_models::tokens::{Counter, Gauge, of_message};

use crate::request::{request, tool_result, user};

/// Waits until all that was asked for is counted.
fn settle(counter: &Counter) {
    while !counter.is_idle() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What stands around a message is left out.
fn text_tokens(counter: &Counter, message: &Arc<ChatMessage>) -> u64 {
    counter.of_message(message) - counter.of_message(&Arc::new(user("")))
}

fn counted(counter: &Counter, message: &Arc<ChatMessage>) -> u64 {
    counter.of_message(message);
    settle(counter);
    text_tokens(counter, message)
}

#[test]
fn texts_are_counted_by_the_vocabulary() {
    let counter = Counter::default();
    let cases = [
        ("hello world", 2),
        ("tiktoken is great!", 6),
        ("antidisestablishmentarianism", 6),
        ("お誕生日おめでとう", 8),
        ("2 + 2 = 4", 7),
        ("", 0),
    ];
    for (text, tokens) in cases {
        assert_eq!(counted(&counter, &Arc::new(user(text))), tokens, "{text:?}");
    }
}

#[test]
fn a_guess_serves_until_then() {
    let counter = Counter::default();
    let message = Arc::new(tool_result(&"word ".repeat(400)));
    assert_eq!(text_tokens(&counter, &message), of_message(&message));
    settle(&counter);
    assert_eq!(text_tokens(&counter, &message), 401);
}

#[test]
fn guesses_learn_from_what_was_counted() {
    let counter = Counter::default();
    // Each of these is one token, of many bytes.
    let long = || Arc::new(user(&" international".repeat(5_000)));
    counted(&counter, &long());
    let guessed = text_tokens(&counter, &long());
    assert!((5_000..7_000).contains(&guessed), "{guessed}");
}

#[test]
fn text_that_has_no_end_of_a_word_is_counted_too() {
    let counter = Counter::default();
    for text in ["a".repeat(1 << 18), " ".repeat(1 << 18), "\n".repeat(1 << 16), "\u{1F980}".repeat(1 << 14)] {
        let tokens = counted(&counter, &Arc::new(user(&text)));
        assert!(tokens > 0 && tokens <= text.len() as u64, "{tokens}");
    }
}

#[test]
fn a_request_is_its_messages_and_what_comes_before_them() {
    let counter = Counter::default();
    let mut asked = request(vec![user("hello world"), user("2 + 2 = 4")]);
    let total = |asked: &_| {
        counter.of_request(asked);
        settle(&counter);
        counter.of_request(asked)
    };
    let bare = total(&asked);
    asked.system = vec!["hello world".into()];
    let with_prompt = total(&asked);
    // The line's end is a token.
    assert_eq!(with_prompt - bare, 3);
    asked.messages.push(Arc::new(ChatMessage::User {
        parts: vec![Part::Image { r#ref: "att_1.png".into(), mime_type: "image/png".into() }],
    }));
    assert!(total(&asked) > with_prompt + 1_000);
}

#[test]
fn a_guess_is_not_compared_with_what_the_vendor_counts_once_there_is_a_vocabulary() {
    let counter = Counter::default();
    // Each byte of these is nearly a token: a guess by bytes is far too low.
    let asked = request(vec![user(&"{[(<>)]}".repeat(2_000))]);
    let guessed = counter.of_request(&asked);
    assert_eq!(Counter::default().counted(&asked), None, "nothing is counted that was never handed over");
    settle(&counter);
    let counted = counter.counted(&asked).expect("all of it is counted");
    assert_eq!(counted, counter.of_request(&asked));
    assert!(counted > guessed + guessed / 4 || counted + counted / 4 < guessed, "{guessed} for {counted}");
    let mut longer = asked.clone();
    longer.messages.push(Arc::new(user("more")));
    assert_eq!(counter.counted(&longer), None, "a part of it is guessed");
}

proptest! {
    #[test]
    fn the_gauge_converges(past in vec(any::<(u64, u64)>(), 0..8), ratio in 0.1_f64..10.0, guesses in vec(1_000_u64..10_000_000, 3)) {
        let mut gauge = Gauge::default();
        for (guessed, counted) in past {
            gauge.set(guessed, counted);
        }
        for guessed in &guesses {
            gauge.set(*guessed, (*guessed as f64 * ratio) as u64);
        }
        let (read, true_count) = (gauge.read(1_000_000) as f64, 1_000_000.0 * ratio);
        prop_assert!((read - true_count).abs() <= true_count * 0.02 + 1.0, "{read} for {true_count}");
    }

    #[test]
    fn one_wild_number_changes_nothing(ratio in 0.2_f64..5.0, wild in any::<(u64, u64)>()) {
        let mut gauge = Gauge::default();
        let honest = (1_000_000, (1_000_000.0 * ratio) as u64);
        gauge.set(honest.0, honest.1);
        gauge.set(honest.0, honest.1);
        let before = gauge.read(500_000);
        gauge.set(wild.0, wild.1);
        prop_assert_eq!(gauge.read(500_000), before);
    }

    #[test]
    fn whatever_it_is_told_it_reads_on(told in vec(any::<(u64, u64)>(), 0..20), guessed in any::<u64>(), more in any::<u64>()) {
        let mut gauge = Gauge::default();
        for (guessed, counted) in told {
            gauge.set(guessed, counted);
        }
        let read = gauge.read(guessed);
        prop_assert_eq!(gauge.read(0), 0);
        prop_assert!(read >= guessed / 11 && read <= guessed.saturating_mul(10).saturating_add(1));
        prop_assert!(gauge.read(guessed.saturating_add(more)) >= read);
    }
}

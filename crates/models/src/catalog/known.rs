//! Facts on the models that vendors sell: windows, prices, abilities. Vendors change them; the user's config has the last word.

use crate::entry::{Entry, LongPrices, PartKind, Prices, Rates, ThinkingStyle};

/// What `small`, `default` and `premium` stand for where a vendor's key is there.
pub(super) const ANTHROPIC_ALIASES: &[(&str, &str)] =
    &[("small", "claude-haiku-5-5"), ("default", "claude-opus-5-5"), ("premium", "claude-fable-5-1")];
pub(super) const OPENAI_ALIASES: &[(&str, &str)] =
    &[("small", "gpt-6-luna"), ("default", "gpt-6.1-sol"), ("premium", "gpt-6-astra")];
pub(super) const GOOGLE_ALIASES: &[(&str, &str)] =
    &[("small", "gemini-3.5-flash-lite"), ("default", "gemini-4-hydrogen"), ("premium", "gemini-4-carbon")];

/// One model, or a family of them.
struct Known {
    /// Its name; dated and other variants begin with it.
    name: &'static str,
    window: u64,
    output_max: u64,
    /// US dollars for a million tokens: input, output, cache read, cache write.
    rates: Option<[f64; 4]>,
    /// Above so many tokens the whole request has other rates.
    long: Option<(u64, [f64; 4])>,
    thinking: ThinkingStyle,
    takes: &'static [PartKind],
}

const SEEN: &[PartKind] = &[PartKind::Image, PartKind::File];
const HEARD: &[PartKind] = &[PartKind::Image, PartKind::Audio, PartKind::File];

/// As of November 2026. A price that its vendor has announced to change is left out: unknown is better than wrong.
#[rustfmt::skip]
const KNOWN: &[Known] = &[
    Known { name: "anthropic/claude-fable-5-1", window: 1_000_000, output_max: 128_000, rates: Some([10.0, 50.0, 0.25, 12.5]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-opus-5-5", window: 1_000_000, output_max: 128_000, rates: Some([4.0, 20.0, 0.2, 5.0]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-sonnet-5-5", window: 1_000_000, output_max: 128_000, rates: Some([2.0, 10.0, 0.1, 2.5]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-haiku-5-5", window: 1_000_000, output_max: 128_000, rates: Some([0.1, 0.5, 0.01, 0.125]), long: Some((100_000, [0.5, 2.5, 0.05, 0.625])), thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-fable-5", window: 1_000_000, output_max: 128_000, rates: Some([10.0, 50.0, 1.0, 12.5]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-opus-5", window: 1_000_000, output_max: 128_000, rates: Some([5.0, 25.0, 0.5, 6.25]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-sonnet-5", window: 1_000_000, output_max: 128_000, rates: Some([2.0, 10.0, 0.2, 2.5]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-opus-4-8", window: 1_000_000, output_max: 128_000, rates: Some([5.0, 25.0, 0.5, 6.25]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-opus-4-7", window: 1_000_000, output_max: 128_000, rates: Some([5.0, 25.0, 0.5, 6.25]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-opus-4-6", window: 1_000_000, output_max: 128_000, rates: Some([5.0, 25.0, 0.5, 6.25]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-opus-4-5", window: 200_000, output_max: 64_000, rates: Some([5.0, 25.0, 0.5, 6.25]), long: None, thinking: ThinkingStyle::Budget, takes: SEEN },
    Known { name: "anthropic/claude-sonnet-4-6", window: 1_000_000, output_max: 64_000, rates: Some([3.0, 15.0, 0.3, 3.75]), long: None, thinking: ThinkingStyle::Adaptive, takes: SEEN },
    Known { name: "anthropic/claude-haiku-4-5", window: 200_000, output_max: 64_000, rates: Some([1.0, 5.0, 0.1, 1.25]), long: None, thinking: ThinkingStyle::Budget, takes: SEEN },
    Known { name: "openai/gpt-6-astra", window: 1_050_000, output_max: 128_000, rates: Some([10.0, 50.0, 1.0, 12.5]), long: Some((272_000, [20.0, 75.0, 2.0, 25.0])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-6.1-sol", window: 1_050_000, output_max: 128_000, rates: Some([2.0, 10.0, 0.1, 2.5]), long: Some((272_000, [4.0, 15.0, 0.2, 5.0])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-6.1-terra", window: 1_050_000, output_max: 128_000, rates: Some([1.0, 5.0, 0.05, 1.25]), long: Some((272_000, [2.0, 7.5, 0.1, 2.5])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-6-sol", window: 1_050_000, output_max: 128_000, rates: Some([2.0, 10.0, 0.2, 2.5]), long: Some((272_000, [4.0, 15.0, 0.4, 5.0])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-6-luna", window: 1_050_000, output_max: 128_000, rates: Some([0.1, 0.5, 0.01, 0.125]), long: Some((272_000, [0.2, 0.75, 0.02, 0.25])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-5.6-sol", window: 1_050_000, output_max: 128_000, rates: Some([4.0, 20.0, 0.4, 5.0]), long: Some((272_000, [8.0, 30.0, 0.8, 10.0])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-5.6", window: 1_050_000, output_max: 128_000, rates: Some([4.0, 20.0, 0.4, 5.0]), long: Some((272_000, [8.0, 30.0, 0.8, 10.0])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-5.6-terra", window: 1_050_000, output_max: 128_000, rates: Some([2.0, 12.0, 0.2, 2.5]), long: Some((272_000, [4.0, 18.0, 0.4, 5.0])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-5.6-luna", window: 1_050_000, output_max: 128_000, rates: Some([0.2, 1.2, 0.02, 0.25]), long: Some((272_000, [0.4, 1.8, 0.04, 0.5])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-5.5", window: 1_050_000, output_max: 128_000, rates: Some([5.0, 30.0, 0.5, 5.0]), long: Some((272_000, [10.0, 45.0, 1.0, 10.0])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-5.4", window: 1_050_000, output_max: 128_000, rates: Some([2.5, 15.0, 0.25, 2.5]), long: Some((272_000, [5.0, 22.5, 0.5, 5.0])), thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-5.4-mini", window: 400_000, output_max: 128_000, rates: Some([0.75, 4.5, 0.075, 0.75]), long: None, thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-5.2", window: 400_000, output_max: 128_000, rates: Some([1.75, 14.0, 0.175, 1.75]), long: None, thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/gpt-5.1", window: 400_000, output_max: 128_000, rates: Some([1.25, 10.0, 0.125, 1.25]), long: None, thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "openai/o3", window: 200_000, output_max: 100_000, rates: Some([2.0, 8.0, 0.5, 2.0]), long: None, thinking: ThinkingStyle::Effort, takes: SEEN },
    Known { name: "google/gemini-4-carbon", window: 1_048_576, output_max: 65_536, rates: None, long: None, thinking: ThinkingStyle::Effort, takes: HEARD },
    Known { name: "google/gemini-4-argon", window: 1_048_576, output_max: 65_536, rates: None, long: None, thinking: ThinkingStyle::Effort, takes: HEARD },
    Known { name: "google/gemini-4-hydrogen", window: 1_048_576, output_max: 65_536, rates: Some([1.5, 7.5, 0.075, 1.5]), long: None, thinking: ThinkingStyle::Effort, takes: HEARD },
    Known { name: "google/gemini-3.8-flash", window: 1_048_576, output_max: 65_536, rates: None, long: None, thinking: ThinkingStyle::Effort, takes: HEARD },
    Known { name: "google/gemini-3.6-flash", window: 1_048_576, output_max: 65_536, rates: None, long: None, thinking: ThinkingStyle::Effort, takes: HEARD },
    Known { name: "google/gemini-3.5-flash-lite", window: 1_048_576, output_max: 65_536, rates: Some([0.3, 2.5, 0.03, 0.3]), long: None, thinking: ThinkingStyle::Effort, takes: HEARD },
    Known { name: "google/gemini-3.1-pro-preview", window: 1_048_576, output_max: 65_536, rates: Some([2.0, 12.0, 0.2, 2.0]), long: Some((200_000, [4.0, 18.0, 0.4, 4.0])), thinking: ThinkingStyle::Effort, takes: HEARD },
];

/// The names that can be listed.
pub(super) fn names() -> impl Iterator<Item = String> {
    KNOWN.iter().map(|known| known.name.to_owned())
}

/// Puts what is known of a model over what is supposed of all.
pub(super) fn lay_over(entry: &mut Entry) {
    // The longest name that fits: `gpt-5-mini` is not a variant of `gpt-5`.
    let fitting = KNOWN.iter().filter(|known| is_variant(&entry.name, known.name));
    let Some(known) = fitting.max_by_key(|known| known.name.len()) else { return };
    entry.window = Some(known.window);
    entry.output_max = Some(known.output_max);
    entry.prices = known.rates.map(|numbers| {
        let long = known.long.map(|(above, numbers)| LongPrices { above, rates: rates(numbers) });
        Prices { rates: rates(numbers), long }
    });
    entry.thinking = known.thinking;
    entry.takes = known.takes.to_vec();
}

fn rates([input, output, cache_read, cache_write]: [f64; 4]) -> Rates {
    Rates { input, output, cache_read: Some(cache_read), cache_write: Some(cache_write) }
}

/// `claude-x`, `claude-x-20260101`, `claude-x-latest`; not `claude-x-mini` or `claude-x-5`, which are other models.
fn is_variant(name: &str, of: &str) -> bool {
    match name.strip_prefix(of) {
        Some("" | "-latest") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|date| date.len() >= 4 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')),
        None => false,
    }
}

//! Facts on the models that vendors sell: windows, prices, abilities. Vendors change them; the user's config has the last word.

use crate::entry::{Entry, LongPrices, PartKind, Prices, Rates, ThinkingStyle};

/// What `small`, `default` and `premium` stand for where a vendor's key is there.
pub(super) const ANTHROPIC_ALIASES: &[(&str, &str)] = &[];
pub(super) const OPENAI_ALIASES: &[(&str, &str)] = &[];
pub(super) const GOOGLE_ALIASES: &[(&str, &str)] = &[];

/// One model, or a family of them.
struct Known {
    /// Its name; dated and other variants begin with it.
    name: &'static str,
    window: u64,
    output_max: u64,
    rates: [f64; 4],
    long: Option<(u64, [f64; 4])>,
    thinking: ThinkingStyle,
    takes: &'static [PartKind],
}

const KNOWN: &[Known] = &[];

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
    let long = known.long.map(|(above, numbers)| LongPrices { above, rates: rates(numbers) });
    entry.prices = Some(Prices { rates: rates(known.rates), long });
    entry.thinking = known.thinking;
    entry.takes = known.takes.to_vec();
}

/// Input, output, cache read, cache write.
fn rates([input, output, cache_read, cache_write]: [f64; 4]) -> Rates {
    Rates { input, output, cache_read: Some(cache_read), cache_write: Some(cache_write) }
}

/// `claude-x`, and `claude-x-20260101`, `claude-x-latest`; not `claude-x-mini`, which is another model at another price.
fn is_variant(name: &str, of: &str) -> bool {
    match name.strip_prefix(of) {
        Some("" | "-latest") => true,
        Some(rest) => rest
            .strip_prefix('-')
            .is_some_and(|date| date.len() >= 4 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')),
        None => false,
    }
}

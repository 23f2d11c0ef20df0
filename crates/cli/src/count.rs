//! Numbers as people say them, `1 session` and `2 sessions`, and as they write them.

use std::ops::RangeInclusive;

/// The number and the word for it; `one` is a word whose plural ends in `s`.
pub fn counted(number: u64, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {one}{ending}")
}

/// A number of the command line that lies in the range.
pub fn within(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let bad = || match *range.end() {
            u64::MAX => format!("write a whole number from {} up", range.start()),
            end => format!("write a whole number from {} to {end}", range.start()),
        };
        text.parse().ok().filter(|number| range.contains(number)).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "event")), ["0 events", "1 event", "2 events"]);
    }

    #[test]
    fn numbers_lie_in_their_range() {
        assert_eq!(within(0..=9)("9"), Ok(9));
        assert_eq!(within(0..=9)("10"), Err("write a whole number from 0 to 9".into()));
        assert_eq!(within(1..=u64::MAX)("x"), Err("write a whole number from 1 up".into()));
    }
}

//! Numbers of things as people say them: `1 session`, `2 sessions`.

/// The number and the word for it; `one` is a word whose plural ends in `s`.
pub fn counted(number: u64, one: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {one}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "event")), ["0 events", "1 event", "2 events"]);
    }
}

//! Spans of time as people write them: `90s`, `10m`, `12h`, `30d`, `2w`.

/// A span in milliseconds, above nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Millis(pub u64);

pub fn parse(text: &str) -> Result<Millis, String> {
    let bad = || format!("'{text}' is no time: write a number and s, m, h, d or w, such as 12h");
    read(text).filter(|ms| *ms > 0).map(Millis).ok_or_else(bad)
}

/// Milliseconds, which may be none.
pub fn read(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.char_indices().next_back()?.0);
    let unit_ms: u64 = match unit {
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        "w" => 7 * 24 * 3600 * 1000,
        _ => return None,
    };
    // A sign is none of it.
    let digits = Some(number).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse::<u64>().ok()?.checked_mul(unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (text, ms) in
            [("1s", 1000), ("10m", 600_000), ("2h", 7_200_000), ("30d", 2_592_000_000), ("2w", 1_209_600_000)]
        {
            assert_eq!(parse(text), Ok(Millis(ms)), "{text}");
        }
        for bad in
            ["", "s", "1", "0s", "-1s", "+1s", "1.5h", "1 h", "1y", "1ü", "99999999999999999999d", "9999999999999999d"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}

//! A series of measured times and what is said of it. It knows no clock.

use std::time::Duration;

/// Times of the same thing, in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Times(Vec<f64>);

impl Times {
    pub fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64() * 1000.0);
    }

    /// The value below which this share of them lies; 0 where there is none.
    fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().saturating_sub(1);
        sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(0.0)
    }

    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub fn p90(&self) -> f64 {
        self.quantile(0.9)
    }

    /// Least and ninetieth percentile, for the remark beside a median.
    pub fn spread(&self) -> String {
        format!("min {}, p90 {}", shown(self.min()), shown(self.p90()))
    }
}

impl FromIterator<Duration> for Times {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Times {
        let mut all = Times::default();
        times.into_iter().for_each(|time| all.add(time));
        all
    }
}

/// Three digits that matter, so that small and large numbers can stand in one column.
pub fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_few_and_of_none() {
        let times: Times = [3, 1, 2].map(Duration::from_millis).into_iter().collect();
        assert_eq!((times.min(), times.median(), times.p90()), (1.0, 2.0, 3.0));
        assert_eq!(Times::default().median(), 0.0);
        assert_eq!([0.1234, 12.34, 1234.5].map(shown), ["0.12", "12.3", "1234"]);
    }
}

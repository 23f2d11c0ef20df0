//! How slow a body of any length may be: waiting costs, bytes pay for it. What was sent fast is no credit for later, and the
//! time that its reader takes does not count.

use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::time::timeout;

#[derive(Debug)]
pub(crate) struct Pace {
    /// How long it may be silent, and the most that there is to spend.
    grace: Duration,
    bytes_per_second_min: usize,
    left: Duration,
}

/// The body is slower than it may be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooSlow;

impl Pace {
    pub(crate) fn new(grace: Duration, bytes_per_second_min: usize) -> Self {
        Self { grace, bytes_per_second_min: bytes_per_second_min.max(1), left: grace }
    }

    /// The next piece of the body, if it comes in time; none at its end.
    pub(crate) async fn frame(
        &mut self,
        body: &mut Body,
    ) -> Result<Option<Result<Frame<Bytes>, axum::Error>>, TooSlow> {
        let began = Instant::now();
        let frame = timeout(self.left, body.frame()).await.map_err(|_| TooSlow)?;
        let bytes = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()).map_or(0, Bytes::len);
        self.take(began.elapsed(), bytes);
        Ok(frame)
    }

    fn take(&mut self, waited: Duration, bytes: usize) {
        let earned = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second_min as f64);
        self.left = self.left.saturating_sub(waited).saturating_add(earned).min(self.grace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of such pieces, one a second, is waited for in vain; none if all come in time.
    fn lasts(pace: &mut Pace, bytes: usize) -> Option<usize> {
        (1..10_000).find(|_| {
            let second = Duration::from_secs(1);
            let in_vain = pace.left <= second;
            pace.take(second, bytes);
            in_vain
        })
    }

    #[test]
    fn a_drip_lasts_as_long_as_the_grace_and_a_steady_stream_for_ever() {
        let pace = || Pace::new(Duration::from_secs(30), 1000);
        assert_eq!(lasts(&mut pace(), 0), Some(30));
        assert_eq!(lasts(&mut pace(), 10), Some(31));
        assert_eq!(lasts(&mut pace(), 500), Some(59));
        assert_eq!(lasts(&mut pace(), 1000), None);
        assert_eq!(lasts(&mut pace(), 1_000_000), None);
    }

    #[test]
    fn a_fast_beginning_buys_no_slow_end() {
        let mut pace = Pace::new(Duration::from_secs(30), 1000);
        pace.take(Duration::from_secs(1), 1 << 40);
        assert_eq!(lasts(&mut pace, 0), Some(30));
    }

    #[test]
    fn a_pause_within_the_grace_is_made_up_for() {
        let mut pace = Pace::new(Duration::from_secs(30), 1000);
        pace.take(Duration::from_secs(29), 29_000);
        assert_eq!(pace.left, Duration::from_secs(30));
    }
}

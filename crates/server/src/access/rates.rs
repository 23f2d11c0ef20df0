//! How often something may happen: buckets that fill with time, and counts per address. Both are bounded in number.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Addresses that are remembered for their failures; more than this at one time are taken for one.
const ADDRESSES_MAX: usize = 4096;

/// So many a second, and so many at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_second: f64,
    pub(crate) burst: f64,
}

impl Rate {
    pub(crate) fn per_second(per_second: usize, burst: usize) -> Self {
        Self { per_second: per_second as f64, burst: burst.max(1) as f64 }
    }

    pub(crate) fn per_minute(per_minute: usize) -> Self {
        Self { per_second: per_minute as f64 / 60.0, burst: per_minute.max(1) as f64 }
    }
}

/// What is left of a rate. A new one is full.
#[derive(Debug, Default)]
pub(crate) struct Bucket(Mutex<Option<Level>>);

#[derive(Debug, Clone, Copy)]
struct Level {
    left: f64,
    at: Instant,
}

impl Bucket {
    /// Takes one, or says how long to wait for it.
    pub(crate) fn take(&self, rate: Rate, now: Instant) -> Result<(), Duration> {
        let mut level = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left = level.map_or(rate.burst, |level| {
            let gained = now.saturating_duration_since(level.at).as_secs_f64() * rate.per_second;
            (level.left + gained).min(rate.burst)
        });
        let taken = left >= 1.0;
        *level = Some(Level { left: if taken { left - 1.0 } else { left }, at: now });
        match taken {
            true => Ok(()),
            false => Err(Duration::from_secs_f64((1.0 - left) / rate.per_second.max(f64::MIN_POSITIVE))),
        }
    }

    fn is_full(&self, rate: Rate, now: Instant) -> bool {
        let level = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        level.is_none_or(|Level { left, at }| {
            left + now.saturating_duration_since(at).as_secs_f64() * rate.per_second >= rate.burst
        })
    }
}

/// An address as it is counted: one machine often has a whole network of IPv6 addresses.
pub(crate) fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let network = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        other => other,
    }
}

/// Requests that showed nothing valid, by address.
pub(crate) struct Failures {
    rate: Rate,
    buckets: Mutex<HashMap<IpAddr, Arc<Bucket>>>,
}

impl Failures {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, buckets: Mutex::default() }
    }

    /// Notes one more, or says that there were too many.
    pub(crate) fn note(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let bucket = {
            let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
            if buckets.len() >= ADDRESSES_MAX {
                buckets.retain(|_, bucket| !bucket.is_full(self.rate, now));
            }
            let known = buckets.len() < ADDRESSES_MAX;
            let place = if known { place(address) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) };
            Arc::clone(buckets.entry(place).or_default())
        };
        bucket.take(self.rate, now)
    }
}

/// Connections at one time, by address.
#[derive(Clone)]
pub(crate) struct Crowd {
    most: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Crowd {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, counts: Arc::default() }
    }

    /// A place for one more, given back when it is dropped.
    pub(crate) fn enter(&self, address: IpAddr) -> Option<Seat> {
        let address = place(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(Seat { crowd: self.clone(), address })
    }
}

pub(crate) struct Seat {
    crowd: Crowd,
    address: IpAddr,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.crowd.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_fills_with_time() {
        let (bucket, rate, start) = (Bucket::default(), Rate::per_second(2, 3), Instant::now());
        assert!((0..3).all(|_| bucket.take(rate, start).is_ok()));
        assert_eq!(bucket.take(rate, start), Err(Duration::from_millis(500)));
        assert_eq!(bucket.take(rate, start + Duration::from_millis(250)), Err(Duration::from_millis(250)));
        assert!(bucket.take(rate, start + Duration::from_millis(500)).is_ok());
        assert!(bucket.take(rate, start + Duration::from_millis(500)).is_err());
        let later = start + Duration::from_secs(3600);
        assert_eq!((0..9).filter(|_| bucket.take(rate, later).is_ok()).count(), 3, "it holds no more than its burst");
    }

    #[test]
    fn failures_of_one_address_are_not_those_of_another() {
        let (failures, now) = (Failures::new(Rate::per_minute(2)), Instant::now());
        let at = |text: &str| failures.note(text.parse().unwrap(), now).is_ok();
        assert_eq!([at("10.0.0.1"), at("10.0.0.1"), at("10.0.0.1"), at("10.0.0.2")], [true, true, false, true]);
        assert!(at("2001:db8::1") && at("2001:db8::2"));
        assert!(!at("2001:db8::3"), "one network is one address");
        assert!(!at("::ffff:10.0.0.1"), "and one address has one spelling");
    }

    #[test]
    fn many_addresses_take_bounded_room() {
        let (failures, now) = (Failures::new(Rate::per_minute(2)), Instant::now());
        for number in 0..u32::try_from(3 * ADDRESSES_MAX).unwrap() {
            let _ = failures.note(IpAddr::V4(number.into()), now);
        }
        assert!(failures.buckets.lock().unwrap().len() <= ADDRESSES_MAX + 1);
    }

    #[test]
    fn a_seat_is_given_back() {
        let crowd = Crowd::new(2);
        let address = "127.0.0.1".parse().unwrap();
        let (first, second) = (crowd.enter(address), crowd.enter(address));
        assert!(first.is_some() && second.is_some() && crowd.enter(address).is_none());
        assert!(crowd.enter("127.0.0.2".parse().unwrap()).is_some());
        drop(first);
        assert!(crowd.enter(address).is_some());
        drop(second);
        assert!(crowd.counts.lock().unwrap().is_empty());
    }
}

//! A token bucket in eight bytes.
//!
//! The generic cell rate algorithm: instead of a number of tokens and the time of the last refill, one
//! keeps the time at which everything taken so far would have been earned. Taking is always possible
//! (one cannot know how much a read returns before it returns); what is taken beyond the burst delays
//! the next taking.

/// How much may be taken at once after a pause, as time: what the rate yields in one second.
const BURST_US: u64 = 1_000_000;

/// A throttled connection waits for what the rate yields in as long, at least.
const LEAST_WAIT_US: u64 = 20_000;

/// A rate; 0: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BytesPerSecond(pub u64);

/// The rates of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rates {
    /// What it may send.
    pub bytes_in: BytesPerSecond,
    /// What it is sent.
    pub bytes_out: BytesPerSecond,
}

/// A group of connections with rates of their own, by its number, from 1; 0: none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RateGroup(pub u8);

/// Takings from a rate that the caller names at each call, so that a reload applies at once.
#[derive(Clone, Copy, Default, Debug)]
pub struct RateBucket {
    /// The time in µs at which all that was taken is earned.
    earned_at_us: u64,
}

impl RateBucket {
    /// How much may be taken now. A rate of 0 means without limit.
    #[must_use]
    pub fn available(&self, rate_per_s: u64, now_ms: u64) -> u64 {
        if rate_per_s == 0 {
            return u64::MAX;
        }
        let debt = self.earned_at_us.saturating_sub(now_ms * 1000);
        let room = BURST_US.saturating_sub(debt);
        (u128::from(room) * u128::from(rate_per_s) / 1_000_000) as u64
    }

    /// Takes an amount, also more than is available.
    pub fn take(&mut self, amount: u64, rate_per_s: u64, now_ms: u64) {
        if rate_per_s != 0 {
            let cost = u128::from(amount) * 1_000_000 / u128::from(rate_per_s);
            let from = self.earned_at_us.max(now_ms * 1000);
            self.earned_at_us = from.saturating_add(u64::try_from(cost).unwrap_or(u64::MAX));
        }
    }

    /// When, in ms, there will be something to take: one, and 1/50 s worth at least, so that a throttled
    /// connection wakes 50 times a second at most, and not for every byte.
    #[must_use]
    pub fn resumes_at(&self, rate_per_s: u64, now_ms: u64) -> u64 {
        let one_us = 1_000_000_u64.div_ceil(rate_per_s.max(1));
        let from_us = self.earned_at_us.saturating_sub(BURST_US);
        let at_us = from_us.saturating_add(one_us.max(LEAST_WAIT_US));
        at_us.div_ceil(1000).max(now_ms + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_keeps_to_its_rate_after_the_burst() {
        let mut bucket = RateBucket::default();
        let (rate, mut now, mut taken) = (1000, 5_000, 0);
        let start = now;
        while now < start + 10_000 {
            if bucket.available(rate, now) > 0 {
                bucket.take(100, rate, now);
                taken += 100;
            } else {
                let resumes = bucket.resumes_at(rate, now);
                assert!(resumes > now);
                now = resumes;
            }
        }
        // one second of burst, ten seconds of rate, and at most one taking too many
        assert!((11_000..=11_200).contains(&taken), "{taken}");
    }

    /// Whatever the rate, there is something to take when it resumes: nobody wakes in vain.
    #[test]
    fn what_resumes_can_take() {
        for rate in [1, 3, 7, 10, 49, 50, 51, 1_000, 524_288] {
            let mut bucket = RateBucket::default();
            let mut now = 77_000;
            bucket.take(
                bucket.available(rate, now).saturating_add(rate / 3),
                rate,
                now,
            );
            for _ in 0..20 {
                // What is left is less than a µs is worth.
                assert!(bucket.available(rate, now) <= rate / 500_000, "{rate}");
                let resumes = bucket.resumes_at(rate, now);
                assert!(resumes >= now + 10, "{rate}: {now} {resumes}");
                now = resumes;
                let available = bucket.available(rate, now);
                assert!(available > 0, "{rate}");
                bucket.take(available, rate, now);
            }
        }
    }

    #[test]
    fn no_rate_is_no_limit() {
        let mut bucket = RateBucket::default();
        bucket.take(u64::MAX, 0, 1);
        assert_eq!(bucket.available(0, 1), u64::MAX);
        bucket.take(u64::MAX, 1, 1);
        assert_eq!(bucket.available(1, 1), 0);
    }
}

//! How long to wait before the next attempt to connect.

use std::time::Duration;

use crate::options::Timings;

/// Doubles with each failure, up to a limit.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    limit: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(timings: &Timings) -> Self {
        Self {
            first: timings.backoff_min,
            limit: timings.backoff_max,
            next: timings.backoff_min,
        }
    }

    /// An attempt has succeeded.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// How long to wait after one more failure. `jitter` is a random number from 0 to 1: nodes that failed
    /// together do not come back together.
    pub(crate) fn wait(&mut self, jitter: f64) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(self.limit);
        full.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_limit_and_begin_again() {
        let mut backoff = Backoff::new(&Timings::default());
        let waits: Vec<_> = (0..7).map(|_| backoff.wait(1.0).as_millis()).collect();
        assert_eq!(waits, [50, 100, 200, 400, 800, 1000, 1000]);
        backoff.reset();
        assert_eq!(backoff.wait(0.0).as_millis(), 25);
    }
}

//! Whether a server that fails is asked again.

use std::time::Duration;

use tokio::time::Instant;

/// Lets requests through until so many have failed in a row; then none for a while; then one, on which it
/// depends how that goes on.
#[derive(Debug)]
pub(super) struct Breaker {
    limit: u16,
    pause: Duration,
    failures: u16,
    /// When one request may try again, if none may now.
    closed_until: Option<Instant>,
}

impl Breaker {
    pub(super) fn new(limit: u16, pause: Duration) -> Self {
        Self {
            limit,
            pause,
            failures: 0,
            closed_until: None,
        }
    }

    /// Whether a request may be made now. What comes of it must be told.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        let Some(until) = self.closed_until else {
            return true;
        };
        if now < until {
            return false;
        }
        // The others wait for this one, but not forever.
        self.closed_until = Some(now + self.pause);
        true
    }

    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.closed_until = None;
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.failures = self.failures.saturating_add(1);
        if self.failures >= self.limit {
            self.closed_until = Some(now + self.pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Breaker;

    const PAUSE: Duration = Duration::from_secs(10);

    #[test]
    fn failures_in_a_row_close_it_and_one_success_opens_it() {
        let mut breaker = Breaker::new(3, PAUSE);
        let start = Instant::now();
        breaker.failed(start);
        breaker.failed(start);
        breaker.succeeded();
        breaker.failed(start);
        breaker.failed(start);
        assert!(breaker.admits(start), "never three in a row");
        breaker.failed(start);
        assert!(!breaker.admits(start));
        assert!(!breaker.admits(start + PAUSE - Duration::from_millis(1)));
        assert!(breaker.admits(start + PAUSE), "one may try");
        assert!(!breaker.admits(start + PAUSE), "only one");
        breaker.succeeded();
        assert!(breaker.admits(start + PAUSE));
        breaker.failed(start + PAUSE);
        assert!(breaker.admits(start + PAUSE), "counted from the start");
    }

    #[test]
    fn a_try_that_fails_closes_it_for_another_pause() {
        let mut breaker = Breaker::new(1, PAUSE);
        let start = Instant::now();
        breaker.failed(start);
        assert!(breaker.admits(start + PAUSE));
        breaker.failed(start + PAUSE);
        assert!(!breaker.admits(start + PAUSE * 2 - Duration::from_millis(1)));
        assert!(breaker.admits(start + PAUSE * 2));
    }

    #[test]
    fn a_try_of_which_nothing_is_heard_does_not_close_it_for_ever() {
        let mut breaker = Breaker::new(1, PAUSE);
        let start = Instant::now();
        breaker.failed(start);
        assert!(breaker.admits(start + PAUSE));
        assert!(breaker.admits(start + PAUSE * 2));
    }
}

//! The largest of the values of a recent time. No I/O.

use std::time::{Duration, Instant};

/// The largest value of the last `span`, or of up to twice as long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recent {
    span: Duration,
    since: Instant,
    now: Largest,
    before: Largest,
}

#[derive(Clone, Copy, Debug, Default)]
struct Largest(u64);

impl Recent {
    pub(super) fn new(span: Duration, now: Instant) -> Self {
        Self {
            span,
            since: now,
            now: Largest::default(),
            before: Largest::default(),
        }
    }

    /// With this value.
    pub(super) fn most(&mut self, value: u64, now: Instant) -> u64 {
        if now.saturating_duration_since(self.since) >= self.span {
            self.before = std::mem::take(&mut self.now);
            self.since = now;
        }
        self.now.0 = self.now.0.max(value);
        self.now.0.max(self.before.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_counts_for_its_time_and_not_for_long() {
        let began = Instant::now();
        let mut recent = Recent::new(Duration::from_secs(10), began);
        let mut most = |value, at_s| recent.most(value, began + Duration::from_secs(at_s));
        assert_eq!(most(60, 0), 60);
        assert_eq!(most(45, 9), 60);
        assert_eq!(most(50, 12), 60);
        assert_eq!(most(70, 13), 70);
        assert_eq!(most(40, 23), 70);
        assert_eq!(most(40, 33), 40);
    }
}

//! Failures that repeat, for the log: one line a second.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How often a failure that repeats is written.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Keeps failures from filling the log.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<Failures>);

#[derive(Debug, Default)]
struct Failures {
    unwritten: u64,
    written_at: Option<Instant>,
}

impl FailureLog {
    /// Counts a failure. If a line is due: how many there were since the last line.
    pub(crate) fn count(&self, now: Instant) -> Option<u64> {
        let mut failures = self.0.lock();
        failures.unwritten += 1;
        let is_due = failures
            .written_at
            .is_none_or(|at| now.saturating_duration_since(at) >= LOG_INTERVAL);
        is_due.then(|| {
            failures.written_at = Some(now);
            std::mem::take(&mut failures.unwritten)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_written_once_a_second_with_their_number() {
        let log = FailureLog::default();
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        assert_eq!(log.count(start), Some(1));
        assert_eq!(log.count(after(1)), None);
        assert_eq!(log.count(after(999)), None);
        assert_eq!(log.count(after(1_000)), Some(3));
        assert_eq!(log.count(after(1_001)), None);
    }
}

//! Failed logins, and how long they make one wait.

use crate::limits::Limits;

/// The first wait; each further failure doubles it.
const FIRST_WAIT_MS: u64 = 1_000;

/// Failed logins of an address, or for a user name from there.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Failures {
    count: u32,
    last_ms: u64,
}

impl Failures {
    /// One more. Those before count no longer once the longest wait has passed after the last one's wait.
    pub(crate) fn add(&mut self, limits: &Limits, now_ms: u64) {
        if now_ms >= self.waits_until(limits) + limits.longest_wait_ms {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last_ms = now_ms;
    }

    /// Whether the next login is not looked at yet.
    pub(crate) fn must_wait(&self, limits: &Limits, now_ms: u64) -> bool {
        now_ms < self.waits_until(limits)
    }

    fn waits_until(&self, limits: &Limits) -> u64 {
        let Some(allowed) = limits.failed_logins else {
            return 0;
        };
        let wait = match self.count.checked_sub(allowed.get().into()) {
            None => 0,
            Some(doublings) => 1u64
                .checked_shl(doublings)
                .and_then(|factor| factor.checked_mul(FIRST_WAIT_MS))
                .map_or(limits.longest_wait_ms, |wait| {
                    wait.min(limits.longest_wait_ms)
                }),
        };
        self.last_ms + wait
    }
}

//! Failed logins for a user name at an address, with credentials at an address, or for a user name from anywhere, and
//! how long they make one wait.

use crate::limits::Limits;
use crate::slow_start::{Bounds, SlowStart};

/// The first wait; each further failure doubles it.
const FIRST_WAIT_MS: u64 = 1_000;

/// Logins that have failed or are being judged.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Failures {
    count: u32,
    last_ms: u64,
    /// Logins that are being judged.
    logins: SlowStart,
}

impl Failures {
    /// Lets a login through to be judged, unless too many are being judged. One is always let through.
    pub(crate) fn begin(&mut self, bounds: Bounds, now_ms: u64) -> bool {
        self.logins.begin(bounds, self.count, now_ms)
    }

    /// A login is judged, or given up.
    pub(crate) fn end(&mut self) {
        self.logins.end();
    }

    /// Lets a login through to be judged: once in an interval if as many have failed as may, unless too many are
    /// being judged if not.
    pub(crate) fn take_turn(&mut self, limits: &Limits, interval_ms: u64, now_ms: u64) -> bool {
        let is_suspect = limits
            .failed_logins
            .is_some_and(|allowed| self.count >= allowed.get().into())
            && now_ms < self.last_ms + limits.longest_wait_ms;
        if !is_suspect {
            // What failed longer ago does not count.
            let is_recent = now_ms < self.last_ms + limits.longest_wait_ms;
            let failed = if is_recent { self.count } else { 0 };
            let bounds = limits.logins_of_account();
            return self.logins.begin(bounds, failed, now_ms);
        }
        let may = now_ms >= self.logins.began_ms() + interval_ms;
        if may {
            self.logins.begin_anyway(now_ms);
        }
        may
    }

    /// A login has succeeded: more may be judged at the same time. What has failed still counts.
    pub(crate) fn succeeded(&mut self) {
        self.logins.succeeded();
    }

    /// A login has succeeded, and what has failed counts no more. Those that are being judged still are.
    pub(crate) fn forgive(&mut self) {
        self.count = 0;
        self.logins.succeeded();
    }

    /// What has failed counts no more; no login has succeeded.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// Whether one has failed since the last success, however long ago.
    pub(crate) fn has_failed(&self) -> bool {
        self.count > 0
    }

    /// Whether there is nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.logins.is_empty()
    }

    /// One more. Those before count no longer once the longest wait has passed after the last one's wait.
    pub(crate) fn add(&mut self, limits: &Limits, now_ms: u64) {
        self.logins.failed();
        if now_ms >= self.waits_until(limits) + limits.longest_wait_ms {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last_ms = now_ms;
    }

    /// One more, unless the wait after those before is not over: it was begun before the wait, so it does not
    /// make the wait longer.
    pub(crate) fn add_unless_waiting(&mut self, limits: &Limits, now_ms: u64) {
        match self.must_wait(limits, now_ms) {
            true => self.logins.failed(),
            false => self.add(limits, now_ms),
        }
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
